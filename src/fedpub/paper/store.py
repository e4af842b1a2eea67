"""Runs that are kept under the hash of their experiment: what is there is not computed again.

Several processes may compute at a time, those that share their data in one of them.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedpub.core.files import read_tensors, write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Row


@dataclass(frozen=True)
class Job:
    """An experiment, and what is to be looked at beside its rows: the name of a function in `looks`."""

    experiment: Experiment  # resolved
    look: str = ""

    @property
    def name(self) -> str:
        return f"{key(self.experiment)}/{self.look}"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a job left on disk. Rows and relations are large, and a table needs them once: they are not kept."""

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
        """What was looked at."""
        file = self.path / f"{self.look}.json"
        return self._once(file.name, lambda: json.loads(file.read_text(encoding="utf-8")))

    def relation(self, name: str) -> torch.Tensor:
        """What the server saw between clients, [rounds, K, K]."""
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
    """The name of an experiment's run: a hash of all that its result depends on, and not of where it was computed."""
    content = asdict(experiment) | {"device": ""}
    if experiment.defence == "none":  # as runs from before there was one
        del content["defence"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def is_done(job: Job, folder: Path) -> bool:
    path = Outcomes(folder)[job].path
    return (path / "summary.json").is_file() and (not job.look or (path / f"{job.look}.json").is_file())


def compute(jobs: Iterable[Job], folder: Path, root: Path | None, processes: int) -> Iterator[Job]:
    """Do what is not done yet; yields each job when it is complete."""
    wanted = [job for job in {job.name: job for job in jobs}.values() if not is_done(job, folder)]
    groups: dict[object, list[Job]] = {}
    for job in wanted:
        groups.setdefault(_data(job.experiment), []).append(job)
    if processes == 1 or len(groups) == 1:
        for group in groups.values():
            yield from _compute_group(group, folder, root)
        return
    # A queue tells of each job as it is done, not only of whole groups.
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        done = manager.Queue()
        with context.Pool(processes) as pool:
            tasks = [(group, folder, root, processes, done) for group in groups.values()]
            running = [pool.apply_async(_compute_apart, task) for task in tasks]
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
    """Experiments that agree in this share their data."""
    return (
        experiment.dataset,
        experiment.scenario,
        experiment.clients,
        experiment.data_seed,
        experiment.model,
        experiment.ratios,
        experiment.alpha,
        experiment.task,
        experiment.method == "oracle",
    )


def _compute_apart(group: list[Job], folder: Path, root: Path | None, processes: int, done: Any) -> None:
    """In a process of its own: a failure becomes a sentence for the one that waits."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    try:
        for job in _compute_group(group, folder, root):
            done.put(job)
    except FedpubError as error:
        done.put(str(error))
    except Exception as error:  # whoever waits would wait for ever
        one = group[0].experiment
        done.put(f"{type(error).__name__} with {one.method} on {one.dataset} {one.scenario} {one.clients}: {error}")


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
    """Where a run that was interrupted was being computed."""
    return Experiment.from_json(RunDirectory.config(path), path / "config.json").device
