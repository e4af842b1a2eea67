"""The paper's values for the settings that an experiment leaves open, unless its task or its method has others."""

from __future__ import annotations

from typing import Any

from fedpub.data import datasets
from fedpub.data.clients.partition import default_scenario
from fedpub.data.clients.split import Ratios
from fedpub.tasks import Task

# Rounds and local epochs of the paper's appendix; data sets that it does not name use those of the small ones.
ROUNDS_AND_EPOCHS = {
    "photo": (200, 2),
    "ogbn-arxiv": (200, 2),
    "computers": (200, 3),
    "communities-5-5-40": (100, 3),
    "communities-5-15": (100, 3),
}
SMALL = (100, 1)


def defaults(dataset: str, clients: int | None, seed: int, task: type[Task]) -> dict[str, Any]:
    """A value for every optional setting of an experiment except `clients`."""
    rounds, epochs = task.rounds_and_epochs or ROUNDS_AND_EPOCHS.get(dataset, SMALL)
    return {
        "scenario": default_scenario(clients),
        "metric": next(iter(task.metric_choices), None),
        "model": "gcn",
        "hidden": 128,
        "dropout": 0.5,
        "rounds": rounds,
        "epochs": epochs,
        "weight_decay": 0.0,
        "data_seed": seed,
        "ratios": usual_ratios(dataset, task),
    }


def usual_ratios(dataset: str, task: Task | type[Task]) -> Ratios:
    """The ratios of an experiment that names none."""
    return task.ratios or datasets.split_ratios(dataset)
