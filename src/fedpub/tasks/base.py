"""What a task is."""

from __future__ import annotations

from typing import ClassVar, Protocol

from torch import Tensor

from fedpub.data.clients import Clients
from fedpub.models.base import Dropout, Model
from fedpub.tree import Tree


class Task(Protocol):
    metric: ClassVar[str]  # the name of the value that runs are compared by

    def loss(self, model: Model, w: Tree, data: Clients, dropout: Dropout | None) -> Tensor:
        """The mean training loss of every client, [K]; zero for a client that has nothing to train on."""

    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        """`val` and `test` by the metric, and others, of every reported client, [R]; NaN where there is nothing."""

    def sizes(self, data: Clients) -> Tensor:
        """How many test examples each reported client has, [R]."""
