"""K stacked subgraphs: one block-diagonal adjacency, the nodes of all clients concatenated.

Axes: K clients, N nodes of all clients, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.segments import PaddedRows, Rows, Segments
from fedpub.core.sparse import SparseRows, from_scipy
from fedpub.data.clients.links import StackedLinks, stack_links
from fedpub.data.clients.subgraph import Subgraph

Made = TypeVar("Made")
# On a CPU, inputs with a smaller share of non-zeros use a sparse product. In single precision it breaks even a little
# below a half (`fedpub bench sparse`); in other types, with torch's own sparse product, below a tenth.
SPARSE_BELOW = {torch.float32: 0.45, torch.float64: 0.05}


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients that are computed together: all in the simulator, one at a site."""

    ids_K: Tensor
    segments: Segments
    x: Rows
    propagated: Rows | None  # after one step of message passing; None where it is cheaper to take that step each time
    adjacency: SparseRows  # [N, N]
    y_N: Tensor
    train_N: Tensor  # bool
    val_N: Tensor
    test_N: Tensor
    num_train_K: Tensor  # training examples: nodes, or edges for link prediction
    train_rows: Tensor  # the positions of the training nodes
    seen_x_KF: Tensor  # bool: which columns of x a client has a value in; the others cannot affect its model
    seen_propagated_KF: Tensor
    report: Report
    val_report: Report  # restricted to validation and test nodes
    test_report: Report
    num_features: int
    num_classes: int
    links: StackedLinks | None = None
    made: dict[Hashable, Any] = field(default_factory=dict)  # by `once`

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is computed of these clients once, and kept as long as they are."""
        if key not in self.made:
            self.made[key] = make()
        found: Made = self.made[key]
        return found

    @property
    def num_clients(self) -> int:
        return len(self.segments.sizes)

    @property
    def device(self) -> torch.device:
        return self.y_N.device

    @property
    def dtype(self) -> torch.dtype:
        return self.adjacency.forward.dtype


@dataclass(frozen=True, eq=False)
class Report:
    """Which client's result counts which nodes; the oracle's one model is reported for every client."""

    rows_M: Tensor  # positions among the N nodes
    owner_M: Tensor  # the reported client; evaluated links have an owner of their own
    model_R: Tensor  # the model behind each reported client

    @staticmethod
    def of(nodes: tuple[Tensor, ...]) -> Report:
        """One model for all nodes, reported for each client on the nodes that it holds."""
        owner_M = torch.repeat_interleave(torch.arange(len(nodes)), torch.tensor([len(own) for own in nodes]))
        return Report(torch.cat(nodes), owner_M, torch.zeros(len(nodes), dtype=torch.int64))

    @staticmethod
    def own(subgraphs: Sequence[Subgraph]) -> Report:
        """Every client on its own nodes, in the order of the stack."""
        clients, sizes = torch.arange(len(subgraphs)), torch.tensor([own.num_nodes for own in subgraphs])
        owner_N = torch.repeat_interleave(clients, sizes)
        return Report(torch.arange(len(owner_N)), owner_N, clients)

    @property
    def num_clients(self) -> int:
        return len(self.model_R)

    def only(self, chosen_N: Tensor) -> Report:
        """Only the reported nodes that are chosen."""
        inside = chosen_N[self.rows_M]
        return Report(self.rows_M[inside], self.owner_M[inside], self.model_R)

    def to(self, device: torch.device) -> Report:
        return Report(self.rows_M.to(device), self.owner_M.to(device), self.model_R.to(device))


def stack(
    subgraphs: list[Subgraph],
    num_classes: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    report: Report | None = None,
) -> Clients:
    """Any number of clients in one stack; what a client computes does not depend on the others."""
    device = torch.device(device)
    segments = Segments.of([len(own.y) for own in subgraphs], dtype, device)
    adjacency = sp.block_diag([own.adjacency for own in subgraphs], format="csr")
    train_N, val_N, test_N = (torch.cat([getattr(own, part) for own in subgraphs]) for part in ("train", "val", "test"))
    links = [own.links for own in subgraphs if own.links is not None]
    stacked_links = stack_links(links, list(segments.sizes), report is not None) if links else None
    report = report or Report.own(subgraphs)
    further = [own.propagated for own in subgraphs]
    return Clients(
        ids_K=torch.tensor([own.id for own in subgraphs], device=device),
        segments=segments,
        x=_rows([own.x for own in subgraphs], segments, device, dtype),
        propagated=None if step_is_cheaper(subgraphs, device, dtype) else _rows(further, segments, device, dtype),
        adjacency=_sparse(adjacency, device, dtype),
        y_N=torch.cat([own.y for own in subgraphs]).to(device),
        train_N=train_N.to(device),
        val_N=val_N.to(device),
        test_N=test_N.to(device),
        num_train_K=torch.tensor([own.num_train for own in subgraphs], device=device),
        train_rows=torch.nonzero(train_N).flatten().to(device),
        seen_x_KF=_seen([own.x for own in subgraphs]).to(device),
        seen_propagated_KF=_seen(further).to(device),
        report=report.to(device),
        val_report=report.only(val_N).to(device),
        test_report=report.only(test_N).to(device),
        num_features=subgraphs[0].x.shape[1],
        num_classes=num_classes,
        links=stacked_links.to(device) if stacked_links else None,
    )


def step_is_cheaper(subgraphs: list[Subgraph], device: torch.device, dtype: torch.dtype) -> bool:
    """Whether to multiply the sparse features by the weights and then propagate, rather than to multiply the denser
    propagated features: on a CPU, where the time of a sparse product grows with its entries."""
    if device.type != "cpu" or not all(sp.issparse(own.x) for own in subgraphs):
        return False
    before = sum(own.x.nnz + own.adjacency.nnz for own in subgraphs)
    entries = sum(own.x.shape[0] * own.x.shape[1] for own in subgraphs)
    after = sum(own.propagated.nnz for own in subgraphs)
    return bool(before < min(after, SPARSE_BELOW[dtype] * entries))


def _rows(parts: list[Any], segments: Segments, device: torch.device, dtype: torch.dtype) -> Rows:
    """Sparse or padded where that is faster on the device."""
    columns = parts[0].shape[1]  # some versions of torch refuse a sparse matrix without any
    if device.type == "cpu" and columns and all(sp.issparse(part) for part in parts):
        entries = sum(part.shape[0] * columns for part in parts)
        if sum(part.nnz for part in parts) < SPARSE_BELOW[dtype] * entries:
            return _sparse(sp.block_diag(parts, format="csr"), device, dtype)
    dense = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts])
    x_NF = torch.from_numpy(dense).to(device, dtype)
    if device.type == "cpu" or segments.slot_N is None or segments.uniform:
        return x_NF
    return PaddedRows(segments.pad(x_NF))


def _seen(parts: list[Any]) -> Tensor:
    seen_KF = np.zeros((len(parts), parts[0].shape[1]), dtype=bool)
    for client, part in enumerate(parts):
        if sp.issparse(part):
            seen_KF[client, part.indices[part.data != 0]] = True
        else:
            seen_KF[client] = (part != 0).any(0)
    return torch.from_numpy(seen_KF)


def _sparse(matrix: Any, device: torch.device, dtype: torch.dtype) -> SparseRows:
    forward = from_scipy(matrix).to(dtype)
    backward = from_scipy(matrix.T).to(dtype)
    return SparseRows(forward.to(device), backward.to(device))
