"""The owner's own split: by the words of a column, or by time.

Axes: N nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.data.graph import NO_SET, TEST, TRAIN, VALIDATION
from fedpub.data.tables.cells import are_numbers, first_row, to_times
from fedpub.data.tables.table import Table
from fedpub.errors import FedpubError

WORDS = {
    "train": TRAIN,
    "training": TRAIN,
    "validation": VALIDATION,
    "val": VALIDATION,
    "valid": VALIDATION,
    "test": TEST,
}
LEAK = "time of the split; not a feature, because it tells the sets apart"


@dataclass(frozen=True)
class OwnSplit:
    """Where the nodes' sets are: in a column of words, or in a column of times with two dates."""

    column: str | None = None
    time: str | None = None
    validation_from: str | None = None
    test_from: str | None = None

    def __post_init__(self) -> None:
        if self.column is not None and self.time is not None:
            raise FedpubError("`split_column` and `time` both divide the nodes; give one of them")
        dates = {"validation_from": self.validation_from, "test_from": self.test_from}
        for setting, date in dates.items():
            if (date is None) != (self.time is None):
                raise FedpubError(
                    f"`{setting}` is missing; a split by `time` needs `validation_from` and `test_from`"
                    if date is None
                    else f"`{setting}={date}` has no effect without a column of times; name it with `time`"
                )

    @property
    def fates(self) -> dict[str, str]:
        """What the columns are that the split takes."""
        words = {} if self.column is None else {self.column: "split: train, validation or test"}
        return words if self.time is None else words | {self.time: LEAK}

    @property
    def columns(self) -> list[str]:
        return [column for column in (self.column, self.time) if column is not None]

    def of(self, table: Table) -> Tensor | None:
        """The set of every node, [N]."""
        if self.column is not None:
            return _by_words(table, self.column)
        if self.time is None:
            return None
        return self._by_time(table, self.time)

    def _by_time(self, table: Table, column: str) -> Tensor:
        texts = table.text(column) if table.content(column) in ("numbers", "text") else None
        steps = texts is not None and pc.all(are_numbers(texts)).as_py()  # numbered, as in 1, 2, 3
        moments = table.numbers(column) if steps else _microseconds(table.times(column))
        bounds = [
            _bound(setting, str(date), steps)
            for setting, date in (("validation_from", self.validation_from), ("test_from", self.test_from))
        ]
        if bounds[1] <= bounds[0]:
            raise FedpubError(
                f"`test_from={self.test_from}` is not after `validation_from={self.validation_from}`; nodes are for "
                "training before the first, for validation between them and for testing from the second on"
            )
        found = np.searchsorted(np.array(bounds), moments, side="right").astype(np.int8)  # TRAIN, VALIDATION, TEST
        found[np.isnan(moments)] = NO_SET
        return torch.from_numpy(found)


def told(split: Tensor) -> str:
    """How many nodes are in every set."""
    train, validation, test, none = (int((split == part).sum()) for part in (TRAIN, VALIDATION, TEST, NO_SET))
    rest = f", {none:,} in no set" if none else ""
    return f"your split: {train:,} nodes for training, {validation:,} for validation, {test:,} for testing{rest}"


def _by_words(table: Table, column: str) -> Tensor:
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(table.text(column)))
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    codes = pc.index_in(texts, value_set=pa.array(list(WORDS), texts.type))
    row = first_row(pc.and_(pc.is_null(codes), pc.is_valid(texts)), True)
    if row >= 0:
        raise FedpubError(
            f"{table.place(row)}: {table.text(column)[row].as_py()!r} in the split column {column!r} is not a set; "
            "write train, validation or test, or leave the cell empty"
        )
    sets = np.array([*WORDS.values(), NO_SET], dtype=np.int8)
    return torch.from_numpy(sets[pc.fill_null(codes, -1).to_numpy(zero_copy_only=False)])


def _bound(setting: str, text: str, steps: bool) -> float:
    """A bound in the units of the column."""
    try:
        return float(text) if steps else float(_microseconds(to_times(pa.array([text], pa.large_string())))[0])
    except (ValueError, pa.ArrowException) as error:
        form = "a number, as in the column of times" if steps else "a date such as 2024-01-31 or 2024-01-31 18:00"
        raise FedpubError(f"`{setting}={text}` cannot be read; give {form}") from error


def _microseconds(times: pa.Array) -> Any:
    """Instants as floats, which are exact to a microsecond for three centuries; NaN where there is none."""
    return times.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
