"""K stacked subgraphs: one block-diagonal adjacency, the nodes of all clients concatenated.

Axes: K clients, N nodes of all clients, F features.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.segments import PaddedRows, Rows, Segments
from fedpub.core.sparse import SparseRows, from_scipy, propagate, transposed
from fedpub.data.clients.links import StackedLinks, stack_links
from fedpub.data.clients.subgraph import Subgraph

Made = TypeVar("Made")
# On a CPU, inputs with a smaller share of non-zeros use a sparse product. In single precision it breaks even a little
# below a half (`fedpub bench sparse`); in other types, with torch's own sparse product, below a tenth.
SPARSE_BELOW = {torch.float32: 0.45, torch.float64: 0.05}
ROWS = 2**15  # of features, converted at a time


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients that are computed together: all in the simulator, one at a site."""

    ids_K: Tensor
    segments: Segments
    x: Rows
    walks: tuple[Rows | None, ...]  # features after 1, 2, ... steps along each relation's edges, first all steps of the
    # first relation; None if it is cheaper to take the steps each time
    adjacencies: tuple[SparseRows, ...]  # [N, N] of each relation; none if the model does not propagate
    y_N: Tensor
    train_N: Tensor  # bool
    val_N: Tensor
    test_N: Tensor
    num_train_K: Tensor  # training examples: nodes, or edges for link prediction
    train_rows: Tensor  # the positions of the training nodes
    train_count_KC: Tensor  # training nodes of each class, double; of all of them, also if these are some of the nodes
    seen_x_KF: Tensor  # bool: which columns of x a client has a value in; the others cannot affect its model
    seen_walks: tuple[Tensor, ...]  # the same of every one of the walks
    report: Report
    val_report: Report  # restricted to validation and test nodes
    test_report: Report
    num_features: int
    num_classes: int
    links: StackedLinks | None = None
    target_NT: Tensor | None = None  # several labels or a number to learn; NaN: unknown
    maps: tuple[mmap.mmap, ...] = ()  # features in files
    made: dict[Hashable, Any] = field(default_factory=dict)  # by `once`

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is computed of these clients once, and kept as long as they are."""
        if key not in self.made:
            self.made[key] = make()
        found: Made = self.made[key]
        return found

    def rest(self) -> None:
        """Let the system drop features from memory that are in files, too."""
        for one in self.maps:
            one.madvise(mmap.MADV_DONTNEED)

    @property
    def num_clients(self) -> int:
        return len(self.segments.sizes)

    @property
    def device(self) -> torch.device:
        return self.y_N.device

    @property
    def dtype(self) -> torch.dtype:
        return self.segments.member_KN.dtype

    @property
    def adjacency(self) -> SparseRows:
        """Of the first relation."""
        return self.adjacencies[0]

    @property
    def propagated(self) -> Rows | None:
        """The features after one step along the first relation's edges."""
        return self.walks[0]

    @property
    def neighbours(self) -> tuple[Rows | None, ...]:
        """The features after one step along the edges of each relation."""
        return self.walks[:: len(self.walks) // len(self.adjacencies)]

    def with_features(self, x_NF: Tensor) -> Clients:
        """The same clients with other, dense features, which may have a gradient."""
        walks: list[Rows | None] = []
        steps = len(self.walks) // len(self.adjacencies)
        for adjacency in self.adjacencies:
            here = x_NF
            for _ in range(steps):
                here = propagate(adjacency, here)
                walks.append(here)
        return replace(self, x=x_NF, walks=tuple(walks), num_features=x_NF.shape[1])

    def rows(self, chosen: Tensor, clients: Tensor | None = None) -> Clients:
        """Only some of the nodes, ascending, and only some of the clients: for models whose nodes are independent, and
        data that has been propagated as far as they need.

        Random streams stay those of the same nodes. What is evaluated is left out.
        """
        owner_M = self.segments.owner_N[chosen]
        if clients is not None:
            place_K = torch.full((self.num_clients,), -1, device=self.device)
            place_K[clients] = torch.arange(len(clients), device=self.device)
            owner_M = place_K[owner_M]
        count = self.num_clients if clients is None else len(clients)
        sizes = torch.bincount(owner_M, minlength=count).tolist()
        segments = Segments.of(sizes, self.dtype, self.device, self.segments.row_N[chosen])
        assert None not in self.walks, "features have been propagated"
        taken = [_taken(part, chosen, self, owner_M, segments) for part in (self.x, *self.walks)]
        train_M = self.train_N[chosen]
        return replace(
            self,
            ids_K=self.ids_K if clients is None else self.ids_K[clients],
            segments=segments,
            x=taken[0],
            walks=tuple(taken[1:]),
            adjacencies=(),
            y_N=self.y_N[chosen],
            train_N=train_M,
            val_N=self.val_N[chosen],
            test_N=self.test_N[chosen],
            num_train_K=torch.zeros(count, dtype=torch.int64, device=self.device).index_add(0, owner_M, train_M.long()),
            train_rows=torch.nonzero(train_M).flatten(),
            train_count_KC=self.train_count_KC if clients is None else self.train_count_KC[clients],
            target_NT=None if self.target_NT is None else self.target_NT[chosen],
            made={},
        )


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
    steps: int = 1,
    propagates: bool = True,
    apart: bool = False,
    lean: bool = False,
    folder: Path | None = None,
) -> Clients:
    """Any number of clients in one stack; what a client computes does not depend on the others.

    `steps` is how far features are propagated as data, `propagates` whether the model propagates further, and `apart`
    whether nodes are used apart from others, which needs the propagated features whatever they cost. Intermediate
    results are not kept if `lean`; dense features are in files of a `folder`, if one is given, and read where they are
    needed.
    """
    device = torch.device(device)
    segments = Segments.of([len(own.y) for own in subgraphs], dtype, device)
    train_N, val_N, test_N = (torch.cat([getattr(own, part) for own in subgraphs]) for part in ("train", "val", "test"))
    links = [own.links for own in subgraphs if own.links is not None]
    stacked_links = stack_links(links, list(segments.sizes), report is not None) if links else None
    targets = [own.target for own in subgraphs if own.target is not None]
    report = report or Report.own(subgraphs)
    maps: list[mmap.mmap] = []
    how: Any = (segments, device, dtype, folder, maps)
    x, seen = _rows([own.x for own in subgraphs], *how), _seen([own.x for own in subgraphs])
    walks: list[Rows | None] = []
    seen_walks = []
    cheaper = not apart and walking_is_cheaper(subgraphs, steps, device, dtype)
    each = [own.walk(steps) if lean else iter(own.walks(steps)) for own in subgraphs]
    for parts in zip(*each, strict=True):
        seen_walks.append(_seen(parts).to(device))
        walks.append(None if cheaper else _rows(parts, *how))
    relations = range(subgraphs[0].num_relations) if propagates or cheaper else ()
    matrices = [sp.block_diag([own.adjacencies[at] for own in subgraphs], format="csr") for at in relations]
    return Clients(
        ids_K=torch.tensor([own.id for own in subgraphs], device=device),
        segments=segments,
        x=x,
        walks=tuple(walks),
        adjacencies=tuple(_sparse(matrix, device, dtype) for matrix in matrices),
        y_N=torch.cat([own.y for own in subgraphs]).to(device),
        train_N=train_N.to(device),
        val_N=val_N.to(device),
        test_N=test_N.to(device),
        num_train_K=torch.tensor([own.num_train for own in subgraphs], device=device),
        train_rows=torch.nonzero(train_N).flatten().to(device),
        train_count_KC=torch.stack([_class_counts(own, num_classes) for own in subgraphs]).to(device),
        seen_x_KF=seen.to(device),
        seen_walks=tuple(seen_walks),
        report=report.to(device),
        val_report=report.only(val_N).to(device),
        test_report=report.only(test_N).to(device),
        num_features=subgraphs[0].x.shape[1],
        num_classes=num_classes,
        links=stacked_links.to(device) if stacked_links else None,
        target_NT=torch.cat(targets).to(device, dtype) if targets else None,
        maps=tuple(maps),
    )


def _class_counts(own: Subgraph, num_classes: int) -> Tensor:
    known = own.y[own.train & (own.y >= 0)]
    return torch.bincount(known, minlength=max(1, num_classes)).double()


def walking_is_cheaper(subgraphs: list[Subgraph], steps: int, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether to multiply the sparse features by the weights and then propagate, rather than to multiply the denser
    propagated features: on a CPU, where the time of a sparse product grows with its entries."""
    if device.type != "cpu" or not all(sp.issparse(own.x) for own in subgraphs):
        return False
    walks = steps * subgraphs[0].num_relations
    before = sum(walks * own.x.nnz + steps * sum(a.nnz for a in own.adjacencies) for own in subgraphs)
    entries = sum(walks * own.x.shape[0] * own.x.shape[1] for own in subgraphs)
    after = sum(getattr(walk, "nnz", walk.size) for own in subgraphs for walk in own.walks(steps))
    return bool(before < min(after, SPARSE_BELOW[dtype] * entries))


def _rows(
    parts: Sequence[Any],
    segments: Segments,
    device: torch.device,
    dtype: torch.dtype,
    folder: Path | None,
    maps: list[mmap.mmap],
) -> Rows:
    """Sparse or padded where that is faster on the device."""
    columns = parts[0].shape[1]  # some versions of torch refuse a sparse matrix without any
    if device.type == "cpu" and columns and all(sp.issparse(part) for part in parts):
        entries = sum(part.shape[0] * columns for part in parts)
        if sum(part.nnz for part in parts) < SPARSE_BELOW[dtype] * entries:
            return _sparse(sp.block_diag(parts, format="csr"), device, dtype)
    dense = _dense(parts, dtype, folder, maps)
    x_NF = torch.from_numpy(dense).to(device)
    if device.type == "cpu" or segments.slot_N is None or segments.uniform:
        return x_NF
    return PaddedRows(segments.pad(x_NF))


def _dense(parts: Sequence[Any], dtype: torch.dtype, folder: Path | None, maps: list[mmap.mmap]) -> Any:
    """All rows in one array, in memory or in a file; converted block by block, as a copy of all would be large."""
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    kind = np.dtype(str(dtype).removeprefix("torch."))
    if folder is None or not shape[0] * shape[1]:
        made: Any = np.empty(shape, kind)
    else:
        with tempfile.TemporaryFile(dir=folder) as file:  # it vanishes with the process
            file.truncate(shape[0] * shape[1] * kind.itemsize)
            maps.append(mmap.mmap(file.fileno(), 0))
        made = np.frombuffer(maps[-1], kind).reshape(shape)
    start = 0
    for part in parts:
        for first in range(0, part.shape[0], ROWS):
            block = part[first : first + ROWS]
            made[start + first : start + first + block.shape[0]] = block.toarray() if sp.issparse(block) else block
            if maps:
                maps[-1].madvise(mmap.MADV_DONTNEED)
        start += part.shape[0]
    return made


def _taken(part: Any, rows: Tensor, of: Clients, owner_M: Tensor, segments: Segments) -> Any:
    """Some rows of the features, whose clients now have other numbers."""
    if isinstance(part, SparseRows):
        f = of.num_features
        moved_M = (owner_M - of.segments.owner_N[rows]) * f
        return transposed(part.forward, rows, moved_M, len(segments.sizes) * f)
    if isinstance(part, PaddedRows):
        assert of.segments.slot_N is not None
        x_MF = part.x_KMF.flatten(0, 1).index_select(0, of.segments.slot_N[rows])
    else:
        x_MF = part.index_select(0, rows)
    padded = x_MF.device.type != "cpu" and segments.slot_N is not None and not segments.uniform
    return PaddedRows(segments.pad(x_MF)) if padded else x_MF


def _seen(parts: Sequence[Any]) -> Tensor:
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
