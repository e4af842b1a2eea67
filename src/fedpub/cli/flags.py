"""The flags of verbs: translates function signatures for tyro.

A parameter is a flag, a dataclass a group of flags. The most used settings of an experiment are in the first group, and
the hyper-parameters of the method given by --method are a group of their own.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec

from fedpub.errors import with_flags

if TYPE_CHECKING:
    from fedpub.experiment import Experiment

Function = Callable[..., int | None]
# The first flags of verbs with an experiment, in this order.
FIRST = ("dataset", "scenario", "clients", "sites", "methods", "method", "task", "rounds", "epochs", "seed", "seeds")
# Help of flags that many verbs have; a verb's docstring takes precedence.
TEXTS = {
    "dataset": "Graph: a name from `fedpub data list`, or a graph file.",
    "scenario": "Division of the graph among clients.",
    "clients": "Number of clients.",
    "methods": "Methods.",
    "device": "Compute device.",
    "data_root": "Folder of the raw files. (default: FEDPUB_DATA, or the cache folder)",
    "keep_checkpoint": "Last checkpoint and set-up kept when a run is finished.",
    "max_memory": "Memory limit in GiB; clients are computed in chunks, with states on disk where they do not fit.",
    "quiet": "No progress bar, only the result.",
    "verbose": "One line per round on standard error, and tracebacks of errors.",
    "json": "Output as JSON.",
}
METAVARS = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}
# None cannot be typed, and groups add no prefix to their flags.
CONFIG = (tyro.conf.DisallowNone, tyro.conf.OmitArgPrefixes)


@dataclass(frozen=True)
class Settings:
    """Marks a parameter that is an experiment; `without` names the settings that are not flags of the verb."""

    without: tuple[str, ...] = ()


class Typed(frozenset[str]):
    """The names of the flags that were typed; a parameter of this type is not a flag."""


class Further:
    """The group of an experiment's settings that are not in `FIRST`."""


def call(function: Function, prog: str, arguments: Sequence[str]) -> int | None:
    """Run a verb with the typed arguments and return its exit status."""
    return tyro.cli(function, prog=prog, args=arguments, registry=_registry(function, arguments), config=CONFIG)


def parser(function: Function, arguments: Sequence[str] = ()) -> Any:
    """The parser of a verb, with the attributes of an argparse parser, for programs that inspect it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # get_parser is deprecated, but only completion and tests need it
        return tyro.extras.get_parser(function, registry=_registry(function, arguments), config=CONFIG)


def takes_method(function: Function) -> bool:
    """Whether a verb has the flags of a method."""
    kinds = get_type_hints(function, include_extras=True).values()
    return any(found and "method" not in found.without for found in map(_settings, kinds))


def names_of(flag: str) -> Collection[str]:
    """The possible names for a flag, if there are few."""
    if flag in ("method", "methods"):
        from fedpub.algorithms import METHODS

        return METHODS
    if flag == "task":
        from fedpub.tasks import TASKS

        return TASKS
    if flag == "model":
        from fedpub.models import MODELS

        return MODELS
    if flag in ("scenario", "scenarios"):
        from fedpub.data.clients.partition import SCENARIOS

        return SCENARIOS
    if flag == "track":
        from fedpub.runs.tracking import SINKS

        return SINKS
    return ("cpu", "cuda") if flag == "device" else ()


def typed(arguments: Sequence[str]) -> Typed:
    words = (word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--"))
    return Typed(word.removeprefix("no_") for word in words)


def named_method(arguments: Sequence[str], default: str) -> str:
    """The value of --method, which decides which other flags there are."""
    from fedpub.algorithms import check_owned, method_called
    from fedpub.experiment import Experiment

    found = default
    for word, following in pairwise([*arguments, ""]):
        if word == "--method":
            found = following
        elif word.startswith("--method="):
            found = word.partition("=")[2]
    found = method_called(found)
    check_owned(sorted(typed(arguments) - {one.name for one in fields(Experiment)}), found)
    return found


def texts_of(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class and its parents."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not is_dataclass(one):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body  # type: ignore[attr-defined]
        for line, text in pairwise(body):
            said = text.value if isinstance(text, ast.Expr) else None
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(said, ast.Constant):
                found[line.target.id] = str(said.value)
    return found


def _registry(function: Function, arguments: Sequence[str]) -> ConstructorRegistry:
    """The constructors of the function and of the groups among its parameters, for tyro."""
    hints, texts = get_type_hints(function, include_extras=True), TEXTS | _argument_texts(function)
    flags: list[StructFieldSpec] = []
    groups: list[StructFieldSpec] = []
    specs: dict[Any, StructConstructorSpec] = {}
    made: dict[str, Callable[[dict[str, Any]], Any]] = {}  # parameters that are not flags, from all given values

    def group(title: str, kind: type, content: Sequence[StructFieldSpec], make: Callable[..., Any] = dict) -> None:
        specs[kind] = StructConstructorSpec(make, tuple(content))
        groups.append(StructFieldSpec(title, kind, tyro.MISSING_NONPROP))

    for name, parameter in inspect.signature(function).parameters.items():
        kind, default = hints[name], parameter.default
        if kind is Typed:
            made[name] = lambda given: typed(arguments)
        elif (settings := _settings(kind)) is not None:
            shown = {one.name for one in fields(default)} - {*settings.without}
            every = [one for one in _fields(default, Decided(default, shown | {*hints})) if one.name in shown]
            first = [one for one in every if one.name in FIRST]
            flags += first
            group(name, Further, [one for one in every if one not in first])
            chosen = None
            if "method" not in settings.without:
                from fedpub.algorithms import METHODS

                chosen = named_method(arguments, default.method)
                option: Any = METHODS[chosen]
                own = [one for one in _fields(option()) if one.name not in shown]  # the others are filled in from them
                group(chosen.replace("-", "_"), option, own)
            made[name] = _experiment(name, default, [one.name for one in first], chosen)
        elif isinstance(kind, type) and is_dataclass(kind):
            group(name, kind, list(_fields(default)), kind)
        else:
            default = tyro.MISSING_NONPROP if default is parameter.empty else default
            flags.append(_flag(name, kind, default, texts.get(name, "")))
    if Further in specs:
        flags.sort(key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST))

    def called(**given: Any) -> int | None:
        values = {name: make(given) for name, make in made.items()}
        return function(**given, **values)

    called.__doc__ = function.__doc__  # read by tyro
    specs[function] = StructConstructorSpec(called, (*flags, *groups))
    registry = ConstructorRegistry()
    registry.struct_rule(lambda info: specs.get(info.type))
    return registry


def _experiment(
    name: str, default: Experiment, first: Sequence[str], method: str | None
) -> Callable[[dict[str, Any]], Experiment]:
    """A function that makes the experiment from the given flags and removes those that it used."""

    def make(given: dict[str, Any]) -> Experiment:
        values = {one: given.pop(one) for one in first} | given.pop(name)
        if method is not None:
            values |= {"method": method, "options": given.pop(method.replace("-", "_"))}
        return replace(default, **values)

    return make


def _fields(default: Any, decided: Decided | None = None) -> Iterator[StructFieldSpec]:
    """The fields of a dataclass as flags."""
    hints, texts = get_type_hints(type(default), include_extras=True), texts_of(type(default))
    for one in fields(default):
        yield _flag(one.name, hints[one.name], getattr(default, one.name), texts.get(one.name, ""), decided)


def _flag(name: str, kind: Any, default: Any, text: str, decided: Decided | None = None) -> StructFieldSpec:
    """A flag with its help: the text, the names it takes, and its default.

    A text may end in (default: ...) if that depends on other settings; `decided` has more of these.
    """
    text, _, hint = with_flags(" ".join(text.split())).partition(" (default: ")
    marks: list[Any] = []
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if plain is bool and default is False:
        marks.append(tyro.conf.FlagCreatePairsOff)
    if metavar := _metavar(plain):
        marks.append(tyro.conf.arg(metavar=metavar))
    if hint:
        marks.append(tyro.conf.arg(help_behavior_hint=f"(default: {hint}"))
    elif default is None and decided is not None:
        marks.append(tyro.conf.arg(help_behavior_hint=lambda _: decided(name)))
    elif default is None or default is False or default == () or default is tyro.MISSING_NONPROP:
        marks.append(tyro.conf.arg(help_behavior_hint=""))
    elif default is True:
        marks.append(tyro.conf.arg(help_behavior_hint="(default: on)"))

    def help_text() -> str:
        names = list(names_of(name))
        if not names or ":" in text or (isinstance(default, tuple) and {*names} <= {*default}):  # already in the text
            return text
        return f"{text[:-1]}: {', '.join(names[:-1])} or {names[-1]}."

    annotated: Any = Annotated[(kind, *marks)] if marks else kind
    return StructFieldSpec(name, annotated, default, help_text)


def _metavar(kind: Any) -> str:
    """Placeholder for a tuple or list, which tyro would show as [STR [STR ...]]; empty for other types."""
    for one in (kind, *get_args(kind)):  # the arguments for a tuple or None
        if get_origin(one) in (tuple, list):
            values = [METAVARS.get(value, "...") for value in get_args(one)]
            return f"{values[0]} ..." if get_origin(one) is list else " ".join(values)
    return ""


class Decided:
    """The defaults of settings that are None, which depend on method, dataset and task."""

    def __init__(self, default: Experiment, flags: Collection[str]) -> None:
        self._default = default
        self._depend_on = [name for name in ("method", "dataset", "task") if {name, f"{name}s"} & {*flags}]

    @cached_property
    def _found(self) -> dict[str, Experiment]:
        """The default experiment, and that of each method, dataset and task."""
        from fedpub.data.datasets import names

        found = {"": self._default.resolve().experiment}
        for setting in self._depend_on:
            for value in names() if setting == "dataset" else names_of(setting):
                changed: dict[str, Any] = {setting: value}
                found[value] = replace(self._default, **changed).resolve().experiment
        return found

    def __call__(self, name: str) -> str:
        said: dict[str, list[str]] = {}
        for value, experiment in self._found.items():
            said.setdefault(_said(getattr(experiment, name)), []).append(value)
        (usual, _), *others = said.items()
        parts = [usual, *(f"{found} for {', '.join(values)}" for found, values in others)]
        return f"(default: {'; '.join(parts)})" if usual else ""


def _said(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _settings(kind: Any) -> Settings | None:
    return next((one for one in getattr(kind, "__metadata__", ()) if isinstance(one, Settings)), None)


def _argument_texts(function: Function) -> dict[str, str]:
    """The texts in the docstring's section `Args`."""
    section = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")[2]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.M)
    return {name: " ".join(text.split()) for name, text in found}
