"""The data of an experiment: loaded, split and divided among its clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedpub.core.steps import Step, silent
from fedpub.data import datasets
from fedpub.data.clients.partition import Partition, cached_partition
from fedpub.data.clients.split import check_learnable, with_split
from fedpub.data.graph import Graph, alike
from fedpub.engine.simulate import Federation
from fedpub.errors import FedpubError
from fedpub.experiment.defaults import usual_ratios
from fedpub.experiment.plan import OBJECT, Plan


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data of an experiment, divided among its clients."""

    graph: Graph
    partition: Partition
    federation: Federation

    @property
    def idle(self) -> tuple[int, ...]:
        """The clients that have nothing to train on."""
        return tuple(own.id for own in self.federation.subgraphs if not own.num_train)


def prepare(
    plan: Plan, root: Path | None = None, chunk: int | None = None, graph: Graph | None = None, step: Step = silent
) -> Prepared:
    """Load, split and divide the graph of a plan; `graph` replaces loading it."""
    step("loading", 0, None)
    graph = datasets.load(plan.dataset, root) if graph is None else graph
    if not graph.num_features:
        raise FedpubError(
            f"graph {graph.name!r} has no features to learn from; give its nodes some, such as their degree"
        )
    step("partition", 0, None)
    clients = plan.experiment.clients  # none for natural ones
    parts = cached_partition(graph, plan.scenario, clients, plan.data_seed, plan.alpha)
    divided = with_sets(plan, usable(plan, graph))
    if plan.task.of_classes and plan.split != "published":
        check_learnable(divided)
    step("dividing", 0, None)
    how = (divided, parts.nodes, plan.data_seed, plan.ratios, plan.model.propagation)
    report = None
    if plan.algorithm.undivided:
        everything, report = plan.task.undivided(*how)
        subgraphs = [everything]
    else:
        subgraphs = plan.task.divide(*how)
    return Prepared(graph, parts, Federation(subgraphs, graph.num_classes, plan.device, plan.dtype, chunk, report))


def usable(plan: Plan, graph: Graph) -> Graph:
    """The graph with those directions and kinds of edges that the plan can use; what it cannot use is said."""
    if plan.relational:
        return graph
    if plan.task.of_pairs:
        return alike(graph, "link prediction", weighted=False)
    return alike(graph, f"the model {str(plan.experiment.model).removeprefix(OBJECT)}")


def with_sets(plan: Plan, graph: Graph) -> Graph:
    """The graph with the sets of its nodes, unless the plan draws them."""
    if plan.task.of_pairs:
        return graph
    asked = None if plan.ratios == usual_ratios(plan.dataset, plan.task) else plan.ratios
    return with_split(graph, plan.split, datasets.published_ratios(plan.dataset), asked)
