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
    """Your own graph from CSV or Parquet tables, with a list of how every column was used.

    Example: fedpub data import --nodes nodes.csv --edges edges.csv --id id --label label --out my.graph

    Args:
        nodes: Node tables, one row per node; of several files each is a client, named after its file.
        edges: Edge tables, one row per edge between two node ids.
        id: Node table column with the node ids.
        label: Node table column to learn; an empty cell is a node without a label.
        out: Graph file to write.
        source: Edge table column with one end of each edge. (default: source, or the first column)
        target: Edge table column with the other end. (default: target, or the second column)
        client: Node table column with the client of each node.
        drop: Columns to leave out.
        categorical: Numeric columns that are categories, such as zip codes: one feature per value.
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
