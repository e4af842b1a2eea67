"""What strangers at the coordinator's port do to a federation: rounds before, during and after."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpub.bench import strangers
from fedpub.bench.watched import resident
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import Running
from fedpub.flower.local import lay_out, start_sites
from fedpub.flower.processes import require_flower, start, stop

SETTLED = 3  # rounds before anything is timed


@dataclass(frozen=True)
class Loaded:
    when: str
    rounds: int
    seconds_per_round: float
    slowest_seconds: float
    gate_bytes: int
    refused: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_load(
    dataset: str, sites: int, connections: int, seconds: float, rounds: int, root: Path | None = None
) -> list[Loaded]:
    """Rounds before, while so many strangers connect for so many seconds, and after; `rounds`: those before and after.

    The strangers are a process of this machine, with which everything else shares its processors.
    """
    require_flower()
    plan = Experiment(dataset, clients=sites, rounds=100_000).resolve()
    found: list[Loaded] = []
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder, ExitStack() as stack:
        base = Path(folder)
        coordinator, places = lay_out(base, prepare(plan, root), plan, Terms(), base / "run")
        stack.callback(stop, start_sites(places))
        running = stack.enter_context(Running(coordinator))
        ends: list[float] = []
        attack: list[Any] = []

        def on_round(row: object, total: int) -> None:
            ends.append(time.perf_counter())
            if not attack and len(ends) == SETTLED + rounds:
                found.append(_measured("before", ends[SETTLED - 1 :], running))
                words = [sys.executable, "-m", strangers.__name__, str(running.config.port), str(connections)]
                attack.append(start([*words, str(seconds)], base / "strangers.log"))
                stack.callback(stop, attack)
                ends.clear()
            elif len(found) == 1 and attack[0].poll() is not None:
                found.append(_measured(f"{connections} strangers", ends, running))
                ends.clear()
            elif len(found) == 2 and len(ends) == rounds + 1:
                found.append(_measured("after", ends, running))
                raise _EnoughError

        try:
            running.wait(on_round)
        except Exception as error:
            if not isinstance(error.__cause__, _EnoughError):
                raise
    return found


class _EnoughError(Exception):
    """Ends the rounds."""


def _measured(when: str, ends: list[float], running: Running) -> Loaded:
    times = [after - before for before, after in itertools.pairwise(ends)]
    post = running.post
    return Loaded(when, len(times), statistics.median(times), max(times), resident(post.pid), dict(post.refused))
