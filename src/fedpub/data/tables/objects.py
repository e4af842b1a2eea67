"""Graphs from PyG and NetworkX objects.

Axes: N nodes, E edges as given, in any direction and perhaps repeated.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy, to_scipy
from fedpub.data.graph import NO_SET, TEST, TRAIN, VALIDATION, Edges, Graph, arranged
from fedpub.data.tables.aims import Wanted
from fedpub.data.tables.building import Choices, assembled, clients_by_column, degrees, nodes_of
from fedpub.data.tables.encoding import META_KEY, Encoding, some
from fedpub.data.tables.features import encode_degree
from fedpub.data.tables.fitting import fit_degree
from fedpub.data.tables.links import MAX_KINDS, linked
from fedpub.data.tables.table import Part, Table
from fedpub.errors import FedpubError, unknown

MASKS = {"train_mask": TRAIN, "val_mask": VALIDATION, "test_mask": TEST}
PYG_KEYS = {"x", "y", "edge_index", "num_nodes", "name", "classes", "client", "client_names", "node_ids"}
PYG_KEYS |= {"directed", "kinds", "target"}  # as `Graph.to_pyg` writes them
ALWAYS_POSSIBLE = 1000  # classes or clients, for any number of nodes: a part of a data set may lack most of them


def from_pyg(data: Any, name: str = "graph", directed: bool = False) -> Graph:
    """A graph from a PyG `Data` with x, y and edge_index; features are left unchanged, y < 0 means no label.

    x may be dense or sparse, from torch, NumPy or SciPy; without it, the only feature is the node's degree. Used where
    they are given: `edge_weight`, or an `edge_attr` with one column, as weights; `edge_type` as kinds of edges; and
    `train_mask`, `val_mask` and `test_mask` as the split. A warning names what is not used. An edge that is given in
    both directions is one edge, with the weight of the first, unless edges are `directed`.
    """
    for key in ("y", "edge_index"):
        if data.get(key) is None:
            raise FedpubError(f"the PyG Data has no {key}; fedpub needs y (a class per node) and edge_index")
    y, ends_2E = _tensor("y", data.y), _tensor("edge_index", data.edge_index)
    y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
    if y.dim() != 1 or y.is_floating_point() or y.is_complex():
        raise FedpubError(
            f"the PyG Data has y of shape {list(y.shape)} and type {y.dtype}; give each node one class as an integer"
        )
    if y.shape[0] == 0:
        raise FedpubError("the PyG Data has no nodes; a graph needs at least one")
    if ends_2E.dim() != 2 or len(ends_2E) != 2 or ends_2E.is_floating_point():
        raise FedpubError(
            f"the PyG Data has edge_index of shape {list(ends_2E.shape)} and type {ends_2E.dtype}; "
            "give two rows of node numbers, [2, E]"
        )
    ends_2E = ends_2E.to(torch.int64)
    outside = torch.nonzero(((ends_2E < 0) | (ends_2E >= len(y))).any(0)).flatten()
    if len(outside):
        u, v = ends_2E[:, outside[0]].tolist()
        raise FedpubError(
            f"the PyG Data: edge {int(outside[0])} joins {u} and {v}, but its nodes are 0..{len(y) - 1}; "
            "correct edge_index"
        )
    y = y.to(torch.int64).clamp(min=-1)
    target, directed = _targets(data, len(y)), directed or bool(data.get("directed"))
    if target is None and len(torch.unique(y[y >= 0])) < 2:
        raise FedpubError("the PyG Data has fewer than two classes in y; classification needs at least two")
    count, labelled = int(y.max()) + 1 if target is None else target.shape[1], int((y >= 0).sum())
    if target is None and count > max(ALWAYS_POSSIBLE, labelled):  # most of the classes could not be learnt
        raise FedpubError(
            f"the PyG Data has the label {count - 1} in y, so {count:,} classes for {labelled:,} labelled nodes; "
            "number the classes from 0, as torch.unique(y, return_inverse=True)[1] does; -1 means no label"
        )
    used = {*PYG_KEYS, "edge_type"}
    weight_key, weight = _weights(data, ends_2E)
    kind = _kinds(data, ends_2E)
    kinds = _kind_names(data, kind)
    edges = _both_ways(Edges(ends_2E, weight, kind, directed), len(y))
    split = _split(data, len(y))
    used |= {weight_key} | (set(MASKS) if split is not None else set())
    classes = tuple(str(c) for c in range(count))
    meta = {}
    if data.get("x") is None:
        degree_N = degrees(edges, len(y))
        column = fit_degree(degree_N)
        encoding = Encoding((column,), classes, "class", weight is not None, directed, kinds)
        x, meta[META_KEY] = encode_degree(column, degree_N), encoding.to_json()
    elif sp.issparse(data.x):
        x_NF = sp.csr_matrix(data.x, dtype=np.float32, copy=True)
        x_NF.sum_duplicates()
        x = from_scipy(x_NF)
    else:
        x = _tensor("x", data.x).to(torch.float32)
        x = x if x.layout == torch.strided else from_scipy(to_scipy(x.to_sparse_csr()))
    if unused := [key for key in data.keys() if key not in used]:  # noqa: SIM118
        warnings.warn(f"the PyG Data has {', '.join(sorted(unused))}, which fedpub does not use", stacklevel=2)
    return Graph(
        x,
        y,
        edges.ends,
        classes,
        name,
        meta=meta,
        weight=edges.weight,
        directed=directed,
        kind=edges.kind,
        kinds=kinds,
        split=split,
        target=target,
    ).validate()


def _targets(data: Any, num_nodes: int) -> Tensor | None:
    if data.get("target") is None:
        return None
    target = _tensor("target", data.target)
    if target.dim() != 2 or len(target) != num_nodes or not target.is_floating_point():
        raise FedpubError(
            f"the PyG Data has target of shape {list(target.shape)} and type {target.dtype}; give each of the "
            f"{num_nodes} nodes its numbers, [N, T], or leave it out"
        )
    return target.to(torch.float64)


def _kind_names(data: Any, kind: Tensor | None) -> tuple[str, ...]:
    if kind is None:
        return ()
    count, names = int(kind.max()) + 1 if len(kind) else 0, data.get("kinds")
    named = isinstance(names, list | tuple) and len(names) >= count and all(isinstance(one, str) for one in names)
    return tuple(names) if named else tuple(map(str, range(count)))


def _weights(data: Any, ends_2E: Tensor) -> tuple[str, Tensor | None]:
    """The attribute that holds a weight per edge, and the weights."""
    count = ends_2E.shape[1]
    for key in ("edge_weight", "edge_attr"):
        if data.get(key) is None:
            continue
        weight = _tensor(key, data[key])
        weight = weight.squeeze(1) if weight.dim() == 2 and weight.shape[1] == 1 else weight
        if weight.shape == (count,) and not weight.is_complex():
            weight = weight.to(torch.float64)
            wrong = torch.nonzero(~((weight >= 0) & (weight < torch.inf))).flatten()
            if len(wrong):
                edge = int(wrong[0])
                raise FedpubError(
                    f"the PyG Data: edge {edge} has the {key} {float(weight[edge])}; weights are finite numbers, "
                    "0 or more"
                )
            return key, weight
        if key == "edge_weight":
            raise FedpubError(f"the PyG Data has edge_weight of shape {list(weight.shape)}; give one number per edge")
    return "edge_weight", None


def _kinds(data: Any, ends_2E: Tensor) -> Tensor | None:
    if data.get("edge_type") is None:
        return None
    kind = _tensor("edge_type", data.edge_type)
    if kind.shape != (ends_2E.shape[1],) or kind.is_floating_point() or (len(kind) and int(kind.min()) < 0):
        raise FedpubError(
            f"the PyG Data has edge_type of shape {list(kind.shape)} and type {kind.dtype}; number the kind of every "
            "edge from 0"
        )
    if len(kind) and int(kind.max()) >= MAX_KINDS:
        raise FedpubError(
            f"the PyG Data has the edge_type {int(kind.max())}; every kind is a matrix, so there are at most "
            f"{MAX_KINDS}, numbered from 0"
        )
    return kind.to(torch.int64)


def _both_ways(given: Edges, num_nodes: int) -> Edges:
    """PyG lists an edge without a direction twice: its weight counts once."""
    if given.directed or given.weight is None:
        return linked(given, num_nodes, "the PyG Data", (), None).edges
    edges = linked(given, num_nodes, "the PyG Data", (), "merge").edges
    times = arranged(given._replace(weight=torch.ones_like(given.weight)), num_nodes, "sum")[0].weight
    total = arranged(given, num_nodes, "sum")[0].weight
    assert edges.weight is not None
    assert total is not None
    assert times is not None
    different = torch.nonzero(~torch.isclose(total, edges.weight * times)).flatten()
    if len(different):
        u, v = edges.ends[:, different[0]].tolist()
        raise FedpubError(
            f"the PyG Data has different weights for the edge between {u} and {v}; keep both directions by "
            "data.directed = True, or give both the same weight"
        )
    return edges


def _split(data: Any, num_nodes: int) -> Tensor | None:
    """The set of every node by the masks; None if there are none, or several splits side by side."""
    masks = {code: _tensor(key, data[key]) for key, code in MASKS.items() if data.get(key) is not None}
    if not masks or any(mask.shape != (num_nodes,) or mask.dtype != torch.bool for mask in masks.values()):
        return None
    split = torch.full((num_nodes,), NO_SET, dtype=torch.int8)
    for code, mask in masks.items():
        if bool((split[mask] != NO_SET).any()):
            node = int(torch.nonzero(mask & (split != NO_SET))[0])
            raise FedpubError(f"the PyG Data has masks that overlap at node {node}; give every node one set at most")
        split[mask] = code
    return split


def _tensor(key: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise FedpubError(
            f"the PyG Data has {key} of the type {type(value).__name__}, which is not a tensor ({error}); "
            "give a tensor or a NumPy array"
        ) from error


def from_networkx(
    g: Any,
    label: str = "label",
    features: Sequence[str] | None = None,
    client: str | None = None,
    name: str = "graph",
    weight: str | None = None,
    directed: bool = False,
) -> Graph:
    """A graph from a NetworkX graph whose node attributes hold label, features (None: all others) and client.

    Attributes are encoded like columns of a table; `weight` names the attribute of edges that is their weight, and
    `directed` keeps the directions of a `DiGraph`. Warnings name what is left out of nodes and edges.
    """
    nodes = dict(g.nodes(data=True))
    ids = [str(node) for node in nodes]
    attributes = list(dict.fromkeys(key for values in nodes.values() for key in values))
    source = "the NetworkX graph"
    if not nodes:
        raise FedpubError(f"{source} has no nodes; a graph needs at least one")
    if not attributes:
        raise FedpubError(f"{source} has no node attributes; give its nodes their class as the attribute {label!r}")
    if directed and not g.is_directed():
        raise FedpubError(f"{source} is not directed; give a DiGraph, or leave out `directed`")
    written, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise FedpubError(f"{source} has {count} nodes named {written!r}; give each node its own name")
    for attribute in (label, *(features or ()), *([client] if client else ())):
        if attribute not in attributes:
            raise FedpubError(f"{source}: {unknown('node attribute', attribute, attributes)}")
    used = attributes if features is None else [label, *features, *([client] if client else ())]
    arrays = {attribute: _array(attribute, [values.get(attribute) for values in nodes.values()]) for attribute in used}
    table = Table((Part.of(pa.table(arrays)),), source, lambda row: f"{source}, node {ids[row]!r}")
    fates = {label: "label"} | ({client: "client"} if client else {})
    clients = clients_by_column(table, client) if client else None
    chosen = Choices(Wanted("class", (label,)), fates)
    links = linked(_edges_of(g, nodes, weight, directed), len(nodes), source, (), None)
    imported = assembled(nodes_of(table, ids, chosen, clients), links, chosen, name)
    for attribute, fate in imported.columns.items():
        if fate.startswith("left out"):
            warnings.warn(f"attribute {attribute!r} {fate}", stacklevel=2)
    of_edges = sorted({str(key) for *_, values in g.edges(data=True) for key in values} - {weight})
    if of_edges:
        warnings.warn(f"{source} has edges with {some(of_edges)}, which fedpub does not use", stacklevel=2)
    return imported.graph


def _edges_of(g: Any, nodes: Mapping[Any, Any], weight: str | None, directed: bool) -> Edges:
    position = {node: i for i, node in enumerate(nodes)}
    ends_2E = torch.tensor([(position[u], position[v]) for u, v in g.edges()], dtype=torch.int64).reshape(-1, 2).T
    if weight is None:
        return Edges(ends_2E, directed=directed)
    weights = []
    for u, v, values in g.edges(data=True):
        given = values.get(weight)
        if (
            isinstance(given, bool | str)
            or not isinstance(given, SupportsFloat)
            or not 0 <= float(given) < float("inf")
        ):
            raise FedpubError(
                f"the NetworkX graph: the edge of {u!r} and {v!r} has the {weight} {given!r}; weights are finite "
                "numbers, 0 or more"
            )
        weights.append(float(given))
    return Edges(ends_2E, torch.tensor(weights, dtype=torch.float64), directed=directed)


def _array(attribute: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise FedpubError(
            f"the NetworkX graph: node attribute {attribute!r} mixes types or holds objects ({error}); "
            "make it all numbers, all text or all truth values"
        ) from error
