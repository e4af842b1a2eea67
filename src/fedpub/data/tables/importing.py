"""Graphs from CSV and Parquet tables of nodes and edges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fedpub.core.steps import Step, silent
from fedpub.data.graph import Duplicates
from fedpub.data.tables.aims import Wanted, wanted
from fedpub.data.tables.building import Choices, Imported, NaturalClients, assembled, clients_by_column, nodes_of
from fedpub.data.tables.dialect import Dialect
from fedpub.data.tables.encoding import Encoding, some
from fedpub.data.tables.features import read_matrix
from fedpub.data.tables.files import EdgeColumns, header, read_tables, source_of
from fedpub.data.tables.ids import unique_ids
from fedpub.data.tables.links import EdgeRules, Outside, read_links
from fedpub.data.tables.rules import declared, matching
from fedpub.data.tables.splits import OwnSplit
from fedpub.data.tables.table import Table
from fedpub.errors import FedpubError, unknown


def from_tables(
    nodes: Sequence[Path],
    edges: Sequence[Path],
    *,
    id_column: str,
    label_column: str | None = None,
    label_columns: Collection[str] = (),
    number_column: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    edge_weight: str | None = None,
    edge_type: str | None = None,
    directed: bool = False,
    duplicates: Duplicates | None = None,
    outside: Outside = "refuse",
    client_column: str | None = None,
    split_column: str | None = None,
    time_column: str | None = None,
    validation_from: str | None = None,
    test_from: str | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    dates: Collection[str] = (),
    plain: Collection[str] = (),
    hashed: Collection[str] = (),
    missing: Collection[str] = (),
    features: Path | None = None,
    many_classes: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    like: Encoding | None = None,
    name: str = "graph",
    step: Step = silent,
) -> Imported:
    """A graph from node files and edge files; with several node files, each is a client.

    Learnt is the class in `label_column`, several labels (0 or 1) in `label_columns`, or the number in `number_column`.
    Every other column becomes features unless it is the id, the client, part of the split or dropped; `categorical`,
    `dates`, `plain` (not standardised) and `hashed` ("shop=64") say what a column is, `missing` ("mean", "age=zero")
    what becomes of empty cells, and `like` takes all of this from another graph. Lists of columns may contain the
    wildcards * and ?. Delimiter and encoding of CSV files are detected unless they are given.
    """
    if not nodes or not edges:
        raise FedpubError("a graph needs at least one node file and one edge file; give both `nodes` and `edges`")
    if len(nodes) > 1 and client_column is not None:
        raise FedpubError(
            f"clients are given twice, by {len(nodes)} node files and by the column {client_column!r}; "
            "give one node file, or leave out `client`"
        )
    dialect = Dialect(delimiter, encoding)
    want = wanted(label_column, label_columns, number_column, many_classes)
    split = OwnSplit(split_column, time_column, validation_from, test_from)
    rules = EdgeRules(
        EdgeColumns(source_column, target_column, edge_weight, edge_type), directed, duplicates, outside
    ).alike(like)
    says = {"categorical": categorical, "dates": dates, "plain": plain, "hash": hashed, "missing": missing}
    if like is not None and (useless := next((setting for setting, given in says.items() if given), None)):
        raise FedpubError(f"`{useless}` has no effect with `like`, which defines every column; leave one out")
    names, source = header(nodes[0], dialect), source_of(nodes)
    fates = _fates(names, source, id_column, want, client_column, split, drop, like is not None)
    declares = declared(names, fates, source, says)
    texts = [*want.columns, *split.columns, *declares.texts]
    if like is not None:
        texts += [column.name for column in like.columns if column.kind in ("category", "hashed", "time")]
    verbatim = [id_column, *([] if client_column is None else [client_column])]
    step("reading nodes", 0, None)
    table = read_tables(nodes, verbatim, texts, dialect)
    for path, part in zip(nodes, table.parts, strict=True):
        if part.num_rows == 0:
            raise FedpubError(f"{path} has no rows; a graph needs at least one node")
    ids = unique_ids(table, id_column)
    clients = _clients_by_file(nodes, table) if client_column is None else clients_by_column(table, client_column)
    matrix_NF = None if features is None else read_matrix(features, len(table))
    chosen = Choices(want, fates, declares, split, like)
    own = nodes_of(table, ids.texts.to_pylist(), chosen, clients, matrix_NF, step)
    del table, matrix_NF  # as large as the features that were made of them
    links = read_links(edges, ids, rules, like, dialect, source, step)
    step("the graph", 0, None)
    made = assembled(own, links, chosen, name)
    if all(column in names for column in want.columns):
        return made
    columns = ", ".join(map(repr, want.columns))
    absent = f"there is no column {columns}, so no node has a label; the columns are {some(names)}"
    return replace(made, notes=(*made.notes, absent))


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


def _fates(
    names: Sequence[str],
    source: str,
    id_column: str,
    want: Wanted,
    client_column: str | None,
    split: OwnSplit,
    drop: Collection[str],
    alike: bool,
) -> dict[str, str]:
    """What the columns are that do not become features; nodes to predict need none of those to learn."""
    roles = [(id_column, "node id"), *((column, want.role) for column in want.columns)]
    roles += [] if client_column is None else [(client_column, "client")]
    roles += list(split.fates.items())
    fates: dict[str, str] = {}
    for column, fate in roles:
        if column not in names:
            if fate == want.role and alike and not set(want.columns) & set(names):
                continue
            role = fate.removeprefix("node ").partition(":")[0].partition(";")[0]
            raise FedpubError(f"{source}: {unknown(f'{role} column', column, names)}")
        if fates.setdefault(column, fate) != fate:
            raise FedpubError(
                f"column {column!r} cannot be both {fates[column]} and {fate}; name another column for one of them"
            )
    for pattern in drop:
        for column in matching(pattern, names, "column to drop", source, fates):
            fates.setdefault(column, "left out on request")
    return fates


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
