"""Resumable runs in the simulator: data is prepared, and rounds are measured and saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedpub.algorithms.protocol import Context
from fedpub.core.steps import Step, silent
from fedpub.core.tree import Tree, tree_map
from fedpub.data.graph import Graph
from fedpub.engine.fitting import check_room, within
from fedpub.engine.memory import enough_memory, most_resident
from fedpub.engine.rounds import check_version
from fedpub.engine.setup import OnStep, SetUp, set_up
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.errors import FedpubError, note
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.plan import OBJECT
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.runs.interruption import interruptible
from fedpub.runs.loop import Keeping, OnRound, run_rounds
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.memory import Memory
from fedpub.store.record import NO_SETUP, Record
from fedpub.tasks.base import Details, Task


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run."""

    summary: dict[str, Any]
    record: Record
    path: Path | None  # its run directory, if it has one
    idle: tuple[int, ...] = ()  # clients that have nothing to train on


@enough_memory()
def run(
    experiment: Experiment | Plan,
    out: Path | None = None,
    *,
    resume: bool = False,
    root: Path | None = None,
    chunk: int | None = None,
    max_memory: float | None = None,
    checkpoint_seconds: float = 60.0,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
    on_prepare: Step = silent,
    prepared: Prepared | None = None,
    keep_models: bool = True,
    keep_checkpoint: bool = False,
    graph: Graph | None = None,
) -> Result:
    """Run an experiment; with `out` it is kept in a run directory and can be resumed even after a kill.

    `chunk` clients are computed at a time, or as many as fit into `max_memory` GiB; results do not depend on it.
    `on_round` is called with each row and the number of rounds, `on_step` with the steps of set-up before them, and
    `on_prepare` with those before anything is exchanged. `prepared` avoids loading the same data again. A finished run
    drops its checkpoint unless `keep_checkpoint`; without `keep_models` it keeps the measurements, but no models.
    `graph` is a graph that is not in a file yet: a new run
    saves it to the file that the experiment names as its dataset.
    """
    plan = experiment.resolve()
    if chunk is not None and chunk < 1:
        raise FedpubError(f"`chunk={chunk}` is not possible; give 1 or more")
    if max_memory is not None and not max_memory > 0:
        raise FedpubError(f"`max_memory={max_memory}` is not possible; give the GiB that the run may take, such as 4")
    if max_memory is not None and plan.device.type != "cpu":
        raise FedpubError(f"`max_memory={max_memory}` is for `device=cpu`, not {plan.device}; give `chunk` there")
    store = None
    if out is not None and resume:
        store = _reopen(plan.experiment, out)
    elif out is not None:
        RunDirectory.check_free(out)
    before = most_resident()
    ready = prepared or prepare(plan, root, chunk, graph, on_prepare)
    plan = plan.related(ready.federation.num_relations)
    digest, peak = ready.graph.digest(), most_resident()
    how = (plan.algorithm, plan.context, ready.federation)
    if max_memory is not None:
        fitting = within(*how, max_memory * 2**30, out is not None, loading=peak if peak > before else 0)
        ready = replace(ready, federation=fitting)
    elif said := check_room(*how, out is not None):
        note(said)
    on_prepare("stacking", 0, None)
    if store:
        store.check_data(digest, ready.partition.digest)
        if store.finished:
            return Result(store.summary(), Record(read_rows(store.path)), out, ready.idle)
    else:  # nothing is computed or written before data and method have been checked
        plan.algorithm.init_server(first_weights(ready.federation, plan.context), 1)
    if store is None and out is not None:
        store = RunDirectory.create(out, plan.experiment.to_json(), digest, ready.partition.digest)
        if graph is not None:
            graph.save(Path(plan.dataset))
    keeping = Keeping(checkpoint_seconds, keep_checkpoint, plan.algorithm.personal if store and keep_models else None)
    if store is None:
        return _run(plan, ready, Memory(), keeping, on_round, on_step)
    with store.locked(), interruptible() as stop:
        return _run(plan, ready, store, replace(keeping, stop=stop), on_round, on_step)


def _run(
    plan: Plan,
    ready: Prepared,
    store: RunDirectory | Memory,
    keeping: Keeping,
    on_round: OnRound | None,
    on_step: OnStep | None,
) -> Result:
    algorithm, ctx = plan.algorithm, plan.context
    start, best = store.restore(ready.federation.device)
    setup = _set_up(plan, ready, store.setup_file, on_step, keeping.stop)
    federation = setup.extend(ready.federation) if setup else ready.federation
    federation = replace(federation)  # whose stacks are gone when this run is
    if start:
        w0 = first_weights(federation, ctx)
        check_version(start, algorithm.init_server(w0, 1), algorithm.init_client(w0, 1))
    held = (ready.federation.subgraphs, ready.federation.report)
    sizes, unlearnt = ctx.task.sizes(*held).tolist(), ctx.task.unlearnt(*held).tolist()
    cost = setup.cost() if setup else NO_SETUP
    summary = run_rounds(
        simulate(algorithm, ctx, federation, plan.rounds, plan.fraction, plan.failures, start),
        plan.rounds,
        store,
        lambda record, details: (
            record.summary(ctx.task.metric_title, sizes, cost, (ctx.task.beside, unlearnt)) | decided(ctx.task, details)
        ),
        replace(keeping, details=lambda models: details_of(models, ctx, federation)),
        on_round,
        best,
    )
    return Result(summary, store.record, store.path, ready.idle)


def details_of(models: Tree, ctx: Context, federation: Federation) -> Details:
    """What the task wants to know about the kept models of all clients."""
    found: Details = {}
    for data in federation.everyone(ctx):
        own = data.ids_K.cpu()
        weights = tree_map(lambda leaf, own=own: leaf[own].to(federation.device), models)
        for name, values in ctx.task.details(ctx.model, weights, data).items():
            found.setdefault(name, []).extend(values)
    return found


def decided(task: Task, details: Details) -> dict[str, Any]:
    """What follows from them, for a summary."""
    found = task.decided(details)
    return {"decided": found} if found else {}


def _set_up(
    plan: Plan, ready: Prepared, file: Path | None, on_step: OnStep | None, stop: Callable[[], bool]
) -> SetUp | None:
    """The exchange of a method before its rounds; a resumed run loads a completed one from its file."""
    if file and file.is_file():
        return SetUp.load(file)

    def stepped(name: str, done: int, total: int) -> None:
        if on_step:
            on_step(name, done, total)
        if stop():
            raise KeyboardInterrupt

    made = set_up(plan.algorithm, plan.context, ready.federation, stepped)
    if made and file:
        made.save(file)
    return made


def _reopen(experiment: Experiment, out: Path) -> RunDirectory:
    """The directory of an earlier run of the same experiment."""
    held = Experiment.from_json(RunDirectory.config(out), out / "config.json")
    if held.method == experiment.method and (other := held.options.keys() ^ experiment.options.keys()):
        raise FedpubError(
            f"{out} was made by another version, in which {held.method} had other options "
            f"({', '.join(sorted(other))}); resume it with that version, or choose another directory"
        )
    if not any(str(name).startswith(OBJECT) for name in (held.method, held.model)):  # else only its program can
        held = held.resolve().experiment
    different = [one.name for one in fields(Experiment) if getattr(held, one.name) != getattr(experiment, one.name)]
    if different:
        name = different[0]
        raise FedpubError(
            f"{out} belongs to another experiment: its {name} is {getattr(held, name)!r}, not "
            f"{getattr(experiment, name)!r}; resume it without other flags, or choose another directory"
        )
    return RunDirectory(out)
