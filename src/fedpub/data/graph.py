"""A graph as plain tensors.

Axes: N nodes, F features, E undirected edges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.files import read_tensors, write_tensors
from fedpub.core.sparse import _row_blocks, csr, from_scipy, select_rows, to_scipy
from fedpub.errors import FedpubError

FORMAT = "fedpub-graph-1"
NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Graph:
    """Node features, node labels and undirected edges; optionally the client of each node."""

    x: Tensor  # [N, F] floating point, dense or sparse CSR; F = 0: structure only
    y: Tensor  # [N] int64, the class of each node; -1: no label
    edges: Tensor  # [2, E] int64: every undirected edge once, u < v, in lexicographic order
    classes: tuple[str, ...]
    name: str = "graph"
    client: Tensor | None = None  # [N] int64: the natural client of each node
    client_names: tuple[str, ...] = ()
    node_ids: tuple[str, ...] = ()  # the owner's names for the nodes; empty: 0 .. N-1
    meta: Mapping[str, str] = field(default_factory=dict)  # travels with the file, e.g. how columns became features

    @property
    def num_nodes(self) -> int:
        return int(self.y.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        kind = "sparse" if self.x.layout == torch.sparse_csr else "dense"
        return (
            f"Graph({self.name!r}, nodes={self.num_nodes:,}, edges={2 * self.edges.shape[1]:,} directed, "
            f"features={self.num_features:,} {kind}, classes={self.num_classes})"
        )

    def validate(self, labelled: bool = True) -> Graph:
        """The graph itself; a FedpubError names the first thing that is wrong and where.

        A graph that is used for prediction only need not be `labelled`.
        """
        n, name = self.num_nodes, self.name
        if n == 0:
            raise FedpubError(f"graph {name!r} has no nodes; a graph needs at least one")
        if self.y.dtype != torch.int64 or self.y.dim() != 1:
            raise FedpubError(f"graph {name!r}: y must be int64 of shape [N], not {_describe(self.y)}")
        if self.x.dim() != 2 or self.x.shape[0] != n or not self.x.dtype.is_floating_point:
            raise FedpubError(f"graph {name!r}: x must be floating point [{n}, F], not {_describe(self.x)}")
        values = self.x.values() if self.x.layout == torch.sparse_csr else self.x
        if not bool(torch.isfinite(values).all()):
            at = _first_non_finite(self.x)
            raise FedpubError(f"graph {name!r}: feature {at[1]} of node {at[0]} is not finite; fill or drop it")
        if labelled and self.num_classes < 2:
            raise FedpubError(
                f"graph {name!r} has {self.num_classes} class; classification needs at least two different labels"
            )
        wrong = torch.nonzero((self.y < NO_LABEL) | (self.y >= self.num_classes)).flatten()
        if len(wrong):
            node = int(wrong[0])
            raise FedpubError(
                f"graph {name!r}: label {int(self.y[node])} of node {node} is outside 0..{self.num_classes - 1}"
            )
        if labelled and not bool((self.y >= 0).any()):
            raise FedpubError(f"graph {name!r} has no labelled node; give at least one node a label")
        self._validate_edges()
        if self.node_ids and len(self.node_ids) != n:
            raise FedpubError(f"graph {name!r}: {len(self.node_ids)} node ids for {n} nodes")
        if self.client is not None:
            if self.client.shape != (n,) or self.client.dtype != torch.int64:
                raise FedpubError(f"graph {name!r}: client must be int64 [{n}], not {_describe(self.client)}")
            if int(self.client.min()) < 0 or int(self.client.max()) >= len(self.client_names):
                raise FedpubError(
                    f"graph {name!r}: a node's client is outside 0..{len(self.client_names) - 1}, its client names"
                )
        return self

    def _validate_edges(self) -> None:
        edges, n = self.edges, self.num_nodes
        if edges.dtype != torch.int64 or edges.dim() != 2 or edges.shape[0] != 2:
            raise FedpubError(f"graph {self.name!r}: edges must be int64 [2, E], not {_describe(edges)}")
        outside = torch.nonzero(((edges < 0) | (edges >= n)).any(0)).flatten()
        if len(outside):
            u, v = edges[:, outside[0]].tolist()
            raise FedpubError(
                f"graph {self.name!r}: edge {int(outside[0])} joins {u} and {v}, but nodes are 0..{n - 1}"
            )
        key = edges[0] * n + edges[1]
        if bool((edges[0] >= edges[1]).any()) or bool((key[1:] <= key[:-1]).any()):
            raise FedpubError(
                f"graph {self.name!r}: edges are not sorted pairs u < v without repetition; "
                "pass them through fedpub.data.graph.undirected"
            )

    def digest(self, features: bool = True) -> str:
        """SHA-256 of all that a result may depend on: edges, labels, clients and, unless left out, features."""
        sha = hashlib.sha256()
        parts = [self.edges, self.y]
        if self.client is not None:
            parts.append(self.client)
        for part in parts:
            sha.update(f"{tuple(part.shape)}{part.dtype}".encode())
            sha.update(part.contiguous().numpy().data)
        if features and self.num_features:
            self._add_features(sha)
        return sha.hexdigest()

    def _add_features(self, sha: Any) -> None:
        """Row pointers, columns and values of the features, in blocks of rows: a sparse copy of dense features takes
        several times their memory."""
        counts, entries = [np.zeros(1, dtype=np.int64)], 0
        for x in _row_blocks(self.x):
            counts.append(entries + x.indptr[1:].astype(np.int64))
            entries += x.nnz
        sha.update(f"({self.num_nodes + 1},)torch.int64".encode())
        sha.update(np.concatenate(counts))
        sha.update(f"({entries},)torch.int64".encode())
        for x in _row_blocks(self.x):
            sha.update(x.indices.astype("<i8"))
        sha.update(f"({entries},){self.x.dtype}".encode())
        for x in _row_blocks(self.x):
            sha.update(x.data)

    def subgraph(self, nodes: Tensor) -> Graph:
        """The given nodes, in the given order, and every edge with both ends among them."""
        pick = nodes.tolist() if self.node_ids else []
        return replace(
            self,
            x=select_rows(self.x, nodes),
            y=self.y[nodes],
            edges=induced_edges(self.edges, nodes, self.num_nodes),
            client=None if self.client is None else self.client[nodes],
            node_ids=tuple(self.node_ids[i] for i in pick),
        )

    def adjacency(self) -> Any:
        """Both directions of every edge, as a SciPy CSR matrix of ones."""
        return adjacency_of(self.edges, self.num_nodes)

    def to_pyg(self) -> Any:
        """A PyG `Data` with both directions of every edge; x is dense, as PyG's layers take it.

        `fedpub.graph_from_pyg` turns it back into the same graph: names and clients are kept as further attributes.
        """
        from torch_geometric.data import Data
        from torch_geometric.utils import to_undirected

        x = self.x.to_dense() if self.x.layout == torch.sparse_csr else self.x
        further: dict[str, Any] = {"name": self.name, "classes": list(self.classes)}
        if self.client is not None:
            further |= {"client": self.client, "client_names": list(self.client_names)}
        if self.node_ids:
            further["node_ids"] = list(self.node_ids)
        edge_index = to_undirected(self.edges, num_nodes=self.num_nodes)
        return Data(x=x, y=self.y, edge_index=edge_index, **further)

    def save(self, path: str | Path) -> None:
        tensors = {"y": self.y, "edges": self.edges}
        if self.x.layout == torch.sparse_csr:
            tensors |= {"x.indptr": self.x.crow_indices(), "x.indices": self.x.col_indices()}
            tensors |= {"x.values": self.x.values(), "x.shape": torch.tensor(self.x.shape)}
        else:
            tensors["x"] = self.x
        if self.client is not None:
            tensors["client"] = self.client
        if self.node_ids:  # a tensor, because a header should stay small
            text = json.dumps(self.node_ids, ensure_ascii=False).encode()
            tensors["node_ids"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        header = {"format": FORMAT, "name": self.name, "meta": json.dumps(dict(self.meta), sort_keys=True)}
        header |= {"classes": json.dumps(self.classes), "client_names": json.dumps(self.client_names)}
        write_tensors(Path(path).expanduser(), tensors, header)

    @staticmethod
    def load(path: str | Path, labelled: bool = True) -> Graph:
        tensors, header = read_tensors(Path(path).expanduser())
        if header.get("format") != FORMAT:
            raise FedpubError(f"{path} is not a fedpub graph; create one with fedpub data import")
        try:
            return _unpacked(tensors, header).validate(labelled)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise FedpubError(f"{path} is damaged ({error!r}); import the graph again") from error


def _unpacked(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> Graph:
    """The graph that a file holds."""
    if "x" in tensors:
        x = tensors["x"]
    else:
        shape = tuple(tensors["x.shape"].tolist())
        x = csr(tensors["x.indptr"], tensors["x.indices"], tensors["x.values"], shape)
    ids = json.loads(tensors["node_ids"].numpy().tobytes()) if "node_ids" in tensors else ()
    return Graph(
        x=x,
        y=tensors["y"],
        edges=tensors["edges"],
        classes=tuple(json.loads(header["classes"])),
        name=header["name"],
        client=tensors.get("client"),
        client_names=tuple(json.loads(header["client_names"])),
        node_ids=tuple(ids),
        meta=json.loads(header["meta"]),
    )


def adjacency_of(edges: Tensor, num_nodes: int) -> Any:
    """Both directions of every edge, as a SciPy CSR matrix of ones."""
    u, v = edges.numpy()
    ones = np.ones(2 * len(u), dtype=np.float32)
    index = (np.concatenate([u, v]), np.concatenate([v, u]))
    return sp.csr_matrix((ones, index), shape=(num_nodes, num_nodes))


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Every pair that occurs in either direction, once, u < v, sorted; self-loops are dropped."""
    low, high = edge_index.min(0).values, edge_index.max(0).values
    key = torch.unique((low * num_nodes + high)[low != high])
    return torch.stack([key // num_nodes, key % num_nodes])


def induced_edges(edges: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """The edges with both ends in `nodes`, renumbered to positions in `nodes`."""
    position = torch.full((num_nodes,), -1, dtype=torch.int64)
    position[nodes] = torch.arange(len(nodes))
    renumbered = position[edges]
    return undirected(renumbered[:, (renumbered >= 0).all(0)], max(len(nodes), 1))


def largest_component(graph: Graph) -> Graph:
    """The largest connected component; the nodes keep their order."""
    _, component = sp.csgraph.connected_components(graph.adjacency(), directed=False)
    nodes = np.flatnonzero(component == np.bincount(component).argmax())
    return graph.subgraph(torch.from_numpy(nodes))


def row_normalised(graph: Graph) -> Graph:
    """Every node's features divided by their sum, where that is above one, as PyG's `NormalizeFeatures` does with bags
    of words; signed features, whose sum has no meaning, are left unchanged."""
    x = to_scipy(graph.x)
    if x.data.size and x.data.min() < 0:
        return graph
    total = np.asarray(x.sum(1)).ravel()
    x = sp.diags(1 / np.maximum(total, 1)).astype(x.dtype) @ x
    return replace(graph, x=from_scipy(x) if graph.x.layout == torch.sparse_csr else torch.from_numpy(x.toarray()))


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _first_non_finite(x: Tensor) -> tuple[int, int]:
    if x.layout == torch.sparse_csr:
        entry = int(torch.nonzero(~torch.isfinite(x.values()))[0])
        row = int(torch.searchsorted(x.crow_indices(), torch.tensor(entry), right=True)) - 1
        return row, int(x.col_indices()[entry])
    row, column = torch.nonzero(~torch.isfinite(x))[0].tolist()
    return row, column
