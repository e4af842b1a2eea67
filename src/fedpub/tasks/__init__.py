"""The learning tasks: the loss of a client and its metrics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fedpub.tasks.base import Step, Task
from fedpub.tasks.link_prediction import LinkPrediction
from fedpub.tasks.multi_label import MultiLabel
from fedpub.tasks.node_classification import NodeClassification
from fedpub.tasks.regression import Regression

TASKS: dict[str, type[Task]] = {
    "node-classification": NodeClassification,
    "link-prediction": LinkPrediction,
    "multi-label": MultiLabel,
    "regression": Regression,
}


def task_of(name: str, settings: Any) -> Task:
    """The task of that name; its fields are taken from the same settings of the experiment or of a model's card."""
    kind: Any = TASKS[name]
    given = {one.name: getattr(settings, one.name, None) for one in fields(kind)}
    task: Task = kind(**{name: value for name, value in given.items() if value is not None})
    return task


def is_amount(metric: str) -> bool:
    """Whether a metric has no upper bound: a loss, or an amount in units of the data."""
    return metric == "val_loss" or any(metric in task.amounts for task in TASKS.values())


__all__ = [
    "TASKS",
    "LinkPrediction",
    "MultiLabel",
    "NodeClassification",
    "Regression",
    "Step",
    "Task",
    "is_amount",
    "task_of",
]
