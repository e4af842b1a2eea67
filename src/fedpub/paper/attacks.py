"""What a curious coordinator learns: every attack on plain runs, and on secure ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from fedpub.algorithms import title_of
from fedpub.experiment import Experiment
from fedpub.paper.recipe import Artefact, Rows, Settings
from fedpub.paper.store import Job, Outcomes

ROUNDS = 30
CELLS: dict[str, dict[str, Any]] = {
    "cora": {"scenario": "disjoint", "clients": 10},
    "photo": {"scenario": "disjoint", "clients": 10},
    "twitch": {"scenario": "natural"},
}
CAN_BE_SECURE = "secure" in {one.name for one in fields(Experiment)}
VARIANTS: dict[str, dict[str, Any]] = {"plain": {}} | ({"secure": {"secure": True}} if CAN_BE_SECURE else {})
NOT_SECURE = ("fedpub",)  # its soft averages need each upload alone


class Attacks:
    title = "What a curious coordinator learns, beside a guess"
    methods: ClassVar = ("fedpub-plus", "fedavg", "fedpub")

    def columns(self, settings: Settings) -> dict[str, list[Job]]:
        """The runs of a method in plain and secure runs, on each graph."""
        found: dict[str, list[Job]] = {}
        for name in settings.chosen(tuple(CELLS)):
            for method in self.methods:
                for variant, own in VARIANTS.items():
                    if variant == "secure" and method in NOT_SECURE:
                        continue
                    jobs = settings.repeated(
                        "attacked", dataset=name, method=method, rounds=ROUNDS, **CELLS[name], **own
                    )
                    found[f"{name}/{method}/{variant}"] = jobs
        return found

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for jobs in self.columns(settings).values() for job in jobs]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        header = ["dataset", "method", "run", "attack", "measure", "score", "guess", "worst client"]
        rows: Rows = []
        for column, jobs in self.columns(settings).items():
            dataset, method, variant = column.split("/")
            seen = [found[job].seen["findings"] for job in jobs]
            for at, first in enumerate(seen[0]):
                numbers = [_mean([one[at] for one in seen], name) for name in ("score", "guess", "worst")]
                rows.append([dataset, title_of(method), variant, first["attack"], first["measure"], *numbers])
        note = (
            f"Means over clients and seeds, rounds 1 to {ROUNDS}; every score is 1 at best. In the tables, the guess "
            "is in parentheses; an attack without a score does not apply."
        )
        return Artefact(header, rows, note, read=[_readable(rows, name) for name in dict.fromkeys(r[0] for r in rows)])


def _mean(findings: list[Mapping[str, Any]], name: str) -> float | None:
    known = [one[name] for one in findings if one[name] is not None]
    return float(np.mean(known)) if known else None


def _readable(rows: Rows, dataset: str) -> tuple[list[str], Rows]:
    """An attack in every line, a method in every column."""
    own = [row for row in rows if row[0] == dataset]
    columns = list(dict.fromkeys((row[1], row[2]) for row in own))
    by_place = {(row[1], row[2], row[3]): row for row in own}
    lines: Rows = []
    for attack in dict.fromkeys(row[3] for row in own):
        texts = []
        for column in columns:
            row = by_place.get((*column, attack))
            known = row is not None and row[5] is not None and row[6] is not None
            texts.append(f"{row[5]:.2f} ({row[6]:.2f})" if row is not None and known else "")
        lines.append([attack, *texts])
    return [dataset, *(f"{method}, {variant}" for method, variant in columns)], lines
