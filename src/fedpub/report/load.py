"""Read run directories, complete or damaged: the readable parts, and one sentence for each unreadable one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from fedpub.algorithms import METHODS
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.plan import algorithm_of
from fedpub.report.swept import Swept, read_sweep
from fedpub.runs.comparison import first_named
from fedpub.store.directory import MAX_RELATED, read_rows
from fedpub.store.model_files import WEIGHTS
from fedpub.store.record import Record, Row, of_all
from fedpub.tasks import TASKS, task_of

MAX_SNAPSHOTS = 60  # rounds whose relations between clients are kept
SIMILARITY, ALPHA = "similarity", "alpha"  # names of relations: how alike two clients are; what averages weigh them
# Settings in which the runs of a table row may differ, or that the row already shows.
NOT_A_VARIANT = {"dataset", "scenario", "clients", "method", "options", "task", "seed", "data_seed"}
NEEDED: dict[str, tuple[type, ...]] = {
    "metric": (str,),
    "test": (float, int, type(None)),
    "val": (float, int, type(None)),
    "best_round": (int,),
    "rounds": (int,),
    "per_client_test": (list,),
    "worst_client_test": (float, int, type(None)),
    "sparsity": (float, int),
    "bytes_up": (int,),
    "bytes_down": (int,),
    "seconds": (float, int),
}
Complain = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """A table cell: the data and task on which a method is measured."""

    task: str
    dataset: str
    scenario: str
    clients: int | None

    def __lt__(self, other: Place) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[bool, str, str, str, int]:
        return self.task != "node-classification", self.task, self.dataset, self.scenario, self.clients or 0


@dataclass(frozen=True, eq=False)
class Relation:
    """Relations between clients as the server saw them: values [snapshot, client, client], NaN for absent clients."""

    name: str
    rounds: list[int]
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Loaded:
    """One run, with the parts that could be read."""

    path: Path
    experiment: Experiment
    rows: list[Row]
    summary: dict[str, Any] | None  # None before the first round
    finished: bool
    relations: list[Relation] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    label: str = ""  # the method, with the settings that distinguish it from its other runs
    reference: str = ""  # the method that its comparison, if any, tests against
    sweep: Swept | None = None  # to which it belongs

    @property
    def place(self) -> Place:
        what = self.experiment
        return Place(what.task, what.dataset, what.scenario or "natural", what.clients)

    @property
    def trial(self) -> tuple[int, int]:
        """The seeds of training and of the data; runs of two methods are paired if both seeds agree."""
        seed = self.experiment.seed
        return seed, seed if self.experiment.data_seed is None else self.experiment.data_seed


def load(folders: Sequence[Path]) -> tuple[list[Loaded], list[str]]:
    """Every run in the folders, sorted by path, and one sentence for each part that could not be read."""
    complaints: list[str] = []
    runs = []
    paths = run_directories(folders)
    # A run that is named itself is shown, whatever its sweep chose.
    homes = {home for home in (path.parent.parent for path in paths) if {home, *home.parents} & {*folders}}
    sweeps = {home: read_sweep(home, complaints.append) for home in sorted(homes)}
    for path in paths:
        sweep = sweeps.get(path.parent.parent)
        if sweep and path.name not in sweep.shown:
            continue  # of its sweep's other points the page shows validation values only
        try:
            runs.append(replace(_load(path, complaints.append), sweep=sweep))
        except FedpubError as error:
            complaints.append(f"{error}; this run is left out")
    if not runs:
        why = f": {complaints[0]}" if complaints else "; give the `out` of a run or of a comparison"
        raise FedpubError(f"there is no run in {', '.join(map(str, folders)) or 'no folder at all'}{why}")
    return _without_repeats(_labelled(runs), complaints.append), complaints


def run_directories(folders: Sequence[Path]) -> list[Path]:
    """The run directories in and below the folders, each once, sorted by name."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise FedpubError(f"there is no folder {folder}; give the `out` of a run or of a comparison")
        for config in sorted(folder.rglob("config.json")):
            if not (config.parent / WEIGHTS).is_file():  # else it is the card of a single model, such as a site's
                found.setdefault(config.parent.resolve(), config.parent)
    return list(found.values())


def _load(path: Path, complain: Complain) -> Loaded:
    experiment = _experiment(path / "config.json")
    rows = _rows(path, complain)
    summary = _summary(path / "summary.json", complain)
    finished = summary is not None
    if summary is not None and len(rows) < summary["rounds"]:
        complain(
            f"{path / 'clients.csv'} has {len(rows)} of the run's {summary['rounds']} rounds: it is missing or was cut "
            "short; its curve ends early"
        )
    if summary is None and rows:
        sizes = None if of_all(experiment.secure, rows) else [1] * len(rows[0].clients["test"])
        summary = Record(rows).summary(task_of(experiment.task, experiment).metric_title, sizes)
    return Loaded(
        path,
        experiment,
        rows,
        summary,
        finished,
        _relations(path, experiment, rows, finished, complain),
        _environment(path / "env.json", complain),
        reference=first_named(path.parent.parent),
    )


def _experiment(file: Path) -> Experiment:
    try:
        found = Experiment.from_json(file.read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise FedpubError(f"{file} cannot be read ({error})") from error
    kinds: dict[str, Any] = {"dataset": str, "scenario": str | None, "clients": int | None, "seed": int}
    kinds |= {"rounds": int | None, "options": dict, "method": str, "task": str}
    for name, kind in kinds.items():
        if not isinstance(getattr(found, name), kind):
            raise FedpubError(f"{file} has {name} {getattr(found, name)!r}, which has the wrong type")
    for name, known in (("method", METHODS), ("task", TASKS)):
        if getattr(found, name) not in known:
            raise FedpubError(f"{file}: {unknown(name, getattr(found, name), known)}")
    return found


def _rows(path: Path, complain: Complain) -> list[Row]:
    file = path / "clients.csv"
    try:
        rows = read_rows(path)
        if any(not {"val", "test", "sparsity", "bytes_up", "bytes_down"} <= row.clients.keys() for row in rows):
            raise ValueError("columns are missing")
    except FedpubError as error:
        complain(str(error))
    except (OSError, ValueError, LookupError) as error:
        complain(f"{file} cannot be read ({error}); start the run again in another directory")
    else:
        return rows
    return []


def _summary(file: Path, complain: Complain) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        for name, kinds in NEEDED.items():
            if not isinstance(content.get(name, ""), kinds):
                raise ValueError(f"{name} is missing or has the wrong type")
        if any(not isinstance(value, float | int | None) for value in content["per_client_test"]):
            raise ValueError("per_client_test has values that are not numbers")
    except (OSError, ValueError) as error:
        complain(f"{file} cannot be read ({error}); the run is shown as unfinished, from its clients.csv")
        return None
    return content


def _environment(file: Path, complain: Complain) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError) as error:
        complain(f"{file} cannot be read ({error}); the run's environment is unknown")
        return {}
    return content


def _relations(
    path: Path, experiment: Experiment, rows: list[Row], finished: bool, complain: Complain
) -> list[Relation]:
    """Relations that the server recorded: matrices, or clusters, in which two clients are related or not."""
    notes = algorithm_of(experiment).notes
    file, prefix = path / "relations.safetensors", ""
    saved = path / "checkpoint" / "state.safetensors"
    if not finished and saved.is_file() and not (file.is_file() and _changed(file) >= _changed(saved)):
        file, prefix = saved, "relations/"
    found = []
    if file.is_file():
        try:
            found = list(_matrices(file, prefix))
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            complain(f"{file} cannot be read ({error}); the similarities of this run are not shown")
    elif finished and 2 in notes.values() and _of_few_clients(experiment, rows):
        complain(f"{file} is missing: the similarities of this run are not shown")
    clusters = {row.round: row.clients["cluster"] for row in rows if "cluster" in row.clients}
    if clusters and len(rows[0].clients["cluster"]) <= MAX_RELATED:
        kept = thinned(list(clusters), MAX_SNAPSHOTS)
        found.append(Relation("same cluster", kept, np.stack([together(clusters[number]) for number in kept])))
    return found


def _of_few_clients(experiment: Experiment, rows: list[Row]) -> bool:
    """Whether relations are recorded: not of many clients, nor where nothing of single ones is known."""
    return len(rows[0].clients["val"] if rows else []) <= MAX_RELATED and not of_all(experiment.secure, rows)


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns


def _matrices(file: Path, prefix: str) -> Iterator[Relation]:
    """Read only the rounds that are kept; similarities, if there are any, come first."""
    with safetensors.safe_open(file, framework="numpy") as opened:
        recorded: list[str] = opened.keys()
        names = [name for name in recorded if name.startswith(prefix)]
        shapes = {name: opened.get_slice(name).get_shape() for name in names}
        for name, shape in shapes.items():
            if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
                raise ValueError(f"{name} has the shape {shape} instead of [rounds, clients, clients]")
        rounds = max((shape[0] for shape in shapes.values()), default=0)
        kept = thinned(range(1, rounds + 1), MAX_SNAPSHOTS)
        for name in sorted(names, key=lambda name: (name != prefix + SIMILARITY, name)):
            if shapes[name][0] < rounds:
                continue  # resumed with a version that records more: the rounds of this relation are not known
            part = opened.get_slice(name)
            values = np.concatenate([part[number - 1 : number] for number in kept]).astype(float)
            yield Relation(name.removeprefix(prefix), kept, compared(values) if name == prefix + SIMILARITY else values)


def compared(similarity: np.ndarray) -> np.ndarray:
    """NaN for clients that could not be compared yet: they are not even similar to themselves."""
    unlike = similarity.diagonal(axis1=1, axis2=2) == 0
    return np.where(unlike[:, :, None] | unlike[:, None, :], np.nan, similarity)


def together(clusters: list[float]) -> np.ndarray:
    """1 if two clients share a cluster, 0 if not, NaN if either was absent."""
    own = np.asarray(clusters, dtype=float)
    own[own < 0] = np.nan
    same: np.ndarray = (own[:, None] == own).astype(float)
    same[np.isnan(own[:, None] + own)] = np.nan
    return same


def thinned(items: Sequence[int], most: int) -> list[int]:
    """At most that number of items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[int(index)] for index in np.unique(np.linspace(0, len(items) - 1, most).round())]


def _labelled(runs: Sequence[Loaded]) -> list[Loaded]:
    """Add the settings that differ to the labels of one method's runs on the same data."""
    settings = [_settings(one.experiment) for one in runs]
    groups: dict[tuple[Place, str], list[dict[str, Any]]] = {}
    for one, own in zip(runs, settings, strict=True):
        groups.setdefault((one.place, one.experiment.method), []).append(own)
    labelled = []
    for one, own in zip(runs, settings, strict=True):
        method = one.experiment.method
        group = groups[one.place, method]
        names = sorted({name for other in group for name in other})
        differs = [name for name in names if any(own.get(name) != other.get(name) for other in group)]
        tail = ", ".join(f"{name}={own.get(name)}" for name in differs)
        labelled.append(replace(one, label=f"{method} ({tail})" if tail else method))
    return labelled


def _settings(experiment: Experiment) -> dict[str, Any]:
    return {name: value for name, value in vars(experiment).items() if name not in NOT_A_VARIANT} | dict(
        experiment.options
    )


def _without_repeats(runs: Sequence[Loaded], complain: Complain) -> list[Loaded]:
    """One run per method, data and seeds: the first finished one, or else the first."""
    kept: dict[tuple[Place, str, tuple[int, int]], Loaded] = {}
    for one in runs:
        key = (one.place, one.label, one.trial)
        if key not in kept:
            kept[key] = one
            continue
        better, other = (one, kept[key]) if one.finished > kept[key].finished else (kept[key], one)
        kept[key] = better
        complain(f"{other.path} is left out: {better.path} has the same method, data and seeds")
    return list(kept.values())
