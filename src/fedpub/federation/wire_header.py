"""The header of an encoded message: its format, and every check of it before memory is allocated."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened  # values from outside may be long
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fedpub.core.message import SENT
from fedpub.errors import FedpubError

Precision = Literal["exact", "float16", "int8"]
Array = npt.NDArray[Any]

MAGIC, VERSION = b"FPUB", 1
BEFORE_HEADER = len(MAGIC) + 1 + 4
CHECKSUM = 16
LIMIT = 2**31  # bytes, of the message and of its tensors
MOST_HEADER = 2**22  # bytes
MOST_VALUES = 300_000  # in the header: an empty list is three bytes there, and fifty times as many as a Python object
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
    """A message that cannot be sent, or bytes that are not a message."""


@dataclass(frozen=True)
class Line:
    """What the header says about one tensor."""

    part: str
    leaf: str | None
    dtype: str
    shape: tuple[int, ...]
    coding: str
    number: float

    @property
    def name(self) -> str:
        return full_name(self.part, self.leaf)


def digests(data: bytes) -> tuple[bytes, str]:
    """In one pass: the checksum that belongs to a message, and the digest of all its bytes."""
    end = max(0, len(data) - CHECKSUM)
    found = hashlib.sha256(memoryview(data)[:end])
    checksum = found.digest()[:CHECKSUM]
    found.update(data[end:])
    return checksum, found.hexdigest()


def split(data: bytes, limit: float, checksum: bytes | None = None) -> tuple[bytes, memoryview]:
    """Header and payload of an undamaged message; `checksum` is the one that belongs to it, if it is known."""
    if len(data) > limit:
        raise WireError(f"a message of {len(data)} bytes is longer than the limit of {limit}")
    if data[: len(MAGIC)] != MAGIC:
        raise WireError(f"the message does not start with {MAGIC.decode()}: it is not from fedpub")
    if len(data) < BEFORE_HEADER + CHECKSUM:
        raise WireError(f"a message of {len(data)} bytes is cut short")
    if data[len(MAGIC)] != VERSION:
        raise WireError(f"the message has format {data[len(MAGIC)]}, and only {VERSION} is known here")
    end = len(data) - CHECKSUM
    if (checksum or hashlib.sha256(memoryview(data)[:end]).digest()[:CHECKSUM]) != data[end:]:
        raise WireError("the message is damaged: its checksum is not that of its content")
    length = int.from_bytes(data[len(MAGIC) + 1 : BEFORE_HEADER], "little")
    if length > MOST_HEADER:
        raise WireError(f"a header of {length} bytes is longer than {MOST_HEADER}")
    if BEFORE_HEADER + length > end:
        raise WireError(f"the message has no room for its header of {length} bytes")
    start = BEFORE_HEADER + length
    return data[BEFORE_HEADER:start], memoryview(data)[start:end]


def spell(header: dict[str, Any]) -> bytes:
    """The one spelling of a header."""
    try:
        return json.dumps(header, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    except ValueError as error:  # half a surrogate pair, or a number of thousands of digits
        raise WireError("the header holds a text or a number that cannot be written") from error


def check_values(text: bytes) -> None:
    """Refuse a header of too many values before there are objects of them; commas in texts count, too."""
    count = sum(text.count(sign) for sign in (b",", b"[", b"{"))
    if count > MOST_VALUES:
        raise WireError(f"a header of {count:,} values has more than {MOST_VALUES:,}")


def parse(text: bytes) -> dict[str, Any]:
    check_values(text)
    try:
        header = json.loads(text.decode())
    except RecursionError as error:
        raise WireError(f"the header is nested more than {DEEPEST} deep") from error
    except ValueError as error:
        raise WireError("the header is no JSON in UTF-8") from error
    check_plain(header, DEEPEST)
    if spell(header) != text:  # a repeated key would be lost silently
        raise WireError("the header is not spelt as fedpub does: keys once and in order, no spaces")
    if not isinstance(header, dict):
        raise WireError(f"the header is no JSON object but {shortened(header)}")
    return header


def check_header(header: dict[str, Any], limit: float = math.inf) -> list[Line]:
    """What the header says about the tensors, in the payload's order; an error if any of it is invalid."""
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
    lines = [_check_line(part, leaf, line, limit) for part, leaf, line in in_order(message)]
    total = sum(math.prod(line.shape) * DTYPES[line.dtype][1].itemsize for line in lines)
    if total > limit:
        raise WireError(f"the tensors take {total} bytes, more than the limit of {limit}")
    active = {line.leaf: line.shape for line in lines if line.part == SENT and line.leaf is not None}
    for line in lines:
        if line.part != SENT and line.leaf in active:
            check_pruned(line.name, line.dtype, line.shape, active[line.leaf])
    return lines


def _check_line(part: str, leaf: str | None, line: Any, limit: float) -> Line:
    name = full_name(part, leaf)
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
        codings = POSITIONS if part == SENT else PRECISIONS if dtype in FLOATS else codings
        if part == SENT and dtype != "bool":
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
    return Line(part, leaf, dtype, tuple(shape), coding, number)


def check_pruned(name: str, dtype: str, shape: tuple[int, ...], active: tuple[int, ...]) -> None:
    if dtype not in FLOATS or shape != active:
        raise WireError(
            f"{name} is {dtype} {list(shape)}, but {SENT} says which entries of floats {list(active)} are sent"
        )


def check_plain(value: Any, deeper: int) -> None:
    """Only plain JSON: other values could be written too, but would come back changed."""
    if isinstance(value, dict | list):
        if not deeper:
            raise WireError(f"the header is nested more than {DEEPEST} deep")
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            raise WireError(f"the header has a key that is no text among {shortened(list(value))}")
        for inner in value.values() if isinstance(value, dict) else value:
            check_plain(inner, deeper - 1)
    elif value is not None and not isinstance(value, str | int | float):
        raise WireError(f"the header holds {shortened(value)}, which is not plain JSON")


Content = TypeVar("Content")


def in_order(message: Mapping[str, dict[str, Content] | Content]) -> Iterator[tuple[str, str | None, Content]]:
    """Every tensor with its names, in the payload's order: what is sent of the others depends on `active`."""
    for part in sorted(message, key=lambda part: (part != SENT, _check_name(part))):
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


def full_name(part: str, leaf: str | None) -> str:
    return part if leaf is None else f"{part}/{leaf}"
