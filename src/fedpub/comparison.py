"""Several methods on the same data and seeds, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import stats

from fedpub.algorithms import method_called
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.files import file_name
from fedpub.running import OnRound, Prepared, prepare, run


@dataclass(frozen=True)
class Cell:
    """A column of the table: a graph and how it is divided."""

    dataset: str
    scenario: str
    clients: int | None


@dataclass(frozen=True)
class Run:
    cell: Cell
    method: str
    seed: int
    summary: dict[str, Any]


@dataclass(frozen=True)
class Score:
    """A method over the seeds, in percent; the average over cells where there are several."""

    method: str
    cells: tuple[tuple[float, float], ...]  # mean and deviation of every cell
    average: float
    p_value: float | None  # paired t-test against the first method, over seeds and cells; None for itself
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
) -> list[tuple[Cell, str, Experiment]]:
    """The experiments of a comparison, those that share their data one after the other."""
    if not methods:
        raise FedpubError("there is nothing to compare; name one method or more with `methods`")
    methods = list(dict.fromkeys(map(method_called, methods)))
    options = {method_called(method): own for method, own in options.items()}
    for method in options:
        if method not in methods:
            raise FedpubError(f"options of {method} have no effect: it is not among the methods; add it to `methods`")
    if seeds < 1:
        raise FedpubError(f"`seeds={seeds}` is not possible; give 1 or more")
    planned = []
    for dataset in datasets or (base.dataset,):
        for count in clients or (base.clients,):
            for seed in range(base.seed, base.seed + seeds):
                for method in methods:
                    one = replace(base, dataset=dataset, clients=count, seed=seed, method=method)
                    one = replace(one, options=options.get(method, {})).resolved()
                    assert one.scenario is not None
                    planned.append((Cell(dataset, one.scenario, count), method, one))
    return planned


def compare(
    planned: Sequence[tuple[Cell, str, Experiment]],
    out: Path | None = None,
    root: Path | None = None,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
    max_memory: float | None = None,
) -> Iterator[Run]:
    """Run what is planned, each within `max_memory` GiB. With `out` every run has its directory there: what is complete
    is not run again."""
    data: tuple[object, Prepared] | None = None
    for cell, method, experiment in planned:
        key = (cell, experiment.data_seed, experiment.model, experiment.ratios, experiment.task, method == "oracle")
        if data is None or data[0] != key:
            data = (key, prepare(experiment, root))
        path = None
        if out is not None:
            count = f"-{cell.clients}" if cell.clients else ""
            folder = f"{file_name(Path(cell.dataset).stem)}-{cell.scenario}{count}"
            path = out / folder / f"{file_name(method)}-seed{experiment.seed}"
        resume = path is not None and (path / "config.json").is_file()
        found = run(
            experiment,
            path,
            resume=resume,
            root=root,
            on_round=on_round,
            on_step=on_step,
            prepared=data[1],
            max_memory=max_memory,
        )
        yield Run(cell, method, experiment.seed, found.summary)


def scores(runs: Sequence[Run]) -> list[Score]:
    """One line per method, in the order they were run."""
    methods = list(dict.fromkeys(one.method for one in runs))
    table = {(one.cell, one.seed, one.method): one.summary for one in runs}
    pairs = list(dict.fromkeys((one.cell, one.seed) for one in runs))

    def values(method: str) -> np.ndarray:
        return np.array([_percent(table[(*pair, method)]["test"]) for pair in pairs])

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
                cells=tuple(
                    (float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else 0.0) for v in by_cell.values()
                ),
                average=float(np.mean([np.mean(v) for v in by_cell.values()])),
                p_value=None if method == methods[0] else paired_p(values(method), values(methods[0])),
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


def _percent(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def paired_p(one: np.ndarray, other: np.ndarray) -> float | None:
    """The two-sided p-value of a paired t-test; None where fewer than two pairs or no difference leave it undefined."""
    if len(one) < 2 or np.ptp(one - other) == 0:
        return None
    return float(stats.ttest_rel(one, other).pvalue)


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


def markdown(runs: Sequence[Run]) -> str:
    """The comparison as Markdown: a block of rows per scenario, a column per graph and number of clients."""
    blocks = []
    for scenario in dict.fromkeys(one.cell.scenario for one in runs):
        mine = [one for one in runs if one.cell.scenario == scenario]
        cells = list(dict.fromkeys(one.cell for one in mine))
        seeds = sorted({one.seed for one in mine})
        heads = [f"{cell.dataset} {cell.clients or ''}".strip() for cell in cells]
        lines = [
            f"**{scenario}**, test {mine[0].summary['metric']} in percent, mean ± deviation over seeds "
            f"{', '.join(map(str, seeds))}",
            "",
            f"| method | {' | '.join(heads)} | average | zeros | MB up |",
            f"|---|{'---:|' * (len(cells) + 3)}",
        ]
        for score in scores(mine):
            values = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in score.cells]
            tail = [f"{score.average:.2f}", f"{score.sparsity:.0f} %", f"{score.megabytes_up:,.0f}"]
            lines.append(f"| {' | '.join([score.method, *values, *tail])} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
