"""Federations of many small clients: cost per client with thousands of them.

Graphs are random, with a hundred nodes each; their content does not matter here. States that do not fit into the given
memory are kept on disk, and FED-PUB averages over only the most similar clients.
"""

from __future__ import annotations

import time

import torch

from fedpub.bench.timing import Timing, peak_bytes
from fedpub.core.rng import torch_stream
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.graph import undirected
from fedpub.engine.fitting import within
from fedpub.engine.simulate import Federation, simulate
from fedpub.experiment import Experiment

CLASSES, DEGREE = 5, 8


def random_clients(clients: int, nodes: int, features: int, seed: int = 0) -> list[Subgraph]:
    """Clients with random edges and features that are weakly informative about the label."""
    stream = torch_stream(seed, "scale")
    made = []
    for client in range(clients):
        y = torch.randint(CLASSES, (nodes,), generator=stream)
        x = torch.randn(nodes, features, generator=stream)
        x[torch.arange(nodes), y % features] += 2.0
        edges = undirected(torch.randint(nodes, (2, nodes * DEGREE // 2), generator=stream), nodes)
        part = torch.rand(nodes, generator=stream)
        sets = (part < 0.2, (part >= 0.2) & (part < 0.6), part >= 0.6)
        made.append(Subgraph(client, torch.arange(nodes), x.numpy(), edges, y, *sets, "symmetric"))
    return made


def bench_scale(
    clients: tuple[int, ...], nodes: int, features: int, method: str, neighbours: int, rounds: int, max_memory: float
) -> list[Timing]:
    """Seconds per client and round, for few and for many clients, in increasing order."""
    found: list[Timing] = []
    for count in sorted(clients):
        options = {"neighbours": min(neighbours, count)} if method == "fedpub" else {}
        plan = Experiment(method=method, options=options, rounds=rounds).resolve()
        algorithm, ctx = plan.algorithm, plan.context
        federation = Federation(random_clients(count, nodes, features), CLASSES, torch.device("cpu"))
        federation = within(algorithm, ctx, federation, max_memory * 2**30)
        began, times = time.perf_counter(), []
        for measured in simulate(algorithm, ctx, federation, rounds + 1):
            now = time.perf_counter()
            times.append(now - began)
            began = now
            left_out = measured.notes.get("left_out")
        seconds = min(times[1:])  # the first includes one-time work
        first = found[0] if found else None
        note = f"chunks of {federation.chunk or count}" + (", states on disk" if federation.on_disk else "")
        if left_out is not None:
            note += f", {100 * float(left_out.mean()):.1f} % of attention left out"
        found.append(
            Timing(
                name=f"{method}, {count} clients",
                clients=count,
                seconds_per_round=seconds,
                ratio=(first.seconds_per_round / first.clients) / (seconds / count) if first else None,
                versus=f"{first.name}, per client" if first else None,
                peak_bytes=peak_bytes(federation.device),
                note=note,
            )
        )
    return found
