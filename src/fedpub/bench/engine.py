"""Speed of the engine, compared with a plain loop over clients that does the same work with PyG's layers.

Both compute, in each round: masked weights, one local epoch of Adam on weights and masks, the functional embedding on
the proxy graph, similarity-weighted aggregation, and evaluation of every client. They take turns within one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from fedpub.bench import flower
from fedpub.bench.pyg_loop import pyg_loop
from fedpub.bench.roofline import Machine, measure, round_work
from fedpub.bench.timing import Timing, in_turns, peak_bytes
from fedpub.engine.setup import set_up
from fedpub.engine.simulate import Federation, simulate
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import prepare


def bench_engine(
    dataset: str, scenario: str, clients: int, methods: tuple[str, ...], repeats: int, device: str, root: Path | None
) -> list[Timing]:
    """Seconds per round of the stacked engine, of the same algorithm one client at a time, and of a PyG loop."""
    if repeats < 1:
        raise FedpubError(f"`repeats={repeats}` is not possible; give 1 or more")
    found: list[Timing] = []
    machine: Machine | None = None
    for method in methods:
        if method not in ("fedpub", "fedavg"):
            raise unknown("method to bench", method, ("fedpub", "fedavg"))
        plan = Experiment(dataset, scenario, clients, method, epochs=1, defence="none", device=device).resolve()
        federation = prepare(plan, root).federation
        machine = machine or measure(federation.device, federation.dtype)
        (data,) = federation.chunks(list(range(federation.num_clients)))
        least = round_work(plan, data).seconds(machine)
        loop = f"{method}, PyG loop"
        contenders: dict[str, Iterator[object]] = {
            f"{method}, stacked": _rounds(plan, federation),
            f"{method}, one client at a time": _rounds(plan, replace(federation, chunk=1)),
            loop: pyg_loop(plan, federation),
        }
        medians = in_turns(contenders, repeats, federation.device)
        if method == "fedavg" and device == "cpu" and flower.is_installed():
            simulated = flower.seconds_per_round(plan, federation.num_clients, root)
            medians["fedavg, Flower's simulation"] = simulated
        found += [
            Timing(
                name=name,
                clients=federation.num_clients,
                seconds_per_round=seconds,
                ratio=None if name == loop else medians[loop] / seconds,
                versus=None if name == loop else loop,
                roofline=least / seconds,
                peak_bytes=peak_bytes(federation.device),
                note=f"{dataset} {scenario}; {machine}",
            )
            for name, seconds in medians.items()
        ]
    return found


def bench_methods(
    dataset: str, scenario: str, clients: int, methods: tuple[str, ...], repeats: int, device: str, root: Path | None
) -> list[Timing]:
    """Seconds per round of each method, compared with FedAvg, and seconds of its set-up before the first round."""
    if repeats < 1:
        raise FedpubError(f"`repeats={repeats}` is not possible; give 1 or more")
    contenders: dict[str, Iterator[object]] = {}
    seconds: dict[str, float] = {}
    for method in dict.fromkeys(("fedavg", *methods)):
        plan = Experiment(dataset, scenario, clients, method, epochs=1, defence="none", device=device).resolve()
        ready = prepare(plan, root)
        made = set_up(plan.algorithm, plan.context, ready.federation)
        seconds[method] = made.seconds if made else 0.0
        contenders[method] = _rounds(plan, made.extend(ready.federation) if made else ready.federation)
    medians = in_turns(contenders, repeats, torch.device(device))
    return [
        Timing(method, clients, taken, medians["fedavg"] / taken, "fedavg", setup_seconds=seconds[method])
        for method, taken in medians.items()
    ]


def bench_models(
    dataset: str,
    scenario: str,
    clients: int,
    method: str,
    models: tuple[str, ...],
    hidden: int,
    repeats: int,
    device: str,
    root: Path | None,
) -> list[Timing]:
    """Seconds per round of a method with each model, all equally wide, compared with the first model."""
    if repeats < 1:
        raise FedpubError(f"`repeats={repeats}` is not possible; give 1 or more")
    if not models:
        raise FedpubError("there is nothing to time; name one model or more with `models`")
    contenders: dict[str, Iterator[object]] = {}
    for model in dict.fromkeys(models):
        asked = Experiment(dataset, scenario, clients, method, model=model, hidden=hidden, defence="none")
        plan = replace(asked, epochs=1, device=device).resolve()
        contenders[model] = _rounds(plan, prepare(plan, root).federation)
    medians = in_turns(contenders, repeats, torch.device(device))
    first = models[0]
    return [Timing(model, clients, taken, medians[first] / taken, first) for model, taken in medians.items()]


def _rounds(plan: Plan, federation: Federation) -> Iterator[object]:
    return simulate(plan.algorithm, plan.context, federation, rounds=10**6)
