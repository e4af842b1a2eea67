"""Shamir's scheme, and how vectors become bytes and keys become other keys."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_groups import attempt_of, vector_of

from fedpub.errors import FedpubError
from fedpub.federation.secure.attempt import STORED, Attempt, added, packed, unpacked, zeros
from fedpub.federation.secure.keys import Exchange, derived, new_key, public_of
from fedpub.federation.secure.masks import PIECE, Keystream, add_mask
from fedpub.federation.secure.sealing import BOX, SELF, committed
from fedpub.federation.secure.shamir import PRIME, element, recovered, shared, spelt

elements = st.integers(0, PRIME - 1)


def test_shares_worked_out_by_hand():
    """5 + 3x + 2x² at 1, 2, 3 and 4, for holders 0 to 3."""
    assert shared(5, [3, 2], range(4)) == {0: 10, 1: 19, 2: 32, 3: 49}
    # At zero by Lagrange from x = 1, 2, 3: 3 · 10 − 3 · 19 + 1 · 32 = 5.
    assert recovered({0: 10, 1: 19, 2: 32}) == 5
    # From x = 2 and 4, as of a line: 2 · 19 − 1 · 49 = −11.
    assert recovered({1: 19, 3: 49}) == PRIME - 11
    assert shared(PRIME - 1, [1], [0, 1]) == {0: 0, 1: 1}


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_as_many_shares_as_the_threshold_give_the_secret_and_fewer_do_not(data):
    holders = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=12, unique=True))
    needed = data.draw(st.integers(2, len(holders)))
    secret = data.draw(elements)
    coefficients = data.draw(st.lists(st.integers(1, PRIME - 1), min_size=needed - 1, max_size=needed - 1))
    shares = shared(secret, coefficients, holders)
    order = data.draw(st.permutations(holders))
    assert recovered({one: shares[one] for one in order[:needed]}) == secret
    # One share fewer fits every secret: the last coefficient can be chosen so that it does.
    few = {one: shares[one] for one in order[: needed - 1]}
    other = data.draw(elements)
    last = order[needed - 1]
    ratio = (recovered(few | {last: 1}) - recovered(few | {last: 0})) % PRIME
    fitting = (other - recovered(few | {last: 0})) * pow(ratio, -1, PRIME) % PRIME
    assert recovered(few | {last: fitting}) == other
    assert recovered(few) != secret  # the polynomial of a lower degree is another one


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), PRIME.to_bytes(32, "little"), b"\xff" * 32])
def test_a_share_is_a_reduced_number_in_32_bytes(data):
    with pytest.raises(FedpubError, match="below 2"):
        element(data)
    assert element(spelt(PRIME - 1)) == PRIME - 1


def test_words_as_bytes_by_hand():
    layout = ((8, 2), (16, 1), (24, 2), (32, 1), (64, 1))
    blocks = ([1, 255], [0x0102], [0x010203, 0xFF000004], [0x01020304], [0x0102030405060708])
    vector = [np.array(block, STORED[bits]) for block, (bits, _) in zip(blocks, layout, strict=True)]
    data = packed(layout, vector)
    assert data == bytes([1, 255, 2, 1, 3, 2, 1, 4, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1])
    assert [block.tolist() for block in unpacked(layout, data)] == [*map(list, blocks[:2]), [0x010203, 4], *blocks[3:]]


@given(st.lists(st.tuples(st.sampled_from(list(STORED)), st.integers(0, 9)), max_size=5), st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_vectors_are_what_they_were_after_the_way(layout, seed):
    rng = np.random.default_rng(seed)
    a, b = vector_of(layout, rng), vector_of(layout, rng)
    assert [one.tolist() for one in unpacked(layout, packed(layout, a))] == [one.tolist() for one in a]
    total = added(layout, a, b)
    for (bits, _), one, other, both in zip(layout, a, b, total, strict=True):
        assert both.tolist() == [(int(x) + int(y)) % 2**bits for x, y in zip(one, other, strict=True)]
    for wrong in (b"x", packed(layout, a) + b"x"):
        if len(wrong) != len(packed(layout, a)):
            with pytest.raises(FedpubError, match="by its layout"):
                unpacked(layout, wrong)


def test_a_vector_of_another_layout_is_refused():
    for vector in ([], [np.zeros(4, np.uint16)], [np.zeros(3, np.uint8)], [np.zeros((4, 1), np.uint8)]):
        with pytest.raises(FedpubError, match=r"does not have the layout uint8\[4\]"):
            packed(((8, 4),), vector)


@pytest.mark.parametrize(
    "change",
    [
        {"members": (1, 0, 2)},
        {"members": (0, 0, 2)},
        {"members": (-1, 0, 2)},
        {"members": (0, 1, 2**32)},
        {"keys": (bytes(32), b"\1" * 32)},
        {"keys": (bytes(32), b"\1" * 32, b"\2" * 31)},
        {"keys": (bytes(32), b"\1" * 32, b"\1" * 32)},
        {"layout": ((12, 1),)},
        {"layout": ((8, -1),)},
    ],
)
def test_an_attempt_that_makes_no_sense_is_refused(change):
    with pytest.raises(FedpubError):
        attempt_of(range(3), **change)


def test_all_of_an_attempt_is_part_of_its_context():
    changes = [
        {"run": "s"},
        {"round": 2},
        {"attempt": 1},
        {"group": 1},
        {"message": "01"},
        {"layout": ((8, 2), (8, 2))},
        {"keys": tuple(public_of(new_key()) for _ in range(3))},
        {"members": (0, 1, 3)},
    ]
    contexts = [attempt_of(range(3), **change).context for change in [{}, *changes]]
    assert len({*contexts}) == len(contexts)
    assert set().union(*changes) == set(Attempt.__dataclass_fields__), "a field without a line above"
    assert attempt_of(range(3)).context == contexts[0]


def test_two_keys_share_a_secret_and_a_key_of_low_order_is_refused():
    one, other = Exchange(new_key()), Exchange(new_key())
    assert one.with_key(other.public) == other.with_key(one.public)
    for bad in (bytes(32), (1).to_bytes(32, "little")):
        with pytest.raises(FedpubError, match="not one of X25519"):
            one.with_key(bad)
    with pytest.raises(FedpubError, match="has 32 bytes, not 31"):
        Exchange(bytes(31))


def test_a_derived_key_is_for_one_purpose():
    """The first is HKDF-SHA256 as RFC 5869 has it, from the standard library's HMAC."""
    info = b"label\0" + bytes(32) + (7).to_bytes(4, "little") + (8).to_bytes(4, "little")
    first = hmac.digest(hmac.digest(bytes(32), b"secret", hashlib.sha256), info + b"\1", hashlib.sha256)
    assert derived(b"secret", "label", bytes(32), 7, 8) == first
    others = [
        ("other", bytes(32), 7, 8),
        ("label", b"\1" * 32, 7, 8),
        ("label", bytes(32), 8, 7),
        ("label", bytes(32), 7),
    ]
    assert len({first, *(derived(b"secret", *one) for one in others)}) == 5


def test_a_commitment_is_to_all_of_its_parts():
    parts = (bytes(32), 1, 2, SELF, bytes(32))
    others = [(b"\1" * 32, *parts[1:]), (bytes(32), 2, 2, *parts[3:]), (*parts[:2], 1, *parts[3:])]
    others += [(*parts[:3], BOX, bytes(32)), (*parts[:4], b"\1" * 32)]
    assert len({committed(*one) for one in [parts, *others]}) == 6


def test_masks_are_one_keystream_over_all_blocks():
    """Also where a block is longer than a piece. The first bytes are those of RFC 8439, appendix A.1, for key zero."""
    first = Keystream(bytes(32)).words(8, np.dtype(np.uint8)).tobytes()
    assert first.hex() == "76b8e0ada0f13d90"
    layout = ((8, PIECE + 3), (32, PIECE), (16, 5), (24, 7), (64, 3))
    whole = zeros(layout)
    add_mask(whole, b"k" * 32, 1)
    stream = Keystream(b"k" * 32)
    data = b"".join(stream.words(1, np.dtype(np.uint8)).tobytes() for _ in range(sum(one.nbytes for one in whole)))
    equal = b"".join(one.tobytes() for one in whole) == data
    assert equal  # without a comparison of all bytes in words
    add_mask(whole, b"k" * 32, -1)
    assert not any(one.any() for one in whole)
