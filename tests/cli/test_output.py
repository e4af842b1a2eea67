"""What goes to which output: JSON, bars, lines, colours, exit statuses; and what is in the wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from test_cli import make_tables

from fedpub.cli import VERBS, main, show
from fedpub.cli.typed import parsers
from fedpub.errors import FedpubError
from small import read_terminal

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b"
SMALL = ["--dataset", "tiny.graph", "--scenario", "natural", "--hidden", "8", "--rounds", "3"]


@pytest.fixture
def place(graph_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Path:
    """A current folder with a graph, a run and tables."""
    monkeypatch.chdir(tmp_path)
    make_tables(tmp_path)
    assert main(["run", *SMALL, "--quiet", "--out", "runs/first"]) == 0
    capsys.readouterr()
    return tmp_path


def document(text: str) -> Any:
    """One document, and in it only what JSON has."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


# Every verb that prints a table and needs no federation, as quick as it can be.
QUICK = {
    "run": ["run", *SMALL],
    "predict": ["predict", "--model", "runs/first", "--client", "0", "--graph", "tiny.graph", "--out", "p.csv"],
    "compare": ["compare", *SMALL, "--methods", "local", "fedavg", "--seeds", "2"],
    "reproduce": ["reproduce", "--list"],
    "report": ["report", "runs"],
    "bench partition": ["bench", "partition", "--nodes", "500", "--edges", "2000", "--clients", "5"],
    "bench sparse": ["bench", "sparse", "--nodes", "30", "--features", "30", "--densities", "0.1", "--repeats", "1"],
    "bench robust": [
        *("bench", "robust", "--dataset", "communities", "--clients", "3", "--rounds", "1", "--seeds", "0"),
        *("--methods", "fedavg", "--attacks", "none", "--defences", "default"),
    ],
    "bench wire": ["bench", "wire", "--clients", "2", "--rounds", "1"],
    "data list": ["data", "list"],
    "data stats": ["data", "stats", "--clients", "3"],
    "data partition": ["data", "partition", "--clients", "3"],
    "data import": ["data", "import", "--nodes", "nodes.csv", "--edges", "edges.csv", "--id", "id", "--label", "label"],
    "doctor": ["doctor"],
}
QUICK["data import"] += ["--out", "my.graph"]


@pytest.mark.parametrize("verb", list(QUICK))
def test_json_is_one_document_and_nothing_else(verb, place, capsys):
    assert main([*QUICK[verb], "--json"]) == 0
    assert document(capsys.readouterr().out)


@pytest.mark.parametrize("verb", list(QUICK))
def test_nothing_is_coloured_in_a_pipe(verb, place, capsys):
    assert main(QUICK[verb]) == 0
    said = capsys.readouterr()
    assert said.out.strip()
    assert ESCAPE not in said.out + said.err


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_is_not_coloured_in_a_pipe(verb, capsys):
    with pytest.raises(SystemExit):
        main([*verb.split(), "--help"])
    said = capsys.readouterr()
    assert ESCAPE not in said.out + said.err


def test_every_verb_that_has_a_table_has_json():
    """Those that print none, or whose tables are those of others, are named here."""
    none = {"demo", "watch", "completion"}
    none |= {f"coordinator {verb}" for verb in ("init", "admit", "remove", "rotate", "renew")}
    none |= {f"site {verb}" for verb in ("init", "start", "rotate")}
    for verb in VERBS:
        assert ("--json" in flags_of(verb)) == (verb not in none), verb


def flags_of(verb: str) -> set[str]:
    return {name for one in parsers(verb)[0]._actions for name in one.option_strings}


def test_verbs_that_run_long_can_be_quiet_and_verbose():
    for verb in ("demo", "run", "compare", "reproduce", "deploy local", "coordinator start"):
        assert {"--quiet", "--verbose"} <= flags_of(verb), verb


# What the documents hold


def test_a_run_is_its_summary(place, capsys):
    assert main(["run", "--resume", "runs/first", "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert told.pop("out") == str(Path("runs/first"))
    assert told.pop("idle_clients") == []
    assert told == json.loads(Path("runs/first/summary.json").read_text())


def test_a_comparison_is_its_table_and_its_runs(place, capsys):
    assert main([*QUICK["compare"], "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert [line["method"] for line in told["table"]] == ["local", "fedavg"]
    assert told["table"][0]["p_value"] is None
    assert len(told["runs"]) == 4
    mean = sum(one["test"] for one in told["runs"] if one["method"] == "fedavg") / 2
    assert told["table"][1]["average"] == pytest.approx(100 * mean)


@pytest.mark.parametrize("verb", ["compare", "bench partition"])
def test_a_file_for_json_stands_beside_the_table(verb, place, capsys):
    assert main([*QUICK[verb], "--json", "found.json"]) == 0
    assert "clients" in capsys.readouterr().out or verb == "compare"
    assert document(Path("found.json").read_text())


def test_two_files_for_json_are_refused(place, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*QUICK["bench partition"], "--json", "one", "two"])
    assert caught.value.code == 2
    assert "name one file" in " ".join(capsys.readouterr().err.split())


def test_a_partition_says_who_holds_how_much(place, capsys):
    assert main([*QUICK["data partition"], "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert len(told["nodes"]) == len(told["training_nodes"]) == told["clients"] == 3
    assert Path(told["file"]).is_file()


def test_an_import_says_what_became_of_the_columns(place, capsys):
    assert main([*QUICK["data import"], "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert set(told["columns"]) == {"id", "age", "city", "label"}
    assert (told["nodes"], told["edges"], told["classes"]) == (3, 2, ["no", "yes"])


def test_predictions_are_counted(place, capsys):
    assert main([*QUICK["predict"], "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert sum(told["classes"].values()) == told["nodes"] == 100
    assert 0 <= told["accuracy"] <= 1
    assert told["out"] == "p.csv"


def test_a_report_is_its_tables_and_files(place, capsys):
    assert main([*QUICK["report"], "--markdown", "table.md", "--json"]) == 0
    told = document(capsys.readouterr().out)
    assert told["files"] == ["report.html", "table.md"]
    assert told["tables"][0]["lines"][0]["method"] == "fedpub"


def test_what_is_no_number_is_null(capsys):
    assert show.as_json({"a": float("nan"), "b": (float("inf"), 1.5), "c": Path("x")}, True)
    assert document(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": "x"}
    assert not show.as_json({}, False)
    assert not show.as_json({}, None)
    assert capsys.readouterr().out == ""


# Quiet and verbose


def test_verbose_is_a_line_for_every_round_beside_the_result(place, capsys):
    assert main(["run", *SMALL, "--quiet", "--json"]) == 0
    quiet = capsys.readouterr()
    assert main(["run", *SMALL, "--verbose", "--json"]) == 0
    verbose = capsys.readouterr()
    assert quiet.err == ""
    lines = verbose.err.splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"round {number}/3  val \d+\.\d\d  test \d+\.\d\d  \d+\.\d\d s", line)
    assert {**document(quiet.out), "seconds": 0} == {**document(verbose.out), "seconds": 0}


def test_verbose_tells_set_up_and_runs(place, capsys):
    assert main(["compare", *SMALL, "--methods", "local", "fedgnn", "--seeds", "1", "--verbose"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("run 1/2  round 1/3  val")
    assert any(line.startswith("run 2/2  set-up 1/") for line in lines)
    assert lines[-1].startswith("run 2/2  round 3/3  val")


def test_quiet_and_verbose_contradict_each_other(place, capsys):
    for words in (["run", *SMALL], ["reproduce", "--list"]):
        assert main([*words, "--quiet", "--verbose"]) == 2
        assert "leave one of them out" in capsys.readouterr().err


def test_verbose_tells_where_an_error_came_from(place, capsys):
    words = ["run", "--config", "absent.json"]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*words, "--verbose"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "FileNotFoundError" in said  # the cause
    assert said.splitlines()[-1].startswith("fedpub: cannot read absent.json")


# Terminals. A real one is needed to have a bar, and another program to be in a pipe.


def in_terminal(words: list[str], folder: Path, which: str, **env: str) -> tuple[str, str]:
    """What the verb writes to a terminal as its output `which`, and what to a pipe as the other."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    other = "stderr" if which == "stdout" else "stdout"
    with (folder / "piped").open("wb") as piped:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedpub", *words],
            cwd=folder,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"} | env,
            **{which: follower, other: piped},
        )
    os.close(follower)
    shown = read_terminal(leader)
    os.close(leader)
    assert process.wait(60) == 0
    return shown.decode(), (folder / "piped").read_text()


def test_a_bar_goes_to_the_error_output(place):
    shown, piped = in_terminal(["run", *SMALL, "--json"], place, "stderr", NO_COLOR="1")
    assert "round" in shown
    assert ESCAPE in shown
    assert not colours(shown)
    assert document(piped)["rounds"] == 3


def test_quiet_has_no_bar(place):
    assert in_terminal(["run", *SMALL, "--quiet"], place, "stderr")[0] == ""


def test_no_bar_is_among_the_results(place):
    shown, piped = in_terminal(["run", *SMALL], place, "stdout")
    assert "test accuracy" in shown
    assert "round 1" not in shown
    assert piped == ""


def test_no_color_is_heeded_in_a_terminal(place):
    shown, _ = in_terminal(["compare", *SMALL, "--methods", "local", "--seeds", "1"], place, "stdout", NO_COLOR="1")
    assert "local" in shown
    assert not colours(shown)
    shown, _ = in_terminal(["data", "list", "--help"], place, "stdout", NO_COLOR="1")
    assert "--json" in shown
    assert not colours(shown)


def colours(shown: str) -> list[int]:
    """Escape codes of colours; bold letters and a moved cursor are none."""
    codes = [int(code) for found in re.findall(r"\x1b\[([\d;]*)m", shown) for code in found.split(";") if code]
    return [code for code in codes if 30 <= code <= 49 or 90 <= code <= 107]


def test_a_download_s_bar_is_not_among_the_results(place, capsys):
    """It names no console: the command line chooses that."""
    import rich

    assert main(["data", "list"]) == 0
    assert rich.get_console().stderr


# Exit statuses


def test_the_overview_has_the_exit_statuses(capsys):
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    found = "1 found a problem (doctor, audit verify), or an unexpected error"
    for status in ("0 done", found, "2 a problem that you can fix", "130 interrupted"):
        assert status in told


def raising(error: BaseException) -> Any:
    def verb() -> None:
        raise error

    return verb


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (FedpubError("mend this"), 2, "fedpub: mend this\n"),
        (KeyboardInterrupt(), 130, "fedpub: interrupted"),
    ],
)
def test_exit_statuses(error, status, said, monkeypatch, capsys):
    monkeypatch.setattr("fedpub.cli.action", lambda verb: raising(error))
    assert main(["run"]) == status
    assert capsys.readouterr().err.startswith(said)


def test_an_unexpected_error_is_a_traceback_and_status_one(tmp_path):
    code = "import sys, fedpub.cli as c; c.VERBS['demo'] = ('absent:absent', ''); sys.exit(c.main(['demo']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'fedpub.cli.absent'" in done.stderr


def test_what_a_verb_returns_is_the_status(monkeypatch):
    monkeypatch.setattr("fedpub.cli.action", lambda verb: lambda: 1)
    assert main(["doctor"]) == 1


# Quick help


def test_the_overview_needs_only_python():
    """Nothing but the standard library and the package's first modules: so it is there at once."""
    code = "import sys; before = set(sys.modules); import fedpub.cli; fedpub.cli.main(['--help'])\n"
    code += "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert set(done.stderr.split()) <= {"fedpub"} | sys.stdlib_module_names


# The wheel


def test_the_wheel_holds_what_the_package_reads(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    code = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {name for name in packed.namelist() if name.startswith("fedpub/")}
        about = packed.read(next(name for name in packed.namelist() if name.endswith("entry_points.txt"))).decode()
    source = tmp_path / "src"
    assert held == {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()} - left_out(source)
    for name in ("py.typed", "report/published.csv", "report/page.html", "report/page.css", "report/status.js"):
        assert f"fedpub/{name}" in held
    assert "fedpub = fedpub.cli:main" in about


def left_out(source: Path) -> set[str]:
    """What building leaves beside the package."""
    return {str(path.relative_to(source)) for path in source.glob("*.egg-info/*")}
