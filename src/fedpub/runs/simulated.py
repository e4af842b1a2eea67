"""An experiment, run in the simulator: its data prepared, its rounds measured and kept, so that it can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedpub.core.tree import tree_map
from fedpub.data.graph import Graph
from fedpub.engine.fitting import check_room, within
from fedpub.engine.memory import enough_memory, most_resident
from fedpub.engine.rounds import check_version
from fedpub.engine.setup import OnStep, SetUp, set_up
from fedpub.engine.simulate import first_weights, simulate
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.plan import OBJECT
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.runs.interruption import interruptible
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import NO_SETUP, Record, Row

OnRound = Callable[[Row, int], None]


@dataclass(frozen=True, eq=False)
class Result:
    """What a run found."""

    summary: dict[str, Any]
    record: Record
    path: Path | None  # its run directory, where it has one
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
    prepared: Prepared | None = None,
    keep_state: bool = True,
    graph: Graph | None = None,
) -> Result:
    """Run an experiment; with `out` it is kept in a run directory and can be resumed after any kill.

    `chunk` clients are computed at a time, or as many as fit into `max_memory` GiB; results do not depend on it.
    `on_round` is told each row and the number of rounds, `on_step` what set-up does before them; `prepared` saves
    loading the same data again; without `keep_state` a finished run leaves what was measured, but no models. `graph` is
    one that no file holds yet: a new run saves it to the file that the experiment names as its dataset.
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
    ready = prepared or prepare(plan, root, chunk, graph)
    digest, peak = ready.graph.digest(), most_resident()
    how = (plan.algorithm, plan.context, ready.federation)
    if max_memory is not None:
        fitting = within(*how, max_memory * 2**30, out is not None, loading=peak if peak > before else 0)
        ready = replace(ready, federation=fitting)
    else:
        check_room(*how, out is not None)
    if store:
        store.check_data(digest, ready.partition.digest)
        if store.finished:
            return Result(store.summary(), Record(read_rows(store.path)), out, ready.idle)
    else:  # nothing is computed or written before data and method are known to be good
        plan.algorithm.init_server(first_weights(ready.federation, plan.context), 1)
    if store is None and out is not None:
        store = RunDirectory.create(out, plan.experiment.to_json(), digest, ready.partition.digest)
        if graph is not None:
            graph.save(Path(plan.dataset))
    if store is None:
        return _run(plan, ready, None, checkpoint_seconds, on_round, on_step, keep_state)
    with store.locked(), interruptible() as stop:
        return _run(plan, ready, store, checkpoint_seconds, on_round, on_step, keep_state, stop)


def _run(
    plan: Plan,
    ready: Prepared,
    store: RunDirectory | None,
    checkpoint_seconds: float,
    on_round: OnRound | None,
    on_step: OnStep | None,
    keep_state: bool,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    record = store.record if store else Record()
    start, best = store.restore(ready.federation.device) if store else (None, {})
    algorithm, ctx = plan.algorithm, plan.context
    setup = _set_up(plan, ready, store, on_step, stop)
    federation = setup.extend(ready.federation) if setup else ready.federation
    if start:
        w0 = first_weights(federation, ctx)
        check_version(start, algorithm.init_server(w0, 1), algorithm.init_client(w0, 1))
    best_row = record.best() if record.rows else None
    last_saved = clock = time.monotonic()
    rounds = simulate(algorithm, ctx, federation, plan.rounds, plan.fraction, plan.failures, start)
    for measured in rounds:
        now = time.monotonic()
        if store:
            row = store.append(measured, now - clock)
        else:
            row = Row.of(measured, now - clock)
            record.rows.append(row)
        clock = now
        if on_round:
            on_round(row, plan.rounds)
        if store and keep_state and row.beats(best_row):
            best_row = row
            weights = algorithm.personal(measured.snapshot.clients)
            best = tree_map(lambda leaf: leaf.detach().cpu().clone(), weights)
        due = now - last_saved >= checkpoint_seconds or (keep_state and row.round == plan.rounds)
        if store and (due or stop()):
            store.checkpoint(measured.snapshot, best)
            last_saved = time.monotonic()
            if stop():
                raise KeyboardInterrupt
    held = (ready.federation.subgraphs, ready.federation.report)
    sizes, unlearnt = ctx.task.sizes(*held).tolist(), ctx.task.unlearnt(*held).tolist()
    cost = setup.cost() if setup else NO_SETUP
    summary = record.summary(ctx.task.metric, sizes, cost, (ctx.task.baseline, unlearnt))
    if store:
        store.finish(summary, best, keep_state)
    return Result(summary, record, store.path if store else None, ready.idle)


def _set_up(
    plan: Plan,
    ready: Prepared,
    store: RunDirectory | None,
    on_step: OnStep | None,
    stop: Callable[[], bool],
) -> SetUp | None:
    """What a method exchanges before its rounds; what an interrupted run has of it is not done again."""
    if store and store.setup_file.is_file():
        return SetUp.load(store.setup_file)

    def stepped(name: str, done: int, total: int) -> None:
        if on_step:
            on_step(name, done, total)
        if stop():
            raise KeyboardInterrupt

    made = set_up(plan.algorithm, plan.context, ready.federation, stepped)
    if made and store:
        made.save(store.setup_file)
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
