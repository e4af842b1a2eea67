"""What a sweep varies: settings with lists or ranges of values, typed as the settings are.

A setting is a field of the experiment, such as `lr`, or an option of one method, such as `fedpub.lambda1`. Values are
a list, or a text as on the command line: `0.01,0.003`, or a range `1e-4..1e-1`, drawn uniformly, with `:log` at the end
uniformly in the logarithm.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedpub.algorithms import METHODS, method_called, options_of
from fedpub.core.rng import numpy_stream
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.spec import Request

Space = Mapping[str, str | Sequence[Any]]  # values by the names of settings
DIGITS = 4  # significant digits of a drawn number: short enough to be typed again

# Settings that decide which data, task or measure a validation value belongs to, or that repeat a run: no choice
# between their values by validation has a meaning.
FIXED = {
    "seed": "each point is repeated on `seeds`",
    "data_seed": "each point is repeated on `seeds`",
    "method": "give several `methods`",
    "options": "name the options, as fedpub.lambda1",
} | dict.fromkeys(
    ("dataset", "scenario", "clients", "task", "metric", "ratios", "split", "alpha", "device", "dtype"),
    "its values cannot be chosen by validation; start a sweep for each",
)


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included."""

    low: float
    high: float
    log: bool
    whole: bool

    def at(self, share: float) -> float:
        """The number at a share of the way, from 0 to 1; every whole number has the same part of the way, or of the
        logarithms."""
        low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
        if self.log:
            return self.rounded(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
        return self.rounded(low + share * (high - low))

    def rounded(self, value: float) -> float:
        short = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(short, self.low), self.high)


@dataclass(frozen=True)
class Axis:
    """A setting and its values."""

    name: str
    values: tuple[Any, ...] | Range

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values such that, if these are possible, all are."""
        return (self.values.low, self.values.high) if isinstance(self.values, Range) else self.values

    def drawn(self, seed: int, trial: int) -> Any:
        """The value of a trial: each name and trial has a stream of its own, so that more of them change no other."""
        share = float(numpy_stream(seed, "sweep", self.name, trial).random())
        return self.values.at(share) if isinstance(self.values, Range) else self.values[int(share * len(self.values))]


def axes(space: Space, asked: Mapping[str, Request]) -> dict[str, tuple[Axis, ...]]:
    """The axes of every method, in the order of the space: the settings of the experiment, and the method's own."""
    if not space:
        raise FedpubError("there is nothing to sweep; name a setting with its values, as lr=0.01,0.003")
    found: dict[str, list[Axis]] = {label: [] for label in asked}
    for name, values in space.items():
        owner, _, option = name.rpartition(".")
        if owner:
            label = owner if owner in asked else method_called(owner)
            if label not in asked:
                raise FedpubError(f"{name} has no effect: {label} is not among the methods; add it to `methods`")
            found[label].append(_axis(name, values, _option_type(asked[label], label, option)))
            continue
        axis = _axis(name, values, _setting_type(name, asked))
        for own in found.values():
            own.append(axis)
    return {label: tuple(own) for label, own in found.items()}


def _setting_type(name: str, asked: Mapping[str, Request]) -> Any:
    known = [one.name for one in fields(Experiment) if one.name not in FIXED]
    if name in FIXED:
        raise FedpubError(f"{name} cannot be swept: {FIXED[name]}")
    if name not in known:
        if owner := next((label for label in (*asked, *METHODS) if name in _options(asked, label)), None):
            raise FedpubError(f"{name} is an option of a method; name that, too, as {owner}.{name}")
        raise unknown("setting", name, known)
    if name in ("model", "hidden") and any(request.model is not None for request in asked.values()):
        raise FedpubError(f"{name} has no effect on a model that is an object; give the model by its name")
    return get_type_hints(Experiment)[name]


def _options(asked: Mapping[str, Request], label: str) -> list[str]:
    method = asked[label].experiment.method if label in asked else label
    return options_of(method) if method in METHODS else []


def _option_type(request: Request, label: str, option: str) -> Any:
    kind: Any = METHODS[request.experiment.method] if request.algorithm is None else type(request.algorithm)
    known = [one.name for one in fields(kind)]
    if option not in known:
        raise unknown(f"option of {label}", option, known or ["(it has none)"])
    return get_type_hints(kind)[option]


def _axis(name: str, values: str | Sequence[Any], kind: Any) -> Axis:
    if isinstance(values, str) and ".." in values:
        return Axis(name, _range(name, values, kind))
    given = [text.strip() for text in values.split(",")] if isinstance(values, str) else list(values)
    if not given or given == [""]:
        raise FedpubError(f"{name} has no values to sweep over; give some, separated by commas")
    typed = tuple(_typed(name, value, kind, isinstance(values, str)) for value in given)
    for place, value in enumerate(typed):
        if value in typed[:place]:
            raise FedpubError(f"{name} has the value {value} twice; give each value once")
    return Axis(name, typed)


def _range(name: str, text: str, kind: Any) -> Range:
    plain, colon, how = text.partition(":")
    ends = plain.split("..")
    numbers = [one for one in _parts(kind) if one in (int, float)]
    if not numbers:
        raise FedpubError(f"{name} cannot have the range {text}: it is not a number; give a list of its values")
    if len(ends) != 2 or (colon and how != "log"):
        raise FedpubError(f"{name} cannot have the range {text}: write it as low..high or low..high:log")
    low, high = (_typed(name, end.strip(), numbers[0], True) for end in ends)
    if not low < high:
        raise FedpubError(f"{name} cannot have the range {text}: its first end must be the lower one")
    if how and low <= 0:
        raise FedpubError(f"{name} cannot have the range {text}: a logarithm needs ends above 0")
    return Range(low, high, bool(how), numbers[0] is int)


def _parts(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a type, None first: it would else be read as a word."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(sorted(parts, key=lambda one: one is not types.NoneType))


def _typed(name: str, value: Any, kind: Any, text: bool) -> Any:
    """A value of the setting's type, read from a text or checked."""
    for one in _parts(kind):
        found = _read(value, one) if text else _checked(value, one)
        if found is not NO_VALUE:
            return found
    said = " or ".join(_said(one) for one in _parts(kind)[::-1])
    raise FedpubError(f"{name} cannot be {value!r}: its values are {said}")


NO_VALUE = object()


def _read(text: str, kind: Any) -> Any:
    if kind is types.NoneType:
        return None if text.lower() == "none" else NO_VALUE
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), NO_VALUE)
    if kind in (int, float):
        try:
            return _checked(kind(text), kind)
        except ValueError:
            return NO_VALUE
    return _checked(text, kind)


def _checked(value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else NO_VALUE
    if kind is float and type(value) in (int, float):
        return float(value) if math.isfinite(value) else NO_VALUE
    return value if type(value) is kind else NO_VALUE


def _said(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    known = {float: "numbers", int: "whole numbers", bool: "true and false", str: "words", types.NoneType: "none"}
    return known.get(kind, str(kind))
