"""Noise on functional embeddings: what it hides of the classes, and what grouping loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedpub.paper.recipe import Artefact, Rows, Settings
from fedpub.paper.store import Job, Outcomes

LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # standard deviations of an embedding's own entries
FIRST_UNUSED = 20  # split and seed
CELLS: Mapping[str, Mapping[str, Any]] = {
    "cora": {"dataset": "cora", "scenario": "disjoint", "clients": 10},
    "communities": {"dataset": "communities"},
}
LEAK, GROUPS, TEST = "classes known", "communities found", "accuracy"


class Noise:
    title = "Noise on the functions that FED-PUB-plus sends: what they tell, and what grouping loses"
    header: ClassVar = ["dataset", "noise", LEAK, "guess", GROUPS, TEST, "seeds"]

    def columns(self, settings: Settings) -> dict[tuple[str, float], list[Job]]:
        names = CELLS if settings.datasets is None else [name for name in CELLS if name in settings.datasets]
        return {
            (name, level): settings.repeated(
                "leaked", FIRST_UNUSED, method="fedpub-plus", embedding_noise=level, **CELLS[name]
            )
            for name in names
            for level in settings.some(LEVELS)
        }

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for jobs in self.columns(settings).values() for job in jobs]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: Rows = []
        for (name, level), jobs in self.columns(settings).items():
            seen = [found[job].seen for job in jobs]
            leak, guess, groups = (float(np.mean([one[key] for one in seen])) for key in ("score", "guess", "groups"))
            test = 100 * float(np.mean([found[job].summary["test"] for job in jobs]))
            rows.append([name, level, leak, guess, groups, test, len(jobs)])
        note = (
            "Classes known: overlap of a client's class shares with an estimate from its functions of five rounds, "
            "beside the shares of all clients as a guess. Communities found: adjusted Rand index between the groups "
            "that the server finds and, on the built-in graph, the true communities, else the clients' most frequent "
            f"classes. Noise in standard deviations of the entries. Seeds begin at {FIRST_UNUSED}."
        )
        return Artefact(self.header, rows, note, draw=lambda figure: _draw(figure, rows), size=(7.0, 3.0))


def _draw(figure: Any, rows: Rows) -> None:
    names = list(dict.fromkeys(row[0] for row in rows))
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        own = [row for row in rows if row[0] == name]
        at = range(len(own))
        axes.plot(at, [row[2] for row in own], marker="o", color="C3", label=LEAK)
        axes.plot(at, [row[3] for row in own], linestyle=":", color="C3", label="by guessing")
        axes.plot(at, [row[4] for row in own], marker="s", color="C0", label=GROUPS)
        axes.plot(at, [row[5] / 100 for row in own], marker="^", color="C2", label=TEST)
        axes.set_xticks(list(at), [f"{row[1]:g}" for row in own])
        axes.set_title(name)
        axes.set_xlabel("noise, in standard deviations")
        axes.set_ylim(-0.05, 1.05)
    axes.legend(fontsize="small")
