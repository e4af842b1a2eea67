"""A graph as plain tensors.

Axes: N nodes, F features, E edges, T targets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import _row_blocks, csr, from_scipy, select_rows, to_scipy
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.errors import FedpubError, note

FORMAT = "fedpub-graph-1"
NO_LABEL = -1
TRAIN, VALIDATION, TEST, NO_SET = 0, 1, 2, -1  # the sets of a split of the owner's
Duplicates = Literal["merge", "sum", "refuse"]  # an edge that is given several times: once, weights added, an error


@dataclass(frozen=True, eq=False)
class Graph:
    """Node features, node labels and edges; optionally weights, directions and kinds of edges, the client of each node
    and the owner's own split."""

    x: Tensor  # [N, F] floating point, dense or sparse CSR; F = 0: structure only
    y: Tensor  # [N] int64, the class of each node; -1: no label
    edges: Tensor  # [2, E] int64: every edge once, in order of kind, then of its ends; u < v unless they are directed
    classes: tuple[str, ...]
    name: str = "graph"
    client: Tensor | None = None  # [N] int64: the natural client of each node
    client_names: tuple[str, ...] = ()
    node_ids: tuple[str, ...] = ()  # the owner's names for the nodes; empty: 0 .. N-1
    meta: Mapping[str, str] = field(default_factory=dict)  # travels with the file, e.g. how columns became features
    weight: Tensor | None = None  # [E] double, 0 or more; None: every edge weighs one
    directed: bool = False  # whether an edge leads from edges[0] to edges[1] only
    kind: Tensor | None = None  # [E] int64: the kind of each edge; None: all are of one kind
    kinds: tuple[str, ...] = ()
    split: Tensor | None = None  # [N] int8: TRAIN, VALIDATION, TEST or NO_SET, as the owner divides the nodes
    target: Tensor | None = None  # [N, T] double: numbers, or 0 and 1 for several labels per node; NaN: unknown

    @property
    def num_nodes(self) -> int:
        return int(self.y.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def num_relations(self) -> int:
        """The adjacency matrices that a model can tell apart: one per kind of edges, two if they are directed."""
        return max(1, len(self.kinds)) * (2 if self.directed else 1)

    def __repr__(self) -> str:
        kind = "sparse" if self.x.layout == torch.sparse_csr else "dense"
        edges = self.edges.shape[1] * (1 if self.directed else 2)
        return (
            f"Graph({self.name!r}, nodes={self.num_nodes:,}, edges={edges:,} directed, "
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
        if labelled and self.target is None and self.num_classes < 2:
            raise FedpubError(
                f"graph {name!r} has {self.num_classes} class; classification needs at least two different labels"
            )
        wrong = torch.nonzero((self.y < NO_LABEL) | (self.y >= self.num_classes)).flatten()
        if len(wrong):
            node = int(wrong[0])
            raise FedpubError(
                f"graph {name!r}: label {int(self.y[node])} of node {node} is outside 0..{self.num_classes - 1}"
            )
        if labelled and self.target is None and not bool((self.y >= 0).any()):
            raise FedpubError(f"graph {name!r} has no labelled node; give at least one node a label")
        self._validate_edges()
        self._validate_further()
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

    def _validate_further(self) -> None:
        n, name = self.num_nodes, self.name
        if self.split is not None:
            if self.split.shape != (n,) or self.split.dtype != torch.int8:
                raise FedpubError(f"graph {name!r}: split must be int8 [{n}], not {_describe(self.split)}")
            if int(self.split.min()) < NO_SET or int(self.split.max()) > TEST:
                raise FedpubError(f"graph {name!r}: a node's set is outside {NO_SET}..{TEST}")
        if self.target is not None:
            if self.target.dim() != 2 or len(self.target) != n or self.target.dtype != torch.float64:
                raise FedpubError(f"graph {name!r}: target must be float64 [{n}, T], not {_describe(self.target)}")
            if bool(self.target.isinf().any()):
                raise FedpubError(f"graph {name!r}: a target is infinite; correct it, or leave it out as NaN")

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
        count = edges.shape[1]
        if self.kind is not None:
            if self.kind.shape != (count,) or self.kind.dtype != torch.int64:
                raise FedpubError(f"graph {self.name!r}: kind must be int64 [{count}], not {_describe(self.kind)}")
            if count and not 0 <= int(self.kind.min()) <= int(self.kind.max()) < len(self.kinds):
                raise FedpubError(f"graph {self.name!r}: an edge's kind is outside 0..{len(self.kinds) - 1}")
        if self.weight is not None:
            if self.weight.shape != (count,) or self.weight.dtype != torch.float64:
                raise FedpubError(
                    f"graph {self.name!r}: weight must be float64 [{count}], not {_describe(self.weight)}"
                )
            wrong = torch.nonzero(~(torch.isfinite(self.weight) & (self.weight >= 0))).flatten()
            if len(wrong):
                raise FedpubError(
                    f"graph {self.name!r}: edge {int(wrong[0])} has the weight {float(self.weight[wrong[0]])}; "
                    "weights are finite numbers, 0 or more"
                )
        key = (edges[0] if self.kind is None else edges[0] + self.kind * n) * n + edges[1]
        backward = edges[0] == edges[1] if self.directed else edges[0] >= edges[1]
        if bool(backward.any()) or bool((key[1:] <= key[:-1]).any()):
            rule = "sorted pairs of different nodes" if self.directed else "sorted pairs u < v"
            raise FedpubError(
                f"graph {self.name!r}: edges are not {rule} without repetition; "
                "pass them through fedpub.data.graph.undirected or arranged"
            )

    def digest(self, features: bool = True) -> str:
        """SHA-256 of all that a result may depend on: edges, labels, clients and, unless left out, features."""
        sha = hashlib.sha256()
        parts = [self.edges, self.y]
        if self.client is not None:
            parts.append(self.client)
        for name in ("weight", "kind", "split", "target"):
            if (further := getattr(self, name)) is not None:
                sha.update(name.encode())
                parts.append(further)
        if self.directed:
            sha.update(b"directed")
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
        inside = induced(self.linked, nodes, self.num_nodes)
        return replace(
            self,
            x=select_rows(self.x, nodes),
            y=self.y[nodes],
            edges=inside.ends,
            weight=inside.weight,
            kind=inside.kind,
            client=None if self.client is None else self.client[nodes],
            node_ids=tuple(self.node_ids[i] for i in pick),
            split=None if self.split is None else self.split[nodes],
            target=None if self.target is None else self.target[nodes],
        )

    @property
    def linked(self) -> Edges:
        """The edges with all that is known of them."""
        return Edges(self.edges, self.weight, self.kind, self.directed)

    @property
    def pairs(self) -> Tensor:
        """Which nodes are joined, whatever the directions and kinds of edges: every pair once, u < v, sorted."""
        return undirected(self.edges, self.num_nodes) if self.directed or self.kind is not None else self.edges

    def adjacency(self) -> Any:
        """Both directions of every joined pair, as a SciPy CSR matrix of ones."""
        return adjacency_of(self.pairs, self.num_nodes)

    def to_pyg(self) -> Any:
        """A PyG `Data` with both directions of every edge, unless edges are directed; x is dense, as PyG's layers take
        it.

        Weights are edge_weight, kinds edge_type, a split of the owner's the three masks, and targets target.
        `fedpub.graph_from_pyg` turns it back into the same graph: names and clients are kept as further attributes.
        """
        from torch_geometric.data import Data
        from torch_geometric.utils import sort_edge_index

        x = self.x.to_dense() if self.x.layout == torch.sparse_csr else self.x
        further: dict[str, Any] = {"name": self.name, "classes": list(self.classes)}
        if self.client is not None:
            further |= {"client": self.client, "client_names": list(self.client_names)}
        if self.node_ids:
            further["node_ids"] = list(self.node_ids)
        both = {"edge_weight": self.weight, "edge_type": self.kind}
        of_edges = {name: part for name, part in both.items() if part is not None}
        ends = self.edges
        if not self.directed:
            ends = torch.cat([ends, ends.flip(0)], dim=1)
            of_edges = {name: torch.cat([part, part]) for name, part in of_edges.items()}
        edge_index, parts = sort_edge_index(ends, list(of_edges.values()), self.num_nodes)
        further |= dict(zip(of_edges, parts, strict=True))
        further |= ({"directed": True} if self.directed else {}) | ({"kinds": list(self.kinds)} if self.kinds else {})
        if self.split is not None:
            sets = zip(("train_mask", "val_mask", "test_mask"), (TRAIN, VALIDATION, TEST), strict=True)
            further |= {name: self.split == number for name, number in sets}
        if self.target is not None:
            further["target"] = self.target
        return Data(x=x, y=self.y, edge_index=edge_index, **further)

    def save(self, path: str | Path) -> None:
        tensors = {"y": self.y, "edges": self.edges}
        if self.x.layout == torch.sparse_csr:
            tensors |= {"x.indptr": self.x.crow_indices(), "x.indices": self.x.col_indices()}
            tensors |= {"x.values": self.x.values(), "x.shape": torch.tensor(self.x.shape)}
        else:
            tensors["x"] = self.x
        for name in ("client", "weight", "kind", "split", "target"):
            if (part := getattr(self, name)) is not None:
                tensors[name] = part
        if self.node_ids:  # a tensor, because a header should stay small
            text = json.dumps(self.node_ids, ensure_ascii=False).encode()
            tensors["node_ids"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        header = {"format": FORMAT, "name": self.name, "meta": json.dumps(dict(self.meta), sort_keys=True)}
        header |= {"classes": json.dumps(self.classes), "client_names": json.dumps(self.client_names)}
        if self.directed:
            header["directed"] = "yes"
        if self.kinds:
            header["kinds"] = json.dumps(self.kinds)
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
        weight=tensors.get("weight"),
        directed="directed" in header,
        kind=tensors.get("kind"),
        kinds=tuple(json.loads(header.get("kinds", "[]"))),
        split=tensors.get("split"),
        target=tensors.get("target"),
    )


class Edges(NamedTuple):
    """Edges with their weights and kinds, if they have any."""

    ends: Tensor  # [2, E]
    weight: Tensor | None = None  # [E]
    kind: Tensor | None = None  # [E]
    directed: bool = False


def arranged(given: Edges, num_nodes: int, duplicates: Duplicates | None = None) -> tuple[Edges, int]:
    """Edges as a graph has them, and how many were repeated: without self-loops, u < v unless directed, each once per
    kind and in order.

    Repeated edges are merged, or their weights added; by default the latter if they have weights.
    """
    ends, weight, kind, directed = given
    duplicates = duplicates or ("merge" if weight is None else "sum")
    if duplicates == "sum" and weight is None:
        weight = torch.ones(ends.shape[1], dtype=torch.float64)
    u, v = (ends[0], ends[1]) if directed else (ends.min(0).values, ends.max(0).values)
    key = (u if kind is None else u + kind * num_nodes) * num_nodes + v
    kept = torch.nonzero(u != v).flatten()
    distinct, place = torch.unique(key[kept], return_inverse=True)
    repeated = len(kept) - len(distinct)
    if repeated and duplicates == "refuse":
        count = torch.bincount(place)
        first = kept[torch.nonzero(count[place] > 1).flatten()[0]]
        raise FedpubError(
            f"the edge {int(first)} between the nodes {int(ends[0, first])} and {int(ends[1, first])} is given several "
            "times; remove the others, or add their weights with `duplicates=sum`"
        )
    total = None
    if weight is not None:
        total = torch.zeros(len(distinct), dtype=torch.float64)
        if duplicates == "sum":
            total.index_add_(0, place, weight[kept].double())
        else:  # the first one counts
            total[place.flip(0)] = weight[kept].double().flip(0)
    pair, kinds = distinct % num_nodes**2, None if kind is None else distinct // num_nodes**2
    return Edges(torch.stack([pair // num_nodes, pair % num_nodes]), total, kinds, directed), repeated


def adjacency_of(edges: Tensor, num_nodes: int, weight: Tensor | None = None) -> Any:
    """Both directions of every edge, as a SciPy CSR matrix of ones or of weights."""
    u, v = edges.numpy()
    values = np.ones(2 * len(u), dtype=np.float32) if weight is None else np.tile(weight.numpy(), 2)
    index = (np.concatenate([u, v]), np.concatenate([v, u]))
    return sp.csr_matrix((values, index), shape=(num_nodes, num_nodes))


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Every pair that occurs in either direction, once, u < v, sorted; self-loops are dropped."""
    low, high = edge_index.min(0).values, edge_index.max(0).values
    key = torch.unique((low * num_nodes + high)[low != high])
    return torch.stack([key // num_nodes, key % num_nodes])


def induced(edges: Edges, nodes: Tensor, num_nodes: int) -> Edges:
    """The edges with both ends in `nodes`, renumbered to positions in `nodes`."""
    position = torch.full((num_nodes,), -1, dtype=torch.int64)
    position[nodes] = torch.arange(len(nodes))
    renumbered = position[edges.ends]
    inside = (renumbered >= 0).all(0)
    weight, kind = (None if part is None else part[inside] for part in (edges.weight, edges.kind))
    own, _ = arranged(Edges(renumbered[:, inside], weight, kind, edges.directed), max(len(nodes), 1), "merge")
    return own


def induced_edges(edges: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """The pairs with both ends in `nodes`, renumbered to positions in `nodes`."""
    return induced(Edges(edges), nodes, num_nodes).ends


def merged(graph: Graph) -> Graph:
    """The graph for a model that knows neither directions nor kinds: every joined pair once, its weights added."""
    if not graph.directed and graph.kind is None:
        return graph
    ends, weight, _, _ = graph.linked
    own, _ = arranged(Edges(ends, weight), graph.num_nodes, "merge" if weight is None else "sum")
    return replace(graph, edges=own.ends, weight=own.weight, directed=False, kind=None, kinds=())


def alike(graph: Graph, user: str, weighted: bool = True) -> Graph:
    """The merged graph, and a note if that makes a difference, for a user that treats all edges alike, whether or not
    it uses their weights."""
    found = {"directions": graph.directed, "kinds": graph.kind is not None}
    found["weights"] = graph.weight is not None and not weighted
    if lost := [what for what, given in found.items() if given]:
        listed = " and ".join([", ".join(lost[:-1]), lost[-1]] if lost[:-1] else lost)
        note(f"{user} treats all edges of graph {graph.name!r} alike: their {listed} are not used")
    return merged(graph if weighted else replace(graph, weight=None))


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
