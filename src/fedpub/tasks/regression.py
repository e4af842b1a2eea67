"""What number a node has: squared errors over the training nodes, the coefficient of determination over the others.

    loss = mean (z_v − y_v)²      R² = max(0, 1 − Σ (z_v − y_v)² / Σ (y_v − mean of y)²)

Numbers are learnt in the units in which they are given. To standardise them, clients would have to disclose their means
and deviations, or else each to use its own, and an average of models with different units means nothing. The owners
choose a unit in which numbers are about 1, the same at all sites. Metrics are from 0 to 1: an R² below 0, of a model
that is worse than any constant, counts as 0, and between rounds of R² 0 the lower validation loss decides.

Axes: N nodes, M some of them, R reported clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.graph import Graph
from fedpub.models.base import Model
from fedpub.tasks.base import node_ids, outputs
from fedpub.tasks.nodes import TargetTask, placed, summed, targets


@dataclass(frozen=True)
class Regression(TargetTask):
    metric: ClassVar[str] = "R²"
    metrics: ClassVar[tuple[str, ...]] = ("val", "val_loss", "test", "test_rmse", "val_rmse")
    further: ClassVar[Mapping[str, str]] = {"test_rmse": "root mean squared error"}
    amounts: ClassVar[tuple[str, ...]] = ("test_rmse", "val_rmse")
    predicts: ClassVar[str] = "numbers"

    def misfit(self, target_NT: Tensor | None) -> str | None:
        if target_NT is None:
            return "has no target for regression; import a column with `number`, or use `task=node-classification`"
        if target_NT.shape[1] == 1:
            return None
        return (
            f"has {target_NT.shape[1]} targets, but regression learns one number; give it the same name at all sites, "
            "or use `task=multi-label` for labels"
        )

    def wrong(self, output_MC: Tensor, data: Clients, rows_M: Tensor) -> Tensor:
        return (output_MC - targets(data)[rows_M]).square().squeeze(1)

    def judge(self, output_MT: Tensor, target_MT: Tensor, owner_M: Tensor, clients: int) -> dict[str, Tensor]:
        """Undefined without a node, and R² also where all nodes have the same number."""
        output_M, target_M = (one.double().squeeze(1) for one in (output_MT, target_MT))
        wrong_R = summed((output_M - target_M).square(), owner_M, clients)
        count_R = summed(torch.ones_like(target_M), owner_M, clients)
        # From the smallest number on: the spread of equal numbers is 0, not a rounding error.
        least_R = target_M.new_full((clients,), torch.inf).scatter_reduce(0, owner_M, target_M, "amin")
        above_M = target_M - least_R[owner_M]
        mean_R = summed(above_M, owner_M, clients) / count_R
        spread_R = summed((above_M - mean_R[owner_M]).square(), owner_M, clients)
        r2_R = (1 - wrong_R / spread_R).clamp(min=0).masked_fill(spread_R == 0, torch.nan)
        return {"": r2_R, "_rmse": (wrong_R / count_R).sqrt()}

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> Numbers:
        return Numbers(outputs(model, w, data).squeeze(1), classes, graph)


@dataclass(frozen=True, eq=False)
class Numbers:
    """The number of every node."""

    number_N: Tensor
    names: tuple[str, ...]
    graph: Graph

    def table(self) -> dict[str, np.ndarray]:
        """The id of each node and the predicted number."""
        return {"node": node_ids(self.graph), "prediction": self.number_N.numpy()}

    def lines(self) -> dict[str, str]:
        found = self.numbers()
        rows = {"nodes": f"{found['nodes']:,}"}
        rows |= {name: f"{found[name]:.4g}" for name in ("least", "mean", "most")}
        if known := found["known"]:
            rows[f"root mean squared error on {known:,} known nodes, training nodes included"] = f"{found['rmse']:.4g}"
        return rows

    def numbers(self) -> dict[str, Any]:
        number_N, target_NT = self.number_N.double(), placed(self.graph, self.names)
        wrong = torch.empty(0) if target_NT is None else number_N - target_NT.squeeze(1)
        wrong = wrong[~wrong.isnan()]
        return {
            "nodes": self.graph.num_nodes,
            "least": float(number_N.min()),
            "mean": float(number_N.mean()),
            "most": float(number_N.max()),
            "known": len(wrong),
            "rmse": float(wrong.square().mean().sqrt()) if len(wrong) else None,
        }
