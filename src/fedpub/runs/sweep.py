"""Sweeps: the same methods at many points of their settings, of which validation alone chooses one per method.

A point is repeated on `seeds` seeds, each with a split of its own. The best point of a method has the highest mean
validation value; ties are decided as between rounds (`fedpub.core.best`). Test values decide nothing. The chosen points
may then be run on `report_seeds` further seeds: their test values are those of splits that no choice has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fedpub.core.best import Best
from fedpub.core.files import write_text
from fedpub.core.rng import derive
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Plan
from fedpub.experiment.spec import Request
from fedpub.runs.comparison import Cell, Planned, run_all
from fedpub.runs.loop import OnRound
from fedpub.runs.significance import deviation
from fedpub.runs.space import Axis, Range, Space, axes

SWEEP = "sweep.json"  # next to the runs: the standings of all points
Search = Literal["grid", "random", "optuna"]


@dataclass(frozen=True)
class Point:
    """A method with values of its swept settings."""

    method: str
    values: tuple[tuple[str, Any], ...]  # by the names of the axes

    @property
    def settings(self) -> dict[str, Any]:
        """The values as keywords of `fedpub.run`: an option without its method."""
        return {name.rpartition(".")[2]: value for name, value in self.values}

    @property
    def label(self) -> str:
        """As a report labels the variants of a method."""
        tail = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.method} ({tail})" if tail else self.method


@dataclass(frozen=True)
class Trial:
    """A run of a point."""

    point: Point
    seed: int
    fresh: bool  # on a split that the choice has not seen
    summary: dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """A point over the seeds of the choice; values in percent."""

    method: str
    label: str
    settings: dict[str, Any]  # by the names of the axes
    seeds: list[int]
    val: float
    val_deviation: float | None  # None for a single seed
    val_loss: float | None
    seconds: float  # per run
    megabytes_up: float  # per run
    chosen: bool = False
    # Of a chosen point only: on fresh splits where there are some, else on those of the choice.
    test: float | None = None
    test_deviation: float | None = None
    test_seeds: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Sweep:
    """What is to be swept: a request and axes for every method."""

    asked: Mapping[str, Request]
    axes: Mapping[str, tuple[Axis, ...]]
    seeds: int
    report_seeds: int
    search: Search
    trials: int  # per method; 0 for a grid

    @staticmethod
    def of(
        asked: Mapping[str, Request],
        space: Space,
        seeds: int = 3,
        report_seeds: int = 0,
        search: str = "grid",
        trials: int | None = None,
    ) -> Sweep:
        """Check everything that can be checked before the first run."""
        if search not in get_args(Search):
            raise unknown("search", search, get_args(Search))
        if not asked:
            raise FedpubError("there is nothing to sweep; name one method or more with `methods`")
        if seeds < 1:
            raise FedpubError(f"`seeds={seeds}` is not possible; give 1 or more")
        if report_seeds < 0:
            raise FedpubError(f"`report_seeds={report_seeds}` is not possible; give 0 or more")
        first = next(iter(asked.values())).experiment
        fixed = None if first.data_seed is None else f"`data_seed={first.data_seed}`"
        fixed = f"`split={first.split}`" if first.split in ("own", "published") else fixed
        if report_seeds and fixed is not None:
            raise FedpubError(
                f"`report_seeds={report_seeds}` has no other splits to report on with {fixed}; leave one of them out"
            )
        if search == "grid" and trials is not None:
            raise FedpubError(f"`trials={trials}` has no effect on a grid, which has every point; add `search=random`")
        if search != "grid" and (trials is None or trials < 1):
            said = "`trials`" if trials is None else f"`trials={trials}`"
            raise FedpubError(f"`search={search}` needs {said} to be 1 or more: the number of points of each method")
        if search == "optuna":
            optuna()
        found = axes(space, asked)
        for own in found.values():
            for axis in own:
                if search == "grid" and isinstance(axis.values, Range):
                    raise FedpubError(f"{axis.name} has a range, of which a grid has no points; add `search=random`")
        made = Sweep(asked, found, seeds, report_seeds, search, trials or 0)  # type: ignore[arg-type]
        for method in asked:
            for point in (*made.ends(method), *(made.points(method) if search != "optuna" else ())):
                made.plan(point, made.first_seed)
        return made

    @property
    def first_seed(self) -> int:
        return next(iter(self.asked.values())).experiment.seed

    @property
    def choice_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def every_axis(self) -> list[Axis]:
        return list(dict.fromkeys(axis for own in self.axes.values() for axis in own))

    @property
    def num_runs(self) -> int:
        counts = [len(self.points(method)) if self.search != "optuna" else self.trials for method in self.asked]
        return sum(counts) * self.seeds + len(counts) * self.report_seeds

    def points(self, method: str) -> list[Point]:
        """The points of a method in a grid, the last axis fastest, or of a random search; each once."""
        own = self.axes[method]
        if self.search == "grid":
            every = list(product(*(axis.ends for axis in own)))
        else:
            every = [tuple(axis.drawn(self.first_seed, trial) for axis in own) for trial in range(self.trials)]
        return list(dict.fromkeys(_point(method, own, values) for values in every))

    def ends(self, method: str) -> list[Point]:
        """Points at which every axis has each of its extreme values, the others their first."""
        own = self.axes[method]
        first = [axis.ends[0] for axis in own]
        lines = [(*first[:place], end, *first[place + 1 :]) for place, axis in enumerate(own) for end in axis.ends]
        return [_point(method, own, values) for values in lines or [()]]

    def plan(self, point: Point, seed: int) -> Plan:
        """The experiment of a point."""
        request = self.asked[point.method]
        changes: dict[str, Any] = {"seed": seed}
        options: dict[str, Any] = {}
        for name, value in point.values:
            owner, _, plain = name.rpartition(".")
            (options if owner else changes)[plain] = value
        if request.algorithm is not None:
            request = replace(request, algorithm=replace(request.algorithm, **options))  # type: ignore[type-var]
            options = {}
        return request.resolve(**changes, options={**request.experiment.options, **options})


def _point(method: str, own: Sequence[Axis], values: Sequence[Any]) -> Point:
    return Point(method, tuple((axis.name, value) for axis, value in zip(own, values, strict=True)))


def sweep(
    asked: Sweep,
    out: Path | None = None,
    root: Path | None = None,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
) -> Iterator[Trial]:
    """Run all points, then the chosen ones on the further seeds. With `out` every run has a directory there, and
    complete runs are not repeated."""
    done: list[Trial] = []
    points: dict[str, Point] = {}

    def planned() -> Iterator[Planned]:
        for point, seed in _order(asked, done):  # one run at a time: `done` has all runs before it
            points[point.label] = point
            made = asked.plan(point, seed)
            yield Cell(made.dataset, made.scenario, made.experiment.clients), point.label, made

    for found in run_all(planned(), out, root, on_round, on_step, max_memory, keep_checkpoint):
        if found.summary["val"] is None:
            raise FedpubError("no client has validation data to choose by; give `ratios` with a share for validation")
        fresh = found.seed not in asked.choice_seeds
        done.append(Trial(points[found.method], found.seed, fresh, found.summary))
        if out is not None:
            _write(asked, done, False, out)
        yield done[-1]
    if out is not None:
        _write(asked, done, True, out)


def _order(asked: Sweep, done: Sequence[Trial]) -> Iterator[tuple[Point, int]]:
    """Every run. Runs with the same data follow each other, except that Optuna needs all seeds of a point before the
    next."""
    if asked.search == "optuna":
        for method in asked.asked:
            for point in _suggested(asked, method, done):
                yield from ((point, seed) for seed in asked.choice_seeds)
    else:
        points = [point for method in asked.asked for point in asked.points(method)]
        yield from ((point, seed) for seed in asked.choice_seeds for point in points)
    best = {one.label for one in standings(done) if one.chosen}
    chosen = list(dict.fromkeys(one.point for one in done if one.point.label in best))
    end = asked.choice_seeds.stop
    yield from ((point, seed) for seed in range(end, end + asked.report_seeds) for point in chosen)


def _suggested(asked: Sweep, method: str, done: Sequence[Trial]) -> Iterator[Point]:
    """Optuna's points, each once. The study is not stored: a sweep that is resumed tells it the same values again."""
    own, told = asked.axes[method], set()
    sampler = optuna().samplers.TPESampler(seed=derive(asked.first_seed, "sweep", method) % 2**32)
    study = optuna().create_study(direction="maximize", sampler=sampler)
    for _ in range(asked.trials):
        trial = study.ask()
        point = _point(method, own, [_suggest(trial, axis) for axis in own])
        if point not in told:
            told.add(point)
            yield point
        study.tell(trial, float(np.mean([one.summary["val"] for one in done if one.point == point])))


def _suggest(trial: Any, axis: Axis) -> Any:
    if not isinstance(axis.values, Range):
        return trial.suggest_categorical(axis.name, axis.values)
    suggest = trial.suggest_int if axis.values.whole else trial.suggest_float
    return axis.values.rounded(suggest(axis.name, axis.values.low, axis.values.high, log=axis.values.log))


def optuna() -> Any:
    """The package, without its notes on every study."""
    try:
        import optuna
    except ImportError as error:
        raise FedpubError(
            "`search=optuna` needs Optuna, which is not installed: pip install 'fedpub[search]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def standings(done: Sequence[Trial]) -> list[Standing]:
    """All points, method by method in the order in which they were run, with one chosen point per method."""
    found = []
    for method in dict.fromkeys(one.point.method for one in done):
        points = list(dict.fromkeys(one.point for one in done if one.point.method == method))
        own = [_standing([one for one in done if one.point == point]) for point in points]
        best = Best()
        for number, (one, _) in enumerate(own, 1):
            best.update(number, one.val, float("nan") if one.val_loss is None else one.val_loss)
        one, tests = own[best.round - 1]
        values = [100 * test for _, test in tests if test is not None]
        chosen = replace(
            one,
            chosen=True,
            test=float(np.mean(values)) if values else None,
            test_deviation=deviation(values),
            test_seeds=[seed for seed, _ in tests],
        )
        found += [chosen if place == best.round else one for place, (one, _) in enumerate(own, 1)]
    return found


def _standing(trials: Sequence[Trial]) -> tuple[Standing, list[tuple[int, float | None]]]:
    """A point as far as a choice may know it, and its test values by seed: the fresh ones if there are any."""
    point, own = trials[0].point, [one for one in trials if not one.fresh]
    values = [100 * one.summary["val"] for one in own]
    losses = [one.summary["val_loss"] for one in own]

    def mean(name: str) -> float:
        return float(np.mean([one.summary[name] for one in own]))

    standing = Standing(
        method=point.method,
        label=point.label,
        settings=dict(point.values),
        seeds=[one.seed for one in own],
        val=float(np.mean(values)),
        val_deviation=deviation(values),
        val_loss=None if None in losses else float(np.mean(losses)),
        seconds=mean("seconds"),
        megabytes_up=mean("bytes_up") / 1e6,
    )
    tested = [one for one in trials if one.fresh] or own
    return standing, [(one.seed, one.summary["test"]) for one in tested]


def to_json(done: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row per run."""
    return [
        {"method": one.point.method, "seed": one.seed, "fresh": one.fresh, "settings": dict(one.point.values)}
        | one.summary
        for one in done
    ]


def _write(asked: Sweep, done: Sequence[Trial], complete: bool, out: Path) -> None:
    content = {
        "metric": done[0].summary["metric"],
        "search": asked.search,
        "ranges": {axis.name: axis.values.log for axis in asked.every_axis if isinstance(axis.values, Range)},
        "names": [axis.name for axis in asked.every_axis],
        "complete": complete,
        "points": [asdict(one) for one in standings(done)],
    }
    write_text(out / SWEEP, json.dumps(content, indent=2) + "\n")
