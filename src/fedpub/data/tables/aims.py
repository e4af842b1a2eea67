"""What is learnt of the nodes: a class, several labels or a number.

Axes: N nodes, T targets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.data.graph import NO_LABEL
from fedpub.data.tables.cells import first_row
from fedpub.data.tables.encoding import Aim, Encoding, some
from fedpub.data.tables.table import Table
from fedpub.data.tables.values import TRUTH
from fedpub.errors import FedpubError

FEW_CLASSES, NODES_PER_CLASS = 20, 5  # above the first number, every class needs so many labelled nodes


@dataclass(frozen=True)
class Wanted:
    """The columns to learn."""

    aim: Aim
    columns: tuple[str, ...]
    many_classes: bool = False

    @property
    def role(self) -> str:
        return {"class": "label", "labels": "one of the labels", "number": "number to learn"}[self.aim]


def wanted(label: str | None, labels: Collection[str], number: str | None, many_classes: bool = False) -> Wanted:
    """What is to be learnt, of three settings of which exactly one is given."""
    asked: dict[Aim, tuple[str, ...]] = {
        "class": () if label is None else (label,),
        "labels": tuple(labels),
        "number": () if number is None else (number,),
    }
    given = [(aim, columns) for aim, columns in asked.items() if columns]
    if len(given) != 1:
        raise FedpubError(
            f"{len(given) or 'none'} of `label`, `labels` and `number` are given; "
            "give the column of the class, the columns of several labels, or the column of a number"
        )
    aim, columns = given[0]
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise FedpubError(f"column {twice!r} is given twice in `labels`; give every label once")
    return Wanted(aim, columns, many_classes)


class Learnt(NamedTuple):
    y: Tensor  # [N], all -1 if not a class is learnt
    target: Tensor | None  # [N, T]
    classes: tuple[str, ...]


def learnt(table: Table, want: Wanted, like: Encoding | None) -> Learnt:
    """What the nodes of a table teach; nothing, if it has none of the columns and the encoding is that of another."""
    n = len(table)
    if like is not None and like.aim != want.aim:
        setting = {"class": "label", "labels": "labels", "number": "number"}
        raise FedpubError(
            f"the graph of `like` learns what `{setting[like.aim]}` says, not `{setting[want.aim]}`; give the same here"
        )
    if want.aim == "class":
        classes = like.classes if like is not None else _classes(table, want)
        known = want.columns[0] in table
        y = _labels(table, want.columns[0], classes) if known else torch.full((n,), NO_LABEL)
        return Learnt(y, None, classes)
    if like is not None and like.classes != want.columns:
        raise FedpubError(
            f"the graph of `like` learns {some(like.classes)}, not {some(want.columns)}; give the same columns in the "
            "same order"
        )
    read = _truth if want.aim == "labels" else _number
    parts = [read(table, column) if column in table else np.full(n, np.nan) for column in want.columns]
    target = torch.from_numpy(np.column_stack(parts))
    if like is None and bool(target.isnan().all()):
        raise FedpubError(f"{table.source}: {some(want.columns)} is empty in every row; fill in at least one node")
    return Learnt(torch.full((n,), NO_LABEL), target, want.columns)


def fit_classes(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels in order; in numerical order if all are numbers."""
    distinct = sorted(set(labels))
    try:
        numbers = {label: float(label) for label in distinct}
    except ValueError:
        return tuple(distinct)
    return tuple(sorted(distinct, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else distinct)


def _classes(table: Table, want: Wanted) -> tuple[str, ...]:
    column = want.columns[0]
    labels = table.text(column).drop_null()
    found = fit_classes(pc.unique(labels).to_pylist())
    if not found:
        raise FedpubError(f"{table.source}: column {column!r} is empty in every row; label at least one node")
    if len(found) < 2:
        raise FedpubError(
            f"{table.source}: every label in column {column!r} is {found[0]!r}; "
            "classification needs at least two classes, so choose another `label` column or add nodes"
        )
    if len(found) > FEW_CLASSES and not want.many_classes:
        fractions = _are_fractions(found)
        if fractions or len(labels) < NODES_PER_CLASS * len(found):
            kind = "numbers" if fractions else "values"
            raise FedpubError(
                f"{table.source}: column {column!r} has {len(found):,} different {kind} in {len(labels):,} rows, too "
                "many to be classes; group them, choose another `label` column, learn a quantity with "
                f"`number={column}`, or confirm with `many_classes=True`"
            )
    return found


def _are_fractions(labels: Sequence[str]) -> bool:
    """Whether all are numbers and some are not integers: a quantity rather than a class."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _labels(table: Table, name: str, classes: Sequence[str]) -> Tensor:
    """The class of every row, -1 where the label is missing."""
    labels = table.text(name)
    codes = pc.index_in(labels, value_set=pa.array(classes, labels.type))
    row = first_row(pc.and_(pc.is_null(codes), pc.is_valid(labels)), True)
    if row >= 0:
        raise FedpubError(
            f"{table.place(row)}: label {labels[row].as_py()!r} is not in the encoding given with `like`; "
            f"correct it, or import every site again with all classes (now {some(classes)})"
        )
    return torch.from_numpy(pc.fill_null(codes, NO_LABEL).to_numpy(zero_copy_only=False).astype(np.int64))


def _truth(table: Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column of 0 and 1 or false and true, NaN where it is empty."""
    texts = pc.utf8_lower(table.text(name))
    codes = pc.index_in(texts, value_set=pa.array(TRUTH, texts.type))
    row = first_row(pc.and_(pc.is_null(codes), pc.is_valid(texts)), True)
    if row >= 0:
        raise FedpubError(
            f"{table.place(row)}: {texts[row].as_py()!r} in column {name!r} is neither 0 nor 1; with `labels`, every "
            "column says whether a node has one label"
        )
    found = codes.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(found % 2, dtype=np.float64)


def _number(table: Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column of numbers, NaN where it is empty."""
    found = table.numbers(name)
    wrong = np.flatnonzero(np.isinf(found))
    if len(wrong):
        row = int(wrong[0])
        raise FedpubError(f"{table.place(row)}: {found[row]} in column {name!r} is not finite; correct it or empty it")
    return found
