"""CSV and Parquet files as one table that knows the file and line of each row."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fedpub.errors import FedpubError, unknown

SUFFIXES = (".csv", ".parquet")
EMPTY = ("",)
MISSING = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")  # spellings of a missing cell in CSV files
Content = Literal["numbers", "truth values", "text", "nothing", "other"]

DELIMITERS = (",", ";", "\t", "|")
NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}
LOOKED_AT = 1 << 16  # bytes, to detect a file's encoding and delimiter

csv.field_size_limit(2**31 - 1)  # the csv module only finds the line of an error; a long text must not stop it


@dataclass(frozen=True)
class Dialect:
    """How CSV files are written; None is detected from the file."""

    delimiter: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(NAMED_DELIMITERS.get(self.delimiter, self.delimiter)) != 1:
            raise FedpubError(f"`delimiter={self.delimiter}` is not possible; give one character, or tab")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError as error:
            raise FedpubError(f"`encoding={self.encoding}` is unknown; give one such as utf-8 or latin-1") from error

    def of(self, path: Path) -> tuple[str, str]:
        """The delimiter and the encoding of a file."""
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
        encoding = self.encoding or _encoding_of(start)
        if self.delimiter is not None:
            return NAMED_DELIMITERS.get(self.delimiter, self.delimiter), encoding
        lines = re.sub(r'"[^"]*"', "", start.decode(encoding, errors="replace")).splitlines()
        header = next((line for line in lines if line.strip()), "")
        return max(DELIMITERS, key=header.count), encoding  # on a tie, the first


FOUND = Dialect()


def _encoding_of(start: bytes) -> str:
    """The encoding of a file that starts like this: by its BOM, by the zeros of UTF-16 in plain text, else UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = start[::2].count(0), start[1::2].count(0)
    if max(even, odd) > len(start) // 8:
        return "utf-16-be" if even > odd else "utf-16-le"
    return "utf-8-sig"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one or several sources with the same columns."""

    parts: tuple[pa.Table, ...]
    source: str  # "nodes.csv": the start of a message about the whole table
    place: Callable[[int], str]  # 5 -> "nodes.csv, line 7": where a user finds this row
    unused: tuple[str, ...] = ()  # columns that were not read

    @property
    def columns(self) -> list[str]:
        return list(self.parts[0].column_names)

    def __len__(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def require(self, role: str, column: str) -> None:
        if column not in self.columns:
            raise FedpubError(f"{self.source}: {unknown(role, column, self.columns)}")

    def type_name(self, column: str) -> str:
        return str(self.parts[0].column(column).type)

    def content(self, column: str) -> Content:
        found = {content(part.column(column).type) for part in self.parts} - {"nothing"}
        return found.pop() if len(found) == 1 else "text" if found else "nothing"

    def text(self, column: str) -> pa.Array:
        """A column as strings; null where the cell is empty."""
        try:
            return self._cast(column, pa.large_string())
        except pa.ArrowException as error:
            raise FedpubError(
                f"{self.source}: column {column!r} holds {self.type_name(column)}; write it as text or as numbers"
            ) from error

    def numbers(self, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A column as numbers, NaN where nothing is given."""
        try:
            numbers = self._cast(column, pa.float64())
        except pa.ArrowException as error:
            texts = self.text(column)
            row = first_row(are_numbers(texts), False)
            raise FedpubError(
                f"{self.place(row)}: {texts[row].as_py()!r} in column {column!r} is not a number; correct it"
            ) from error
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _cast(self, column: str, to: pa.DataType) -> pa.Array:
        chunks = [chunk for part in self.parts for chunk in part.column(column).chunks]
        # Text has no NaN: what pandas writes for a missing integer must not become the string "nan".
        chunks = [pc.if_else(pc.is_nan(c), None, c) if pa.types.is_floating(c.type) else c for c in chunks]
        return pa.concat_arrays([pa.array([], to), *(chunk.cast(to, safe=False) for chunk in chunks)])


def content(kind: pa.DataType) -> Content:
    """What a column of this Arrow type holds."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_boolean(kind):
        return "truth values"
    if pa.types.is_large_string(kind):
        return "text"
    return "nothing" if pa.types.is_null(kind) else "other"


def are_numbers(texts: pa.Array) -> pa.Array:
    """Which strings are numbers; null stays null."""
    return pc.match_substring_regex(texts, r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$")


def first_row(values: pa.Array, value: Any) -> int:
    """The first row with `value` (None: an empty one); -1 if there is none."""
    return int(pc.index(pc.is_null(values), True).as_py() if value is None else pc.index(values, value).as_py())


def plain(table: pa.Table, verbatim: Collection[str] = (), missing: Sequence[str] = EMPTY) -> pa.Table:
    """All strings of one Arrow type, null if missing (in verbatim columns: if empty), and no dictionaries."""
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        if pa.types.is_large_string(column.type):
            spellings = pa.array(EMPTY if name in verbatim else missing, column.type)
            column = pc.if_else(pc.is_in(column, value_set=spellings), None, column)
        table = table.set_column(i, name, column)
    return table


def read_tables(
    paths: Sequence[Path], verbatim: Collection[str], text: Collection[str] = (), dialect: Dialect = FOUND
) -> Table:
    """Files with the same columns as one table.

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
    mixed = [name for name in first if len({content(part.column(name).type) for part in parts} - {"nothing"}) > 1]
    if mixed:
        text = [*text, *mixed]
        parts = [_read(path, names, verbatim, text, dialect) for path, names in zip(paths, columns, strict=True)]
    return _table(paths, parts, dialect)


def read_edges(paths: Sequence[Path], source: str | None, target: str | None, dialect: Dialect = FOUND) -> Table:
    """Edge files as one table with the string columns "source" and "target"."""
    if (source is None) != (target is None):
        raise FedpubError("only one of `source` and `target` is given; give both, or none")
    parts, unused = [], []
    for path in paths:
        names = header(path, dialect)
        if source is None or target is None:
            ends = ["source", "target"] if {"source", "target"} <= set(names) else names[:2]
        else:
            ends = [source, target]
        for role, end in zip(("source column", "target column"), ends, strict=False):
            if end not in names:
                raise FedpubError(f"{path}: {unknown(role, end, names)}")
        if len(set(ends)) < 2:
            raise FedpubError(f"{path}: an edge needs two columns, its source and its target, not only {ends[0]!r}")
        parts.append(_read(path, ends, ends, (), dialect).select(ends).rename_columns(["source", "target"]))
        unused += [name for name in names if name not in ends]
    return replace(_table(paths, parts, dialect), unused=tuple(dict.fromkeys(unused)))


def header(path: Path, dialect: Dialect = FOUND) -> list[str]:
    """The names of a file's columns; in a CSV file without surrounding spaces."""
    if path.suffix.lower() not in SUFFIXES:
        raise FedpubError(f"{path} has the suffix {path.suffix!r}; give a table that ends in {' or '.join(SUFFIXES)}")
    try:
        if path.suffix.lower() == ".csv":
            names = [name.strip() for name in _first_line(path, dialect)]
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


def _read(
    path: Path, columns: list[str], verbatim: Collection[str], text: Collection[str], dialect: Dialect
) -> pa.Table:
    try:
        if path.suffix.lower() == ".parquet":
            table = pq.ParquetFile(path).read(columns=columns)
        else:
            table = _read_csv(path, columns, [*verbatim, *text], dialect)
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    return plain(table, verbatim, MISSING if path.suffix.lower() == ".csv" else EMPTY)


def _read_csv(path: Path, columns: list[str], text: Collection[str], dialect: Dialect) -> pa.Table:
    delimiter, encoding = dialect.of(path)
    written = {name.strip(): name for name in _first_line(path, dialect)}
    convert = pyarrow.csv.ConvertOptions(
        include_columns=[written[name] for name in columns],
        column_types={written[name]: pa.large_string() for name in text if name in written},
        null_values=list(MISSING),
    )
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    plainly = encoding in ("utf-8", "utf-8-sig")  # which Arrow reads itself, with or without a BOM
    read = pyarrow.csv.ReadOptions(encoding="utf8" if plainly else encoding)
    try:
        table = pyarrow.csv.read_csv(path, read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid:
        width = len(written)
        ragged = next(((line, fields) for line, fields in _csv_lines(path, dialect) if len(fields) != width), None)
        if ragged is None:
            raise
        if delimiter != ",":
            raise FedpubError(
                f"{path}, line {ragged[0]}: {len(ragged[1])} cells where the header has {width}, cut at {delimiter!r}; "
                "put a text that contains it in double quotes, or give another `delimiter`"
            ) from None
        raise FedpubError(
            f"{path}, line {ragged[0]}: {len(ragged[1])} cells where the header has {width}; "
            "put a text that contains a comma in double quotes"
        ) from None
    for name in table.column_names:
        if pa.types.is_binary(table.column(name).type):  # how Arrow returns text in another encoding
            raise FedpubError(
                f"{path}: column {name!r} is not in UTF-8; save the file as UTF-8, or give its encoding, such as "
                "`encoding=latin-1`"
            )
    return table.rename_columns(columns)


def _table(paths: Sequence[Path], parts: Sequence[pa.Table], dialect: Dialect) -> Table:
    ends = list(accumulate(part.num_rows for part in parts))

    def place(row: int) -> str:
        file = int(np.searchsorted(ends, row, side="right"))
        path, row = paths[file], row - ends[file] + parts[file].num_rows
        if path.suffix.lower() == ".parquet":
            return f"{path}, row {row + 1}"
        line, _ = next(islice(_csv_lines(path, dialect), row + 1, None))  # + 1 for the header
        return f"{path}, line {line}"

    return Table(tuple(parts), ", ".join(map(str, paths)), place)


def _first_line(path: Path, dialect: Dialect) -> list[str]:
    return next((fields for _, fields in _csv_lines(path, dialect)), [])


def _csv_lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the line on which it starts; quoted text may span lines."""
    delimiter, encoding = dialect.of(path)
    with path.open(newline="", encoding=encoding, errors="replace") as file:
        reader, line = csv.reader(file, delimiter=delimiter), 1
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1


def _unreadable(path: Path, error: Exception) -> FedpubError:
    reason = str(error).splitlines()[0]
    if path.suffix.lower() != ".csv":
        return FedpubError(f"{path} cannot be read ({reason}); save it as Parquet")
    return FedpubError(
        f"{path} cannot be read ({reason}); save it as comma-separated UTF-8, or give its `delimiter` and `encoding`"
    )
