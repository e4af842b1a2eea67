"""Recipes: the runs behind a table or figure of the paper, and how it is made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedpub.experiment import Experiment
from fedpub.paper.store import Job, Outcomes
from fedpub.report.style import looks
from fedpub.report.text import BOLD, best, bold, number, p_value
from fedpub.report.text import spread as spread_text
from fedpub.runs.significance import CONVENTION, deviation, p_values

ALL = ("cora", "citeseer", "pubmed", "ogbn-arxiv", "computers", "photo")
METHODS = ("local", "fedavg", "fedprox", "fedper", "fedgnn", "fedsage", "gcfl", "fedpub")
WIDE = 6  # columns above which a table is read by dataset
LEGEND = f"Mean ± deviation over the seeds; {BOLD}."


@dataclass(frozen=True)
class Settings:
    """The user's choices."""

    datasets: tuple[str, ...] | None = None  # among those of the recipe; None: all that are available
    seeds: int = 3
    device: str = "cpu"
    rounds: int | None = None  # fewer than the paper's, for a quick look
    quick: bool = False
    root: Path | None = None  # of the raw files

    def chosen(self, wanted: Sequence[str]) -> list[str]:
        """The datasets of a recipe to use."""
        if self.datasets is not None:
            return [name for name in wanted if name in self.datasets]
        usual = [name for name in wanted if name != "ogbn-arxiv"]  # its features are a large download
        return usual[:1] if self.quick else usual

    def some(self, values: Sequence[Any]) -> list[Any]:
        """The values of a sweep; only its ends for a quick look."""
        return list(values) if not self.quick or len(values) < 3 else [values[0], values[-1]]

    def experiment(self, seed: int = 0, **changes: Any) -> Experiment:
        """An experiment with the method as published, that is, without a defence."""
        made = Experiment(seed=seed, device=self.device, defence="none", **changes)
        plan = (replace(made, rounds=self.rounds) if self.rounds else made).resolve()
        full = plan.experiment
        return replace(full, epochs=min(plan.epochs, 2)) if self.quick and made.epochs is None else full

    def repeated(self, look: str = "", first: int = 0, **changes: Any) -> list[Job]:
        """The same experiment with every seed."""
        return [Job(self.experiment(seed, **changes), look) for seed in range(first, first + self.seeds)]


Rows = list[list[Any]]  # numbers stay numbers


@dataclass(frozen=True, eq=False)
class Artefact:
    """A table, with a figure if the paper has one."""

    header: list[str]
    rows: Rows
    note: str = ""  # what a reader should know in addition to the command
    draw: Callable[[Any], None] | None = None  # onto a matplotlib figure
    size: tuple[float, float] = (5.0, 3.2)  # of the figure, in inches
    read: Sequence[tuple[list[str], Rows]] = ()  # the same numbers in a readable layout, if rows are many or wide
    above: str = ""  # what a reader must know before the numbers
    packed: bool = False  # many rows that are only data for the figure: their file is compressed


class Recipe(Protocol):
    """A table or figure of the paper; `RECIPES` lists all of them by name."""

    @property
    def title(self) -> str: ...

    def jobs(self, settings: Settings) -> list[Job]: ...

    def make(self, settings: Settings, found: Outcomes) -> Artefact: ...


@dataclass(frozen=True)
class Entry:
    """A method in a cell: mean and deviation over the seeds, in percent, and the paper's mean."""

    mean: float | None
    deviation: float | None
    paper: float | None

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.mean is None else self.mean - self.paper

    @property
    def verdict(self) -> str | None:
        """Ours ≥ paper, to the two decimals that the paper prints."""
        if self.paper is None or self.mean is None:
            return None
        return "yes" if round(self.mean, 2) >= self.paper else "no"

    def texts(self, beside: bool, is_best: bool = False) -> tuple[str, ...]:
        """Text of a table entry: our value followed by the paper's."""
        ours = spread_text(self.mean, self.deviation)
        ours = bold(ours) if is_best else ours
        return (ours, number(self.paper)) if beside else (ours,)


@dataclass(frozen=True)
class Grid:
    """A table of methods, or variants of one, by cells; each entry is a mean over seeds, with the paper's value.

    The last row, FED-PUB in the paper's tables, or the one named `against`, is what the others are tested against, as
    `fedpub.runs.significance` says.
    """

    title: str
    rows: Mapping[str, Mapping[str, Any]]  # compared variants: a label and its settings
    columns: Callable[[Settings], Mapping[str, Mapping[str, Any]]]  # cells: a label and its settings
    paper: Callable[[Mapping[str, Any], Mapping[str, Any]], float | None] = lambda row, column: None
    value: Callable[[dict[str, Any]], float | None] = lambda summary: summary["test"]
    note: str = ""
    rows_quick: Sequence[str] | None = None  # the only rows for a quick look
    average: bool = True
    bars: bool = False  # also as a figure
    against: str = ""
    first: int = 0  # the first seed

    def shown(self, settings: Settings) -> dict[str, Mapping[str, Any]]:
        kept = self.rows_quick if settings.quick and self.rows_quick else self.rows
        return {label: self.rows[label] for label in kept}

    def jobs(self, settings: Settings) -> list[Job]:
        return [
            job
            for column in self.columns(settings).values()
            for row in self.shown(settings).values()
            for job in settings.repeated(first=self.first, **column, **row)
        ]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        columns, shown = self.columns(settings), self.shown(settings)
        entries = {
            (label, name): self._entry(settings, found, row, column)
            for name, column in columns.items()
            for label, row in shown.items()
        }
        header = ["cell", "method", "mean", "deviation", "seeds", "paper", "difference", "ours ≥ paper"]
        rows = [
            [name, label, one.mean, one.deviation, settings.seeds, one.paper, one.difference, one.verdict]
            for (label, name), one in entries.items()
        ]
        # One table per dataset if each has several columns, followed by a table over all cells.
        groups: dict[str, list[str]] = {}
        for name, column in columns.items():
            groups.setdefault(column["dataset"] if len(columns) > WIDE else "", []).append(name)
        beside = any(one.paper is not None for one in entries.values())
        titles = ("paper",) if beside else ()
        marked = {name: best({label: entries[label, name].mean for label in shown}) for name in columns}

        def texts(label: str, name: str) -> tuple[str, ...]:
            return entries[label, name].texts(beside, label in marked[name])

        read: list[tuple[list[str], Rows]] = [
            (
                ["", *(title for name in names for title in (name, *titles))],
                [[label, *(text for name in names for text in texts(label, name))] for label in shown],
            )
            for names in groups.values()
        ]
        read.append(self._over_all(settings, found, entries))

        def draw(figure: Any) -> None:
            series = {label: [entries[label, name].mean for name in columns] for label in shown}
            errors = {label: [entries[label, name].deviation for name in columns] for label in shown}
            both = {label: (series[label], errors[label]) for label in shown}
            axes = grouped_bars(figure, list(columns), both, "test, percent")
            values = [value for means in series.values() for value in means if value is not None]
            axes.set_ylim(max(0.0, min(values) - 10), min(100.0, max(values) + 5))

        unit = "cells (means over seeds)" if len(columns) > 1 else "seeds"
        test = f"p: {CONVENTION}, over {unit}." if len(shown) > 1 and settings.seeds * len(columns) > 1 else ""
        note = " ".join(filter(None, [self.note, LEGEND, test]))
        return Artefact(header, rows, note, draw if self.bars else None, read=read)

    def _entry(self, settings: Settings, found: Outcomes, row: Mapping[str, Any], column: Mapping[str, Any]) -> Entry:
        mean, deviation = spread(found, settings.repeated(first=self.first, **column, **row), self.value)
        return Entry(mean, deviation, self.paper(row, column))

    def _over_all(
        self, settings: Settings, found: Outcomes, entries: Mapping[tuple[str, str], Entry]
    ) -> tuple[list[str], Rows]:
        columns, shown = self.columns(settings), self.shown(settings)
        last = self.against or list(shown)[-1]
        found_p = p_values({label: self._values(settings, found, row) for label, row in shown.items()}, last)
        beside = any(one.paper is not None for one in entries.values())
        averages = {label: _mean([entries[label, name].mean for name in columns]) for label in shown}
        rows: Rows = []
        for label in shown:
            own = [entries[label, name] for name in columns]
            verdicts = [one.verdict for one in own if one.verdict]
            line: list[Any] = [label]
            if self.average:
                text = number(averages[label])
                line.append(bold(text) if label in best(averages) else text)
            if beside:
                line += [_mean([one.paper for one in own])] if self.average else []
                line.append(f"{verdicts.count('yes')} of {len(verdicts)}" if verdicts else "")
            rows.append([*line, None if label == last else p_value(found_p[label])])
        titles = ["average"] if self.average else []
        if beside:
            titles += ["paper's average"] if self.average else []
            titles.append("cells with ours ≥ paper")
        return ["", *titles, f"p against {last}"], rows

    def _values(self, settings: Settings, found: Outcomes, row: Mapping[str, Any]) -> dict[tuple[str, int], float]:
        """Of every cell and seed."""
        values = {
            (name, job.experiment.seed): self.value(found[job].summary)
            for name, column in self.columns(settings).items()
            for job in settings.repeated(first=self.first, **column, **row)
        }
        return {key: value for key, value in values.items() if value is not None}


def grouped_bars(
    figure: Any, groups: Sequence[str], series: Mapping[str, tuple[Sequence[Any], Sequence[Any] | None]], label: str
) -> Any:
    """Draw a group of bars per name, with one bar per series of values (and deviations); return the axes."""
    axes, width, look = figure.subplots(), 0.8 / len(series), looks(series)
    for place, (name, (values, deviations)) in enumerate(series.items()):
        at = np.arange(len(groups)) + place * width
        off = None if deviations is None else [np.nan if one is None else one for one in deviations]
        axes.bar(at, values, width, yerr=off, label=name, color=look[name].colour, error_kw={"linewidth": 0.8})
    axes.set_xticks(np.arange(len(groups)) + 0.4 - width / 2, groups)
    axes.set_ylabel(label)
    figure.legend(loc="outside upper center", ncols=4, fontsize=7, frameon=False)
    return axes


def spread(
    found: Outcomes, jobs: Sequence[Job], value: Callable[[dict[str, Any]], float | None]
) -> tuple[float | None, float | None]:
    """Mean and deviation over the seeds, in percent."""
    values = [value(found[job].summary) for job in jobs]
    known = [100 * one for one in values if one is not None]
    if not known:
        return None, None
    return float(np.mean(known)), deviation(known)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over all cells; None if a cell is missing, since it could not be compared, or if there are none."""
    return None if None in values or not values else float(np.mean([value for value in values if value is not None]))
