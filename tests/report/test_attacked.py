"""The page on what the coordinator can learn: plain and secure runs side by side, and damaged files left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_page import ARGUMENTS, CHROMIUM, DRIVER, css, texts
from test_report import CORA, EVIL, make_run

from fedpub.report.live import Source
from fedpub.report.load import load
from fedpub.report.page import page
from fedpub.report.payload import payload


def finding(attack: str, score: float | None, guess: float | None, verdict: str) -> dict[str, Any]:
    known = {"score": score, "guess": guess, "worst": score, "verdict": verdict}
    return {"attack": attack, "learnt": "much", "measure": "overlap", "sentence": f"{EVIL} is learnt.", **known}


def attacked(path: Path, secure: bool, score: float) -> None:
    verdict = "no better than guessing" if secure else "better than guessing"
    findings = [finding("classes", score, 0.4, verdict), finding("words", None, None, "not scored")]
    held = {
        "format": "fedpub-attack-1",
        "command": "fedpub attack",
        "rounds": 3,
        "secure": secure,
        "findings": findings,
    }
    (path / "attack.json").write_text(json.dumps(held), encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("attacked")
    for at, (secure, score) in enumerate([(False, 0.9), (True, 0.4)]):
        make_run(base / str(at), replace(CORA, seed=at), [[0.5, 0.6]] * 3)
        attacked(base / str(at), secure, score)
    return base


def test_the_attacks_of_all_runs_are_in_the_data(runs):
    found = payload(*load([runs]))["attacks"]
    assert [(one["secure"], one["findings"][0]["score"], one["cell"]) for one in found] == [
        (False, 0.9, 0),
        (True, 0.4, 0),
    ]


def test_those_of_a_coordinator_s_folder_are_found_around_its_run(tmp_path):
    make_run(tmp_path / "run", CORA, [[0.5, 0.6]] * 3)
    attacked(tmp_path, False, 0.9)
    assert len(payload(*load([tmp_path / "run"]))["attacks"]) == 1


def test_runs_that_were_not_attacked_have_none(tmp_path):
    make_run(tmp_path / "run", CORA, [[0.5, 0.6]] * 3)
    assert payload(*load([tmp_path]))["attacks"] == []


def test_a_live_page_shows_attacks_as_they_come(tmp_path):
    make_run(tmp_path / "run", CORA, [[0.5, 0.6]] * 3)
    source = Source([tmp_path])
    assert source.now()["attacks"] == []
    attacked(tmp_path / "run", False, 0.9)
    assert len(source.now()["attacks"]) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', '{"format": "fedpub-attack-1", "findings": [{}]}'])
def test_a_damaged_file_is_left_out_with_a_sentence(tmp_path, text):
    make_run(tmp_path / "run", CORA, [[0.5, 0.6]] * 3)
    (tmp_path / "run" / "attack.json").write_text(text)
    found = payload(*load([tmp_path]))
    assert found["attacks"] == []
    assert any("attack the run again" in said for said in found["complaints"])


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


def test_plain_and_secure_stand_side_by_side(browser, runs, tmp_path):
    (tmp_path / "report.html").write_text(page(payload(*load([runs]))), encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    assert css(browser, "#attacks").is_displayed()
    heads = texts(browser, "[data-table=attacks-0] thead th")
    assert [head for head in heads if "seed" in head] == ["FED-PUB, plain, seed 0", "FED-PUB, secure, seed 1"]
    (first, *_), *_ = [texts(browser, "[data-table=attacks-0] tbody tr")]
    assert "0.900" in first
    assert "0.400" in first
    assert texts(browser, "[data-table=attacks-0] td.bad") == ["0.900"]
    assert texts(browser, "[data-table=attacks-0] td.good") == ["0.400"]
    assert len(texts(browser, "[data-figure=attacks-0] [data-attack]")) == 2
    assert len(texts(browser, "[data-sentences=secure] li")) == 2
    assert EVIL.split("\u2028")[0] in texts(browser, "[data-sentences=plain] li")[0]
    assert not browser.execute_script("return window.broken")
    assert browser.get_log("browser") == []


def test_without_attacks_there_is_no_such_section(browser, tmp_path):
    make_run(tmp_path / "run", CORA, [[0.5, 0.6]] * 3)
    (tmp_path / "report.html").write_text(page(payload(*load([tmp_path]))), encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    assert not css(browser, "#attacks").is_displayed()
    assert not css(browser, "#attacks-link").is_displayed()
