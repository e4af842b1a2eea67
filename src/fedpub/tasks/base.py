"""The task protocol; a task is defined by its file and one entry of `fedpub.tasks.TASKS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios, Split
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.models.base import Dropout, Model, dropout_seeds
from fedpub.tasks.metrics import TITLES, Metric


@dataclass(frozen=True)
class Step:
    """A step of local training; it determines the random streams."""

    seed: int = 0
    round: int = 0
    epoch: int = 0
    p: float = 0.0  # dropout
    dropout_seeds: Tensor | None = None  # of the layers, if given and not derived
    batch: int = 0  # the number of the batch in its epoch

    @property
    def dropout(self) -> Dropout:
        given = self.dropout_seeds
        if given is not None:
            return Dropout(self.p, given)
        return Dropout(self.p, dropout_seeds(self.seed, self.round, self.epoch, self.batch))


Details = dict[str, list[Any]]


class Predicted(Protocol):
    """The predictions of a model for a graph."""

    def table(self) -> dict[str, np.ndarray]:
        """Columns by their names; a row for every node or pair. Columns of text hold objects."""

    def lines(self) -> dict[str, str]:
        """A summary for a reader, by headings."""

    def numbers(self) -> dict[str, Any]:
        """A summary for a program."""


class Task(Protocol):
    """A frozen dataclass: its fields are settings of the experiment of the same names."""

    metric_choices: ClassVar[tuple[Metric, ...]] = ()  # that `metric` can be, the default first; none: it is fixed
    metrics: ClassVar[tuple[str, ...]]  # the keys that `evaluate` returns
    further: ClassVar[Mapping[str, str]] = {}  # display names of metrics beyond `val`, `val_loss` and `test`
    amounts: ClassVar[tuple[str, ...]] = ()  # metrics from 0 on in units of the data; all others are from 0 to 1
    baseline: ClassVar[str]  # the metric without learning anything: its name in a summary
    baseline_title: ClassVar[str]  # its display name
    settings: ClassVar[tuple[str, ...]] = ()  # the settings of an experiment that only this task has
    rounds_and_epochs: ClassVar[tuple[int, int] | None] = None  # None: the paper's for the data set
    ratios: ClassVar[Ratios | None] = None  # of training, validation and test; None: the paper's for the data set
    published: ClassVar[tuple[str, ...]] = ()  # the paper's tables for this task, by their names in published.csv
    predicts: ClassVar[str] = "nothing"  # what a model predicts for a graph, in a word
    of_classes: ClassVar[bool] = False  # whether the model's outputs are the classes of nodes
    of_targets: ClassVar[bool] = False  # whether they are the graph's targets, so that nodes need no class
    of_pairs: ClassVar[bool] = False  # whether a model is asked about pairs of nodes, not about all nodes
    steady: ClassVar[bool] = False  # whether all steps of its loss are the same operations and read no values

    @property
    def beside(self) -> str:
        """The baseline of the metric by its name."""
        return self.baseline

    @property
    def metric(self) -> str:
        """The value that runs are compared by: a setting, or the same in all runs."""
        raise NotImplementedError

    @property
    def metric_title(self) -> str:
        return TITLES.get(self.metric, self.metric)

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        """The subgraph of every client, with its examples split."""

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        """The whole graph in one place, evaluated on the clients' examples."""

    def masks(self, graph: Graph, seed: int, ratios: Ratios) -> Split | None:
        """The nodes to train on, to validate and to test on, if nodes are the examples."""
        return None

    def was_split_for(self, own: Subgraph) -> bool:
        """Whether a piece of a graph that was divided elsewhere has this task's examples."""
        return own.links is None

    def outputs(self, num_classes: int) -> int:
        """The columns of the model's output."""

    def init(self, stream: torch.Generator) -> Tree:
        """Parameters of its own, beyond the model's, without a client axis."""
        return {}

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        """The mean training loss of every client, [K]; zero for a client that has nothing to train on."""

    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        """`val` and `test` by the metric, more as `val_…` and `test_…`, all from 0 to 1 except `amounts`, and
        `val_loss`, the mean loss on the validation set, from 0 on; of every reported client, [R], double; NaN without
        any example."""

    def num_val(self, data: Clients) -> Tensor:
        """The number of validation examples of every client, [K]."""
        return torch.bincount(data.segments.owner_N[data.val_N], minlength=data.num_clients)

    def validate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        """Only `val` and `val_loss`, where that is cheaper."""
        return self.evaluate(model, w, data)

    def details(self, model: Model, w: Tree, data: Clients) -> Details:
        """What is worth knowing about the kept models, an entry for every reported client, as JSON has it."""
        return {}

    def decided(self, details: Details) -> dict[str, float | None]:
        """Metrics that follow from the details of all clients: their names and means."""
        return {}

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """The number of test examples of each reported client, [R]; `report` unless every client has its own."""

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """The test metric of the baseline for every reported client, [R], double; NaN if it has none."""

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Predicted:
        """Predictions of a client's model [1, ...] for a graph, `data`, or if `of_pairs` for pairs of nodes [2, P]."""
        raise FedpubError("a model of this task makes no predictions for a graph; look at its run instead")


AT_A_TIME = 2**16  # nodes whose outputs are computed at a time, if nodes are independent


def examples(model: Model, data: Clients) -> Clients:
    """What a step of training computes: the training nodes alone, if nodes are independent."""
    if not model.independent or None in data.walks or len(data.train_rows) == len(data.y_N):
        return data
    return data.once("examples", lambda: data.rows(data.train_rows))


def outputs(model: Model, w: Tree, data: Clients) -> Tensor:
    """The model's outputs for every node, [N, C]; many independent nodes in parts, which takes less memory."""
    if model.propagates or None in data.walks or len(data.y_N) <= AT_A_TIME:
        return model.apply(w, data)
    parts = torch.split(torch.arange(len(data.y_N), device=data.device), AT_A_TIME)
    return torch.cat([model.apply(w, data.rows(part)) for part in parts])


def node_ids(graph: Graph) -> np.ndarray:
    """The names of nodes, or their numbers if they have none."""
    return np.asarray(graph.node_ids, dtype=object) if graph.node_ids else np.arange(graph.num_nodes)
