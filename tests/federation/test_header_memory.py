"""A message that one site makes as large as it can takes little of the coordinator's memory."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc

import pytest
from test_coordinator import NAMES, Sites, leader

from fedpub.errors import FedpubError
from fedpub.federation.validate.fields import ANSWERED, MOST_CLASSES, check_fields
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.federation.wire_header import (
    CHECKSUM,
    DEEPEST,
    LONGEST_NAME,
    MAGIC,
    MOST_HEADER,
    MOST_VALUES,
    VERSION,
    WireError,
)

ENOUGH = 64 * 2**20  # bytes at most; the headers here would take up to 200 MiB
DEEP = DEEPEST - 4  # lists in lists that are still allowed in a list among the fields
TOO_MANY = r"a header of .* values has more than"


def sent(header: bytes) -> bytes:
    """A message with this header, however it was made."""
    text = MAGIC + bytes([VERSION]) + len(header).to_bytes(4, "little") + header
    return text + hashlib.sha256(text).digest()[:CHECKSUM]


def hello(values: str) -> bytes:
    """A hello with these classes, in JSON."""
    fields = f'{{"classes":[{values}],"features":5,"relations":1}}'
    return sent(f'{{"fields":{fields},"kind":"hello","message":{{}}}}'.encode())


def names(count: int, length: int) -> bytes:
    return hello(",".join(f'"{number:0{length}}"' for number in range(count)))


def full(value: str) -> bytes:
    """A hello with as many of a value as its header holds."""
    return hello(",".join([value] * ((MOST_HEADER - 200) // (len(value) + 1))))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda: names(150_000, 1), r"classes .* 150,000 long", id="names"),
        pytest.param(lambda: names(150_000, LONGEST_NAME), r"a header of .* bytes", id="long names"),
        pytest.param(lambda: full("[]"), TOO_MANY, id="lists"),
        pytest.param(lambda: full("[" * DEEP + "]" * DEEP), TOO_MANY, id="deep lists"),
        pytest.param(lambda: full('{"a":1}'), TOO_MANY, id="objects"),
    ],
)
def test_the_largest_hello_is_refused_in_little_memory(make, reason):
    data = make()
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(FedpubError, match=reason):
            check_fields(decode(data), ANSWERED["hello"])
        assert tracemalloc.get_traced_memory()[1] < ENOUGH
    finally:
        tracemalloc.stop()


def test_as_many_names_as_are_allowed_are_read():
    check_fields(decode(names(MOST_CLASSES, LONGEST_NAME)), ANSWERED["hello"])


def test_what_would_not_be_taken_is_not_sent():
    with pytest.raises(WireError, match=TOO_MANY):
        encode(Envelope("hello", {"classes": [0] * (MOST_VALUES + 1)}))


def test_classes_that_do_not_fit_into_one_message_end_the_run_with_the_site_s_name(tmp_path):
    classes = {client: [f"{client}{number:0{LONGEST_NAME - 1}}" for number in range(4000)] for client in (0, 1, 2)}
    for client in (1, 2):  # two bytes a character
        classes[client] = [name.replace("0", "é") for name in classes[client]]

    def answer(client: int, envelope: Envelope) -> Envelope:
        assert envelope.kind == "hello", "no site is told more than it can read"
        return Envelope("hello", {"features": 5, "classes": classes[client], "relations": 1})

    with pytest.raises(FedpubError, match=rf"site '{NAMES[1]}' cannot take part: .* bytes, more than 2,097,152"):
        leader(tmp_path, Sites(answer)).prepare()
