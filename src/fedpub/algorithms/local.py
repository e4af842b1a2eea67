"""Local: every client trains alone; nothing is sent.

θ_k ← θ_k − η ∇L(G_k; θ_k)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.training import optimiser_of, train
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tree
from fedpub.data.clients.stack import Clients


@dataclass(frozen=True)
class Local(Algorithm):
    title: ClassVar[str] = "Local"

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset()

    def init_server(self, w0: Tree, num_clients: int) -> State:
        return {}

    def send(self, server: State, ids: Tensor) -> Message:
        return Message()

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        weights = tree(own["weights"])
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own))
        return {"weights": weights, **optimiser}, Message(), loss_K

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        return server, {}
