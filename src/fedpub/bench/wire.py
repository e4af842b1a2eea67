"""Bytes sent per round, counted from the encoded messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpub.experiment import Experiment
from fedpub.federation.in_process import run_in_process
from fedpub.federation.wire_header import Precision

# How strongly masks are driven to zero: the L1 and the masks' learning rate.
STRENGTHS: dict[str, dict[str, Any]] = {
    "no L1": {"lambda1": 0.0},
    "weak L1": {"lambda1": 0.7, "mask_lr": 7.0},
    "strong L1": {"lambda1": 3.0, "mask_lr": 5.0},
}


@dataclass(frozen=True)
class Traffic:
    """A site's round: average bytes sent and received, and its result."""

    name: str
    precision: Precision
    zeros: float
    bytes_up: float
    bytes_down: float
    of_fedavg: float  # bytes up relative to FedAvg's
    test: float
    seconds: float  # per round, all sites one after the other in this process


def bench_wire(dataset: str, scenario: str, clients: int, rounds: int, root: Path | None) -> list[Traffic]:
    """The last round of runs on the same data, through messages and files in this process."""
    cells: list[tuple[str, str, dict[str, Any], Precision]] = [("FedAvg", "fedavg", {}, "exact")]
    cells += [(f"FED-PUB, {name}", "fedpub", options, "exact") for name, options in STRENGTHS.items()]
    cells += [("FED-PUB, strong L1", "fedpub", STRENGTHS["strong L1"], kind) for kind in ("float16", "int8")]
    found: list[Traffic] = []
    for name, method, options, precision in cells:
        experiment = Experiment(dataset, scenario, clients, method, options, rounds=rounds)
        summary, last = run_in_process(experiment, precision, root)
        up, down = (sum(last.clients[column]) / clients for column in ("bytes_up", "bytes_down"))
        first = found[0].bytes_up if found else up
        found.append(
            Traffic(name, precision, last.mean("sparsity"), up, down, up / first, summary["test"], last.seconds)
        )
    return found
