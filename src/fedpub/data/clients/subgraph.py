"""A client's subgraph: its nodes and the edges between them, without edges to other clients.

Edges may have weights, directions and kinds. Every kind has an adjacency matrix of its own, and if edges are directed
two of them, for the neighbours that lead to a node and for those that it leads to: these matrices are the relations.

Axes: N nodes, F features, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedpub.core.sparse import to_scipy
from fedpub.data.clients.links import Links
from fedpub.data.clients.split import Split
from fedpub.data.graph import Edges, Graph, adjacency_of, induced

FULL = 0.5  # with a larger share of non-zeros, sparse products are slower than dense ones
Propagation = Literal["symmetric", "mean", "plain"]


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A client's nodes and edges, ready to be stacked; constant during training."""

    id: int  # the client's number in the experiment; part of the names of its random streams
    nodes: Tensor  # [N] the number of each node in the whole graph; -1 for one from another client or a generator
    x: Any  # [N, F] SciPy CSR in double precision; a NumPy array if it contains generated features
    edges: Tensor  # [2, E] pairs for message passing, u < v unless they are directed
    y: Tensor  # [N]
    train: Tensor  # [N] bool
    val: Tensor
    test: Tensor
    propagation: Propagation
    links: Links | None = None  # for link prediction
    weight: Tensor | None = None  # [E]; None: every edge weighs one
    directed: bool = False
    kind: Tensor | None = None  # [E]
    num_kinds: int = 1
    target: Tensor | None = None  # [N, T] double: several labels or a number to learn; NaN: unknown

    @property
    def num_nodes(self) -> int:
        return len(self.y)

    @property
    def num_relations(self) -> int:
        return self.num_kinds * (2 if self.directed else 1)

    @property
    def linked(self) -> Edges:
        return Edges(self.edges, self.weight, self.kind, self.directed)

    @cached_property
    def adjacencies(self) -> tuple[Any, ...]:
        """The normalised matrix of every relation, SciPy CSR [N, N]."""
        return relations(self.linked, self.num_nodes, self.num_kinds, self.propagation)

    @property
    def adjacency(self) -> Any:
        """The matrix of the first relation."""
        return self.adjacencies[0]

    @cached_property
    def _walks(self) -> list[list[Any]]:
        return [[] for _ in range(self.num_relations)]

    def walks(self, steps: int) -> list[Any]:
        """The features after 1 .. `steps` steps along the edges of each relation, first all steps of the first
        relation; kept. They never change, so that layer one never propagates. NumPy arrays if few features are zero."""
        if any(len(walk) < steps for walk in self._walks):
            found = iter(list(self.walk(steps)))
            for walk in self._walks:
                walk[:] = [next(found) for _ in range(steps)]
        return [walk[step] for walk in self._walks for step in range(steps)]

    def walk(self, steps: int) -> Iterator[Any]:
        """The same one after another, not kept."""
        few_zeros = sp.issparse(self.x) and self.x.nnz >= FULL * self.x.shape[0] * self.x.shape[1]
        x = self.x.toarray() if few_zeros else self.x
        for adjacency in self.adjacencies:
            here = x
            for _ in range(steps):
                here = adjacency.astype(x.dtype) @ here
                yield here

    @property
    def propagated(self) -> Any:
        """The features after one step along the edges of the first relation."""
        return self.walks(1)[0]

    def forget(self) -> None:
        """Drop what can be recomputed."""
        for name in ("adjacencies", "_walks"):
            self.__dict__.pop(name, None)

    @property
    def num_train(self) -> int:
        """The number of training examples."""
        return int(self.train.sum()) if self.links is None else self.links.train.shape[1]

    def kept(self, rows: Tensor) -> Subgraph:
        """The subgraph of the given nodes, in ascending order."""
        own = induced(self.linked, rows, self.num_nodes)
        return replace(
            self,
            nodes=self.nodes[rows],
            x=self.x[rows.numpy()],
            edges=own.ends,
            weight=own.weight,
            kind=own.kind,
            y=self.y[rows],
            train=self.train[rows],
            val=self.val[rows],
            test=self.test[rows],
            target=None if self.target is None else self.target[rows],
            links=self.links.kept(rows, self.num_nodes) if self.links else None,
        )

    def extended(self, added: Added) -> Subgraph:
        """With added nodes after its own: they pass messages, but are in no training, validation or test set.

        Their edges weigh one, lead both ways, and are of the first kind.
        """
        count = added.x.shape[0]
        if not count:
            return self
        new = torch.stack([added.anchor, self.num_nodes + added.node])
        new = torch.cat([new, new.flip(0)], dim=1) if self.directed else new
        weight = None if self.weight is None else torch.cat([self.weight, self.weight.new_ones(new.shape[1])])
        kind = None if self.kind is None else torch.cat([self.kind, self.kind.new_zeros(new.shape[1])])
        no_node = torch.zeros(count, dtype=torch.bool)
        unknown = torch.full((count,), -1, dtype=torch.int64)
        return replace(
            self,
            nodes=torch.cat([self.nodes, unknown]),
            x=_joined(self.x, added.x),
            edges=torch.cat([self.edges, new], dim=1),
            weight=weight,
            kind=kind,
            y=torch.cat([self.y, unknown]),
            train=torch.cat([self.train, no_node]),
            val=torch.cat([self.val, no_node]),
            test=torch.cat([self.test, no_node]),
            target=None if self.target is None else pad(self.target, (0, 0, 0, count), value=torch.nan),
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


def relations(edges: Edges, num_nodes: int, num_kinds: int, propagation: Propagation) -> tuple[Any, ...]:
    """A normalised adjacency matrix for every kind of edges; of directed ones two, in-neighbours first."""
    found = []
    for number in range(num_kinds):
        own = edges
        if edges.kind is not None:
            chosen = edges.kind == number
            own = Edges(edges.ends[:, chosen], None if edges.weight is None else edges.weight[chosen])
        if not edges.directed:
            found.append(normalised(adjacency_of(own.ends, num_nodes, own.weight).astype(np.float64), propagation))
            continue
        (u, v), weight = own.ends.numpy(), own.weight
        value = np.ones(len(u)) if weight is None else weight.numpy()
        into = sp.csr_matrix((value, (v, u)), shape=(num_nodes, num_nodes))
        found += [normalised(into, propagation), normalised(into.T.tocsr(), propagation)]
    return tuple(found)


def normalised_adjacency(edges: Tensor, num_nodes: int, kind: Propagation) -> Any:
    """The normalised adjacency matrix of plain edges."""
    return relations(Edges(edges), num_nodes, 1, kind)[0]


def normalised(a: Any, kind: Propagation) -> Any:
    """GCN's D^-1/2 (A + I) D^-1/2, the mean over neighbours D^-1 A (zero for an isolated node), or A itself.

    A_vu is the weight of the edge from u to v. If A is not symmetric, the left D has the sums of its rows and the right
    one those of its columns.
    """
    if kind == "plain":
        return a
    if kind == "symmetric":
        a = a + sp.identity(a.shape[0], format="csr")
        into, out = (sp.diags(np.asarray(a.sum(axis)).ravel() ** -0.5) for axis in (1, 0))
        return (into @ a @ out).tocsr()
    degree = np.asarray(a.sum(1)).ravel()
    return (sp.diags(1 / np.where(degree > 0, degree, 1)) @ a).tocsr()


def subgraph_of(graph: Graph, nodes: Tensor, chosen: Split, client: int, kind: Propagation) -> Subgraph:
    """The nodes of a client and every edge between them."""
    own = graph.subgraph(nodes)
    train, val, test = (part[nodes] for part in chosen)
    x = to_scipy(own.x).astype(np.float64)
    return Subgraph(
        client,
        nodes,
        x,
        own.edges,
        own.y,
        train,
        val,
        test,
        propagation=kind,
        weight=own.weight,
        directed=own.directed,
        kind=own.kind,
        num_kinds=max(1, len(graph.kinds)),
        target=own.target,
    )
