"""Verbs that measure speed."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpub.bench import Timing, bench_engine
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
    show_timings(found)


def show_timings(found: list[Timing]) -> None:
    table = Table("what", "clients", "s / round", "times faster than the PyG loop", header_style="bold")
    for one in found:
        ratio = "" if one.ratio is None else f"{one.ratio:.1f}"
        table.add_row(one.name, str(one.clients), f"{one.seconds_per_round:.3f}", ratio)
    Console(highlight=False).print(table)
