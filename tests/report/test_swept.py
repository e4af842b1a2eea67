"""Sweeps in a report: the section's numbers by hand, and what the rest of the page leaves out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_report import CORA, make_run

from fedpub.report.load import load
from fedpub.report.payload import payload
from fedpub.runs.comparison import run_name
from fedpub.runs.sweep import SWEEP


def make_sweep(folder: Path, rates: tuple[float, ...] = (0.001, 0.01, 0.1), **changes: Any) -> Path:
    """FED-PUB at three learning rates, of which the second is chosen and the third tests best, and FedAvg at one."""
    points = []
    for method, lr, val, chosen in (
        ("fedpub", rates[0], 50.0, False),
        ("fedpub", rates[1], 70.0, True),
        ("fedpub", rates[2], 60.0, False),
        ("fedavg", rates[0], 55.0, True),
    ):
        own = {"method": method, "label": f"{method} (lr={lr})", "settings": {"lr": lr, "model": "gcn"}}
        own |= {"seeds": [0], "val": val, "val_deviation": None, "val_loss": 1.0, "seconds": 1.0, "megabytes_up": 2.0}
        tested = {"chosen": True, "test": val - 5, "test_deviation": None, "test_seeds": [0]} if chosen else {}
        points.append(own | tested)
        test = val / 100 if lr != rates[2] else 0.99
        experiment = replace(CORA, method=method, lr=lr)
        make_run(folder / "cora-disjoint-2" / run_name(own["label"], 0), experiment, [[test, test]])
    content = {"metric": "accuracy", "search": "grid", "names": ["lr", "model"], "ranges": {}, "complete": True}
    (folder / SWEEP).write_text(json.dumps(content | {"points": points} | changes))
    return folder


def test_the_section_by_hand(tmp_path):
    (found,) = payload(*load([make_sweep(tmp_path)]))["sweeps"]
    assert found["said"].startswith("Chosen by validation on seed 0; tested on the same splits")
    (panel,) = found["panels"]  # the model is not a number
    assert (panel["name"], panel["log"], panel["ticks"]) == ("lr", True, [0.001, 0.01, 0.1])
    assert {label: [tuple(one) for one in line] for label, line in panel["lines"].items()} == {
        "fedpub": [(0.001, 50.0), (0.01, 70.0), (0.1, 60.0)],
        "fedavg": [(0.001, 55.0)],
    }
    assert [one["test"] for one in found["points"]] == [None, 65.0, None, 50.0]


def test_an_axis_is_logarithmic_where_values_span_a_decade_or_the_range_is(tmp_path):
    def log(name: str, rates: tuple[float, ...], **changes: Any) -> bool:
        (found,) = payload(*load([make_sweep(tmp_path / name, rates, **changes)]))["sweeps"]
        return bool(found["panels"][0]["log"])

    assert not log("near", (0.01, 0.02, 0.05))
    assert log("far", (0.01, 0.02, 0.1))
    assert not log("zero", (0.0, 0.02, 0.1))
    assert log("drawn", (0.01, 0.02, 0.05), ranges={"lr": True})
    assert not log("uniform", (0.01, 0.02, 0.1), ranges={"lr": False})


def test_the_rest_of_the_page_shows_chosen_points_only(tmp_path):
    """The other points' test values would tempt to choose by them."""
    folder = make_sweep(tmp_path)
    runs, complaints = load([folder])
    assert sorted(run.experiment.lr for run in runs) == [0.001, 0.01]
    assert not complaints
    assert "99" not in json.dumps(payload(runs, complaints)["tables"])
    other = next(path.parent for path in folder.rglob("config.json") if json.loads(path.read_text())["lr"] == 0.1)
    assert len(load([other])[0]) == 1, "a run that is named itself is shown"


@pytest.mark.parametrize("content", ["{", "[]", '{"points": []}', '{"points": [{"val": "high"}]}'])
def test_a_sweep_that_cannot_be_read_is_said_and_its_runs_are_shown(content, tmp_path):
    folder = make_sweep(tmp_path)
    (folder / SWEEP).write_text(content)
    runs, complaints = load([folder])
    assert len(runs) == 4
    (said,) = complaints
    assert str(folder / SWEEP) in said
    assert payload(runs, complaints)["sweeps"] == []
