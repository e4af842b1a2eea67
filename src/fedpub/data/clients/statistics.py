"""Statistics of a partition: the paper's table, and more.

Edges are counted in both directions, as the paper does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from fedpub.core.steps import Step, silent
from fedpub.data.clients.partition import Partition
from fedpub.data.clients.split import Split
from fedpub.data.graph import Graph, induced_edges


@dataclass(frozen=True)
class GraphStatistics:
    nodes: int
    edges: int
    classes: int  # that occur
    clustering: float  # mean clustering coefficient, nodes of degree 0 and 1 count as zero
    isolated: int  # nodes without an edge


@dataclass(frozen=True)
class PartitionStatistics:
    """Means over the clients unless stated otherwise."""

    dataset: str
    scenario: str
    clients: int
    nodes: float
    edges: float
    classes: int  # of the whole graph
    clustering: float
    heterogeneity: float  # median Jensen-Shannon distance of the label distributions, over all pairs of clients
    heterogeneity_mean: float
    missing_edges: int  # in total: both ends are held, but by no client together
    isolated_nodes: float
    classes_per_client: float
    training_nodes: tuple[int, ...]  # of each client
    graph: GraphStatistics  # before it was partitioned
    per_client: tuple[GraphStatistics, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def graph_statistics(edges: Tensor, y: Tensor) -> GraphStatistics:
    import igraph

    nodes = len(y)
    graph = igraph.Graph(n=nodes, edges=edges.T.numpy())
    degree = torch.bincount(edges.flatten(), minlength=nodes)
    return GraphStatistics(
        nodes=nodes,
        edges=2 * edges.shape[1],
        classes=len(torch.unique(y[y >= 0])),
        clustering=float(graph.transitivity_avglocal_undirected(mode="zero")),
        isolated=int((degree == 0).sum()),
    )


def label_counts(graph: Graph, partition: Partition) -> np.ndarray:
    """Nodes per client and class, [K, C]."""
    counts = []
    for own in partition.nodes:
        y = graph.y[own]
        counts.append(torch.bincount(y[y >= 0], minlength=graph.num_classes).numpy())
    return np.stack(counts)


def label_distances(graph: Graph, partition: Partition) -> np.ndarray:
    """Jensen-Shannon distance (natural logarithm) of every pair of clients i < j that have labels."""
    counts_KC = label_counts(graph, partition)
    counts_KC = counts_KC[counts_KC.sum(1) > 0]
    i, j = np.triu_indices(len(counts_KC), k=1)
    return np.asarray(jensenshannon(counts_KC[i], counts_KC[j], axis=1))


def missing_edges(pairs: Tensor, graph: Graph, partition: Partition) -> int:
    """Directed edges between held nodes that no client sees."""
    owners = np.repeat(np.arange(partition.num_clients), [len(own) for own in partition.nodes])
    nodes = torch.cat(partition.nodes).numpy()
    shape = (graph.num_nodes, partition.num_clients)
    holds_NK = sp.csr_matrix((np.ones(len(nodes), np.int32), (nodes, owners)), shape=shape)
    u, v = pairs.numpy()
    held_by = np.asarray(holds_NK.sum(1)).ravel()
    together = np.asarray(holds_NK[u].multiply(holds_NK[v]).sum(1)).ravel()
    return 2 * int(((held_by[u] > 0) & (held_by[v] > 0) & (together == 0)).sum())


def partition_statistics(graph: Graph, partition: Partition, chosen: Split, step: Step = silent) -> PartitionStatistics:
    step("statistics", 0, partition.num_clients + 1)
    pairs = graph.pairs
    whole, own = graph_statistics(pairs, graph.y), []
    for client, nodes in enumerate(partition.nodes):
        step("statistics", client + 1, partition.num_clients + 1)
        own.append(graph_statistics(induced_edges(pairs, nodes, graph.num_nodes), graph.y[nodes]))
    distances = label_distances(graph, partition)

    def mean(field: str) -> float:
        return float(np.mean([getattr(client, field) for client in own]))

    return PartitionStatistics(
        dataset=graph.name,
        scenario=partition.scenario,
        clients=partition.num_clients,
        nodes=mean("nodes"),
        edges=mean("edges"),
        classes=graph.num_classes,
        clustering=mean("clustering"),
        heterogeneity=float(np.median(distances)) if len(distances) else 0.0,
        heterogeneity_mean=float(np.mean(distances)) if len(distances) else 0.0,
        missing_edges=missing_edges(pairs, graph, partition),
        isolated_nodes=mean("isolated"),
        classes_per_client=mean("classes"),
        training_nodes=tuple(int(chosen.train[nodes].sum()) for nodes in partition.nodes),
        graph=whole,
        per_client=tuple(own),
    )
