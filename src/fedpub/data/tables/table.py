"""A table of one or several files that knows where a user finds each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fedpub.data.tables.cells import (
    MICROSECONDS,
    Content,
    are_numbers,
    content,
    first_row,
    normal,
    normal_type,
    to_text,
    to_times,
)
from fedpub.errors import FedpubError, unknown

Floats = np.ndarray[Any, np.dtype[np.float64]]
Place = Callable[[int], str]  # 5 -> "nodes.csv, line 7": where a user finds this row


@dataclass(frozen=True, eq=False)
class Part:
    """The columns of one file; one that is not in memory is read when it is asked for."""

    types: Mapping[str, pa.DataType]
    num_rows: int
    read: Callable[[str], pa.ChunkedArray]

    @staticmethod
    def of(table: pa.Table) -> Part:
        """A table in memory."""
        types = {name: normal_type(table.schema.field(name).type) for name in table.column_names}
        return Part(types, table.num_rows, lambda name: normal(table.column(name)))


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one or several sources with the same columns."""

    parts: tuple[Part, ...]
    source: str  # "nodes.csv": the start of a message about the whole table
    place: Place

    @property
    def columns(self) -> list[str]:
        return list(self.parts[0].types)

    def __len__(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def __contains__(self, column: str) -> bool:
        return column in self.parts[0].types

    def require(self, role: str, column: str) -> None:
        if column not in self:
            raise FedpubError(f"{self.source}: {unknown(role, column, self.columns)}")

    def type_name(self, column: str) -> str:
        return str(self.parts[0].types[column])

    def content(self, column: str) -> Content:
        found = {content(part.types[column]) for part in self.parts} - {"nothing"}
        return found.pop() if len(found) == 1 else "text" if found else "nothing"

    def text(self, column: str) -> pa.Array:
        """A column as strings; null where the cell is empty."""
        try:
            return self._joined(column, pa.large_string(), to_text)
        except pa.ArrowException as error:
            raise FedpubError(
                f"{self.source}: column {column!r} holds {self.type_name(column)}; write it as text or as numbers"
            ) from error

    def numbers(self, column: str) -> Floats:
        """A column as numbers, NaN where nothing is given."""
        try:
            numbers = self._joined(column, pa.float64(), lambda cells: cells.cast(pa.float64(), safe=False))
        except pa.ArrowException as error:
            texts = self.text(column)
            row = first_row(are_numbers(texts), False)
            raise FedpubError(
                f"{self.place(row)}: {texts[row].as_py()!r} in column {column!r} is not a number; correct it"
            ) from error
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def times(self, column: str) -> pa.Array:
        """A column as instants, null where nothing is given."""
        if self.content(column) not in ("times", "text", "nothing"):
            raise FedpubError(
                f"{self.source}: column {column!r} holds {self.type_name(column)}, not dates; write them like "
                "2024-01-31 or 2024-01-31 18:00"
            )
        try:
            return self._joined(column, MICROSECONDS, to_times)
        except pa.ArrowException as error:
            texts = self.text(column)
            row = _first_bad_time(texts)
            raise FedpubError(
                f"{self.place(row)}: {texts[row].as_py()!r} in column {column!r} is not a date; write it like "
                "2024-01-31 or 2024-01-31 18:00"
            ) from error

    def lists(self, column: str) -> pa.Array:
        """A column of lists of numbers."""
        to = pa.large_list(pa.float64())
        return self._joined(column, to, lambda cells: cells.cast(to, safe=False))

    def _joined(self, column: str, to: pa.DataType, cast: Callable[[pa.Array], pa.Array]) -> pa.Array:
        chunks = [cast(chunk) for part in self.parts for chunk in part.read(column).chunks]
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], to), *chunks])


def _first_bad_time(texts: pa.Array) -> int:
    low, high = 0, len(texts)  # the first one is in low .. high - 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            to_times(texts[low:middle])
            low = middle
        except pa.ArrowException:
            high = middle
    return low
