"""What a task is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph
from fedpub.data.graph import Graph
from fedpub.models.base import Dropout, Model, dropout_seeds


@dataclass(frozen=True)
class Step:
    """A step of local training, which names its random streams."""

    seed: int = 0
    round: int = 0
    epoch: int = 0
    p: float = 0.0  # dropout
    dropout_seeds: Tensor | None = None  # of the layers, where they are given and not derived

    @property
    def dropout(self) -> Dropout | None:
        if not self.p:
            return None
        given = self.dropout_seeds
        return Dropout(self.p, dropout_seeds(self.seed, self.round, self.epoch) if given is None else given)


class Task(Protocol):
    metric: ClassVar[str]  # the name of the value that runs are compared by
    metrics: ClassVar[tuple[str, ...]]  # what `evaluate` finds
    baseline: ClassVar[str]  # what the metric is without learning anything: a name in `fedpub.store.record.BASELINES`
    settings: ClassVar[tuple[str, ...]] = ()  # the settings of an experiment that only this task has
    rounds_and_epochs: ClassVar[tuple[int, int] | None] = None  # None: the paper's for the data set
    ratios: ClassVar[Ratios | None] = None  # of training, validation and test; None: the paper's for the data set
    steady: ClassVar[bool]  # whether its loss does the same in every step, and looks at no tensor's values

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        """What every client holds, with its examples split."""

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        """The whole graph in one hand, judged by the clients' examples."""

    def outputs(self, num_classes: int) -> int:
        """The columns of the model's output."""

    def init(self, stream: torch.Generator) -> Tree:
        """Parameters of its own, beyond the model's, without a client axis."""

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        """The mean training loss of every client, [K]; zero for a client that has nothing to train on."""

    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        """`val` and `test` by the metric, one more as `test_…`, and `val_loss`, the mean loss on the validation set, of
        every reported client, [R], double; NaN without any example."""

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """How many test examples each reported client has, [R]; `report` where it is not every client on its own."""

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """The test metric of the baseline for every reported client, [R], double; NaN where it has none."""
