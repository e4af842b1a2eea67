"""Sweeps in a program or a notebook."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpub.algorithms import METHODS, Algorithm
from fedpub.api.bars import progress as bar_of
from fedpub.api.frames import data_frame, html_table
from fedpub.api.graphs import Place, kept_graph, path_of
from fedpub.api.requests import SETTINGS, check_keywords, hyper_parameters, labelled_methods, request
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError, unknown
from fedpub.models import Model
from fedpub.report.swept import how_chosen, short
from fedpub.report.text import spread, titled
from fedpub.runs.space import Space
from fedpub.runs.sweep import Search, Standing, Trial, standings
from fedpub.runs.sweep import Sweep as Asked
from fedpub.runs.sweep import sweep as run_sweep

if TYPE_CHECKING:
    from pandas import DataFrame

KEYWORDS = ("space", "methods", "search", "trials", "seeds", "report_seeds")
RUNNING = ("out", "progress", "data_root", "max_memory", "keep_checkpoint")
MEASURED = ("val", "val_loss", "test", "best_round", "seconds", "bytes_up", "bytes_down")


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The runs of a sweep, and the points that validation chose."""

    trials: Sequence[Trial]
    """The summary of every run, with its point and seed."""

    @property
    def frame(self) -> DataFrame:
        """A row per run: settings by their names, seed, validation, test, best round, seconds, bytes. `fresh` marks
        the runs of chosen points on splits that no choice has seen; test values never decide."""
        return data_frame(
            [
                {"method": one.point.method, **dict(one.point.values), "seed": one.seed, "fresh": one.fresh}
                | {name: one.summary[name] for name in MEASURED}
                for one in self.trials
            ]
        )

    @cached_property
    def points(self) -> list[Standing]:
        """Every point over its seeds, in percent; `chosen` marks one per method."""
        return standings(self.trials)

    @property
    def chosen(self) -> DataFrame:
        """A row per method: the chosen point, with mean and deviation of validation and test, in percent."""
        names = ("val", "val_deviation", "test", "test_deviation")
        return data_frame(
            [
                {"method": one.method, **one.settings} | {name: getattr(one, name) for name in names}
                for one in self.points
                if one.chosen
            ]
        )

    def best(self, method: str) -> dict[str, Any]:
        """The chosen settings of a method, as keywords of `fedpub.run`."""
        chosen = {one.method: one.label for one in self.points if one.chosen}
        if method not in chosen:
            raise unknown("method of this sweep", method, chosen)
        return next(one.point.settings for one in self.trials if one.point.label == chosen[method])

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        names = list(dict.fromkeys(name for one in self.points for name in one.settings))
        rows = [
            [
                titled(one.method),
                *(short(one.settings[name]) if name in one.settings else "" for name in names),
                spread(one.val, one.val_deviation),
                spread(one.test, one.test_deviation),
            ]
            for one in self.points
        ]
        return ["method", *names, "validation", "test"], rows

    @property
    def _title(self) -> str:
        said = how_chosen(self.points).replace("`", "")
        return f"Sweep: {self.trials[0].summary['metric']} in percent. {said}"

    def __repr__(self) -> str:
        headings, rows = self._rows()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in (headings, *rows)]
        return "\n".join([self._title, *("  ".join(row).rstrip() for row in padded)])

    def _repr_html_(self) -> str:
        headings, rows = self._rows()
        bold = {(row, column) for row, one in enumerate(self.points) if one.chosen for column in range(len(headings))}
        return html_table(self._title, headings, rows, bold)


def sweep(
    space: Space,
    dataset: Place | Graph | Any = "communities",
    methods: str | Sequence[str | Algorithm] | Mapping[str, str | Algorithm] = "fedpub",
    *,
    search: Search = "grid",
    trials: int | None = None,
    seeds: int = 3,
    report_seeds: int = 0,
    model: str | Model | None = None,
    out: Place | None = None,
    progress: bool = True,
    data_root: Place | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
    **settings: Any,
) -> Sweep:
    """Try many values of settings; validation chooses the best point of each method, and test values decide nothing.

    `space` has the values by the names of settings: lists, or texts as on the command line, such as
    `{"lr": [0.01, 0.003], "fedpub.lambda1": "0.001..0.1:log"}`; a name with a method is an option of that method only.
    A grid has every combination; `search="random"` draws `trials` points for each method, and `search="optuna"` lets
    Optuna suggest them. Each point is repeated on `seeds` seeds with their own splits. With `report_seeds` the chosen
    points are run once more, on as many fresh splits. `settings` are the fields of `fedpub.Experiment` that all points
    share. With `out` every run has a directory there, and complete runs are not repeated.
    """
    labelled = labelled_methods(methods)
    for name, value in settings.items():
        if owner := next((one for one in METHODS if name in hyper_parameters(one)), None):
            raise FedpubError(
                f"{name} belongs to a method; put it into the space, as {{'{owner}.{name}': [{value!r}]}}"
            )
    shared = [name for name in SETTINGS if name not in ("method", "options")]
    check_keywords("fedpub.sweep", settings, [*shared, *KEYWORDS, *RUNNING])
    with ExitStack() as until_done:
        folder = path_of(out)
        files = folder or Path(until_done.enter_context(tempfile.TemporaryDirectory(prefix="fedpub-")))
        # What is asked for is checked before a graph is written.
        checked = {label: request(method, model, settings) for label, method in labelled.items()}
        Asked.of(checked, space, seeds, report_seeds, search, trials)
        own = {"dataset": kept_graph(dataset, files)} | settings
        requests = {label: request(method, model, own) for label, method in labelled.items()}
        asked = Asked.of(requests, space, seeds, report_seeds, search, trials)
        with bar_of(progress, asked.num_runs) as bar:
            how = (bar.on_round, bar.on_step, max_memory, keep_checkpoint)
            return Sweep(list(run_sweep(asked, folder, path_of(data_root), *how)))
