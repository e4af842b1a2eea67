"""Oracle: one model on the whole graph with the edges between clients, evaluated on the clients' own test sets.

No federation can train it; it shows the cost of missing edges and divided labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpub.algorithms.local import Local


@dataclass(frozen=True)
class Oracle(Local):
    """Local training of a single client that holds everything."""

    title: ClassVar[str] = "Oracle"
    undivided: ClassVar[bool] = True
