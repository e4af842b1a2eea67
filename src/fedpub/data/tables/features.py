"""The features of the nodes, made of the columns of their table.

Axes: N nodes, F features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import scipy.io
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy
from fedpub.core.steps import Step, silent
from fedpub.data.tables import values
from fedpub.data.tables.encoding import MATRIX, Column
from fedpub.data.tables.fitting import log_degree
from fedpub.data.tables.table import Floats, Table
from fedpub.errors import FedpubError

SPARSE_FROM, SPARSE_BELOW = 64, 0.1  # with more features and a smaller share of non-zeros, they are stored sparse
MATRICES = (".mtx", ".npz")
REMEDY = "correct it: the encoding needs it"


def encode(columns: Sequence[Column], table: Table, matrix_NF: Any | None = None, step: Step = silent) -> Tensor:
    """The features [N, F] of a table and of a matrix beside it; sparse if there are many and most are zero."""
    n, width = len(table), sum(column.width for column in columns)
    blocks = _blocks(columns, table, matrix_NF, step)
    if width <= SPARSE_FROM:
        return _dense(blocks, n, width)
    kept, entries = [], 0
    for block in blocks:
        kept.append(block)
        entries += block.nnz
        if entries >= SPARSE_BELOW * n * width:
            return _dense(chain(kept, blocks), n, width)
    return from_scipy(sp.hstack(kept, format="csc"))


def _blocks(columns: Sequence[Column], table: Table, matrix_NF: Any | None, step: Step) -> Iterator[Any]:
    for done, column in enumerate(columns):
        step("features", done, len(columns))
        block = matrix_NF if column.kind == "matrix" else _encode_column(column, table)
        yield sp.csc_matrix(block, dtype=np.float32)


def _dense(blocks: Iterable[Any], n: int, width: int) -> Tensor:
    x_NF, start = np.zeros((n, width), dtype=np.float32), 0
    for block in blocks:
        x_NF[:, start : start + block.shape[1]] = block.toarray()
        start += block.shape[1]
    return torch.from_numpy(x_NF)


def encode_degree(column: Column, degree_N: Tensor) -> Tensor:
    """The features [N, 1] of a graph without feature columns."""
    return torch.from_numpy(_standardised(column, log_degree(degree_N)).astype(np.float32)).unsqueeze(1)


def read_matrix(path: Path, rows: int) -> Any:
    """Features from a Matrix Market file or a sparse matrix that SciPy saved, a row for every node."""
    if path.suffix.lower() not in MATRICES:
        raise FedpubError(f"{path} has the suffix {path.suffix!r}; give features that end in {' or '.join(MATRICES)}")
    try:
        x_NF = scipy.io.mmread(path) if path.suffix.lower() == ".mtx" else sp.load_npz(path)
        x_NF = sp.csc_matrix(x_NF)
    except FileNotFoundError as error:
        raise FedpubError(f"there is no file {path}") from error
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FedpubError(
            f"{path} cannot be read ({reason}); save it with scipy.io.mmwrite or scipy.sparse.save_npz"
        ) from error
    if x_NF.shape[0] != rows:
        raise FedpubError(
            f"{path} has {x_NF.shape[0]:,} rows for {rows:,} nodes; give a row for every row of the node table, in its "
            "order"
        )
    if x_NF.shape[1] == 0 or x_NF.dtype.kind not in "biuf":
        raise FedpubError(f"{path} holds {x_NF.shape[1]} columns of {x_NF.dtype}; give features that are real numbers")
    wrong = np.flatnonzero(~(np.abs(x_NF.data.astype(np.float64)) < values.TOO_LARGE))
    if len(wrong):
        row, column = int(x_NF.indices[wrong[0]]), int(np.searchsorted(x_NF.indptr, wrong[0], side="right")) - 1
        raise FedpubError(
            f"{path}: {x_NF.data[wrong[0]]:g} in row {row + 1} and column {column + 1} is not a finite number below "
            f"{values.TOO_LARGE:g}; correct it"
        )
    return x_NF


def fit_matrix(matrix_NF: Any) -> Column:
    return Column(MATRIX, "matrix", size=matrix_NF.shape[1])


def _encode_column(column: Column, table: Table) -> Any:
    """The features [N, width] of one column; the last one says which cells are missing, if a rule allows that."""
    name, missing = column.name, column.missing
    match column.kind:
        case "category":
            return _one_hot(
                values.codes(table, table.text(name), column.categories, name, missing, REMEDY), column.width
            )
        case "hashed":
            return _one_hot(_hashes(table, column), column.width)
        case "boolean":
            lower = pc.utf8_lower(table.text(name))
            truth = values.codes(table, lower, values.TRUTH, name, missing, REMEDY)
            gone = truth == len(values.TRUTH)
            return _beside(column, [np.where(gone, 0, truth % 2)], gone)
        case "time":
            day, clock, gone = values.times(table, name, missing, REMEDY)
            angle = 2 * np.pi * clock
            parts = [_standardised(column, day), np.sin(angle), np.cos(angle)][: column.size]
            return _beside(column, [np.where(gone, 0, part) for part in parts], gone)
        case "bag" | "vector":
            return _listed(column, table)
    found, gone = values.numbers(table, name, missing, REMEDY)
    found[gone] = 0 if missing == "zero" else column.mean
    return _beside(column, [found if column.kind == "plain" else _standardised(column, found)], gone)


def _beside(column: Column, parts: list[Any], gone: values.Bools) -> Any:
    return np.column_stack([*parts, gone] if column.missing != "refuse" else parts)


def _one_hot(codes: values.Ints, width: int) -> Any:
    n = len(codes)
    return sp.csr_matrix((np.ones(n, dtype=np.float32), codes, np.arange(n + 1)), shape=(n, width))


def _hashes(table: Table, column: Column) -> values.Ints:
    """The feature of every text: its BLAKE2b hash modulo the number of features, the same everywhere."""
    found = values.texts(table, column.name, column.missing, REMEDY).dictionary_encode()
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in found.dictionary.to_pylist())
    feature = np.array([int.from_bytes(digest) % column.size for digest in digests] + [column.size])
    codes = pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False)
    return np.asarray(feature[codes])  # a missing text has the last one


def _listed(column: Column, table: Table) -> Any:
    lists = table.lists(column.name)
    values.check_lists(table, column, lists)
    found = lists.flatten().to_numpy(zero_copy_only=False)
    if column.kind == "vector":
        return found.reshape(len(table), column.size)
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(length)])
    ones = np.ones(len(found), dtype=np.float32)
    bags = sp.csr_matrix((ones, found.astype(np.int64), ends), shape=(len(table), column.size))
    bags.sum_duplicates()  # a number that is twice in a list counts twice
    return bags


def _standardised(column: Column, found: Floats) -> Floats:
    return (found - column.mean) / column.std
