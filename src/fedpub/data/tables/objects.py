"""Graphs from PyG and NetworkX objects.

Axes: N nodes, E edges as given, in any direction and perhaps repeated.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy, to_scipy
from fedpub.data.graph import Graph, undirected
from fedpub.data.tables.building import Choices, build, check_joins, clients_by_column, degrees
from fedpub.data.tables.encoding import META_KEY, Encoding, encode_degree, fit_degree, some
from fedpub.data.tables.files import Table, plain
from fedpub.errors import FedpubError, unknown

PYG_KEYS = {"x", "y", "edge_index", "num_nodes", "name", "classes", "client", "client_names", "node_ids"}
ALWAYS_POSSIBLE = 1000  # classes or clients, for any number of nodes: a part of a data set may lack most of them


def from_pyg(data: Any, name: str = "graph") -> Graph:
    """A graph from a PyG `Data` with x, y and edge_index; features are left unchanged, y < 0 means no label.

    x may be dense or sparse, from torch, NumPy or SciPy; without it, the only feature is the node's degree. A warning
    names what is not used: weights and attributes of edges, and masks, since fedpub splits the nodes itself.
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
    if len(torch.unique(y[y >= 0])) < 2:
        raise FedpubError("the PyG Data has fewer than two classes in y; classification needs at least two")
    count, labelled = int(y.max()) + 1, int((y >= 0).sum())
    if count > max(ALWAYS_POSSIBLE, labelled):  # most of the classes could not be learnt
        raise FedpubError(
            f"the PyG Data has the label {count - 1} in y, so {count:,} classes for {labelled:,} labelled nodes; "
            "number the classes from 0, as torch.unique(y, return_inverse=True)[1] does; -1 means no label"
        )
    edges = undirected(check_joins(ends_2E, "the PyG Data"), len(y))
    classes = tuple(str(c) for c in range(count))
    meta = {}
    if data.get("x") is None:
        degree_N = degrees(edges, len(y))
        column = fit_degree(degree_N)
        x, meta[META_KEY] = encode_degree(column, degree_N), Encoding((column,), classes).to_json()
    elif sp.issparse(data.x):
        x_NF = sp.csr_matrix(data.x, dtype=np.float32, copy=True)
        x_NF.sum_duplicates()
        x = from_scipy(x_NF)
    else:
        x = _tensor("x", data.x).to(torch.float32)
        x = x if x.layout == torch.strided else from_scipy(to_scipy(x.to_sparse_csr()))
    if unused := [key for key in data.keys() if key not in PYG_KEYS]:  # noqa: SIM118
        warnings.warn(f"the PyG Data has {', '.join(sorted(unused))}, which fedpub does not use", stacklevel=2)
    return Graph(x, y, edges, classes, name, meta=meta).validate()


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
) -> Graph:
    """A graph from a NetworkX graph whose node attributes hold label, features (None: all others) and client.

    Attributes are encoded like columns of a table. Warnings name those that are left out, and the attributes of edges,
    which are not used.
    """
    nodes = dict(g.nodes(data=True))
    ids = [str(node) for node in nodes]
    attributes = list(dict.fromkeys(key for values in nodes.values() for key in values))
    source = "the NetworkX graph"
    if not nodes:
        raise FedpubError(f"{source} has no nodes; a graph needs at least one")
    if not attributes:
        raise FedpubError(f"{source} has no node attributes; give its nodes their class as the attribute {label!r}")
    written, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise FedpubError(f"{source} has {count} nodes named {written!r}; give each node its own name")
    for attribute in (label, *(features or ()), *([client] if client else ())):
        if attribute not in attributes:
            raise FedpubError(f"{source}: {unknown('node attribute', attribute, attributes)}")
    used = attributes if features is None else [label, *features, *([client] if client else ())]
    arrays = {attribute: _array(attribute, [values.get(attribute) for values in nodes.values()]) for attribute in used}
    table = Table((plain(pa.table(arrays)),), source, lambda row: f"{source}, node {ids[row]!r}")
    position = {node: i for i, node in enumerate(nodes)}
    ends_2E = torch.tensor([(position[u], position[v]) for u, v in g.edges()], dtype=torch.int64).reshape(-1, 2).T
    check_joins(ends_2E, source)
    fates = {label: "label"} | ({client: "client"} if client else {})
    clients = clients_by_column(table, client) if client else None
    imported = build(table, ids, ends_2E, Choices(label, fates), clients, name)
    for attribute, fate in imported.columns.items():
        if fate.startswith("left out"):
            warnings.warn(f"attribute {attribute!r} {fate}", stacklevel=2)
    of_edges = sorted({str(key) for *_, values in g.edges(data=True) for key in values})
    if of_edges:
        warnings.warn(f"{source} has edges with {some(of_edges)}, which fedpub does not use", stacklevel=2)
    return imported.graph


def _array(attribute: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise FedpubError(
            f"the NetworkX graph: node attribute {attribute!r} mixes types or holds objects ({error}); "
            "make it all numbers, all text or all truth values"
        ) from error
