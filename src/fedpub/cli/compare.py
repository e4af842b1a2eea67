"""The verb `compare`."""

from __future__ import annotations

import json as spelling
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fedpub.algorithms import METHODS
from fedpub.cli.flags import Settings
from fedpub.cli.show import STDOUT, JsonFile, as_json, show_comparison
from fedpub.core.files import write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.report.compared import markdown as to_markdown
from fedpub.runs.comparison import Run, plan, scores, to_json
from fedpub.runs.comparison import compare as compare_runs
from fedpub.runs.progress import progress

EVERY_METHOD = ("fedpub", *(name for name in METHODS if name != "fedpub"))


def compare(
    methods: tuple[str, ...] = EVERY_METHOD,
    dataset: tuple[str, ...] = ("communities",),
    clients: tuple[int, ...] = (),
    seeds: int = 3,
    experiment: Annotated[Experiment, Settings(("dataset", "clients", "method", "options"))] = Experiment(),  # noqa: B008
    set: tuple[str, ...] = (),
    out: Path | None = None,
    json: JsonFile = None,
    markdown: Path | None = None,
    quiet: bool = False,
    verbose: bool = False,
    data_root: Path | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
) -> None:
    """Several methods on the same data and seeds, in one table: mean, deviation and a paired test against the first.

    Example: fedpub compare --methods local fedavg fedpub --dataset communities --seeds 2 --rounds 5

    Args:
        methods: Methods to compare, the others tested against the first.
        dataset: Graphs: names from `fedpub data list`, or graph files.
        clients: Numbers of clients; none for natural clients.
        seeds: Number of seeds, counted from `seed`.
        set: Hyper-parameters as method.name=value, for example fedpub.lambda1=0.3.
        out: Folder for run directories; complete runs in it are not repeated.
        markdown: File for the table.
    """
    planned = plan(experiment, methods, dataset, clients, seeds, _options(set))
    runs: list[Run] = []
    with progress(quiet, verbose, len(planned)) as bar:
        for found in compare_runs(planned, out, data_root, bar.on_round, bar.on_step, max_memory, keep_checkpoint):
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
