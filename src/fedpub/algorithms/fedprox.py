"""FedProx (Li et al., 2020): FedAvg whose clients stay near the model they received.

min L(G_k; θ_k) + (μ / 2) ‖θ_k − θ̄‖²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.protocol import Context
from fedpub.algorithms.training import adopt, optimiser_of, train
from fedpub.core.message import Message
from fedpub.core.tree import State
from fedpub.data.clients.stack import Clients


@dataclass(frozen=True)
class FedProx(FedAvg):
    title: ClassVar[str] = "FedProx"

    mu: float = 0.001
    """Strength of the proximal term; no effect with one local epoch, which starts where the term is zero."""

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        received = msg.tree("weights")
        weights = adopt(own, received)
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own), proximal=(self.mu / 2, received))
        return {"weights": weights, **optimiser}, Message({"weights": weights, "size": data.num_train_K}), loss_K
