"""Graphs from CSV and Parquet tables of nodes and edges.

Axes: N nodes, E edges as given, in any direction and perhaps repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.data.tables.building import Choices, Imported, NaturalClients, build, check_joins, clients_by_column
from fedpub.data.tables.encoding import Encoding, some
from fedpub.data.tables.files import Dialect, Table, first_row, read_edges, read_tables
from fedpub.errors import FedpubError


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
    """A graph from node files and edge files; with several node files, each is a client.

    Every column except id, label, client and the dropped ones becomes features; `categorical` columns are one-hot even
    if they hold numbers; `like` reuses the encoding of another graph. Delimiter and encoding of CSV files are detected
    unless they are given.
    """
    if not nodes or not edges:
        raise FedpubError("a graph needs at least one node file and one edge file; give both `nodes` and `edges`")
    if len(nodes) > 1 and client_column is not None:
        raise FedpubError(
            f"clients are given twice, by {len(nodes)} node files and by the column {client_column!r}; "
            "give one node file, or leave out `client`"
        )
    fates = dict.fromkeys(drop, "left out on request")
    if label_column == id_column:
        raise FedpubError(
            f"column {id_column!r} cannot be both `id` and `label`; give the column to predict with `label`"
        )
    fates |= {id_column: "node id", label_column: "label"}
    verbatim = [id_column]
    if client_column is not None:
        fates[client_column] = "client"
        verbatim.append(client_column)
    if like is not None and categorical:
        raise FedpubError("`categorical` has no effect with `like`, which defines every column; leave one out")
    for column in categorical:
        if column in fates:
            raise FedpubError(
                f"column {column!r} cannot be `categorical`: it is {fates[column]}; remove it from that list"
            )
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
    clients = _clients_by_file(nodes, table) if client_column is None else clients_by_column(table, client_column)
    chosen = Choices(label_column, fates, categorical, many_classes, like)
    made = build(table, ids.to_pylist(), ends_2E, chosen, clients, name)
    if edge_table.unused:
        unused = f"unused edge columns: {some(edge_table.unused)}"
        made = replace(made, notes=(*made.notes, unused))
    if not unlabelled:
        return made
    columns = some(list(table.columns))
    missing = f"there is no column {label_column!r}, so no node has a label; the columns are {columns}"
    return replace(made, notes=(*made.notes, missing))


def check_outputs(out: Path, encoding_out: Path | None, inputs: Collection[Path], force: bool) -> None:
    """Refuse, before any work is done, to overwrite something."""
    if encoding_out is not None and encoding_out.suffix != ".json":
        raise FedpubError(f"{encoding_out} does not end in .json; give `encoding_out` a name that does")
    for path in [out] if encoding_out is None else [out, encoding_out]:
        if path.is_dir() or path.resolve() in {read.resolve() for read in inputs}:
            what = "a folder" if path.is_dir() else "one of the tables to read"
            raise FedpubError(f"{path} is {what}; choose another name")
        if path.exists() and not force:
            raise FedpubError(f"{path} already exists; choose another name, or replace it with `force`")


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
    """The two nodes of every edge row, as positions among the ids."""
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
    return check_joins(torch.stack(ends), edges.source)


def _clients_by_file(nodes: Sequence[Path], table: Table) -> NaturalClients | None:
    if len(nodes) == 1:
        return None
    names = sorted(path.stem for path in nodes)
    for path in nodes:
        if names.count(path.stem) > 1:
            raise FedpubError(
                f"{path}: another node file is also called {path.stem!r}, and clients take their names from the files; "
                "rename one"
            )
    client = torch.tensor([names.index(path.stem) for path in nodes])
    return client.repeat_interleave(torch.tensor([part.num_rows for part in table.parts])), tuple(names)
