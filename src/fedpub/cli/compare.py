"""The verb `compare`."""

from __future__ import annotations

import json as spelling
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedpub.algorithms import METHODS
from fedpub.cli.show import STDOUT, JsonFile, as_json, show_comparison
from fedpub.core.files import write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.comparison import Run, plan, scores, to_json
from fedpub.runs.comparison import compare as compare_runs
from fedpub.runs.comparison import markdown as to_markdown
from fedpub.runs.progress import progress

EVERY_METHOD = ("fedpub", *(name for name in METHODS if name != "fedpub"))


@dataclass(frozen=True)
class Common(Experiment):
    """What all runs of a comparison share: an experiment, less what the comparison varies."""

    dataset: tyro.conf.Suppress[str] = "communities"
    clients: tyro.conf.Suppress[int | None] = None
    method: tyro.conf.Suppress[str] = "fedpub"
    options: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)


def compare(
    methods: tuple[str, ...] = EVERY_METHOD,
    dataset: tuple[str, ...] = ("communities",),
    clients: tuple[int, ...] = (),
    seeds: int = 3,
    common: Annotated[Common, tyro.conf.OmitArgPrefixes] = Common(),  # noqa: B008
    out: Path | None = None,
    data_root: Path | None = None,
    max_memory: float | None = None,
    set: tuple[str, ...] = (),
    json: JsonFile = None,
    markdown: Path | None = None,
    quiet: bool = False,
    verbose: bool = False,
) -> None:
    """Several methods on the same data and seeds, in one table: mean, deviation and a paired test against the first.

    Example: fedpub compare --methods local fedavg fedpub --dataset communities --seeds 2 --rounds 5

    Args:
        methods: Which; the others are tested against the first.
        dataset: One or several graphs.
        clients: One or several numbers of clients; none for natural clients.
        seeds: How many seeds, from --seed on.
        out: Folder for the run directories; what is complete there is not run again.
        data_root: Folder of the raw files; else FEDPUB_DATA, else the cache folder.
        max_memory: GiB that a run may take: clients are then computed in chunks, and their states kept on disk where
            they do not fit.
        set: Hyper-parameters as method.name=value, for example fedpub.lambda1=0.3.
        json: Print the table and every run's summary as JSON; with a file, also write the summaries there.
        markdown: Also write the table to this file.
        quiet: No progress bar: only the result.
        verbose: A line for every round on the error output, and where an error came from.
    """
    planned = plan(Experiment(**vars(common)), methods, dataset, clients, seeds, _options(set))
    runs: list[Run] = []
    with progress(quiet, verbose, len(planned)) as bar:
        for found in compare_runs(planned, out, data_root, bar.on_round, bar.on_step, max_memory):
            runs.append(found)
            if json != STDOUT:  # after every run, so that an interruption loses nothing
                as_json(to_json(runs), json)
    if markdown is not None:
        write_text(markdown, to_markdown(runs))
    lines = scores(runs)
    if json == STDOUT:
        as_json({"table": lines, "runs": to_json(runs)}, json)
    else:
        show_comparison(runs, lines)


def _options(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`fedpub.lambda1=0.3` as {"fedpub": {"lambda1": 0.3}}."""
    options: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        method, dot, option = name.partition(".")
        if not (equals and dot):
            raise FedpubError(f"--set {setting} is not of the form method.name=value, as fedpub.lambda1=0.3")
        own = options.setdefault(method, {})
        try:
            own[option] = spelling.loads(value)
        except ValueError:  # a word
            own[option] = value
    return options
