"""CSV and Parquet files: whole tables of nodes, and edges in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fedpub.data.tables.cells import EMPTY, MISSING, content, normal, normal_type
from fedpub.data.tables.dialect import FOUND, Dialect, csv_lines, first_line
from fedpub.data.tables.table import Part, Place, Table
from fedpub.errors import FedpubError, unknown

SUFFIXES = (".csv", ".parquet")
BATCH_ROWS, BATCH_BYTES = 1 << 21, 1 << 25  # of a table that is read in batches


def source_of(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def read_tables(
    paths: Sequence[Path], verbatim: Collection[str], text: Collection[str] = (), dialect: Dialect = FOUND
) -> Table:
    """Files with the same columns as one table; the columns of Parquet files are read one at a time, when used.

    `verbatim` and `text` name columns to read as strings, so that "007" stays "007"; in CSV files "NA" and the like
    are missing cells, except in verbatim columns, where only an empty cell is missing.
    """
    first, *others = columns = [header(path, dialect) for path in paths]
    for path, names in zip(paths[1:], others, strict=True):
        if different := set(first) ^ set(names):
            name = min(different)
            has, lacks = (path, paths[0]) if name in names else (paths[0], path)
            raise FedpubError(f"{lacks} has no column {name!r}, but {has} does; give all node files the same columns")
    parts = [_read(path, names, verbatim, text, dialect) for path, names in zip(paths, columns, strict=True)]
    # A column with "A1" in one file and only "17" in another is text in both.
    mixed = [name for name in first if len({content(part.types[name]) for part in parts} - {"nothing"}) > 1]
    if mixed:
        text = [*text, *mixed]
        parts = [_read(path, names, verbatim, text, dialect) for path, names in zip(paths, columns, strict=True)]
    return Table(tuple(parts), source_of(paths), place_in(paths, [part.num_rows for part in parts], dialect))


def place_in(paths: Sequence[Path], rows: Sequence[int], dialect: Dialect) -> Place:
    """Where a user finds a row of several files with so many rows each."""
    ends = list(accumulate(rows))

    def place(row: int) -> str:
        file = int(np.searchsorted(ends, row, side="right"))
        path, row = paths[file], row - ends[file] + rows[file]
        if path.suffix.lower() == ".parquet":
            return f"{path}, row {row + 1}"
        line, _ = next(islice(csv_lines(path, dialect), row + 1, None))  # + 1 for the header
        return f"{path}, line {line}"

    return place


def header(path: Path, dialect: Dialect = FOUND) -> list[str]:
    """The names of a file's columns; in a CSV file without surrounding spaces."""
    if path.suffix.lower() not in SUFFIXES:
        raise FedpubError(f"{path} has the suffix {path.suffix!r}; give a table that ends in {' or '.join(SUFFIXES)}")
    try:
        if path.suffix.lower() == ".csv":
            names = [name.strip() for name in first_line(path, dialect)]
        else:
            names = list(pq.read_schema(path).names)
    except FileNotFoundError as error:
        raise FedpubError(f"there is no file {path}") from error
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    if not names:
        raise FedpubError(f"{path} is empty; its first line must name the columns")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise FedpubError(f"{path} has {count} columns {name!r}; give each column its own name")
    return names


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of edge tables, by name; without names, the ends are source and target or the first two columns."""

    source: str | None = None
    target: str | None = None
    weight: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise FedpubError("only one of `source` and `target` is given; give both, or none")

    def of(self, path: Path, dialect: Dialect) -> tuple[dict[str, str], list[str]]:
        """The columns of one file by their use, and those that are not used."""
        names = header(path, dialect)
        if self.source is not None and self.target is not None:
            ends = [self.source, self.target]
        else:
            ends = ["source", "target"] if {"source", "target"} <= set(names) else names[:2]
        found = dict(zip(("source", "target"), ends, strict=False))
        further = {"weight": self.weight, "kind": self.kind}
        found |= {use: name for use, name in further.items() if name is not None}
        for use, name in found.items():
            if name not in names:
                raise FedpubError(f"{path}: {unknown(f'{use} column', name, names)}")
        if len(set(ends)) < 2:
            raise FedpubError(f"{path}: an edge needs two columns, its source and its target, not only {ends[0]!r}")
        name, count = Counter(found.values()).most_common(1)[0]
        if count > 1:
            uses = " and ".join(use for use, column in found.items() if column == name)
            raise FedpubError(f"{path}: column {name!r} cannot be both {uses} of the edges; name another column")
        return found, [name for name in names if name not in found.values()]


def edge_batches(path: Path, columns: Mapping[str, str], dialect: Dialect = FOUND) -> Iterator[pa.Table]:
    """The rows of an edge file, some at a time, with their columns by use; those of a CSV file are strings."""
    ends = ("source", "target")
    try:
        if path.suffix.lower() == ".parquet":
            batches = pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=list(columns.values()))
        else:
            batches = iter(_open_csv(path, list(columns.values()), dialect))
        missing: Sequence[str] = EMPTY if path.suffix.lower() == ".parquet" else MISSING
        while (batch := next(batches, None)) is not None:
            read = pa.Table.from_batches([batch])
            if path.suffix.lower() == ".csv":
                read = read.rename_columns(list(columns.values()))
            spelled = {use: EMPTY if use in ends else missing for use in columns}
            yield pa.table({use: normal(read.column(name), spelled[use]) for use, name in columns.items()})
    except pa.ArrowInvalid as error:
        raise _ragged(path, dialect) or _unreadable(path, error) from error
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read(path: Path, columns: list[str], verbatim: Collection[str], text: Collection[str], dialect: Dialect) -> Part:
    try:
        if path.suffix.lower() == ".parquet":
            return _parquet(path)
        table = _read_csv(path, columns, [*verbatim, *text], dialect)
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    types = {name: normal_type(table.schema.field(name).type) for name in columns}
    return Part(types, table.num_rows, lambda name: normal(table.column(name), EMPTY if name in verbatim else MISSING))


def _parquet(path: Path) -> Part:
    file = pq.ParquetFile(path)

    def read(name: str) -> pa.ChunkedArray:
        try:
            return normal(file.read(columns=[name]).column(name))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error

    types = {field.name: normal_type(field.type) for field in file.schema_arrow}
    return Part(types, file.metadata.num_rows, read)


def _read_csv(path: Path, columns: list[str], text: Collection[str], dialect: Dialect) -> pa.Table:
    read, parse, convert = _csv_options(path, columns, text, dialect)
    try:
        table = pyarrow.csv.read_csv(path, read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        raise _ragged(path, dialect) or error from None
    for name in table.column_names:
        if pa.types.is_binary(table.schema.field(name).type):  # how Arrow returns text in another encoding
            raise FedpubError(
                f"{path}: column {name!r} is not in UTF-8; save the file as UTF-8, or give its encoding, such as "
                "`encoding=latin-1`"
            )
    return table.rename_columns(columns)


def _open_csv(path: Path, columns: list[str], dialect: Dialect) -> pyarrow.csv.CSVStreamingReader:
    read, parse, convert = _csv_options(path, columns, columns, dialect)
    read.block_size = BATCH_BYTES
    return pyarrow.csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert)


def _csv_options(
    path: Path, columns: list[str], text: Collection[str], dialect: Dialect
) -> tuple[pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions, pyarrow.csv.ConvertOptions]:
    delimiter, encoding = dialect.of(path)
    written = {name.strip(): name for name in first_line(path, dialect)}
    plainly = encoding in ("utf-8", "utf-8-sig")  # which Arrow reads itself, with or without a BOM
    convert = pyarrow.csv.ConvertOptions(
        include_columns=[written[name] for name in columns],
        column_types={written[name]: pa.large_string() for name in text if name in written},
        null_values=list(MISSING),
    )
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return pyarrow.csv.ReadOptions(encoding="utf8" if plainly else encoding), parse, convert


def _ragged(path: Path, dialect: Dialect) -> FedpubError | None:
    """The error for the first row of a CSV file with another number of cells than its header."""
    if path.suffix.lower() != ".csv":
        return None
    width, delimiter = len(first_line(path, dialect)), dialect.of(path)[0]
    ragged = next(((line, fields) for line, fields in csv_lines(path, dialect) if len(fields) != width), None)
    if ragged is None:
        return None
    counted = f"{path}, line {ragged[0]}: {len(ragged[1])} cells where the header has {width}"
    if delimiter != ",":
        return FedpubError(
            f"{counted}, cut at {delimiter!r}; put a text that contains it in double quotes, or give another "
            "`delimiter`"
        )
    return FedpubError(f"{counted}; put a text that contains a comma in double quotes")


def _unreadable(path: Path, error: Exception) -> FedpubError:
    reason = str(error).splitlines()[0]
    if path.suffix.lower() != ".csv":
        return FedpubError(f"{path} cannot be read ({reason}); save it as Parquet")
    return FedpubError(
        f"{path} cannot be read ({reason}); save it as comma-separated UTF-8, or give its `delimiter` and `encoding`"
    )
