"""Runs stored under the hash of their experiment; stored runs are not computed again.

Several processes may compute at the same time; runs that share their data are computed by the same process.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch

from fedpub.algorithms import has_all_data
from fedpub.core.children import end_with_parent
from fedpub.core.files import write_text
from fedpub.core.tensor_files import read_tensors
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.experiment.spec import YOUNGER
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Row
from fedpub.tasks import TASKS

_done: SimpleQueue[Job | str]  # of a process that computes


@dataclass(frozen=True)
class Job:
    """An experiment, and optionally the name of a function in `looks` for data in addition to its rows."""

    experiment: Experiment  # resolved
    look: str = ""

    @property
    def name(self) -> str:
        return f"{key(self.experiment)}/{self.look}"


@dataclass(frozen=True, eq=False)
class Outcome:
    """Files of a finished job. Rows and relations are large and needed only once per table: they are not cached."""

    path: Path
    look: str
    read: dict[str, Any] = field(default_factory=dict)  # the run's JSON files so far, by name

    @property
    def summary(self) -> dict[str, Any]:
        return self._once("summary.json", lambda: RunDirectory(self.path).summary())

    @property
    def rows(self) -> list[Row]:
        return read_rows(self.path)

    @property
    def seen(self) -> dict[str, Any]:
        """Result of the function in `looks`."""
        file = self.path / f"{self.look}.json"
        return self._once(file.name, lambda: json.loads(file.read_text(encoding="utf-8")))

    def relation(self, name: str) -> torch.Tensor:
        """Relations between clients as the server saw them, [rounds, K, K]."""
        return read_tensors(self.path / "relations.safetensors")[0][name]

    def _once(self, name: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if name not in self.read:
            self.read[name] = read()
        content: dict[str, Any] = self.read[name]
        return content


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of jobs in a folder."""

    folder: Path
    read: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)  # by run: several tables may share one

    def __getitem__(self, job: Job) -> Outcome:
        name = key(job.experiment)
        return Outcome(self.folder / name, job.look, self.read.setdefault(name, {}))


def key(experiment: Experiment) -> str:
    """The name of an experiment's run: a hash of everything that its result depends on, without the device."""
    content = asdict(experiment) | {"device": ""}
    usual = {**YOUNGER, "metric": next(iter(TASKS[experiment.task].metric_choices), None)}
    if content["options"].get("min_group") == content["min_group"]:  # where it was before it became a setting
        del content["min_group"]
        del usual["min_group"]
    for name, value in usual.items():  # so that runs from before these settings keep their names
        if content[name] == value:
            del content[name]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def is_done(job: Job, folder: Path) -> bool:
    path = Outcomes(folder)[job].path
    return (path / "summary.json").is_file() and (not job.look or (path / f"{job.look}.json").is_file())


def compute(jobs: Iterable[Job], folder: Path, root: Path | None, processes: int) -> Iterator[Job]:
    """Compute the missing jobs; yield each job when it is complete."""
    wanted = [job for job in {job.name: job for job in jobs}.values() if not is_done(job, folder)]
    groups: dict[object, list[Job]] = {}
    for job in wanted:
        groups.setdefault(_data(job.experiment), []).append(job)
    if processes == 1 or len(groups) == 1:
        for group in groups.values():
            yield from _compute_group(group, folder, root)
        return
    # A queue reports each finished job, not only whole groups. It is a pipe: nothing of it stays on disk after a kill.
    context = multiprocessing.get_context("spawn")
    done = context.SimpleQueue()
    with context.Pool(processes, _begin_worker, (done, processes)) as pool:
        running = [pool.apply_async(_compute_apart, (group, folder, root)) for group in groups.values()]
        left = len(wanted)
        while left:
            found = done.get()
            if isinstance(found, str):
                raise FedpubError(found)
            left -= 1
            yield found
        for one in running:
            one.get()


def _data(experiment: Experiment) -> object:
    """A key that is equal for experiments that share their data."""
    return (
        experiment.dataset,
        experiment.scenario,
        experiment.clients,
        experiment.data_seed,
        experiment.model,
        experiment.ratios,
        experiment.split,
        experiment.alpha,
        experiment.task,
        has_all_data(experiment.method),
    )


def _begin_worker(done: SimpleQueue[Job | str], processes: int) -> None:
    """Prepare a process that computes: what it reports to, and its share of the cores."""
    global _done
    end_with_parent()
    _done = done
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))


def _compute_apart(group: list[Job], folder: Path, root: Path | None) -> None:
    """Run in a separate process; a failure is reported to the parent as a sentence."""
    try:
        for job in _compute_group(group, folder, root):
            _done.put(job)
    except FedpubError as error:
        _done.put(str(error))
    except Exception as error:  # otherwise the parent would wait forever
        one = group[0].experiment
        _done.put(f"{type(error).__name__} with {one.method} on {one.dataset} {one.scenario} {one.clients}: {error}")


def _compute_group(group: list[Job], folder: Path, root: Path | None) -> Iterator[Job]:
    ready: Prepared | None = None
    for job in group:
        path, plan = Outcomes(folder)[job].path, job.experiment.resolve()
        if not (path / "summary.json").is_file():
            ready = ready or prepare(plan, root)
            begun = (path / "config.json").is_file()
            again = replace(job.experiment, device=_device(path)) if begun else plan
            run(again, path, resume=begun, root=root, prepared=ready, keep_models=False)
        if job.look and not (path / f"{job.look}.json").is_file():
            from fedpub.paper.looks import LOOKS

            ready = ready or prepare(plan, root)
            RunDirectory(path).check_data(ready.graph.digest(), ready.partition.digest)
            write_text(path / f"{job.look}.json", json.dumps(LOOKS[job.look](plan, ready)) + "\n")
        yield job


def _device(path: Path) -> str:
    """The device on which an interrupted run was being computed."""
    return Experiment.from_json(RunDirectory.config(path), path / "config.json").device
