"""What deployment costs: a round with sites as processes, TLS and keys, against the same messages in one process.

Beside both, the same rounds in a Flower federation by `flwr run`, where SuperNodes start a process for every message.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import Running, write_app
from fedpub.flower.folder import CoordinatorFolder
from fedpub.flower.local import lay_out, start_sites
from fedpub.flower.processes import free_port, require_flower, start, stop
from fedpub.store.directory import read_rows

PATIENCE = 600.0  # seconds for a start, or for a round by `flwr run`
LOOK = 0.02  # seconds between two looks at the rounds of another process


@dataclass(frozen=True)
class Deployed:
    name: str
    sites: int
    rounds: int
    seconds_per_round: float
    overhead_seconds: float | None  # per round, over the same messages in one process
    first_round_seconds: float  # from the first command to the end of the first round
    total_seconds: float  # of all rounds

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_deploy(
    dataset: str,
    method: str,
    sites: int,
    rounds: int,
    flower_rounds: int,
    scenario: str = "disjoint",
    root: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Deployed]:
    """Timings of a deployment and, where `flower_rounds` is not 0, of `flwr run`."""
    require_flower()
    natural = dataset == "communities"
    asked = Experiment(dataset, None if natural else scenario, clients=None if natural else sites, method=method)
    plan = replace(asked, rounds=rounds).resolve()
    ready = prepare(plan, root)
    count = len(ready.federation.subgraphs)
    found = []
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder:
        base = Path(folder)
        say("in one process")
        here = _in_one_process(base / "here", plan, ready)
        found.append(_measured("the same messages in one process", count, here, None))
        say("deployed")
        there = _deployed(base / "there", plan, ready)
        found.append(_measured("deployed, with TLS and keys", count, there, here))
        if flower_rounds:
            say("flwr run")
            short = replace(plan.experiment, rounds=flower_rounds).resolve()
            beside = _flwr_run(base / "flwr", short, ready)
            found.append(_measured("flwr run, without TLS and keys", count, beside, here))
    return found


class _Times:
    """When it began, and when each round ended."""

    def __init__(self) -> None:
        self.began, self.ends = time.perf_counter(), list[float]()

    def on_round(self, row: object, rounds: int) -> None:
        self.ends.append(time.perf_counter())

    @property
    def per_round(self) -> float:
        """The median, without the first round, which waits for the start."""
        return statistics.median(after - before for before, after in itertools.pairwise(self.ends))


def _measured(name: str, sites: int, times: _Times, base: _Times | None) -> Deployed:
    over = None if base is None else times.per_round - base.per_round
    first = times.ends[0] - times.began
    return Deployed(name, sites, len(times.ends), times.per_round, over, first, times.ends[-1] - times.ends[0])


def _in_one_process(base: Path, plan: Plan, ready: Prepared) -> _Times:
    """With one thread, which is what each deployed site has."""
    sites = InProcessSites(base / "sites", plan, ready=ready)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = _Times()
        play(Coordinator(plan, "0" * 16, sites.names, sites, base / "sites"), base / "run", times.on_round)
        return times
    finally:
        torch.set_num_threads(threads)


def _deployed(base: Path, plan: Plan, ready: Prepared) -> _Times:
    times = _Times()
    coordinator, sites = lay_out(base, ready, plan, Terms(), base / "run")
    with ExitStack() as stack:
        stack.callback(stop, start_sites(sites))
        stack.enter_context(Running(coordinator)).wait(times.on_round)
    return times


def _flwr_run(base: Path, plan: Plan, ready: Prepared) -> _Times:
    """The app that every coordinator's folder holds, in Flower's own federation on loopback."""
    times, out = _Times(), base / "run"
    coordinator, sites = lay_out(base, ready, plan, Terms(), out)
    beside, app, port = Path(sys.executable).parent, CoordinatorFolder(coordinator).app, free_port()
    write_app(app)
    env = {"FLWR_HOME": str(base / "home"), "PATH": f"{beside}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    (base / "home").mkdir()
    (base / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    link = [beside / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    running = [start([*link, "--disable-runtime-dependency-installation"], base / "superlink.log", env)]
    try:
        _until(lambda: "Uvicorn running" in _text(base / "superlink.log"), base / "superlink.log")
        for site in sites:
            words = [beside / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}"]
            words += ["--port", str(free_port()), "--node-config", f'folder="{site}"']
            running.append(start(words, site / "node.log", env))
        words = [beside / "flwr", "run", app, "here", "--run-config", f'folder="{coordinator}"']
        if start(words, base / "flwr.log", env).wait(PATIENCE):
            raise FedpubError(f"`flwr run` failed: {_text(base / 'flwr.log')[-500:]}")
        for done in range(1, plan.rounds + 1):
            _until(lambda done=done: out.is_dir() and len(read_rows(out)) >= done, base / "superlink.log")  # type: ignore[misc]
            times.on_round(None, plan.rounds)
    finally:
        stop(running)
    return times


def _until(done: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise FedpubError(f"Flower's federation made no progress for {PATIENCE:g} s: {_text(log)[-500:]}")
        time.sleep(LOOK)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
