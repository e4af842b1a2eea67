"""Help texts, read from the verbs' parsers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

import fedpub
from fedpub.algorithms import METHODS
from fedpub.cli import VERBS, main
from fedpub.cli.flags import Settings, Typed, call, parser, texts_of
from fedpub.cli.typed import parsers
from fedpub.data import datasets
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment

# Switches that can be off: those that are on by default.
NEGATED = {"--no-masks", "--no-similarity", "--no-grouping", "--no-fallback", "--no-wait"}
ODD = r"None|Of everything|\bmend|\bWhich\b|\bWhere;|goes? on\b|\bletters?\b|[Ww]hoever|\belse say\b|tell of|  |\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_has_a_plain_noun_phrase(verb):
    for found in parsers(verb):
        for one in found._actions:
            if "--help" in one.option_strings:
                continue
            text, _, default = one.help.strip().partition(" (default: ")
            text = text.removesuffix(" (required)")
            name = f"{verb} {one.option_strings or one.dest}"
            assert re.fullmatch(r"[A-Z].*\.", text), f"{name}: {text!r}"
            assert not re.search(ODD, text), f"{name}: {text!r}"
            assert not default or re.fullmatch(r"(?!None|\)).*\)", default), f"{name}: {default!r}"
            assert "None" not in (one.metavar or ""), name
            assert {flag for flag in one.option_strings if flag.startswith("--no-")} <= NEGATED, name


@pytest.mark.parametrize("verb", ["run", "compare", "deploy local", "coordinator init"])
def test_important_flags_come_first(verb):
    flags = [one.option_strings[-1] for one in parsers(verb)[0]._actions if one.option_strings]
    important = ["--dataset", "--scenario", "--clients", "--sites", "--methods", "--method", "--rounds", "--seed"]
    important = [flag for flag in important if flag in flags]
    assert [flag for flag in flags if flag in important] == important
    rare = {"--data-root", "--chunk", "--max-memory", "--checkpoint-seconds", "--bind", "--dtype", "--tau"}
    assert max(flags.index(flag) for flag in important) < min(flags.index(flag) for flag in rare if flag in flags)


def help_of(verb: str, flag: str) -> str:
    for found in parsers(verb):
        for one in found._actions:
            if flag in one.option_strings:
                return " ".join(one.help.split())
    raise AssertionError(f"{verb} has no {flag}")


def test_defaults_are_those_that_are_used():
    assert "(default: 128; 64 for fedpub-plus)" in help_of("run", "--hidden")
    assert "(default: gcn; hops for fedpub-plus)" in help_of("compare", "--model")
    assert "(default: 100; 200 for computers, photo, ogbn-arxiv)" in help_of("run", "--rounds")
    assert "20 for link-prediction)" in help_of("run", "--epochs")
    assert "(default: 100)" in help_of("coordinator init", "--rounds")  # it has no --dataset
    assert "(default: 0)" in help_of("run", "--seed")
    assert "(default: --seed)" in help_of("run", "--data-seed")
    assert "(default: on)" in help_of("run", "--no-masks")
    assert "default" not in help_of("run", "--quiet")
    by_hand = re.search(r"default: ([\d. ]+); ([\d. ]+) for ogbn-arxiv", help_of("data stats", "--ratios"))
    assert tuple(map(float, by_hand[1].split())) == datasets.split_ratios("cora")
    assert tuple(map(float, by_hand[2].split())) == datasets.split_ratios("ogbn-arxiv")


def test_names_that_a_flag_takes_are_listed():
    assert all(method in help_of("run", "--method") for method in METHODS)
    assert "dirichlet or natural." in help_of("data stats", "--scenario")
    assert "tensorboard or mlflow." in help_of("run", "--track")


def test_flags_that_only_switch_on(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--no-quiet"])
    assert caught.value.code == 2
    assert "--no-quiet" in capsys.readouterr().err


def test_none_cannot_be_typed(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--rounds", "None"])
    assert caught.value.code == 2


@dataclass(frozen=True)
class Group:
    first: int = 1
    """The first,
    on two lines."""
    second: bool = True
    """The second, with `first`. (default: yes)"""


@dataclass(frozen=True)
class Later(Group):
    third: float | None = None
    """The third."""


def test_texts_of_fields_are_those_below_them():
    assert texts_of(Later) == {
        "first": "The first,\n    on two lines.",
        "second": "The second, with `first`. (default: yes)",
        "third": "The third.",
    }


def test_a_function_becomes_flags():
    seen = {}

    def verb(
        typed: Typed,
        experiment: Annotated[Experiment, Settings(without=("options", "device"))] = Experiment(rounds=7),  # noqa: B008
        group: Later = Later(),  # noqa: B008
        out: Path | None = None,
    ) -> int:
        """Does something.

        Args:
            out: The place, on
                two lines.
        """
        seen.update(locals())
        return 3

    words = ["--method", "fedpub-plus", "--no-fallback", "--third", "2", "--out=here", "--seed", "4"]
    assert call(verb, "verb", words) == 3
    assert seen["typed"] == {"method", "fallback", "third", "out", "seed"}
    assert seen["group"] == Later(third=2.0)
    assert seen["out"] == Path("here")
    experiment = seen["experiment"]
    assert (experiment.rounds, experiment.seed, experiment.method) == (7, 4, "fedpub-plus")
    assert experiment.options["fallback"] is False
    assert experiment.options.keys() >= {"lambda1", "evidence"}
    flags = {flag: one for one in parser(verb)._actions for flag in one.option_strings}
    assert flags["--out"].help.strip() == "The place, on two lines."
    assert flags["--no-second"].help == "The second, with --first. (default: yes)"
    assert "--device" not in flags
    with pytest.raises(FedpubError, match="an option of fedpub"):
        call(verb, "verb", ["--method", "fedavg", "--tau", "1"])


def test_only_the_command_line_writes_flags():
    """Elsewhere a setting in a message stands in backquotes; a command is quoted as it is typed."""
    source = Path(fedpub.__file__).parent
    wrong = []
    for path in sorted(source.rglob("*.py")):
        if path.is_relative_to(source / "cli"):
            continue
        for error in re.findall(r"FedpubError\((.*?)\n? *\)(?: from \w+)?\n", path.read_text(encoding="utf-8"), re.S):
            without = re.sub(r"fedpub [a-z]+[^;\"]*", "", error)
            wrong += [f"{path.relative_to(source)}: {error}"] if re.search(r"--[a-z{]", without) else []
    assert not wrong
