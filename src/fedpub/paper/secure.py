"""Secure runs beside plain ones: what sums in words of fixed length cost in accuracy, and in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedpub.algorithms import title_of
from fedpub.paper.beyond import FIVE, SCENARIOS
from fedpub.paper.main import cells
from fedpub.paper.recipe import Artefact, Rows, Settings
from fedpub.paper.store import Job, Outcomes

FIRST_UNUSED = 20  # split and seed: the length of words was chosen on the validation nodes of splits 0 and 1
METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedpub-plus": {"method": "fedpub-plus"},
    "fedavg": {"method": "fedavg", "model": "hops", "hidden": 64, "dropout": 0.6},
    "fedpub": {"method": "fedpub", "options": {"communities": "disjoint"}},
}
PLAIN, SECURE = {"secure": False}, {"secure": True}


class Secure:
    title = "Secure aggregation beside plain averages, on splits that were used for no choice"
    header: ClassVar = ["method", "scenario", "clients", "dataset", "plain", "secure", "difference", "bytes", "seeds"]

    def cells(self, settings: Settings) -> list[tuple[str, str, Mapping[str, Any]]]:
        """All cells of the paper's two main tables: scenario, number of clients, and settings."""
        return [
            (scenario, str(column["clients"]), column)
            for scenario, clients in SCENARIOS.items()
            for column in cells(FIVE, scenario, clients)(settings).values()
        ]

    def of(self, settings: Settings, method: str, cell: Mapping[str, Any], secure: Mapping[str, Any]) -> list[Job]:
        return settings.repeated(first=FIRST_UNUSED, **METHODS[method], **cell, **secure)

    def jobs(self, settings: Settings) -> list[Job]:
        return [
            job
            for method in METHODS
            for *_, cell in self.cells(settings)
            for secure in (PLAIN, SECURE)
            for job in self.of(settings, method, cell, secure)
        ]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: Rows = []
        for method in METHODS:
            for scenario, clients, cell in self.cells(settings):
                runs = [[found[job].summary for job in self.of(settings, method, cell, how)] for how in (PLAIN, SECURE)]
                plain, secure = (100 * float(np.mean([one["test"] for one in own])) for own in runs)
                sent = [sum(one["bytes_up"] for one in own) for own in runs]
                place = [title_of(method), scenario, clients, str(cell["dataset"])]
                rows.append([*place, plain, secure, secure - plain, sent[1] / sent[0], len(runs[0])])
        note = (
            f"Mean test accuracy of cells; no defence in either, and FED-PUB with disjoint communities. Seeds begin "
            f"at {FIRST_UNUSED}. Bytes: what secure clients send, as a multiple of what plain ones do; of the protocol "
            "itself nothing is counted. In the tables: difference ± standard error over cells, and the farthest cell."
        )
        return Artefact(self.header, rows, note, read=[_readable(rows)])


def _readable(rows: Rows) -> tuple[list[str], Rows]:
    """A line for every method, scenario and number of clients, and one for each method in all cells."""
    lines: Rows = []
    for method in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == method]
        for place in dict.fromkeys((row[1], row[2]) for row in own):
            lines.append([method, *place, *_numbers([row for row in own if (row[1], row[2]) == place])])
        lines.append([method, "all", "", *_numbers(own)])
    return ["method", "scenario", "clients", "plain", "secure", "difference", "farthest cell", "bytes", "most"], lines


def _numbers(rows: Rows) -> list[str]:
    plain, secure, apart, sent = (np.array([row[at] for row in rows], dtype=float) for at in (4, 5, 6, 7))
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
    far = rows[int(np.abs(apart).argmax())]
    means = [f"{plain.mean():.2f}", f"{secure.mean():.2f}", f"{apart.mean():+.2f} ± {error:.2f}"]
    return [*means, f"{far[6]:+.2f} ({far[3]})", f"{sent.mean():.2f}", f"{sent.max():.2f}"]
