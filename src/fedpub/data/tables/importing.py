"""Your own graph: from CSV and Parquet tables, a PyG `Data` or a NetworkX graph, checked.

Axes: N nodes, E edges as given, in any direction and perhaps repeated.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy, to_scipy
from fedpub.data.graph import NO_LABEL, Graph, undirected
from fedpub.data.tables.encoding import (
    META_KEY,
    Column,
    Encoding,
    encode,
    encode_degree,
    encode_labels,
    fit_classes,
    fit_column,
    fit_degree,
    some,
)
from fedpub.data.tables.files import Dialect, Table, first_row, plain, read_edges, read_tables
from fedpub.errors import FedpubError, unknown

FEW_CLASSES, NODES_PER_CLASS = 20, 5  # more classes than the first need so many labelled nodes each
NaturalClients = tuple[Tensor, tuple[str, ...]]  # the client of every node, and the clients' names


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph and what became of the table it was made from."""

    graph: Graph
    encoding: Encoding
    columns: Mapping[str, str]  # every column of the node table: what it is now, or why it is left out
    notes: tuple[str, ...]


def from_tables(
    nodes: Sequence[Path],
    edges: Sequence[Path],
    *,
    id_column: str,
    label_column: str,
    source_column: str | None = None,
    target_column: str | None = None,
    client_column: str | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    many_classes: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    like: Encoding | None = None,
    name: str = "graph",
) -> Imported:
    """A graph from files of nodes and of edges; with several node files, each is a client.

    Every column but id, label, client and the dropped ones becomes features; numbers in `categorical` columns count as
    names; `like` encodes as another graph was. Delimiter and encoding of CSV files are found unless they are given.
    """
    if not nodes or not edges:
        raise FedpubError("no node file or no edge file is given; give at least one of each, --nodes and --edges")
    if len(nodes) > 1 and client_column is not None:
        raise FedpubError(
            f"clients are given twice, by {len(nodes)} node files and by the column {client_column!r}; "
            "give one node file, or no --client"
        )
    fates = dict.fromkeys(drop, "left out: dropped as asked")
    if label_column == id_column:
        raise FedpubError(
            f"column {id_column!r} cannot be both --id and --label; name the column to learn with --label"
        )
    fates |= {id_column: "node id", label_column: "label"}
    verbatim = [id_column]
    if client_column is not None:
        fates[client_column] = "client"
        verbatim.append(client_column)
    if like is not None and categorical:
        raise FedpubError("`categorical` has no effect with `like`, which says what every column is; leave one out")
    for column in categorical:
        if column in fates:
            raise FedpubError(f"column {column!r} cannot be `categorical`: it is {fates[column]}; leave it out there")
    categories = [column.name for column in like.columns if column.kind == "category"] if like else categorical
    dialect = Dialect(delimiter, encoding)
    table = read_tables(nodes, verbatim, [label_column, *categories], dialect)
    for column in categorical:
        table.require("categorical column", column)
    unlabelled = like is not None and label_column not in table.columns  # nodes to predict
    if unlabelled and fates[label_column] == "label":
        del fates[label_column]
    for column, fate in fates.items():
        table.require("column to drop" if column in drop else f"{fate.removeprefix('node ')} column", column)
    for path, part in zip(nodes, table.parts, strict=True):
        if part.num_rows == 0:
            raise FedpubError(f"{path} has no rows; a graph needs at least one node")
    ids = _unique_ids(table, id_column)
    edge_table = read_edges(edges, source_column, target_column, dialect)
    ends_2E = _endpoints(edge_table, ids, table.source)
    clients = _clients_by_file(nodes, table) if client_column is None else _clients_by_column(table, client_column)
    chosen = _Choices(label_column, fates, categorical, many_classes, like)
    made = _build(table, ids.to_pylist(), ends_2E, chosen, clients, name)
    if edge_table.unused:
        unused = f"columns of the edges that are not used: {some(edge_table.unused)}"
        made = replace(made, notes=(*made.notes, unused))
    if not unlabelled:
        return made
    columns = some(list(table.columns))
    missing = f"there is no column {label_column!r}, so no node has a label; the columns are {columns}"
    return replace(made, notes=(*made.notes, missing))


def from_networkx(
    g: Any,
    label: str = "label",
    features: Sequence[str] | None = None,
    client: str | None = None,
    name: str = "graph",
) -> Graph:
    """A graph from a NetworkX graph whose node attributes hold the label, the features (None: all others), the client.

    Attributes are encoded as columns of a table are; a warning names each that had to be left out, and those of edges,
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
        raise FedpubError(f"{source} has {count} nodes that are written {written!r}; give each a name of its own")
    for attribute in (label, *(features or ()), *([client] if client else ())):
        if attribute not in attributes:
            raise FedpubError(f"{source}: {unknown('node attribute', attribute, attributes)}")
    used = attributes if features is None else [label, *features, *([client] if client else ())]
    arrays = {attribute: _array(attribute, [values.get(attribute) for values in nodes.values()]) for attribute in used}
    table = Table((plain(pa.table(arrays)),), source, lambda row: f"{source}, node {ids[row]!r}")
    position = {node: i for i, node in enumerate(nodes)}
    ends_2E = torch.tensor([(position[u], position[v]) for u, v in g.edges()], dtype=torch.int64).reshape(-1, 2).T
    _check_joins(ends_2E, source)
    fates = {label: "label"} | ({client: "client"} if client else {})
    clients = _clients_by_column(table, client) if client else None
    imported = _build(table, ids, ends_2E, _Choices(label, fates), clients, name)
    for attribute, fate in imported.columns.items():
        if fate.startswith("left out"):
            warnings.warn(f"attribute {attribute!r} {fate}", stacklevel=2)
    of_edges = sorted({str(key) for *_, values in g.edges(data=True) for key in values})
    if of_edges:
        warnings.warn(f"{source} has edges with {some(of_edges)}, which fedpub does not use", stacklevel=2)
    return imported.graph


def from_pyg(data: Any, name: str = "graph") -> Graph:
    """A graph from a PyG `Data` with x, y and edge_index; features stay as they are, y < 0 means no label.

    x may be dense or sparse, of torch, NumPy or SciPy; without it, the one feature is the node's degree. A warning
    names what is not used: weights and attributes of edges; masks, since fedpub splits each client's nodes itself.
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
    if count > max(ALWAYS_POSSIBLE, labelled):  # no class for most of them can ever be learnt
        raise FedpubError(
            f"the PyG Data has the label {count - 1} in y, so {count:,} classes for {labelled:,} labelled nodes; "
            "number the classes from 0, as torch.unique(y, return_inverse=True)[1] does; -1 means no label"
        )
    edges = undirected(_check_joins(ends_2E, "the PyG Data"), len(y))
    classes = tuple(str(c) for c in range(count))
    meta = {}
    if data.get("x") is None:
        degree_N = _degrees(edges, len(y))
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


PYG_KEYS = {"x", "y", "edge_index", "num_nodes", "name", "classes", "client", "client_names", "node_ids"}
ALWAYS_POSSIBLE = 1000  # classes or clients, however few nodes are at hand: a part of a data set may miss most of them


def _tensor(key: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise FedpubError(
            f"the PyG Data has {key} of the type {type(value).__name__}, which is no tensor ({error}); "
            "give a tensor or a NumPy array"
        ) from error


def check_outputs(out: Path, encoding_out: Path | None, inputs: Collection[Path], force: bool) -> None:
    """Refuse, before any work is done, to write where something would be lost."""
    if encoding_out is not None and encoding_out.suffix != ".json":
        raise FedpubError(f"{encoding_out} is to hold JSON; give --encoding-out a name that ends in .json")
    for path in [out] if encoding_out is None else [out, encoding_out]:
        if path.is_dir() or path.resolve() in {read.resolve() for read in inputs}:
            raise FedpubError(f"{path} is {'a folder' if path.is_dir() else 'a table to read'}; write to another name")
        if path.exists() and not force:
            raise FedpubError(f"{path} exists already; write to another name, or replace it with --force")


@dataclass(frozen=True)
class _Choices:
    """What was said about the columns of a table."""

    label: str
    fates: Mapping[str, str]  # of the columns that become no features
    categorical: Collection[str] = ()
    many_classes: bool = False
    like: Encoding | None = None


def _build(
    table: Table, ids: Sequence[str], ends_2E: Tensor, chosen: _Choices, clients: NaturalClients | None, name: str
) -> Imported:
    label_column, fates, like = chosen.label, chosen.fates, chosen.like
    edges = undirected(ends_2E, len(table))
    degree_N = _degrees(edges, len(table))
    classes = _classes(table, chosen) if like is None else like.classes
    known = label_column in table.columns
    y = encode_labels(table, label_column, classes) if known else torch.full((len(table),), NO_LABEL)
    free = [column for column in table.columns if column not in fates]
    if like is None:
        fitted = {column: fit_column(table, column, column in chosen.categorical) for column in free}
        kept = tuple(column for column in fitted.values() if isinstance(column, Column)) or (fit_degree(degree_N),)
    else:
        kept = _columns_of(like, table, fates)
        fitted = dict.fromkeys(free, "left out: not in the encoding given with --like")
        fitted |= {column.name: column for column in kept if column.kind != "degree"}
    encoding = Encoding(kept, classes)
    client, client_names = clients or (None, ())
    graph = Graph(
        x=encode(kept, table, degree_N),
        y=y,
        edges=edges,
        classes=classes,
        name=name,
        client=client,
        client_names=client_names,
        node_ids=tuple(ids),
        meta={META_KEY: encoding.to_json()},
    ).validate(labelled=like is None)
    columns = {column: fates.get(column) or str(fitted[column]) for column in table.columns}
    return Imported(graph, encoding, columns, _notes(graph, encoding, ends_2E))


def _notes(graph: Graph, encoding: Encoding, ends_2E: Tensor) -> tuple[str, ...]:
    loops = int((ends_2E[0] == ends_2E[1]).sum())
    repeated = ends_2E.shape[1] - loops - graph.edges.shape[1]
    notes = [f"{graph.num_classes} classes: {some(graph.classes)}"]
    if unlabelled := int((graph.y < 0).sum()):
        notes.append(f"{unlabelled:,} of {graph.num_nodes:,} nodes have no label")
    if loops or repeated:
        notes.append(f"edges dropped: {loops:,} from a node to itself, {repeated:,} given before (in either direction)")
    if encoding.columns[0].kind == "degree":
        notes.append("no column is a feature, so log(1 + degree) is: " + str(encoding.columns[0]))
    if graph.client is not None:
        sizes = torch.bincount(graph.client, minlength=len(graph.client_names)).tolist()
        sized = [f"{client} ({size:,} nodes)" for client, size in zip(graph.client_names, sizes, strict=True)]
        notes.append(f"{len(sized)} clients: {some(sized)}")
    return tuple(notes)


def _unique_ids(table: Table, id_column: str) -> pa.Array:
    ids = table.text(id_column)
    row = first_row(ids, None)
    if row >= 0:
        raise FedpubError(f"{table.place(row)}: column {id_column!r} is empty; give every node an id")
    codes = ids.dictionary_encode().indices.to_numpy()  # counted in the order of first occurrence
    again = np.flatnonzero(codes[1:] <= np.maximum.accumulate(codes)[:-1])
    if len(again):
        row = int(again[0]) + 1
        first = first_row(ids, ids[row])
        raise FedpubError(
            f"{table.place(row)}: node id {ids[row].as_py()!r} is also that of {table.place(first)}; "
            "give every node its own id"
        )
    return ids


def _endpoints(edges: Table, ids: pa.Array, nodes: str) -> Tensor:
    """The two nodes of every edge row, by their position among the ids."""
    ends = []
    for end in ("source", "target"):
        texts = edges.text(end)
        position = pc.index_in(texts, value_set=ids)
        row = first_row(position, None)
        if row >= 0:
            value = texts[row].as_py()
            problem = f"{end} is empty" if value is None else f"{end} {value!r} is not the id of a node in {nodes}"
            raise FedpubError(f"{edges.place(row)}: {problem}; correct it, add the node or remove the edge")
        ends.append(torch.from_numpy(position.to_numpy().astype(np.int64)))
    return _check_joins(torch.stack(ends), edges.source)


def _check_joins(ends_2E: Tensor, source: str) -> Tensor:
    if bool((ends_2E[0] == ends_2E[1]).all()):
        raise FedpubError(f"{source}: no edge joins two different nodes; a graph needs at least one edge")
    return ends_2E


def _degrees(edges: Tensor, num_nodes: int) -> Tensor:
    return torch.bincount(edges.flatten(), minlength=num_nodes)


def _classes(table: Table, chosen: _Choices) -> tuple[str, ...]:
    label_column = chosen.label
    labels = table.text(label_column).drop_null()
    found = fit_classes(pc.unique(labels).to_pylist())
    if not found:
        raise FedpubError(f"{table.source}: column {label_column!r} is empty in every row; label at least one node")
    if len(found) < 2:
        raise FedpubError(
            f"{table.source}: every label in column {label_column!r} is {found[0]!r}; "
            "classification needs at least two classes, so choose another --label column or add nodes"
        )
    if len(found) > FEW_CLASSES and not chosen.many_classes:
        fractions = _are_fractions(found)
        if fractions or len(labels) < NODES_PER_CLASS * len(found):
            kind = "numbers" if fractions else "values"
            raise FedpubError(
                f"{table.source}: column {label_column!r} has {len(found):,} different {kind} in {len(labels):,} rows, "
                "too many to be classes; group them into a few, choose another --label column, or insist with "
                "`many_classes=True`"
            )
    return found


def _are_fractions(labels: Sequence[str]) -> bool:
    """Whether all are numbers, and some no integers: a quantity rather than a class."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _columns_of(like: Encoding, table: Table, taken: Collection[str]) -> tuple[Column, ...]:
    for column in like.columns:
        if column.kind == "degree":
            continue
        table.require("column (the encoding given with --like needs it)", column.name)
        if column.name in taken:
            raise FedpubError(
                f"{table.source}: the encoding given with --like needs the column {column.name!r} as a feature; "
                "do not drop it or use it otherwise"
            )
    return like.columns


def _clients_by_column(table: Table, client_column: str) -> NaturalClients:
    clients = table.text(client_column)
    row = first_row(clients, None)
    if row >= 0:
        raise FedpubError(f"{table.place(row)}: column {client_column!r} is empty; give every node a client")
    names = sorted(pc.unique(clients).to_pylist())
    codes = pc.index_in(clients, value_set=pa.array(names, clients.type))
    return torch.from_numpy(codes.to_numpy().astype(np.int64)), tuple(names)


def _clients_by_file(nodes: Sequence[Path], table: Table) -> NaturalClients | None:
    if len(nodes) == 1:
        return None
    names = sorted(path.stem for path in nodes)
    for path in nodes:
        if names.count(path.stem) > 1:
            raise FedpubError(f"{path}: another node file is called {path.stem!r} too, and clients are; rename one")
    client = torch.tensor([names.index(path.stem) for path in nodes])
    return client.repeat_interleave(torch.tensor([part.num_rows for part in table.parts])), tuple(names)


def _array(attribute: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise FedpubError(
            f"the NetworkX graph: node attribute {attribute!r} mixes types or holds objects ({error}); "
            "make it all numbers, all text or all truth values"
        ) from error
