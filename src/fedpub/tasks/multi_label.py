"""Which of several labels a node has: a logit for each label, binary cross entropy, rankings.

A label may be unknown at some nodes. Every training node counts alike, whatever the number of its known labels:

    loss = mean over nodes v of the mean over the known labels t of v of −log p(v has t, or not)

Axes: N nodes, M some of them, T labels, R reported clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.graph import Graph
from fedpub.models.base import Model
from fedpub.tasks.base import node_ids, outputs
from fedpub.tasks.metrics import COLUMNS, TITLES, Metric, Metrics, column, mean_f1, ranking
from fedpub.tasks.nodes import TargetTask, placed, summed, targets

CHOICES: tuple[Metric, ...] = ("average-precision", "roc-auc", "macro-f1")


@dataclass(frozen=True)
class MultiLabel(TargetTask):
    metric: Metric = "average-precision"

    metric_choices: ClassVar[tuple[Metric, ...]] = CHOICES
    metrics: ClassVar[tuple[str, ...]] = (
        *("val", "val_loss", "test"),
        *(column(one, part) for part in ("test", "val") for one in CHOICES),
    )
    further: ClassVar[Mapping[str, str]] = {column(one, "test"): TITLES[one] for one in CHOICES}
    predicts: ClassVar[str] = "labels"

    def misfit(self, target_NT: Tensor | None) -> str | None:
        if target_NT is None:
            return "has no targets for multi-label; import columns with `labels`, or use `task=node-classification`"
        strange = target_NT[~(target_NT.isnan() | (target_NT == 0) | (target_NT == 1))]
        if not len(strange):
            return None
        return f"has a target of {float(strange[0]):g}, but a label is 0 or 1; use `task=regression` for a number"

    def wrong(self, output_MC: Tensor, data: Clients, rows_M: Tensor) -> Tensor:
        target_MT = targets(data)[rows_M]
        known_MT = ~target_MT.isnan()
        each_MT = binary_cross_entropy_with_logits(output_MC, target_MT.nan_to_num(), reduction="none")
        return (each_MT * known_MT).sum(1) / known_MT.sum(1)

    def judge(self, output_MT: Tensor, target_MT: Tensor, owner_M: Tensor, clients: int) -> dict[str, Tensor]:
        """Means over the labels for which a metric is defined; a label is predicted above a probability of one half."""
        labels = target_MT.shape[1]
        label_T, known_MT, true_MT = torch.arange(labels, device=owner_M.device), ~target_MT.isnan(), target_MT == 1
        # Each label of a client is ranked on its own; what is unknown has a place after all, as no shape may depend on
        # values.
        place_MT = (owner_M.unsqueeze(1) * labels + label_T).masked_fill(~known_MT, clients * labels)
        ranked = ranking(output_MT.flatten(), true_MT.flatten(), place_MT.flatten(), clients * labels + 1)
        auc_R, precision_R = (one[:-1].view(clients, labels).nanmean(1) for one in ranked)
        said_MT = (output_MT > 0) & known_MT
        hit_RT, true_RT, said_RT = (
            summed(one.double(), owner_M, clients) for one in (said_MT & true_MT, true_MT, said_MT)
        )
        found: Metrics = {"average-precision": precision_R, "roc-auc": auc_R}
        found["macro-f1"] = mean_f1(hit_RT, true_RT + said_RT)
        return {"": found[self.metric]} | {f"_{COLUMNS[one][0]}": value_R for one, value_R in found.items()}

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Labels:
        return Labels(torch.sigmoid(outputs(model, w, data)), classes, graph)


@dataclass(frozen=True, eq=False)
class Labels:
    """How likely every label is at every node."""

    probability_NT: Tensor
    labels: tuple[str, ...]
    graph: Graph

    @property
    def likely(self) -> Tensor:
        """Which labels are more likely than not, [N, T]."""
        return self.probability_NT > 0.5

    def table(self) -> dict[str, np.ndarray]:
        """The id of each node, its likely labels with semicolons between them, and the probability of every label."""
        rows = self.likely.tolist()
        said = [";".join(name for name, has in zip(self.labels, row, strict=True) if has) for row in rows]
        columns = {"node": node_ids(self.graph), "prediction": np.asarray(said, dtype=object)}
        each = zip(self.labels, self.probability_NT.T, strict=True)
        return columns | {f"p:{name}": p_N.numpy() for name, p_N in each}

    def lines(self) -> dict[str, str]:
        found = self.numbers()
        rows = {"nodes": f"{found['nodes']:,}"}
        rows |= {f"with label {name}": f"{count:,}" for name, count in found["labels"].items()}
        if known := found["known"]:
            rows[f"right of {known:,} known labels, training nodes included"] = f"{100 * found['right']:.2f} %"
        return rows

    def numbers(self) -> dict[str, Any]:
        counts = dict(zip(self.labels, self.likely.sum(0).tolist(), strict=True))
        target_NT = placed(self.graph, self.labels)
        right = torch.empty(0) if target_NT is None else (self.likely == target_NT)[~target_NT.isnan()].double()
        mean = float(right.mean()) if len(right) else None
        return {"nodes": self.graph.num_nodes, "labels": counts, "known": len(right), "right": mean}
