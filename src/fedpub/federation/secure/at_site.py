"""How a site answers the questions of a secure sum, and what it refuses.

Its ledger survives restarts: the part of a site in the sum of a round is given once, for one list of survivors. Until
then the coordinator may begin another attempt, in which all masks are different, and the earlier one is void.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.sums import Sums
from fedpub.core.best import rounded_loss
from fedpub.core.files import write_text
from fedpub.core.message import Message
from fedpub.core.printable import printable
from fedpub.core.tree import Tree
from fedpub.engine.rounds import measure
from fedpub.errors import FedpubError
from fedpub.experiment.checks import LEAST_GROUP
from fedpub.federation.secure.attempt import Attempt, Vector, packed, unpacked
from fedpub.federation.secure.blobs import as_tensor, blob, content
from fedpub.federation.secure.keys import Exchange, public_of
from fedpub.federation.secure.numbers import Numbers, of_first, of_round, told_digest
from fedpub.federation.secure.party import Party
from fedpub.federation.secure.records import dealt_of, tags_bytes, tags_of
from fedpub.federation.secure.run_keys import Identity, checked, key_text, prepared, run_key
from fedpub.federation.validate.fields import SECURE_ROUND, check_fields
from fedpub.federation.wire import Envelope, encode

if TYPE_CHECKING:
    from fedpub.federation.ledger import Ledger
    from fedpub.federation.part import Part

STEPS = ("shares", "masked", "confirm", "reveal")  # the questions of a sum
Layout = tuple[tuple[int, int], ...]
PEERS = "peers.json"  # the keys of all sites of a run
VECTOR = "vector"  # a part of a site's state, for the sum of a round
WORDS, TOLD = "words", "told"  # of it: what the site adds, as bytes, and the digest of what it was sent


@dataclass(eq=False)
class Sharing:
    """A site's part in the sums of one run."""

    part: Part
    ledger: Ledger
    identity: Identity | None
    least: Callable[[], int]  # by the site's own policy
    _exchange: Exchange | None = None
    _parties: dict[tuple[int, ...], Party] = field(default_factory=dict)  # of the newest attempt
    _begun: dict[str, str] = field(default_factory=dict)  # attempts of this round, and their terms
    _fresh: tuple[int, Layout, Vector, str] | None = None  # round, and what `_vector` says of it
    _masked: tuple[tuple[int, int], list[int], bytes] | None = None  # attempt, with whom, and the masked vector

    @property
    def folder(self) -> Path:
        return self.part.folder

    def key(self) -> dict[str, str]:
        """The site's key of this run, signed with its identity key."""
        identity, public = prepared(self.identity), public_of(run_key(self.folder))
        return {
            "key": public.hex(),
            "signature": identity.sign(key_text(self.folder.name, identity.name, public)).hex(),
        }

    def meet(self, asked: Envelope) -> bytes:
        """Check the keys of all sites against those that this site trusts, and keep them."""
        identity, names = prepared(self.identity), asked.fields["names"]
        keys, signatures = ([bytes.fromhex(one) for one in asked.fields[name]] for name in ("keys", "signatures"))
        if len(names) != self.part.sites or names[self.part.client] != identity.name:
            raise FedpubError(
                f"the coordinator lists {len(names)} sites, not the {self.part.sites} of this run with "
                f"{identity.name!r} as number {self.part.client}; start the run again"
            )
        checked(identity, self.folder.name, names, keys, signatures, public_of(run_key(self.folder)))
        write_text(self.folder / PEERS, json.dumps({"names": names, "keys": asked.fields["keys"]}, indent=1) + "\n")
        self._parties, self._masked = {}, None
        return encode(Envelope("peers", {}))

    def keep(self, ctx: Context, asked: Envelope, received: Message, up: Message, values: Mapping[str, Tensor]) -> Tree:
        """What the site adds in a round, as part of its state, so that it can be masked after a restart."""
        method = self.part.algorithm
        assert isinstance(method, Sums)
        check_fields(asked, SECURE_ROUND)
        examples: int = asked.fields["examples"]
        numbers, hidden = of_round(method, ctx, self.part.sites, received, up, examples, values)
        vector, told = numbers.vector(hidden), told_digest(ctx.round, examples, asked.message)
        self._fresh, self._begun = (ctx.round, numbers.layout, vector, told), {}
        return _kept(numbers, vector, told)

    def answer(self, asked: Envelope) -> bytes:
        """The answer to one of the questions of a sum."""
        fields, number, attempt = asked.fields, asked.fields["round"], asked.fields["attempt"]
        place = f"{number}.{attempt}"
        self._check_order(asked.kind, number, attempt)
        party = self._party(asked)
        terms = party.context.hex()
        if asked.kind == "shares":
            self._begun[place] = terms
            return _answer(asked, "deposit", party.deposit().to_bytes())
        if self._begun.setdefault(place, terms) != terms:
            raise FedpubError(f"attempt {attempt} of round {number} began with other members")
        dealt, alive = content(asked, "dealt"), fields["alive"]
        self._check_few(alive)
        self._note(f"masked {place}", _digest(terms, alive, party.vector_digest))
        if self._masked is None or self._masked[:2] != ((number, attempt), alive):
            self._masked = (number, attempt), alive, party.masked(alive, dealt_of(dealt))
        if asked.kind == "masked":
            return _answer(asked, "masked", self._masked[2])
        survivors = fields["survivors"]
        self._check_few(survivors)
        self._note(f"confirm {place}", _digest(terms, alive, survivors, party.vector_digest))
        confirmed = party.confirmed(survivors)
        if asked.kind == "confirm":
            return _answer(asked, "tags", tags_bytes(confirmed))
        revealed = party.revealed(survivors, tags_of(content(asked, "tags")))
        return _answer(asked, "revealed", revealed.to_bytes())

    def _check_order(self, kind: str, number: int, attempt: int) -> None:
        """Raise an error unless a question is about the newest attempt of the newest round."""
        if number != self.ledger.newest:
            raise FedpubError(f"the sum of round {number} is asked for, and this site is in round {self.ledger.newest}")
        if number <= self.ledger.over:
            raise FedpubError(f"the sums of rounds up to {self.ledger.over} are over")
        given = _attempts(self.ledger.asked, "confirm", number)
        if any(other != attempt for other in given):
            raise FedpubError(f"this site has given its part of the sum of round {number}, which it does once")
        masked = _attempts(self.ledger.asked, "masked", number)
        newest = max([*_attempts((f"shares {place}" for place in self._begun), "shares", number), *masked, 0])
        newest = newest or attempt
        if attempt < newest or (kind != "shares" and attempt != newest):
            raise FedpubError(f"attempt {attempt} of round {number} is void: {newest} is the newest")

    def _check_few(self, members: list[int]) -> None:
        least = self._least()
        if len(members) < least:
            raise FedpubError(f"a sum over {len(members)} sites is asked for, and this site is in none below {least}")

    def _least(self) -> int:
        return max(LEAST_GROUP, self.part.plan.min_group, self.least())

    def _note(self, question: str, digest: str) -> None:
        """What is masked for whom, and whose survival is confirmed, is written down before the answer leaves.

        Of two answers of a kind in one attempt a pairwise mask would be known, or two vectors under the same masks.
        """
        self.ledger.check(question, digest)
        self.ledger.note(question, digest)

    def _party(self, asked: Envelope) -> Party:
        """The member that this site is in an attempt."""
        fields = asked.fields
        place = fields["round"], fields["attempt"]
        self._check_few(fields["members"])
        private = run_key(self.folder)
        if self._exchange is None or self._exchange.private != private:
            self._exchange = Exchange(private)
        terms = *place, fields["group"], *fields["members"]
        if terms not in self._parties:
            layout, vector, told = self._vector(fields["round"])
            keys = self._keys(fields["members"])
            attempt = Attempt(self.folder.name, *place, fields["group"], tuple(fields["members"]), keys, told, layout)
            self._parties = {terms: Party(self.part.client, private, attempt, self._least(), vector, self._exchange)}
            self._masked = None
        return self._parties[terms]

    def _keys(self, members: list[int]) -> tuple[bytes, ...]:
        path = self.folder / PEERS
        if not path.is_file():
            raise FedpubError("this site has not met the others of the run yet; begin the run again")
        held = json.loads(path.read_text(encoding="utf-8"))
        keys, names, peers = held["keys"], held["names"], prepared(self.identity).peers()
        if not all(one < len(keys) for one in members):
            raise FedpubError(f"a group has the site number {max(members)}, and the run has {len(keys)} sites")
        for name in (names[one] for one in members if one != self.part.client):
            if name not in peers:
                raise FedpubError(f"this site does not trust {printable(name)} any more, so it shares no sum with it")
        return tuple(bytes.fromhex(keys[one]) for one in members)

    def _vector(self, number: int) -> tuple[Layout, Vector, str]:
        """What the site adds in a round, in which form, and the digest of what it was sent for it."""
        if self._fresh is not None and self._fresh[0] == number:
            return self._fresh[1:]
        if number == 0:
            numbers, vector = first_vector(self.part)
            return numbers.layout, vector, ""
        state = self.part.load(f"round-{number}")[0]
        held = state.get(VECTOR)
        if not isinstance(held, dict):
            raise FedpubError(f"this site has nothing to add in round {number}")
        layout = tuple((int(bits), int(count)) for bits, count in held["layout"].tolist())
        vector = unpacked(layout, held[WORDS].cpu().numpy().tobytes())
        return layout, vector, held[TOLD].cpu().numpy().tobytes().decode()


def first_vector(part: Part) -> tuple[Numbers, Vector]:
    """What a site adds before the first round."""
    metrics, _ = measure(part.algorithm, part.ctx, part.load("round-0")[0], part.data)
    test = int(part.ctx.task.sizes([part.own])[0])
    sizes = (part.own.num_train, test, int(not part.own.num_train))
    numbers, hidden = of_first(part.ctx, part.sites, told(metrics), sizes)
    return numbers, numbers.vector(hidden)


def _kept(numbers: Numbers, vector: Vector, told: str) -> Tree:
    return {
        "layout": torch.tensor(numbers.layout, dtype=torch.int64),
        WORDS: as_tensor(packed(numbers.layout, vector)),
        TOLD: as_tensor(told.encode()),
    }


def _answer(asked: Envelope, name: str, data: bytes) -> bytes:
    fields = {"round": asked.fields["round"], "attempt": asked.fields["attempt"]}
    return encode(Envelope(asked.kind, fields, blob(name, data)))


def _attempts(asked: Iterable[str], kind: str, number: int) -> list[int]:
    """The attempts of a round of which this was asked."""
    start = f"{kind} {number}."
    return [int(question.removeprefix(start)) for question in asked if question.startswith(start)]


def _digest(*what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def told(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Metrics as they enter a sum; the loss that decides between rounds has as many digits as elsewhere."""
    name = "val_loss"
    return {**metrics, name: metrics[name].double().apply_(rounded_loss)}
