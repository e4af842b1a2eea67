"""The payload of an encoded message: tensors to bytes and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpub.core.message import SENT
from fedpub.federation.wire_header import DTYPES, POSITIONS, STEPS, Array, Line, Precision, WireError


def array_of(name: str, tensor: Tensor) -> Array:
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise WireError(f"{name} is no dense tensor")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise WireError(f"{name} has the dtype {dtype}, which is none of {', '.join(DTYPES)}")
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array


def code_positions(active: Array) -> tuple[list[Any], bytes]:
    kept = int(np.count_nonzero(active))
    if kept == active.size:
        return ["all"], b""
    lengths = {"bitmap": _bitmap_bytes(active.size)}
    if active.size <= 2**32:
        lengths["index"] = 4 * kept
    if active.ndim and bool((active == active[..., :1]).all()):
        lengths["rows"] = _bitmap_bytes(active.size // active.shape[-1])
    coding = min(lengths, key=lambda coding: (lengths[coding], POSITIONS.index(coding)))
    if coding == "index":
        return ["index", kept], np.flatnonzero(active).astype("<u4").tobytes()
    return [coding], np.packbits(active[..., 0] if coding == "rows" else active).tobytes()


def code_values(name: str, values: Array, precision: Precision) -> tuple[list[Any], bytes]:
    """The entries that are sent."""
    if precision == "exact":
        return ["exact"], values.astype(DTYPES[str(values.dtype)][1], copy=False).tobytes()
    if not np.isfinite(values).all():
        raise WireError(f"{name} holds NaN or infinity, which {precision} cannot carry: send it exactly")
    if precision == "float16":
        with np.errstate(over="ignore"):
            halves = values.astype("<f2")
        if not np.isfinite(halves).all():
            raise WireError(f"{name} holds numbers beyond float16's 65504: send it exactly or as int8")
        return ["float16"], halves.tobytes()
    largest = float(np.abs(values).max(initial=0))
    # Divide by the largest first: x / (largest / 127) would divide by zero if the largest is tiny.
    shares = values.astype(np.float64) / (largest or 1.0)
    return ["int8", largest], np.rint(shares * STEPS).astype("i1").tobytes()


def _bitmap_bytes(bits: int) -> int:
    return -(-bits // 8)


class Reader:
    """The payload, from front to back."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload

    @property
    def left(self) -> int:
        return len(self._payload)

    def take(self, name: str, count: int, dtype: str | np.dtype[Any]) -> Array:
        """The next entries; a view of the message."""
        size = count * np.dtype(dtype).itemsize
        if size > self.left:
            raise WireError(f"{name} needs {size} bytes, and {self.left} are left of the message")
        taken, self._payload = self._payload[:size], self._payload[size:]
        return np.frombuffer(taken, dtype)

    def take_bits(self, name: str, count: int) -> Array:
        bits = np.unpackbits(self.take(name, _bitmap_bytes(count), "u1"))
        if bits[count:].any():
            raise WireError(f"{name} has bits behind its {count} entries")
        return bits[:count].view(bool)


def decode_tensor(line: Line, reader: Reader, active: dict[str, Array]) -> tuple[Tensor, int, str]:
    """The tensor, how many of its entries were sent, and how; positions are kept in `active`."""
    if line.leaf is not None and line.part == SENT:
        tensor = _zeros(line)
        active[line.leaf] = tensor.numpy()
        _decode_positions(line, reader, active[line.leaf])
        return tensor, int(np.count_nonzero(active[line.leaf])), line.coding
    sent = None if line.leaf is None else active.get(line.leaf)
    entries = math.prod(line.shape) if sent is None else int(np.count_nonzero(sent))
    values = _decode_values(line, reader, entries)  # first, so that memory is only allocated for existing data
    tensor = _zeros(line)
    if sent is None:
        tensor.numpy()[...] = values.reshape(line.shape)
        return tensor, entries, line.coding
    tensor.numpy()[sent] = values
    return tensor, entries, f"{line.coding}, active entries only"


def _zeros(line: Line) -> Tensor:
    """Zeros with torch's memory alignment."""
    try:
        return torch.zeros(line.shape, dtype=DTYPES[line.dtype][0])
    except RuntimeError as error:  # what torch says instead
        raise MemoryError from error


def _decode_positions(line: Line, reader: Reader, active: Array) -> None:
    if line.coding == "all":
        active[...] = True
    elif line.coding == "rows":
        rows = reader.take_bits(line.name, math.prod(line.shape[:-1]))
        active[...] = rows.reshape(*line.shape[:-1], 1)
    elif line.coding == "bitmap":
        active[...] = reader.take_bits(line.name, active.size).reshape(line.shape)
    else:
        index = reader.take(line.name, int(line.number), "<u4")
        if len(index) and (int(index[-1]) >= active.size or not (index[1:] > index[:-1]).all()):
            raise WireError(f"{line.name} has positions that do not ascend or lie beyond its {active.size} entries")
        active.reshape(-1)[index] = True


def _decode_values(line: Line, reader: Reader, count: int) -> Array:
    if line.coding == "float16":
        return reader.take(line.name, count, "<f2")
    if line.coding == "int8":
        steps = reader.take(line.name, count, "i1")
        furthest = max(int(steps.max(initial=0)), -int(steps.min(initial=0)))
        if furthest != (STEPS if line.number else 0):
            raise WireError(f"{line.name} goes to {furthest} of {STEPS} steps, although its largest is {line.number}")
        return steps.astype(np.float64) / STEPS * line.number
    if line.dtype == "bool":
        flags = reader.take(line.name, count, "u1")
        if (flags > 1).any():
            raise WireError(f"{line.name} is bool and holds a byte that is neither 0 nor 1")
        return flags.view(bool)
    return reader.take(line.name, count, DTYPES[line.dtype][1])
