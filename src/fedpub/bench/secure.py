"""What secure aggregation costs: the same rounds of a deployed federation, plain and secure."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedpub.bench.deploy import run_deployed
from fedpub.engine.simulate import first_weights
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower.processes import require_flower
from fedpub.store.directory import read_rows

FIRST = torch.tensor([0])
WAYS = "bytes_up", "bytes_down"


@dataclass(frozen=True)
class Cost:
    name: str
    sites: int
    weights: int
    rounds: int
    seconds_per_round: float
    over_plain: float  # how many times as long as a plain round
    bytes_up: float  # per site and round
    bytes_down: float
    up_over_plain: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_secure(
    dataset: str,
    method: str,
    sites: int,
    rounds: int,
    per_process: int = 1,
    root: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Cost]:
    """The costs of a plain run, and of a secure one after it; without defence, which a secure run cannot have."""
    require_flower()
    options = {"communities": "disjoint"} if method == "fedpub" else {}
    plan = Experiment(dataset, clients=sites, method=method, rounds=rounds, options=options, defence="none").resolve()
    ready = prepare(plan, root)
    sent_down = plan.algorithm.send(plan.algorithm.init_server(first_weights(ready.federation, plan.context), 1), FIRST)
    count = sum(leaf.numel() for part in sent_down.trees.values() for leaf in part.values())
    found: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder:
        for name in ("plain", "secure"):
            say(name)
            base = Path(folder) / name
            own = replace(plan.experiment, secure=name == "secure").resolve()
            times = run_deployed(base, own, ready, per_process, Terms())
            rows = read_rows(base / "run")[1:]  # the first waits for the start
            up, down = (sum(sum(row.clients[way]) for row in rows) / len(rows) / sites for way in WAYS)
            first = found[0] if found else None
            ratio = times.per_round / first.seconds_per_round if first else 1.0
            over = up / first.bytes_up if first else 1.0
            found.append(Cost(name, sites, count, len(rows) + 1, times.per_round, ratio, up, down, over))
    return found
