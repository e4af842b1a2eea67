"""Layers of models with one weight matrix for a node and one for its neighbours, with P the propagation:

    layer one: X S1 + PX N1 + b1      layer two: H S2 + PH N2 + b2      then a linear classifier

PX never changes, so layer one does not propagate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.segments import rows_matmul, rows_step, segment_add, segment_matmul
from fedpub.core.sparse import propagate
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Model, glorot
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class Pairs(Model):
    hidden: int

    inputs: ClassVar[tuple[str, ...]] = ("conv1.self", "conv1.neighbour")

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return dict(zip(self.inputs, (data.seen_x_KF, data.seen_propagated_KF), strict=True))

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        hidden = self.hidden
        return {
            "conv1.self": glorot(num_features, hidden, stream),
            "conv1.neighbour": glorot(num_features, hidden, stream),
            "conv1.bias": torch.zeros(hidden, dtype=torch.float64),
            "conv2.self": glorot(hidden, hidden, stream),
            "conv2.neighbour": glorot(hidden, hidden, stream),
            "conv2.bias": torch.zeros(hidden, dtype=torch.float64),
            "classifier.weight": glorot(hidden, num_classes, stream),
            "classifier.bias": torch.zeros(num_classes, dtype=torch.float64),
        }


def first_layer(w: Tree, data: Clients) -> Tensor:
    """X S1 + PX N1 + b1 of every node."""
    neighbours_NH = rows_step(data.x, data.propagated, w["conv1.neighbour"], data.segments, data.adjacency)
    h_NH = rows_matmul(data.x, w["conv1.self"], data.segments) + neighbours_NH
    return segment_add(h_NH, w["conv1.bias"], data.segments)


def second_layer(w: Tree, h_NH: Tensor, data: Clients) -> Tensor:
    """H S2 + PH N2 + b2 of every node."""
    own = data.segments
    neighbours_NH = propagate(data.adjacency, segment_matmul(h_NH, w["conv2.neighbour"], own))
    return segment_add(segment_matmul(h_NH, w["conv2.self"], own) + neighbours_NH, w["conv2.bias"], own)


def proxy_layer(w: Tree, proxy: Proxy) -> Tensor:
    """The first layer of every client on a proxy graph, [K, P, H]."""
    h_KPH = torch.matmul(proxy.x, proxy.rows(w["conv1.self"]))
    h_KPH = h_KPH + torch.matmul(proxy.propagated, proxy.rows(w["conv1.neighbour"]))
    return h_KPH + w["conv1.bias"].unsqueeze(1)


def mean_output(w: Tree, h_KPH: Tensor, proxy: Proxy) -> Tensor:
    """The mean of the second layer over a proxy graph's nodes, [K, H]; linear, so the mean is taken first."""
    neighbours_KH = torch.einsum("p,kph->kh", proxy.mean_propagation_P, h_KPH)
    own_KH = torch.einsum("kh,khj->kj", h_KPH.mean(1), w["conv2.self"])
    return own_KH + torch.einsum("kh,khj->kj", neighbours_KH, w["conv2.neighbour"]) + w["conv2.bias"]


def classifier(w: Tree, h_NH: Tensor, data: Clients) -> Tensor:
    """H W3 + b3 of every node."""
    own = data.segments
    return segment_add(segment_matmul(h_NH, w["classifier.weight"], own), w["classifier.bias"], own)
