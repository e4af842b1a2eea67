"""A new site joins a finished federation.

It trains a few epochs on the members' mean, so that its fingerprint (FED-PUB: its functional embedding) says what it is
like; the coordinator averages the members' weights by that similarity; the site trains a few more epochs on what it
gets. It also trains alone for as long, and keeps what is better on its validation set.

Axes: K members.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup
from fedpub.core.best import better
from fedpub.core.files import write_text
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, mix, tensor
from fedpub.engine.rounds import measure
from fedpub.errors import FedpubError
from fedpub.experiment import Plan
from fedpub.federation.known import FINGERPRINT, Known
from fedpub.federation.part import Part
from fedpub.federation.requests import Exchange
from fedpub.federation.validate.fields import rounded_metrics
from fedpub.federation.wire import Envelope, decode, encode

EPOCHS = 20  # in each of the two trainings
RESULT = "join.json"


@dataclass(frozen=True)
class Joined:
    """What joining improved, on the new site's own nodes."""

    site: str
    epochs: int
    metric: str
    alone: dict[str, float]
    joined: dict[str, float]
    kept: str  # "joined" or "alone", whichever is better on the validation set
    nearest: dict[str, float]  # the members' shares in the weights that it received


def check_joinable(algorithm: Algorithm) -> None:
    if isinstance(algorithm, NeedsSetup) or not algorithm.uploads:
        what = "exchanges what its sites hold before the first round" if algorithm.uploads else "shares nothing"
        name = type(algorithm).__name__
        raise FedpubError(f"a new site cannot join a federation of {name}, which {what}; use fedpub or fedavg")


# The coordinator's side


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished run, as its coordinator stores it."""

    plan: Plan
    run: str
    known: Known
    server: State
    clients: State

    def join(self, site: str, client: int, exchange: Exchange, deadline: float) -> dict[str, Any]:
        """Both exchanges with a new site, which becomes the client of that number; what it reports."""
        algorithm, members = self.plan.algorithm, self.known.sites
        check_joinable(algorithm)
        sent = algorithm.send(self.server, torch.arange(len(members)))
        first = algorithm.introduction(self.server)
        fields = {"run": self.run, "experiment": self.plan.experiment.to_json(), "client": client, "epochs": EPOCHS}
        fields |= {"classes": list(self.known.classes), "precision": "exact", "sites": len(members) + 1}

        def ask(step: str, share_1K: Tensor, message: Message) -> Envelope:
            nearest = {name: round(float(share), 6) for name, share in zip(members, share_1K[0], strict=True)}
            envelope = Envelope("join", fields | {"step": step, "nearest": nearest}, message)
            answers = exchange({0: encode(envelope)}, deadline)
            if 0 not in answers:
                raise FedpubError(f"site {site!r} did not answer within {deadline:g} s; start it and join again")
            answer = decode(answers[0])
            if answer.kind != "join":
                raise FedpubError(f"site {site!r} cannot join: {answer.fields.get('reason')}")
            return answer

        share_1K = torch.full((1, len(members)), 1 / len(members), dtype=torch.float64)
        near = ask("near", share_1K, _mean(share_1K, sent) if first is None else first)
        if FINGERPRINT in near.message and FINGERPRINT in self.clients:
            own, theirs = near.message.tensor(FINGERPRINT), tensor(self.clients[FINGERPRINT])
            if own.shape[1:] != theirs.shape[1:] or not bool(torch.isfinite(own).all()):
                raise FedpubError(f"site {site!r} cannot join: what characterises it is malformed")
            share_1K = algorithm.shares(self.server, own, theirs).double()
        return dict(ask("take", share_1K, _mean(share_1K, sent)).fields)


def _mean(share_1K: Tensor, sent: Message) -> Message:
    """The messages of all members [K, ...] as one, [1, ...]: means of weights, the rest as for the nearest member."""
    near = int(share_1K[0].argmax())
    return Message(
        {name: mix(share_1K, part) if isinstance(part, dict) else part[near : near + 1] for name, part in sent.items()}
    )


# The new site's side


def check_epochs(epochs: int) -> None:
    if epochs != EPOCHS:
        raise FedpubError(f"joining takes {EPOCHS} epochs, not the {epochs} that the coordinator asks for")


def answer_join(part: Part, asked: Envelope, folder: Path, keep: Callable[[Tree, dict[str, float]], None]) -> Envelope:
    """The site's fingerprint after the first training; after the second what it was good for. The model stays here."""
    state, up = _trained(part, asked.message, EPOCHS)
    if asked.fields["step"] == "near":
        like = part.algorithm.fingerprint(up)
        return Envelope("join", {}, Message({} if like is None else {FINGERPRINT: like}))
    alone, _ = _trained(part, _own_start(part, asked.message), 2 * EPOCHS)
    results = {"joined": _judged(part, state), "alone": _judged(part, alone)}
    standings = [results[which][name] for which in ("joined", "alone") for name in ("val", "val_loss")]
    kept = "joined" if better(*standings) else "alone"
    keep(part.algorithm.personal(state if kept == "joined" else alone), results[kept])
    shares = dict(asked.fields["nearest"])
    done = Joined(part.site, 2 * EPOCHS, part.ctx.task.metric_title, results["alone"], results["joined"], kept, shares)
    write_text(folder / RESULT, json.dumps(done.__dict__, indent=2) + "\n")
    if part.ctx.secure:  # how well its model is stays at home, as in the rounds
        return Envelope("join", {"site": part.site, "kept": ""})
    return Envelope("join", done.__dict__)


def _trained(part: Part, message: Message, epochs: int) -> tuple[State, Message]:
    """A new client after that many epochs from what it received, and what it would upload."""
    ctx: Context = replace(part.ctx, round=1, epochs=epochs)
    state, up, _ = part.algorithm.client(ctx, part.algorithm.init_client(part.w0, 1), message, part.data)
    return state, up


def _own_start(part: Part, message: Message) -> Message:
    """The message with the weights from which a site without a federation would start."""
    return message | {
        name: {leaf: part.w0[leaf].unsqueeze(0).clone() for leaf in content} for name, content in message.trees.items()
    }


def _judged(part: Part, state: State) -> dict[str, float]:
    metrics, _ = measure(part.algorithm, part.ctx, state, part.data)
    return rounded_metrics({name: float(value_R[0]) for name, value_R in metrics.items()})
