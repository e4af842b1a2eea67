"""How the columns of a table become features: decided once, stored with the graph, the same at every site.

Axes: N nodes, F features.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy
from fedpub.data.graph import NO_LABEL, Graph
from fedpub.data.tables.files import Table, are_numbers, first_row
from fedpub.errors import FedpubError

META_KEY = "encoding"  # where a graph keeps its encoding
MAX_CATEGORIES = 100
TOO_LARGE = 1e30  # the square of a larger number may overflow in means and deviations
SPARSE_FROM, SPARSE_BELOW = 64, 0.1  # with more features and a smaller share of non-zeros, they are stored sparse
SHOWN = 8
TRUTH = ("false", "true", "0", "1")

Floats = np.ndarray[Any, np.dtype[np.float64]]
Kind = Literal["numeric", "boolean", "category", "degree"]


@dataclass(frozen=True)
class Column:
    """How one column becomes features; `degree` is log(1 + degree of the node), for tables without features."""

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.categories) if self.kind == "category" else 1

    def __str__(self) -> str:
        if self.kind == "boolean":
            return "feature: 0 or 1"
        if self.kind == "category":
            return f"{self.width} features, one-hot: {some(self.categories)}"
        return f"feature: standardised, mean {self.mean:.4g} and deviation {self.std:.4g} become 0 and 1"


@dataclass(frozen=True)
class Encoding:
    """What all sites must share: the columns in order, and the classes."""

    columns: tuple[Column, ...]
    classes: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Encoding:
        loaded = json.loads(text)
        columns = (Column(**{**column, "categories": tuple(column["categories"])}) for column in loaded["columns"])
        return Encoding(tuple(columns), tuple(loaded["classes"]))

    @staticmethod
    def read(path: Path) -> Encoding:
        """The encoding of an imported graph, or one in a JSON file of its own."""
        try:
            if path.suffix == ".json":
                return Encoding.from_json(path.read_text(encoding="utf-8"))
            return Encoding.from_json(Graph.load(path, labelled=False).meta[META_KEY])
        except FileNotFoundError as error:
            raise FedpubError(f"there is no file {path}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedpubError(
                f"{path} has no encoding of columns; give a graph or an encoding that fedpub data import wrote"
            ) from error


def some(names: Sequence[str]) -> str:
    """The first few names, to keep a sentence short."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def fit_column(table: Table, name: str, categorical: bool = False) -> Column | str:
    """How to encode a column, or why it is left out; a `categorical` one is one-hot even if it holds numbers."""
    remedy = f"correct it, or leave the column out with `drop={name}`"
    content = table.content(name)
    if categorical and content in ("numbers", "truth values", "text"):
        count = len(pc.unique(table.text(name).drop_null()))
        if count > MAX_CATEGORIES:
            raise FedpubError(
                f"{table.source}: column {name!r} has {count:,} different values, more than the {MAX_CATEGORIES} that "
                "a `categorical` column may have; group them, such as zip codes by their first digits"
            )
        return _fit_text(table, name, remedy)
    match content:
        case "nothing":
            return "left out: every cell is empty"
        case "other":
            kind = table.type_name(name)
            return f"left out: {kind} is neither numbers, text nor truth values; convert it to one of these"
        case "numbers":
            values = _numbers(table, name, remedy)
            return _fit_numbers(name, "numeric", values) or f"left out: always {values[0]:g}"
        case "truth values":
            codes = _codes(table.text(name), TRUTH, table, name, remedy)
            return f"left out: always {TRUTH[codes[0]]}" if codes.min() == codes.max() else Column(name, "boolean")
        case "text":
            return _fit_text(table, name, remedy)


def _fit_text(table: Table, name: str, remedy: str) -> Column | str:
    texts = table.text(name)
    categories = sorted(pc.unique(texts.drop_null()).to_pylist())
    if len(categories) > MAX_CATEGORIES:
        numbers = are_numbers(texts)
        if 2 * pc.sum(numbers).as_py() > len(texts):  # one typo must not turn a numeric column into text
            row = first_row(numbers, False)
            raise FedpubError(
                f"{table.place(row)}: {texts[row].as_py()!r} in column {name!r} is not a number, as most are; {remedy}"
            )
        return (
            f"left out: text with {len(categories):,} different values, more than {MAX_CATEGORIES}; "
            "group them, or convert them to numbers"
        )
    _codes(texts, categories, table, name, remedy)
    if len(categories) == 1:
        return f"left out: always {categories[0]}"
    return Column(name, "category", categories=tuple(categories))


def fit_degree(degree_N: Tensor) -> Column:
    """The only feature of a graph without feature columns."""
    # If all nodes have the same degree it is not standardised, which would make it zero.
    return _fit_numbers("degree", "degree", _log_degree(degree_N)) or Column("degree", "degree")


def fit_classes(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels in order; in numerical order if all are numbers."""
    distinct = sorted(set(labels))
    try:
        numbers = {label: float(label) for label in distinct}
    except ValueError:
        return tuple(distinct)
    return tuple(sorted(distinct, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else distinct)


def encode(columns: Sequence[Column], table: Table, degree_N: Tensor) -> Tensor:
    """The features [N, F] of a table; dense or sparse depending on the columns only, so that all sites agree."""
    n, width = len(degree_N), sum(column.width for column in columns)
    offset = np.cumsum([0, *(column.width for column in columns)])
    blocks = (_encode_column(column, table, degree_N) for column in columns)
    if width > SPARSE_FROM and len(columns) < SPARSE_BELOW * width:
        entries = [(start + codes, values) for start, (codes, values) in zip(offset[:-1], blocks, strict=True)]
        index, value = (np.stack(part, axis=1).ravel() for part in zip(*entries, strict=True))
        x = sp.csr_matrix((value, index, np.arange(n + 1) * len(columns)), shape=(n, width))
        x.eliminate_zeros()
        return from_scipy(x)
    x_NF = np.zeros((n, width), dtype=np.float32)
    for start, (codes, values) in zip(offset[:-1], blocks, strict=True):
        x_NF[np.arange(n), start + codes] = values
    return torch.from_numpy(x_NF)


def encode_degree(column: Column, degree_N: Tensor) -> Tensor:
    """The features [N, 1] of a graph without feature columns."""
    return torch.from_numpy(_standardise(column, _log_degree(degree_N))).unsqueeze(1)


def encode_labels(table: Table, name: str, classes: Sequence[str]) -> Tensor:
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


def _encode_column(column: Column, table: Table, degree_N: Tensor) -> tuple[Any, Any]:
    """For each row, the one feature of the column's block that is set, and its value."""
    remedy = "correct it: the encoding needs it"
    match column.kind:
        case "category":
            codes = _codes(table.text(column.name), column.categories, table, column.name, remedy)
            return codes, np.ones(len(codes), dtype=np.float32)
        case "boolean":
            codes = _codes(pc.utf8_lower(table.text(column.name)), TRUTH, table, column.name, remedy)
            return np.zeros_like(codes), (codes % 2).astype(np.float32)
        case "numeric":
            values = _numbers(table, column.name, remedy)
        case "degree":
            values = _log_degree(degree_N)
    return np.zeros(len(values), dtype=np.int64), _standardise(column, values)


def _standardise(column: Column, values: Floats) -> np.ndarray[Any, np.dtype[np.float32]]:
    return ((values - column.mean) / column.std).astype(np.float32)


def _fit_numbers(name: str, kind: Kind, values: Floats) -> Column | None:
    """The column with its mean and deviation; None if it is constant."""
    std = float(values.std())
    # By rounding, a constant 0.1 has a deviation above 0, and numbers near the smallest float one of 0.
    return None if values.min() == values.max() or std == 0 else Column(name, kind, float(values.mean()), std)


def _numbers(table: Table, name: str, remedy: str) -> Floats:
    values = table.numbers(name)
    wrong = np.flatnonzero(~(np.abs(values) < TOO_LARGE))  # NaN is not less than anything
    if len(wrong):
        row, value = int(wrong[0]), values[wrong[0]]
        problem = (
            "is missing" if np.isnan(value) else "is not finite" if np.isinf(value) else f"is too large ({value:g})"
        )
        raise FedpubError(f"{table.place(row)}: feature {name!r} {problem}; {remedy}")
    return values


def _codes(texts: pa.Array, known: Sequence[str], table: Table, name: str, remedy: str) -> Any:
    """The position of every text among the known ones."""
    codes = pc.index_in(texts, value_set=pa.array(known, texts.type))
    row = first_row(codes, None)
    if row >= 0:
        value = texts[row].as_py()
        problem = "is missing" if value is None else f"has the unknown value {value!r}, not one of {some(known)}"
        raise FedpubError(f"{table.place(row)}: feature {name!r} {problem}; {remedy}")
    return codes.to_numpy().astype(np.int64)


def _log_degree(degree_N: Tensor) -> Floats:
    return np.log1p(degree_N.numpy().astype(np.float64))
