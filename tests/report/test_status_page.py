"""`fedpub status --live`: the data of the page, and the page in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_page import ARGUMENTS, CHROMIUM, DRIVER, css, size, texts, until
from test_report import CORA, ask, make_run

from fedpub.cli import main
from fedpub.core.files import append_line
from fedpub.federation.requests import Terms
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import admit, make_site_key
from fedpub.report.federation import FolderSource, federation_payload, federation_server

HOSTILE = "<img src=x onerror='window.broken=1'> \x1b[31m"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation of two sites that was stopped after three of ten rounds, with events."""
    return make_federation(tmp_path / "fed", [[0.5, 0.25], [0.5, 0.5], [0.75, 0.5]])


def make_federation(place: Path, val: list[list[float]]) -> Path:
    config = CoordinatorConfig.new("127.0.0.1", 9443, replace(CORA, method="fedpub", rounds=10, clients=2), Terms())
    config.save(place)
    if val:
        make_run(place / "run", config.experiment, val, finished=False)
    for site in ("hospital-a", "hospital-b"):
        admit(place / "admitted.txt", site, make_site_key(place / f"{site}.key"))
    event = CoordinatorFolder(place).event
    event("hospital-a", "refused", 2, HOSTILE)
    event("hospital-b", "left out", 3, "no valid answer within the deadline")
    return place


def test_the_page_has_what_the_folder_holds(folder):
    found = federation_payload(folder)
    assert (found["state"], found["round"], found["rounds"], found["title"]) == ("stopped", 3, 10, "FED-PUB")
    assert found["history"]["round"] == [1, 2, 3]
    assert len(found["history"]["seconds"]) == 3
    assert found["history"]["validation"] == [0.375, 0.5, 0.625]
    assert found["bytes_up"] > 0
    assert [one["event"] for one in found["events"]] == ["left out", "refused"], "the latest first"
    assert [one["refused"] for one in found["sites"]] == [1, 0]
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)


def test_what_was_written_by_another_program_is_one_line_too(folder):
    line = {"time": 1.0, "site": None, "event": "x", "round": 0, "reason": HOSTILE + "y" * 10_000}
    append_line(folder / "events.jsonl", json.dumps(line))
    reason = federation_payload(folder)["events"][0]["reason"]
    assert reason.isprintable()
    assert len(reason) == 200


def test_a_folder_without_a_round_is_a_page_too(tmp_path):
    found = federation_payload(make_federation(tmp_path / "fed", []))
    assert (found["state"], found["round"], found["updated"], found["history"]["round"]) == ("not begun", 0, None, [])


def test_only_the_latest_events_are_sent(folder):
    for number in range(300):
        CoordinatorFolder(folder).event("hospital-a", "refused", number, "again")
    found = federation_payload(folder)
    assert (len(found["events"]), found["older_events"], found["events"][0]["round"]) == (200, 102, 299)


def test_files_are_read_again_only_when_one_has_changed(folder, monkeypatch):
    source = FolderSource(folder)
    first = source.now()
    assert source.now() is first
    append_line(folder / "events.jsonl", json.dumps({"time": 0, "site": None, "event": "x", "round": 0, "reason": ""}))
    assert len(source.now()["events"]) == 3
    with CoordinatorFolder(folder).in_use():
        assert source.now()["state"] == "running", "no file says so, only the lock"


def test_flags_that_do_not_go_together(folder, capsys):
    assert main(["status", "--folder", str(folder), "--live", "--json"]) == 2
    assert "--live and --json contradict each other" in capsys.readouterr().err
    assert main(["status", "--folder", str(folder), "--port", "8000"]) == 2
    assert "add --live" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal for a child alone")
def test_the_verb_serves_the_page_until_ctrl_c(folder):
    words = [sys.executable, "-m", "fedpub", "status", "--folder", str(folder), "--live"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline().split()[0].rstrip("/").rpartition(":")[2])
        assert "hospital-a" in ask(port, "/", {})[1]
        assert json.loads(ask(port, "/data.json", {})[1])["state"] == "stopped"
        assert ask(port, "/data.json", {"Host": "evil.example"})[0] == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Any]:
    """The live page; its console must stay empty."""
    size(browser, 1280)
    with federation_server(folder) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{serving.port}/")
        yield browser
        assert browser.get_log("browser") == []
        browser.get("about:blank")
        serving.shutdown()
        thread.join()


def test_the_page_is_drawn_and_follows_the_run(opened, folder):
    assert "3 of 10" in css(opened, "#facts").text
    assert css(opened, "#progress").get_attribute("aria-valuenow") == "3"
    assert css(opened, "#progress div").get_attribute("style") == "width: 30%;"
    assert "No coordinator is running" in css(opened, "#notice").text
    for name in ("seconds", "validation"):
        assert css(opened, f"[data-figure={name}] svg [data-line={name}] path")
    assert [row.split("\n")[0] for row in texts(opened, "[data-table=sites] tbody th")] == ["hospital-a", "hospital-b"]
    until(lambda: css(opened, "#live").text == "live, stopped")
    shutil.rmtree(folder / "run")
    make_run(folder / "run", CoordinatorConfig.load(folder).experiment, [[0.5, 0.5]] * 4, finished=False)
    CoordinatorFolder(folder).event("hospital-b", "removed", 4, "it is no longer admitted")
    until(lambda: "4 of 10" in css(opened, "#facts").text)
    assert len(texts(opened, "[data-table=events] tbody tr")) == 3


def test_text_of_a_site_stays_text(opened):
    assert any("onerror='window.broken=1'> \\x1b[31m" in text for text in texts(opened, "td"))
    assert not opened.execute_script("return window.broken")


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(opened, width, scheme):
    size(opened, width)
    how = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", how)
    until(lambda: opened.execute_script("return document.documentElement.dataset.theme") == scheme)
    time.sleep(0.1)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
