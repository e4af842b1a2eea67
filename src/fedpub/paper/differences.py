"""Not in the paper: what its numbers and ours differ by, one suspect at a time; and clients as they are, on Twitch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fedpub.paper.main import QUICK, WITH_ORACLE, cells, paper
from fedpub.paper.recipe import TITLES, Artefact, Grid, Settings
from fedpub.paper.store import Job, Outcomes

PUBLISHED_DECAY = 1e-6  # of the published code, in Adam
TEN = 10  # seeds


def _main(*datasets: str) -> Callable[[Settings], dict[str, Mapping[str, Any]]]:
    """The main tables' cells of some graphs."""

    def columns(settings: Settings) -> dict[str, Mapping[str, Any]]:
        disjoint = cells(datasets, "disjoint", (5, 10, 20))(settings)
        overlapping = cells(datasets, "overlapping", (10, 30, 50))(settings)
        return {f"{name} disjoint": cell for name, cell in disjoint.items()} | {
            f"{name} overlapping": cell for name, cell in overlapping.items()
        }

    return columns


_small = _main("cora", "citeseer")


def _decaying(*methods: str) -> dict[str, Mapping[str, Any]]:
    return {TITLES[name]: {"method": name, "weight_decay": PUBLISHED_DECAY} for name in methods}


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
    """Three seeds are few where a client has a dozen test nodes."""

    title = "The same cells with ten seeds"
    methods = ("local", "fedpub")

    def ten(self, settings: Settings) -> Settings:
        return settings if settings.quick else replace(settings, seeds=TEN)

    def grid(self) -> Grid:
        return Grid("", {TITLES[name]: {"method": name} for name in self.methods}, _small, paper)

    def jobs(self, settings: Settings) -> list[Job]:
        return self.grid().jobs(self.ten(settings))

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        return self.grid().make(self.ten(settings), found)
