"""Your own graph: from CSV and Parquet tables, a PyG `Data` or a NetworkX graph, checked.

Axes: N nodes.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.data.encoding import (
    META_KEY,
    Column,
    Encoding,
    encode,
    encode_labels,
    fit_classes,
    fit_column,
    fit_degree,
)
from fedpub.data.graph import NO_LABEL, Graph, from_scipy, to_scipy, undirected
from fedpub.data.table_files import Table, first_row, read_edges, read_tables
from fedpub.errors import FedpubError


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph and what became of the tables it was made from."""

    graph: Graph
    encoding: Encoding
    columns: dict[str, str]  # every column of the node table and what it is now, or why it is left out
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
    like: Encoding | None = None,
    name: str = "graph",
) -> Imported:
    """A graph from files of nodes and files of edges; several node files are one client each.

    Every column but id, label, client and the dropped ones becomes features; `like` encodes as another graph did.
    """
    if len(nodes) > 1 and client_column is not None:
        raise FedpubError(
            f"clients are given twice, by {len(nodes)} node files and by the column {client_column!r}; "
            "give one node file, or no --client"
        )
    keys = [id_column] if client_column is None else [id_column, client_column]
    text = [column.name for column in like.columns if column.kind == "category"] if like else []
    table = read_tables(nodes, verbatim=keys, text=[label_column, *text])
    roles = {"id column": id_column, "label column": label_column}
    if client_column is not None:
        roles["client column"] = client_column
    for role, column in [*roles.items(), *(("column to drop", column) for column in drop)]:
        table.require(role, column)
    ids = _node_ids(table, id_column)
    ends = _endpoints(read_edges(edges, source_column, target_column), ids, table.source)
    clients = _clients(table, client_column) if client_column else _client_per_file(nodes, table)
    return _build(table, ids, ends, label_column, clients, {**roles, "dropped": drop}, like, name)
