"""Sparse matrices: to and from scipy, and their products."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 2**14  # of dense features, converted to a sparse matrix at a time


def csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not len(indices):  # NumPy's empty arrays may have a stride of 0, which some versions of torch refuse
        indices, values = torch.empty(0, dtype=indices.dtype), torch.empty(0, dtype=values.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=True)


def to_scipy(x: Tensor) -> Any:
    """A SciPy CSR matrix of a dense or sparse tensor."""
    if x.layout == torch.sparse_csr:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        return sp.csr_matrix(parts, shape=tuple(x.shape))
    return sp.csr_matrix(x.numpy())


def _row_blocks(x: Tensor) -> Iterator[Any]:
    """The rows as SciPy CSR matrices, column indices sorted: all at once, or `ROWS` at a time if `x` is dense."""
    for block in [x] if x.layout == torch.sparse_csr else torch.split(x, ROWS):
        made = to_scipy(block)
        made.sort_indices()
        yield made


def from_scipy(x: Any) -> Tensor:
    """A sparse CSR tensor of a SciPy matrix, column indices sorted."""
    x = x.tocsr()
    x.sort_indices()
    index = (torch.from_numpy(x.indptr.astype(np.int64)), torch.from_numpy(x.indices.astype(np.int64)))
    return csr(*index, torch.from_numpy(x.data), x.shape)


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    return from_scipy(to_scipy(x)[rows.numpy()]) if x.layout == torch.sparse_csr else x[rows]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse features of all clients as one matrix: client k's columns are k·F .. k·F + F − 1."""

    forward: Tensor  # CSR [N, K·F]
    backward: Tensor  # its transpose, CSR [K·F, N]


def transposed(matrix: Tensor, rows: Tensor, moved_M: Tensor, columns: int) -> SparseRows:
    """Some rows of a CSR matrix and their transpose, with the columns of every row moved by a number of its own."""
    pointer = matrix.crow_indices()
    first_M, count_M = pointer[rows], pointer[rows + 1] - pointer[rows]
    start = torch.cat([count_M.new_zeros(1), count_M.cumsum(0)])
    of_row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), count_M)
    entry = first_M[of_row] + torch.arange(len(of_row), device=rows.device) - start[of_row]
    column, value = matrix.col_indices()[entry] + moved_M[of_row], matrix.values()[entry]
    order = column.argsort(stable=True)
    across = torch.searchsorted(column[order], torch.arange(columns + 1, device=rows.device))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        parts = (
            (start, column, value, (len(rows), columns)),
            (across, of_row[order], value[order], (columns, len(rows))),
        )
        made = [torch.sparse_csr_tensor(*part, check_invariants=False) for part in parts]
    return SparseRows(*made)


def propagate(adjacency: SparseRows, h_NH: Tensor) -> Tensor:
    """One step along the edges: the adjacency of all clients times their nodes' values."""
    product: Tensor = _SparseMatmul.apply(h_NH, adjacency.forward, adjacency.backward)  # type: ignore[no-untyped-call]
    return product


def sparse_matmul(sparse: Tensor, dense: Tensor) -> Tensor:
    """A CSR matrix times a dense one.

    In single precision on a CPU, as bags of rows: up to five times faster than torch's sparse product. Otherwise
    without `@`, which fills the result with zeros and copies it first, and takes longer for that than for the product.
    """
    if dense.device.type == "cpu" and dense.dtype == torch.float32 and sparse._nnz():
        index, pointer = sparse.col_indices(), sparse.crow_indices()
        return torch.embedding_bag(dense.contiguous(), index, pointer, False, 0, False, sparse.values(), True)[0]
    out = dense.new_empty(sparse.shape[0], dense.shape[1])
    return torch.addmm(out, sparse, dense, beta=0, out=out)


class _SparseMatmul(torch.autograd.Function):
    """A constant sparse matrix times a dense one, with its transpose for the gradient."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
        ctx.transpose = backward
        return sparse_matmul(forward, dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return sparse_matmul(ctx.transpose, gradient), None, None
