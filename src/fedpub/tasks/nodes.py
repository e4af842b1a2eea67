"""What tasks have in common whose examples are nodes: classes, several labels, numbers.

Axes: K clients, N nodes, M some of them, C outputs, T targets, R reported clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios, Split, split
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.models.base import Model
from fedpub.tasks.base import Step, Task, examples, outputs


class NodeTask(Task, Protocol):
    """A task whose examples are nodes, with an output of the model for every class or target."""

    def known(self, graph: Graph) -> Tensor:
        """The nodes that can be examples, [N], bool; raises an error if the graph has nothing that this task learns."""

    def wrong(self, output_MC: Tensor, data: Clients, rows_M: Tensor) -> Tensor:
        """The loss of each of these nodes, [M]."""

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        chosen = self.masks(graph, seed, ratios)
        return [subgraph_of(graph, own, chosen, client, kind) for client, own in enumerate(nodes)]

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        everything = subgraph_of(graph, torch.arange(graph.num_nodes), self.masks(graph, seed, ratios), 0, kind)
        return everything, Report.of(nodes)

    def masks(self, graph: Graph, seed: int, ratios: Ratios) -> Split:
        return split(graph, seed, ratios, self.known(graph))

    def outputs(self, num_classes: int) -> int:
        return num_classes

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        data = examples(model, data)
        rows = data.train_rows
        each_M = self.wrong(model.apply(w, data, step.dropout)[rows], data, rows)
        total_K = each_M.new_zeros(data.num_clients).index_add(0, data.segments.owner_N[rows], each_M)
        return total_K / data.num_train_K.clamp(min=1)

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        tested = _tested(held, report)
        return torch.bincount(tested.owner_M, minlength=tested.num_clients)


class TargetTask(NodeTask, Protocol):
    """A task that learns the targets of a graph, whose names are in the place of classes."""

    baseline: ClassVar[str] = "constant"
    baseline_title: ClassVar[str] = "same for all nodes"
    of_targets: ClassVar[bool] = True
    steady: ClassVar[bool] = True

    def misfit(self, target_NT: Tensor | None) -> str | None:
        """Why these targets are not what this task learns, and the way out; None if they are."""

    def judge(self, output_MT: Tensor, target_MT: Tensor, owner_M: Tensor, clients: int) -> dict[str, Tensor]:
        """Metrics of every client, [R], double, by the ends of their names; the empty one is the chosen metric."""

    def known(self, graph: Graph) -> Tensor:
        if why := self.misfit(graph.target):
            raise FedpubError(f"graph {graph.name!r} {why}")
        assert graph.target is not None
        if graph.target.shape[1] != graph.num_classes:
            raise FedpubError(
                f"graph {graph.name!r} has {graph.target.shape[1]} targets and {graph.num_classes} names; "
                "name every target in its classes"
            )
        return ~graph.target.isnan().all(1)

    def was_split_for(self, own: Subgraph) -> bool:
        return own.links is None and self.misfit(own.target) is None

    @torch.no_grad()
    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        output_NT, target_NT = outputs(model, w, data), targets(data)
        found: dict[str, Tensor] = {}
        for part, report in (("val", data.val_report), ("test", data.test_report)):
            rows = report.rows_M
            judged = self.judge(output_NT[rows], target_NT[rows], report.owner_M, report.num_clients)
            found |= {part + end: value_R for end, value_R in judged.items()}
        val = data.val_report
        wrong_M = self.wrong(output_NT[val.rows_M], data, val.rows_M).double()
        total_R, count_R = (summed(one, val.owner_M, val.num_clients) for one in (wrong_M, torch.ones_like(wrong_M)))
        return found | {"val_loss": total_R / count_R}

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """The metric of the same output for every node, whatever that is."""
        tested, known = _tested(held, report), [own.target for own in held if own.target is not None]
        target_MT = torch.cat(known)[tested.rows_M]
        return self.judge(torch.ones_like(target_MT), target_MT, tested.owner_M, tested.num_clients)[""]


def targets(data: Clients) -> Tensor:
    assert data.target_NT is not None, "these clients were not divided for a task with targets"
    return data.target_NT


def summed(value_M: Tensor, owner_M: Tensor, clients: int) -> Tensor:
    """The sum over the nodes of each client, [R, ...]; not bincount, which reads the values to size its result."""
    return value_M.new_zeros(clients, *value_M.shape[1:]).index_add(0, owner_M, value_M)


def placed(graph: Graph, classes: tuple[str, ...]) -> Tensor | None:
    """The graph's targets, in the columns of the same names among `classes`; the others are unknown."""
    if graph.target is None or graph.target.shape[1] != graph.num_classes:
        return graph.target  # the names are those of classes
    wide_NT = graph.target.new_full((graph.num_nodes, len(classes)), torch.nan)
    wide_NT[:, [classes.index(name) for name in graph.classes]] = graph.target
    return wide_NT


def _tested(held: Sequence[Subgraph], report: Report | None) -> Report:
    return (report or Report.own(held)).only(torch.cat([own.test for own in held]))
