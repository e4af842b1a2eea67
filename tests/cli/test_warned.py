"""Warnings of fedpub's loggers: lines like all others, once, and seldom."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

from fedpub.cli.lines import Lines
from fedpub.cli.warned import KINDS, SECONDS, Seldom, warnings_told

GATE = "fedpub.flower.gate"
LARGE = "s2 sent more than the 8388608 bytes that one request may have"


def warned(*texts: str, as_json: bool = True) -> list[str]:
    said: list[str] = []
    with warnings_told(Lines(as_json, said.append)):
        for text in texts:
            logging.getLogger(GATE).warning("%s", text)
    return said


def test_a_warning_is_one_json_object_and_nothing_else_prints_it(capsys, caplog):
    (line,) = warned(LARGE)
    found = json.loads(line)
    assert (found["level"], found["event"], found["logger"], found["message"]) == ("warning", "warning", GATE, LARGE)
    assert capsys.readouterr() == ("", "")
    assert not caplog.records, "the root logger has got it, too"


def test_for_people_it_is_one_printable_line():
    assert warned("s2 sent\nnot\x1b[31m this", as_json=False) == ["s2 sent\\nnot\\x1b[31m this"]


def test_afterwards_logging_is_as_it_was():
    logger = logging.getLogger("fedpub")
    before = list(logger.handlers), logger.propagate
    warned(LARGE)
    assert (logger.handlers, logger.propagate) == before


def test_what_is_no_warning_is_not_shown():
    said: list[str] = []
    logger = logging.getLogger(GATE)
    logger.setLevel(logging.INFO)
    try:
        with warnings_told(Lines(True, said.append)):
            logger.info("all is well")
    finally:
        logger.setLevel(logging.NOTSET)
    assert said == []


def test_the_same_kind_of_the_same_site_is_shown_once_a_minute():
    texts = (LARGE, LARGE.replace("one request", "a request"), LARGE.replace("s2", "s3"))
    assert [json.loads(line)["message"][:2] for line in warned(*texts)] == ["s2", "s3"]
    failed = "the link failed at push-object of {}: ValueError({})"
    said = warned(failed.format("a", 1), failed.format("a", 2), failed.format("b", 3))
    assert [json.loads(line)["message"][-2:-1] for line in said] == ["1", "3"]


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord(GATE, logging.WARNING, __file__, 1, text, (), None)


def test_after_a_minute_it_is_shown_again():
    clock = SimpleNamespace(now=0.0)
    seldom = Seldom(lambda: clock.now)
    found = []
    for clock.now in (0.0, SECONDS - 1, SECONDS + 1, SECONDS + 2):
        found.append(seldom.filter(record(LARGE)))
    assert found == [True, False, True, False]


def test_invented_kinds_are_bounded_in_lines_and_memory():
    clock = SimpleNamespace(now=0.0)
    seldom = Seldom(lambda: clock.now)
    passed = sum(seldom.filter(record(f"refused the key {i} from 10.0.0.1")) for i in range(5 * KINDS))
    assert passed == KINDS == len(seldom._shown)
    clock.now = SECONDS + 1
    assert seldom.filter(record(LARGE))
    assert len(seldom._shown) == 1


@pytest.mark.parametrize("flag", ["--log-json", "--quiet"])
def test_a_coordinator_tells_the_warnings_of_its_gate(flag, monkeypatch, tmp_path, capsys):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")
    from fedpub.cli import main

    class Gate:
        def __init__(self, *about: object) -> None: ...

        def __enter__(self) -> None:
            logging.getLogger(GATE).warning("%s", LARGE)
            raise KeyboardInterrupt

        def __exit__(self, *problem: object) -> None: ...

    monkeypatch.setattr("fedpub.flower.coordinator.Running", Gate)
    assert main(["coordinator", "start", "--folder", str(tmp_path), flag]) == 130
    first, _ = capsys.readouterr().err.splitlines()
    assert (json.loads(first)["message"] if flag == "--log-json" else first) == LARGE


def test_a_site_tells_its_warnings_too(monkeypatch, tmp_path, capsys):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")
    from fedpub.cli import main
    from fedpub.flower.sites import SiteConfig

    def run(*about: object, **more: object) -> None:
        logging.getLogger(GATE).warning("%s", LARGE)

    monkeypatch.setattr("fedpub.flower.site.run_site", run)
    SiteConfig("a", "localhost:1", "g", "cpu").save(tmp_path)
    assert main(["site", "start", "--folder", str(tmp_path), "--log-json"]) == 0
    found = json.loads(capsys.readouterr().err)
    assert (found["site"], found["event"], found["message"]) == ("a", "warning", LARGE)
