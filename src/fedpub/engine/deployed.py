"""A run with sites elsewhere, kept in a run directory as a simulation is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from fedpub.engine.federate import Coordinator
from fedpub.engine.setup import OnStep
from fedpub.errors import FedpubError
from fedpub.results import NO_SETUP, Row, RunDirectory

LOCK_SECONDS = 60.0  # for a coordinator that was killed, and whose run has not noticed yet


def play(
    coordinator: Coordinator,
    out: Path,
    on_round: Callable[[Row], None] = lambda _: None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Begin the run in `out`, or go on with it: every round is saved before the next begins."""
    if not (out / "config.json").is_file():
        RunDirectory.create(out, coordinator.experiment.to_json(), coordinator.run)
    store = RunDirectory(out)
    with _alone(store):
        if store.finished:
            return store.summary()
        start, _ = store.restore(torch.device("cpu"))
        known = coordinator.prepare(on_step)
        clients, clock = start.clients if start else {}, time.monotonic()
        for measured in coordinator.rounds(known, start):
            now = time.monotonic()
            row = store.append(measured, now - clock)
            store.checkpoint(measured.snapshot, {})
            clients, clock = measured.snapshot.clients, now
            on_round(row)
        coordinator.finish(clients)
        summary = store.record.summary(coordinator.ctx.task.metric, list(known.test_sizes), known.setup or NO_SETUP)
        store.finish(summary, {})
        return summary


@contextmanager
def _alone(store: RunDirectory) -> Iterator[None]:
    """The run directory for this process alone; an orphan of a killed coordinator is waited for."""
    until = time.monotonic() + LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(store.locked())
                break
            except FedpubError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        yield
