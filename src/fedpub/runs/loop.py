"""One loop for every run: its rounds come from the simulator or from sites, its rows and checkpoints go to a store."""

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

OnRound = Callable[[Row, int], None]  # told each row, and the number of rounds


class Store(Protocol):
    """Where a run is kept."""

    @property
    def record(self) -> Record: ...

    def append(self, measured: Round, seconds: float) -> Row: ...

    def checkpoint(self, snapshot: Snapshot, best: Tree) -> None: ...

    def finish(self, summary: dict[str, Any], best: Tree, keep_checkpoint: bool) -> None: ...


@dataclass(frozen=True)
class Keeping:
    """What is kept of a run, and when."""

    checkpoint_seconds: float = 60.0  # between two checkpoints; 0 saves every round
    keep_checkpoint: bool = False  # whether the last one stays when the run is finished
    personal: Callable[[State], Tree] | None = None  # the clients' models from their states; None: models are not kept
    stop: Callable[[], bool] = lambda: False  # whether the run is to be saved after this round, and interrupted


def run_rounds(
    rounds: Iterator[Round],
    last: int,
    store: Store,
    summarise: Callable[[Record], dict[str, Any]],
    keeping: Keeping,
    on_round: OnRound | None = None,
    best: Mapping[str, Tensor] = MappingProxyType({}),
) -> dict[str, Any]:
    """Take the rounds up to the `last` one and finish the run; returns its summary.

    What is due is saved before the next round is asked for. `best` are the models of the best round before these.
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
    summary = summarise(store.record)
    store.finish(summary, models, keeping.keep_checkpoint)
    return summary
