"""GraphSAGE (Hamilton et al., 2017) with the mean aggregator, and a linear classifier.

    H1 = ReLU(X S1 + M X N1 + b1)      H2 = H1 S2 + M H1 N2 + b2      logits = ReLU(H2) W3 + b3

M is the mean over neighbours; M X never changes, so layer one does not propagate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.blocks import propagate, rows_matmul, rows_step, segment_add, segment_matmul
from fedpub.data.clients import Clients
from fedpub.data.subgraph import Propagation
from fedpub.models.base import Dropout, glorot
from fedpub.similarity import Proxy
from fedpub.tree import Tree


@dataclass(frozen=True)
class GraphSAGE:
    hidden: int = 128

    propagation: ClassVar[Propagation] = "mean"

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return {"conv1.self": data.seen_x_KF, "conv1.neighbour": data.seen_propagated_KF}

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        h = self.hidden
        return {
            "conv1.self": glorot(num_features, h, stream),
            "conv1.neighbour": glorot(num_features, h, stream),
            "conv1.bias": torch.zeros(h, dtype=torch.float64),
            "conv2.self": glorot(h, h, stream),
            "conv2.neighbour": glorot(h, h, stream),
            "conv2.bias": torch.zeros(h, dtype=torch.float64),
            "classifier.weight": glorot(h, num_classes, stream),
            "classifier.bias": torch.zeros(num_classes, dtype=torch.float64),
        }

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        own = data.segments
        neighbours_NH = rows_step(data.x, data.propagated, w["conv1.neighbour"], own, data.adjacency)
        h_NH = rows_matmul(data.x, w["conv1.self"], own) + neighbours_NH
        h_NH = torch.relu(segment_add(h_NH, w["conv1.bias"], own))
        if dropout:
            h_NH = dropout(h_NH, 1, data.ids_K, own)
        neighbours_NH = propagate(data.adjacency, segment_matmul(h_NH, w["conv2.neighbour"], own))
        h_NH = segment_matmul(h_NH, w["conv2.self"], own) + neighbours_NH
        h_NH = torch.relu(segment_add(h_NH, w["conv2.bias"], own))
        if dropout:
            h_NH = dropout(h_NH, 2, data.ids_K, own)
        return segment_add(segment_matmul(h_NH, w["classifier.weight"], own), w["classifier.bias"], own)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        h_KPH = torch.matmul(proxy.x, proxy.rows(w["conv1.self"]))
        h_KPH = h_KPH + torch.matmul(proxy.propagated, proxy.rows(w["conv1.neighbour"]))
        h_KPH = torch.relu(h_KPH + w["conv1.bias"].unsqueeze(1))
        neighbours_KH = torch.einsum("p,kph->kh", proxy.mean_propagation_P, h_KPH)
        own_KH = torch.einsum("kh,khj->kj", h_KPH.mean(1), w["conv2.self"])
        return own_KH + torch.einsum("kh,khj->kj", neighbours_KH, w["conv2.neighbour"]) + w["conv2.bias"]
