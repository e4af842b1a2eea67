"""The model hops beside twin and gcn: its form, chosen on validation data of splits 0 and 1, and its results on splits
that were used for no choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpub.algorithms import title_of
from fedpub.paper.beyond import FIVE, SCENARIOS
from fedpub.paper.main import cells
from fedpub.paper.recipe import Grid, Settings

FIRST_UNUSED = 10  # split and seed: results were reported on splits 1 to 9 before
NETS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {"model": "gcn", "hidden": 128, "dropout": 0.5},
    "twin": {"model": "twin", "hidden": 64, "dropout": 0.6},
    "hops": {"model": "hops", "hidden": 64, "dropout": 0.6},
}
METHODS = ("local", "fedavg", "fedpub", "fedpub-plus")
WITHOUT_CHOICE = {"method": "fedpub-plus", "options": {"choose": False}}


def _cells(settings: Settings) -> dict[str, Mapping[str, Any]]:
    """All cells of the paper's two main tables."""
    return {
        f"{scenario} {name}": column
        for scenario, clients in SCENARIOS.items()
        for name, column in cells(FIVE, scenario, clients)(settings).items()
    }


def _middle(settings: Settings) -> dict[str, Mapping[str, Any]]:
    """Ten disjoint and thirty overlapping clients; the cells of a quick table, which has only the smallest."""
    found = _cells(settings)
    return found if settings.quick else {n: c for n, c in found.items() if c["clients"] == SCENARIOS[c["scenario"]][1]}


RESULTS = Grid(
    "The model hops beside twin and gcn, on splits that were used for no choice",
    {
        f"{title_of(method)}, {net}": {"method": method, **settings}
        for method in METHODS
        for net, settings in NETS.items()
    },
    _cells,
    note=f"The seed of split, partition and training is {FIRST_UNUSED} and upwards.",
    rows_quick=("Local, hops", "FED-PUB-plus, hops"),
    against="FED-PUB-plus, hops",
    first=FIRST_UNUSED,
)
CHOICE = Grid(
    "Forms of the model hops in FED-PUB-plus without the choice: validation accuracy",
    {
        "twin": {**WITHOUT_CHOICE, **NETS["twin"]},
        "hops, 64 wide": {**WITHOUT_CHOICE, **NETS["hops"]},
        "hops, 64 wide, two layers": {**WITHOUT_CHOICE, **NETS["hops"], "layers": 2},
        "hops, 48 wide": {**WITHOUT_CHOICE, **NETS["hops"], "hidden": 48},
        "hops, 48 wide, two layers": {**WITHOUT_CHOICE, **NETS["hops"], "hidden": 48, "layers": 2},
        "hops, 64 wide, three steps": {**WITHOUT_CHOICE, **NETS["hops"], "hops": 3},
    },
    _middle,
    value=lambda summary: summary["val"],
    note="Seeds 0 and 1 (`--seeds 2`), each with its own split.",
    rows_quick=("twin", "hops, 64 wide"),
    against="hops, 64 wide",
)
