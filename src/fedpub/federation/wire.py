"""How a message between the coordinator and a site becomes bytes.

    "FPUB" | version, 1 byte | length of the header, 4 bytes | header | payload | checksum, 16 bytes

The header is JSON: `kind`, `fields` and `message`, where a tensor is a list of its dtype, its shape and its coding, and
a tree an object of such lists. The payload is the tensors' bytes, little endian: the tree `active` first, then all
others by name. Nothing says where a tensor starts. Shapes and codings say how much it takes, and together they have to
take all there is. The header has one spelling only, so that a message always gives the same bytes.

The tree `active` marks which entries of the other trees are sent. Its positions go once, coded as

    all       every entry: no bytes
    rows      a bit for every row, where an entry is as all others along the last axis
    bitmap    a bit for every entry
    index     the positions of the entries, 4 bytes each; their number stands in the header

whichever is shortest. The floats of trees may go rounded:

    float16   2 bytes
    int8      1 byte q, for q / 127 of the largest magnitude, which stands in the header. That one comes back exactly,
              hence what was rounded once is not changed by being sent again.

The checksum finds accidents. It keeps nobody from writing a message of their own, so `decode` takes none of it on
trust: it allocates nothing before the whole header is checked, and has one exception, WireError.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened  # what a stranger wrote may be long
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedpub.core.tree import Message
from fedpub.core.tree import tree as branch
from fedpub.engine.size import ACTIVE
from fedpub.errors import FedpubError

Precision = Literal["exact", "float16", "int8"]
Array = npt.NDArray[Any]

MAGIC, VERSION = b"FPUB", 1
BEFORE_HEADER = len(MAGIC) + 1 + 4
CHECKSUM = 16
LIMIT = 2**31  # bytes, of the message and of its tensors
MOST_HEADER = 2**22  # bytes; as Python objects they take many times that
MOST_TENSORS = 10_000
MOST_AXES = 16
LONGEST_NAME = 200
DEEPEST = 32  # lists in lists, of the header

DTYPES = {
    "bool": (torch.bool, np.dtype("?")),
    "uint8": (torch.uint8, np.dtype("u1")),
    "int32": (torch.int32, np.dtype("<i4")),
    "int64": (torch.int64, np.dtype("<i8")),
    "float32": (torch.float32, np.dtype("<f4")),
    "float64": (torch.float64, np.dtype("<f8")),
}
FLOATS = ("float32", "float64")
POSITIONS = ("all", "rows", "bitmap", "index")
PRECISIONS = ("exact", "float16", "int8")
NUMBERED = {"index": int, "int8": float}  # codings with a number in the header
STEPS = 127  # of int8 on either side of zero


class WireError(FedpubError, ValueError):
    """A message that cannot be sent, or bytes that are no message."""


@dataclass(frozen=True, eq=False)
class Envelope:
    """What travels once in one direction."""

    kind: str
    """Such as "round"."""
    fields: Mapping[str, Any]
    """Plain JSON; NaN and infinities too."""
    message: Message


@dataclass(frozen=True)
class Part:
    """What one tensor takes of a message, or the header with the checksum."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    entries: int
    """How many are sent."""
    coding: str
    bytes: int


def encode(envelope: Envelope, precision: Precision = "exact") -> bytes:
    """The message as bytes; a WireError, which is a ValueError, where it cannot be sent."""
    if precision not in PRECISIONS:
        raise WireError(f"there is no precision {precision!r}: choose one of {', '.join(PRECISIONS)}")
    outline: dict[str, Any] = {part: {} for part, content in envelope.message.items() if isinstance(content, dict)}
    payload: list[bytes] = []
    active: dict[str, Array] = {}
    for part, leaf, tensor in _in_order(envelope.message):
        name = _full_name(part, leaf)
        array = _array_of(name, tensor)
        dtype, shape = str(array.dtype), array.shape
        if leaf is not None and part == ACTIVE:
            if dtype != "bool":
                raise WireError(f"{name} says which entries are sent: it is bool, not {dtype}")
            active[leaf] = array
            how, content = _code_positions(array)
        else:
            if leaf is not None and leaf in active:
                _check_pruned(name, dtype, shape, active[leaf].shape)
                array = array[active[leaf]]
            rounds = leaf is not None and dtype in FLOATS
            how, content = _code_values(name, array, precision if rounds else "exact")
        line = [dtype, list(shape), *how]
        if leaf is None:
            outline[part] = line
        else:
            outline[part][leaf] = line
        payload.append(content)
    header = {"kind": envelope.kind, "fields": dict(envelope.fields), "message": outline}
    _check_plain(header, DEEPEST)
    _check_header(header)  # nothing is sent that would not be taken
    text = _spell(header)
    if len(text) > MOST_HEADER:
        raise WireError(f"a header of {len(text)} bytes is longer than {MOST_HEADER}: send less in the fields")
    chunks = [MAGIC, bytes([VERSION]), len(text).to_bytes(4, "little"), text, *payload]
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    return b"".join([*chunks, checksum.digest()[:CHECKSUM]])


def decode(data: bytes, limit: int = LIMIT) -> Envelope:
    """The message that was encoded; tensors in order of their names, zeros where nothing was sent.

    The message and its tensors take at most `limit` bytes each.
    """
    return _read(data, limit)[0]


def describe(data: bytes, limit: int = LIMIT) -> list[Part]:
    """What is in a message, for an audit: the header, then every tensor as it lies there; their bytes are all bytes."""
    return _read(data, limit)[1]


def _read(data: bytes, limit: int) -> tuple[Envelope, list[Part]]:
    try:
        text, payload = _split(data, limit)
        header = _parse(text)
        lines = _check_header(header, limit)
        reader = _Reader(payload)
        message: Message = {name: {} for name, content in header["message"].items() if isinstance(content, dict)}
        parts = [Part("header", (), "json", 0, "with checksum", len(data) - len(payload))]
        active: dict[str, Array] = {}
        for line in lines:
            before = reader.left
            tensor, entries, coding = _decode_tensor(line, reader, active)
            if line.leaf is None:
                message[line.part] = tensor
            else:
                branch(message[line.part])[line.leaf] = tensor
            parts.append(Part(line.name, line.shape, line.dtype, entries, coding, before - reader.left))
        if reader.left:
            raise WireError(f"{reader.left} bytes of the message belong to no tensor")
    except MemoryError as error:
        raise WireError("the message does not fit into this machine's memory") from error
    return Envelope(header["kind"], header["fields"], dict(sorted(message.items()))), parts


# Header


@dataclass(frozen=True)
class _Line:
    """What the header says of one tensor."""

    part: str
    leaf: str | None
    dtype: str
    shape: tuple[int, ...]
    coding: str
    number: float

    @property
    def name(self) -> str:
        return _full_name(self.part, self.leaf)


def _split(data: bytes, limit: int) -> tuple[bytes, memoryview]:
    """Header and payload of an undamaged message."""
    if len(data) > limit:
        raise WireError(f"a message of {len(data)} bytes is longer than the limit of {limit}")
    if data[: len(MAGIC)] != MAGIC:
        raise WireError(f"the message does not start with {MAGIC.decode()}: it is none of fedpub's")
    if len(data) < BEFORE_HEADER + CHECKSUM:
        raise WireError(f"a message of {len(data)} bytes is cut short")
    if data[len(MAGIC)] != VERSION:
        raise WireError(f"the message has format {data[len(MAGIC)]}, and only {VERSION} is known here")
    end = len(data) - CHECKSUM
    if hashlib.sha256(memoryview(data)[:end]).digest()[:CHECKSUM] != data[end:]:
        raise WireError("the message is damaged: its checksum is not that of its content")
    length = int.from_bytes(data[len(MAGIC) + 1 : BEFORE_HEADER], "little")
    if length > MOST_HEADER:
        raise WireError(f"a header of {length} bytes is longer than {MOST_HEADER}")
    if BEFORE_HEADER + length > end:
        raise WireError(f"the message has no room for its header of {length} bytes")
    start = BEFORE_HEADER + length
    return data[BEFORE_HEADER:start], memoryview(data)[start:end]


def _spell(header: dict[str, Any]) -> bytes:
    """The one spelling of a header."""
    try:
        return json.dumps(header, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    except ValueError as error:  # half a surrogate pair, or a number of thousands of digits
        raise WireError("the header holds a text or a number that cannot be written") from error


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode())
    except RecursionError as error:
        raise WireError(f"the header is nested more than {DEEPEST} deep") from error
    except ValueError as error:
        raise WireError("the header is no JSON in UTF-8") from error
    _check_plain(header, DEEPEST)
    if _spell(header) != text:  # a key twice would be lost without a word
        raise WireError("the header is not spelt as fedpub does: keys once and in order, no spaces")
    if not isinstance(header, dict):
        raise WireError(f"the header is no JSON object but {shortened(header)}")
    return header


def _check_header(header: dict[str, Any], limit: float = math.inf) -> list[_Line]:
    """What the header says of the tensors, in the payload's order, if all of it is as it should be."""
    if header.keys() != {"kind", "fields", "message"}:
        raise WireError(f"the header has {shortened(sorted(header))} instead of fields, kind and message")
    kind, fields, message = header["kind"], header["fields"], header["message"]
    if not isinstance(kind, str) or len(kind) > LONGEST_NAME:
        raise WireError(f"the kind is no text of at most {LONGEST_NAME} characters but {shortened(kind)}")
    for what, content in ("fields", fields), ("message", message):
        if not isinstance(content, dict):
            raise WireError(f"the header's {what} is no JSON object but {shortened(content)}")
    count = sum(max(1, len(part)) if isinstance(part, dict) else 1 for part in message.values())
    if count > MOST_TENSORS:
        raise WireError(f"a message of {count} tensors has more than {MOST_TENSORS}")
    lines = [_check_line(part, leaf, line, limit) for part, leaf, line in _in_order(message)]
    total = sum(math.prod(line.shape) * DTYPES[line.dtype][1].itemsize for line in lines)
    if total > limit:
        raise WireError(f"the tensors take {total} bytes, more than the limit of {limit}")
    active = {line.leaf: line.shape for line in lines if line.part == ACTIVE and line.leaf is not None}
    for line in lines:
        if line.part != ACTIVE and line.leaf in active:
            _check_pruned(line.name, line.dtype, line.shape, active[line.leaf])
    return lines


def _check_line(part: str, leaf: str | None, line: Any, limit: float) -> _Line:
    name = _full_name(part, leaf)
    if not isinstance(line, list) or len(line) < 3:
        raise WireError(f"{name} is not described by dtype, shape and coding but by {shortened(line)}")
    dtype, shape, coding, *numbers = line
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise WireError(f"{name} has the dtype {shortened(dtype)}, which is none of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError(f"{name} has the shape {shortened(shape)}, which is no list of at most {MOST_AXES} sizes")
    if math.prod(max(1, size) for size in shape) * DTYPES[dtype][1].itemsize > limit:  # without entries too
        raise WireError(f"{name} has the shape {shortened(shape)}, too large for the limit of {limit} bytes")
    codings: tuple[str, ...] = ("exact",)
    if leaf is not None:
        codings = POSITIONS if part == ACTIVE else PRECISIONS if dtype in FLOATS else codings
        if part == ACTIVE and dtype != "bool":
            raise WireError(f"{name} says which entries are sent: it is bool, not {dtype}")
    if not isinstance(coding, str) or coding not in codings:
        raise WireError(f"{name} has the coding {shortened(coding)}, which is none of {', '.join(codings)}")
    if [type(number) for number in numbers] != ([NUMBERED[coding]] if coding in NUMBERED else []):
        raise WireError(f"{name} has the numbers {shortened(numbers)}, which do not belong to the coding {coding}")
    number = numbers[0] if numbers else 0
    with np.errstate(over="ignore"):
        if coding == "int8" and not (0 <= number < math.inf and number == float(np.float64(number).astype(dtype))):
            raise WireError(f"{name} has {number} as its largest magnitude, which is no {dtype} or not finite")
    if coding == "index" and not 0 <= number <= math.prod(shape):
        raise WireError(f"{name} has {shortened(number)} positions, which its shape {shape} has no place for")
    if coding == "rows" and not (shape and shape[-1]):
        raise WireError(f"{name} has the shape {shape}, which has no rows")
    return _Line(part, leaf, dtype, tuple(shape), coding, number)


def _check_pruned(name: str, dtype: str, shape: tuple[int, ...], active: tuple[int, ...]) -> None:
    if dtype not in FLOATS or shape != active:
        raise WireError(
            f"{name} is {dtype} {list(shape)}, but {ACTIVE} says which entries of floats {list(active)} are sent"
        )


def _check_plain(value: Any, deeper: int) -> None:
    """JSON could write some other things too, but they would come back changed."""
    if isinstance(value, dict | list):
        if not deeper:
            raise WireError(f"the header is nested more than {DEEPEST} deep")
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            raise WireError(f"the header has a key that is no text among {shortened(list(value))}")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_plain(inner, deeper - 1)
    elif value is not None and not isinstance(value, str | int | float):
        raise WireError(f"the header holds {shortened(value)}, which is not plain JSON")


Content = TypeVar("Content")


def _in_order(message: Mapping[str, dict[str, Content] | Content]) -> Iterator[tuple[str, str | None, Content]]:
    """Every tensor with its names, in the payload's order: what is sent of the others depends on `active`."""
    for part in sorted(message, key=lambda part: (part != ACTIVE, _check_name(part))):
        content = message[part]
        if isinstance(content, dict):
            for leaf in sorted(content, key=_check_name):
                yield part, leaf, content[leaf]
        else:
            yield part, None, content


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "/" in name or not name.isprintable():
        raise WireError(
            f"a tensor or tree has the name {shortened(name)}; it needs 1 to {LONGEST_NAME} printable characters, no /"
        )
    return name


def _full_name(part: str, leaf: str | None) -> str:
    return part if leaf is None else f"{part}/{leaf}"


# Payload


def _array_of(name: str, tensor: Tensor) -> Array:
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise WireError(f"{name} is no dense tensor")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise WireError(f"{name} has the dtype {dtype}, which is none of {', '.join(DTYPES)}")
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array


def _code_positions(active: Array) -> tuple[list[Any], bytes]:
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


def _code_values(name: str, values: Array, precision: Precision) -> tuple[list[Any], bytes]:
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
    # A share of the largest first: x / (largest / 127) would divide by zero where the largest is next to nothing.
    shares = values.astype(np.float64) / (largest or 1.0)
    return ["int8", largest], np.rint(shares * STEPS).astype("i1").tobytes()


def _bitmap_bytes(bits: int) -> int:
    return -(-bits // 8)


class _Reader:
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


def _decode_tensor(line: _Line, reader: _Reader, active: dict[str, Array]) -> tuple[Tensor, int, str]:
    """The tensor, how many of its entries were sent, and how; positions are kept in `active`."""
    if line.leaf is not None and line.part == ACTIVE:
        tensor = _zeros(line)
        active[line.leaf] = tensor.numpy()
        _decode_positions(line, reader, active[line.leaf])
        return tensor, int(np.count_nonzero(active[line.leaf])), line.coding
    sent = None if line.leaf is None else active.get(line.leaf)
    entries = math.prod(line.shape) if sent is None else int(np.count_nonzero(sent))
    values = _decode_values(line, reader, entries)  # first: memory is taken for what is there
    tensor = _zeros(line)
    if sent is None:
        tensor.numpy()[...] = values.reshape(line.shape)
        return tensor, entries, line.coding
    tensor.numpy()[sent] = values
    return tensor, entries, f"{line.coding}, active entries only"


def _zeros(line: _Line) -> Tensor:
    """Memory that is aligned as torch aligns it."""
    try:
        return torch.zeros(line.shape, dtype=DTYPES[line.dtype][0])
    except RuntimeError as error:  # what torch says instead
        raise MemoryError from error


def _decode_positions(line: _Line, reader: _Reader, active: Array) -> None:
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


def _decode_values(line: _Line, reader: _Reader, count: int) -> Array:
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
