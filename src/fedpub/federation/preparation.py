"""Before the first round: every site says what data it has, begins the run, and takes part in the method's set-up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedpub.algorithms.protocol import ChecksUploads, NeedsSetup, Place
from fedpub.core.message import Message
from fedpub.core.printable import printable
from fedpub.core.tree import State
from fedpub.engine.setup import OnStep
from fedpub.engine.sums import means_of
from fedpub.errors import FedpubError
from fedpub.experiment import Plan
from fedpub.federation.known import Known
from fedpub.federation.requests import PAUSE, Requests, reason_of
from fedpub.federation.secure.at_coordinator import Group, SecureSums
from fedpub.federation.secure.numbers import of_first, sizes_of, unknown
from fedpub.federation.validate.fields import ANSWERED, MOST_CLASSES, check_fields
from fedpub.federation.validate.upload import wrong_values
from fedpub.federation.wire import Envelope, encode
from fedpub.federation.wire_header import MOST_HEADER, spell

LONGEST_CLASSES = MOST_HEADER // 2  # bytes: the experiment is in the same message
# What all sites must have in common, and what that means for their data.
SAME_FEATURES = ("features", "all sites need the same columns in the same order")
KEYED = ("key", "signature")
SAME_EDGES = ("relations", "all sites need edges of the same kinds, directed or not")


@dataclass(frozen=True, eq=False)
class Preparation:
    """The coordinator's side of everything that happens once."""

    plan: Plan
    run: str
    requests: Requests
    folder: Path

    def prepare(self, on_step: OnStep | None = None) -> Known:
        """What the coordinator knows of its sites when the rounds begin."""
        known = self.hello()
        return replace(self, plan=self.plan.related(known.relations))._begin_all(known, on_step)

    def _begin_all(self, known: Known, on_step: OnStep | None) -> Known:
        if self.plan.secure:
            return self._begin_secure(known)
        requests, cost = self.requests, None
        sets_up = isinstance(self.plan.algorithm, NeedsSetup)
        rules = ANSWERED["begun, before a set-up" if sets_up else "begun"]
        ready = requests.ask_all("begun", lambda client: self.begin(client, known, 0), rules)
        if sets_up:
            cost = self.set_up(known, on_step)
            ready = requests.ask_all("ready", lambda _: Envelope("ready", {"run": self.run}))
        names = {*self.plan.context.task.metrics, "sparsity"}
        fields = [ready[client].fields for client in requests.everyone]
        for client, one in enumerate(fields):
            requests.require(client, set(one["metrics"]) == names, "its metrics are not those of the task")
        return replace(
            known,
            test_sizes=tuple(one["test_size"] for one in fields),
            idle=tuple(client for client, one in enumerate(fields) if one["idle"]),
            metrics=tuple(one["metrics"] for one in fields),
            setup=cost,
        )

    def _begin_secure(self, known: Known) -> Known:
        """The sites' keys of the run, which they check, and the sums of what they would tell of themselves."""
        requests, ctx = self.requests, self.plan.context
        begun = requests.ask_all("begun", lambda client: self.begin(client, known, 0), ANSWERED["begun, secure"])
        keys, signatures = ([begun[client].fields[name] for client in requests.everyone] for name in KEYED)
        introduction = self.introduction(known.sites, keys, signatures)
        requests.ask_all("peers", lambda _: introduction)
        names = (*ctx.task.metrics, "sparsity")
        numbers, _ = of_first(ctx, len(known.sites), unknown(names), (0, 0, 0))
        until = time.monotonic() + requests.terms.patience
        group = Group(0, tuple(requests.everyone), "", numbers)
        while not (found := SecureSums(self.run, keys, self.plan.min_group, self.folder, requests).of(0, [group])):
            if time.monotonic() > until:
                raise FedpubError(
                    "the first sum, of all sites' examples, needs every site, and some do not answer; start them, then "
                    "the coordinator again"
                )
            time.sleep(PAUSE)
        told = found[0].sums.numbers
        return replace(
            known,
            keys=tuple(keys),
            signatures=tuple(signatures),
            examples=sizes_of(told)[0],
            metrics=(means_of([told]),),
        )

    def introduction(self, sites: Sequence[str], keys: Sequence[str], signatures: Sequence[str]) -> Envelope:
        """The keys of all sites, for each of them."""
        fields = {"run": self.run, "names": list(sites), "keys": list(keys), "signatures": list(signatures)}
        return Envelope("peers", fields)

    def keyed_again(self, known: Known, client: int, begun: Envelope, number: int) -> Known:
        """A site that has lost its folder has another key of the run, which the others check.

        If any of them refuses it, the old one remains, and the site is in no sum: it does not know its own key.
        """
        try:
            check_fields(begun, ANSWERED["begun, secure"])
        except FedpubError as error:
            self.requests.event(client, "refused", number, printable(error))
            return known
        keys, signatures = list(known.keys), list(known.signatures)
        keys[client], signatures[client] = begun.fields["key"], begun.fields["signature"]
        renewed = replace(known, keys=tuple(keys), signatures=tuple(signatures))
        others = [other for other in self.requests.everyone if other != client]
        refused = [other for other, reason in self.introduce(renewed, others, number).items() if reason]
        if refused:
            names = ", ".join(known.sites[other] for other in refused)
            self.requests.event(client, "refused", number, f"its new key of the run is refused by {names}")
        return known if refused else renewed

    def introduce(self, known: Known, clients: Sequence[int], number: int) -> dict[int, str]:
        """Tell sites the keys of all: why each that has answered refuses them; empty where it does not."""
        message = encode(self.introduction(known.sites, known.keys, known.signatures))
        answers = self.requests.ask(dict.fromkeys(clients, message), number)
        return {one: "" if answer.kind == "peers" else reason_of(answer) for one, (answer, _) in answers.items()}

    def hello(self) -> Known:
        requests, sites = self.requests, self.requests.sites
        answers = requests.ask_all("hello", lambda _: Envelope("hello", {"run": self.run}))
        features = self._same(answers, sites, *SAME_FEATURES)
        relations = self._same(answers, sites, *SAME_EDGES) if self.plan.relational else 1
        classes: dict[str, None] = {}
        for client in requests.everyone:
            classes |= dict.fromkeys(answers[client].fields["classes"])
            few = len(classes) <= MOST_CLASSES
            requests.require(client, few, f"with its classes there are {len(classes):,}, more than {MOST_CLASSES:,}")
            size = len(spell({"classes": list(classes)}))  # every site is told all of them in one message
            fits = size <= LONGEST_CLASSES
            requests.require(client, fits, f"with its classes they take {size:,} bytes, more than {LONGEST_CLASSES:,}")
        return Known(tuple(sites), features, tuple(classes), relations=relations)

    def _same(self, answers: Mapping[int, Envelope], sites: Sequence[str], name: str, remedy: str) -> int:
        """A number that must be the same at all sites."""
        counts: list[int] = [answers[client].fields[name] for client in self.requests.everyone]
        for client, count in enumerate(counts):
            if count != counts[0]:
                raise FedpubError(
                    f"site {sites[client]!r} has {count} {name} and {sites[0]!r} {counts[0]}: "
                    f"{remedy}; encode them alike"
                )
        return counts[0]

    def begin(self, client: int, known: Known, attempt: int) -> Envelope:
        """What tells a site to begin; a higher attempt makes it begin anew."""
        fields = {"run": self.run, "experiment": self.plan.experiment.to_json(), "client": client, "attempt": attempt}
        fields |= {"classes": list(known.classes), "precision": self.requests.terms.precision}
        return Envelope("begin", fields | {"sites": len(known.sites)})

    def set_up(self, known: Known, on_step: OnStep | None) -> Mapping[str, float]:
        """All exchanges of the method's set-up; what they cost."""
        assert isinstance(self.plan.algorithm, NeedsSetup)
        began, setup, requests = time.monotonic(), self.plan.algorithm.setup(), self.requests
        server = setup.init_server(len(requests.sites))
        up = down = 0
        for step, name in enumerate(setup.steps):
            messages = {
                client: encode(Envelope("setup", {"run": self.run, "step": step}, setup.send(server, step, client)))
                for client in requests.everyone
            }
            sizes: dict[int, int] = {}
            answers = requests.ask_all("setup", messages.__getitem__, sizes=sizes)
            up, down = up + sum(sizes.values()), down + sum(map(len, messages.values()))
            uploads = [answers[client].message for client in requests.everyone]
            for client, upload in enumerate(uploads):
                wrong = self.problem(known, step, server, client, upload)
                requests.require(client, not wrong, str(wrong))
            try:
                server = setup.server(self.plan.context, step, server, uploads)
            except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
                raise FedpubError(
                    f"what the sites sent for {name!r} before the first round cannot be combined ({printable(error)}); "
                    "check their data and versions, then begin the run again"
                ) from error
            if on_step:
                on_step(name, step + 1, len(setup.steps))
        return {"setup_bytes_up": up, "setup_bytes_down": down, "setup_seconds": time.monotonic() - began}

    def problem(self, known: Known, step: int, server: State, client: int, upload: Message) -> str | None:
        """Why a set-up upload is refused; None if it is valid."""
        assert isinstance(self.plan.algorithm, NeedsSetup)
        extra = sorted(upload.names - self.plan.algorithm.uploads)
        if extra:
            return f"it sent {printable(extra)}, which the method does not declare"
        setup = self.plan.algorithm.setup()
        wrong = wrong_values(upload)
        if not wrong and isinstance(setup, ChecksUploads):
            place = Place(len(known.classes), torch.device("cpu"), self.plan.dtype)
            try:
                wrong = setup.problem(self.plan.context, step, server, client, upload, known.features, place)
            except Exception as error:
                wrong = f"what it sent before the first round cannot be read: {error}"
        return printable(wrong) if wrong else None
