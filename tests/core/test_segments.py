"""Products of stacked clients equal a plain loop over clients, forward and backward, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd import gradcheck

from fedpub.core.segments import Segments, rows_matmul, segment_add, segment_matmul
from fedpub.core.sparse import SparseRows, from_scipy, propagate, sparse_matmul

F, H = 3, 2
SIZES = [(4,), (2, 2, 2), (3, 1, 4), (2, 0, 3), (1, 1)]


def plain(*sizes: int) -> Segments:
    return Segments.of(list(sizes), torch.float64, torch.device("cpu"))


def padded(*sizes: int) -> Segments:
    """The layout that a GPU uses: client k's rows begin at k times the largest size."""
    slots = [client * max(sizes) + row for client, size in enumerate(sizes) for row in range(size)]
    return replace(plain(*sizes), slot_N=torch.tensor(slots))


LAYOUTS = pytest.mark.parametrize("layout", [plain, padded])
ALL_SIZES = pytest.mark.parametrize("sizes", SIZES, ids=str)
Layout = Callable[..., Segments]


def randn(*shape: int) -> Tensor:
    stream = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=stream, dtype=torch.float64).requires_grad_()


def loop(x_NF: Tensor, w_KFH: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return torch.cat([part @ w for part, w in zip(x_NF.split(sizes), w_KFH, strict=True)])


def gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of a sum in which no two outputs have the same weight."""
    weight = torch.arange(1.0, out.numel() + 1, dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * weight).sum(), inputs)


def assert_all_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_segments_by_hand() -> None:
    own = plain(2, 0, 3)
    assert own.owner_N.tolist() == [0, 0, 2, 2, 2]
    assert own.row_N.tolist() == [0, 1, 0, 1, 2]
    assert own.spans == [(0, 2), (2, 2), (2, 5)]
    assert own.member_KN.to_dense().tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert own.slot_N is None, "a CPU does not pad"
    assert not own.uniform
    assert plain(2, 2).uniform


def test_pad_and_unpad_by_hand() -> None:
    own = padded(1, 3)
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    assert own.pad(x).tolist() == [[[1], [0], [0]], [[2], [3], [4]]]
    assert torch.equal(own.unpad(own.pad(x)), x)


def test_segment_matmul_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    w = torch.tensor([[[1.0], [10.0]], [[2.0], [0.0]]], dtype=torch.float64)
    assert segment_matmul(x, w, plain(1, 2)).tolist() == [[21], [6], [10]]


@ALL_SIZES
@LAYOUTS
def test_segment_matmul(sizes: tuple[int, ...], layout: Layout) -> None:
    x, w = randn(sum(sizes), F), randn(len(sizes), F, H)
    out = segment_matmul(x, w, layout(*sizes))
    expected = loop(x, w, sizes)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert_all_close(gradients(out, x, w), gradients(expected, x, w))
    assert gradcheck(lambda x, w: segment_matmul(x, w, layout(*sizes)), (x, w))


@ALL_SIZES
@LAYOUTS
def test_only_the_weights_have_a_gradient(sizes: tuple[int, ...], layout: Layout) -> None:
    """Layer one: the inputs are fixed, and their gradient is not computed."""
    x, w = randn(sum(sizes), F).detach(), randn(len(sizes), F, H)
    out = rows_matmul(x, w, layout(*sizes))
    assert_all_close(gradients(out, w), gradients(loop(x, w, sizes), w))
    assert x.grad is None


@ALL_SIZES
def test_rows_matmul_with_sparse_inputs(sizes: tuple[int, ...]) -> None:
    x = randn(sum(sizes), F).detach() * (randn(sum(sizes), F).detach().roll(1, 0) > 0)
    parts = [sp.csr_matrix(part.numpy()) for part in x.split(sizes)]
    stacked = sp.block_diag(parts, format="csr")
    rows = SparseRows(from_scipy(stacked), from_scipy(stacked.T))
    w = randn(len(sizes), F, H)
    out, expected = rows_matmul(rows, w, plain(*sizes)), loop(x, w, sizes)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert_all_close(gradients(out, w), gradients(expected, w))
    assert gradcheck(lambda w: rows_matmul(rows, w, plain(*sizes)), (w,))


@ALL_SIZES
@LAYOUTS
def test_segment_add(sizes: tuple[int, ...], layout: Layout) -> None:
    x, b = randn(sum(sizes), H), randn(len(sizes), H)
    out = segment_add(x, b, layout(*sizes))
    expected = torch.cat([part + bias for part, bias in zip(x.split(sizes), b, strict=True)])
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    assert_all_close(gradients(out, x, b), gradients(expected, x, b))
    assert gradcheck(lambda x, b: segment_add(x, b, layout(*sizes)), (x, b))


def test_propagate() -> None:
    """Along directed edges, so that a matrix in the place of its transpose would be seen."""
    a = sp.csr_matrix([[0.0, 2.0, 0.0], [0.0, 0.0, 0.5], [1.0, 0.0, 3.0]])
    adjacency = SparseRows(from_scipy(a), from_scipy(a.T))
    h = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64, requires_grad=True)
    assert propagate(adjacency, h).tolist() == [[6, 8], [2.5, 3], [16, 20]]
    (gradient,) = torch.autograd.grad(propagate(adjacency, h)[:, 0].sum(), h)
    assert gradient.tolist() == [[1, 0], [2, 0], [3.5, 0]], "the column sums of the matrix"
    assert gradcheck(lambda h: propagate(adjacency, h), (h,))


@LAYOUTS
def test_gradients_that_are_not_contiguous(layout: Layout) -> None:
    """`sum` and a transpose hand back expanded and strided gradients."""
    sizes = (3, 1, 4)
    x, w, b = randn(8, F), randn(3, F, H), randn(3, H)
    mine = segment_add(segment_matmul(x, w, layout(*sizes)), b, layout(*sizes))
    naive = loop(x, w, sizes) + b.repeat_interleave(torch.tensor(sizes), 0)
    weight = torch.arange(16.0, dtype=torch.float64).view(H, 8)
    for reduce in (torch.sum, lambda out: (out.T * weight).sum()):
        found, expected = (torch.autograd.grad(reduce(out), (x, w, b), retain_graph=True) for out in (mine, naive))
        assert_all_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_products_of_any_shape(dtype: torch.dtype) -> None:
    """In single precision another kernel does them: rows without entries, no entries at all, strided operands."""
    stream = torch.Generator().manual_seed(0)
    matrix = torch.randn(6, 4, generator=stream, dtype=dtype) * (torch.rand(6, 4, generator=stream) > 0.6)
    matrix[2] = 0
    matrix[5] = 0
    operand = torch.randn(3, 4, generator=stream, dtype=dtype).T
    for one in (matrix, torch.zeros(6, 4, dtype=dtype), matrix[:0]):
        torch.testing.assert_close(sparse_matmul(one.to_sparse_csr(), operand), one @ operand)
