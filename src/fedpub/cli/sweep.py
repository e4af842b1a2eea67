"""The verb `sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fedpub.algorithms import method_called
from fedpub.cli.flags import Settings
from fedpub.cli.show import STDOUT, JsonFile, as_json, show_sweep
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.spec import Request
from fedpub.runs.progress import progress
from fedpub.runs.sweep import Search, Sweep, Trial, standings, to_json
from fedpub.runs.sweep import sweep as run_sweep


def sweep(
    methods: tuple[str, ...] = ("fedpub",),
    seeds: int = 3,
    report_seeds: int = 0,
    set: tuple[str, ...] = (),
    search: Search = "grid",
    trials: int | None = None,
    experiment: Annotated[Experiment, Settings(("method", "options"))] = Experiment(),  # noqa: B008
    out: Path | None = None,
    json: JsonFile = None,
    quiet: bool = False,
    verbose: bool = False,
    data_root: Path | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
) -> None:
    """Many values of settings: validation chooses the best point of each method; test values decide nothing.

    Example: fedpub sweep --set lr=0.01,0.003 --set fedpub.lambda1=0.001,0.1 --seeds 2 --rounds 5

    Args:
        methods: Methods to sweep.
        seeds: Number of seeds that each point is repeated on, counted from `seed`; each has its own split.
        report_seeds: Number of further seeds, with fresh splits, on which the chosen points are reported.
        set: Settings with their values, as lr=0.01,0.003 or fedpub.lambda1=0.001..0.1:log.
        search: Points to try: every combination (grid), or as many as `trials`, drawn at random or by Optuna.
        trials: Number of points of each method, for random and optuna.
        out: Folder for run directories; complete runs in it are not repeated.
    """
    names = dict.fromkeys(map(method_called, methods))
    asked = Sweep.of(
        {method: Request(replace(experiment, method=method)) for method in names},
        _space(set),
        seeds,
        report_seeds,
        search,
        trials,
    )
    done: list[Trial] = []
    with progress(quiet, verbose, asked.num_runs) as bar:
        for found in run_sweep(asked, out, data_root, bar.on_round, bar.on_step, max_memory, keep_checkpoint):
            done.append(found)
            if json != STDOUT:  # after every run, so that an interruption loses nothing
                as_json(to_json(done), json)
    if json == STDOUT:
        as_json({"points": standings(done), "runs": to_json(done)}, json)
    else:
        show_sweep(standings(done), done[0].summary["metric"], out)


def _space(settings: Sequence[str]) -> dict[str, str]:
    """`lr=0.01,0.003` as {"lr": "0.01,0.003"}."""
    space: dict[str, str] = {}
    for setting in settings:
        name, equals, values = setting.partition("=")
        if not equals:
            raise FedpubError(f"--set {setting} is not of the form name=values, as lr=0.01,0.003")
        if name in space:
            raise FedpubError(f"--set {name} is given twice; give all its values at once, as {name}={space[name]},...")
        space[name] = values
    return space
