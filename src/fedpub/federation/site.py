"""One client on its own: how a site answers the coordinator's messages.

Everything that must survive a restart is in the site's folder, written before an answer leaves: the state after the
last round, the state before it, and the answer itself. The same message again gets the same answer. A round that the
coordinator did not count, because its answer came too late, is rolled back: the state before it is still there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.protocol import NeedsSetup
from fedpub.algorithms.sums import Sums
from fedpub.core.best import rounded_loss
from fedpub.core.files import remove_leftovers, write_text
from fedpub.core.printable import printable
from fedpub.core.tree import State, Tree, tree, tree_map
from fedpub.data.clients.subgraph_files import subgraph_digest
from fedpub.engine.guard import guarded
from fedpub.engine.rounds import check_declared, measure
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.joining import answer_join, check_epochs, check_joinable
from fedpub.federation.ledger import FILE as LEDGER
from fedpub.federation.ledger import Ledger
from fedpub.federation.limits import Limits
from fedpub.federation.part import LostError, OwnGraph, Part, Source, _known, _numbers
from fedpub.federation.secure.at_site import STEPS, VECTOR, Sharing, told
from fedpub.federation.secure.refusals import CulpritError
from fedpub.federation.secure.run_keys import Identity, prepared
from fedpub.federation.validate.fields import ASKED, check_fields, rounded_metrics
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.federation.wire_header import Precision
from fedpub.store.model_card import ModelCard
from fedpub.store.model_files import save_model

RUN = re.compile(r"[0-9a-f]{16}")
TERMS = ("experiment", "client", "classes", "precision", "sites")  # of a run: they never change


class Site:
    """Answers messages. `folder` is the site's own; `source` its data; `device` where it computes.

    `identity` is who it is and whom it trusts, for secure aggregation.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        source: Callable[[], Source],
        device: str = "cpu",
        identity: Identity | None = None,
    ) -> None:
        self.folder, self.name, self._load, self._device = folder, name, source, device
        self.identity = identity
        self.limits = Limits(folder)
        self._parts: dict[str, Part] = {}
        self.news, self.finished = "", False  # for display
        self._shares: Sharing | None = None
        self._kept: tuple[Path, int] | None = None  # the run and round whose model is in the folder

    @cached_property
    def source(self) -> Source:
        return self._load()

    def answer(self, envelope: bytes) -> bytes:
        """The answer to a message; problems are reported in an answer as well."""
        try:
            asked = decode(envelope)
            handler = _HANDLERS.get(asked.kind)
            if handler is None:
                raise FedpubError(f"unknown kind of message {asked.kind!r}; both ends need the same version of fedpub")
            run = str(asked.fields.get("run"))
            if not RUN.fullmatch(run):
                raise FedpubError(f"a message of the run {shortened(run)}, which is not the name of a run")
            check_fields(asked, ASKED[asked.kind])
            return handler(self, run, asked, hashlib.sha256(envelope).hexdigest())
        except LostError as error:
            return encode(Envelope("lost", {"reason": printable(error)}))
        except CulpritError as error:
            return encode(Envelope("refused", {"reason": printable(error), "culprit": error.culprit}))
        except Exception as error:  # whatever a message holds, the next one is answered
            reason = printable(str(error) or type(error).__name__)
            self.news = f"refused what the coordinator asked for: {reason}"
            return encode(Envelope("refused", {"reason": reason}))

    def part(self, run: str) -> Part:
        """The site's part in a run, from memory or from disk."""
        if run not in self._parts:
            path = self._run_folder(run) / "begin.json"
            if not path.is_file():
                raise LostError(f"site {self.name!r} has not begun the run {run}")
            held = json.loads(path.read_text(encoding="utf-8"))
            self._parts = {run: self._part(run, held)}  # one run at a time: data is large
            if held["digest"] != subgraph_digest(self._parts[run].own):
                self._parts = {}
                raise FedpubError(f"the data of site {self.name!r} changed after the run began; restore the old data")
        return self._parts[run]

    def _part(self, run: str, held: dict[str, Any]) -> Part:
        asked = Experiment.from_json(held["experiment"], Path("the coordinator's message"))
        plan = replace(asked, device=self._device).resolve()
        self.limits.check(plan, held["sites"], held["precision"])
        if plan.experiment.secure:
            prepared(self.identity)
        classes, client = tuple(held["classes"]), int(held["client"])
        own = self.source.piece(plan, client, classes)
        plan = plan.related(own.num_relations)
        sites, precision = held["sites"], held["precision"]
        return Part(self._run_folder(run), plan, client, classes, precision, self.name, own, sites)

    def _run_folder(self, run: str) -> Path:
        return self.folder / "runs" / run

    def _hello(self, run: str, asked: Envelope, digest: str) -> bytes:
        source = self.source
        fields = {"features": source.num_features, "classes": list(source.classes), "relations": source.num_relations}
        fields |= {"site": self.name}
        return encode(Envelope("hello", fields))

    def _begin(self, run: str, asked: Envelope, digest: str) -> bytes:
        """Store what the run is about. The same message again, perhaps delayed, discards nothing."""
        folder = self._run_folder(run)
        held = {name: asked.fields[name] for name in (*TERMS, "attempt")}
        self.limits.check_new_run(run)
        part = self._part(run, held)
        self._ledger(run).begin(_terms("begin", held), held["attempt"])
        if held["attempt"] > self._attempt(folder):
            (folder / "begin.json").unlink(missing_ok=True)  # if the site is killed from here on, it has not begun
            for old in folder.glob("*.safetensors"):
                old.unlink()
            part.save("round-0", part.algorithm.init_client(part.w0, 1), b"")
            text = json.dumps(held | {"digest": subgraph_digest(part.own)}, indent=2) + "\n"
            write_text(folder / "begin.json", text)
        self._parts = {run: part}
        if part.plan.secure:
            return encode(Envelope("begun", self._sharing(run).key()))
        return encode(Envelope("begun", {} if isinstance(part.algorithm, NeedsSetup) else _first_numbers(part)))

    def _sharing(self, run: str) -> Sharing:
        """The site's part in the secure sums of a run."""
        part, held = self.part(run), self._shares
        if not part.plan.secure:
            raise FedpubError("a secure sum is asked for in a run that is not secure")
        if held is None or held.part is not part:
            held = Sharing(part, self._ledger(run), self.identity, lambda: self.limits.now().min_group or 0)
        held.ledger = self._ledger(run)
        self._shares = held
        return held

    def _peers(self, run: str, asked: Envelope, digest: str) -> bytes:
        return self._sharing(run).meet(asked)

    def _sum(self, run: str, asked: Envelope, digest: str) -> bytes:
        self._check_policy(self.part(run))
        return self._sharing(run).answer(asked)

    def _check_policy(self, part: Part) -> None:
        """The policy may have changed since the run began."""
        self.limits.check(part.plan, part.sites, part.precision)

    @staticmethod
    def _attempt(folder: Path) -> int:
        path = folder / "begin.json"
        return int(json.loads(path.read_text(encoding="utf-8"))["attempt"]) if path.is_file() else -1

    def _ledger(self, run: str) -> Ledger:
        """What was asked in this run, the only one in which the site takes part."""
        for other in self.folder.glob(f"runs/*/{LEDGER}"):
            if other.parent.name != run:
                raise FedpubError(
                    f"site {self.name!r} has agreed to one run and takes part in {other.parent.name}; for another run "
                    "its owner moves the site's folder runs away"
                )
        return Ledger.open(self._run_folder(run))

    def _setup(self, run: str, asked: Envelope, digest: str) -> bytes:
        part, step = self.part(run), asked.fields["step"]
        if not isinstance(part.algorithm, NeedsSetup) or step >= len(part.algorithm.setup().steps):
            raise FedpubError(f"{part.plan.experiment.method} has no exchange {step} before the rounds")
        name, setup, ledger = f"setup-{step}", part.algorithm.setup(), self._ledger(run)
        ledger.check(f"exchange {step}", digest)
        if (answer := part.answered(name)) is not None:
            return answer
        self._check_policy(part)
        first = step == 0
        before = setup.init_clients(part.ctx, part.w0, part.workspace) if first else [part.load(f"setup-{step - 1}")[0]]
        ledger.note(f"exchange {step}", digest)
        states, up = setup.clients(part.ctx, step, before, [asked.message.to(part.plan.device)], part.workspace)
        check_declared(part.algorithm, up[0])
        answer = encode(Envelope("setup", {"step": step}, up[0]))
        part.save(name, states[0], answer)
        part.__dict__.pop("data", None)  # it depends on the result of the set-up
        return answer

    def _ready(self, run: str, asked: Envelope, digest: str) -> bytes:
        """The first metrics and sizes, after the method's set-up and before the first round."""
        part = self.part(run)
        if not isinstance(part.algorithm, NeedsSetup) or part.plan.secure:
            raise FedpubError(f"{part.plan.experiment.method} exchanges nothing before the rounds")
        self._check_policy(part)
        return encode(Envelope("ready", _first_numbers(part)))

    def _round(self, run: str, asked: Envelope, digest: str) -> bytes:
        part, number, base = self.part(run), asked.fields["round"], asked.fields["base"]
        rounds, ledger, question = part.plan.rounds, self._ledger(run), f"round {number}"
        if not base < number:
            raise FedpubError(f"round {number} cannot follow round {base}")
        if number > rounds:
            raise FedpubError(f"round {number} is beyond the {rounds} rounds of the run")
        if number < ledger.newest:
            raise FedpubError(f"round {number} is over: this site has answered round {ledger.newest}")
        ledger.check(question, digest)
        if (answer := part.answered(f"round-{number}")) is not None:
            return answer
        self._check_policy(part)
        self.limits.check_new_round()
        state = part.load(f"round-{base}")[0]
        residual = tree_map(Tensor.cpu, tree(state.pop("residual", {})))
        state.pop(VECTOR, None)
        ctx = replace(part.ctx, round=number)
        message = asked.message.to(part.plan.device)
        noted = partial(ledger.note, question, digest, back=base < max(_kept_rounds(part.folder)), rounds=rounds)
        if part.plan.secure:  # whether a message is refused depends on the site's weights: it is told once a round
            ledger.forget_sums(number)
            noted()
        part.check_message(ctx, message, tree(state["weights"]), part.algorithm.since(state, base))
        noted()
        self._keep_model(part, state, base, asked.fields["best"])
        used = guarded(part.algorithm, ctx, state, message, part.data)
        state, up, loss_K = part.algorithm.client(ctx, state, used, part.data)
        check_declared(part.algorithm, up)
        metrics, total_K = measure(part.algorithm, ctx, state, part.data)
        if not bool(torch.isfinite(total_K).all() & torch.isfinite(loss_K).all()):
            raise FedpubError(f"training diverged at site {self.name!r} in round {number}")
        fields: dict[str, Any] = {"round": number}
        if isinstance(part.algorithm, Sums) and part.plan.secure:  # numbers and weights wait for the sum
            kept = self._sharing(run).keep(ctx, asked, message, up, {"loss": loss_K, **told(metrics)})
            state = state | {VECTOR: kept}
            up = part.algorithm.clear(up)
        else:
            fields |= {"loss": rounded_loss(float(loss_K[0])), "metrics": rounded_metrics(_numbers(metrics))}
        envelope = Envelope("round", fields, up.to(torch.device("cpu")))
        if part.precision != "exact":
            envelope, residual = _with_feedback(envelope, residual, part.precision)
            state = state | {"residual": residual}
        answer = encode(envelope, part.precision)
        part.save(f"round-{number}", state, answer)
        for old in _kept_rounds(part.folder):
            if old not in (base, number):
                (part.folder / f"round-{old}.safetensors").unlink()
        remove_leftovers(part.folder, (f"round-{number}.safetensors",))
        self.news = f"round {number}: loss {float(loss_K[0]):.4f}, validation {metrics['val'][0]:.4f}"
        return answer

    def _finish(self, run: str, asked: Envelope, digest: str) -> bytes:
        part, base = self.part(run), asked.fields["base"]
        self._keep_model(part, part.load(f"round-{base}")[0], base, asked.fields["best"])
        self.news, self.finished = f"finished; its model is in {self.folder / 'model'}", True
        return encode(Envelope("finished", {}))

    def _join(self, run: str, asked: Envelope, digest: str) -> bytes:
        """Join a finished run: one of two steps; a restart needs nothing of it."""
        check_epochs(asked.fields["epochs"])
        held, question = {name: asked.fields[name] for name in TERMS}, f"join {asked.fields['step']}"
        self.limits.check_new_run(run)
        part = self._parts[run] if run in self._parts else self._part(run, held)
        self._check_policy(part)
        ledger = self._ledger(run)
        ledger.begin(_terms("join", held), 0)
        ledger.check(question, digest)
        self._parts = {run: part}
        if (stored := part.answered(question.replace(" ", "-"))) is not None:
            return stored
        check_joinable(part.algorithm)
        after = replace(part.ctx, round=part.plan.rounds + 1)
        asked = replace(asked, message=asked.message.to(part.plan.device))
        part.check_message(after, asked.message, {}, 0)
        ledger.note(question, digest)

        def keep(weights: Tree, numbers: dict[str, float]) -> None:
            save_model(self.folder / "model", weights, self._card(part, 0, numbers, weights))

        envelope = answer_join(part, asked, self.folder, keep)
        answer = encode(envelope)
        part.save(question.replace(" ", "-"), {}, answer)
        if envelope.fields:
            self.news, self.finished = f"joined; its model is in {self.folder / 'model'}", True
        return answer

    def _keep_model(self, part: Part, state: State, base: int, best: int) -> None:
        """Save the personal model of the best round so far, for use without the federation.

        The site's state has not changed since `base`: unless the best round is earlier, this is its model of that
        round.
        """
        if not best or best < base or self._kept == (part.folder, best):
            return
        metrics, _ = measure(part.algorithm, part.ctx, state, part.data)
        weights = part.algorithm.personal(state)
        save_model(self.folder / "model", weights, self._card(part, best, _numbers(metrics), weights))
        self._kept = (part.folder, best)

    def _card(self, part: Part, number: int, metrics: Mapping[str, float], weights: Tree) -> ModelCard:
        details = part.ctx.task.details(part.ctx.model, weights, part.data)
        return ModelCard.of(
            part.plan.experiment,
            num_features=part.data.num_features,
            relations=part.own.num_relations,
            classes=part.classes,
            site=self.name,
            round=number,
            meta=dict(self.source.graph.meta) if isinstance(self.source, OwnGraph) else {},
            val=_known(metrics["val"]),
            test=_known(metrics["test"]),
            **{name: values[0] for name, values in details.items()},
        )


def _kept_rounds(folder: Path) -> list[int]:
    return [int(path.stem.partition("-")[2]) for path in folder.glob("round-*.safetensors")]


def _first_numbers(part: Part) -> dict[str, Any]:
    metrics, _ = measure(part.algorithm, part.ctx, part.load("round-0")[0], part.data)
    sizes = part.ctx.task.sizes([part.own])
    return {"metrics": rounded_metrics(_numbers(metrics)), "test_size": int(sizes[0]), "idle": not part.own.num_train}


def _terms(what: str, held: Mapping[str, Any]) -> str:
    """The digest of what a run is about."""
    text = json.dumps([what, *(held[name] for name in TERMS)])
    return hashlib.sha256(text.encode()).hexdigest()


def _with_feedback(envelope: Envelope, residual: Tree, precision: Precision) -> tuple[Envelope, Tree]:
    """A message with the rounding error of the last round added to its trees, and its own rounding error."""
    message = envelope.message
    message = message | {
        part: {
            name: leaf + residual[f"{part}.{name}"] if f"{part}.{name}" in residual else leaf
            for name, leaf in content.items()
        }
        for part, content in message.trees.items()
    }
    sent, lost = decode(encode(replace(envelope, message=message), precision)).message, {}
    for part, content in message.trees.items():
        for name, leaf in content.items():
            left = leaf - sent.tree(part)[name]
            lost[f"{part}.{name}"] = left * message.sent[name] if name in message.sent else left
    return replace(envelope, message=message), lost


_HANDLERS: dict[str, Callable[[Site, str, Envelope, str], bytes]] = {
    "hello": Site._hello,
    "begin": Site._begin,
    "setup": Site._setup,
    "ready": Site._ready,
    "round": Site._round,
    "peers": Site._peers,
    **dict.fromkeys(STEPS, Site._sum),
    "finish": Site._finish,
    "join": Site._join,
}
