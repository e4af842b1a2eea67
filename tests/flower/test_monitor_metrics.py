"""Numbers as Prometheus reads them."""

from __future__ import annotations

import re
import sys

import pytest

from fedpub.flower.metrics import PROCESS, Family, Metrics, watch_process

LINE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? (NaN|[+-]Inf|-?[0-9.e+-]+)')
TWO = Family("messages_total", "Messages.", {"kind": ("a", "b"), "result": ("yes", "no")})


def lines(metrics: Metrics) -> list[str]:
    text = metrics.text()
    assert text.endswith("\n")
    return text.splitlines()


def test_the_text_is_in_format_0_0_4():
    metrics = Metrics([Family("up", "One\nline with \\."), TWO])
    metrics.set("up", 0.25)
    metrics.add("messages_total", kind="b", result="no")
    assert lines(metrics) == [
        "# HELP up One\\nline with \\\\.",
        "# TYPE up gauge",
        "up 0.25",
        "# HELP messages_total Messages.",
        "# TYPE messages_total counter",
        'messages_total{kind="a",result="yes"} 0',
        'messages_total{kind="a",result="no"} 0',
        'messages_total{kind="b",result="yes"} 0',
        'messages_total{kind="b",result="no"} 1',
    ]


def test_values_of_labels_are_escaped():
    hostile = 'a"}\n fedpub_up 1 \\'
    metrics = Metrics([Family("sites", "Sites.", {"state": (hostile,)})])
    metrics.set("sites", 2, state=hostile)
    assert lines(metrics)[2:] == ['sites{state="a\\"}\\n fedpub_up 1 \\\\"} 2']
    assert LINE.fullmatch(lines(metrics)[2])


def test_what_was_not_declared_is_one_value():
    metrics = Metrics([TWO])
    before = len(lines(metrics))
    for number in range(1000):
        metrics.add("messages_total", kind=f"made up {number}", result="yes")
    assert len(lines(metrics)) == before + 1
    assert 'messages_total{kind="other",result="yes"} 1000' in lines(metrics)


def test_counters_never_decrease_and_labels_are_all_given():
    metrics = Metrics([TWO])
    with pytest.raises(ValueError, match="cannot decrease"):
        metrics.add("messages_total", -1, kind="a", result="yes")
    with pytest.raises(ValueError, match="has the labels"):
        metrics.add("messages_total", kind="a")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (-float("inf"), "-Inf"),
        (2.0, "2"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_as_prometheus_spells_them(value, said):
    metrics = Metrics([Family("x", "X.")])
    metrics.set("x", value)
    assert lines(metrics)[-1] == f"x {said}"
    assert LINE.fullmatch(lines(metrics)[-1])


def test_what_is_unknown_is_left_out():
    metrics = Metrics([Family("x", "X."), Family("y", "Y.")])
    metrics.ask("x", lambda: None)
    assert metrics.text() == ""
    metrics.ask("x", lambda: 3.0)
    assert lines(metrics)[-1] == "x 3"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_process_is_measured():
    metrics = Metrics(PROCESS)
    watch_process(metrics)
    found = dict(line.split() for line in lines(metrics) if not line.startswith("#"))
    assert 10**7 < float(found["process_resident_memory_bytes"]) < 10**11
    with open("/dev/null") as _, open("/dev/null") as _:
        more = dict(line.split() for line in lines(metrics) if not line.startswith("#"))
        assert int(more["process_open_fds"]) == int(found["process_open_fds"]) + 2
