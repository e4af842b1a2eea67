"""Lower bound on the time of a round on this machine, and the share of that speed that is reached.

The machine's rate for a large matrix product and its bandwidth for a copy are measured. The round's multiplications in
matrix products, and the bytes of weights, masks and moments that must be read and written once, are counted from
shapes, for FedAvg and FED-PUB with the GCN. Work that a better program could avoid, such as inputs that a client does
not see, is not counted. The bound is the sum of the two times, since products do not overlap with passes over memory
here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedpub.core.sparse import SparseRows
from fedpub.data.clients.stack import Clients
from fedpub.experiment import Plan
from fedpub.models.proxy import BLOCK_NODES, BLOCKS

SIDE, COPIED, REPEATS = 2048, 2**25, 7


@dataclass(frozen=True)
class Machine:
    flops: float  # per second, for a large product in this precision
    bandwidth: float  # bytes per second, read and written, for a large copy

    def __str__(self) -> str:
        return f"{self.flops / 1e9:,.0f} GFLOP/s, {self.bandwidth / 1e9:,.0f} GB/s"


def measure(device: torch.device, dtype: torch.dtype) -> Machine:
    side = SIDE * (4 if device.type == "cuda" else 1)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    source = torch.randn(COPIED * (8 if device.type == "cuda" else 1), device=device, dtype=dtype)
    target = torch.empty_like(source)
    product = _median(lambda: a @ b, device)
    copy = _median(lambda: target.copy_(source), device)
    return Machine(2 * side**3 / product, 2 * source.numel() * source.element_size() / copy)


def _median(work: Callable[[], object], device: torch.device) -> float:
    times = []
    for turn in range(REPEATS + 2):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float

    def seconds(self, machine: Machine) -> float:
        return self.flops / machine.flops + self.bytes / machine.bandwidth


def round_work(plan: Plan, data: Clients) -> Work:
    """Necessary work in a round of FedAvg or FED-PUB: one local epoch, evaluation, embedding, aggregation."""
    k, n, h, c = data.num_clients, sum(data.segments.sizes), plan.hidden, data.num_classes
    fedpub = plan.experiment.method == "fedpub"
    seen = float(data.seen_walks[0].sum())  # relevant input rows of all clients
    edges = data.adjacency.forward._nnz()
    if data.propagated is None:  # multiplications of an input product, per output column
        inputs = float(data.x.forward._nnz() + edges) if isinstance(data.x, SparseRows) else n / k * seen
    else:
        inputs = float(data.propagated.forward._nnz()) if isinstance(data.propagated, SparseRows) else n / k * seen
    one_forward = 2 * h * inputs + 2 * n * h * h + 2 * edges * h + 2 * n * h * c
    training = one_forward + 2 * h * inputs + 2 * (2 * n * h * h + 2 * n * h * c) + 2 * edges * h
    flops = training + one_forward
    entries = seen * h + k * (h * h + h * c)  # in the weight matrices
    passes = 7.0  # Adam: weights, gradient, two moments read; three written
    passes += 2  # received weights are copied
    passes += 3 if not fedpub else 0  # the gradient is written once, the weights read in training and evaluation
    if fedpub:
        nodes = BLOCKS * BLOCK_NODES
        flops += 2 * nodes * h * seen + 2 * k * nodes * h
        flops += 2 * k * entries
        passes += 6 + 1 + 3 + 3 + 2  # masks' Adam; gradient; masked weights before and after; the average
    else:
        passes += 1  # the mean
    return Work(flops, passes * entries * data.adjacency.forward.element_size())
