"""A checked graph from its nodes and edges, and an account of what every column became.

Axes: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.core.steps import Step, silent
from fedpub.data.graph import Edges, Graph, undirected
from fedpub.data.tables.aims import Learnt, Wanted, learnt
from fedpub.data.tables.cells import first_row
from fedpub.data.tables.encoding import MATRIX, META_KEY, Column, Encoding, some
from fedpub.data.tables.features import encode, encode_degree, fit_matrix
from fedpub.data.tables.fitting import NO_RULES, fit_column, fit_degree
from fedpub.data.tables.links import Links
from fedpub.data.tables.rules import Rules
from fedpub.data.tables.splits import OwnSplit, told
from fedpub.data.tables.table import Table
from fedpub.errors import FedpubError

NO_SPLIT = OwnSplit()
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
    """The user's choices about the columns of a node table."""

    want: Wanted
    fates: Mapping[str, str]  # what the columns are that do not become features
    rules: Rules = NO_RULES
    split: OwnSplit = NO_SPLIT
    like: Encoding | None = None


@dataclass(frozen=True, eq=False)
class Nodes:
    """All that the node table says."""

    ids: tuple[str, ...]
    learnt: Learnt
    columns: tuple[Column, ...]
    x_NF: Tensor | None  # None: the degree is the only feature, which edges decide
    split: Tensor | None
    clients: NaturalClients | None
    fates: Mapping[str, str]


def nodes_of(
    table: Table,
    ids: Sequence[str],
    chosen: Choices,
    clients: NaturalClients | None,
    matrix_NF: Any | None = None,
    step: Step = silent,
) -> Nodes:
    """The nodes of a table, encoded column by column."""
    like, fates = chosen.like, chosen.fates
    found, split = learnt(table, chosen.want, like), chosen.split.of(table)
    free = [column for column in table.columns if column not in fates]
    if like is None:
        fitted: dict[str, Column | str] = {}
        for done, column in enumerate(free):
            step("columns", done, len(free))
            fitted[column] = fit_column(table, column, chosen.rules)
        if matrix_NF is not None:
            fitted[MATRIX] = fit_matrix(matrix_NF)
        kept = tuple(column for column in fitted.values() if isinstance(column, Column))
    else:
        kept = _columns_of(like, table, fates, matrix_NF)
        fitted = dict.fromkeys(free, "left out: not in the given encoding")
        fitted |= {column.name: column for column in kept}
    x_NF = encode(kept, table, matrix_NF, step) if kept else None
    said = {column: fates.get(column) or str(fitted[column]) for column in table.columns}
    if matrix_NF is not None:
        said[MATRIX] = str(fitted[MATRIX])
    return Nodes(tuple(ids), found, kept, x_NF, split, clients, said)


def assembled(nodes: Nodes, links: Links, chosen: Choices, name: str) -> Imported:
    """The graph of nodes and edges."""
    like, n, edges = chosen.like, len(nodes.ids), links.edges
    x, columns = nodes.x_NF, nodes.columns
    if x is None:
        degree_N = degrees(edges, n)
        columns = (fit_degree(degree_N),) if like is None else like.columns
        x = encode_degree(columns[0], degree_N)
    weighted, classes = edges.weight is not None, nodes.learnt.classes
    encoding = Encoding(columns, classes, chosen.want.aim, weighted, edges.directed, links.kinds)
    client, client_names = nodes.clients or (None, ())
    graph = Graph(
        x=x,
        y=nodes.learnt.y,
        edges=edges.ends,
        classes=classes,
        name=name,
        client=client,
        client_names=client_names,
        node_ids=nodes.ids,
        meta={META_KEY: encoding.to_json()},
        weight=edges.weight,
        directed=edges.directed,
        kind=edges.kind,
        kinds=links.kinds,
        split=nodes.split,
        target=nodes.learnt.target,
    ).validate(labelled=like is None)
    return Imported(graph, encoding, nodes.fates, (*_notes(graph, encoding), *links.notes))


def degrees(edges: Edges, num_nodes: int) -> Tensor:
    """How many other nodes each node is joined to."""
    plain = not edges.directed and edges.kind is None
    pairs = edges.ends if plain else undirected(edges.ends, num_nodes)
    return torch.bincount(pairs.flatten(), minlength=num_nodes)


def clients_by_column(table: Table, client_column: str) -> NaturalClients:
    clients = table.text(client_column)
    row = first_row(clients, None)
    if row >= 0:
        raise FedpubError(f"{table.place(row)}: column {client_column!r} is empty; give every node a client")
    names = sorted(pc.unique(clients).to_pylist())
    codes = pc.index_in(clients, value_set=pa.array(names, clients.type))
    return torch.from_numpy(codes.to_numpy().astype(np.int64)), tuple(names)


def _notes(graph: Graph, encoding: Encoding) -> list[str]:
    what = {"class": "classes", "labels": "labels", "number": "number to learn"}[encoding.aim]
    notes = [f"{graph.num_classes} {what}: {some(graph.classes)}"]
    unknown = (graph.y < 0) if graph.target is None else graph.target.isnan().all(1)
    if count := int(unknown.sum()):
        lacking = {"class": "no label", "labels": "no label", "number": "no number"}[encoding.aim]
        notes.append(f"{count:,} of {graph.num_nodes:,} nodes have {lacking}")
    if graph.split is not None:
        notes.append(told(graph.split))
    if graph.kind is not None:
        sizes = torch.bincount(graph.kind, minlength=len(graph.kinds)).tolist()
        sized = [f"{kind} ({size:,} edges)" for kind, size in zip(graph.kinds, sizes, strict=True)]
        notes.append(f"{len(sized)} kinds of edges: {some(sized)}")
    if encoding.columns[0].kind == "degree":
        notes.append("no column is a feature, so log(1 + degree) is used: " + str(encoding.columns[0]))
    if graph.client is not None:
        sizes = torch.bincount(graph.client, minlength=len(graph.client_names)).tolist()
        sized = [f"{client} ({size:,} nodes)" for client, size in zip(graph.client_names, sizes, strict=True)]
        notes.append(f"{len(sized)} clients: {some(sized)}")
    return notes


def _columns_of(like: Encoding, table: Table, taken: Collection[str], matrix_NF: Any | None) -> tuple[Column, ...]:
    """The columns of an encoding, without the degree; an error for the first one that is not to be had here."""
    needed = next((column for column in like.columns if column.kind == "matrix"), None)
    if needed is None and matrix_NF is not None:
        raise FedpubError("the encoding of `like` has no features from a file; leave out `features`")
    if needed is not None and matrix_NF is None:
        raise FedpubError(
            f"the encoding of `like` has {needed.size:,} features from a file; give yours with `features`"
        )
    if needed is not None and matrix_NF is not None and matrix_NF.shape[1] != needed.size:
        raise FedpubError(
            f"the file of `features` has {matrix_NF.shape[1]:,} columns, but the encoding of `like` has "
            f"{needed.size:,}; give the same features in the same order"
        )
    for column in like.columns:
        if column.kind in ("degree", "matrix"):
            continue
        table.require("column (needed by the given encoding)", column.name)
        if column.name in taken:
            raise FedpubError(
                f"{table.source}: the encoding of `like` needs the column {column.name!r} as a feature; "
                "do not drop it or use it for anything else"
            )
    return tuple(column for column in like.columns if column.kind != "degree")
