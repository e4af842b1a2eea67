"""What an attack has found, with its score beside a guess, and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NEAR = 0.05  # of what a guess leaves open: a score that knows less of it tells nothing that matters
LEAST = 0.002  # gain that matters, however little is left open


@dataclass(frozen=True)
class Finding:
    attack: str
    learnt: str  # what is learnt if it succeeds
    measure: str  # of the score: from 0 to 1, the higher the more is known
    sentence: str
    score: float | None = None  # mean over the clients; None without the truth, or where the attack does not apply
    guess: float | None = None
    worst: float | None = None  # of the client about which most is learnt
    by_coordinator: bool = True  # not by someone who gets hold of a kept model
    clients: Sequence[float | None] = ()  # the score of each client
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.score is None or self.guess is None:
            return "not scored"
        return "better than guessing" if matters(self.score, self.guess) else "no better than guessing"


def matters(score: float, guess: float) -> bool:
    return score - guess > max(LEAST, NEAR * (1 - guess))


def scored(
    attack: str, learnt: str, measure: str, sentence: str, values: Sequence[float], guess: float, **rest: Any
) -> Finding:
    """A finding from the scores of clients, some of which may be NaN. `sentence` may name {score}, {guess}, {worst}."""
    known = [value for value in values if not math.isnan(value)]
    mean, worst = (sum(known) / len(known), max(known)) if known else (math.nan, math.nan)
    filled = sentence.format(score=_percent(mean), guess=_percent(guess), worst=_percent(worst))
    if known and not math.isnan(guess) and not matters(mean, guess):
        filled += " That is no better than a guess."
    clients = [None if math.isnan(value) else value for value in values]
    score, beside, most = (None if math.isnan(value) else value for value in (mean, guess, worst))
    return Finding(attack, learnt, measure, filled, score, beside, most, clients=clients, **rest)


def _percent(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{100 * value:.0f} %"
