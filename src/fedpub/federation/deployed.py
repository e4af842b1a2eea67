"""A run with sites elsewhere, kept in a run directory as a simulation is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedpub.core.files import remove_leftovers
from fedpub.engine.setup import OnStep
from fedpub.federation.coordinator import Coordinator
from fedpub.store.directory import RunDirectory
from fedpub.store.record import NO_SETUP, Row


def play(
    coordinator: Coordinator,
    out: Path,
    on_round: Callable[[Row], None] = lambda _: None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Begin the run in `out`, or go on with it: every round is saved before the next begins."""
    if not (out / "config.json").is_file():
        remove_leftovers(out, ("config.json",))  # of a coordinator that was killed right here
        RunDirectory.create(out, coordinator.plan.experiment.to_json(), coordinator.run)
    store = RunDirectory(out)
    with store.locked():
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
