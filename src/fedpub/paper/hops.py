"""The model hops beside twin and gcn in methods of the paper, on splits that were used for no choice."""

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
METHODS = ("local", "fedavg", "fedpub")


def _cells(settings: Settings) -> dict[str, Mapping[str, Any]]:
    """All cells of the paper's two main tables."""
    return {
        f"{scenario} {name}": column
        for scenario, clients in SCENARIOS.items()
        for name, column in cells(FIVE, scenario, clients)(settings).items()
    }


RESULTS = Grid(
    "The model hops beside twin and gcn, on splits that were used for no choice",
    {
        f"{title_of(method)}, {net}": {"method": method, **settings}
        for method in METHODS
        for net, settings in NETS.items()
    },
    _cells,
    note=f"The seed of split, partition and training is {FIRST_UNUSED} and upwards.",
    rows_quick=("Local, hops", "FED-PUB, hops"),
    against="FED-PUB, hops",
    first=FIRST_UNUSED,
)
