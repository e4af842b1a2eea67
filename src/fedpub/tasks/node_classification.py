"""Which class a node has: cross entropy over the training nodes, accuracy over the others.

Axes: K clients, N nodes, C classes, R reported clients, M reported nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.models.base import Model
from fedpub.tasks.base import Details, node_ids, outputs
from fedpub.tasks.metrics import (
    COLUMNS,
    EVEN,
    RANKINGS,
    Metric,
    best_threshold,
    by_class,
    by_count,
    class_ranking,
    column,
    confusion,
)
from fedpub.tasks.nodes import NodeTask

ClassWeights = Literal["none", "balanced"]


@dataclass(frozen=True)
class NodeClassification(NodeTask):
    metric: Metric = "accuracy"
    class_weights: ClassWeights = "none"
    threshold: float = EVEN  # of two classes, the second is predicted above it; a kept model's card has its own

    metric_choices: ClassVar[tuple[Metric, ...]] = (
        "accuracy",
        "balanced-accuracy",
        "macro-f1",
        "roc-auc",
        "average-precision",
    )
    metrics: ClassVar[tuple[str, ...]] = (
        *("val", "val_loss", "test"),
        *(column(one, part) for part in ("test", "val") for one in COLUMNS),
    )
    further: ClassVar[Mapping[str, str]] = {column(one, "test"): title for one, (_, title) in COLUMNS.items()}
    settings: ClassVar[tuple[str, ...]] = ("class_weights",)
    baseline: ClassVar[str] = "majority"
    baseline_title: ClassVar[str] = "majority class"
    published: ClassVar[tuple[str, ...]] = ("main", "imbalanced", "louvain", "random", "three_clients", "oracle")
    predicts: ClassVar[str] = "classes"
    of_classes: ClassVar[bool] = True
    steady: ClassVar[bool] = True

    @property
    def beside(self) -> str:
        return "chance" if self.metric in RANKINGS else self.baseline

    def known(self, graph: Graph) -> Tensor:
        known_N = graph.y >= 0
        if graph.target is not None and not bool(known_N.any()):
            raise FedpubError(
                f"graph {graph.name!r} has no classes to learn; use `task=multi-label` or `task=regression` for its "
                "targets, or import the column of a class with `label`"
            )
        return known_N

    def was_split_for(self, own: Subgraph) -> bool:
        return super().was_split_for(own) and bool((own.y[own.train] >= 0).all())

    def wrong(self, output_MC: Tensor, data: Clients, rows_M: Tensor) -> Tensor:
        y_M, weight = data.y_N[rows_M], self._weights(data)
        each_M = cross_entropy(output_MC, y_M, reduction="none")
        return each_M if weight is None else each_M * weight[data.segments.owner_N[rows_M], y_M]

    def _weights(self, data: Clients) -> Tensor | None:
        """n / (classes present × n_c) of each client's training nodes, [K, C]: their mean is 1. None: all are 1."""
        if self.class_weights == "none":
            return None
        return data.once("class weights", lambda: balanced(data))

    @torch.no_grad()
    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        val, test = data.val_report, data.test_report
        clients, rows = val.num_clients, torch.cat([val.rows_M, test.rows_M])
        owner_M = torch.cat([val.owner_M, test.owner_M + clients])  # both sets at once, as twice as many clients
        logits_NC = outputs(model, w, data)
        found, _ = by_class(logits_NC[rows], data.y_N[rows], owner_M, 2 * clients)
        parts = {"val": slice(clients), "test": slice(clients, None)}
        judged = {part: found[self.metric][where] for part, where in parts.items()}
        judged |= {column(one, part): value[where] for part, where in parts.items() for one, value in found.items()}
        return judged | {"val_loss": self._val_loss(logits_NC, data)}

    @torch.no_grad()
    def validate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        val, logits_NC = data.val_report, outputs(model, w, data)
        of_val = (logits_NC[val.rows_M], data.y_N[val.rows_M], val.owner_M, val.num_clients)
        if self.metric in RANKINGS:
            value_R = dict(zip(("roc-auc", "average-precision"), class_ranking(*of_val), strict=True))[self.metric]
        else:
            logits_MC, y_M, owner_M, clients = of_val
            value_R = by_count(confusion(owner_M, y_M, logits_MC.argmax(1), clients, data.num_classes))[self.metric]
        return {"val": value_R, "val_loss": self._val_loss(logits_NC, data)}

    def _val_loss(self, logits_NC: Tensor, data: Clients) -> Tensor:
        """The mean loss of the validation nodes, with the weights of their classes; NaN without any."""
        val = data.val_report
        y_M, weight = data.y_N[val.rows_M], self._weights(data)
        wrong_M = cross_entropy(logits_NC[val.rows_M], y_M, reduction="none").double()
        weight_M = torch.ones_like(wrong_M) if weight is None else weight[val.model_R[val.owner_M], y_M].double()
        total_R, weight_R = (
            wrong_M.new_zeros(val.num_clients).index_add(0, val.owner_M, one) for one in (wrong_M * weight_M, weight_M)
        )
        return total_R / weight_R

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """A client's most frequent training class for all nodes; for rankings, chance. NaN where undefined."""
        train_RC, test_RC = (
            _counts(held, part, report) for part in ([own.train for own in held], [own.test for own in held])
        )
        if self.metric in RANKINGS:
            share_RC = test_RC / test_RC.sum(1, keepdim=True)
            both_RC = (share_RC > 0) & (share_RC < 1)
            chance_RC = share_RC if self.metric == "average-precision" else torch.full_like(share_RC, 0.5)
            chance_RC = chance_RC.masked_fill(~both_RC, float("nan"))
            return chance_RC[:, 1] if chance_RC.shape[1] == 2 else chance_RC.nanmean(1)
        said_RC = torch.zeros_like(test_RC).scatter(1, train_RC.argmax(1, keepdim=True), 1.0)  # ties: the first class
        value_R = by_count(test_RC.unsqueeze(2) * said_RC.unsqueeze(1))[self.metric]
        return torch.where(train_RC.sum(1) > 0, value_R, float("nan"))

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Classes:
        logits_NC = outputs(model, w, data)
        threshold = torch.tensor(self.threshold, dtype=torch.float64)
        class_N = decided(torch.softmax(logits_NC.double(), 1), threshold)  # as precisely as it was chosen
        return Classes(class_N, torch.softmax(logits_NC, 1), classes, graph, self.threshold)

    @torch.no_grad()
    def details(self, model: Model, w: Tree, data: Clients) -> Details:
        """The threshold between two classes, chosen on the validation nodes, and the confusion matrix of the test
        nodes by it: a row for every true class, a column for every predicted one."""
        share_NC, val, test = torch.softmax(outputs(model, w, data).double(), 1), data.val_report, data.test_report
        threshold_R = share_NC.new_full((val.num_clients,), EVEN)
        if two := share_NC.shape[1] == 2:
            for client in range(val.num_clients):
                rows = val.rows_M[val.owner_M == client]
                threshold_R[client] = best_threshold(share_NC[rows, 1], data.y_N[rows] == 1, self.metric)
        predicted_M = decided(share_NC[test.rows_M], threshold_R[test.owner_M])
        counted = confusion(test.owner_M, data.y_N[test.rows_M], predicted_M, test.num_clients, share_NC.shape[1])
        found: Details = {"confusion": counted.long().tolist()}
        return found | ({"threshold": threshold_R.tolist()} if two else {})

    def decided(self, details: Details) -> dict[str, float | None]:
        """With the thresholds, every metric that depends on them."""
        if "threshold" not in details:
            return {}
        found = by_count(torch.tensor(details["confusion"], dtype=torch.float64))
        means = {metric: float(value_R.nanmean()) for metric, value_R in found.items()}
        return {metric: None if mean != mean else mean for metric, mean in means.items()}


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of every node, by its number among the model's, and how likely each class is."""

    class_N: Tensor
    probability_NC: Tensor
    classes: tuple[str, ...]
    graph: Graph
    threshold: float = EVEN  # of two classes, the second is predicted above it

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
        if self.threshold != EVEN:
            rows[f"threshold for {self.classes[1]}"] = f"{100 * self.threshold:.2f} %"
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
            "threshold": self.threshold if len(self.classes) == 2 else None,
            "labelled": labelled,
            "accuracy": right,
        }


def decided(share_MC: Tensor, threshold_M: Tensor) -> Tensor:
    """The most likely class; of two, the second if its share is above a threshold."""
    if share_MC.shape[1] != 2:
        return share_MC.argmax(1)
    return (share_MC[:, 1] > threshold_M).long()


def balanced(data: Clients) -> Tensor:
    """n / (classes present × n_c) of each client's training nodes, [K, C]; 0 for a class that it does not train on."""
    count_KC = data.train_count_KC
    present_K, total_K = (count_KC > 0).sum(1, keepdim=True), count_KC.sum(1, keepdim=True)
    return torch.where(count_KC > 0, total_K / (present_K * count_KC.clamp(min=1)), 0.0).to(data.dtype)


def _counts(held: Sequence[Subgraph], chosen: list[Tensor], report: Report | None) -> Tensor:
    """The number of chosen nodes of each class at each reported client, [R, C], double."""
    part, y_N = (report or Report.own(held)).only(torch.cat(chosen)), torch.cat([own.y for own in held])
    classes = max(int(y_N.max()) + 1, 1)  # one column even if no node has a label
    count = torch.bincount(part.owner_M * classes + y_N[part.rows_M], minlength=part.num_clients * classes)
    return count.double().view(part.num_clients, classes)
