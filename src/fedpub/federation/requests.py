"""The coordinator's requests to sites: deadlines, patience, and answers that cannot be used.

How bytes travel is left to an `Exchange`. Every exchange has a deadline, and sites that miss it are left out of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.federation.validate.fields import ANSWERED, Rule, check_fields
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.federation.wire_header import Precision

PAUSE = 2.0  # seconds before asking again when too few sites answered


class Exchange(Protocol):
    """Carries messages to sites by their number and returns the answers that arrive within the deadline."""

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]: ...


@runtime_checkable
class Streams(Protocol):
    """An exchange that also returns answers one by one, as they arrive; its consumer takes them all."""

    def stream(self, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]: ...


def as_they_come(exchange: Exchange, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
    if isinstance(exchange, Streams):
        yield from exchange.stream(messages, deadline)
    else:
        yield from exchange(messages, deadline).items()


# (site or None, what happened, in which round, why)
OnEvent = Callable[[int | None, str, int, str], None]


@dataclass(frozen=True)
class Terms:
    """How a federation treats sites that are slow, silent or wrong."""

    deadline: float = 300.0
    """Seconds that a site has to answer."""
    patience: float = 86400.0
    """Seconds to wait for enough sites before giving up."""
    min_sites: int = 0
    """Sites needed in each round; 0 for half of those selected."""
    precision: Precision = "exact"
    """Rounding of uploaded weights; the rounding error is added to the next upload."""
    max_message: int = 1024
    """Maximum size of a message in MiB, before and after decoding."""

    def check(self) -> None:
        for name in ("deadline", "patience", "max_message"):
            if not getattr(self, name) > 0:
                raise FedpubError(f"`{name}={getattr(self, name)}` is not possible; give more than 0")
        if self.min_sites < 0:
            raise FedpubError(f"`min_sites={self.min_sites}` is not possible; give 0 or more")


class Requests:
    """Asks the sites of a run and reads their answers."""

    def __init__(
        self,
        sites: Sequence[str],
        exchange: Exchange,
        terms: Terms,
        on_event: OnEvent,
        is_member: Callable[[str], bool] = lambda site: True,
    ) -> None:
        self.sites, self.terms, self.exchange, self.event = list(sites), terms, exchange, on_event
        self._is_member = is_member

    @property
    def everyone(self) -> list[int]:
        return list(range(len(self.sites)))

    @property
    def removed(self) -> list[int]:
        """The sites of the run that are no longer admitted."""
        return [client for client in self.everyone if not self._is_member(self.sites[client])]

    def ask(self, messages: Mapping[int, bytes], number: int = 0) -> dict[int, tuple[Envelope, int]]:
        """The readable answers of one exchange, with their bytes; `number` is the round, for the log."""
        return {client: (answer, len(data)) for client, answer, data in self.each(messages, number)}

    def each(self, messages: Mapping[int, bytes], number: int) -> Iterator[tuple[int, Envelope, bytes]]:
        """The readable answers of one exchange as they come, decoded and as they were sent."""
        for client, data in as_they_come(self.exchange, messages, self.terms.deadline):
            try:
                answer = decode(data, self.terms.max_message * 2**20)
            except Exception as error:  # whatever one site sent, the others' answers are still used
                self.event(client, "refused", number, printable(error))
                continue
            yield client, answer, data

    def ask_all(
        self,
        kind: str,
        message: Callable[[int], Envelope | bytes],
        rules: Mapping[str, Rule] | None = None,
        sizes: dict[int, int] | None = None,
    ) -> dict[int, Envelope]:
        """The answers of that kind of all sites; a run cannot begin without one of them.

        Their fields follow `rules`, by default those of the kind; `sizes` is filled with the answers' bytes.
        """
        missing, found = set(self.everyone), {}
        until = time.monotonic() + self.terms.patience
        while missing:
            asked = {client: message(client) for client in sorted(missing)}
            encoded = {client: one if isinstance(one, bytes) else encode(one) for client, one in asked.items()}
            for client, (answer, size) in self.ask(encoded).items():
                self.require(client, answer.kind == kind, reason_of(answer))
                try:
                    check_fields(answer, ANSWERED[kind] if rules is None else rules)
                except FedpubError as error:
                    self.require(client, False, printable(error))
                found[client] = answer
                missing.discard(client)
                if sizes is not None:
                    sizes[client] = size
            for client in missing.intersection(self.removed):
                raise FedpubError(
                    f"site {self.sites[client]!r} was removed before the run had begun; start the coordinator again"
                )
            if missing and time.monotonic() > until:
                names = ", ".join(self.sites[client] for client in sorted(missing))
                raise FedpubError(
                    f"no answer ({kind}) from {names} within {self.terms.patience:g} s; start these sites"
                )
            if missing:
                time.sleep(PAUSE)
        return found

    def require(self, client: int, condition: object, reason: str) -> None:
        """End the run unless the condition holds: it cannot begin with such a site."""
        if not condition:
            self.event(client, "refused", 0, reason)
            raise FedpubError(f"site {self.sites[client]!r} cannot take part: {reason}")


def reason_of(answer: Envelope | None) -> str:
    """Why a site did not answer what it was asked."""
    if answer is None:
        return "no answer within the deadline"
    return printable(answer.fields.get("reason") or f"its answer is a message of the kind {answer.kind!r}")
