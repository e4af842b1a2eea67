"""Node ids: written in nodes and edges by different programs, and yet the same."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedpub.data.tables.cells import first_row
from fedpub.data.tables.table import Table
from fedpub.data.tables.values import Ints
from fedpub.errors import FedpubError

UNKNOWN = -1
INTEGER = (r"^([+-]?[0-9]+)\.0*$", r"\1")  # 7.0 is 7
MOMENT = (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.0+)?(Z|\+00:?00)?$", r"\1 \2")
MIDNIGHT = (r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$", r"\1")
UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"


class Ids:
    """The ids of the nodes, in order, and how to find a node by its id."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, texts: pa.Array) -> Ints:
        """The positions of ids, -1 where there is no such node; 7 finds 7.0 unless both are ids of nodes."""
        found = pc.index_in(texts, value_set=self.texts)
        if found.null_count and self._alike is not None:
            other = pc.index_in(_written_alike(texts.filter(pc.is_null(found))), value_set=self._alike)
            found = pc.replace_with_mask(found, pc.is_null(found), other)
        return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(zero_copy_only=False), dtype=np.int64)

    @cached_property
    def _alike(self) -> pa.Array | None:
        """All ids in one way of writing; None if two of them differ only in that."""
        alike = _written_alike(self.texts)
        return alike if len(pc.unique(alike)) == len(alike) else None


def unique_ids(table: Table, column: str) -> Ids:
    """The ids of the nodes of a table: one each, and all different."""
    ids = table.text(column)
    row = first_row(ids, None)
    if row >= 0:
        raise FedpubError(f"{table.place(row)}: column {column!r} is empty; give every node an id")
    codes = ids.dictionary_encode().indices.to_numpy()  # counted in the order of first occurrence
    again = np.flatnonzero(codes[1:] <= np.maximum.accumulate(codes)[:-1])
    if len(again):
        row = int(again[0]) + 1
        first = first_row(ids, ids[row])
        raise FedpubError(
            f"{table.place(row)}: node id {ids[row].as_py()!r} is also that of {table.place(first)}; "
            "give every node its own id"
        )
    return Ids(ids)


def _written_alike(texts: pa.Array) -> pa.Array:
    """Ids as one program would write them: integers without a fraction, dates without midnight, UUIDs as digits."""
    for pattern, replacement in (INTEGER, MOMENT, MIDNIGHT):
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    digits = pc.utf8_lower(pc.replace_substring(texts, "-", ""))
    return pc.if_else(pc.match_substring_regex(texts, UUID), digits, texts)
