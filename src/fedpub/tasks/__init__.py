"""What is learnt: the loss of a client and its metrics."""

from __future__ import annotations

from fedpub.tasks.base import Task
from fedpub.tasks.node_classification import NodeClassification

TASKS: dict[str, type[NodeClassification]] = {"node-classification": NodeClassification}

__all__ = ["TASKS", "NodeClassification", "Task"]
