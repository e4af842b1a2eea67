"""Timings and how they are measured."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

WARM_UP = 2


@dataclass(frozen=True)
class Timing:
    name: str
    clients: int
    seconds_per_round: float  # or per pass, if there are no rounds
    ratio: float | None = None  # how many times faster than `versus`
    versus: str | None = None
    roofline: float | None = None  # share of the machine's speed that is reached
    peak_bytes: int | None = None
    setup_seconds: float = 0.0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rounds_per_second": 1 / self.seconds_per_round}


def in_turns(contenders: dict[str, Iterator[object]], repeats: int, device: torch.device) -> dict[str, float]:
    """Median time per step of each, after two warm-up steps; they take turns, so that noise affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + WARM_UP):
        for name, steps in contenders.items():
            start = time.perf_counter()
            next(steps)
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn >= WARM_UP:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def peak_bytes(device: torch.device) -> int:
    """Peak memory so far, of the GPU or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
