"""The verb `data import`."""

from __future__ import annotations

from pathlib import Path


def import_(
    *,
    nodes: list[Path],
    edges: list[Path],
    id: str,
    label: str,
    out: Path,
    source: str | None = None,
    target: str | None = None,
    client: str | None = None,
    drop: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    many_classes: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    like: Path | None = None,
    encoding_out: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Your own graph from CSV or Parquet tables; says what became of every column.

    Example: fedpub data import --nodes nodes.csv --edges edges.csv --id id --label label --out my.graph

    Args:
        nodes: One row per node. Several files: each is a client, named as its file.
        edges: One row per edge, between two node ids.
        id: The column of the node table that names a node.
        label: The column of the node table to learn; an empty cell is a node without label.
        out: The graph to write.
        source: The edge table's column for one end; without it `source`, else the first column.
        target: The edge table's column for the other end; without it `target`, else the second column.
        client: The column of the node table that says who holds a node.
        drop: Columns to leave out.
        categorical: Columns of numbers that are names, such as zip codes: one feature for each value.
        many_classes: Accept a label column with very many different values.
        delimiter: What separates the cells of CSV files, one character or tab; without it comma, semicolon, tab or |,
            whichever the first line has most of.
        encoding: The encoding of CSV files, such as latin-1; without it UTF-8, or UTF-16 where a file looks like it.
        like: Encode columns and classes as in this graph (or encoding), so that sites agree.
        encoding_out: Also write the encoding alone, as JSON: what another site needs for --like, without any row.
        force: Replace the files to write if they exist.
        json: Print what became of every column as JSON.
    """
    # Imported here, so that --help need not wait for torch.
    from rich.console import Console
    from rich.table import Table

    from fedpub.cli.show import as_json
    from fedpub.core.files import write_text
    from fedpub.data.tables import from_tables
    from fedpub.data.tables.encoding import Encoding
    from fedpub.data.tables.importing import check_outputs

    check_outputs(out, encoding_out, [*nodes, *edges], force)
    imported = from_tables(
        nodes,
        edges,
        id_column=id,
        label_column=label,
        source_column=source,
        target_column=target,
        client_column=client,
        drop=drop,
        categorical=categorical,
        many_classes=many_classes,
        delimiter=delimiter,
        encoding=encoding,
        like=None if like is None else Encoding.read(like),
        name=out.stem,
    )
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
    for column, fate in imported.columns.items():
        table.add_row(column, fate)
    console.print(table)
    for note in imported.notes:
        console.print(note)
    console.print(f"{out}: {imported.graph!r}", soft_wrap=True)
