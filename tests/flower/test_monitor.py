"""/healthz and /metrics of coordinators and sites."""

from __future__ import annotations

import http.client
import json
import math
import socket
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from fedpub.cli import main
from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.federation.wire import Envelope, encode
from fedpub.flower.coordinator_view import CoordinatorView
from fedpub.flower.monitor import Monitor, View, read_address
from fedpub.flower.site_view import Answered, SiteView
from fedpub.store.record import Row


def ask(monitor: Monitor, path: str) -> tuple[int, str, str]:
    port = int(str(monitor.place).rpartition(":")[2].partition("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), str(answer.getheader("Content-Type"))
    connection.close()
    return found


def numbers(view: View) -> dict[str, float]:
    lines = [line for line in view.metrics_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def row(number: int, val: list[float], seconds: float = 1.5) -> Row:
    return Row(number, seconds, {"val": val, "test": val, "took_part": [1.0] * len(val)})


# The server


def test_a_port_alone_is_on_loopback():
    assert read_address("9464") == ("127.0.0.1", 9464)
    assert read_address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert read_address("[::1]:9464") == ("::1", 9464)


@pytest.mark.parametrize("text", ["", ":9464", "host:", "host", "70000", "-1", "１２", "a:b"])
def test_what_is_no_address_is_said(text):
    with pytest.raises(FedpubError, match="is no address; give PORT or HOST:PORT"):
        read_address(text)


def test_a_monitor_answers_and_ends_with_its_block():
    with Monitor("0", CoordinatorView()) as monitor:
        status, text, kind = ask(monitor, "/healthz")
        assert (status, json.loads(text)["state"], kind) == (200, "starting", "application/json; charset=utf-8")
        status, text, kind = ask(monitor, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# TYPE fedpub_round gauge\n" not in text, "nothing is known before the run"
        assert ask(monitor, "/")[0] == 404
    with pytest.raises(ConnectionError):
        ask(monitor, "/healthz")


def test_nothing_listens_unless_asked_for():
    with Monitor(None, CoordinatorView()) as monitor:
        assert monitor.place is None


@pytest.mark.parametrize("verb", ["coordinator", "site"])
def test_a_port_that_is_taken_is_one_sentence(verb, tmp_path, capsys):
    (tmp_path / "site.json").write_text(json.dumps({"id": "a", "coordinator": "localhost:1", "graph": "g"}))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main([verb, "start", "--folder", str(tmp_path), "--monitor", str(port)]) == 2
    assert f"--monitor {port} cannot be used" in capsys.readouterr().err


# A coordinator


def test_rounds_bytes_sites_and_refusals_are_counted():
    view = CoordinatorView()
    view.begin("fedpub", 9, [row(1, [0.5, 0.5])])
    assert (numbers(view)["fedpub_round"], numbers(view)["fedpub_rounds"]) == (1, 9), "resumed"
    exchange = view.counted(lambda messages, deadline: {0: b"123"})
    assert exchange({0: b"12345", 1: b"12345"}, 1.0) == {0: b"123"}
    view.on_round(row(2, [0.5, math.nan], 2.5))
    view.on_round(row(3, [0.25, 0.75], 1.0))
    view.on_presence(1, ["a", "b", "c"], ["a", "b", "new"])
    for event in ("refused", "refused", "left out", "set-up", "made up by a site"):
        view.on_event({"event": event, "site": "a", "reason": 'x"} 1'})
    found = numbers(view)
    assert found['fedpub_build_info{version="0.1.0",method="fedpub"}'] == 1
    assert (found["fedpub_round"], found["fedpub_round_seconds"], found["fedpub_rounds_seconds_total"]) == (3, 1, 3.5)
    assert found["fedpub_validation"] == 0.5
    assert (found['fedpub_bytes_total{direction="up"}'], found['fedpub_bytes_total{direction="down"}']) == (3, 10)
    assert [found[f'fedpub_sites{{state="{one}"}}'] for one in ("present", "admitted", "removed")] == [1, 2, 1]
    refusals = {name: value for name, value in found.items() if name.startswith("fedpub_refusals") and value}
    assert refusals == {'fedpub_refusals_total{reason="refused"}': 2, 'fedpub_refusals_total{reason="left out"}': 1}


def test_what_the_gate_refuses_is_counted():
    view = CoordinatorView()
    view.on_gate(2, {"HTTP 401": 3, "HTTP 418": 1, "made up": 2})
    found = {name: value for name, value in numbers(view).items() if name.startswith("fedpub_gate") and value}
    assert found == {
        "fedpub_gate_strangers": 2,
        'fedpub_gate_refusals_total{reason="HTTP 401"}': 3,
        'fedpub_gate_refusals_total{reason="other"}': 3,
    }


def test_a_coordinator_is_not_well_when_its_gate_has_closed_or_nothing_moves():
    view, moved = CoordinatorView(), [0.0]
    view.begin("fedpub", 9, [])
    view.watch(lambda: moved[0], 1e-9)
    assert "no progress for" in str(view.health()["problem"])
    assert numbers(view)["fedpub_up"] == 0
    view.watch(lambda: moved[0], 1e12)
    assert (view.health()["problem"], numbers(view)["fedpub_up"]) == (None, 1)
    view.is_serving = lambda: False
    assert "the gate has closed" in str(view.health()["problem"])
    with Monitor("0", view) as monitor:
        assert ask(monitor, "/healthz")[0] == 503


def test_a_coordinator_waits_until_a_site_answers():
    view = CoordinatorView()
    view.state = "waiting"
    view.counted(lambda messages, deadline: {})({0: b""}, 1.0)
    assert view.health()["state"] == "waiting"
    view.counted(lambda messages, deadline: {0: b"x"})({0: b""}, 1.0)
    assert view.health()["state"] == "running"


# A site


class Site:
    """A view with a clock, and what it logs."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, list[Answered]()
        self.view = SiteView(self.said.append, lambda: self.now)

    def answer(self, asked: Envelope | bytes, answered: Envelope, seconds: float = 0.0) -> None:
        def work(data: bytes) -> bytes:
            self.now += seconds
            return encode(answered)

        self.view.timed(asked if isinstance(asked, bytes) else encode(asked), work)


def envelope(kind: str, **fields: Any) -> Envelope:
    return Envelope(kind, fields, Message({"weights": {"w": torch.ones(1, 3)}}))


def test_messages_are_counted_by_kind_and_result():
    site = Site()
    site.answer(envelope("round", round=7), envelope("round"), 2.0)
    site.answer(envelope("round", round=8), envelope("refused", reason="no"), 1.0)
    site.answer(envelope("begin"), envelope("begun"))
    site.answer(envelope("made up"), envelope("refused", reason="no"))
    site.answer(b"\xff not a message", envelope("lost", reason="no"))
    site.answer(envelope("round", round="many"), envelope("refused", reason="no"))
    found = {name: value for name, value in numbers(site.view).items() if value}
    counted = {name: value for name, value in found.items() if name.startswith("fedpub_messages")}
    assert counted == {
        'fedpub_messages_total{kind="round",result="answered"}': 1,
        'fedpub_messages_total{kind="round",result="refused"}': 2,
        'fedpub_messages_total{kind="begin",result="answered"}': 1,
        'fedpub_messages_total{kind="other",result="refused"}': 1,
        'fedpub_messages_total{kind="other",result="lost"}': 1,
    }
    assert (found["fedpub_round"], found["fedpub_answers_seconds_total"]) == (8, 3)
    assert found['fedpub_bytes_total{direction="in"}'] == sum(one.bytes_in for one in site.said)
    assert [one.kind for one in site.said] == ["round", "round", "begin", "other", "other", "round"]


def test_a_site_is_not_well_a_minute_after_its_last_contact():
    site = Site()
    site.view.contact(True)
    site.now = 59.0
    site.view.contact(False)
    assert site.view.health() == {"state": "disconnected", "problem": None, "round": 0}
    site.now = 61.0
    assert site.view.health()["problem"] == "no contact with the coordinator for 61 s"
    found = numbers(site.view)
    assert (found["fedpub_connected"], found["fedpub_contact_seconds"], found["fedpub_up"]) == (0, 61, 0)
    site.view.contact(True)
    assert site.view.health() == {"state": "connected", "problem": None, "round": 0}


def test_a_long_answer_is_no_silence():
    site, seen = Site(), []

    def work(data: bytes) -> bytes:
        site.now += 3600
        seen.append(site.view.health())
        return encode(envelope("round"))

    site.view.timed(encode(envelope("round", round=1)), work)
    assert seen == [{"state": "answering", "problem": None, "round": 0}]
    assert site.view.health()["problem"] is None, "the reply comes next"
