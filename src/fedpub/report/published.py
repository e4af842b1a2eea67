"""Numbers reported in the paper, in percent."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

from fedpub.tasks import TASKS


@dataclass(frozen=True)
class Published:
    mean: float
    deviation: float | None


def tables() -> dict[tuple[str, str, str, int, str], Published]:
    """Every published value by table, dataset, scenario, number of clients and method.

    The tables are main, imbalanced, louvain, random, three_clients, link_prediction (ROC-AUC) and oracle.
    """
    found = {}
    for row in _rows("published.csv"):
        place = (row.pop("table"), row.pop("dataset"), row.pop("scenario"), int(row.pop("clients")))
        for method, value in row.items():
            if value:
                mean, _, deviation = value.partition(" ")
                found[(*place, method)] = Published(float(mean), float(deviation) if deviation else None)
    return found


def statistics() -> dict[tuple[str, str, int], tuple[float, float, float, float]]:
    """The paper's means over clients by dataset, scenario and their number: nodes, edges, clustering, heterogeneity."""
    return {
        (row["dataset"], row["scenario"], int(row["clients"])): (
            float(row["nodes"]),
            float(row["edges"]),
            float(row["clustering"]),
            float(row["heterogeneity"]),
        )
        for row in _rows("statistics.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("fedpub.report").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def published(
    method: str, dataset: str, scenario: str, clients: int | None, task: str = "node-classification"
) -> Published | None:
    """The paper's value for a method in a cell, from any of its tables; None if there is none."""
    if clients is None:
        return None
    known = (tables().get((name, dataset, scenario, clients, method)) for name in TASKS[task].published)
    return next((value for value in known if value), None)
