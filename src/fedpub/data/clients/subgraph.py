"""A client's subgraph: its nodes and the edges between them, without edges to other clients.

Axes: N nodes, F features, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import to_scipy
from fedpub.data.clients.links import Links
from fedpub.data.clients.split import Split
from fedpub.data.graph import Graph, adjacency_of, induced_edges

Propagation = Literal["symmetric", "mean"]


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A client's nodes and edges, ready to be stacked; constant during training."""

    id: int  # the client's number in the experiment; part of the names of its random streams
    nodes: Tensor  # [N] the number of each node in the whole graph; -1 for one from another client or a generator
    x: Any  # [N, F] SciPy CSR in double precision; a NumPy array if it contains generated features
    edges: Tensor  # [2, E] pairs u < v for message passing
    y: Tensor  # [N]
    train: Tensor  # [N] bool
    val: Tensor
    test: Tensor
    propagation: Propagation
    links: Links | None = None  # for link prediction

    @property
    def num_nodes(self) -> int:
        return len(self.y)

    @cached_property
    def adjacency(self) -> Any:
        """Normalised, SciPy CSR [N, N]."""
        return normalised_adjacency(self.edges, self.num_nodes, self.propagation)

    def forget(self) -> None:
        """Drop what can be recomputed."""
        for name in ("adjacency", "propagated"):
            self.__dict__.pop(name, None)

    @cached_property
    def propagated(self) -> Any:
        """The features after one step of message passing, of the same type as `x`: layer one never propagates."""
        return self.adjacency.astype(self.x.dtype) @ self.x

    @property
    def num_train(self) -> int:
        """The number of training examples."""
        return int(self.train.sum()) if self.links is None else self.links.train.shape[1]

    def kept(self, rows: Tensor) -> Subgraph:
        """The subgraph of the given nodes, in ascending order."""
        return replace(
            self,
            nodes=self.nodes[rows],
            x=self.x[rows.numpy()],
            edges=induced_edges(self.edges, rows, self.num_nodes),
            y=self.y[rows],
            train=self.train[rows],
            val=self.val[rows],
            test=self.test[rows],
            links=self.links.kept(rows, self.num_nodes) if self.links else None,
        )

    def extended(self, added: Added) -> Subgraph:
        """With added nodes after its own: they pass messages, but are in no training, validation or test set."""
        count = added.x.shape[0]
        if not count:
            return self
        no_node = torch.zeros(count, dtype=torch.bool)
        unknown = torch.full((count,), -1, dtype=torch.int64)
        return replace(
            self,
            nodes=torch.cat([self.nodes, unknown]),
            x=_joined(self.x, added.x),
            edges=torch.cat([self.edges, torch.stack([added.anchor, self.num_nodes + added.node])], dim=1),
            y=torch.cat([self.y, unknown]),
            train=torch.cat([self.train, no_node]),
            val=torch.cat([self.val, no_node]),
            test=torch.cat([self.test, no_node]),
        )


@dataclass(frozen=True, eq=False)
class Added:
    """Nodes that a client adds to its graph, with edges in both directions to its own nodes."""

    x: Any  # [A, F] SciPy CSR, or a NumPy array if there are few zeros
    anchor: Tensor  # [E] the client's node of each new edge
    node: Tensor  # [E] the added node, 0 .. A - 1


def _joined(own: Any, added: Any) -> Any:
    if sp.issparse(added):
        return sp.vstack([own, added.astype(own.dtype)], format="csr")
    return np.concatenate([own.toarray().astype(added.dtype), added])


def normalised_adjacency(edges: Tensor, num_nodes: int, kind: Propagation) -> Any:
    """GCN's D^-1/2 (A + I) D^-1/2, or the mean over neighbours D^-1 A (zero for an isolated node)."""
    a = adjacency_of(edges, num_nodes).astype(np.float64)
    if kind == "symmetric":
        a = a + sp.identity(num_nodes, format="csr")
        scale = sp.diags(np.asarray(a.sum(1)).ravel() ** -0.5)
        return (scale @ a @ scale).tocsr()
    degree = np.asarray(a.sum(1)).ravel()
    return (sp.diags(1 / np.maximum(degree, 1)) @ a).tocsr()


def subgraph_of(graph: Graph, nodes: Tensor, chosen: Split, client: int, kind: Propagation) -> Subgraph:
    """The nodes of a client and every edge between them."""
    own = graph.subgraph(nodes)
    train, val, test = (part[nodes] for part in chosen)
    x = to_scipy(own.x).astype(np.float64)
    return Subgraph(client, nodes, x, own.edges, own.y, train, val, test, propagation=kind)
