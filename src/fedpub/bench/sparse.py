"""Sparse features: the share of non-zeros above which a dense product is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
import torch

from fedpub.bench.timing import Timing, in_turns
from fedpub.core.rng import numpy_stream
from fedpub.core.segments import Segments, rows_matmul
from fedpub.core.sparse import SparseRows, from_scipy
from fedpub.engine.memory import keep_buffers

HIDDEN = 128


def bench_sparse(clients: int, nodes: int, features: int, densities: tuple[float, ...], repeats: int) -> list[Timing]:
    """Seconds of a forward and a backward product, sparse and dense."""
    keep_buffers()
    found: list[Timing] = []
    segments = Segments.of([nodes] * clients, torch.float32, torch.device("cpu"))
    w_KFH = torch.randn(clients, features, HIDDEN)
    for density in densities:
        stream = numpy_stream(0, "sparse", str(density))
        parts = [sp.random(nodes, features, density, "csr", np.float32, stream) for _ in range(clients)]
        whole = sp.block_diag(parts, format="csr")
        rows = SparseRows(from_scipy(whole), from_scipy(whole.T))
        dense = torch.from_numpy(np.concatenate([part.toarray() for part in parts]))
        both: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "dense": lambda w, x=dense: rows_matmul(x, w, segments),  # type: ignore[misc]
            "sparse": lambda w, x=rows: rows_matmul(x, w, segments),  # type: ignore[misc]
        }
        medians = in_turns({name: _steps(one, w_KFH) for name, one in both.items()}, repeats, w_KFH.device)
        for name, seconds in medians.items():
            ratio = medians["dense"] / seconds if name == "sparse" else None
            versus = "dense" if name == "sparse" else None
            found.append(Timing(f"{name}, {100 * density:g} % non-zeros", clients, seconds, ratio, versus))
    return found


def _steps(product: Callable[[torch.Tensor], torch.Tensor], w_KFH: torch.Tensor) -> Iterator[object]:
    while True:
        w = w_KFH.detach().requires_grad_()
        out = product(w)
        yield torch.autograd.grad(out, w, torch.ones_like(out))
