"""The loop of every run: rounds come from the simulator or from sites, rows and checkpoints go to a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor

from fedpub.core.tree import State, Tree, tree_map
from fedpub.engine.rounds import Round, Snapshot
from fedpub.store.record import Record, Row
from fedpub.tasks.base import Details

OnRound = Callable[[Row, int], None]  # called with each row and the number of rounds


class Store(Protocol):
    """The place where a run is kept."""

    @property
    def record(self) -> Record: ...

    def append(self, measured: Round, seconds: float) -> Row: ...

    def checkpoint(self, snapshot: Snapshot, best: Tree) -> None: ...

    def finish(self, summary: dict[str, Any], best: Tree, details: Details, keep_checkpoint: bool) -> None: ...


@dataclass(frozen=True)
class Keeping:
    """Which parts of a run are kept, and when they are saved."""

    checkpoint_seconds: float = 60.0  # between two checkpoints; 0 saves every round
    keep_checkpoint: bool = False  # whether the last one is kept when the run is finished
    personal: Callable[[State], Tree] | None = None  # the clients' models from their states; None: models are not kept
    details: Callable[[Tree], Details] = lambda models: {}  # of the kept models
    stop: Callable[[], bool] = lambda: False  # whether to save the run after this round and interrupt it


def run_rounds(
    rounds: Iterator[Round],
    last: int,
    store: Store,
    summarise: Callable[[Record, Details], dict[str, Any]],
    keeping: Keeping,
    on_round: OnRound | None = None,
    best: Mapping[str, Tensor] = MappingProxyType({}),
) -> dict[str, Any]:
    """Process the rounds up to `last` and finish the run; returns its summary.

    A due checkpoint is saved before the next round is requested. `best` holds the models of the best earlier round.
    """
    models = dict(best)
    saved = clock = time.monotonic()
    for measured in rounds:
        now = time.monotonic()
        row = store.append(measured, now - clock)
        clock = now
        if on_round:
            on_round(row, last)
        if keeping.personal and store.record.best() is row:
            weights = keeping.personal(measured.snapshot.clients)
            models = tree_map(lambda leaf: leaf.detach().cpu().clone(), weights)
        due, stopped = now - saved >= keeping.checkpoint_seconds, keeping.stop()
        if due or stopped or (keeping.keep_checkpoint and row.round == last):
            store.checkpoint(measured.snapshot, models)
            saved = time.monotonic()
        if stopped:
            raise KeyboardInterrupt
    details = keeping.details(models) if models else {}
    summary = summarise(store.record, details)
    store.finish(summary, models, details, keeping.keep_checkpoint)
    return summary
