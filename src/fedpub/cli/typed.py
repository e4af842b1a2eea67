"""Every verb with its flags and their values, read from the parsers of the verbs.

docs/generate.py stores them in typed.json: making all parsers imports all of fedpub, which takes seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from fedpub.cli import VERBS, action


@dataclass(frozen=True)
class Flag:
    names: tuple[str, ...]
    takes: int  # 0: nothing, 1: a value, 2: any number of them
    values: tuple[str, ...]
    files: bool  # a file name is possible, too
    about: str


@dataclass(frozen=True)
class Verb:
    name: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]  # values that need no flag
    files: bool


def _file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files("fedpub.cli").joinpath("typed.json").read_text(encoding="utf-8"))
    return found


def known_verbs() -> list[Verb]:
    """The result of `verbs`, from the file."""
    return [
        Verb(
            verb["name"],
            tuple(
                Flag(tuple(one["names"]), one["takes"], tuple(one["values"]), one["files"], one["about"])
                for one in verb["flags"]
            ),
            tuple(verb["words"]),
            verb["files"],
        )
        for verb in _file()["verbs"]
    ]


def known_recipes() -> dict[str, str]:
    """The titles of the paper's tables and figures, from the file."""
    recipes: dict[str, str] = _file()["recipes"]
    return recipes


def typed_json() -> str:
    """The expected content of the file, with one line per verb."""
    from fedpub.paper.recipes import RECIPES

    recipes = json.dumps({name: recipe.title for name, recipe in RECIPES.items()}, indent=1, ensure_ascii=False)
    lines = ",\n".join(json.dumps(asdict(verb), ensure_ascii=False) for verb in verbs())
    return f'{{"recipes": {recipes},\n"verbs": [\n{lines}\n]}}'


def verbs() -> list[Verb]:
    """Every verb with its flags, including those of all methods if they depend on the method."""
    return [_verb(name) for name in VERBS]


def parsers(verb: str) -> list[Any]:
    """The parsers of a verb: one, or one for every method."""
    from fedpub.cli.flags import names_of, parser, takes_method

    function = action(verb)
    choices = [["--method", method] for method in names_of("method")] if takes_method(function) else [[]]
    return [parser(function, words) for words in choices]


def _verb(name: str) -> Verb:
    flags: dict[tuple[str, ...], Flag] = {}
    words: Collection[str] = ()
    files = False
    for parser in parsers(name):
        for one in parser._actions:  # argparse has no other way to list them
            if one.option_strings:
                flags.setdefault(tuple(one.option_strings), _flag(one))
            else:
                words, files = _choices(one), files or _is_path(one)
    if name == "reproduce":
        from fedpub.paper.recipes import RECIPES

        words = ("all", *RECIPES)
    return Verb(name, tuple(flags.values()), tuple(words), files)


def _flag(one: Any) -> Flag:
    from fedpub.cli.flags import names_of
    from fedpub.data.datasets import names

    setting = one.option_strings[-1][2:].replace("-", "_")
    graphs = names() if setting in ("dataset", "datasets", "graph") and not _is_path(one) else ()
    values = _choices(one) or (() if _is_path(one) else names_of(setting) or graphs)
    takes = 0 if one.nargs == 0 else 1 if one.nargs in (None, 1, "?") else 2
    about = re.split(r"[.;:](?: |$)| \(default", (one.help or "").replace("`", "").replace("%%", "%"))[0]
    files = _is_path(one) or setting in ("dataset", "graph")
    return Flag(tuple(one.option_strings), takes, tuple(values), files, about)


def _choices(one: Any) -> list[str]:
    """The choices of a flag in the order of the help: tyro has a set, with None if the flag is optional."""
    return [value for value in re.findall(r"[\w-]+", str(one.metavar)) if value in (one.choices or ())]


def _is_path(one: Any) -> bool:
    return bool(re.search("PATH|FILE", str(one.metavar)))
