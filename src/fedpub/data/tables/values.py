"""The values of a column, checked: numbers, times, positions among known texts, lists.

N nodes are the rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedpub.data.tables.cells import first_row
from fedpub.data.tables.encoding import Column, Rule, some
from fedpub.data.tables.table import Floats, Table
from fedpub.errors import FedpubError

MAX_NUMBER = 10_000_000  # in a list of feature numbers; a larger one is hardly the number of a feature
TOO_LARGE = 1e30  # the square of a larger number may overflow in means and deviations
TRUTH = ("false", "true", "0", "1")
DAY = 86_400_000_000  # microseconds

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


def numbers(table: Table, name: str, missing: Rule, remedy: str) -> tuple[Floats, Bools]:
    """A column of numbers, and which of them are missing."""
    values = table.numbers(name).copy()
    gone = np.isnan(values)
    wrong = np.flatnonzero(~(np.abs(values) < TOO_LARGE) & ~(gone & (missing != "refuse")))
    if len(wrong):
        row, value = int(wrong[0]), values[wrong[0]]
        problem = (
            "is missing" if np.isnan(value) else "is not finite" if np.isinf(value) else f"is too large ({value:g})"
        )
        raise FedpubError(f"{table.place(row)}: feature {name!r} {problem}; {remedy}")
    return values, gone


def times(table: Table, name: str, missing: Rule, remedy: str) -> tuple[Floats, Floats, Bools]:
    """The days of a column of times since 1970, the times of day from 0 to 1, and which are missing."""
    moments = table.times(name)
    gone = pc.is_null(moments).to_numpy(zero_copy_only=False)
    if missing == "refuse" and gone.any():
        raise FedpubError(f"{table.place(int(gone.argmax()))}: feature {name!r} is missing; {remedy}")
    count = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return (count // DAY).astype(np.float64), (count % DAY) / DAY, gone


def codes(table: Table, texts: pa.Array, known: Sequence[str], name: str, missing: Rule, remedy: str) -> Ints:
    """The position of every text among the known ones; behind them if it is missing or new and a rule allows that."""
    found = pc.index_in(texts, value_set=pa.array(known, texts.type))
    row = first_row(found, None)
    if row >= 0 and missing == "refuse":
        value = texts[row].as_py()
        problem = "is missing" if value is None else f"has the unknown value {value!r}, not one of {some(known)}"
        raise FedpubError(f"{table.place(row)}: feature {name!r} {problem}; {remedy}")
    filled = pc.fill_null(found, pa.scalar(len(known), found.type))
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def texts(table: Table, name: str, missing: Rule, remedy: str) -> pa.Array:
    """A column of any texts; null where one is missing, if a rule allows that."""
    found = table.text(name)
    row = first_row(found, None)
    if row >= 0 and missing == "refuse":
        raise FedpubError(f"{table.place(row)}: feature {name!r} is missing; {remedy}")
    return found


def check_lists(table: Table, column: Column, lists: pa.Array) -> None:
    """Raise an error for the first list that is not what the column says."""
    values = lists.flatten().to_numpy(zero_copy_only=False)
    row_of = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    if column.kind == "vector":
        length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        short = np.flatnonzero(length != column.size)
        if len(short):
            raise FedpubError(
                f"{table.place(int(short[0]))}: the list in column {column.name!r} has {length[short[0]]} numbers, not "
                f"{column.size}; give all rows as many, or leave the column out with `drop={column.name}`"
            )
        wrong = np.flatnonzero(~(np.abs(values) < TOO_LARGE))
        rule = "give finite numbers below 1e30"
    else:
        limit = min(column.size, MAX_NUMBER)
        wrong = np.flatnonzero(~((values >= 0) & (values < limit)))
        rule = f"features are numbered from 0 to {limit - 1:,}"
    if len(wrong):
        raise FedpubError(
            f"{table.place(int(row_of[wrong[0]]))}: {values[wrong[0]]:g} in the list of column {column.name!r} is not "
            f"possible; {rule}"
        )
