"""A task is a class and one entry of TASKS: this one, of one output and squared errors, is all in this file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from test_federation import InProcessSites, assert_same_rows, coordinator, play
from torch import Tensor

import fedpub
from fedpub.cli import main
from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios, split
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.part import OnePiece
from fedpub.models.base import Model
from fedpub.report.load import load
from fedpub.report.published import published
from fedpub.report.summary import tables
from fedpub.runs.simulated import run
from fedpub.store.run_models import model_of_run
from fedpub.tasks import TASKS, Step, Task

CROWD = 4


@dataclass(frozen=True)
class Crowded(Task):
    """Whether a node has four neighbours or more at its client: (output − 1 or 0)², and how often its half is right."""

    metric: ClassVar[str] = "agreement"
    metrics: ClassVar[tuple[str, ...]] = ("val", "val_loss", "test", "test_error")
    further: ClassVar[Mapping[str, str]] = {"test_error": "squared error"}
    baseline: ClassVar[str] = "nowhere"
    baseline_title: ClassVar[str] = "no crowd anywhere"
    rounds_and_epochs: ClassVar[tuple[int, int] | None] = (3, 2)
    ratios: ClassVar[Ratios | None] = (0.5, 0.25, 0.25)
    predicts: ClassVar[str] = "crowds"

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        chosen = split(graph, seed, ratios)
        return [_counted(subgraph_of(graph, own, chosen, client, kind)) for client, own in enumerate(nodes)]

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        return self.divide(graph, (torch.arange(graph.num_nodes),), seed, ratios, kind)[0], Report.of(nodes)

    def outputs(self, num_classes: int) -> int:
        return 1

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        wrong_N = (model.apply(w, data, step.dropout).squeeze(1) - data.y_N) ** 2 * data.train_N
        total_K = wrong_N.new_zeros(data.num_clients).index_add(0, data.segments.owner_N, wrong_N)
        return total_K / data.num_train_K.clamp(min=1)

    @torch.no_grad()
    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        output_N = model.apply(w, data).squeeze(1).double()
        right_N, wrong_N = ((output_N > 0.5) == data.y_N.bool()).double(), (output_N - data.y_N) ** 2
        val, test = data.val_report, data.test_report
        found = {"val": _mean(right_N, val), "val_loss": _mean(wrong_N, val)}
        return found | {"test": _mean(right_N, test), "test_error": _mean(wrong_N.clamp(max=1), test)}

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        return torch.bincount(_tested(held, report)[0], minlength=report.num_clients if report else len(held))

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        owner_M, crowded_M = _tested(held, report)
        empty_R = torch.bincount(owner_M[~crowded_M], minlength=report.num_clients if report else len(held))
        return empty_R.double() / self.sizes(held, report)

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Crowds:
        return Crowds(model.apply(w, data).squeeze(1).numpy())


@dataclass(frozen=True, eq=False)
class Crowds:
    output_N: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        return {"node": np.arange(len(self.output_N)), "crowd": self.output_N}

    def lines(self) -> dict[str, str]:
        return {"crowded nodes": f"{self.numbers()['crowded']:,}"}

    def numbers(self) -> dict[str, Any]:
        return {"crowded": int((self.output_N > 0.5).sum())}


def _counted(own: Subgraph) -> Subgraph:
    return replace(own, y=(torch.bincount(own.edges.flatten(), minlength=own.num_nodes) >= CROWD).long())


def _mean(value_N: Tensor, part: Report) -> Tensor:
    total_R = value_N.new_zeros(part.num_clients).index_add(0, part.owner_M, value_N[part.rows_M])
    return total_R / torch.bincount(part.owner_M, minlength=part.num_clients)


def _tested(held: Sequence[Subgraph], report: Report | None) -> tuple[Tensor, Tensor]:
    """The reported client of each test node, and whether that is crowded."""
    if report is not None:
        part = report.only(held[0].test)
        return part.owner_M, held[0].y[part.rows_M].bool()
    owner_M = torch.cat([torch.full((int(own.test.sum()),), client) for client, own in enumerate(held)])
    return owner_M, torch.cat([own.y[own.test] for own in held]).bool()


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(TASKS, "crowded", Crowded)  # the one entry


def toy(graph_file: str, **changes) -> Experiment:
    plain = {"task": "crowded", "method": "fedavg", "hidden": 8, "dtype": "float64", "lr": 0.05}
    return Experiment(graph_file, **(plain | changes))


def test_its_defaults_are_its_own(graph_file):
    plan = toy(graph_file).resolve()
    assert (plan.task, plan.rounds, plan.epochs, plan.ratios) == (Crowded(), 3, 2, (0.5, 0.25, 0.25))
    assert (toy(graph_file, rounds=7).resolve().rounds, Experiment(graph_file).resolve().rounds) == (7, 100)
    with pytest.raises(FedpubError, match="decoder=mlp has no effect on crowded; add task=link-prediction"):
        toy(graph_file, decoder="mlp").resolve()


@pytest.mark.parametrize("method", ["fedavg", "fedpub", "fedpub-plus"])
def test_both_engines_give_the_same_numbers(method, graph_file, tmp_path):
    experiment = toy(graph_file, method=method)
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_it_learns_and_its_summary_speaks_its_words(graph_file, tmp_path, capsys):
    words = ["--dataset", graph_file, "--task", "crowded", "--method", "fedavg", "--hidden", "16", "--rounds", "20"]
    assert main(["run", *words, "--out", str(tmp_path / "run"), "--lr", "0.05", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ("test agreement", "no crowd anywhere", "squared error"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metric"] == "agreement"
    assert 0 < summary["nowhere"] < 1
    assert summary["test_error"] < summary["nowhere"] * (1 - summary["nowhere"]) + 0.2
    (table,) = tables(load([tmp_path / "run"])[0])
    assert (table.task, table.metric, table.baseline) == ("crowded", "agreement", "no crowd anywhere")
    assert published("fedpub", "cora", "overlapping", 10, "crowded") is None


def test_the_oracle_is_judged_by_each_client_s_nodes(graph_file):
    divided, whole = (run(toy(graph_file, method=method)).summary for method in ("local", "oracle"))
    assert len(whole["per_client_test"]) == len(divided["per_client_test"]) == 5
    assert whole["clients_without_test"] == 0


def test_its_models_predict(graph_file, tmp_path):
    found = fedpub.run(graph_file, task="crowded", method="fedavg", hidden=8, out=tmp_path / "run", progress=False)
    frame = fedpub.predict(found, graph_file, client=0)
    weights, card = model_of_run(tmp_path / "run", 0)
    assert list(frame.columns) == ["node", "crowd"]
    assert len(frame) == Graph.load(Path(graph_file)).num_nodes
    assert card.shapes()["classifier.bias"] == [1, 1]
    with pytest.raises(FedpubError, match="predicts crowds, not links; leave pairs out"):
        fedpub.predict(found, graph_file, client=0, pairs=[(0, 1)])
    assert weights.keys() == card.shapes().keys()


def test_a_piece_that_was_split_for_another_task_is_refused(graph_file, tmp_path):
    links = toy(graph_file, task="link-prediction")
    for held, asked, fits in ((toy(graph_file), links, False), (links, toy(graph_file), False), (links, links, True)):
        place = tmp_path / f"{held.task}-{asked.task}"
        InProcessSites(place, held)
        piece = OnePiece(place / "site-0" / "piece.safetensors")
        if fits:
            assert piece.piece(asked.resolve(), 0, piece.classes).links is not None
            continue
        with pytest.raises(FedpubError, match=f"was not split for {asked.task}"):
            piece.piece(asked.resolve(), 0, piece.classes)
