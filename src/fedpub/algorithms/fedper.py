"""FedPer (Arivazhagan et al., 2019): shared base layers, a personal classifier that never leaves the client.

θ̄_base ← Σ_k (N_k / N) θ_k,base      θ_k,head stays with k
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.protocol import Context
from fedpub.algorithms.training import adopt, optimiser_of, train
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, broadcast, stacked, tree
from fedpub.data.clients.stack import Clients
from fedpub.errors import FedpubError
from fedpub.models.base import OUTPUT


@dataclass(frozen=True)
class FedPer(FedAvg):
    title: ClassVar[str] = "FedPer"
    averaged: ClassVar[str] = "base"

    head: str = OUTPUT
    """Prefix of the names of personal parameters."""

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"base", "size"})

    def init_server(self, w0: Tree, num_clients: int) -> State:
        if len(self.base(w0)) in (0, len(w0)):
            raise FedpubError(
                f"`head={self.head!r}` must be the start of some, not all, of the parameters' names: {', '.join(w0)}"
            )
        return {"base": stacked(self.base(w0), 1)}

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        like = super().upload_like(ctx, w0, num_classes)
        return like | {"base": self.base(stacked(w0, 1))}

    def send(self, server: State, ids: Tensor) -> Message:
        return Message({"base": broadcast(tree(server["base"]), len(ids))})

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        weights = adopt(own, msg.tree("base"))
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own))
        up = Message({"base": self.base(weights), "size": data.num_train_K})
        return {"weights": weights, **optimiser}, up, loss_K

    def base(self, weights: Tree) -> Tree:
        return {name: leaf for name, leaf in weights.items() if not name.startswith(self.head)}
