"""Comparisons of several methods on the same data and seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedpub.algorithms import method_called
from fedpub.core.files import file_name, write_text
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.experiment.spec import Request
from fedpub.runs.loop import OnRound
from fedpub.runs.significance import deviation, p_values
from fedpub.runs.simulated import run
from fedpub.store.record import baseline_of

COMPARISON = "comparison.json"  # next to the runs: the method that was named first


@dataclass(frozen=True)
class Cell:
    """A column of the table: a graph and its division among clients."""

    dataset: str
    scenario: str
    clients: int | None


Planned = tuple[Cell, str, Plan]  # with the label of its method


@dataclass(frozen=True)
class Run:
    cell: Cell
    method: str
    seed: int
    summary: dict[str, Any]


@dataclass(frozen=True)
class Score:
    """A method over the seeds, in percent; the average is over cells."""

    method: str
    cells: tuple[tuple[float, float | None], ...]  # mean and deviation of every cell; one seed has no deviation
    average: float
    p_value: float | None  # against the first method (`fedpub.runs.significance`); None for itself
    worst_client: float
    weighted: float
    second: float  # the task's other metric: macro-F1 or average precision
    sparsity: float
    megabytes_up: float  # per run
    better_than_local: float | None  # share of clients
    seconds: float  # per run


def plan(
    base: Experiment,
    methods: Sequence[str],
    datasets: Sequence[str],
    clients: Sequence[int | None],
    seeds: int,
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[Planned]:
    """The experiments of a comparison, ordered so that those with the same data follow each other."""
    if not methods:
        raise FedpubError("there is nothing to compare; name one method or more with `methods`")
    methods = list(dict.fromkeys(map(method_called, methods)))
    options = {method_called(method): own for method, own in options.items()}
    for method in options:
        if method not in methods:
            raise FedpubError(f"options of {method} have no effect: it is not among the methods; add it to `methods`")
    asked = {method: Request(replace(base, method=method, options=options.get(method, {}))) for method in methods}
    return plan_all(asked, datasets, clients, seeds)


def plan_all(
    asked: Mapping[str, Request], datasets: Sequence[str], clients: Sequence[int | None], seeds: int
) -> list[Planned]:
    """The same for requests under any labels, which differ only in their method."""
    if seeds < 1:
        raise FedpubError(f"`seeds={seeds}` is not possible; give 1 or more")
    base = next(iter(asked.values())).experiment
    planned = []
    for dataset in datasets or (base.dataset,):
        for count in clients or (base.clients,):
            for seed in range(base.seed, base.seed + seeds):
                for label, one in asked.items():
                    made = one.resolve(dataset=dataset, clients=count, seed=seed)
                    planned.append((Cell(dataset, made.scenario, count), label, made))
    return planned


def compare(
    planned: Sequence[Planned],
    out: Path | None = None,
    root: Path | None = None,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
) -> Iterator[Run]:
    """Run the planned experiments, each within `max_memory` GiB. With `out` every run has a directory there, and
    complete runs are not repeated."""
    for found in run_all(planned, out, root, on_round, on_step, max_memory, keep_checkpoint):
        if out is not None and first_named(out) != planned[0][1]:
            write_text(out / COMPARISON, json.dumps({"reference": planned[0][1]}) + "\n")
        yield found


def run_all(
    planned: Iterable[Planned],
    out: Path | None,
    root: Path | None,
    on_round: OnRound | None,
    on_step: OnStep | None,
    max_memory: float | None,
    keep_checkpoint: bool,
) -> Iterator[Run]:
    """The same for experiments that need not all be known at the start: the next is asked for when one is done."""
    data: tuple[object, Prepared] | None = None
    for cell, method, made in planned:
        asked = made.experiment
        key = (cell, made.data_seed, asked.model, made.ratios, made.split, asked.task, made.algorithm.undivided)
        if data is None or data[0] != key:
            data = (key, prepare(made, root))
        path = None
        if out is not None:
            count = f"-{cell.clients}" if cell.clients else ""
            folder = f"{file_name(Path(cell.dataset).stem)}-{cell.scenario}{count}"
            path = out / folder / run_name(method, made.seed)
        resume = path is not None and (path / "config.json").is_file()
        found = run(
            made,
            path,
            resume=resume,
            root=root,
            on_round=on_round,
            on_step=on_step,
            prepared=data[1],
            max_memory=max_memory,
            keep_checkpoint=keep_checkpoint,
        )
        yield Run(cell, method, made.seed, found.summary)


def run_name(label: str, seed: int) -> str:
    """The name of a run's directory."""
    return f"{file_name(label)}-seed{seed}"


def first_named(folder: Path) -> str:
    """The method that the others of a comparison in this folder are tested against; empty if there is none."""
    try:
        first = json.loads((folder / COMPARISON).read_text(encoding="utf-8"))["reference"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return first if isinstance(first, str) else ""


def scores(runs: Sequence[Run]) -> list[Score]:
    """One line per method, in the order in which they were run."""
    methods = list(dict.fromkeys(one.method for one in runs))
    table = {(one.cell, one.seed, one.method): one.summary for one in runs}
    pairs = list(dict.fromkeys((one.cell, one.seed) for one in runs))

    values = {method: {pair: _percent(table[(*pair, method)]["test"]) for pair in pairs} for method in methods}
    p_value = p_values(values, methods[0])

    def mean(method: str, name: str, factor: float = 1.0) -> float:
        found = [table[(*pair, method)][name] for pair in pairs]
        return factor * float(np.mean([value for value in found if value is not None] or [np.nan]))

    second = next((name for name in runs[0].summary if name.startswith("test_")), "test")
    lines = []
    for method in methods:
        own = [table[(*pair, method)] for pair in pairs]
        by_cell: dict[Cell, list[float]] = {}
        for (cell, _), summary in zip(pairs, own, strict=True):
            by_cell.setdefault(cell, []).append(_percent(summary["test"]))
        local = [table.get((*pair, "local")) for pair in pairs]
        lines.append(
            Score(
                method=method,
                cells=tuple((float(np.mean(v)), deviation(v)) for v in by_cell.values()),
                average=float(np.mean([np.mean(v) for v in by_cell.values()])),
                p_value=p_value[method],
                worst_client=mean(method, "worst_client_test", 100),
                weighted=mean(method, "weighted_test", 100),
                second=mean(method, second, 100),
                sparsity=mean(method, "sparsity", 100),
                megabytes_up=mean(method, "bytes_up", 1e-6),
                better_than_local=None if None in local or method == "local" else share_better(own, local),
                seconds=mean(method, "seconds"),
            )
        )
    return lines


def baselines(runs: Sequence[Run]) -> tuple[str, dict[Cell, float]] | None:
    """The title of the baseline that every run should beat, and its mean over the seeds of each cell, in percent."""
    found: dict[Cell, list[float]] = {}
    words = ""
    for one in runs:
        if beside := baseline_of(one.summary):
            words = beside[0]
            found.setdefault(one.cell, []).append(100 * beside[1])
    return (words, {cell: float(np.mean(values)) for cell, values in found.items()}) if found else None


def _percent(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def share_better(own: Sequence[Mapping[str, Any]], local: Sequence[Mapping[str, Any] | None]) -> float:
    """The share of clients, over all runs, whose test value is above that of training alone."""
    better = [
        a > b
        for mine, alone in zip(own, local, strict=True)
        if alone is not None
        for a, b in zip(mine["per_client_test"], alone["per_client_test"], strict=True)
        if a is not None and b is not None
    ]
    return float(np.mean(better)) if better else float("nan")


def to_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [asdict(one.cell) | {"method": one.method, "seed": one.seed} | one.summary for one in runs]
