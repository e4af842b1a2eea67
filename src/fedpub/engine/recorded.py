"""Work that is the same every round, recorded once as a CUDA graph and replayed.

A round of a small federation is hundreds of short kernels; starting each from Python takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

WARM_UP = 2  # runs before the recording, in which libraries set themselves up


class Recorded:
    """A function of tensors in nested dicts and tuples, which may write into them; it must not look at their values.

    What a call returns is good until the next one. Tensors that a call returns may be given to the next, which then
    has nothing to copy.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Any, ...] = ()
        self._outputs: Any = None

    def __call__(self, *inputs: Any) -> Any:
        if self._graph is None:
            self._record(inputs)
        assert self._graph is not None
        for mine, given in zip(_leaves(self._inputs), _leaves(inputs), strict=True):
            if mine.data_ptr() != given.data_ptr():
                mine.copy_(given, non_blocking=True)
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
            self._outputs = self._function(*self._inputs)


def _leaves(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    else:
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _leaves(inner)


def _copied(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.clone(memory_format=torch.contiguous_format)
    if isinstance(part, dict):
        return {name: _copied(inner) for name, inner in part.items()}
    return tuple(_copied(inner) for inner in part)
