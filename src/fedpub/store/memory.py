"""A run that is not saved: its rows last as long as the process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fedpub.core.tree import Tree
from fedpub.engine.rounds import Round, Snapshot
from fedpub.store.record import Record, Row
from fedpub.tasks.base import Details


@dataclass
class Memory:
    """Replaces a run directory."""

    record: Record = field(default_factory=Record)
    path: ClassVar[None] = None
    setup_file: ClassVar[None] = None

    def restore(self, device: torch.device) -> tuple[None, Tree]:
        return None, {}

    def append(self, measured: Round, seconds: float) -> Row:
        row = Row.of(measured, seconds)
        self.record.append(row)
        return row

    def checkpoint(self, snapshot: Snapshot, best: Tree) -> None:
        """Nothing to save: the run cannot be resumed."""

    def finish(self, summary: dict[str, Any], best: Tree, details: Details, keep_checkpoint: bool) -> None:
        """Nothing to save: the caller has the summary."""
