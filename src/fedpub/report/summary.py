"""The summary of a report as plain data: a table per task, with a line for every method in every cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedpub.algorithms import METHODS
from fedpub.report.load import Loaded, Place
from fedpub.report.published import published
from fedpub.report.text import best
from fedpub.runs.comparison import share_better
from fedpub.runs.significance import deviation, p_values
from fedpub.store.record import baseline_of, not_above
from fedpub.tasks import TASKS, task_of


@dataclass(frozen=True)
class Line:
    """A method in a cell, over its seeds; in percent."""

    place: Place
    cell: str  # its displayed name
    method: str
    seeds: tuple[int, ...]  # over which the mean is taken
    mean: float | None
    deviation: float | None  # None for a single seed
    paper: float | None
    difference: float | None  # ours minus the paper's
    reached: bool | None  # ours ≥ paper, to the two decimals that the paper prints; None until the runs are finished
    baseline: float | None  # the metric without any learning
    p_value: float | None  # over seeds, against the table's reference (`fedpub.runs.significance`); None for itself
    better_than_local: float | None  # share of clients
    worst_client: float | None
    runs: int
    done: int  # of these runs
    finished: bool  # False: the mean is over unfinished runs
    note: str  # unfinished runs, or a result that is not above the baseline
    best: bool = False  # in its cell, among the finished methods (`fedpub.report.text.best`)


@dataclass(frozen=True)
class Average:
    """A method over the cells of a task in which all methods have finished runs; in percent."""

    method: str
    cells: int
    mean: float
    paper: float | None  # over the cells that the paper has
    difference: float | None
    reached: int  # cells with ours ≥ paper
    published: int  # cells that the paper has
    p_value: float | None  # over these cells
    best: bool = False


@dataclass(frozen=True)
class TaskTable:
    """The results of one task. Tasks have different metrics, so nothing is averaged across them."""

    task: str
    metric: str
    cells: int
    baseline: str  # its name
    reference: str  # the method that the others are tested against: the one named first
    lines: list[Line]
    averages: list[Average]


def tables(runs: Sequence[Loaded]) -> list[TaskTable]:
    """A table per task."""
    names = cell_names(runs)
    found = []
    for task in dict.fromkeys(place.task for place in sorted(names)):
        mine = [one for one in runs if one.place.task == task]
        lines = [line for place in sorted(names) if place.task == task for line in _cell_lines(mine, place, names)]
        titles = (beside[0] for one in mine if one.summary and (beside := baseline_of(one.summary)))
        cells, words = len({line.place for line in lines}), next(titles, TASKS[task].baseline_title)
        averages = _averages(mine, lines, reference(mine))
        found.append(TaskTable(task, metric_of(mine), cells, words, reference(mine), lines, averages))
    return found


def metric_of(runs: Iterable[Loaded]) -> str:
    """The display name of the metric of these runs, or of all of them if they differ."""
    return " or ".join(dict.fromkeys(task_of(one.place.task, one.experiment).metric_title for one in runs))


def reference(runs: Sequence[Loaded]) -> str:
    """The method that the others are tested against: the first one of a comparison, or else of the package."""
    labels = methods(runs)
    asked = next((one.reference for one in runs if one.reference), "")
    return next((one.label for one in runs if one.experiment.method == asked), labels[0] if labels else "")


def cell_names(runs: Iterable[Loaded]) -> dict[Place, str]:
    """Displayed names of the cells; a graph file is named without its folder if that is unique."""
    runs = list(runs)
    stems: dict[str, set[str]] = {}
    for one in runs:
        stems.setdefault(Path(one.place.dataset).stem, set()).add(one.place.dataset)
    names = {}
    for place in sorted({one.place for one in runs}):
        stem = Path(place.dataset).stem
        count = place.clients or max((num_clients(one) for one in runs if one.place == place), default=0)
        clients = f", {count} clients" if count else ""
        names[place] = f"{stem if len(stems[stem]) == 1 else place.dataset}, {place.scenario}{clients}"
    return names


def num_clients(one: Loaded) -> int:
    return len(one.summary["per_client_test"]) if one.summary else 0


def methods(runs: Iterable[Loaded]) -> list[str]:
    """The methods in the order of the package, variants next to each other."""
    order = list(METHODS)
    found = {one.label: order.index(one.experiment.method) for one in runs}
    return sorted(found, key=lambda label: (found[label], label))


def counted(runs: Iterable[Loaded]) -> list[Loaded]:
    """The runs that a mean is taken over, sorted by seed: the finished ones, or all of them if none is finished."""
    known = [one for one in runs if one.summary is not None]
    chosen = [one for one in known if one.finished] or known
    return sorted(chosen, key=lambda one: one.trial)


def values_by_trial(runs: Iterable[Loaded]) -> dict[tuple[Place, tuple[int, int]], float]:
    """Test values of the finished runs, in percent."""
    done = ((one, in_percent(one.summary["test"])) for one in runs if one.summary and one.finished)
    return {(one.place, one.trial): value for one, value in done if value is not None}


def _cell_lines(runs: Sequence[Loaded], place: Place, names: dict[Place, str]) -> list[Line]:
    groups = {
        label: [one for one in runs if one.place == place and one.label == label]
        for label in methods(one for one in runs if one.place == place)
    }
    values_of = {label: values_by_trial(group) for label, group in groups.items()}
    against = reference(runs)
    p_value = p_values(values_of, against) if against in values_of else dict.fromkeys(groups)
    local = {one.trial: one for one in counted(groups.get("local", []))}
    lines = []
    for label, group in groups.items():
        own = counted(group)
        values = [value for one in own if one.summary and (value := in_percent(one.summary["test"])) is not None]
        mean = float(np.mean(values)) if values else None
        paper = published(group[0].experiment.method, place.dataset, place.scenario, place.clients, place.task)
        finished = bool(own) and all(one.finished for one in own)
        worst = [one.summary["worst_client_test"] for one in own if one.summary]
        known = [found for one in own if one.summary and (found := baseline_of(one.summary))]
        beside = (known[0][0], float(np.mean([value for _, value in known]))) if known else None
        below = not_above(None if mean is None else mean / 100, beside)
        lines.append(
            Line(
                place=place,
                cell=names[place],
                method=label,
                seeds=tuple(one.experiment.seed for one in own),
                mean=mean,
                deviation=deviation(values),
                baseline=in_percent(beside[1]) if beside else None,
                paper=paper.mean if paper else None,
                difference=mean - paper.mean if paper and mean is not None and finished else None,
                reached=round(mean, 2) >= paper.mean if paper and mean is not None and finished else None,
                p_value=p_value[label],
                better_than_local=_better(own, local) if group[0].experiment.method != "local" else None,
                worst_client=in_percent(mean_of_known(worst)),
                runs=len(group),
                done=sum(one.finished for one in group),
                finished=finished,
                note="; ".join(filter(None, [_note(group), below])),
            )
        )
    marked = best({line.method: line.mean for line in lines if line.finished})
    return [replace(line, best=line.method in marked) for line in lines]


def _note(group: Sequence[Loaded]) -> str:
    """A note on a method's unfinished runs."""
    open_runs = [one for one in group if not one.finished]
    parts = []
    for one in open_runs:
        done, planned = (one.rows[-1].round if one.rows else 0), one.experiment.rounds
        parts.append(f"{trial_name(one)} at round {done} of {planned if planned else 'unknown'}")
    return "unfinished: " + "; ".join(parts) if parts else ""


def trial_name(one: Loaded) -> str:
    seed, data_seed = one.trial
    return f"seed {seed}" if seed == data_seed else f"seed {seed} on split {data_seed}"


def _better(own: Sequence[Loaded], local: dict[tuple[int, int], Loaded]) -> float | None:
    pairs = [(one, local[one.trial]) for one in own if one.trial in local]
    pairs = [(one, alone) for one, alone in pairs if num_clients(one) == num_clients(alone)]
    share = share_better([one.summary or {} for one, _ in pairs], [alone.summary for _, alone in pairs])
    return None if math.isnan(share) else share


def _averages(runs: Sequence[Loaded], lines: Sequence[Line], against: str) -> list[Average]:
    """Averages over the cells in which all runs of every method are finished, so that they can be compared."""
    done = {(line.method, line.place): line for line in lines if line.finished and line.mean is not None}
    labels = [label for label in methods(runs) if any(own == label for own, _ in done)]
    places = [place for place in dict.fromkeys(line.place for line in lines) if all((x, place) in done for x in labels)]
    if not places:
        return []
    inside = [one for one in runs if one.place in places]
    values = {label: values_by_trial(one for one in inside if one.label == label) for label in labels}
    p_value = p_values(values, against) if against in values else dict.fromkeys(labels)
    averages = []
    for label in labels:
        own = [done[label, place] for place in places]
        beside = [line for line in own if line.paper is not None]
        averages.append(
            Average(
                method=label,
                cells=len(own),
                mean=float(np.mean([line.mean for line in own if line.mean is not None])),
                paper=mean_of_known(line.paper for line in beside),
                difference=mean_of_known(line.difference for line in beside),
                reached=sum(bool(line.reached) for line in beside),
                published=len(beside),
                p_value=p_value[label],
            )
        )
    marked = best({line.method: line.mean for line in averages})
    return [replace(line, best=line.method in marked) for line in averages]


def in_percent(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else 100 * value


def mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else None
