"""How a message between the coordinator and a site becomes bytes.

    "FPUB" | version, 1 byte | length of the header, 4 bytes | header | payload | checksum, 16 bytes

The header is JSON: `kind`, `fields` and `message`, where a tensor is a list of its dtype, its shape and its coding, and
a tree an object of such lists. The payload is the tensors' bytes, little endian: the tree `active` first, then all
others by name. There are no offsets: shapes and codings determine the size of each tensor, and together the tensors
must fill the payload. The header has a canonical spelling, so that a message always gives the same bytes.

The tree `active` marks which entries of the other trees are sent. Its positions go once, coded as

    all       every entry: no bytes
    rows      a bit for every row, where an entry is as all others along the last axis
    bitmap    a bit for every entry
    index     the positions of the entries, 4 bytes each; their number is in the header

whichever is shortest. The floats of trees may be rounded:

    float16   2 bytes
    int8      1 byte q, for q / 127 of the largest magnitude, which is in the header. The largest is restored exactly,
              so sending rounded values again does not change them.

The checksum detects accidents. Anyone can write a message with a correct one, so `decode` trusts nothing: it allocates
no memory before the whole header is checked, and raises only one exception, WireError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedpub.core.message import SENT, Message
from fedpub.core.tree import State
from fedpub.core.tree import tree as branch
from fedpub.federation.wire_header import (
    CHECKSUM,
    DEEPEST,
    FLOATS,
    LIMIT,
    MAGIC,
    MOST_HEADER,
    PRECISIONS,
    VERSION,
    Array,
    Precision,
    WireError,
    check_header,
    check_plain,
    check_pruned,
    check_values,
    full_name,
    in_order,
    parse,
    spell,
    split,
)
from fedpub.federation.wire_payload import Reader, array_of, code_positions, code_values, decode_tensor


@dataclass(frozen=True, eq=False)
class Envelope:
    """What travels once in one direction."""

    kind: str
    """Such as "round"."""
    fields: Mapping[str, Any]
    """Plain JSON; NaN and infinities too."""
    message: Message = field(default_factory=Message)


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
    flat = envelope.message.flat()
    outline: dict[str, Any] = {part: {} for part, content in flat.items() if isinstance(content, dict)}
    payload: list[bytes] = []
    active: dict[str, Array] = {}
    for part, leaf, tensor in in_order(flat):
        name = full_name(part, leaf)
        array = array_of(name, tensor)
        dtype, shape = str(array.dtype), array.shape
        if leaf is not None and part == SENT:
            if dtype != "bool":
                raise WireError(f"{name} says which entries are sent: it is bool, not {dtype}")
            active[leaf] = array
            how, content = code_positions(array)
        else:
            if leaf is not None and leaf in active:
                check_pruned(name, dtype, shape, active[leaf].shape)
                array = array[active[leaf]]
            rounds = leaf is not None and dtype in FLOATS
            how, content = code_values(name, array, precision if rounds else "exact")
        line = [dtype, list(shape), *how]
        if leaf is None:
            outline[part] = line
        else:
            outline[part][leaf] = line
        payload.append(content)
    header = {"kind": envelope.kind, "fields": dict(envelope.fields), "message": outline}
    check_plain(header, DEEPEST)
    check_header(header)  # nothing is sent that would not be taken
    text = spell(header)
    if len(text) > MOST_HEADER:
        raise WireError(f"a header of {len(text)} bytes is longer than {MOST_HEADER}: send less in the fields")
    check_values(text)
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
        text, payload = split(data, limit)
        header = parse(text)
        lines = check_header(header, limit)
        reader = Reader(payload)
        message: State = {name: {} for name, content in header["message"].items() if isinstance(content, dict)}
        parts = [Part("header", (), "json", 0, "with checksum", len(data) - len(payload))]
        active: dict[str, Array] = {}
        for line in lines:
            before = reader.left
            tensor, entries, coding = decode_tensor(line, reader, active)
            if line.leaf is None:
                message[line.part] = tensor
            else:
                branch(message[line.part])[line.leaf] = tensor
            parts.append(Part(line.name, line.shape, line.dtype, entries, coding, before - reader.left))
        if reader.left:
            raise WireError(f"{reader.left} bytes of the message belong to no tensor")
    except MemoryError as error:
        raise WireError("the message does not fit into this machine's memory") from error
    return Envelope(header["kind"], header["fields"], Message.of(dict(sorted(message.items())))), parts
