"""The verb `data import`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal

MAX_LINES = 40  # for columns; with more of them, neighbours of one fate share a line


def import_(
    *,
    nodes: list[Path],
    edges: list[Path],
    id: str,
    out: Path,
    label: str | None = None,
    labels: tuple[str, ...] = (),
    number: str | None = None,
    client: str | None = None,
    source: str | None = None,
    target: str | None = None,
    edge_weight: str | None = None,
    edge_type: str | None = None,
    directed: bool = False,
    duplicates: Literal["merge", "sum", "refuse"] | None = None,
    outside: Literal["refuse", "drop"] = "refuse",
    split_column: str | None = None,
    time: str | None = None,
    validation_from: str | None = None,
    test_from: str | None = None,
    drop: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    dates: tuple[str, ...] = (),
    plain: tuple[str, ...] = (),
    hash: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
    features: Path | None = None,
    many_classes: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    like: Path | None = None,
    encoding_out: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Your own graph from CSV or Parquet tables, with a list of how every column was used.

    Example: fedpub data import --nodes nodes.csv --edges edges.csv --id id --label label --out my.graph

    Args:
        nodes: Node tables, one row per node; of several files each is a client, named after its file.
        edges: Edge tables, one row per edge between two node ids.
        id: Node table column with the node ids.
        out: Graph file to write.
        label: Node table column with the class to learn; an empty cell is a node without a label.
        labels: Node table columns with several labels to learn instead of one class, each 0 or 1.
        number: Node table column with a number to learn instead of a class.
        client: Node table column with the client of each node.
        source: Edge table column with one end of each edge. (default: source, or the first column)
        target: Edge table column with the other end. (default: target, or the second column)
        edge_weight: Edge table column with the weight of each edge, 0 or more.
        edge_type: Edge table column with the kind of each edge; every kind gets a matrix of its own.
        directed: Edges with a direction, from source to target.
        duplicates: Rule for edges that are given several times. (default: sum with weights, merge without)
        outside: Rule for edges with an end that is not in the node tables.
        split_column: Node table column with the words train, validation or test; an empty cell is a node in no set.
        time: Node table column with the date or time by which nodes are split.
        validation_from: First date of the validation set; nodes before it are for training.
        test_from: First date of the test set.
        drop: Columns to leave out; here and in other lists of columns, * and ? stand for any characters.
        categorical: Numeric columns that are categories, such as zip codes: one feature per value.
        dates: Columns of dates, refused if one cannot be read; those that look like dates need no flag.
        plain: Numeric columns to keep as they are, not standardised, such as columns of 0 and 1.
        hash: Text columns of many values and their number of features, such as shop=64.
        missing: Rules for empty cells: mean, zero or category for all columns, or age=mean for one. (default: refuse)
        features: Matrix Market or SciPy npz file with further features, one row per row of the node tables.
        many_classes: Permission for a label column with very many different values.
        delimiter: Separator of CSV cells, one character or tab. (default: comma, semicolon, tab or |, the most frequent
            in the first line)
        encoding: Encoding of CSV files, such as latin-1. (default: UTF-8, or UTF-16 if a file looks like it)
        like: Graph or encoding file whose columns and classes are used, so that sites agree.
        encoding_out: JSON file for the encoding alone, which another site passes to `like`; it holds no rows.
        force: Permission to replace existing files.
        json: Use of every column as JSON.
    """
    # Imported here, so that --help does not wait for torch.
    from rich.console import Console
    from rich.table import Table

    from fedpub.cli.show import as_json
    from fedpub.core.files import write_text
    from fedpub.data.tables import from_tables
    from fedpub.data.tables.encoding import Encoding
    from fedpub.data.tables.importing import check_outputs
    from fedpub.runs.progress import steps

    check_outputs(out, encoding_out, [*nodes, *edges, *([] if features is None else [features])], force)
    with steps() as step:
        imported = from_tables(
            nodes,
            edges,
            id_column=id,
            label_column=label,
            label_columns=labels,
            number_column=number,
            source_column=source,
            target_column=target,
            edge_weight=edge_weight,
            edge_type=edge_type,
            directed=directed,
            duplicates=duplicates,
            outside=outside,
            client_column=client,
            split_column=split_column,
            time_column=time,
            validation_from=validation_from,
            test_from=test_from,
            drop=drop,
            categorical=categorical,
            dates=dates,
            plain=plain,
            hashed=hash,
            missing=missing,
            features=features,
            many_classes=many_classes,
            delimiter=delimiter,
            encoding=encoding,
            like=None if like is None else Encoding.read(like),
            name=out.stem,
            step=step,
        )
        step("writing", 0, None)
        imported.graph.save(out)
    if encoding_out is not None:
        write_text(encoding_out, imported.encoding.to_json())

    graph = imported.graph
    sizes = {"nodes": graph.num_nodes, "edges": graph.edges.shape[1], "features": graph.num_features}
    told = {"columns": imported.columns, "notes": imported.notes, **sizes, "classes": graph.classes}
    if as_json({**told, "out": out, "encoding_out": encoding_out}, json):
        return
    console = Console(markup=False, highlight=False)
    table = Table("column", "became")
    for column, fate in _lines(imported.columns).items():
        table.add_row(column, fate)
    console.print(table)
    for note in imported.notes:
        console.print(note)
    console.print(f"{out}: {imported.graph!r}", soft_wrap=True)


def _lines(fates: Mapping[str, str]) -> Mapping[str, str]:
    """What to print about columns: of very many, one line for neighbours that differ only in the numbers."""
    if len(fates) <= MAX_LINES:
        return fates
    lines = {}
    for kind, run in groupby(fates, lambda column: fates[column].partition(",")[0]):
        first, *others = run
        if others:
            lines[f"{first} ... {others[-1]} ({len(others) + 1:,} columns)"] = kind
        else:
            lines[first] = fates[first]
    return lines
