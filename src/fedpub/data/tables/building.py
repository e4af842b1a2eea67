"""A checked graph from columns and edges, and an account of what every column became.

Axes: N nodes, E edges as given, in any direction and perhaps repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.data.graph import NO_LABEL, Graph, undirected
from fedpub.data.tables.encoding import (
    META_KEY,
    Column,
    Encoding,
    encode,
    encode_labels,
    fit_classes,
    fit_column,
    fit_degree,
    some,
)
from fedpub.data.tables.files import Table, first_row
from fedpub.errors import FedpubError

FEW_CLASSES, NODES_PER_CLASS = 20, 5  # above the first number, every class needs so many labelled nodes
NaturalClients = tuple[Tensor, tuple[str, ...]]  # the client of every node, and the clients' names


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph, and what every column of its table became."""

    graph: Graph
    encoding: Encoding
    columns: Mapping[str, str]  # for every column of the node table, what it became or why it is left out
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Choices:
    """The user's choices about the columns of a table."""

    label: str
    fates: Mapping[str, str]  # what the columns are that do not become features
    categorical: Collection[str] = ()
    many_classes: bool = False
    like: Encoding | None = None


def build(
    table: Table, ids: Sequence[str], ends_2E: Tensor, chosen: Choices, clients: NaturalClients | None, name: str
) -> Imported:
    label_column, fates, like = chosen.label, chosen.fates, chosen.like
    edges = undirected(ends_2E, len(table))
    degree_N = degrees(edges, len(table))
    classes = _classes(table, chosen) if like is None else like.classes
    known = label_column in table.columns
    y = encode_labels(table, label_column, classes) if known else torch.full((len(table),), NO_LABEL)
    free = [column for column in table.columns if column not in fates]
    if like is None:
        fitted = {column: fit_column(table, column, column in chosen.categorical) for column in free}
        kept = tuple(column for column in fitted.values() if isinstance(column, Column)) or (fit_degree(degree_N),)
    else:
        kept = _columns_of(like, table, fates)
        fitted = dict.fromkeys(free, "left out: not in the given encoding")
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
        notes.append(f"edges dropped: {loops:,} self-loops, {repeated:,} repeated (in either direction)")
    if encoding.columns[0].kind == "degree":
        notes.append("no column is a feature, so log(1 + degree) is used: " + str(encoding.columns[0]))
    if graph.client is not None:
        sizes = torch.bincount(graph.client, minlength=len(graph.client_names)).tolist()
        sized = [f"{client} ({size:,} nodes)" for client, size in zip(graph.client_names, sizes, strict=True)]
        notes.append(f"{len(sized)} clients: {some(sized)}")
    return tuple(notes)


def check_joins(ends_2E: Tensor, source: str) -> Tensor:
    if bool((ends_2E[0] == ends_2E[1]).all()):
        raise FedpubError(f"{source}: no edge joins two different nodes; a graph needs at least one edge")
    return ends_2E


def degrees(edges: Tensor, num_nodes: int) -> Tensor:
    return torch.bincount(edges.flatten(), minlength=num_nodes)


def _classes(table: Table, chosen: Choices) -> tuple[str, ...]:
    label_column = chosen.label
    labels = table.text(label_column).drop_null()
    found = fit_classes(pc.unique(labels).to_pylist())
    if not found:
        raise FedpubError(f"{table.source}: column {label_column!r} is empty in every row; label at least one node")
    if len(found) < 2:
        raise FedpubError(
            f"{table.source}: every label in column {label_column!r} is {found[0]!r}; "
            "classification needs at least two classes, so choose another `label` column or add nodes"
        )
    if len(found) > FEW_CLASSES and not chosen.many_classes:
        fractions = _are_fractions(found)
        if fractions or len(labels) < NODES_PER_CLASS * len(found):
            kind = "numbers" if fractions else "values"
            raise FedpubError(
                f"{table.source}: column {label_column!r} has {len(found):,} different {kind} in {len(labels):,} rows, "
                "too many to be classes; group them, choose another `label` column, or confirm with `many_classes=True`"
            )
    return found


def _are_fractions(labels: Sequence[str]) -> bool:
    """Whether all are numbers and some are not integers: a quantity rather than a class."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _columns_of(like: Encoding, table: Table, taken: Collection[str]) -> tuple[Column, ...]:
    for column in like.columns:
        if column.kind == "degree":
            continue
        table.require("column (needed by the given encoding)", column.name)
        if column.name in taken:
            raise FedpubError(
                f"{table.source}: the encoding of `like` needs the column {column.name!r} as a feature; "
                "do not drop it or use it for anything else"
            )
    return like.columns


def clients_by_column(table: Table, client_column: str) -> NaturalClients:
    clients = table.text(client_column)
    row = first_row(clients, None)
    if row >= 0:
        raise FedpubError(f"{table.place(row)}: column {client_column!r} is empty; give every node a client")
    names = sorted(pc.unique(clients).to_pylist())
    codes = pc.index_in(clients, value_set=pa.array(names, clients.type))
    return torch.from_numpy(codes.to_numpy().astype(np.int64)), tuple(names)
