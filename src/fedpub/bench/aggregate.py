"""Benchmark of FED-PUB's server step, over all clients and over only the most similar ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fedpub.algorithms import FedPub
from fedpub.algorithms.measures import EMBEDDING
from fedpub.bench.roofline import Work, measure
from fedpub.bench.timing import Timing, in_turns, peak_bytes
from fedpub.core.message import Message
from fedpub.core.rng import torch_stream
from fedpub.core.tree import State, tree
from fedpub.experiment import Experiment

COMMUNITIES = 10  # clients of one community have similar embeddings


def bench_aggregate(
    clients: tuple[int, ...], features: int, neighbours: tuple[int, ...], repeats: int, device: str
) -> list[Timing]:
    """Seconds per server step, and the error from leaving clients out."""
    found: list[Timing] = []
    place = torch.device(device)
    machine = measure(place, torch.float32)
    plan = Experiment(method="fedpub").resolve()
    ctx, hidden = plan.context, plan.hidden
    for count in clients:
        method = FedPub(tau=5.0)
        stream = torch_stream(0, "aggregate", count)
        w0 = ctx.model.init(features, 5, stream)
        weights = {
            name: (leaf + 0.1 * torch.randn(count, *leaf.shape, generator=stream)).float().to(place)
            for name, leaf in w0.items()
        }
        centre = 4 * torch.randn(COMMUNITIES, hidden, generator=stream)
        own = torch.randn(count, hidden, generator=stream) + centre[torch.arange(count) % COMMUNITIES]
        server: State = {"weights": weights}
        up = Message({"weights": weights, EMBEDDING: own.to(place)})
        steps = {"all clients": method} | {
            f"the {some} most similar": replace(method, neighbours=some) for some in neighbours if some < count
        }
        exact, _ = method.server(ctx, server, torch.arange(count), up)

        def again(one: FedPub, server: State = server, up: Message = up, count: int = count) -> Iterator[object]:
            while True:
                yield one.server(ctx, server, torch.arange(count), up)

        medians = in_turns({name: again(one) for name, one in steps.items()}, repeats, place)
        entries = sum(leaf[0].numel() for leaf in weights.values())
        for name, one in steps.items():
            average, notes = one.server(ctx, server, torch.arange(count), up)
            error = max(
                float((tree(average["weights"])[leaf] - value).norm() / value.norm())
                for leaf, value in tree(exact["weights"]).items()
            )
            flops = 2.0 * count * (one.neighbours or count) * entries
            least = Work(flops, 2.0 * count * entries * 4).seconds(machine)
            note = f"relative error {error:.1e}"
            if one.neighbours:
                note += f", {100 * float(notes['left_out'].mean()):.1f} % of attention left out"
            found.append(
                Timing(
                    name=f"{count} clients, {name}",
                    clients=count,
                    seconds_per_round=medians[name],
                    ratio=medians["all clients"] / medians[name] if one.neighbours else None,
                    versus=f"{count} clients, all clients" if one.neighbours else None,
                    roofline=least / medians[name],
                    peak_bytes=peak_bytes(place),
                    note=note,
                )
            )
    return found
