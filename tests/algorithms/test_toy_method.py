"""A method is a class and one entry of METHODS: this one is all in this file, and runs in both engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from test_federation import InProcessSites, assert_same_rows, coordinator, play
from torch import Tensor

from fedpub.algorithms import METHODS, Algorithm, Context
from fedpub.algorithms.protocol import Notes
from fedpub.algorithms.training import weighted_mean
from fedpub.core.message import Message
from fedpub.core.tree import State, tree
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.report.load import load
from fedpub.report.text import titled
from fedpub.runs.simulated import run

SETTINGS = {"method": "slow", "hidden": 8, "rounds": 4, "dtype": "float64"}


@dataclass(frozen=True)
class Slow(Algorithm):
    """The server moves a part of the way: θ̄ ← θ̄ + s (Σ_k (N_k / N) θ_k − θ̄)."""

    title: ClassVar[str] = "Slow-Avg"

    share: float | None = None
    """s. None: a half, or a quarter where clients overlap."""

    def adapted(self, dataset: str, scenario: str) -> Slow:
        return self if self.share is not None else replace(self, share=0.25 if scenario == "overlapping" else 0.5)

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {"dropout": 0.25}

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"weights", "size"})

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        mean = weighted_mean(up)
        return {
            "weights": {name: old.lerp(mean[name], self.share) for name, old in tree(server["weights"]).items()}
        }, {}


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(METHODS, "slow", Slow)  # the one entry


def test_its_defaults_are_its_own(graph_file):
    plan = Experiment(graph_file, **SETTINGS).resolve()
    assert (plan.algorithm, plan.dropout, plan.experiment.options) == (Slow(0.5), 0.25, {"share": 0.5})
    chosen = Experiment(graph_file, "overlapping", 5, options={"share": 1.0}, dropout=0.0, **SETTINGS).resolve()
    assert (chosen.algorithm, chosen.dropout) == (Slow(1.0), 0.0)
    assert Experiment(graph_file, "overlapping", 5, **SETTINGS).resolve().algorithm == Slow(0.25)
    with pytest.raises(FedpubError, match="share is an option of slow, not of fedavg"):
        Experiment(graph_file, method="fedavg", options={"share": 1.0}).resolve()


@pytest.mark.parametrize("fraction", [1.0, 0.6])
def test_both_engines_give_the_same_numbers(fraction, graph_file, tmp_path):
    experiment = Experiment(graph_file, fraction=fraction, **SETTINGS)
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_all_the_way_is_fedavg_and_half_the_way_is_not(graph_file):
    whole, plain, half = (
        run(Experiment(graph_file, **{**SETTINGS, "method": method, "dropout": 0.0}, options=options)).record.rows[-1]
        for method, options in (("slow", {"share": 1.0}), ("fedavg", {}), ("slow", {}))
    )
    assert whole.clients["loss"] == plain.clients["loss"]
    assert half.clients["loss"] != plain.clients["loss"]


def test_a_report_shows_its_title(graph_file, tmp_path):
    run(Experiment(graph_file, **SETTINGS), tmp_path / "run")
    runs, _ = load([tmp_path / "run"])
    assert [titled(one.label) for one in runs] == ["Slow-Avg"]
