"""Harm that one hostile client does to the others, for each method, attack and defence.

The hostile client is the first. It trains like the others, knows everything they send, and sends something else.

Axes: K clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Defence
from fedpub.bench.any_words import SUM_ATTACKS, with_any_words
from fedpub.core.message import Message
from fedpub.core.rng import torch_stream
from fedpub.core.tree import State, Tree
from fedpub.data.clients.stack import Clients
from fedpub.engine.robust import STEPS
from fedpub.engine.simulate import simulate
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.store.record import Record, Row

HOSTILE = 0
HUGE = 2**62  # examples
FACTOR = 10.0  # of opposite steps and flipped weights
LITTLE = 1.5  # standard deviations
DEFENCES: tuple[Defence, ...] = ("none", "clip", "median", "guard", "default")
OF_CLIENTS: tuple[Defence, ...] = ("none", "guard")  # all that is left if the server gets sums


@dataclass(frozen=True)
class Attacked:
    """Results of the honest clients."""

    method: str
    attack: str
    defence: str
    accuracy: float  # test accuracy of the honest clients' kept models, mean over clients and seeds
    last: float  # the same after the last round
    seeds: tuple[int, ...]
    accuracies: tuple[float, ...]  # one per seed
    rounds: int  # completed rounds; fewer if training broke down
    secure: bool  # whether the server gets sums only


# From weights and steps of all clients, [K, ...], and the round: the weights that the hostile client sends, [...].
Attack = Callable[[Tree, Tree, Context], Tree]


def opposite(weights: Tree, steps: Tree, ctx: Context) -> Tree:
    """A long step in the opposite direction of its own training."""
    return {name: leaf[HOSTILE] - (1 + FACTOR) * steps[name][HOSTILE] for name, leaf in weights.items()}


def flipped(weights: Tree, steps: Tree, ctx: Context) -> Tree:
    return {name: -FACTOR * leaf[HOSTILE] for name, leaf in weights.items()}


def noise(weights: Tree, steps: Tree, ctx: Context) -> Tree:
    """Standard normal noise."""
    stream = torch_stream(ctx.seed, "attack", ctx.round)
    return {name: torch.randn(leaf.shape[1:], generator=stream).to(leaf) for name, leaf in weights.items()}


def little(weights: Tree, steps: Tree, ctx: Context) -> Tree:
    """Within the spread of the others in each entry, but always on the same side (Baruch et al., 2019)."""
    others = {name: honest(leaf) for name, leaf in weights.items()}
    return {name: leaf.mean(0) - LITTLE * leaf.std(0) for name, leaf in others.items()}


def adapted(weights: Tree, steps: Tree, ctx: Context) -> Tree:
    """Opposite to the mean step of the others, with the longest step that passes clipping."""
    against = {name: honest(leaf).mean(0) for name, leaf in steps.items()}
    length_K = torch.stack([honest(leaf).flatten(1).square().sum(1) for leaf in steps.values()]).sum(0).sqrt()
    own = torch.stack([leaf.square().sum() for leaf in against.values()]).sum().sqrt().clamp(min=1e-30)
    far = STEPS * length_K.median() / own
    return {name: (weights[name] - steps[name])[HOSTILE] - far * leaf for name, leaf in against.items()}


# `_claims` and `_told` make false claims: about examples, and about the accuracies that decide which round is kept.
ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "opposite step": opposite,
    "sign flip": flipped,
    "noise": noise,
    "a little is enough": little,
    "false claims": None,
    "adapted": adapted,
}


def honest(leaf: Tensor) -> Tensor:
    return leaf[HOSTILE + 1 :]


def bench_robust(
    dataset: str,
    scenario: str,
    clients: int,
    methods: tuple[str, ...],
    attacks: tuple[str, ...],
    defences: tuple[str, ...],
    rounds: int,
    seeds: tuple[int, ...],
    root: Path | None,
    secure: bool = False,
) -> Iterator[Attacked]:
    """Yield the result of each method, attack and defence as soon as it is known; none named are all that there are."""
    attacks, defences = attacks or attacks_of(secure), defences or defences_of(secure)
    for name in attacks:
        if name not in attacks_of(secure):
            raise unknown("attack", name, attacks_of(secure))
    for name in defences:
        if name not in DEFENCES:
            raise unknown("defence", name, DEFENCES)
    if clients < 2:
        raise FedpubError(f"`clients={clients}` leaves no honest client; give 2 or more")
    plain = Experiment(dataset, scenario, clients, rounds=rounds, secure=secure)
    ready: dict[object, Prepared] = {}
    for method in methods:
        for defence in defences:
            for attack in attacks:
                options = {"communities": "explicit"} if secure and method == "fedpub" else {}  # its sums need groups
                chosen: Any = replace(plain, method=method, options=options, defence=defence)  # type: ignore[arg-type]
                played = [_played(replace(chosen, seed=seed).resolve(), attack, ready, root) for seed in seeds]
                kept = tuple(_accuracy(record.best()) for record in played)
                last = float(np.mean([_accuracy(record.rows[-1]) for record in played]))
                least = min(len(record.rows) for record in played)
                yield Attacked(method, attack, defence, float(np.mean(kept)), last, seeds, kept, least, secure)


def attacks_of(secure: bool) -> tuple[str, ...]:
    """The known attacks: in sums a client can also add what is no number within the bounds."""
    return (*ATTACKS, *SUM_ATTACKS) if secure else tuple(ATTACKS)


def defences_of(secure: bool) -> tuple[Defence, ...]:
    return OF_CLIENTS if secure else DEFENCES


def _played(plan: Plan, attack: str, ready: dict[object, Prepared], root: Path | None) -> Record:
    same = (plan.seed, plan.model.propagation)
    if same not in ready:
        ready[same] = prepare(plan, root)
    number = len(ready[same].federation.subgraphs)
    by_words = attack in SUM_ATTACKS
    algorithm = (
        with_any_words(plan.algorithm, attack, HOSTILE, number) if by_words else attacked(plan.algorithm, attack)
    )
    record = Record()
    try:
        for measured in simulate(algorithm, plan.context, ready[same].federation, plan.rounds):
            row = Row.of(measured, 0.0)
            row.clients["val"][HOSTILE] = _told(row.clients["val"][HOSTILE], attack, row.round)
            record.append(row)
    except FedpubError:  # training broke down: use the models of the rounds before
        if not record.rows:
            raise
    return record


def _accuracy(row: Row) -> float:
    return float(np.nanmean(row.clients["test"][HOSTILE + 1 :]))


def _told(value: float, attack: str, number: int) -> float:
    """The hostile client's reported validation results; with false claims, those of the first round are perfect."""
    return value if attack != "false claims" else float(number == 1)


def attacked(algorithm: Algorithm, attack: str) -> Algorithm:
    """The method with one hostile client; it must train all clients at once."""
    if attack == "none":
        return algorithm
    kind: Any = type(algorithm)
    change = ATTACKS[attack]

    class Hostile(kind):  # type: ignore[misc]
        def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
            received = {leaf: value.clone() for part in msg.trees.values() for leaf, value in part.items()}
            own, up, loss_K = super().client(ctx, own, msg, data)
            if change is None:
                return own, up | _claims(up, ctx.round), loss_K
            name = "weights" if "weights" in up else "base"
            weights, active = up.tree(name), up.sent
            steps = {leaf: value - received[leaf] for leaf, value in weights.items()}
            steps |= {leaf: steps[leaf] * sent for leaf, sent in active.items() if leaf in steps}
            false = change(weights, steps, ctx)
            changed = {leaf: _with(value, false[leaf]) for leaf, value in weights.items()}
            everything = {leaf: _with(sent, torch.ones_like(sent[0])) for leaf, sent in active.items() if leaf in steps}
            return own, Message(up.parts | {name: changed}, active | everything), loss_K

    hostile: Algorithm = Hostile(**{one.name: getattr(algorithm, one.name) for one in fields(kind)})
    return hostile


def _claims(up: Message, number: int) -> State:
    """Honest weights with false numbers: that of its examples, and what its models score."""
    found: State = {}
    if "size" in up:
        size_K = up.tensor("size")
        found["size"] = _with(size_K, torch.full_like(size_K[0], HUGE))
    if "scores" in up:
        score_KM = up.tensor("scores")
        found["scores"] = _with(score_KM, torch.full_like(score_KM[0], float(number == 1)))
    return found


def _with(leaf: Tensor, value: Tensor) -> Tensor:
    """A copy with this value for the hostile client."""
    changed = leaf.clone(memory_format=torch.contiguous_format)
    changed[HOSTILE] = value
    return changed
