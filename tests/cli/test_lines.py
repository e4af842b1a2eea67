"""--log-json: one JSON object per line, whatever happens."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import Any

import pytest

from fedpub.cli import VERBS, main
from fedpub.cli.lines import Lines, as_line
from fedpub.errors import FedpubError, note
from fedpub.flower.site_view import Answered
from fedpub.store.record import Row

HOSTILE = 'a"}\n{"event": "forged"}\x1b[31m'
EVENT = {"time": 1.0, "site": "b", "event": "refused", "round": 3, "reason": HOSTILE}
ANSWERED = Answered("round", 3, "answered", 0.12345, 10, 20)


def told(as_json: bool, **about: Any) -> tuple[Lines, list[str]]:
    said: list[str] = []
    return Lines(as_json, said.append, **about), said


def test_a_line_has_its_time_level_event_and_message():
    found = json.loads(as_line("all is well", "serving", port=1))
    assert list(found) == ["time", "level", "event", "port", "message"]
    assert datetime.fromisoformat(found["time"]).utcoffset() == timedelta(0)
    assert found["time"].endswith("Z")


def test_for_people_lines_are_as_they_were():
    lines, said = told(False, site="a")
    lines("connected", "connected")
    lines.on_event(EVENT | {"reason": "too large"})
    lines.on_round(Row(1, 0.5, {"val": [0.5], "test": [0.5]}), 9)
    lines.on_answer(ANSWERED)
    assert said == ["connected", "round 3: b refused: too large"]


def test_for_programs_everything_is_a_line():
    lines, said = told(True, site="a")
    lines("connected", "connected")
    lines.on_event(EVENT)
    lines.on_round(Row(1, 0.5, {"val": [0.5], "test": [math.nan]}), 9)
    lines.on_answer(ANSWERED)
    found = [json.loads(line) for line in said]
    assert [one["event"] for one in found] == ["connected", "refused", "round", "answered"]
    assert [one["level"] for one in found] == ["info", "warning", "info", "info"]
    assert [one["site"] for one in found] == ["a", "b", "a", "a"]
    assert (found[2]["round"], found[2]["rounds"], found[2]["validation"], found[2]["test"]) == (1, 9, 0.5, None)
    assert (found[3]["kind"], found[3]["bytes_out"], found[3]["seconds"]) == ("round", 20, 0.123)


def test_text_of_a_site_stays_on_its_line():
    lines, said = told(True)
    lines.on_event(EVENT)
    assert said[0].isprintable()
    assert json.loads(said[0])["reason"] == 'a"}\\n{"event": "forged"}\\x1b[31m'


def raising(error: Exception) -> Any:
    def verb(log_json: bool = False) -> None:
        """Raise.

        Example: fedpub site start

        Args:
            log_json: Lines.
        """
        note("something is odd")
        raise error

    return verb


@pytest.mark.parametrize(
    ("error", "status", "event"), [(FedpubError("`port=1` is taken"), 2, "error"), (KeyError(HOSTILE), 1, "crash")]
)
def test_errors_and_notes_are_lines_too(error, status, event, monkeypatch, capsys):
    monkeypatch.setattr("fedpub.cli.action", lambda verb: raising(error))
    assert "site start" in VERBS
    assert main(["site", "start", "--log-json"]) == status
    first, last = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (first["event"], first["message"]) == ("note", "something is odd")
    assert (last["event"], last["level"]) == (event, "error")
    assert "--port 1 is taken" in last["message"] or "KeyError" in last["traceback"]
