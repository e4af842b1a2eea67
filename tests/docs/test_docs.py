"""The documentation: the site builds, links lead somewhere, commands do what is said, generated text is current."""

from __future__ import annotations

import ast
import csv
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import torch

from fedpub.algorithms import METHODS, options_of
from fedpub.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
PAGES = sorted([*WRITTEN, *(ROOT / "examples").rglob("*.md")])
# Written by hand: not what docs/generate.py or a recipe writes.
MADE = ("docs/reference/", "docs/results/paper/", "docs/results/beyond/")
BY_HAND = [path for path in PAGES if not path.relative_to(ROOT).as_posix().startswith(MADE)]
WIDEST = 120
# Words and turns that read as translated; what to write instead is on the right.
ODD = {
    r"mend(s|ed|ing)?": "fix",
    r"letters?": "message",
    r"(go|goes|going|went|gone) on": "continue, resume",
    r"stands? (here|there|beside|behind)": "is",
    r"(every|some|no)body": "each client, someone, no one",
    r"whoever": "anyone who",
    r"everything that is random": "random seed",
    r"shall": "must",
    r"anew": "again, from scratch",
    r"at hand": "available",
    r"as it is typed": "exactly as shown",
    r"the luck of": "variance",
    r"tells? \w+ of": "reports, logs",
}
BOX = "│┃┏┓└┘┡┩━─┌┐├┤"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)


def slugs(path: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found: set[str] = set()
    for heading in re.findall(
        r"^#{1,6} +(.+)$", re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S), re.M
    ):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def links(path: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(path))


# Links


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path):
    for link in links(path):
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in ("https", "mailto"), link
            assert "." in parts.netloc or parts.scheme == "mailto", link
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        assert target.exists(), f"{link} leads to nothing"
        assert ROOT in target.parents, f"{link} leads out of the repository"
        if parts.fragment:
            assert parts.fragment in slugs(target), f"{link}: no such heading in {name_of(target)}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_tell_nothing_of_a_machine(path):
    assert not re.search(r"/(?:home|root|Users|work)/", path.read_text("utf-8"))


# Language


def wide(text: str) -> list[str]:
    """Lines of prose that are too long; a table may be wide, and so may one link, image or command."""
    flowing = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    lines = [line for line in flowing.splitlines() if not line.lstrip().startswith(("|", "<!--", "![", "#"))]
    return [line for line in lines if len(line) > WIDEST and not re.fullmatch(r"\s*(\S+|`[^`]+`)", line)]


@pytest.mark.parametrize("path", BY_HAND, ids=name_of)
def test_lines_are_not_too_long(path):
    assert not wide(path.read_text("utf-8"))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_are_in_plain_english(path):
    text = " ".join(re.sub(r"`[^`]*`", "`", prose(path)).split())  # names of code are names
    found = [match.group() for turn in ODD for match in re.finditer(rf"\b{turn}\b", text, flags=re.I)]
    assert not found, f"{found}: write {[said for turn, said in ODD.items() if re.search(turn, text, re.I)]}"


# The house

ARCHITECTURE = DOCS / "architecture.md"
WRITTEN_BY_RUNS = {"checkpoint/", "deployment/", "fed/"}  # folders that a command of the page makes
NAMED = [path for path in BY_HAND if path.name not in ("CHANGELOG.md", "comparison.md")]  # these name other files, too


@pytest.mark.parametrize("path", NAMED, ids=name_of)
def test_files_that_pages_name_exist(path):
    named = re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|csv|md|toml))?)`", prose(path))
    assert named or path != ARCHITECTURE
    for name in named:
        folders = (ROOT, ROOT / "src" / "fedpub", path.parent)
        known = any((folder / name).exists() for folder in folders)
        assert known or name in WRITTEN_BY_RUNS, f"{name_of(path)} names {name}, which does not exist"


def test_types_are_where_the_page_says():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([\w/]+\.py)` \|", ARCHITECTURE.read_text("utf-8"), flags=re.M)
    assert len(rows) > 10
    for names, file in rows:
        code = (ROOT / "src" / "fedpub" / file).read_text("utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^(class {name}\b|{name}\b.* = )", code, flags=re.M), f"{name} is not in {file}"


def test_the_rooms_that_are_drawn_are_those_of_the_contract(generate):
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    assert list(generate.house()["rooms"]()) == [name for name in layers if name not in ("__main__", "version")]


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install 'fedpub[docs]'")
    pytest.importorskip("material", reason="Material for MkDocs is not installed: pip install 'fedpub[docs]'")
    out = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not re.search("WARNING|ERROR", done.stderr), done.stderr
    return out


def test_every_page_is_in_the_site_and_its_menu(site):
    menu = (site / "index.html").read_text("utf-8")
    for path in DOCS.rglob("*.md"):
        page = path.relative_to(DOCS).with_suffix(".html").as_posix().replace("README.html", "index.html")
        assert (site / page).is_file()
        listed = f'href="{page}"' in menu or page.startswith(("results/paper/", "results/beyond/"))
        assert listed, f"{page} is not in the menu of mkdocs.yml"


def test_the_site_needs_no_network(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text("utf-8")):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), f"{page}: {tag}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:", style.read_text("utf-8")), style


def test_links_of_the_site_lead_somewhere(site):
    names = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8"))) for page in site.rglob("*.html")}
    for page in names:
        if page.name == "404.html":
            continue
        for link in re.findall(r'<(?:a|img)\b[^>]*?(?:href|src)="([^"]+)"', page.read_text("utf-8")):
            parts = urlsplit(link)
            if parts.scheme or link.startswith("#__"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            fragment = unquote(parts.fragment)
            assert not fragment or target not in names or fragment in names[target], f"{page.relative_to(site)}: {link}"


def test_the_search_works_on_pages_from_disk(site):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(argument)
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--window-size=1400,900")  # on a phone the search hides behind a button
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.get((site / "results" / "index.html").as_uri())
        browser.find_element("css selector", "input[data-md-component=search-query]").send_keys("overlapping")
        found = WebDriverWait(browser, 20).until(lambda b: b.find_elements("css selector", ".md-search-result__link"))
        assert found[0].get_attribute("href").startswith(site.as_uri())
        assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    finally:
        browser.quit()


# Generated pages


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = made  # dataclasses look there
    spec.loader.exec_module(made)
    return made


def test_generated_pages_are_those_of_the_code(generate):
    old = [name_of(path) for path, text in generate.pages().items() if path.read_text("utf-8") != text]
    assert not old, f"out of date: {', '.join(old)}; run: python docs/generate.py"


def test_every_method_says_what_leaves(generate):
    assert {method for method, *_ in generate.senders().values()} == set(METHODS) - {"oracle"}


# Commands, as typed


def blocks(path: Path) -> list[tuple[str, str]]:
    """The blocks of code of a page: language and content."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text("utf-8"), flags=re.M | re.S)


def type_in(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command prints. Only pytest gets a process of its own: to start one takes seconds."""
    words = shlex.split(line, comments=True)
    capfd.readouterr()
    if words[:2] == ["python", "-m"]:
        subprocess.run([sys.executable, *words[1:]], check=True)
    elif words[0] == "python":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words[1:])
            code: object = None
            try:
                runpy.run_path(words[1], run_name="__main__")
            except SystemExit as done:
                code = done.code
            assert not code, line
    else:
        assert words[0] == "fedpub", line
        assert main(words[1:]) == 0, line
    return capfd.readouterr().out


def flat(text: str) -> str:
    return " ".join(text.translate(dict.fromkeys(map(ord, BOX), " ")).split())


def test_text_is_compared_as_flat():
    assert flat("│ nodes   │  2,000 │") == "nodes 2,000"


@pytest.fixture
def _methods_stay(monkeypatch, tmp_path):
    """What a page adds to the methods is gone afterwards."""
    before = dict(METHODS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("custom_method", None)
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.usefixtures("_methods_stay")
@pytest.mark.parametrize("page", ["tutorial", "your-own-graph", "sweep", "write-your-own-method"])
def test_commands_as_typed(page, tmp_path, monkeypatch, capfd):
    """Shell blocks one after the other. Python blocks are saved as files; what is shown as printed was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    said, shown = "", 0
    for language, content in blocks(DOCS / f"{page}.md"):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", content)
            name = name.group(1) if name else "test_custom_method.py" if "def test_" in content else "custom_method.py"
            (tmp_path / name).write_text(content, encoding="utf-8")
        elif language == "sh":
            said = "\n".join(type_in(line, capfd) for line in content.splitlines() if line.strip())
        elif language == "text":
            for line in content.splitlines():
                label = re.split(r"\s{2,}", line.strip())[0]
                assert flat(label) in flat(said), f"{label!r} is not in what was printed:\n{said}"
                shown += 1
                if label == "test accuracy":
                    printed = re.search(r"test accuracy\s+([\d.]+) %", said).group(1)
                    assert float(printed) == pytest.approx(float(line.split()[2]), abs=5), "the page's number is old"
    assert shown or page == "write-your-own-method"


def test_differences_are_those_of_the_committed_tables():
    """The ranges in the text, to the digit that it gives."""

    def rows(name: str) -> list[dict[str, str]]:
        with (DOCS / "results" / "paper" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def between(values: list[float]) -> str:
        return f"{min(values):.1f} to {max(values):.1f} points"

    text = " ".join((DOCS / "results" / "differences.md").read_text(encoding="utf-8").split())
    chosen = [
        row
        for row in rows("table-disjoint") + rows("table-overlapping")
        if row["method"] in ("FedAvg", "FedProx", "FedGNN") and row["cell"].startswith(("computers", "photo"))
    ]
    above = [row for row in chosen if float(row["difference"]) > 2]
    differences, deviations = ([float(row[name]) for row in above] for name in ("difference", "deviation"))
    said = f"{between(differences)} above the paper in {len(above)} of {len(chosen)} cells"
    assert f"**FedAvg, FedProx and FedGNN on Computers and Photo**, {said}" in text
    assert f"Their deviations over seeds are {between(deviations)} in those cells" in text
    averaging = {row["method"]: float(row["difference"]) for row in rows("table-random") if row["method"] != "Local"}
    ours = averaging.pop("FED-PUB")
    said = f"every method that averages is {between([*averaging.values()])} above the paper, FED-PUB {ours:.1f}"
    assert said in text


def test_errors_as_printed(tmp_path, monkeypatch, capfd):
    """The sentences in the questions and errors are those of the code; three dots stand for anything."""
    monkeypatch.chdir(tmp_path)
    rows = "p0,31,north,yes\np1,44,south,no\np2,27,north,yes\np3,39,south,no\n"
    files = {
        "nodes.csv": f"id,age,city,label\n{rows}",
        "edges.csv": "source,target\np0,p1\np2,p3\np3,p9\n",
        "good.csv": "source,target\np0,p1\np2,p3\np1,p3\n",
        "two.csv": "source,target\np0,p1\n",
        "missing.csv": "id,age,city,label\np0,31,north,yes\np1,,south,no\n",
        "east.csv": "id,age,city,label\np0,31,east,yes\np1,20,south,no\n",
        "new.csv": "id,age,city,label\np0,31,north,\np1,20,south,\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tables = ["--nodes", "nodes.csv", "--edges", "good.csv", "--id", "id", "--label", "label"]
    assert main(["data", "import", *tables, "--out", "my.graph"]) == 0
    assert main(["run", "--method", "fedavg", "--rounds", "2", "--hidden", "8", "--out", "runs/first", "--quiet"]) == 0
    pairs = []
    for language, content in blocks(DOCS / "faq.md"):
        if language == "console" and content.startswith("$ "):
            command, sentence = content.strip().split("\n")
            pairs.append((command.removeprefix("$ "), sentence))
    assert len(pairs) > 10
    for command, sentence in pairs:
        if "--device cuda" in command and torch.cuda.is_available():
            continue
        capfd.readouterr()
        assert main(shlex.split(command)[1:]) == 2, command
        expected = ".*".join(map(re.escape, sentence.split("...")))
        said = capfd.readouterr().err.strip()
        assert re.fullmatch(expected, said), f"{command}\nsaid:   {said}\npage: {sentence}"


# Names


def dotted(text: str) -> set[str]:
    """What a text names as a part of the package, as `fedpub.data.tables.from_networkx`."""
    # Not what is imported by its full name, nor options of the method FED-PUB, as in --set fedpub.tau=5.
    text = re.sub(r"(from|import) fedpub[\w.]*", "", text)
    others = {"fedpub.py", *(f"fedpub.{option}" for option in options_of("fedpub"))}
    return {found.rstrip(".") for found in re.findall(r"(?<![\w/.-])fedpub(?:\.[A-Za-z]\w*)+", text)} - others


def test_every_part_of_the_package_that_is_named_can_be_used_after_import_fedpub():
    names = set().union(*(dotted(page.read_text("utf-8")) for page in PAGES))
    for file in (ROOT / "src").rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant)]
        names |= set().union(*(dotted(text) for text in texts if isinstance(text, str) and " " in text))
    first = "fedpub.data.tables.from_networkx"  # before another name has imported what it needs
    assert {first, "fedpub.run", "fedpub.data.graph.undirected"} <= names
    code = """
import sys, fedpub
for name in sys.argv[1:]:
    eval(name)
"""
    call = [sys.executable, "-c", code, first, *sorted(names)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
