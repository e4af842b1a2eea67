"""The report in a real browser: it draws without errors, reacts to pointer and keyboard, and fits a phone."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from test_report import CORA, EVIL, example_runs, make_run

from fedpub.report.live import server
from fedpub.report.load import load
from fedpub.report.page import page
from fedpub.report.payload import payload

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="chromium or chromedriver is not installed")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder / "saved")})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    driver.set_script_timeout(10)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def report(folder: Path) -> str:
    """Two tasks, an unfinished run, a hostile name and an unreadable file."""
    runs = example_runs(folder / "runs")
    make_run(runs / "links", replace(CORA, task="link-prediction"), [[0.6, 0.9]])
    make_run(runs / "open", replace(CORA, seed=2, clients=5), [[0.5] * 5], finished=False)
    make_run(runs / "evil", replace(CORA, dataset=EVIL, method="local"), [[0.5, 0.6]])
    (runs / "gcfl-1" / "env.json").write_text("{")
    path = folder / "report.html"
    path.write_text(page(payload(*load([runs]))), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser: Any, report: str) -> Iterator[Any]:
    """The page at desktop width, showing the most complete cell; in every test the console must stay empty."""
    size(browser, 1440)
    browser.get_log("browser")
    browser.get(report)
    choose(browser, "cora, disjoint, 5 clients")
    yield browser
    assert browser.get_log("browser") == []


def size(browser: Any, width: int) -> None:
    how = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)


def choose(browser: Any, name: str) -> None:
    browser.execute_script(
        "const cell = document.getElementById('cell');"
        "cell.value = [...cell.options].find((one) => one.textContent.startsWith(arguments[0])).value;"
        "cell.dispatchEvent(new Event('change'));",
        name,
    )


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 10
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


def css(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def test_everything_is_drawn(opened):
    assert texts(opened, "[data-figure] h3")
    for name in ("convergence", "gains", "heat", "communities", "cost"):
        assert css(opened, f"[data-figure={name}] svg")
    assert len(texts(opened, "[data-figure=heat] rect[data-value]")) == 25
    assert len(texts(opened, "[data-figure=gains] [data-client]")) == 20
    assert len(texts(opened, "[data-figure=bytes] [data-point]")) == 3
    assert {"Local", "GCFL", "FED-PUB"} == set(texts(opened, "[data-figure=convergence] [data-method] text"))
    assert "Unreadable or left out" in css(opened, "#complaints").text
    assert "env.json" in css(opened, "#complaints").text
    assert "nothing is averaged across tasks" in css(opened, "#summary-body").text
    assert "seed 2 at round 1 of 3" in css(opened, "[data-table=lines-node-classification]").text


def test_headings_are_in_order_and_everything_has_a_name(opened):
    levels = opened.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    nameless = opened.execute_script(
        "return [...document.querySelectorAll('button, select, input, [tabindex], svg')].filter((one) =>"
        "!(one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label, [aria-hidden]')"
        " || one.labels?.length)).length"
    )
    assert nameless == 0


def test_hostile_names_stay_text(opened):
    assert not opened.execute_script("return window.broken")
    assert any("onerror=window" in text for text in texts(opened, "#cell option"))


def test_the_slider_changes_the_heat_map_and_the_communities(opened):
    def squares() -> list[str]:
        script = "return [...document.querySelectorAll('[data-figure=heat] rect[data-value]')].map((r) => r.outerHTML)"
        found: list[str] = opened.execute_script(script)
        return found

    last = squares()
    slider = css(opened, "#round")
    slider.send_keys("\ue011")  # Home
    assert squares() != last
    assert "Round 1" in css(opened, "[data-figure=heat] .say").text
    assert sum('data-value=""' in one for one in squares()) == 9  # client 4 was absent
    slider.send_keys("\ue010")  # End
    assert squares() == last
    assert "2 groups: 0, 1, 2  |  3, 4" in texts(opened, "[data-figure=communities] .say")[0]


def test_the_heat_map_can_be_read_by_pointer_and_keyboard(opened):
    surface = css(opened, "[data-figure=heat] [role=application]")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", surface)

    def pointed(step: int) -> bool:
        webdriver.ActionChains(opened).move_to_element_with_offset(surface, step % 2, 0).perform()
        return "clients 2 and 2" in css(opened, "#tip").text

    steps = itertools.count()
    until(lambda: pointed(next(steps)))  # scrolling may still hide it
    opened.execute_script("arguments[0].focus()", surface)
    webdriver.ActionChains(opened).send_keys("\ue014").perform()  # right
    assert "clients 2 and 3" in css(opened, "[data-figure=heat] .say").text


def test_clusters_of_gcfl_are_drawn(opened):
    opened.execute_script(
        "const run = document.getElementById('relation');"
        "run.value = 'GCFL, seed 0: same cluster'; run.dispatchEvent(new Event('change'));"
    )
    css(opened, "#round").send_keys("\ue011\ue014")  # Home, right
    assert "2 groups: 0, 1, 2  |  3, 4" in texts(opened, "[data-figure=communities] .say")[0]


def test_a_click_sorts_and_another_turns_round(opened):
    table = "[data-table=lines-node-classification]"

    def measured() -> list[float]:
        return [float(text.split()[0]) for text in texts(opened, f"{table} tbody td:nth-child(4)")]

    head = f"{table} thead th:nth-child(4)"
    css(opened, f"{head} button").click()
    assert measured() == sorted(measured(), reverse=True)
    assert css(opened, head).get_attribute("aria-sort") == "descending"
    css(opened, f"{head} button").send_keys("\ue007")  # Enter
    assert measured() == sorted(measured())
    assert css(opened, head).get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("clipboard", [True, False])
def test_a_table_is_copied_with_tabs(opened, clipboard):
    opened.execute_script(
        "window.copied = null;"
        "const mine = {writeText: async (text) => { if (!arguments[0]) throw Error('no'); window.copied = text; }};"
        "Object.defineProperty(navigator, 'clipboard', {value: mine, configurable: true});"
        "document.addEventListener('copy', () => { window.copied = document.activeElement.value; });",
        clipboard,
    )
    button = css(opened, "[data-table=cost] [data-copy]")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    lines = until(lambda: opened.execute_script("return window.copied")).splitlines()
    assert lines[0].split("\t")[:3] == ["Method", "Zeros", "MB up"]
    assert lines[-1].split("\t")[:3] == ["FED-PUB", "25.0 %", "19.0"]
    until(lambda: button.text == "Copied")


def test_figures_are_saved_as_svg_and_csv(opened, folder):
    saved = folder / "saved"
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(saved)})
    for name in ("convergence", "gains", "heat", "communities", "cost"):
        for kind in ("svg", "csv"):
            button = css(opened, f"[data-figure={name}] [data-save={kind}]")
            opened.execute_script("arguments[0].click()", button)
            file = saved / f"{name}-cora-disjoint-5-clients.{kind}"
            until(lambda file=file: file.is_file() and file.stat().st_size)
            if kind == "svg":
                assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
            else:
                lines = file.read_text().splitlines()
                assert len(lines) > 3
                assert len({line.count(",") for line in lines}) == 1
    assert (saved / "gains-cora-disjoint-5-clients.csv").read_text().startswith("method,seed,client,gain_over_local\n")


def test_a_method_can_be_hidden_with_the_keyboard(opened):
    before = len(texts(opened, "[data-figure=convergence] [data-line]"))
    mark = css(opened, "[data-figure=convergence] [data-method=gcfl]")
    opened.execute_script("arguments[0].focus()", mark)
    webdriver.ActionChains(opened).send_keys(" ").perform()
    assert len(texts(opened, "[data-figure=convergence] [data-line]")) == before - 2


def test_the_theme_follows_the_system_and_the_button(opened, report):
    how = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", how)
    opened.execute_script("localStorage.clear()")
    opened.get(report)
    paper = "return getComputedStyle(document.body).backgroundColor"
    dark = opened.execute_script(paper)
    css(opened, "#theme").click()
    assert opened.execute_script(paper) != dark
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    opened.execute_script("localStorage.clear()")


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
def test_the_page_never_scrolls_sideways(opened, report, width):
    size(opened, width)
    opened.get(report)
    choose(opened, "cora, disjoint, 5 clients")
    opened.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(0.2)
    wide, seen = opened.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= width
    assert seen == width


def test_it_can_be_printed(opened):
    made = opened.execute_cdp_cmd("Page.printToPDF", {})
    assert len(made["data"]) > 20_000


def test_many_clients_are_one_picture(browser, folder):
    similar = np.random.default_rng(0).uniform(0, 1, (2, 70, 70))
    make_run(folder / "many", replace(CORA, clients=70), [[0.5] * 70] * 2, similarity=similar)
    path = folder / "many.html"
    path.write_text(page(payload(*load([folder / "many"]))), encoding="utf-8")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert css(browser, "[data-figure=heat] image").get_attribute("href").startswith("data:image/png")
    assert len(texts(browser, "[data-figure=communities] circle")) == 70
    assert browser.get_log("browser") == []


def test_a_live_page_follows_the_run(browser, folder):
    runs = folder / "live"
    make_run(runs / "a", replace(CORA, seed=0), [[0.5, 0.7]], finished=False)
    with server([runs]) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{serving.server_address[1]}/")
        until(lambda: "1 run in progress" in css(browser, "#live").text)
        make_run(runs / "b", replace(CORA, method="local"), [[0.4, 0.6]])
        until(lambda: any("Local" in text for text in texts(browser, "[data-table] tbody td")))
        assert browser.get_log("browser") == []
        browser.get("about:blank")
        serving.shutdown()
        thread.join()


def test_the_points_of_a_sweep_are_drawn(browser, folder):
    from test_swept import make_sweep

    browser.get_log("browser")
    path = folder / "sweep.html"
    path.write_text(page(payload(*load([make_sweep(folder / "sweep")]))), encoding="utf-8")
    size(browser, 1440)
    browser.get(path.as_uri())
    panel = "[data-figure=sweep-0] [data-panel=lr]"
    assert css(browser, panel).get_attribute("data-scale") == "log"
    assert len(texts(browser, f"{panel} [data-point]")) == 4
    assert len(texts(browser, f"{panel} [data-chosen]")) == 2, "a ring for each method"
    assert len(texts(browser, f"{panel} [data-line]")) == 1, "FedAvg has a single point"
    rows = texts(browser, "[data-table=sweep-0] tbody tr")
    assert ["chosen" in row for row in rows] == [False, True, False, True]
    assert "65.00" in rows[1]
    assert browser.get_log("browser") == []


def test_a_page_without_a_sweep_has_no_section_for_it(opened):
    assert not css(opened, "#sweep").is_displayed()
    assert not css(opened, "#sweep-link").is_displayed()
