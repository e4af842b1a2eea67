"""Layers of models with one weight matrix for a node and one for its neighbours, with P the propagation:

    layer one: X S1 + PX N1 + b1      layer two: H S2 + PH N2 + b2      then a linear classifier

PX never changes, so layer one does not propagate. With several relations (directions and kinds of edges), each has a
propagation and a matrix of its own, and PX N is a sum over them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.segments import rows_matmul, rows_step, segment_add, segment_matmul
from fedpub.core.sparse import propagate
from fedpub.core.tree import Tree, sum_of
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Model, glorot, numbered
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class Pairs(Model):
    hidden: int
    relations: int = 1

    relational: ClassVar[bool] = True

    def related(self, relations: int) -> Model:
        return replace(self, relations=relations)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("conv1.self", *neighbours("conv1", self.relations))

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return dict(zip(self.inputs, (data.seen_x_KF, *data.seen_walks), strict=True))

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        hidden, nothing = self.hidden, torch.zeros(self.hidden, dtype=torch.float64)
        return {
            "conv1.self": glorot(num_features, hidden, stream),
            **{name: glorot(num_features, hidden, stream) for name in neighbours("conv1", self.relations)},
            "conv1.bias": nothing,
            "conv2.self": glorot(hidden, hidden, stream),
            **{name: glorot(hidden, hidden, stream) for name in neighbours("conv2", self.relations)},
            "conv2.bias": nothing.clone(),
            "classifier.weight": glorot(hidden, num_classes, stream),
            "classifier.bias": torch.zeros(num_classes, dtype=torch.float64),
        }


def neighbours(layer: str, relations: int) -> list[str]:
    """The names of a layer's matrices on neighbours."""
    return [numbered(f"{layer}.neighbour", relation) for relation in range(relations)]


def first_layer(w: Tree, data: Clients) -> Tensor:
    """X S1 + Σ PX N1 + b1 of every node."""
    parts = zip(neighbours("conv1", len(data.adjacencies)), data.neighbours, data.adjacencies, strict=True)
    neighbours_NH = sum_of(rows_step(data.x, walk, w[name], data.segments, a) for name, walk, a in parts)
    h_NH = rows_matmul(data.x, w["conv1.self"], data.segments) + neighbours_NH
    return segment_add(h_NH, w["conv1.bias"], data.segments)


def second_layer(w: Tree, h_NH: Tensor, data: Clients) -> Tensor:
    """H S2 + Σ PH N2 + b2 of every node."""
    own = data.segments
    parts = zip(neighbours("conv2", len(data.adjacencies)), data.adjacencies, strict=True)
    neighbours_NH = sum_of(propagate(a, segment_matmul(h_NH, w[name], own)) for name, a in parts)
    return segment_add(segment_matmul(h_NH, w["conv2.self"], own) + neighbours_NH, w["conv2.bias"], own)


def proxy_layer(w: Tree, proxy: Proxy) -> Tensor:
    """The first layer of every client on a proxy graph, [K, P, H]; all relations have the proxy graph's edges."""
    h_KPH = torch.matmul(proxy.x, proxy.rows(w["conv1.self"]))
    h_KPH = h_KPH + torch.matmul(proxy.propagated, proxy.rows(_all_neighbours("conv1", w)))
    return h_KPH + w["conv1.bias"].unsqueeze(1)


def proxy_outputs(w: Tree, h_KPH: Tensor, proxy: Proxy) -> Tensor:
    """The second layer of every client for every node of a proxy graph, [K, P, H]."""
    neighbours_KPH = proxy.adjacency_PP @ (h_KPH @ _all_neighbours("conv2", w))
    return h_KPH @ w["conv2.self"] + neighbours_KPH + w["conv2.bias"].unsqueeze(1)


def mean_output(w: Tree, h_KPH: Tensor, proxy: Proxy) -> Tensor:
    """The mean of the second layer over a proxy graph's nodes, [K, H]; linear, so the mean is taken first."""
    neighbours_KH = torch.einsum("p,kph->kh", proxy.mean_propagation_P, h_KPH)
    own_KH = torch.einsum("kh,khj->kj", h_KPH.mean(1), w["conv2.self"])
    return own_KH + torch.einsum("kh,khj->kj", neighbours_KH, _all_neighbours("conv2", w)) + w["conv2.bias"]


def _all_neighbours(layer: str, w: Tree) -> Tensor:
    return sum_of(leaf for name, leaf in w.items() if name.startswith(f"{layer}.neighbour"))


def classifier(w: Tree, h_NH: Tensor, data: Clients) -> Tensor:
    """H W3 + b3 of every node."""
    own = data.segments
    return segment_add(segment_matmul(h_NH, w["classifier.weight"], own), w["classifier.bias"], own)
