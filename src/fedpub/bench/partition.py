"""Benchmark of dividing a large graph and of computing its statistics."""

from __future__ import annotations

import time

import torch

from fedpub.bench.timing import Timing, peak_bytes
from fedpub.core.rng import torch_stream
from fedpub.data.clients.partition import partition
from fedpub.data.clients.split import split
from fedpub.data.clients.statistics import partition_statistics
from fedpub.data.graph import Graph, undirected

CLASSES, SPREAD = 10, 200  # most edges join nodes with close indices


def large_graph(nodes: int, edges: int, seed: int = 0) -> Graph:
    """A random graph with communities."""
    stream = torch_stream(seed, "partition")
    u = torch.randint(nodes, (edges,), generator=stream)
    near = (u + torch.randint(1, SPREAD, (edges,), generator=stream)) % nodes
    far = torch.randint(nodes, (edges,), generator=stream)
    v = torch.where(torch.rand(edges, generator=stream) < 0.9, near, far)
    y = (torch.arange(nodes) * CLASSES // nodes + torch.randint(2, (nodes,), generator=stream)) % CLASSES
    pairs = undirected(torch.stack([u, v])[:, u != v], nodes)
    names = tuple(str(number) for number in range(CLASSES))
    return Graph(x=torch.ones(nodes, 1), y=y, edges=pairs, classes=names, name="large")


def bench_partition(nodes: int, edges: int, clients: int, scenarios: tuple[str, ...]) -> list[Timing]:
    """Seconds for dividing the graph in each scenario, and for the statistics of the result."""
    graph = large_graph(nodes, edges)
    sets = split(graph, 0)
    found: list[Timing] = []
    for scenario in scenarios:
        start = time.perf_counter()
        parts = partition(graph, scenario, clients, 0)
        middle = time.perf_counter()
        partition_statistics(graph, parts, sets)
        end = time.perf_counter()
        shape = f"{graph.num_nodes:,} nodes, {graph.edges.shape[1]:,} edges"
        for what, seconds in (("divide", middle - start), ("statistics", end - middle)):
            peak = peak_bytes(torch.device("cpu"))
            found.append(Timing(f"{scenario}, {what}", clients, seconds, peak_bytes=peak, note=shape))
    return found
