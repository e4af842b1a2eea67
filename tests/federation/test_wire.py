"""A message's bytes: by hand, after a round trip, and refused wherever they are not as they should be."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from fedpub.core.kernels import sent_entries
from fedpub.core.message import Message
from fedpub.core.tree import State, pack
from fedpub.engine.size import message_bytes
from fedpub.errors import FedpubError
from fedpub.federation.wire import Envelope, decode, describe, encode
from fedpub.federation.wire_header import DTYPES, Precision, WireError

NAN, INF = math.nan, math.inf
CPU = torch.device("cpu")


def envelope_of(message: Message | State, **fields: Any) -> Envelope:
    """A state stands for the message that it would be flat."""
    return Envelope("round", fields, message if isinstance(message, Message) else Message.of(message))


def through(message: Message | State, precision: Precision = "exact") -> State:
    return decode(encode(envelope_of(message), precision)).message.flat()


def content(envelope: Envelope) -> Any:
    """All of a message, to the bit; trees and fields in any order."""
    tensors = {
        name: (str(tensor.dtype), tuple(tensor.shape), tensor.contiguous().numpy().tobytes())
        for name, tensor in pack(envelope.message.flat()).items()
    }
    return envelope.kind, json.dumps(dict(envelope.fields), sort_keys=True), tensors


def as_it_arrives(message: State) -> State:
    """With zeros where nothing is sent."""
    active = message.get("active")
    if not isinstance(active, dict):
        return message
    return {
        name: {leaf: tensor.where(active[leaf], 0) if leaf in active else tensor for leaf, tensor in part.items()}
        if isinstance(part, dict) and name != "active"
        else part
        for name, part in message.items()
    }


def sizes(data: bytes) -> dict[str, tuple[str, int, int]]:
    """Coding, entries and bytes of every tensor."""
    return {part.name: (part.coding, part.entries, part.bytes) for part in describe(data)[1:]}


def sealed(header: Any, payload: bytes = b"") -> bytes:
    """A message with a correct checksum, whatever it says."""
    text = header if isinstance(header, bytes) else spelt(header)
    body = b"FPUB\x01" + len(text).to_bytes(4, "little") + text + payload
    return with_checksum(body)


def with_checksum(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()[:16]


def spelt(header: Any) -> bytes:
    return json.dumps(header, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def opened(data: bytes) -> tuple[bytes, bytes]:
    """Header and payload."""
    end = 9 + int.from_bytes(data[5:9], "little")
    return data[9:end], data[end:-16]


# Round trips


def test_a_message_byte_by_byte() -> None:
    """Entries 0 and 2 of three are sent; `active` comes first in the payload, although `a` is before it."""
    envelope = Envelope(
        "round",
        {"round": 3, "loss": NAN},
        Message.of(
            {
                "weights": {"w": torch.tensor([1.0, 7.0, -2.0])},
                "a": torch.tensor(258, dtype=torch.int32),
                "active": {"w": torch.tensor([True, False, True])},
            }
        ),
    )
    header = (
        b'{"fields":{"loss":NaN,"round":3},"kind":"round","message":{"a":["int32",[],"exact"],'
        b'"active":{"w":["bool",[3],"bitmap"]},"weights":{"w":["float32",[3],"exact"]}}}'
    )
    payload = b"\xa0" + b"\x02\x01\x00\x00" + b"\x00\x00\x80\x3f" + b"\x00\x00\x00\xc0"
    body = b"FPUB\x01" + bytes([len(header), 0, 0, 0]) + header + payload
    data = encode(envelope)
    assert data == with_checksum(body)
    got = decode(data)
    assert got.kind == "round"
    assert got.fields["round"] == 3
    assert math.isnan(got.fields["loss"])
    assert pack(got.message.flat()).keys() == {"a", "active/w", "weights/w"}
    assert got.message["weights"]["w"].tolist() == [1, 0, -2]
    assert got.message.sent["w"].tolist() == [True, False, True]
    assert got.message["a"].item() == 258


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in DTYPES.values()])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3), (1, 2, 3, 4)])
def test_every_dtype_and_shape_survives(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 256, (*shape, dtype.itemsize), generator=torch.manual_seed(0), dtype=torch.uint8)
    tensor = (tensor[..., 0] > 127) if dtype == torch.bool else tensor.view(dtype).reshape(shape)
    message = Message.of({"plain": tensor, "tree": {"leaf": tensor}})
    got = decode(encode(envelope_of(message)))
    assert content(got) == content(envelope_of(message))
    assert encode(got) == encode(envelope_of(message))


def test_extreme_numbers_survive() -> None:
    floats = torch.tensor([NAN, INF, -INF, -0.0, 5e-324, 1.7976931348623157e308], dtype=torch.float64)
    whole = torch.tensor([-(2**63), 2**63 - 1, 0])
    message = Message.of({"x": {"floats": floats, "singles": floats.float(), "whole": whole}})
    assert content(envelope_of(through(message))) == content(envelope_of(message))


def test_what_is_empty_survives() -> None:
    got = through({"masks": {}, "weights": {"w": torch.zeros(2)}})
    assert got["masks"] == {}
    assert through({}) == {}
    nothing = Message.of({"weights": {"w": torch.zeros(0, 3)}, "active": {"w": torch.zeros(0, 3, dtype=torch.bool)}})
    assert through(nothing)["weights"]["w"].shape == (0, 3)


def test_fields_survive() -> None:
    fields = {
        "list": [1, -2.5, [True, None], {"deep": "ü/\n\u2028😀"}],
        "large": 10**400,
        "infinite": [INF, -INF],
        "": {"empty": {}, "nothing": []},
        "kind": "message",
    }
    got = decode(encode(Envelope("", fields)))
    assert (got.kind, got.fields) == ("", fields)


def test_order_does_not_matter_and_is_by_name_afterwards() -> None:
    one, two = torch.ones(2), torch.zeros(1)
    data = encode(Envelope("k", {"a": 1, "b": 2}, Message.of({"x": {"p": one, "q": two}, "a": one})))
    assert encode(Envelope("k", {"b": 2, "a": 1}, Message.of({"a": one, "x": {"q": two, "p": one}}))) == data
    assert list(pack(decode(data).message)) == ["a", "x/p", "x/q"]


def test_what_arrives_is_its_own_memory_and_dense() -> None:
    expanded = torch.ones(3, 1, requires_grad=True).expand(3, 4)
    got = through({"weights": {"w": expanded.T}})["weights"]["w"]
    assert got.is_contiguous()
    assert not got.requires_grad
    got.add_(1)
    assert got.shape == (4, 3)


# Positions


def positions(active: Tensor) -> tuple[str, int, int]:
    """How they are coded; the message is checked on the way."""
    weights = torch.arange(1.0, active.numel() + 1).view(active.shape)
    message: State = {"weights": {"w": weights}, "active": {"w": active}}
    data = encode(envelope_of(message))
    assert content(decode(data)) == content(envelope_of(as_it_arrives(message)))
    kept = int(active.sum())
    assert sizes(data)["weights/w"] == ("exact, active entries only", kept, 4 * kept)
    return sizes(data)["active/w"]


def marked(shape: tuple[int, ...], *where: int) -> Tensor:
    active = torch.zeros(math.prod(shape), dtype=torch.bool)
    active[list(where)] = True
    return active.view(shape)


def test_all_entries_need_no_positions() -> None:
    assert positions(torch.ones(1, 8, 4, dtype=torch.bool)) == ("all", 32, 0)
    assert positions(torch.ones((), dtype=torch.bool)) == ("all", 1, 0)


def test_rows_need_a_bit_each() -> None:
    """8 rows are 1 byte; a bitmap would be 4, an index 32."""
    rows = marked((1, 8), 0, 7)
    assert positions(rows.unsqueeze(2).expand(1, 8, 4)) == ("rows", 8, 1)
    dense = rows.unsqueeze(2).expand(1, 8, 4).contiguous()
    assert positions(dense) == ("rows", 8, 1)
    message = Message.of({"active": {"w": dense}})
    assert opened(encode(envelope_of(message)))[1] == b"\x81"


def test_a_bitmap_has_a_bit_for_every_entry() -> None:
    """33 entries are 5 bytes; an index of 31 would be 124."""
    assert positions(marked((1, 11, 3), *range(31))) == ("bitmap", 31, 5)
    message = Message.of({"active": {"w": marked((2, 5), 0, 1, 8)}})
    assert opened(encode(envelope_of(message)))[1] == b"\xc0\x80"


def test_few_entries_are_counted_off() -> None:
    """Two positions are 8 bytes; a bitmap would be 16."""
    assert positions(marked((1, 8, 16), 3, 100)) == ("index", 2, 8)
    message = Message.of({"active": {"w": marked((1, 8, 16), 3, 100)}})
    assert opened(encode(envelope_of(message)))[1] == b"\x03\x00\x00\x00\x64\x00\x00\x00"


def test_no_entries_at_all() -> None:
    assert positions(marked((1, 8, 4))) == ("index", 0, 0)
    assert positions(marked(())) == ("index", 0, 0)


def test_between_equals_the_simpler_one() -> None:
    assert positions(marked((1, 16, 1), *range(15))) == ("rows", 15, 2), "a bitmap would be 2 too"
    assert positions(marked((1, 8, 4), 5)) == ("bitmap", 1, 4), "one position would be 4 too"
    assert positions(marked((1, 9, 4), 5)) == ("index", 1, 4), "a bitmap would be 5"
    assert positions(marked((1, 64, 4), 0, 1, 2, 3)) == ("rows", 4, 8), "the bitmap would be 32, positions 16"


@given(arrays(bool, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)), st.data())
@settings(deadline=None)
def test_the_smallest_coding_is_taken(active: np.ndarray, data: st.DataObject) -> None:
    if active.ndim and data.draw(st.booleans()):
        active = np.broadcast_to(active[..., :1], active.shape) if active.shape[-1] else active
    kept, n = int(active.sum()), active.size
    possible = [-(-n // 8), 4 * kept]
    if kept == n:
        possible.append(0)
    if n and active.ndim and (active == active[..., :1]).all():
        possible.append(-(-n // active.shape[-1] // 8))
    assert positions(torch.from_numpy(active.copy()))[2] == min(possible)


def test_positions_are_sent_once_for_all_trees() -> None:
    active = marked((1, 2, 8), 0, 9)
    w = torch.arange(16.0).view(1, 2, 8)
    message = Message.of(
        {
            "active": {"w": active},
            "momentum": {"w": -w, "b": torch.ones(1, 2)},
            "weights": {"w": w, "b": torch.ones(1, 2)},
        }
    )
    assert sizes(encode(envelope_of(message))) == {
        "active/w": ("bitmap", 2, 2),
        "momentum/b": ("exact", 2, 8),
        "momentum/w": ("exact, active entries only", 2, 8),
        "weights/b": ("exact", 2, 8),
        "weights/w": ("exact, active entries only", 2, 8),
    }
    assert through(message)["momentum"]["w"].flatten().nonzero().flatten().tolist() == [9], "0 is -0 there"


def test_what_fedpub_sends() -> None:
    """Two clients of three inputs and four outputs: the first does not see input 1."""
    mask = torch.ones(2, 3, 4)
    mask[0, 1] = 0
    active = sent_entries(mask)
    assert active.stride(-1) == 0, "a view of one column"
    assert positions(active) == ("rows", 20, 1)
    mask[1, 2, 3] = 0
    assert positions(sent_entries(mask)) == ("bitmap", 19, 3)


@pytest.mark.parametrize("kept", [0, 3, 4, 100, 127, 128])
def test_the_payload_is_as_large_as_the_simulation_says(kept: int) -> None:
    where = random.Random(kept).sample(range(128), kept)
    message = Message.of(
        {
            "weights": {"w": torch.ones(1, 8, 16), "b": torch.ones(1, 5, dtype=torch.float64)},
            "active": {"w": marked((1, 8, 16), *where)},
            "embedding": torch.ones(1, 7),
        }
    )
    data = encode(envelope_of(message))
    assert len(opened(data)[1]) == int(message_bytes(message, 1, CPU))


def test_a_tensor_may_be_called_active() -> None:
    """Only a tree says what is sent."""
    message = Message.of({"active": torch.tensor([False, True]), "weights": {"active": torch.ones(2)}})
    assert content(envelope_of(through(message))) == content(envelope_of(message))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"active": {"w": torch.ones(2)}}, "active/w"),
        ({"active": {"w": torch.ones(2, dtype=torch.uint8)}, "a": {"w": torch.ones(2)}}, "active/w"),
        ({"active": {"w": torch.ones(3, dtype=torch.bool)}, "a": {"w": torch.ones(2)}}, r"a/w is float32 \[2\]"),
        ({"active": {"w": torch.ones(2, dtype=torch.bool)}, "a": {"w": torch.tensor([1, 2])}}, "a/w is int64"),
        ({"x": torch.ones(2, dtype=torch.float16)}, "x has the dtype float16"),
        ({"x": torch.ones(2).to_sparse()}, "x is no dense tensor"),
        ({"x": {"y": {"z": torch.ones(2)}}}, "x/y is no dense tensor"),
        ({"x": {"a/b": torch.ones(2)}}, "'a/b'"),
        ({"x": {"": torch.ones(2)}}, "name ''"),
        ({"a\n": torch.ones(2)}, "printable"),
        ({"a" * 201: {}}, "200"),
        ({"x": torch.ones([1] * 17)}, "16 sizes"),
        ({"x": {str(at): torch.ones(0) for at in range(10_001)}}, "10001 tensors"),
    ],
)
def test_what_cannot_be_sent_is_not(message: Message, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode(envelope_of(message))


@pytest.mark.parametrize(
    "fields",
    [
        {"a": (1, 2)},
        {"a": torch.ones(1)},
        {"a": {1: 2}},
        {"a": b""},
        {"a": "\ud800"},
        {"a": 10**5000},
        {"a": "x" * 2**22},
    ],
)
def test_fields_are_plain(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="header"):
        encode(Envelope("k", fields))


def test_fields_are_not_nested_without_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested"):
        encode(Envelope("k", {"a": endless}))
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    assert decode(encode(Envelope("k", {"a": deep}))).fields == {"a": deep}
    with pytest.raises(ValueError, match="nested"):
        encode(Envelope("k", {"a": [deep]}))


# Precision


def rounded(values: Any, precision: Precision, dtype: torch.dtype = torch.float64) -> Tensor:
    got = through({"weights": {"w": torch.as_tensor(values, dtype=dtype)}}, precision)["weights"]["w"]
    assert got.dtype == dtype
    return got


def test_float16_by_hand() -> None:
    """11 bits: above 2048 only even numbers, and 0.1 is 1638.25 / 2^14."""
    got = rounded([2049, 2051, 0.5, 0.1, -65504, 65519, 2**-24, 2**-26], "float16")
    assert got.tolist() == [2048, 2052, 0.5, 1638 / 2**14, -65504, 65504, 2**-24, 0]


def test_int8_by_hand() -> None:
    """The largest is 254, a step 2: 3 and 5 lie in the middle and go to the even step."""
    message = Message.of({"weights": {"w": torch.tensor([-254.0, 2, 2.9, 3, 3.1, 5, 0.9, 0], dtype=torch.float64)}})
    data = encode(envelope_of(message), "int8")
    assert b'["float64",[8],"int8",254.0]' in data
    assert list(opened(data)[1]) == [256 - 127, 1, 1, 2, 2, 2, 0, 0]
    expected = torch.tensor([-254, 2, 2, 4, 4, 4, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(decode(data).message["weights"]["w"], expected, rtol=1e-15, atol=0)
    assert sizes(data) == {"weights/w": ("int8", 8, 8)}


def test_only_the_floats_of_trees_are_rounded() -> None:
    third = torch.tensor([1 / 3, 1.0], dtype=torch.float64)
    message = Message.of(
        {
            "embedding": third,
            "weights": {"w": third, "count": torch.tensor([2**40 + 1, 3])},
            "active": {"w": torch.tensor([True, False])},
        }
    )
    for precision in ("float16", "int8"):
        got = through(message, precision)
        assert torch.equal(got["embedding"], third)
        assert torch.equal(got["weights"]["count"], torch.tensor([2**40 + 1, 3]))
        assert got["active"]["w"].tolist() == [True, False]
    assert through(message, "float16")["weights"]["w"].tolist() == [1365 / 4096, 0]
    assert torch.equal(through(message, "int8")["weights"]["w"], third * torch.tensor([1, 0])), (
        "1 / 3 is the largest sent"
    )


def test_rounding_takes_so_many_bytes() -> None:
    message = Message.of({"weights": {"w": torch.randn(1, 8, 4)}, "active": {"w": marked((1, 8, 4), *range(20))}})
    taken = [
        sizes(encode(envelope_of(message), precision))["weights/w"][2] for precision in ("exact", "float16", "int8")
    ]
    assert taken == [80, 40, 20]


def test_zeros_and_nothing_can_be_rounded() -> None:
    for precision in ("float16", "int8"):
        assert rounded([0, 0], precision).tolist() == [0, 0]
        assert rounded([], precision).tolist() == []
        assert rounded(-3.0, precision).tolist() == -3


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_cannot_be_rounded(precision: Precision, bad: float) -> None:
    with pytest.raises(ValueError, match="weights/w holds NaN or infinity"):
        rounded([1, bad], precision)
    message = Message.of({"weights": {"w": torch.tensor([bad, 1.0])}, "active": {"w": torch.tensor([False, True])}})
    assert through(message, precision)["weights"]["w"].tolist() == [0, 1], "it is not sent"


def test_float16_does_not_overflow_in_silence() -> None:
    with pytest.raises(ValueError, match="weights/w holds numbers beyond"):
        rounded([1, 65520], "float16")
    assert rounded([1, 1e300], "int8").tolist() == [0, 1e300]


def test_there_are_three_precisions() -> None:
    with pytest.raises(ValueError, match="int4"):
        encode(envelope_of({}), "int4")  # type: ignore[arg-type]


FINITE = {
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
}


@given(st.data(), st.sampled_from(list(FINITE)), st.sampled_from(["float16", "int8"]))
@settings(max_examples=300, deadline=None)
def test_rounding_again_changes_nothing(data: st.DataObject, dtype: str, precision: Precision) -> None:
    values = data.draw(arrays(dtype, st.integers(0, 20), elements=FINITE[dtype]))
    if precision == "float16":
        values = np.clip(values, -65504, 65504)
    once = rounded(values, precision, DTYPES[dtype][0])
    assert torch.equal(rounded(once, precision, DTYPES[dtype][0]), once)
    if precision == "int8" and len(values):
        largest = float(np.abs(values).max())
        assert float(once.abs().max()) == largest, "to the bit"
        step = largest / 127
        slack = float(np.finfo(dtype).smallest_subnormal) + largest * float(np.finfo(dtype).eps)
        assert (np.abs(once.double().numpy() - values.astype("f8")) <= step / 2 + slack).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_again_changes_nothing_next_to_zero(dtype: torch.dtype) -> None:
    """Where a step of int8 is about the smallest number there is, or less."""
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    for largest in range(1, 300):
        once = rounded(torch.arange(-largest, largest + 1, dtype=dtype) * smallest, "int8", dtype)
        assert float(once[-1]) == largest * smallest
        assert torch.equal(rounded(once, "int8", dtype), once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_again_changes_nothing_for_any_largest(dtype: torch.dtype) -> None:
    stream = torch.Generator().manual_seed(0)
    steps = torch.arange(-127, 128, dtype=dtype) / 127
    for largest in torch.rand(2000, generator=stream, dtype=dtype) + 1:
        once = rounded(steps * largest, "int8", dtype)
        assert torch.equal(rounded(once, "int8", dtype), once)
        assert len(once.unique()) == 255, "every step is used"


# Any message

NAMES = st.text(max_size=12, min_size=1).filter(lambda name: name.isprintable() and "/" not in name)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=6,
)
SHAPES = st.one_of(st.just(()), array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))


def tensor_of(draw: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(draw(arrays(dtype, shape)))


@st.composite
def messages(draw: Any) -> Envelope:
    shapes = draw(st.dictionaries(NAMES, SHAPES, max_size=3))
    pruned = {leaf for leaf in shapes if draw(st.booleans())}
    message: State = {
        name: tensor_of(draw, draw(st.sampled_from(list(DTYPES))), draw(SHAPES))
        for name in draw(st.sets(NAMES, max_size=2))
    }
    for tree in draw(st.sets(NAMES, max_size=2)):
        dtypes = {leaf: st.sampled_from(["float32", "float64"] if leaf in pruned else list(DTYPES)) for leaf in shapes}
        message[tree] = {
            leaf: tensor_of(draw, draw(dtypes[leaf]), shape) for leaf, shape in shapes.items() if draw(st.booleans())
        }
    if pruned:
        message["active"] = {leaf: tensor_of(draw, "bool", shapes[leaf]) for leaf in sorted(pruned)}
    return Envelope(
        draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
        draw(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), PLAIN, max_size=3)),
        Message.of(message),
    )


@given(messages())
@settings(deadline=None)
def test_any_message_arrives_as_it_was_sent(envelope: Envelope) -> None:
    data = encode(envelope)
    got = decode(data)
    assert content(got) == content(
        Envelope(envelope.kind, envelope.fields, Message.of(as_it_arrives(envelope.message.flat())))
    )
    assert encode(got) == data, "the same bytes again"
    parts = describe(data)
    assert sum(part.bytes for part in parts) == len(data)
    assert {part.name for part in parts[1:]} == {
        name for name in pack(envelope.message.flat()) if not name.endswith("/")
    }


# What is refused


def valid() -> list[bytes]:
    """Messages with all there is, some of each."""
    stream = torch.Generator().manual_seed(0)
    w, b = torch.randn(1, 6, 4, generator=stream), torch.randn(1, 4, generator=stream, dtype=torch.float64)
    rows = marked((1, 6), 0, 4).unsqueeze(2).expand(1, 6, 4)
    some, few = marked((1, 6, 4), *range(0, 24, 2)), marked((1, 6, 4), 3)
    wide, one = torch.randn(1, 6, 20, generator=stream), marked((1, 6, 20), 7, 90)
    whole = torch.tensor([[3, -1, 2**40]])
    messages = [
        Envelope(
            "round",
            {"round": 1, "loss": 0.25, "names": ["a", None]},
            Message.of({"weights": {"w": w, "b": b}, "active": {"w": rows}}),
        ),
        Envelope(
            "round", {"round": 2}, Message.of({"weights": {"w": w, "b": b}, "active": {"w": some}, "embedding": b})
        ),
        Envelope(
            "reply",
            {},
            Message.of({"weights": {"w": wide}, "active": {"w": one}, "count": whole, "flags": one[0, :2, :5]}),
        ),
        Envelope(
            "hello",
            {"x": {"y": [1, 2.5, NAN]}},
            Message.of({"masks": {}, "seed": torch.tensor(7), "raw": torch.arange(5, dtype=torch.uint8)}),
        ),
        Envelope(
            "setup",
            {},
            Message.of(
                {
                    "a": {"p": b, "q": torch.zeros(0, 3)},
                    "active": {"p": torch.ones(1, 4, dtype=torch.bool)},
                    "n": whole.int(),
                }
            ),
        ),
        Envelope("reply", {}, Message.of({"grad": {"w": w.double()}, "weights": {"w": w}, "active": {"w": few}})),
    ]
    return [encode(envelope, precision) for envelope in messages for precision in ("exact", "float16", "int8")]


VALID = valid()


def refused(data: bytes, limit: int = 2**31) -> str:
    """What is said, when it is one sentence."""
    with pytest.raises(WireError) as caught:
        decode(data, limit)
    said = str(caught.value)
    assert said
    assert "\n" not in said
    assert len(said) < 1000
    with pytest.raises(WireError):
        describe(data, limit)
    return said


def test_refusals_are_for_users_too() -> None:
    assert issubclass(WireError, FedpubError)
    assert issubclass(WireError, ValueError)


def test_any_other_byte_is_refused() -> None:
    data = VALID[2]
    for at in range(len(data)):
        for other in set(range(256)) - {data[at]}:
            with pytest.raises(WireError):
                decode(data[:at] + bytes([other]) + data[at + 1 :])


def test_whatever_is_cut_off_or_added_is_refused() -> None:
    for data in VALID:
        for length in range(len(data)):
            with pytest.raises(WireError):
                decode(data[:length])
        refused(data + b"\x00")
        refused(b"\x00" + data)
        refused(data + data)


def test_another_program_or_version() -> None:
    assert "FPUB" in refused(b"GET / HTTP/1.1\r\n\r\n")
    assert "FPUB" in refused(b"")
    assert "cut short" in refused(b"FPUB\x01")
    body = b"FPUB\x02" + VALID[0][5:-16]
    assert "format 2" in refused(with_checksum(body))
    assert "damaged" in refused(VALID[0][:-1] + bytes([VALID[0][-1] ^ 1]))


PLAIN_HEADER = {"kind": "k", "fields": {}, "message": {}}


def with_message(**message: Any) -> dict[str, Any]:
    return PLAIN_HEADER | {"message": message}


def nested(depth: int) -> bytes:
    return b'{"fields":{"a":' + b"[" * depth + b"]" * depth + b'},"kind":"","message":{}}'


DIGITS = b"9" * 4300  # of the longest number that Python reads

HEADERS: list[tuple[Any, str]] = [
    (b"", "no JSON"),
    (b"\xff\xfe", "no JSON"),
    ("{}".encode("utf-16"), "no JSON"),
    (b"[]", "no JSON object"),
    (b"{}", "instead of"),
    (PLAIN_HEADER | {"extra": 1}, "instead of"),
    ({"kind": "k", "fields": {}}, "instead of"),
    (PLAIN_HEADER | {"kind": 3}, "kind"),
    (PLAIN_HEADER | {"kind": "k" * 201}, "kind"),
    (PLAIN_HEADER | {"fields": []}, "fields"),
    (PLAIN_HEADER | {"message": None}, "message"),
    (b'{"fields":{}, "kind":"","message":{}}', "spelt"),
    (b'{"kind":"","fields":{},"message":{}}', "spelt"),
    (b'{"fields":{"a":1,"a":1},"kind":"","message":{}}', "spelt"),
    (b'{"fields":{"a":1e400},"kind":"","message":{}}', "spelt"),
    (b'{"fields":{"a":"\\u0041"},"kind":"","message":{}}', "spelt"),
    (b'{"fields":{"a":"\\ud800"},"kind":"","message":{}}', "cannot be written"),
    (b'{"fields":{"a":9' + DIGITS + b'},"kind":"","message":{}}', "no JSON"),
    (nested(31), "nested"),
    (nested(900), "nested"),
    (nested(200_000), "nested"),
    (nested(1_000_000), "values"),
    (with_message(x=None), "described"),
    (with_message(x=[]), "described"),
    (with_message(x="bool"), "described"),
    (with_message(x={"y": {}}), "described"),
    (with_message(x=["float16", [], "exact"]), "dtype"),
    (with_message(x=[["bool"], [], "exact"]), "dtype"),
    (with_message(x=[0, [], "exact"]), "dtype"),
    (with_message(x=["bool", 3, "exact"]), "shape"),
    (with_message(x=["bool", [-1], "exact"]), "shape"),
    (with_message(x=["bool", [-1, -1], "exact"]), "shape"),
    (with_message(x=["bool", [True], "exact"]), "shape"),
    (with_message(x=["bool", [1.0], "exact"]), "shape"),
    (with_message(x=["bool", ["1"], "exact"]), "shape"),
    (with_message(x=["bool", [1] * 17, "exact"]), "16 sizes"),
    (with_message(x=["bool", [2**31 + 1], "exact"]), "too large"),
    (with_message(x=["float64", [2**28 + 1], "exact"]), "too large"),
    (with_message(x=["bool", [0, 2**62, 2**62], "exact"]), "too large"),
    (with_message(x=["bool", [2**40] * 16, "exact"]), "too large"),
    (b'{"fields":{},"kind":"","message":{"x":["bool",[' + DIGITS + b"," + DIGITS + b'],"exact"]}}', "too large"),
    (with_message(active={"w": ["bool", [2**30], "all"], "v": ["bool", [2**30 + 1], "all"]}), "more than the limit"),
    (with_message(x=["bool", [], "zip"]), "coding"),
    (with_message(x=["bool", [], None]), "coding"),
    (with_message(x=["bool", [], "all"]), "coding"),
    (with_message(x=["float32", [], "float16"]), "coding"),
    (with_message(x={"y": ["int64", [], "float16"]}), "coding"),
    (with_message(x={"y": ["bool", [], "bitmap"]}), "coding"),
    (with_message(active={"y": ["bool", [], "exact"]}), "coding"),
    (with_message(active={"y": ["uint8", [], "all"]}), "is bool"),
    (with_message(x=["bool", [], "exact", 1]), "numbers"),
    (with_message(x={"y": ["float32", [0], "int8"]}), "numbers"),
    (with_message(x={"y": ["float32", [0], "int8", 0]}), "numbers"),
    (with_message(x={"y": ["float32", [0], "int8", 0.0, 0.0]}), "numbers"),
    (with_message(active={"y": ["bool", [3], "index", 1.0]}), "numbers"),
    (with_message(active={"y": ["bool", [3], "index", True]}), "numbers"),
    (with_message(active={"y": ["bool", [3], "index", -1]}), "positions"),
    (with_message(active={"y": ["bool", [3], "index", 4]}), "positions"),
    (b'{"fields":{},"kind":"","message":{"active":{"y":["bool",[3],"index",' + DIGITS + b"]}}}", "positions"),
    (with_message(active={"y": ["bool", [], "rows"]}), "no rows"),
    (with_message(active={"y": ["bool", [5, 0], "rows"]}), "no rows"),
    (with_message(x={"y": ["float32", [0], "int8", -1.0]}), "largest magnitude"),
    (with_message(x={"y": ["float32", [0], "int8", NAN]}), "largest magnitude"),
    (with_message(x={"y": ["float64", [0], "int8", INF]}), "largest magnitude"),
    (with_message(x={"y": ["float32", [0], "int8", 0.1]}), "largest magnitude"),
    (with_message(x={"y": ["float32", [0], "int8", 1e300]}), "largest magnitude"),
    (with_message(x={"y": ["float32", [0], "int8", 1.0]}), "0 of 127"),
    (with_message(x={"": ["bool", [], "exact"]}), "name ''"),
    (PLAIN_HEADER | {"message": {"": {}}}, "name ''"),
    (PLAIN_HEADER | {"message": {"a/b": {}}}, "'a/b'"),
    (with_message(x={"a/b": ["bool", [], "exact"]}), "'a/b'"),
    (with_message(x={"\x1b[2J": ["bool", [], "exact"]}), "printable"),
    (with_message(x={"a" * 201: ["bool", [], "exact"]}), "200"),
    (with_message(x={str(at): ["bool", [0], "exact"] for at in range(10_001)}), "10001 tensors"),
    (with_message(active={"w": ["bool", [2], "all"]}, x={"w": ["float32", [3], "exact"]}), "which entries"),
    (with_message(active={"w": ["bool", [2], "all"]}, x={"w": ["bool", [2], "exact"]}), "which entries"),
    (with_message(x=["bool", [1], "exact"]), "needs 1 bytes, and 0 are left"),
]


@pytest.mark.parametrize(("header", "said"), HEADERS)
def test_a_header_that_is_wrong(header: Any, said: str) -> None:
    """With a correct checksum."""
    assert said in refused(sealed(header))


def index(*where: int) -> bytes:
    return b"".join(at.to_bytes(4, "little") for at in where)


@pytest.mark.parametrize(
    ("message", "payload", "said"),
    [
        ({}, b"\x00", "no tensor"),
        ({"x": ["int32", [2], "exact"]}, bytes(7), "needs 8 bytes, and 7 are left"),
        ({"x": ["int32", [2], "exact"]}, bytes(9), "1 bytes of the message belong to no tensor"),
        ({"x": ["bool", [2], "exact"]}, b"\x01\x02", "neither 0 nor 1"),
        ({"active": {"w": ["bool", [3], "bitmap"]}}, b"\xf0", "behind its 3 entries"),
        ({"active": {"w": ["bool", [3, 4], "rows"]}}, b"\x90", "behind its 3 entries"),
        ({"active": {"w": ["bool", [3], "index", 2]}}, index(0, 3), "beyond its 3"),
        ({"active": {"w": ["bool", [3], "index", 2]}}, index(1, 1), "ascend"),
        ({"active": {"w": ["bool", [3], "index", 2]}}, index(2, 1), "ascend"),
        ({"active": {"w": ["bool", [3], "index", 2]}}, index(2**32 - 1, 0), "ascend"),
        ({"active": {"w": ["bool", [3], "index", 2]}}, index(1), "needs 8 bytes"),
        ({"x": {"w": ["float32", [2], "int8", 1.0]}}, b"\x7f\x80", "128 of 127"),
        ({"x": {"w": ["float32", [2], "int8", 1.0]}}, b"\x7e\x00", "126 of 127"),
        ({"x": {"w": ["float32", [2], "int8", 0.0]}}, b"\x01\x00", "1 of 127"),
        (
            {"active": {"w": ["bool", [2], "bitmap"]}, "x": {"w": ["float32", [2], "exact"]}},
            b"\x80" + bytes(8),
            "4 bytes",
        ),
    ],
)
def test_a_payload_that_is_wrong(message: dict[str, Any], payload: bytes, said: str) -> None:
    assert said in refused(sealed(with_message(**message), payload))


def test_a_header_longer_than_there_is_room() -> None:
    text, payload = opened(VALID[0])
    for length, said in (len(text) + len(payload) + 1, "no room"), (2**32 - 1, "longer"):
        body = b"FPUB\x01" + length.to_bytes(4, "little") + text + payload
        assert said in refused(with_checksum(body))
    assert "longer" in refused(sealed(b" " * (2**22 + 1)))


def test_the_limit_holds_for_what_comes_out() -> None:
    """A hundred bytes may ask for gigabytes: 2^20 floats and as many bools, none of them sent."""
    shape = [2**10, 2**10]
    data = sealed(with_message(active={"w": ["bool", shape, "index", 0]}, x={"w": ["float32", shape, "exact"]}))
    assert len(data) < 200
    total = 5 * 2**20
    assert "limit" in refused(data, total - 1)
    got = decode(data, total).message
    assert got["x"]["w"].shape == got.sent["w"].shape == (2**10, 2**10)
    assert not got["x"]["w"].any()


def test_the_limit_holds_for_the_message() -> None:
    data = VALID[0]
    assert "limit" in refused(data, len(data) - 1)
    decode(data, len(data))


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> Tensor:
        raise RuntimeError("can't allocate memory: you tried to allocate 1125899906842624 bytes")

    monkeypatch.setattr(torch, "zeros", full)
    assert "memory" in refused(VALID[0])


def test_what_is_not_finite_is_for_others_to_judge() -> None:
    message = Message.of({"weights": {"w": torch.tensor([NAN, INF])}})
    assert through(message)["weights"]["w"].isnan().tolist() == [True, False]
    halves = sealed(with_message(x={"w": ["float32", [2], "float16"]}), b"\x00\x7c\x00\x7e")
    assert decode(halves).message["x"]["w"].isfinite().sum() == 0


# A hundred thousand messages

ODD = (
    *(-1, 0, 1, 2, 3, 5, 24, 127, 2**31, 2**32, 2**63, 10**30, 1.0, 0.0, -0.0, 0.5, NAN, INF, 1e300, True, False, None),
    *("", "w", "x", "a/b", "n" * 201, "\x00", "\ud800", *DTYPES, "float16", "exact", "int8"),
    *("all", "rows", "bitmap", "index", "kind", "fields", "message", "active", "weights"),
    *([], {}, [1], [1, 6, 4], [6, 4], [24], [0], [1] * 20, ["bool", [1, 6, 4], "all"], ["float32", [1, 6, 4], "exact"]),
    *(
        {"w": ["bool", [1, 6, 4], "bitmap"]},
        {"w": ["float32", [1, 6, 4], "int8", 1.0]},
        json.loads("[" * 40 + "]" * 40),
    ),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a header with every key of it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def other_header(text: bytes, chance: random.Random) -> bytes:
    """A header with something replaced, removed, repeated or moved."""
    header = json.loads(text)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        found = places(header)
        if not found:
            break
        inside, key = chance.choice(found)
        what = chance.randrange(7)
        if what < 3:
            inside[key] = chance.choice(ODD)
        elif what == 3:
            other, place = chance.choice(found)
            inside[key] = json.loads(json.dumps(other[place]))
        elif what == 4:
            del inside[key]
        elif isinstance(inside, dict):
            inside[str(chance.choice(ODD))] = inside[key] if what == 5 else inside.pop(key)
        else:
            inside.insert(key, chance.choice(ODD))
        header = json.loads(json.dumps(header))  # nothing is shared
    try:
        return spelt(header)
    except UnicodeEncodeError:
        return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def other_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bytes with some changed, removed, added or repeated."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        what = chance.randrange(6)
        if what < 3 and at < len(changed):
            changed[at] = chance.choice((0, 1, 127, 128, 255, changed[at] ^ 1 << chance.randrange(8)))
        elif what == 3:
            del changed[at : at + chance.choice((1, 1, 4, 50))]
        elif what == 4:
            changed[at:at] = chance.randbytes(chance.choice((1, 4, 16)))
        else:
            changed[at:at] = changed[at : at + 8]
    return bytes(changed)


def strange(chance: random.Random) -> tuple[str, bytes]:
    """A message that is probably none, and how it was made."""
    data = chance.choice(VALID)
    text, payload = opened(data)
    kind = chance.choice(("noise", "damaged", "damaged", *["header"] * 5, *["payload"] * 2, "both", "text", "anything"))
    if kind == "noise":
        noise = chance.choice((b"", b"FPUB", b"FPUB\x01")) + chance.randbytes(chance.randrange(120))
        return kind, chance.choice((noise, with_checksum(noise)))
    if kind == "damaged":
        return kind, other_bytes(data, chance)
    if kind == "anything":
        return kind, with_checksum(other_bytes(data[:-16], chance))
    if kind in ("header", "both"):
        text = other_header(text, chance)
    if kind == "text":
        text = other_bytes(text, chance)
    if kind in ("payload", "both"):
        payload = other_bytes(payload, chance)
    return kind, sealed(text, payload)


def test_a_hundred_thousand_strange_messages() -> None:
    """Refused with a WireError, or a message that can be sent on; nothing else may happen."""
    chance, limit = random.Random(0), 2_000
    known = set(VALID)
    taken: Counter[str] = Counter()
    reasons: set[str] = set()
    for _ in range(100_000):
        kind, data = strange(chance)
        try:
            envelope = decode(data, limit)
        except WireError as error:
            said = str(error)
            assert 0 < len(said) < 1000
            reasons.add(said)
            continue
        if kind in ("noise", "damaged"):
            assert data in known, "a checksum that was not repaired"
            continue
        if data in known:
            continue
        taken[kind] += 1
        assert sum(tensor.nbytes for tensor in pack(envelope.message).values()) <= limit
        again = encode(envelope)
        assert content(decode(again)) == content(envelope)
        assert sum(part.bytes for part in describe(data, limit)) == len(data)
    assert all(taken[kind] > 100 for kind in ("header", "payload", "both")), "some are still messages"
    assert len(reasons) > 500, "what is wrong is said"
