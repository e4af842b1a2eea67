"""Not in the paper: possible causes of differences between its numbers and ours; and natural clients, on Twitch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from fedpub.algorithms import title_of
from fedpub.paper.main import DISJOINT, OVERLAPPING, QUICK, WITH_ORACLE, cells, paper
from fedpub.paper.recipe import Artefact, Grid, Recipe, Rows, Settings
from fedpub.paper.store import Job, Outcomes

PUBLISHED_DECAY = 1e-6  # in the published code, through Adam
TEN = 10  # seeds
FAR = 2  # points


def _main(*datasets: str) -> Callable[[Settings], dict[str, Mapping[str, Any]]]:
    """Cells of the main tables for some graphs."""

    def columns(settings: Settings) -> dict[str, Mapping[str, Any]]:
        disjoint = cells(datasets, "disjoint", (5, 10, 20))(settings)
        overlapping = cells(datasets, "overlapping", (10, 30, 50))(settings)
        return {f"{name} disjoint": cell for name, cell in disjoint.items()} | {
            f"{name} overlapping": cell for name, cell in overlapping.items()
        }

    return columns


_small = _main("cora", "citeseer")


def _decaying(*methods: str) -> dict[str, Mapping[str, Any]]:
    return {title_of(name): {"method": name, "weight_decay": PUBLISHED_DECAY} for name in methods}


WEIGHT_DECAY = Grid(
    "The published code's weight decay, 1e-6 through Adam",
    _decaying("local", "fedavg", "fedper", "fedgnn", "fedsage", "gcfl"),
    _small,
    paper,
    note="Our default is none: Adam divides by the size of a gradient, so a weight that nothing else moves decays at "
    "the full step, however small the factor.",
    rows_quick=("Local", "FedAvg"),
)

WEIGHT_DECAY_LARGE = Grid(
    "The same weight decay on the larger graphs",
    _decaying("fedavg", "gcfl"),
    _main("pubmed", "computers", "photo"),
    paper,
)

FEDGNN = Grid(
    "FedGNN: which nodes of others are added",
    {
        "similarity above 0.5": {"method": "fedgnn"},
        "above 0.8": {"method": "fedgnn", "options": {"threshold": 0.8}},
        "above 0.5, one for a node": {"method": "fedgnn", "options": {"limit": 1}},
    },
    cells(("pubmed", "computers"), "disjoint", (5, 10, 20)),
    paper,
)

TWITCH = Grid(
    "Seven countries as they are: Twitch",
    WITH_ORACLE,
    lambda settings: {name: {"dataset": name, "scenario": "natural"} for name in settings.chosen(("twitch",))},
    note="A client is a country; the label is whether a streamer uses explicit language. Twitch is not in the paper.",
    rows_quick=QUICK,
    average=False,
)


class Splits:
    """With ten seeds: three are few if a client has only a dozen test nodes."""

    title = "The same cells with ten seeds"
    methods = ("local", "fedpub")

    def ten(self, settings: Settings) -> Settings:
        return settings if settings.quick else replace(settings, seeds=TEN)

    def grid(self) -> Grid:
        return Grid("", {title_of(name): {"method": name} for name in self.methods}, _small, paper)

    def jobs(self, settings: Settings) -> list[Job]:
        return self.grid().jobs(self.ten(settings))

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        return self.grid().make(self.ten(settings), found)


class Differences:
    """Entries of the main tables that are far from the paper's, and the effect of each suspected cause."""

    title = f"Every difference of more than {FAR} points in the main tables"
    mains: ClassVar = {"disjoint": DISJOINT, "overlapping": OVERLAPPING}

    def jobs(self, settings: Settings) -> list[Job]:
        parts: list[Recipe] = [*self.mains.values(), WEIGHT_DECAY, WEIGHT_DECAY_LARGE, SPLITS]
        return [job for part in parts for job in part.jobs(settings)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        decayed = self.means(WEIGHT_DECAY, settings, found) | self.means(WEIGHT_DECAY_LARGE, settings, found)
        more_seeds = self.means(SPLITS, settings, found)
        rows: list[list[Any]] = []
        for scenario, table in self.mains.items():
            for cell, method, mean, _, _, published, difference, _ in table.make(settings, found).rows:
                if difference is not None and abs(difference) > FAR:
                    place = (f"{cell} {scenario}", method)
                    beside = [decayed.get(place), more_seeds.get(place)]
                    rows.append([scenario, cell, method, mean, published, difference, *beside])
        header = ["scenario", "cell", "method", "ours", "paper", "difference", "with 1e-6 decay", "ten seeds"]
        return Artefact(
            header, rows, "Decay and ten seeds: where they were run.", read=[self.by_method(rows), (header, rows)]
        )

    def by_method(self, rows: Rows) -> tuple[list[str], Rows]:
        """Share of the differences that the published decay removes, averaged over a method's cells of a graph."""
        groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _, cell, method, _, published, difference, decayed, _ in rows:
            if decayed is not None:
                groups.setdefault((method, cell.split()[0]), []).append((difference, decayed - published))
        lines: Rows = [
            [method, dataset, len(pairs), *(sum(side) / len(pairs) for side in zip(*pairs, strict=True))]
            for (method, dataset), pairs in sorted(groups.items())
        ]
        return ["method", "graph", "cells", "mean difference", "with 1e-6 decay"], lines

    def means(self, part: Recipe, settings: Settings, found: Outcomes) -> dict[tuple[str, str], float]:
        return {(row[0], row[1]): row[2] for row in part.make(settings, found).rows}


SPLITS = Splits()
