"""FedAvg (McMahan et al., 2017): the average of the local models, weighted by training examples.

θ̄ ← Σ_k (N_k / N) θ_k
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.sums import OneMean
from fedpub.algorithms.training import weighted_mean
from fedpub.core.message import Message
from fedpub.core.tree import State


@dataclass(frozen=True)
class FedAvg(OneMean):
    title: ClassVar[str] = "FedAvg"
    averaged: ClassVar[str] = "weights"

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"weights", "size"})

    def secured(self) -> Algorithm:
        if type(self).server is not FedAvg.server and type(self).summed is FedAvg.summed:
            return Algorithm.secured(self)  # a server step of its own may be no mean
        return self

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        return {self.averaged: weighted_mean(up, self.averaged)}, {}
