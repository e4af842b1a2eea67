"""The learning tasks: the loss of a client and its metrics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fedpub.tasks.base import Step, Task
from fedpub.tasks.link_prediction import LinkPrediction
from fedpub.tasks.node_classification import NodeClassification

TASKS: dict[str, type[Task]] = {"node-classification": NodeClassification, "link-prediction": LinkPrediction}


def task_of(name: str, settings: Any) -> Task:
    """The task of that name; its fields are taken from the same settings of the experiment or of a model's card."""
    kind: Any = TASKS[name]
    task: Task = kind(**{one.name: getattr(settings, one.name) for one in fields(kind)})
    return task


__all__ = ["TASKS", "LinkPrediction", "NodeClassification", "Step", "Task", "task_of"]
