"""The paper's model: two graph convolutions (Kipf and Welling, 2017) and a linear classifier.

    H1 = ReLU(ÂX W1 + b1)      H2 = Â H1 W2 + b2      logits = ReLU(H2) W3 + b3

ÂX never changes, so layer one does not propagate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.segments import rows_step, segment_add, segment_matmul
from fedpub.core.sparse import propagate
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.models.base import Dropout, Model, glorot, output_layer
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class GCN(Model):
    hidden: int = 128

    propagation: ClassVar[Propagation] = "symmetric"
    inputs: ClassVar[tuple[str, ...]] = ("conv1.weight",)

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return {"conv1.weight": data.seen_walks[0]}

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        return {
            "conv1.weight": glorot(num_features, self.hidden, stream),
            "conv1.bias": torch.zeros(self.hidden, dtype=torch.float64),
            "conv2.weight": glorot(self.hidden, self.hidden, stream),
            "conv2.bias": torch.zeros(self.hidden, dtype=torch.float64),
            "classifier.weight": glorot(self.hidden, num_classes, stream),
            "classifier.bias": torch.zeros(num_classes, dtype=torch.float64),
        }

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        own = data.segments
        h_NH = rows_step(data.x, data.propagated, w["conv1.weight"], own, data.adjacency)
        h_NH = torch.relu(segment_add(h_NH, w["conv1.bias"], own))
        if dropout:
            h_NH = dropout(h_NH, 1, data.ids_K, own)
        h_NH = propagate(data.adjacency, segment_matmul(h_NH, w["conv2.weight"], own))
        h_NH = torch.relu(segment_add(h_NH, w["conv2.bias"], own))
        if dropout:
            h_NH = dropout(h_NH, 2, data.ids_K, own)
        return segment_add(segment_matmul(h_NH, w["classifier.weight"], own), w["classifier.bias"], own)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        # The second convolution is linear: its mean over nodes is taken before the second weight matrix.
        h_KPH = _first_layer(w, proxy)
        mean_KH = torch.matmul(proxy.mean_propagation_P, h_KPH)
        return torch.einsum("kh,khj->kj", mean_KH, w["conv2.weight"]) + w["conv2.bias"]

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        h_KPH = proxy.adjacency_PP @ (_first_layer(w, proxy) @ w["conv2.weight"])
        return output_layer(w, torch.relu(h_KPH + w["conv2.bias"].unsqueeze(1)))


def _first_layer(w: Tree, proxy: Proxy) -> Tensor:
    """ReLU(ÂX W1 + b1) of the proxy graph's nodes, [K, P, H]."""
    w_KFH = proxy.rows(w["conv1.weight"])
    x_KPF = proxy.propagated.expand(len(w_KFH), *proxy.propagated.shape[-2:])
    return torch.baddbmm(w["conv1.bias"].unsqueeze(1), x_KPF, w_KFH).relu_()
