"""Rules for the fields of messages in both directions, checked before the fields are used."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from reprlib import repr as shortened  # values from outside may be long
from typing import Any

from fedpub.core.best import DIGITS, rounded_loss
from fedpub.errors import FedpubError
from fedpub.federation.wire import Envelope
from fedpub.federation.wire_header import LONGEST_NAME, PRECISIONS
from fedpub.tasks import is_amount

MOST_ROUNDS = 1_000_000
MOST_SITES = 100_000
MOST_FEATURES = 1_000_000
MOST_RELATIONS = 1000
MOST_CLASSES = 10_000
MOST_EXAMPLES = 1_000_000_000
MOST_LOSS = 1e30  # per validation node; raw features, such as amounts of money, cause large ones
LONGEST_KEY = 512  # hexadecimal digits of a key or a signature
LONGEST_TEXT = 100_000  # of an experiment

Rule = tuple[Callable[[Any], bool], str]  # whether a value is valid, and a description of valid values


def _count(most: int) -> Rule:
    return lambda value: type(value) is int and 0 <= value <= most, f"a whole number from 0 to {most:,}"


def _names(most: int) -> Rule:
    def good(value: Any) -> bool:
        whole = isinstance(value, list) and len(value) <= most
        return whole and all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in value)

    return good, f"at most {most:,} names of at most {LONGEST_NAME} characters"


def _one_of(*words: str) -> Rule:
    return lambda value: isinstance(value, str) and value in words, f"one of {', '.join(words)}"


def _text(longest: int) -> Rule:
    return lambda value: isinstance(value, str) and len(value) <= longest, f"a text of at most {longest:,} characters"


def _shares(most: int) -> Rule:
    def good(value: Any) -> bool:
        whole = isinstance(value, dict) and len(value) <= most and all(len(name) <= LONGEST_NAME for name in value)
        return whole and all(type(share) in (int, float) and 0 <= share <= 1 for share in value.values())

    return good, "shares from 0 to 1 by name"


def is_metric(name: str, value: Any) -> bool:
    """Whether a value is from 0 to 1, or up to `MOST_LOSS` for an amount, or NaN: an empty set has no accuracy."""
    return type(value) is float and (math.isnan(value) or 0 <= value <= (MOST_LOSS if is_amount(name) else 1))


def _metrics(value: Any) -> bool:
    return isinstance(value, dict) and all(is_metric(name, one) for name, one in value.items())


def _is_hex(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_KEY and re.fullmatch("([0-9a-f]{2})+", value) is not None


def _hex(most: int) -> Rule:
    def good(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= most and all(map(_is_hex, value))

    return good, f"at most {most:,} texts of at most {LONGEST_KEY} hexadecimal digits"


def _numbers(most: int) -> Rule:
    def good(value: Any) -> bool:
        whole = isinstance(value, list) and 0 < len(value) <= most and all(type(one) is int for one in value)
        return whole and value[0] >= 0 and value[-1] < most and all(a < b for a, b in pairwise(value))

    return good, f"numbers of sites, ascending, below {most:,}"


_hex_text: Rule = (_is_hex, f"at most {LONGEST_KEY} hexadecimal digits")
ROUND = _count(MOST_ROUNDS)
_SUM: dict[str, Rule] = {
    "round": ROUND,
    "attempt": ROUND,
    "group": _count(MOST_SITES),
    "members": _numbers(MOST_SITES),
}
_PART: dict[str, Rule] = {
    "experiment": _text(LONGEST_TEXT),
    "client": _count(MOST_SITES),
    "classes": _names(MOST_CLASSES),
    "precision": _one_of(*PRECISIONS),
    "sites": (lambda value: type(value) is int and 0 < value <= MOST_SITES, f"a whole number from 1 to {MOST_SITES:,}"),
}
_FIRST: dict[str, Rule] = {
    "metrics": (_metrics, "numbers by name, from 0 to 1 or, for a loss or an error, from 0"),
    "test_size": _count(MOST_EXAMPLES),
    "idle": (lambda value: isinstance(value, bool), "true or false"),
}

ASKED: dict[str, dict[str, Rule]] = {
    "hello": {},
    "begin": _PART | {"attempt": ROUND},
    "setup": {"step": ROUND},
    "ready": {},
    "round": {"round": ROUND, "base": ROUND, "best": ROUND, "examples": _count(MOST_EXAMPLES * MOST_SITES)},
    "peers": {"names": _names(MOST_SITES), "keys": _hex(MOST_SITES), "signatures": _hex(MOST_SITES)},
    "shares": _SUM,
    "masked": _SUM | {"alive": _numbers(MOST_SITES)},
    "confirm": _SUM | {"alive": _numbers(MOST_SITES), "survivors": _numbers(MOST_SITES)},
    "reveal": _SUM | {"alive": _numbers(MOST_SITES), "survivors": _numbers(MOST_SITES)},
    "finish": {"base": ROUND, "best": ROUND},
    "join": _PART | {"epochs": ROUND, "step": _one_of("near", "take"), "nearest": _shares(MOST_SITES)},
}
ANSWERED: dict[str, dict[str, Rule]] = {
    "hello": {
        "features": _count(MOST_FEATURES),
        "classes": _names(MOST_CLASSES),
        "relations": _count(MOST_RELATIONS),
    },
    "begun": _FIRST,
    "begun, before a set-up": {},
    "ready": _FIRST,
    "setup": {"step": ROUND},
    "begun, secure": {"key": _hex_text, "signature": _hex_text},
    "peers": {},
    **{step: {"round": ROUND, "attempt": ROUND} for step in ("shares", "masked", "confirm", "reveal")},
}
KINDS = {*ASKED, *ANSWERED, "finished", "refused", "lost"}  # of all messages


def check_fields(envelope: Envelope, rules: Mapping[str, Rule]) -> None:
    """Raise an error unless a message has these fields and each is valid."""
    for name, (good, words) in rules.items():
        if name not in envelope.fields:
            raise FedpubError(f"the message {shortened(envelope.kind)} lacks {name}")
        if not good(envelope.fields[name]):
            raise FedpubError(
                f"{name} of the message {shortened(envelope.kind)} is {_seen(envelope.fields[name])}, not {words}"
            )


def _seen(value: Any) -> str:
    if isinstance(value, list | dict | str) and len(value) > LONGEST_NAME:
        return f"{len(value):,} long"
    return shortened(value)


def rounded_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as they leave a site, with four digits, which are enough for display and selection.

    The validation value counts correct answers and decides between rounds: it is not rounded.
    """
    return {name: _rounded(name, value) for name, value in metrics.items()}


def _rounded(name: str, value: float) -> float:
    if name == "val":
        return value
    return rounded_loss(value) if is_amount(name) else round(value, DIGITS)
