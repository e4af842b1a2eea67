"""The data of an experiment: loaded, split and divided among its clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from fedpub.algorithms import Oracle
from fedpub.data import datasets
from fedpub.data.clients.partition import Partition, cached_partition
from fedpub.data.graph import Graph
from fedpub.engine.simulate import Federation
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment


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
    experiment: Experiment, root: Path | None = None, chunk: int | None = None, graph: Graph | None = None
) -> Prepared:
    """Load, split and divide the graph of a resolved experiment; `graph` is it where it need not be loaded."""
    assert experiment.scenario is not None
    assert experiment.data_seed is not None
    assert experiment.ratios is not None
    graph = datasets.load(experiment.dataset, root) if graph is None else graph
    if not graph.num_features:
        raise FedpubError(
            f"graph {graph.name!r} has no features to learn from; give its nodes some, such as their degree"
        )
    parts = cached_partition(graph, experiment.scenario, experiment.clients, experiment.data_seed, experiment.alpha)
    kind, task = experiment.net().propagation, experiment.learns()
    how = (graph, parts.nodes, experiment.data_seed, experiment.ratios, kind)
    report = None
    if isinstance(experiment.algorithm(), Oracle):
        everything, report = task.undivided(*how)
        subgraphs = [everything]
    else:
        subgraphs = task.divide(*how)
    dtype = getattr(torch, experiment.dtype)
    federation = Federation(subgraphs, graph.num_classes, torch.device(experiment.device), dtype, chunk, report)
    return Prepared(graph, parts, federation)
