"""A run with sites elsewhere, kept in a run directory as a simulation is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fedpub.core.files import remove_leftovers
from fedpub.engine.setup import OnStep
from fedpub.federation.coordinator import Coordinator
from fedpub.runs.loop import Keeping, OnRound, run_rounds
from fedpub.store.directory import RunDirectory
from fedpub.store.record import NO_SETUP


def play(
    coordinator: Coordinator,
    out: Path,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Begin or resume the run in `out`: every round is saved before the next begins."""
    if not (out / "config.json").is_file():
        remove_leftovers(out, ("config.json",))  # of a coordinator that was killed right here
        RunDirectory.create(out, coordinator.plan.experiment.to_json(), coordinator.run)
    store = RunDirectory(out)
    with store.locked():
        if store.finished:
            return store.summary()
        start, _ = store.restore(torch.device("cpu"))
        known = coordinator.prepare(on_step)
        metric = coordinator.ctx.task.metric_title
        return run_rounds(
            coordinator.rounds(known, start),
            coordinator.plan.rounds,
            store,
            lambda record, _: record.summary(metric, list(known.test_sizes) or None, known.setup or NO_SETUP),
            Keeping(checkpoint_seconds=0, keep_checkpoint=True),  # sites that join later start from the checkpoint
            on_round,
        )
