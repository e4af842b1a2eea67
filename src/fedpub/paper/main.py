"""The two main tables, and the tables of other ways to divide a graph: all methods, mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpub.algorithms import title_of
from fedpub.paper.recipe import ALL, METHODS, Grid, Settings
from fedpub.report.published import published, tables

ROWS = {title_of(name): {"method": name} for name in METHODS}
WITH_ORACLE = {title_of("oracle"): {"method": "oracle"}} | ROWS  # the paper's main tables leave out the oracle
QUICK = ("Local", "FedAvg", "FED-PUB")


def cells(
    wanted: Sequence[str], scenario: str, clients: Sequence[int], **more: Any
) -> Callable[[Settings], Mapping[str, Mapping[str, Any]]]:
    """A column for every dataset and number of clients."""

    def columns(settings: Settings) -> dict[str, dict[str, Any]]:
        return {
            f"{dataset} {count}": {"dataset": dataset, "scenario": scenario, "clients": count, **more}
            for dataset in settings.chosen(wanted)
            for count in settings.some(clients)
        }

    return columns


def paper(row: Mapping[str, Any], column: Mapping[str, Any]) -> float | None:
    """The published value of a method in a cell."""
    task = column.get("task", "node-classification")
    found = published(row["method"], column["dataset"], column["scenario"], column["clients"], task)
    return found.mean if found else None


def oracle_paper(row: Mapping[str, Any], column: Mapping[str, Any]) -> float | None:
    found = tables().get(("oracle", "cora", column["scenario"], column["clients"], row["method"]))
    return found.mean if found else None


ARXIV = "ogbn-arxiv, whose features are a download of their own, is left out unless --datasets names it."
OVERLAPPING = Grid(
    "Overlapping clients", WITH_ORACLE, cells(ALL, "overlapping", (10, 30, 50)), paper, note=ARXIV, rows_quick=QUICK
)
DISJOINT = Grid(
    "Disjoint clients", WITH_ORACLE, cells(ALL, "disjoint", (5, 10, 20)), paper, note=ARXIV, rows_quick=QUICK
)
SMALL = ("cora", "citeseer", "pubmed")
IMBALANCED = Grid("Clients of unequal size", ROWS, cells(SMALL, "imbalanced", (10,)), paper, rows_quick=QUICK)
LOUVAIN = Grid("Clients by Louvain's communities", ROWS, cells(SMALL, "louvain", (10,)), paper, rows_quick=QUICK)
RANDOM = Grid("Clients at random", ROWS, cells(("citeseer",), "random", (10,)), paper, rows_quick=QUICK)
THREE = Grid("Three clients", ROWS, cells(SMALL, "disjoint", (3,)), paper, rows_quick=QUICK)
LINKS = Grid(
    "Link prediction, ROC-AUC",
    {label: row for label, row in WITH_ORACLE.items() if label != "FedGNN"},
    cells(("ogbn-arxiv", "pubmed", "photo"), "disjoint", (5, 10), task="link-prediction"),
    paper,
    note="The paper has ogbn-arxiv only. FedGNN is left out, as there. " + ARXIV,
    rows_quick=QUICK,
)


def _oracle_cells(settings: Settings) -> dict[str, dict[str, Any]]:
    wanted = settings.some([("disjoint", 5), ("disjoint", 20), ("overlapping", 10), ("overlapping", 50)])
    return {
        f"{scenario} {count}": {"dataset": "cora", "scenario": scenario, "clients": count} for scenario, count in wanted
    }


ORACLE = Grid(
    "Oracle and missing edges, Cora",
    {title_of(name): {"method": name} for name in ("oracle", "local", "fedavg", "fedgnn", "fedsage", "fedpub")},
    _oracle_cells,
    oracle_paper,
    note="The oracle trains one model on the whole graph, with the edges that the clients miss.",
    rows_quick=("Oracle", "Local", "FED-PUB"),
)
