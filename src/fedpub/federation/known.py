"""What the coordinator knows of the sites of a run, in a file that a restart reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpub.core.files import write_text

FINGERPRINT = "fingerprint"  # what a method compares a new site by, among what is kept of the clients
SITES, REMOVED = "sites.json", "removed.json"


@dataclass(frozen=True)
class Known:
    """Names, data and first metrics of all sites, in the order of their numbers."""

    sites: tuple[str, ...]
    features: int
    classes: tuple[str, ...]
    test_sizes: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    metrics: tuple[Mapping[str, float], ...] = ()  # before the first round
    setup: Mapping[str, float] | None = None
    relations: int = 1  # directions and kinds of edges
    keys: tuple[str, ...] = ()  # of this run, for secure sums; metrics are then one, their means
    signatures: tuple[str, ...] = ()  # ... by the sites
    examples: int = 0  # training examples of all sites, if only their sum is known

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(self.__dict__, indent=2) + "\n")

    @staticmethod
    def load(path: Path) -> Known | None:
        if not path.is_file():
            return None
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in held.items():
            held[name] = tuple(value) if isinstance(value, list) else value
        return Known(**held)
