"""Cells of any Arrow type as text, times or lists."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EMPTY = ("",)
MISSING = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")  # spellings of a missing cell in CSV files
EXACT = 2**53  # floats that are integers and smaller than this are written as integers
MICROSECONDS = pa.timestamp("us")
ZONED = r":.*([zZ]|[+-][0-9]{2}(:?[0-9]{2})?)$"  # a text that ends in a time zone
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
Content = Literal["numbers", "truth values", "text", "times", "lists", "nothing", "other"]


def content(kind: pa.DataType) -> Content:
    """What a column of this Arrow type holds."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_boolean(kind):
        return "truth values"
    if pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "times"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "lists" if content(kind.value_type) == "numbers" else "other"
    return "nothing" if pa.types.is_null(kind) else "other"


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The type that `normal` gives a column of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return normal_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type)
    return pa.large_string() if pa.types.is_string(kind) or pa.types.is_string_view(kind) else kind


def normal(column: pa.ChunkedArray, missing: Sequence[str] = EMPTY) -> pa.ChunkedArray:
    """All strings of one Arrow type, null if missing; no dictionaries and no extension types."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if column.type != (kind := normal_type(column.type)):
        column = column.cast(kind)
    if pa.types.is_large_string(kind):
        column = pc.if_else(pc.is_in(column, value_set=pa.array(missing, kind)), None, column)
    return column


def to_text(cells: pa.Array) -> pa.Array:
    """Cells as strings, the same for the same value whatever its type: 7.0 is "7", bytes are hexadecimal digits."""
    kind = cells.type
    if pa.types.is_floating(kind):
        numbers = cells.cast(pa.float64())
        numbers = pc.if_else(pc.is_nan(numbers), None, numbers)  # what pandas writes for a missing integer
        whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), EXACT))
        integers = pc.if_else(whole, numbers, None).cast(pa.int64())
        return pc.coalesce(integers.cast(pa.large_string()), numbers.cast(pa.large_string()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return cells.cast(pa.large_string())  # text, as some programs write it
        except pa.ArrowInvalid:
            return _hexadecimal(cells)
    return _hexadecimal(cells) if pa.types.is_fixed_size_binary(kind) else cells.cast(pa.large_string())


def _hexadecimal(cells: pa.Array) -> pa.Array:
    cells = pa.concat_arrays([cells.cast(pa.large_binary())])  # without an offset into a longer array
    valid = pc.is_valid(cells).to_numpy(zero_copy_only=False)
    written = pc.fill_null(cells, b"")
    _, starts, data = written.buffers()
    offsets = 2 * np.frombuffer(starts, np.int64, len(written) + 1)
    digits = pa.py_buffer(binascii.hexlify(data.to_pybytes() if data is not None else b""))
    texts = pa.LargeStringArray.from_buffers(len(written), pa.py_buffer(offsets), digits)
    return pc.if_else(pa.array(valid), texts, None)


def to_times(cells: pa.Array) -> pa.Array:
    """Dates, times and ISO texts as instants; those with a time zone in UTC. ArrowInvalid where that is impossible."""
    if not pa.types.is_large_string(cells.type):
        return cells.cast(MICROSECONDS, safe=False)
    cells = pc.utf8_trim_whitespace(cells)
    zoned = pc.match_substring_regex(cells, ZONED)
    local = pc.if_else(zoned, None, cells).cast(MICROSECONDS)
    elsewhere = pc.if_else(zoned, cells, None).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(local, elsewhere.cast(MICROSECONDS))


def are_numbers(texts: pa.Array) -> pa.Array:
    """Which strings are numbers; null stays null."""
    return pc.match_substring_regex(texts, NUMBER)


def first_row(values: pa.Array, value: Any) -> int:
    """The first row with `value` (None: an empty one); -1 if there is none."""
    return int(pc.index(pc.is_null(values), True).as_py() if value is None else pc.index(values, value).as_py())
