"""The coordinator's side of secure sums: four exchanges with the members of every group, after each round's answers.

    shares    every member deposits shares of its secrets, sealed for its neighbours
    masked    with these, every member sends its masked vector
    confirm   survivors, whose vectors came, confirm to each other who they are
    reveal    ... and reveal what takes the masks off their sum

Until `confirm` a group that has lost too many is asked again, without those. From then on its members answer for these
survivors only: what is known by then is saved, so that a coordinator that was killed resumes there.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedpub.algorithms.sums import Summed
from fedpub.core.files import write_text
from fedpub.core.message import Message
from fedpub.core.printable import printable
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.errors import FedpubError
from fedpub.federation.requests import PAUSE, Requests, reason_of
from fedpub.federation.secure.aggregator import Aggregator
from fedpub.federation.secure.attempt import Attempt
from fedpub.federation.secure.blobs import as_tensor, blob, content
from fedpub.federation.secure.numbers import Numbers
from fedpub.federation.secure.records import dealt_bytes, tags_bytes, tags_of
from fedpub.federation.secure.refusals import NotEnoughError
from fedpub.federation.validate.fields import ANSWERED, check_fields
from fedpub.federation.wire import Envelope, encode

RECORD, STARTS = "fedpub-sum", "sums.txt"  # what a file of a sum is of; how often a process began to ask for sums
ATTEMPTS = 3  # of a group in a round


@dataclass(frozen=True, eq=False)
class Group:
    """Sites that are added up in a round, the digest of what each was sent, and the form of what they add."""

    number: int
    members: tuple[int, ...]
    told: str
    numbers: Numbers


@dataclass(frozen=True, eq=False)
class Sum:
    """An attempt at the sum of a group."""

    group: Group
    attempt: Attempt
    adding: Aggregator

    @property
    def fields(self) -> dict[str, Any]:
        one = self.attempt
        terms = {"run": one.run, "round": one.round, "attempt": one.attempt, "group": one.group}
        return terms | {"members": list(one.members)}


Asked = tuple[Sum, dict[str, Any], Message]  # a question to one site, as fields and content


class SecureSums:
    """Asks for the sums of a run; `folder` has what a restart needs."""

    def __init__(self, run: str, keys: Sequence[str], least: int, folder: Path, requests: Requests) -> None:
        self._run, self._least, self._folder, self._requests = run, least, folder, requests
        self.know(keys)
        self._accused: Counter[int] = Counter()  # of dealing what does not open, in this attempt
        self._starts: int | None = None  # how many processes of this run have asked for sums before
        self.bytes: dict[int, tuple[int, int]] = {}  # of the last round's exchanges, up and down

    def know(self, keys: Sequence[str]) -> None:
        """The sites' keys of the run, which change if a site loses its folder."""
        self._keys = [bytes.fromhex(key) for key in keys]

    def of(self, number: int, groups: Sequence[Group]) -> list[Summed]:
        """The sums of a round, of those groups that have one. Before the first round, all members are in theirs."""
        self.bytes, self._whole = {}, number == 0
        resumed = self._resumed(number, groups)
        found = self._finished(number, resumed)
        pending = [group for group in groups if all(one.group.number != group.number for one in resumed)]
        for attempt in range(first := self._first_attempt(), first + ATTEMPTS):
            few = [group for group in pending if len(group.members) < self._least]
            self._say_missing(number, few)
            pending = [group for group in pending if group not in few]
            if not pending:
                break
            sums = [self._begun(number, attempt, group) for group in pending]
            pending, self._accused = [], Counter()
            self._ask_shares(number, sums)
            sums = list(self._enough(number, sums, Aggregator.alive, pending))
            self._ask_masked(number, sums)
            sums = list(self._enough(number, sums, Aggregator.survivors, pending))
            self._keep(number, sums)
            found += self._finished(number, sums)
        self._say_missing(number, pending)
        return sorted(found, key=lambda one: one.group)

    def _say_missing(self, number: int, groups: Sequence[Group]) -> None:
        for group in groups:
            self._say(None, "left out", number, f"group {group.number} has no sum: too few of its sites have answered")

    # The four exchanges

    def _ask_shares(self, number: int, sums: Sequence[Sum]) -> None:
        asked = {client: (one, one.fields, Message()) for one in sums for client in one.group.members}
        for client, one, data in self._answers(number, "shares", "deposit", asked):
            self._take(client, number, partial(one.adding.deposited, client, data))

    def _ask_masked(self, number: int, sums: Sequence[Sum]) -> None:
        asked = {client: (one, _with(one), _dealt(one, client)) for one in sums for client in one.adding.alive()}
        for client, one, data in self._answers(number, "masked", "masked", asked):
            self._take(client, number, partial(one.adding.masked, client, data))

    def _finished(self, number: int, sums: Sequence[Sum]) -> list[Summed]:
        """The sums over the survivors; they are asked until enough have revealed their part."""
        until, found, left = time.monotonic() + self._requests.terms.patience, [], list(sums)
        while left:
            self._ask_to_reveal(number, left)
            for one in [one for one in left if one.adding.ready()]:
                left.remove(one)
                try:
                    total = one.group.numbers.sums(one.adding.result())
                except FedpubError as error:  # a dealer's secret is not what it has committed to
                    self._say(None, "left out", number, f"group {one.group.number} has no sum: {printable(error)}")
                    continue
                found.append(Summed(one.group.number, torch.tensor(one.adding.survivors()), total))
            for one in [one for one in left if self._is_lost(one)]:
                left.remove(one)
                self._say_missing(number, [one.group])
            if left and time.monotonic() > until:
                names = ", ".join(self._requests.sites[client] for client in left[0].adding.survivors())
                raise FedpubError(
                    f"the sum of round {number} waits for more of {names}, which have sent their masked weights; start "
                    "these sites and continue with fedpub coordinator start --resume"
                )
            if left:
                time.sleep(PAUSE)
        return found

    def _is_lost(self, one: Sum) -> bool:
        """Whether too few survivors are still admitted to confirm each other."""
        left = {*one.adding.survivors()} - {*self._requests.removed}
        return len(left) < len(one.group.members) // 2 + 1

    def _ask_to_reveal(self, number: int, sums: Sequence[Sum]) -> None:
        asked: dict[int, Asked] = {}
        for one in sums:
            also = _with(one) | {"survivors": list(one.adding.survivors())}
            asked |= {client: (one, also, _dealt(one, client)) for client in one.adding.survivors()}
        confirmed = {
            client
            for client, one, data in self._answers(number, "confirm", "tags", asked)
            if self._take(client, number, partial(_confirmed, one, client, data))
        }
        asked = {client: _with_tags(client, *asked[client]) for client in sorted(confirmed)}
        for client, one, data in self._answers(number, "reveal", "revealed", asked):
            self._take(client, number, partial(self._reveal, number, one, client, data))

    def _reveal(self, number: int, one: Sum, client: int, data: bytes) -> None:
        for culprit in one.adding.revealed(client, data):
            self._say(culprit, "refused", number, printable(one.adding.culprits[culprit]))

    def _answers(
        self, number: int, kind: str, name: str, asked: Mapping[int, Asked]
    ) -> Iterator[tuple[int, Sum, bytes]]:
        """What the sites answer to one question, as they come; what is no answer to it is refused."""
        messages = {client: encode(Envelope(kind, fields, message)) for client, (_, fields, message) in asked.items()}
        for client, data in messages.items():
            self._count(client, 0, len(data))
        for client, answer, data in self._requests.each(messages, number) if messages else ():
            self._count(client, len(data), 0)
            one, fields, _ = asked[client]
            try:
                if answer.kind != kind:
                    self._accuse(one, answer.fields.get("culprit"))
                    raise FedpubError(reason_of(answer))
                check_fields(answer, ANSWERED[kind])
                if any(answer.fields[same] != fields[same] for same in ("round", "attempt")):
                    raise FedpubError(f"it answers another question than {kind} of round {number}")
                found = content(answer, name)
            except FedpubError as error:
                self._say(client, "refused", number, printable(error))
                continue
            yield client, one, found

    def _take(self, client: int, number: int, step: Callable[[], None]) -> bool:
        """Whether what a site sent could be used; if not, the others are not concerned."""
        try:
            step()
        except FedpubError as error:
            self._say(client, "refused", number, printable(error))
            return False
        return True

    def _enough(
        self, number: int, sums: Iterable[Sum], there: Callable[[Aggregator], tuple[int, ...]], pending: list[Group]
    ) -> Iterator[Sum]:
        """The attempts that have not lost too many; the groups of the others are asked again, without those."""
        for one in sums:
            try:
                if len(there(one.adding)) < len(one.group.members) and self._whole:
                    pending.append(one.group)
                    continue
                yield one
            except NotEnoughError as error:
                left = self._left(one)
                for client in sorted({*one.group.members} - {*left}):
                    self._say(client, "left out", number, f"its part of a sum did not come: {printable(error)}")
                pending.append(replace(one.group, members=left))

    def _accuse(self, one: Sum, culprit: object) -> None:
        if type(culprit) is int and culprit in one.group.members:
            self._accused[culprit] += 1

    def _left(self, one: Sum) -> tuple[int, ...]:
        """Who is asked again. Where most complain of one member, whose shares do not open, it is left out, not they."""
        there = one.adding.present()
        accused = [client for client, count in self._accused.items() if 2 * count > len(one.group.members) - 1]
        if not accused:
            return there
        return tuple(client for client in one.adding.depositors() if client not in accused)

    def _say(self, client: int | None, what: str, number: int, why: str) -> None:
        self._requests.event(client, what, number, why)

    def _count(self, client: int, up: int, down: int) -> None:
        before = self.bytes.get(client, (0, 0))
        self.bytes[client] = before[0] + up, before[1] + down

    # What a restart needs

    def _begun(self, number: int, attempt: int, group: Group, keys: tuple[bytes, ...] = ()) -> Sum:
        keys = keys or tuple(self._keys[one] for one in group.members)
        terms = Attempt(self._run, number, attempt, group.number, group.members, keys, group.told, group.numbers.layout)
        return Sum(group, terms, Aggregator(terms, self._least))

    def _keep(self, number: int, sums: Sequence[Sum]) -> None:
        """Before anything is asked of which sites keep a record, too; what is of an earlier round goes."""
        for one in sums:
            kept = {name: as_tensor(data) for name, data in one.adding.saved().items() if data}
            told = {"round": number, "attempt": one.attempt.attempt, "members": list(one.group.members)}
            told |= {"keys": [key.hex() for key in one.attempt.keys]}
            write_tensors(self._path(one.group), kept, {RECORD: json.dumps(told)})

    def _path(self, group: Group) -> Path:
        return self._folder / f"sum-{group.number}.safetensors"

    def _resumed(self, number: int, groups: Sequence[Group]) -> list[Sum]:
        """The attempts of this round of which an earlier process knew the survivors."""
        found = []
        for group in groups:
            if not self._path(group).is_file():
                continue
            flat, header = read_tensors(self._path(group))
            held = json.loads(header[RECORD])
            if held["round"] == number:
                sure = replace(group, members=tuple(held["members"]))
                begun = self._begun(number, held["attempt"], sure, tuple(map(bytes.fromhex, held["keys"])))
                saved = {name: data.numpy().tobytes() for name, data in flat.items()}
                adding = Aggregator.restored(begun.attempt, self._least, saved)
                found.append(Sum(sure, begun.attempt, adding))
        return found

    def _first_attempt(self) -> int:
        """Attempts of every process have numbers of their own: what an earlier one asked for is void."""
        if self._starts is None:
            path = self._folder / STARTS
            self._starts = int(path.read_text(encoding="utf-8")) + 1 if path.is_file() else 0
            write_text(path, f"{self._starts}\n")
        return ATTEMPTS * self._starts + 1


def _confirmed(one: Sum, client: int, data: bytes) -> None:
    one.adding.confirmed(client, tags_of(data))


def _with_tags(client: int, one: Sum, fields: dict[str, Any], dealt: Message) -> Asked:
    """What a survivor is asked to reveal by: what the others have confirmed to it."""
    return one, fields, dealt | blob("tags", tags_bytes(one.adding.confirmations_for(client))).parts


def _with(one: Sum) -> dict[str, Any]:
    return one.fields | {"alive": list(one.adding.alive())}


def _dealt(one: Sum, client: int) -> Message:
    return blob("dealt", dealt_bytes(one.adding.for_member(client)))
