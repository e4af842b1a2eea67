"""What is learnt: the loss of a client and its metrics."""

from __future__ import annotations

from fedpub.tasks.base import Step, Task
from fedpub.tasks.link_prediction import LinkPrediction
from fedpub.tasks.node_classification import NodeClassification

TASKS: dict[str, type[Task]] = {"node-classification": NodeClassification, "link-prediction": LinkPrediction}

__all__ = ["TASKS", "LinkPrediction", "NodeClassification", "Step", "Task"]
