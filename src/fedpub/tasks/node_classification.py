"""Which class a node has: cross entropy over the training nodes, accuracy over the others.

Axes: K clients, N nodes, C classes, R reported clients, M reported nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios, Split, split
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.models.base import Model
from fedpub.tasks.base import Step, Task, node_ids


@dataclass(frozen=True)
class NodeClassification(Task):
    metric: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("val", "val_loss", "test", "test_f1")
    further: ClassVar[Mapping[str, str]] = {"test_f1": "macro-F1"}
    baseline: ClassVar[str] = "majority"
    baseline_title: ClassVar[str] = "majority class"
    published: ClassVar[tuple[str, ...]] = ("main", "imbalanced", "louvain", "random", "three_clients", "oracle")
    predicts: ClassVar[str] = "classes"
    of_classes: ClassVar[bool] = True
    steady: ClassVar[bool] = True

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        chosen = split(graph, seed, ratios)
        return [subgraph_of(graph, own, chosen, client, kind) for client, own in enumerate(nodes)]

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        everything = subgraph_of(graph, torch.arange(graph.num_nodes), split(graph, seed, ratios), 0, kind)
        return everything, Report.of(nodes)

    def masks(self, graph: Graph, seed: int, ratios: Ratios) -> Split:
        return split(graph, seed, ratios)

    def outputs(self, num_classes: int) -> int:
        return num_classes

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        logits_NC = model.apply(w, data, step.dropout)
        rows = data.train_rows
        each = cross_entropy(logits_NC[rows], data.y_N[rows], reduction="none")
        total_K = each.new_zeros(data.num_clients).index_add(0, data.segments.owner_N[rows], each)
        return total_K / data.num_train_K.clamp(min=1)

    @torch.no_grad()
    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        logits_NC = model.apply(w, data)
        predicted_N = logits_NC.argmax(1)
        val, test = data.val_report, data.test_report
        clients, rows = val.num_clients, torch.cat([val.rows_M, test.rows_M])
        owner_M = torch.cat([val.owner_M, test.owner_M + clients])  # both sets at once, as twice as many clients
        confusion = _confusion(owner_M, data.y_N[rows], predicted_N[rows], 2 * clients, data.num_classes)
        correct = confusion.diagonal(dim1=1, dim2=2).sum(1)
        accuracy = correct / confusion.sum((1, 2))  # 0/0 is NaN: an empty set has no accuracy
        wrong_M = cross_entropy(logits_NC[val.rows_M], data.y_N[val.rows_M], reduction="none").double()
        loss = accuracy.new_zeros(clients).index_add(0, val.owner_M, wrong_M) / confusion[:clients].sum((1, 2))
        judged = {"val": accuracy[:clients], "val_loss": loss, "test": accuracy[clients:]}
        return judged | {"test_f1": macro_f1(confusion[clients:])}

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        return _counts(held, [own.test for own in held], report).sum(1).long()

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """Accuracy of a client's most frequent training class; NaN without training or test nodes."""
        count_RC, test_RC = (
            _counts(held, part, report) for part in ([own.train for own in held], [own.test for own in held])
        )  # ties: the first class
        hit_R = test_RC.gather(1, count_RC.argmax(1, keepdim=True)).squeeze(1)
        return torch.where(count_RC.sum(1) > 0, hit_R / test_RC.sum(1), float("nan"))

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Classes:
        logits_NC = model.apply(w, data)
        return Classes(logits_NC.argmax(1), torch.softmax(logits_NC, 1), classes, graph)


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of every node, by its number among the model's, and how likely each class is."""

    class_N: Tensor
    probability_NC: Tensor
    classes: tuple[str, ...]
    graph: Graph

    @property
    def confidence(self) -> Tensor:
        """The probability of the predicted class, [N]."""
        return self.probability_NC.gather(1, self.class_N.unsqueeze(1)).squeeze(1)

    def accuracy(self) -> tuple[float, int] | None:
        """The share of labelled nodes predicted correctly, and the number of labelled nodes; None if there are none."""
        number = {name: at for at, name in enumerate(self.classes)}
        by_graph_C = torch.tensor([number.get(name, -1) for name in self.graph.classes], dtype=torch.int64)
        rows = torch.nonzero(self.graph.y >= 0).flatten()
        if not len(rows):
            return None
        return float((self.class_N[rows] == by_graph_C[self.graph.y[rows]]).double().mean()), len(rows)

    def table(self) -> dict[str, np.ndarray]:
        """The id of each node, the predicted class, the probability of that, and of every class."""
        names = np.asarray(self.classes, dtype=object)
        columns = {"node": node_ids(self.graph), "prediction": names[self.class_N.numpy()]}
        columns["confidence"] = self.confidence.numpy()
        return columns | {f"p:{name}": p_N.numpy() for name, p_N in zip(names, self.probability_NC.T, strict=True)}

    def lines(self) -> dict[str, str]:
        found = self.numbers()
        rows = {"nodes": f"{found['nodes']:,}"}
        rows |= {f"of class {name}": f"{count:,}" for name, count in found["classes"].items()}
        rows["mean confidence"] = f"{100 * found['mean_confidence']:.2f} %"
        if labelled := found["labelled"]:
            heading = f"accuracy on {labelled:,} labelled nodes, training nodes included"
            rows[heading] = f"{100 * found['accuracy']:.2f} %"
        return rows

    def numbers(self) -> dict[str, Any]:
        count_C = torch.bincount(self.class_N, minlength=len(self.classes)).tolist()
        right, labelled = self.accuracy() or (None, 0)
        return {
            "nodes": self.graph.num_nodes,
            "classes": dict(zip(self.classes, count_C, strict=True)),
            "mean_confidence": float(self.confidence.double().mean()),
            "labelled": labelled,
            "accuracy": right,
        }


def _counts(held: Sequence[Subgraph], chosen: list[Tensor], report: Report | None) -> Tensor:
    """The number of chosen nodes of each class at each reported client, [R, C], double."""
    part, y_N = (report or Report.own(held)).only(torch.cat(chosen)), torch.cat([own.y for own in held])
    classes = max(int(y_N.max()) + 1, 1)  # one column even if no node has a label
    count = torch.bincount(part.owner_M * classes + y_N[part.rows_M], minlength=part.num_clients * classes)
    return count.double().view(part.num_clients, classes)


def _confusion(owner: Tensor, y: Tensor, predicted: Tensor, clients: int, classes: int) -> Tensor:
    """Counts of each client's nodes by true and predicted class, [R, C, C]."""
    cell = (owner * classes + y) * classes + predicted
    # Not bincount, which reads the values to size its result.
    count = torch.zeros(clients * classes * classes, dtype=torch.float64, device=cell.device)
    return count.index_add_(0, cell, torch.ones_like(cell, dtype=torch.float64)).view(clients, classes, classes)


def macro_f1(confusion_RCC: Tensor) -> Tensor:
    """The mean F1 over the classes that occur or were predicted at a client; NaN without any node."""
    hit = confusion_RCC.diagonal(dim1=1, dim2=2)
    either = confusion_RCC.sum(2) + confusion_RCC.sum(1)
    f1_RC = torch.where(either > 0, 2 * hit / either.clamp(min=1), 0.0)
    return f1_RC.sum(1) / (either > 0).sum(1)
