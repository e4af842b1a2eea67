"""Products of stacked clients: every client's rows with its own weights, without padding to the largest.

Axes: K clients, N nodes of all clients one after the other, F inputs, H outputs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedpub.core.sparse import SparseRows, _SparseMatmul, propagate, sparse_matmul

# Clients are padded to the largest, so that one kernel computes all of them, if that costs at most a quarter more. On a
# CPU only small clients are padded: in a loop over them, calls would take most of the time.
PADDING, SMALL = 1.25, 256


@dataclass(frozen=True, eq=False)
class Segments:
    """Which rows belong to which client."""

    sizes: tuple[int, ...]  # rows of each client
    owner_N: Tensor  # the client of each row
    row_N: Tensor  # the row's number within its client
    member_KN: Tensor  # sparse CSR: the row of client k is one at its nodes
    slot_N: Tensor | None  # the row's place in the padded layout, if that is used

    @staticmethod
    def of(sizes: list[int], dtype: torch.dtype, device: torch.device, row_N: Tensor | None = None) -> Segments:
        """Clients of these sizes, one after another; `row_N` has other numbers of the rows within their clients."""
        from fedpub.core.sparse import csr

        count = torch.tensor(sizes)
        owner_N = torch.repeat_interleave(torch.arange(len(sizes)), count)
        start = torch.cumsum(count, 0) - count
        n = len(owner_N)
        place_N = torch.arange(n) - start[owner_N]
        pointer = torch.cat([start, torch.tensor([n])])
        member = csr(pointer, torch.arange(n), torch.ones(n, dtype=dtype), (len(sizes), n))
        slot_N = None
        small = device.type != "cpu" or n <= SMALL * len(sizes)
        if small and len(sizes) * max(sizes) <= PADDING * n:
            slot_N = (owner_N * max(sizes) + place_N).to(device)
        row_N = place_N.to(device) if row_N is None else row_N
        return Segments(tuple(sizes), owner_N.to(device), row_N, member.to(device), slot_N)

    @property
    def uniform(self) -> bool:
        return len(set(self.sizes)) == 1

    @property
    def spans(self) -> list[tuple[int, int]]:
        ends = [0]
        for size in self.sizes:
            ends.append(ends[-1] + size)
        return list(pairwise(ends))

    def pad(self, x_NF: Tensor) -> Tensor:
        """[K, largest, F] with zeros after each client's rows."""
        assert self.slot_N is not None
        padded = x_NF.new_zeros(len(self.sizes) * max(self.sizes), x_NF.shape[1])
        padded.index_copy_(0, self.slot_N, x_NF)
        return padded.view(len(self.sizes), max(self.sizes), x_NF.shape[1])

    def unpad(self, x_KMF: Tensor) -> Tensor:
        assert self.slot_N is not None
        return x_KMF.flatten(0, 1).index_select(0, self.slot_N)


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Dense features, every client padded to the largest, so that a GPU does not pad them again each time."""

    x_KMF: Tensor


Rows = Tensor | SparseRows | PaddedRows


def rows_matmul(x: Rows, w_KFH: Tensor, segments: Segments) -> Tensor:
    """Fixed inputs times weights: [N, H]; only the weights have a gradient."""
    if isinstance(x, SparseRows):
        product: Tensor = _SparseMatmul.apply(w_KFH.flatten(0, 1), x.forward, x.backward)  # type: ignore[no-untyped-call]
        return product
    if isinstance(x, PaddedRows):
        return _Unpad.apply(torch.bmm(x.x_KMF, w_KFH), segments)  # type: ignore[no-untyped-call, no-any-return]
    if x.device.type == "cpu" and segments.slot_N is not None:  # padding wide inputs costs more than it saves
        segments = replace(segments, slot_N=None)
    return segment_matmul(x, w_KFH, segments)


def segment_matmul(x_NF: Tensor, w_KFH: Tensor, segments: Segments) -> Tensor:
    """Every client's rows times its weights: [N, H]."""
    k = len(segments.sizes)
    if segments.uniform:
        return torch.bmm(x_NF.view(k, segments.sizes[0], x_NF.shape[1]), w_KFH).flatten(0, 1)
    product: Tensor = _SegmentMatmul.apply(x_NF, w_KFH, segments)  # type: ignore[no-untyped-call]
    return product


def segment_add(x_NH: Tensor, b_KH: Tensor, segments: Segments) -> Tensor:
    """Every client's bias added to its rows."""
    if len(segments.sizes) == 1:
        return x_NH + b_KH
    added: Tensor = _SegmentAdd.apply(x_NH, b_KH, segments)  # type: ignore[no-untyped-call]
    return added


def rows_step(x: Rows, propagated: Rows | None, w_KFH: Tensor, segments: Segments, adjacency: SparseRows) -> Tensor:
    """Features after one step along the edges, times weights: [N, H]."""
    if propagated is None:
        return propagate(adjacency, rows_matmul(x, w_KFH, segments))
    return rows_matmul(propagated, w_KFH, segments)


def pair_product(z_NH: Tensor, pairs: Tensor) -> Tensor:
    """z_u · z_v of pairs [2, P], all at once: [P]."""
    product: Tensor = _PairProduct.apply(z_NH, pairs)  # type: ignore[no-untyped-call]
    return product


class _PairProduct(torch.autograd.Function):
    """The gradient adds many rows to each node: several times faster as a sparse product than row by row."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: Tensor) -> Tensor:
        ctx.save_for_backward(z, pairs)
        return (z.index_select(0, pairs[0]) * z.index_select(0, pairs[1])).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        z, pairs = ctx.saved_tensors
        end, order = pairs.flatten().sort(stable=True)  # in a fixed order, so that sums are the same every time
        other = pairs.flip(0).flatten()[order]
        pointer = torch.searchsorted(end, torch.arange(len(z) + 1, device=z.device))
        values = gradient.repeat(2)[order]
        size = (len(z), len(z))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            mixing = torch.sparse_csr_tensor(pointer, other, values, size=size, check_invariants=False)
        return sparse_matmul(mixing, z), None


class _Unpad(torch.autograd.Function):
    """The gradient copies rows to their places: these are distinct, so the slower sum over rows is not needed."""

    @staticmethod
    def forward(ctx: Any, x_KMH: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return segments.unpad(x_KMH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.segments.pad(gradient), None


class _SegmentMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        if segments.slot_N is not None:
            padded = segments.pad(x)
            ctx.save_for_backward(padded, w)
            return segments.unpad(torch.bmm(padded, w))
        ctx.save_for_backward(x, w)
        out = x.new_empty(x.shape[0], w.shape[2])
        for client, (start, end) in enumerate(segments.spans):
            torch.mm(x[start:end], w[client], out=out[start:end])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, w = ctx.saved_tensors
        segments: Segments = ctx.segments
        wants_x = ctx.needs_input_grad[0]
        if segments.slot_N is not None:
            padded = segments.pad(gradient)
            dx = segments.unpad(torch.bmm(padded, w.mT)) if wants_x else None
            return dx, torch.bmm(x.mT, padded), None
        dx = torch.empty_like(x) if wants_x else None
        dw = torch.empty_like(w)
        for client, (start, end) in enumerate(segments.spans):
            own = gradient[start:end]
            if dx is not None:
                torch.mm(own, w[client].T, out=dx[start:end])
            torch.mm(x[start:end].T, own, out=dw[client])
        return dx, dw, None


class _SegmentAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor, segments: Segments) -> Tensor:
        ctx.segments = segments
        return x + b[segments.owner_N]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        segments: Segments = ctx.segments
        return gradient, sparse_matmul(segments.member_KN, gradient), None
