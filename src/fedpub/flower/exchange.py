"""Our messages as the content of Flower's.

A site's process may die while it handles a message: then neither an answer nor an error ever arrives. So a message is
sent again when the site has another node, and in a Flower federation periodically until the deadline; a site answers
the same message the same way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_body, get_object_head_values_from_object_content
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

AGAIN = 20.0  # seconds before a message is sent again, where the carrier does not see to it
GRACE = 30.0  # seconds that the others wait for a site that is not connected, or that was late the last time
LOOK = 0.2  # seconds between two looks at which sites are there
RECORD, KIND, BYTES = "letter", "fedpub.letter", "uint8"
OBJECTS = 4096  # the most in one message; arrays come in pieces of 5 MiB
WHOLE = 2**22  # bytes of a message that travels in one piece: as objects it takes a request for each of five


class Present(NamedTuple):
    """A connected site: its node."""

    node: int


class Carrier(Protocol):
    """Sends messages to nodes and collects their replies."""

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        """The message's number; None if it cannot be sent now."""

    def replies(self, numbers: Iterable[str]) -> dict[str, bytes | None]:
        """What has arrived: an answer, not checked yet, or None for an error of the carrier."""

    def forget(self) -> None:
        """Drop what is still in transit."""

    def wait(self, seconds: float) -> None:
        """Until something may have arrived, at most so long."""


class FlowerExchange:
    """An exchange over Flower.

    - `present`: the connected sites.
    - `is_member`: whether a site is still admitted; others are not waited for.
    - `alive`: raises an error if waiting is useless.
    - `grace`: the longest that sites who have answered wait for one that is away, or that missed the last deadline.
      A site that is connected and was in time before has until the deadline.
    """

    def __init__(
        self,
        carrier: Carrier,
        present: Callable[[], Mapping[int, Present]],
        again: float = AGAIN,
        alive: Callable[[], None] = lambda: None,
        is_member: Callable[[int], bool] = lambda client: True,
        grace: float = GRACE,
    ) -> None:
        self._carrier, self._present, self._again, self._alive = carrier, present, again, alive
        self._is_member, self._grace = is_member, grace
        self._seen: dict[int, float] = {}  # when a site was last connected
        self._late: set[int] = set()  # who missed the last deadline

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        return dict(self.stream(messages, deadline))

    def stream(self, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """The answers as they arrive."""
        found: set[int] = set()
        try:
            yield from self._carried(messages, deadline, found)
        finally:
            self._carrier.forget()
        self._late = (self._late | messages.keys()) - found

    def _waits(self, messages: Mapping[int, bytes], found: set[int], now: float, answered: float) -> bool:
        """Whether an answer that is missing is still waited for; `answered`: when the last one arrived."""
        missing = [client for client in messages if client not in found and self._is_member(client)]
        for client in missing:
            self._seen.setdefault(client, now)
        in_time = [client for client in missing if client not in self._late and now - self._seen[client] <= self._grace]
        return bool(in_time) or (bool(missing) and now - answered <= self._grace)

    def _carried(self, messages: Mapping[int, bytes], deadline: float, found: set[int]) -> Iterator[tuple[int, bytes]]:
        until = time.monotonic() + deadline
        pending: dict[str, int] = {}  # messages in transit, and their clients
        sent: dict[int, tuple[Present, float]] = {}
        answered = time.monotonic()
        while (now := time.monotonic()) < until and self._waits(messages, found, now, answered):
            self._alive()
            there = self._present()
            self._seen |= dict.fromkeys(there, now)
            for client, data in messages.items():
                if client in found or client not in there:
                    continue
                last, at = sent.get(client, (None, now))
                if last != there[client] or now - at > self._again:
                    number = self._carrier.send(there[client].node, data, until - now + 60)
                    sent[client] = there[client], now
                    if number is not None:
                        pending[number] = client
            before = len(found)
            yield from self._arrived(pending, sent, found)
            if len(found) > before:
                answered = time.monotonic()
            if len(found) < len(messages):
                self._carrier.wait(LOOK)
        # What came in time while the last answers were being handled.
        yield from self._arrived(pending, sent, found)

    def _arrived(
        self, pending: dict[str, int], sent: dict[int, tuple[Present, float]], found: set[int]
    ) -> Iterator[tuple[int, bytes]]:
        for number, answer in self._carrier.replies(pending).items():
            client = pending.pop(number)
            if client in found:
                continue
            if answer is None:
                sent[client] = sent[client][0], time.monotonic() - self._again + 2  # again, but not at once
            else:
                found.add(client)
                yield client, answer


class GridCarrier:
    """Sends over the grid of a Flower federation."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        return next(iter(self._grid.push_messages([Message(packed(data), node, "query", ttl=ttl)])), None)

    def replies(self, numbers: Iterable[str]) -> dict[str, bytes | None]:
        wanted, found = list(numbers), dict[str, bytes | None]()
        for reply in self._grid.pull_messages(wanted) if wanted else ():
            # An error comes from the link, not from the site: only the message it replies to identifies the site.
            number = reply.metadata.reply_to_message_id
            if number in wanted:
                found[number] = None if reply.has_error() else unpacked(reply.content) or b""
        return found

    def forget(self) -> None:
        """Nothing to do: Flower drops what has expired."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def packed(data: bytes) -> RecordDict:
    return RecordDict({RECORD: ArrayRecord({RECORD: Array(BYTES, (len(data),), KIND, data)})})


def unpacked(content: RecordDict) -> bytes | None:
    """The message of a message, its bytes as they are: no header in them is believed. None where it is none of ours."""
    record = content.get(RECORD)
    array = record.get(RECORD) if isinstance(record, ArrayRecord) else None
    if not isinstance(array, Array) or (array.dtype, array.stype) != (BYTES, KIND):
        return None
    return array.data if array.shape == (len(array.data),) else None


def content_of(proto: Any) -> bytes | None:
    """The message in Flower's message that travels whole; None where it is none of ours, whatever it holds.

    It is read where it lies: Flower's own reader would first make an object of each of millions of empty parts.
    """
    records = proto.content.items
    if len(records) != 1 or records[0].key != RECORD or len(records[0].array_record.items) != 1:
        return None
    item = records[0].array_record.items[0]
    array = item.value
    if item.key != RECORD or (array.dtype, array.stype) != (BYTES, KIND) or len(array.shape) != 1:
        return None
    return bytes(array.data) if array.shape[0] == len(array.data) else None


class IncompleteError(Exception):
    """An object of a message has not arrived yet."""


def payload_of(number: str, fetch: Callable[[str], bytes], largest: int) -> bytes | None:
    """The message of the message with this number, whose objects `fetch` gets; None where it is none of ours.

    Whatever the objects hold: no more than `largest` bytes are taken, and only an IncompleteError or an error of
    `fetch` itself gets out.
    """
    contents: dict[str, bytes] = {}
    missing, taken = [number], 0
    while missing:
        one = missing.pop()
        if one in contents:
            continue
        content = contents[one] = fetch(one)
        taken += len(content)
        try:
            missing += get_object_head_values_from_object_content(content)[1]
        except (ValueError, OverflowError):
            return None
        if taken > largest or len(contents) + len(missing) > OBJECTS:
            return None
    try:
        if sum(_lengths(contents)) > largest:
            return None
        message = inflate_object_from_contents(number, contents)
        return unpacked(message.content) if isinstance(message, Message) and message.has_content() else None
    except Exception:  # whatever it is, it is no message
        return None


def _lengths(contents: Mapping[str, bytes]) -> Iterable[int]:
    """How long arrays would become: their pieces may be named more than once."""
    for content in contents.values():
        kind, pieces, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            order = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            yield sum(len(contents[pieces[at]]) for at in order)
