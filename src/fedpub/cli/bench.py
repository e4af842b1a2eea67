"""Verbs that measure speed."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpub.algorithms import METHODS
from fedpub.bench.engine import bench_engine, bench_methods
from fedpub.bench.timing import Timing
from fedpub.files import write_text


def engine(
    dataset: str = "communities",
    scenario: str = "overlapping",
    clients: int = 50,
    methods: tuple[str, ...] = ("fedpub", "fedavg"),
    repeats: int = 7,
    device: str = "cpu",
    data_root: Path | None = None,
    json: Path | None = None,
) -> None:
    """Seconds per round of the stacked engine beside a plain per-client loop with PyG's layers, in one run.

    Example: fedpub bench engine --dataset communities --clients 10 --repeats 2

    Args:
        dataset: A name from `fedpub data list` or a graph file.
        scenario: How it is divided.
        clients: Number of clients.
        methods: fedpub, fedavg or both.
        repeats: Rounds that are timed, after two to warm up; the median counts.
        device: cpu or cuda.
        data_root: Folder of the raw files; else FEDPUB_DATA, else the cache folder.
        json: Also write the timings to this file.
    """
    found = bench_engine(dataset, scenario, clients, methods, repeats, device, data_root)
    if json is not None:
        write_text(json, json_module.dumps([one.to_json() for one in found], indent=2) + "\n")
    show_timings(found, "times faster than the PyG loop", [one.ratio for one in found])


def methods(
    dataset: str = "communities",
    scenario: str = "disjoint",
    clients: int = 10,
    methods: tuple[str, ...] = tuple(METHODS),
    repeats: int = 15,
    device: str = "cpu",
    data_root: Path | None = None,
    json: Path | None = None,
) -> None:
    """Seconds per round of every method beside FedAvg's, in one run, and the seconds of its set-up.

    Example: fedpub bench methods --dataset communities --clients 5 --repeats 2 --methods fedavg fedgnn fedpub

    Args:
        dataset: A name from `fedpub data list` or a graph file.
        scenario: How it is divided.
        clients: Number of clients.
        methods: Which.
        repeats: Rounds that are timed, after two to warm up; the median counts.
        device: cpu or cuda.
        data_root: Folder of the raw files; else FEDPUB_DATA, else the cache folder.
        json: Also write the timings to this file.
    """
    found = bench_methods(dataset, scenario, clients, methods, repeats, device, data_root)
    if json is not None:
        write_text(json, json_module.dumps([one.to_json() for one in found], indent=2) + "\n")
    show_timings(found, "times FedAvg's", [None if one.ratio is None else 1 / one.ratio for one in found])


def show_timings(found: list[Timing], heading: str, ratios: list[float | None]) -> None:
    table = Table("what", "clients", "set-up s", "s / round", heading, header_style="bold")
    for one, ratio in zip(found, ratios, strict=True):
        shown = "" if ratio is None else f"{ratio:.1f}"
        setup = f"{one.setup_seconds:.1f}" if one.setup_seconds else ""
        table.add_row(one.name, str(one.clients), setup, f"{one.seconds_per_round:.3f}", shown)
    Console(highlight=False).print(table)
