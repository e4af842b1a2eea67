"""Work that is the same every round, recorded once as a CUDA graph and replayed.

A round of a small federation is hundreds of short kernels; starting each from Python takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.models.base import dropout_seeds
from fedpub.tasks.base import Step

WARM_UP = 1  # runs before the recording, in which libraries set themselves up


@dataclass(frozen=True)
class SeededContext(Context):
    """A context with dropout seeds in a tensor, [epochs, layers]: each replay of a recorded round gets new ones."""

    seeds: Tensor | None = None

    def step(self, epoch: int, batch: int = 0) -> Step:
        assert not batch, "rounds with batches are not recorded"
        return Step(self.seed, self.round, epoch, self.dropout, None if self.seeds is None else self.seeds[epoch])


def seeded(ctx: Context, seeds: Tensor) -> SeededContext:
    return SeededContext(**vars(ctx), seeds=seeds)


def round_seeds(ctx: Context, number: int, device: torch.device) -> Tensor:
    """The dropout seeds of a round, [epochs, layers], copied to the device without waiting for it."""
    seeds = [dropout_seeds(ctx.seed, number, epoch) for epoch in range(ctx.epochs)]
    return torch.tensor(seeds).pin_memory().to(device, non_blocking=True)


def looks_at_values(method: object) -> bool:
    """Whether a method branches on the values of tensors, so that no round can be recorded."""
    return bool(getattr(method, "looks_at_values", False))


class Recorded:
    """A function of tensors in nested dicts and tuples, which may write into them but must not read their values.

    Its first `carried` results are the first arguments of the next call: the recording writes them over those
    arguments, so that passing them back costs nothing. Results are valid until the next call.
    """

    def __init__(self, function: Callable[..., Any], carried: int) -> None:
        self._function, self._carried = function, carried
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Any, ...] = ()
        self._outputs: Any = None

    def __call__(self, *inputs: Any) -> Any:
        if self._graph is None:
            self._record(inputs)
        assert self._graph is not None
        for mine, given in zip(self._inputs, inputs, strict=True):
            if mine is not given:
                _write(mine, given)
        self._graph.replay()
        return self._outputs

    def _record(self, inputs: tuple[Any, ...]) -> None:
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._function(*_copied(inputs))
        torch.cuda.current_stream().wait_stream(aside)
        self._inputs = _copied(inputs)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            outputs = self._function(*self._inputs)
            kept = self._inputs[: self._carried]
            for mine, new in zip(kept, outputs, strict=False):
                _write(mine, new)
            self._outputs = (*kept, *outputs[self._carried :])


def _write(target: Any, source: Any) -> None:
    if isinstance(target, Tensor):
        if target.data_ptr() != source.data_ptr():
            target.copy_(source, non_blocking=True)
        return
    for key in target if isinstance(target, dict) else range(len(target)):
        _write(target[key], source[key])


def _copied(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.clone(memory_format=torch.contiguous_format)
    if isinstance(part, dict):
        return {name: _copied(inner) for name, inner in part.items()}
    return tuple(_copied(inner) for inner in part)
