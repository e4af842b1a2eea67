"""Both ends write every message into their audit log: what it is about, how large it is and its digest, no content."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.federation.countersigned import signed_text, unwrapped, wrapped
from fedpub.federation.journal import Entry, Journal
from fedpub.federation.requests import Exchange, as_they_come
from fedpub.federation.validate.fields import KINDS, MOST_ROUNDS
from fedpub.federation.wire_header import LIMIT, WireError, check_header, digests, parse, split

RUN = re.compile(r"[0-9a-f]{16}")
MOST_LISTED, LONGEST_LIST = 500, 2**14  # tensors of a message, and characters that they take in a line
UNREADABLE = "unreadable"  # the kind of what cannot be read
SILENT = "silent"  # ... of an answer that did not come in time
DROPPED = "dropped"  # ... of an answer that the coordinator did not use, for want of a countersignature
NO_ANSWER = "no answer within the deadline"
KEY = "key"  # kind and direction of a line that says by which key a site is admitted from there on
FLOWER = "flwr run"  # what a line is over where answers have no countersignatures

Direction = Literal["in", "out", "key"]
End = Literal["coordinator", "site"]


class Sign(Protocol):
    """Signs a text with the key by which the site is admitted."""

    def __call__(self, text: bytes) -> bytes: ...


class Verify(Protocol):
    """Whether a key, given as a line, has signed a text."""

    def __call__(self, key: str, signature: bytes, text: bytes) -> bool: ...


@dataclass(frozen=True)
class Keys:
    """What the coordinator needs to check countersignatures: the key of a site now, and how to verify with it."""

    of: Callable[[str], str | None]
    verify: Verify


@dataclass(frozen=True)
class Described:
    """A message without its content."""

    kind: str
    run: str | None
    round: int | None
    tensors: list[tuple[str, str, tuple[int, ...]]]
    bytes: int
    digest: str
    reason: str | None = None
    unlisted: dict[str, Any] | None = None
    """In the place of a long list of tensors: how many there are, and the digest of the header that has them."""

    def entry(self, end: End, site: str, direction: Direction, **more: Any) -> Entry:
        about = {"time": _now(), "at": end, "site": site, "direction": direction, **self.__dict__, "question": None}
        return {
            name: value
            for name, value in (about | more).items()
            if name not in ("reason", "unlisted") or value is not None
        }


def described(data: bytes) -> Described:
    """A message in one pass over its bytes; only its header is decoded. Whatever it holds, it can be described."""
    checksum, digest = digests(data)
    try:
        text = split(data, math.inf, checksum)[0]
        header = parse(text)
        tensors = [(line.name, line.dtype, line.shape) for line in check_header(header, LIMIT)]
    except (WireError, ValueError, ArithmeticError, RecursionError):
        return Described(UNREADABLE, None, None, [], len(data), digest)
    unlisted = None
    if len(tensors) > MOST_LISTED or len(json.dumps(tensors)) > LONGEST_LIST:  # the sender must not fill the disk
        unlisted = {"tensors": len(tensors), "header": hashlib.sha256(text).hexdigest()}
        tensors = []
    kind, fields = header["kind"], header["fields"]
    run, number = fields.get("run"), fields.get("round")
    return Described(
        kind if kind in KINDS else UNREADABLE,
        run if isinstance(run, str) and RUN.fullmatch(run) else None,
        number if type(number) is int and 0 <= number <= MOST_ROUNDS else None,
        tensors,
        len(data),
        digest,
        printable(fields.get("reason", "")) if kind in ("refused", "lost") else None,
        unlisted,
    )


class SiteLog:
    """A site's log. With `sign`, every answer leaves with the site's signature and the hash of its line around it."""

    def __init__(self, journal: Journal, site: str, sign: Sign | None = None) -> None:
        self._journal, self._site, self._sign = journal, site, sign

    def answer(self, data: bytes, answered: Callable[[bytes], bytes]) -> bytes:
        """What leaves the site as its answer to a message; both have their line before it leaves."""
        asked = described(data)
        self._journal.write([asked.entry("site", self._site, "in")], durable=False)
        answer = answered(data)
        own = described(answer)
        about = {"run": asked.run, "round": asked.round, "question": asked.digest}
        head = self._journal.write([own.entry("site", self._site, "out", **about)])
        if self._sign is None:
            return answer
        return wrapped(answer, head, self._sign(signed_text(asked.run, asked.digest, own.digest, head)))


class LoggedExchange:
    """An exchange that writes every message and every answer into the coordinator's log.

    With `keys`, answers without their site's countersignature are dropped, and a line says which key a site has when
    it is first used and when it changes. `name_of` is the name of a site by its number.
    """

    def __init__(
        self,
        exchange: Exchange,
        journal: Journal,
        name_of: Callable[[int], str],
        keys: Keys | None = None,
        on_dropped: Callable[[int, int, str], None] = lambda *_: None,
    ) -> None:
        self._exchange, self._journal, self._name_of, self._keys = exchange, journal, name_of, keys
        self._on_dropped = on_dropped
        self._logged_keys: dict[str, str | None] = {}
        self._over = {"over": FLOWER} if keys is None else {}

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        return dict(self.stream(messages, deadline))

    def stream(self, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """The answers as they arrive, each after its line."""
        asked = {client: described(data) for client, data in messages.items()}
        before = {client: self._key(self._name_of(client)) for client in messages}
        sent = [one.entry("coordinator", self._name_of(client), "out", **self._over) for client, one in asked.items()]
        self._journal.write([*self._key_lines(before), *sent])
        silent = dict(asked)
        for client, data in as_they_come(self._exchange, messages, deadline):
            if (question := silent.pop(client, None)) is None:
                continue
            now = self._key(self._name_of(client))
            keys = dict.fromkeys((before[client], now))  # one may have been rotated
            answer, entry, dropped = self._taken(client, data, question, [*filter(None, keys)])
            self._journal.write([*self._key_lines({client: now}), entry], durable=False)
            if answer is not None:
                yield client, answer
            else:
                self._on_dropped(client, question.round or 0, dropped)
        none = Described(SILENT, None, None, [], 0, "", NO_ANSWER)
        self._journal.write([self._entry(none, client, question) for client, question in silent.items()])

    def _key_lines(self, keys: Mapping[int, str | None]) -> list[Entry]:
        """Lines for those keys that are not those of the last such line of their sites."""
        found, none = [], Described(KEY, None, None, [], 0, "")
        for client, key in keys.items():
            name = self._name_of(client)
            if key != self._logged_keys.get(name):
                found.append(none.entry("coordinator", name, "key", key=key))
                self._logged_keys[name] = key
        return found

    def _taken(self, client: int, data: bytes, question: Described, keys: list[str]) -> tuple[bytes | None, Entry, str]:
        """An answer, None if it is not used; its line; and why it is not used."""
        try:
            answer, own, more = self._opened(data, question, keys)
            return answer, self._entry(own, client, question, **more), ""
        except FedpubError as error:
            _, digest = digests(data)
            own = Described(DROPPED, None, None, [], len(data), digest, printable(error))
            return None, self._entry(own, client, question), str(own.reason)

    def _entry(self, own: Described, client: int, question: Described, **more: Any) -> Entry:
        about = {"run": question.run, "round": question.round, "question": question.digest}
        return own.entry("coordinator", self._name_of(client), "in", **about, **self._over, **more)

    def _key(self, name: str) -> str | None:
        return self._keys.of(name) if self._keys else None

    def _opened(self, data: bytes, question: Described, keys: list[str]) -> tuple[bytes, Described, dict[str, Any]]:
        """An answer, its description, and what the line says about its countersignature."""
        if self._keys is None:
            return data, described(data), {}
        found = unwrapped(data)
        own = described(found.answer)
        text = signed_text(question.run, question.digest, own.digest, found.head)
        for key in keys:
            if self._keys.verify(key, found.signature, text):
                return found.answer, own, {"head": found.head, "key": key, "signature": found.signature.hex()}
        raise FedpubError("its countersignature is not one of the site's key over this answer to this message")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
