"""FedGNN (Wu et al., 2021), as FED-PUB's authors adapt it to subgraphs: related nodes of other clients, then FedAvg.

If clients overlap, a node w of another client whose neighbours there are exactly the neighbours of a node v here,

    N_j(w) = N_i(v),

joins this client's graph with edges to those neighbours: it is a neighbour of theirs that this client did not know.
If clients are disjoint, a node w of another client whose features x are similar to those of a node v here,

    cos(x_w, x_v) > 0.5,

joins with an edge to v. Neighbourhoods are compared by hashes of node numbers, which hide nothing from a server that
can guess these; node features leave their client in the clear. Both are inherent in the published method.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.protocol import Algorithm, Context, Place
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tensor, tree
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.data.graph import adjacency_of

ROWS = 1024  # nodes compared with all others at a time
ROUNDING = 1e-6  # cosines this close count as equal; those of word counts often are equal, and often one half
DENSE_ABOVE = 0.05  # share of nonzeros above which features are multiplied as dense matrices


@dataclass(frozen=True)
class FedGNN(FedAvg):
    title: ClassVar[str] = "FedGNN"
    secured = Algorithm.secured  # what its clients exchange before the rounds is no sum

    # Overlapping clients already hold copies of similar nodes.
    relation: Literal["neighbourhood", "similarity"] | None = None
    """Relation between nodes of two clients. (default: neighbourhood for overlapping clients, else similarity)"""
    threshold: float = 0.5
    """Cosine of the features above which two nodes are similar."""
    limit: int = 10
    """Maximum number of similar nodes that a node receives, most similar first."""

    def adapted(self, dataset: str, scenario: str) -> FedGNN:
        if self.relation is not None:
            return self
        return replace(self, relation="neighbourhood" if scenario == "overlapping" else "similarity")

    @property
    def uploads(self) -> frozenset[str]:
        return super().uploads | {"features"} | ({"hashes"} if self.relation == "neighbourhood" else set())

    def setup(self) -> SameNeighbourhood | SimilarNodes:
        if self.relation == "neighbourhood":
            return SameNeighbourhood()
        return SimilarNodes(self.threshold, self.limit)


@dataclass(frozen=True)
class _Work:
    data: list[Subgraph]
    dtype: torch.dtype


class _Exchange:
    """The parts common to both relations; clients have no state before they receive their new nodes."""

    def init_server(self, num_clients: int) -> State:
        return {}

    def workspace(self, ctx: Context, data: list[Subgraph], place: Place) -> _Work:
        return _Work(data, place.dtype)

    def init_clients(self, ctx: Context, w0: Tree, work: _Work) -> list[State]:
        return [{} for _ in work.data]

    def send(self, server: State, step: int, client: int) -> Message:
        return Message({"nodes": server[f"to {client}"]} if f"to {client}" in server else {})

    def added(self, ctx: Context, own: list[State], work: _Work) -> list[Added]:
        found = []
        for state, graph in zip(own, work.data, strict=True):
            nodes = tree(state["nodes"])
            x = unpack_rows(nodes, graph.x.shape[1])
            found.append(Added(x, *self.edges(graph, nodes["node"][0], nodes["relation"][0])))
        return found

    def edges(self, graph: Subgraph, node: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """The new edges: the client's node and the added node of each."""
        return relation, node

    def problem(
        self, ctx: Context, step: int, server: State, client: int, up: Message, features: int, place: Place
    ) -> str | None:
        expected = ("features",) if step == 0 else ()
        if set(up) != set(expected):
            return f"it has {sorted(up)}, not {sorted(expected)}"
        return wrong_rows(up["features"], features, place.dtype) if expected else None


class SimilarNodes(_Exchange):
    """Disjoint clients: the server compares the features of all nodes."""

    steps: Sequence[str] = ("comparing nodes", "receiving similar nodes")

    def __init__(self, threshold: float, limit: int) -> None:
        self.threshold, self.limit = threshold, limit

    def clients(
        self, ctx: Context, step: int, own: list[State], received: list[Message], work: _Work
    ) -> tuple[list[State], list[Message]]:
        if step == 0:
            return own, [Message({"features": pack_rows(graph.x, work.dtype)}) for graph in work.data]
        return [dict(message) for message in received], [Message() for _ in received]

    def server(self, ctx: Context, step: int, server: State, up: list[Message]) -> State:
        if step:
            return {}
        parts = [message.tree("features") for message in up]
        width = max(_last(part["columns"]) for part in parts) + 1
        rows = [unpack_rows(part, width) for part in parts]
        owner = np.repeat(np.arange(len(rows)), [part.shape[0] for part in rows])
        x = sp.vstack(rows, format="csr")
        unit = _unit_rows(x)
        to: State = {}
        for client in range(len(rows)):
            elsewhere = np.flatnonzero(owner != client)
            anchor, node = similar_pairs(unit[owner == client], unit[elsewhere], self.threshold, self.limit)
            to[f"to {client}"] = _nodes_message(x[elsewhere], node, anchor, parts[client]["values"].dtype)
        return to


def similar_pairs(own: Any, other: Any, threshold: float, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of rows whose product is above the threshold, for each of `own` at most the `limit` greatest."""
    if own.nnz > DENSE_ABOVE * own.shape[0] * own.shape[1]:
        own, other = own.toarray(), other.toarray()
    anchors, nodes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, own.shape[0], ROWS):
        product = own[start : start + ROWS] @ other.T
        product = product.toarray() if sp.issparse(product) else product
        row, node = np.nonzero(product > threshold + ROUNDING)
        value = np.round(product[row, node] / ROUNDING)
        order = np.lexsort((node, -value, row))  # most similar first; ties by node
        row, node = row[order], node[order]
        place = np.arange(len(row)) - np.searchsorted(row, row)  # rank within its row
        anchors.append(start + row[place < limit])
        nodes.append(node[place < limit])
    return np.concatenate(anchors), np.concatenate(nodes)


class SameNeighbourhood(_Exchange):
    """Overlapping clients: the server compares hashes of neighbourhoods, and only nodes that match are sent."""

    steps: Sequence[str] = ("comparing neighbourhoods", "sending nodes that match", "receiving nodes that match")

    def clients(
        self, ctx: Context, step: int, own: list[State], received: list[Message], work: _Work
    ) -> tuple[list[State], list[Message]]:
        if step == 0:
            return own, [Message({"hashes": torch.stack(hashes(graph)).unsqueeze(0)}) for graph in work.data]
        if step == 1:
            wanted = [message.tensor("wanted")[0].numpy() for message in received]
            rows = [graph.x[chosen] for graph, chosen in zip(work.data, wanted, strict=True)]
            return own, [Message({"features": pack_rows(x, work.dtype)}) for x in rows]
        return [dict(message) for message in received], [Message() for _ in received]

    def send(self, server: State, step: int, client: int) -> Message:
        if step == 1:
            return Message({"wanted": tensor(server[f"wanted of {client}"])})
        return super().send(server, step, client)

    def server(self, ctx: Context, step: int, server: State, up: list[Message]) -> State:
        if step == 0:
            return _match([message.tensor("hashes")[0] for message in up])
        if step == 1:
            parts = [message.tree("features") for message in up]
            width = max(_last(part["columns"]) for part in parts) + 1
            x = sp.vstack([unpack_rows(part, width) for part in parts], format="csr")
            to: State = {}
            for client, part in enumerate(parts):
                node, key = tensor(server[f"matched {client}"]).numpy()
                to[f"to {client}"] = _nodes_message(x, node, key, part["values"].dtype)
            return to
        return {}

    def problem(
        self, ctx: Context, step: int, server: State, client: int, up: Message, features: int, place: Place
    ) -> str | None:
        expected = (("hashes",), ("features",), ())[step]
        if set(up) != set(expected):
            return f"it has {sorted(up)}, not {sorted(expected)}"
        if step == 0:
            own = up["hashes"]
            if isinstance(own, dict) or own.dtype != torch.int64 or own.dim() != 3 or own.shape[:2] != (1, 2):
                return "its hashes are not two whole numbers for every node"
            return "a hash of its nodes is negative" if bool((own < 0).any()) else None
        if step == 1:
            wanted = tensor(server[f"wanted of {client}"]).shape[1]
            return wrong_rows(up["features"], features, place.dtype, wanted)
        return None

    def edges(self, graph: Subgraph, node: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """An added node has edges to the neighbours of the nodes here whose neighbourhood it shares."""
        mine, a = hashes(graph)[1], adjacency_of(graph.edges, graph.num_nodes)
        rows = {int(key): row for row, key in enumerate(mine.tolist()) if key}
        pairs = {
            (int(anchor), added)
            for added, key in zip(node.tolist(), relation.tolist(), strict=True)
            for anchor in a.indices[a.indptr[rows[key]] : a.indptr[rows[key] + 1]]
        }
        found = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]


def _match(hashes_of: list[Tensor]) -> State:
    """The rows of each client that others need, and for each client its new nodes and the neighbourhoods they share.

    A new node is numbered by its place among all wanted rows, client by client.
    """
    holders: dict[int, list[tuple[int, int, int]]] = {}  # by neighbourhood: the (node, client, row) that have it
    for client, (nodes, keys) in enumerate(hashes_of):
        for row, (node, key) in enumerate(zip(nodes.tolist(), keys.tolist(), strict=True)):
            if key:
                holders.setdefault(key, []).append((node, client, row))
    matched: list[set[tuple[tuple[int, int], int]]] = []
    source: dict[int, tuple[int, int]] = {}  # (client, row) that sends a node: one of the clients where it has a match
    for nodes, keys in hashes_of:
        held = set(nodes.tolist())
        wanted = {(node, key): (client, row) for key in set(keys.tolist()) - {0} for node, client, row in holders[key]}
        new = {(node, key): place for (node, key), place in wanted.items() if node not in held}
        matched.append({(source.setdefault(node, place), key) for (node, key), place in sorted(new.items())})
    order = sorted(set(source.values()))
    number = {place: position for position, place in enumerate(order)}
    state: State = {}
    for client, pairs in enumerate(matched):
        rows = [row for owner, row in order if owner == client]
        state[f"wanted of {client}"] = torch.tensor([rows], dtype=torch.int64)
        found = sorted((number[place], key) for place, key in pairs)
        state[f"matched {client}"] = torch.tensor(found, dtype=torch.int64).reshape(-1, 2).T
    return state


def hashes(graph: Subgraph) -> tuple[Tensor, Tensor]:
    """A hash of every node's number, and one of its neighbours' numbers (0 if it has none)."""
    a, number = adjacency_of(graph.edges, graph.num_nodes), graph.nodes.tolist()
    around = [sorted(number[i] for i in a.indices[a.indptr[row] : a.indptr[row + 1]]) for row in range(len(number))]
    nodes = torch.tensor([_hash("node", [own]) for own in number], dtype=torch.int64)
    return nodes, torch.tensor([_hash("around", own) if own else 0 for own in around], dtype=torch.int64)


def _hash(kind: str, numbers: Sequence[int]) -> int:
    digest = hashlib.sha256(f"{kind} {' '.join(map(str, numbers))}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _nodes_message(x: Any, node: np.ndarray, relation: np.ndarray, dtype: torch.dtype) -> Tree:
    """The given rows of x, each once, and the relation of each to the client that receives them."""
    chosen, position = np.unique(node, return_inverse=True)
    pairs = {"node": torch.from_numpy(position.astype(np.int64)), "relation": torch.from_numpy(relation)}
    return pack_rows(x[chosen], dtype) | {name: part.unsqueeze(0) for name, part in pairs.items()}


def pack_rows(x: Any, dtype: torch.dtype) -> Tree:
    """A sparse matrix as a message's tree: only its values travel."""
    parts = {
        "values": torch.from_numpy(x.data).to(dtype),
        "columns": torch.from_numpy(x.indices.astype(np.int32)),
        "pointer": torch.from_numpy(x.indptr.astype(np.int32)),
    }
    return {name: part.unsqueeze(0) for name, part in parts.items()}


def unpack_rows(rows: Mapping[str, Tensor], width: int) -> Any:
    values, columns, pointer = (rows[name][0].cpu().numpy() for name in ("values", "columns", "pointer"))
    return sp.csr_matrix((values, columns, pointer), shape=(len(pointer) - 1, width))


def wrong_rows(rows: Tree | Tensor, width: int, dtype: torch.dtype, count: int | None = None) -> str | None:
    """Why these are not the output of `pack_rows` for a matrix of that width and number of rows; None if they are."""
    types = {"values": dtype, "columns": torch.int32, "pointer": torch.int32}
    if isinstance(rows, Tensor) or set(rows) != set(types):
        return f"its features are not a tree of {sorted(types)}"
    for name, kind in types.items():
        if rows[name].dtype != kind or rows[name].dim() != 2 or len(rows[name]) != 1:
            return f"{name} of its features is {list(rows[name].shape)} {rows[name].dtype}, not [1, any] {kind}"
    values, columns, pointer = (rows[name][0] for name in types)
    if len(values) != len(columns):
        return f"its features have {len(values)} values in {len(columns)} columns"
    if not len(pointer) or pointer[0] != 0 or pointer[-1] != len(values) or bool((pointer.diff() < 0).any()):
        return f"the pointer of its features does not ascend from 0 to the {len(values)} values"
    if bool(((columns < 0) | (columns >= width)).any()):
        return f"its features have a column outside the {width} columns"
    if count is not None and len(pointer) != count + 1:
        return f"it sent the features of {len(pointer) - 1} nodes, not of the {count} requested"
    return None


def _last(columns: Tensor) -> int:
    return int(columns.max()) if columns.numel() else 0


def _unit_rows(x: Any) -> Any:
    norm = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
    return (sp.diags(1 / np.maximum(norm, 1e-30)).astype(x.dtype) @ x).tocsr()
