"""The coordinator's side of a run whose clients are elsewhere: the same rounds as the simulator's, by messages.

How messages travel is somebody else's business (`Exchange`). Every exchange has a deadline; who does not answer by then
is left out of that round. What a message says follows from the server's state alone, so that a coordinator that was
killed and goes on from its checkpoint asks the same again, and gets the answers that the sites have kept.

Axes: K clients.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedpub.algorithms import Oracle
from fedpub.algorithms.protocol import ChecksUploads, NeedsSetup, Place
from fedpub.core.best import START, better
from fedpub.core.files import write_text
from fedpub.core.printable import printable
from fedpub.core.tree import Message, State, Tree, tensor, together, tree, tree_map
from fedpub.engine.robust import defended
from fedpub.engine.rounds import Round, Snapshot, check_version, drawn_weights, participants
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.validate.fields import ANSWERED, MOST_CLASSES, Rule, check_fields
from fedpub.federation.validate.upload import Expected, most_examples, wrong_values
from fedpub.federation.wire import Envelope, Precision, decode, encode

SITES = "sites.json"  # what is known of them
PAUSE = 2.0  # seconds before asking again when too few sites are there


class Exchange(Protocol):
    """Carries messages to sites by their number and brings back what they answer within the deadline."""

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]: ...


# (site or None, what happened, in which round, why)
OnEvent = Callable[[int | None, str, int, str], None]


@dataclass(frozen=True)
class Terms:
    """How a federation deals with sites that are slow, silent or wrong."""

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
                raise FedpubError(f"--{name.replace('_', '-')} {getattr(self, name)} is not possible; give more than 0")
        if self.min_sites < 0:
            raise FedpubError(f"--min-sites {self.min_sites} is not possible; give 0 or more")


@dataclass(frozen=True)
class Known:
    """What the coordinator knows of the sites of a run."""

    sites: tuple[str, ...]
    features: int
    classes: tuple[str, ...]
    test_sizes: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    metrics: tuple[Mapping[str, float], ...] = ()  # before the first round
    setup: Mapping[str, float] | None = None

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(self.__dict__, indent=2) + "\n")

    @staticmethod
    def load(path: Path) -> Known | None:
        if not path.is_file():
            return None
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in held.items():
            held[name] = tuple(value) if isinstance(value, list) else value
        return Known(**held)


class Coordinator:
    """Plays an experiment with the sites behind an exchange; `folder` keeps what a restart needs beside checkpoints."""

    def __init__(
        self,
        experiment: Experiment,
        run: str,
        sites: Sequence[str],
        exchange: Exchange,
        folder: Path,
        terms: Terms = Terms(),  # noqa: B008
        on_event: OnEvent = lambda *_: None,
    ) -> None:
        self.experiment, self.run, self.sites, self.terms = experiment.resolved(), run, list(sites), terms
        self.algorithm, self.ctx = self.experiment.algorithm(), self.experiment.context()
        if isinstance(self.algorithm, Oracle):
            raise FedpubError("--method oracle needs all data in one place: it cannot be deployed; use fedpub run")
        if not self.sites:
            raise FedpubError("a federation needs at least one site; admit one with fedpub coordinator admit")
        terms.check()
        self._exchange, self._path, self._event = exchange, folder / SITES, on_event

    @property
    def _everyone(self) -> list[int]:
        return list(range(len(self.sites)))

    # Before the rounds

    def prepare(self, on_step: OnStep | None = None) -> Known:
        """Every site says hello, begins, and takes part in what its method does before the rounds."""
        known = Known.load(self._path)
        if known is not None:
            return known
        known = self._hello()
        begun = known
        sets_up = isinstance(self.algorithm, NeedsSetup)
        rules = ANSWERED["begun, before a set-up" if sets_up else "begun"]
        ready, cost = self._ask_all("begun", lambda client: self._begin(client, begun, 0), rules), None
        if sets_up:
            cost = self._set_up(known, on_step)
            ready = self._ask_all("ready", lambda _: Envelope("ready", {"run": self.run}, {}))
        names = {*self.ctx.task.metrics, "sparsity"}
        fields = [ready[client].fields for client in self._everyone]
        for client, one in enumerate(fields):
            self._must(client, set(one["metrics"]) == names, "its metrics are not those of the task")
        known = replace(
            known,
            test_sizes=tuple(one["test_size"] for one in fields),
            idle=tuple(client for client, one in enumerate(fields) if one["idle"]),
            metrics=tuple(one["metrics"] for one in fields),
            setup=cost,
        )
        known.save(self._path)
        return known

    def _hello(self) -> Known:
        said = self._ask_all("hello", lambda _: Envelope("hello", {"run": self.run}, {}))
        features = {client: said[client].fields["features"] for client in self._everyone}
        for client, count in features.items():
            if count != features[0]:
                raise FedpubError(
                    f"site {self.sites[client]!r} has {count} features and {self.sites[0]!r} {features[0]}: "
                    "all sites need the same columns in the same order; encode them alike"
                )
        classes: dict[str, None] = {}
        for client in self._everyone:
            classes |= dict.fromkeys(said[client].fields["classes"])
            few = len(classes) <= MOST_CLASSES
            self._must(client, few, f"with its classes there are {len(classes):,}, more than {MOST_CLASSES:,}")
        return Known(tuple(self.sites), features[0], tuple(classes))

    def _begin(self, client: int, known: Known, attempt: int) -> Envelope:
        fields = {"run": self.run, "experiment": self.experiment.to_json(), "client": client, "attempt": attempt}
        return Envelope("begin", fields | {"classes": list(known.classes), "precision": self.terms.precision}, {})

    def _begin_anew(self, client: int, known: Known, number: int) -> None:
        """Asked once: the others do not wait for a site that lost its state, and its refusal ends nothing."""
        answers = self._exchange({client: encode(self._begin(client, known, number))}, self.terms.deadline)
        answer = self._read(client, answers[client], number) if client in answers else None
        if answer is None or answer.kind != "begun":
            reason = _reason(answer) if answer else "no answer within the deadline"
            self._event(client, "refused", number, f"it did not begin anew: {reason}")

    def _set_up(self, known: Known, on_step: OnStep | None) -> Mapping[str, float]:
        assert isinstance(self.algorithm, NeedsSetup)
        began, setup = time.monotonic(), self.algorithm.setup()
        server = setup.init_server(len(self.sites))
        up = down = 0
        for step, name in enumerate(setup.steps):
            messages = {
                client: encode(Envelope("setup", {"run": self.run, "step": step}, setup.send(server, step, client)))
                for client in self._everyone
            }
            sizes: dict[int, int] = {}
            answers = self._ask_all("setup", messages.__getitem__, sizes=sizes)
            up, down = up + sum(sizes.values()), down + sum(map(len, messages.values()))
            uploads = [answers[client].message for client in self._everyone]
            for client, upload in enumerate(uploads):
                wrong = self._wrong_set_up(known, step, server, client, upload)
                self._must(client, not wrong, str(wrong))
            try:
                server = setup.server(self.ctx, step, server, uploads)
            except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
                raise FedpubError(
                    f"what the sites sent for {name!r} before the first round cannot be combined ({printable(error)}); "
                    "check their data and versions, then begin the run again"
                ) from error
            if on_step:
                on_step(name, step + 1, len(setup.steps))
        return {"setup_bytes_up": up, "setup_bytes_down": down, "setup_seconds": time.monotonic() - began}

    def _wrong_set_up(self, known: Known, step: int, server: State, client: int, upload: Message) -> str | None:
        """Why what a site sent before the first round is refused; None where it is good."""
        assert isinstance(self.algorithm, NeedsSetup)
        extra = sorted(set(upload) - self.algorithm.uploads)
        if extra:
            return f"it sent {printable(extra)}, which the method does not declare"
        setup, place = self.algorithm.setup(), self._place(known)
        wrong = wrong_values(upload)
        if not wrong and isinstance(setup, ChecksUploads):
            try:
                wrong = setup.problem(self.ctx, step, server, client, upload, known.features, place)
            except Exception as error:
                wrong = f"what it sent before the first round cannot be read: {error}"
        return printable(wrong) if wrong else None

    def _place(self, known: Known) -> Place:
        return Place(len(known.classes), torch.device("cpu"), getattr(torch, self.experiment.dtype))

    def _must(self, client: int, good: object, reason: str) -> None:
        """A run cannot begin with a site of which this is not true."""
        if not good:
            self._event(client, "refused", 0, reason)
            raise FedpubError(f"site {self.sites[client]!r} cannot take part: {reason}")

    def _ask_all(
        self,
        kind: str,
        envelope: Callable[[int], Envelope | bytes],
        rules: Mapping[str, Rule] | None = None,
        sizes: dict[int, int] | None = None,
    ) -> dict[int, Envelope]:
        """The answers of that kind of all sites, which are waited for: without one of them a run cannot begin.

        Their fields follow `rules`, which are the kind's own where none are given.
        """
        missing, found = set(self._everyone), {}
        until = time.monotonic() + self.terms.patience
        while missing:
            asked = {client: envelope(client) for client in sorted(missing)}
            raw = {client: one if isinstance(one, bytes) else encode(one) for client, one in asked.items()}
            for client, data in self._exchange(raw, self.terms.deadline).items():
                answer = self._read(client, data, 0)
                if answer is None:
                    continue
                self._must(client, answer.kind == kind, _reason(answer))
                try:
                    check_fields(answer, ANSWERED[kind] if rules is None else rules)
                except FedpubError as error:
                    self._must(client, False, printable(error))
                found[client] = answer
                missing.discard(client)
                if sizes is not None:
                    sizes[client] = len(data)
            if missing and time.monotonic() > until:
                names = ", ".join(self.sites[client] for client in sorted(missing))
                raise FedpubError(
                    f"no answer ({kind}) from {names} within {self.terms.patience:g} s; start these sites"
                )
            if missing:
                time.sleep(PAUSE)
        return found

    # The rounds

    def rounds(self, known: Known, start: Snapshot | None) -> Iterator[Round]:
        """The rounds after `start`. The consumer must have saved a round before it asks for the next."""
        algorithm, count = self.algorithm, len(self.sites)
        w0 = self.first_weights(known)
        if start:
            check_version(start, algorithm.init_server(w0, 1), _first(known))
        server = start.server if start else algorithm.init_server(w0, count)
        clients = start.clients if start else _first(known)
        expected: Expected | None = None
        assert self.experiment.rounds is not None
        for number in range(start.round + 1 if start else 1, self.experiment.rounds + 1):
            ctx = replace(self.ctx, round=number)
            if expected is None:
                one = _one(algorithm.send(server, torch.tensor([0])))
                expected = Expected.of(algorithm, ctx, w0, one, len(known.classes))
            chosen = participants(ctx.seed, number, count, self.experiment.fraction, 0.0)
            sent, answers, sizes = self._play(number, chosen, server, clients, known, expected)
            ids = torch.tensor(sorted(answers), dtype=torch.int64)
            uploads = together([answers[client].message for client in ids.tolist()])
            uploads = defended(ctx, uploads, together([sent[client] for client in ids.tolist()]))
            server, notes = algorithm.server(ctx, server, ids, uploads)
            clients = _measured(clients, answers, number)
            yield self._round(number, server, clients, answers, sizes, ids, notes)

    def first_weights(self, known: Known) -> Tree:
        w0 = drawn_weights(self.ctx, known.features, len(known.classes))
        return tree_map(lambda leaf: leaf.to(getattr(torch, self.experiment.dtype)), w0)

    def _play(
        self, number: int, chosen: list[int], server: State, clients: State, known: Known, expected: Expected
    ) -> tuple[dict[int, Message], dict[int, Envelope], dict[int, tuple[int, int]]]:
        """What was sent, the good answers, and the bytes up and down of every site that was asked."""
        sent = {client: _one(self.algorithm.send(server, torch.tensor([client]))) for client in chosen}
        base_K, best = tensor(clients["base"]), int(tensor(clients["best"]))
        need = self.terms.min_sites or max(1, math.ceil(len(chosen) / 2))
        until = time.monotonic() + self.terms.patience
        while True:
            messages = {}
            for client in chosen:
                fields = {"run": self.run, "round": number, "base": int(base_K[client]), "best": best}
                messages[client] = encode(Envelope("round", fields, sent[client]))
            answers, sizes = {}, {client: (0, len(data)) for client, data in messages.items()}
            for client, data in self._exchange(messages, self.terms.deadline).items():
                answer = self._read(client, data, number)
                if answer is None:
                    continue
                if answer.kind == "lost":
                    self._event(client, "began anew", number, _reason(answer))
                    base_K[client] = 0
                    self._begin_anew(client, known, number)
                    continue
                if wrong := self._wrong_answer(client, answer, number, known, expected):
                    self._event(client, "refused", number, wrong)
                    continue
                answers[client], sizes[client] = answer, (len(data), len(messages[client]))
            for client in sorted(set(chosen) - set(answers)):
                self._event(client, "left out", number, "no good answer within the deadline")
            if len(answers) >= min(need, len(chosen)):
                return sent, answers, sizes
            if time.monotonic() > until:
                raise FedpubError(
                    f"round {number} has the answers of {len(answers)} sites and needs {need}: start the others and "
                    "go on with --resume, or lower --min-sites"
                )
            time.sleep(PAUSE)

    def _read(self, client: int, data: bytes, number: int) -> Envelope | None:
        """An answer; one that cannot be read is logged and dropped, whatever it holds: the others' are good."""
        try:
            return decode(data, self.terms.max_message * 2**20)
        except Exception as error:
            self._event(client, "refused", number, printable(error))
            return None

    def _wrong_answer(self, client: int, answer: Envelope, number: int, known: Known, expected: Expected) -> str | None:
        """Why an answer to a round is refused; None where it is good. Whatever it holds, the others' are read."""
        if answer.kind != "round":
            return _reason(answer)
        assert self.experiment.ratios is not None
        try:
            most = most_examples(known.test_sizes[client], self.experiment.ratios)
            wrong = expected.problem(answer, number, most)
        except Exception as error:
            wrong = f"its answer cannot be read: {error}"
        return printable(wrong) if wrong else None

    def _round(
        self,
        number: int,
        server: State,
        clients: State,
        answers: dict[int, Envelope],
        sizes: dict[int, tuple[int, int]],
        ids: Tensor,
        notes: dict[str, Tensor],
    ) -> Round:
        count = len(self.sites)
        loss_K = torch.full((count,), float("nan"), dtype=torch.float64)
        up_K, down_K = (torch.zeros(count, dtype=torch.int64) for _ in range(2))
        for client, answer in answers.items():
            loss_K[client] = answer.fields["loss"]
        for client, (up, down) in sizes.items():
            up_K[client], down_K[client] = up, down
        metrics = tree(clients["metrics"])
        return Round(
            snapshot=Snapshot(number, server, clients),
            took_part_R=~torch.isnan(loss_K),
            metrics={name: metrics[name].clone() for name in self.ctx.task.metrics},
            loss_R=loss_K,
            sparsity_R=metrics["sparsity"].clone(),
            bytes_up_R=up_K,
            bytes_down_R=down_K,
            ids=ids,
            notes=notes,
        )

    def finish(self, clients: State) -> None:
        """Every site keeps its model; those who are away get theirs when they ask again, or not at all."""
        base_K, best = tensor(clients["base"]), int(tensor(clients["best"]))
        messages = {
            client: encode(Envelope("finish", {"run": self.run, "base": int(base_K[client]), "best": best}, {}))
            for client in self._everyone
        }
        answers = self._exchange(messages, self.terms.deadline)
        for client in self._everyone:
            answer = self._read(client, answers[client], 0) if client in answers else None
            if answer is None or answer.kind != "finished":
                reason = _reason(answer) if answer else "no answer within the deadline"
                self._event(client, "left out", 0, f"it did not confirm its final model: {reason}")


def _reason(answer: Envelope) -> str:
    """Why a site did not answer what it was asked."""
    return printable(answer.fields.get("reason") or f"its answer is a message of the kind {answer.kind!r}")


def _first(known: Known) -> State:
    """What the coordinator remembers of its clients: their last counted round, and what they measured then."""
    metrics = {
        name: torch.tensor([one[name] for one in known.metrics], dtype=torch.float64) for name in known.metrics[0]
    }
    base_K = torch.zeros(len(known.metrics), dtype=torch.int64)
    return {"base": base_K, "metrics": metrics, "best": torch.tensor(0), "best_is": torch.tensor(START).double()}


def _measured(clients: State, answers: dict[int, Envelope], number: int) -> State:
    base_K, metrics = tensor(clients["base"]).clone(), tree_map(torch.clone, tree(clients["metrics"]))
    for client, answer in answers.items():
        base_K[client] = number
        for name, value in answer.fields["metrics"].items():
            metrics[name][client] = value
    best, best_is = tensor(clients["best"]), tensor(clients["best_is"])
    now = torch.stack([metrics["val"].nanmean(), metrics["val_loss"].nanmean()])
    if better(*now, *best_is):
        best, best_is = torch.tensor(number), now
    state: State = {"base": base_K, "metrics": metrics, "best": best, "best_is": best_is}
    return state | _embeddings(clients, answers, len(base_K))


def _embeddings(clients: State, answers: dict[int, Envelope], count: int) -> State:
    """The last functional embedding of every site, [K, H], for those that join later; zeros where there was none."""
    found = {client: tensor(one.message["embedding"]) for client, one in answers.items() if "embedding" in one.message}
    if not found:
        return {name: clients[name] for name in ("embedding",) if name in clients}
    some = next(iter(found.values()))
    kept_KH = tensor(clients["embedding"]).clone() if "embedding" in clients else some.new_zeros(count, some.shape[1])
    for client, own in found.items():
        kept_KH[client] = own[0]
    return {"embedding": kept_KH}


def _one(message: Message) -> Message:
    """A message to one client in memory of its own: the server goes on with its state."""
    return {
        name: tree_map(lambda leaf: leaf.clone(), part) if isinstance(part, dict) else part.clone()
        for name, part in message.items()
    }
