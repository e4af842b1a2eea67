"""FedAvg (McMahan et al., 2017): the average of the local models, weighted by training examples.

θ̄ ← Σ_k (N_k / N) θ_k
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpub.algorithms.protocol import Context, Notes
from fedpub.algorithms.training import adopt, optimiser_of, start, train, weighted_mean
from fedpub.core.tree import Message, State, Tree, broadcast, stacked, tree
from fedpub.data.clients.stack import Clients


@dataclass(frozen=True)
class FedAvg:
    title: ClassVar[str] = "FedAvg"
    notes: ClassVar[Mapping[str, int]] = {}
    steady: ClassVar[bool] = True

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"weights", "size"})

    def init_server(self, w0: Tree, num_clients: int) -> State:
        return {"weights": stacked(w0, 1)}

    def init_client(self, w0: Tree, num_clients: int) -> State:
        return start(w0, num_clients)

    def send(self, server: State, ids: Tensor) -> Message:
        return {"weights": broadcast(tree(server["weights"]), len(ids))}

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        weights = adopt(own, msg["weights"])
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own))
        return {"weights": weights, **optimiser}, {"weights": weights, "size": data.num_train_K}, loss_K

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        return {"weights": weighted_mean(up)}, {}

    def personal(self, own: State) -> Tree:
        return tree(own["weights"])
