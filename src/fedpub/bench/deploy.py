"""What deployment costs: a round with sites as processes, TLS and keys, against the same messages in one process.

Beside both, the same rounds in a Flower federation by `flwr run`, where SuperNodes start a process for every message.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedpub.bench import many_sites
from fedpub.bench.watched import children, peak, rounds_in
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import write_app
from fedpub.flower.folder import CoordinatorFolder
from fedpub.flower.local import lay_out, start_sites
from fedpub.flower.processes import free_port, require_flower, start, stop
from fedpub.store.directory import RunDirectory

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
    total_seconds: float  # of all rounds after the first
    coordinator_bytes: int | None = None  # peak memory of its process
    gate_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_deploy(
    dataset: str,
    method: str,
    sites: int,
    rounds: int,
    flower_rounds: int = 0,
    per_process: int = 1,
    root: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Deployed]:
    """Timings of a deployment and, where `flower_rounds` is not 0, of `flwr run`."""
    require_flower()
    plan = Experiment(dataset, clients=sites, method=method, rounds=rounds).resolve()
    ready = prepare(plan, root)
    found = []
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder:
        base = Path(folder)
        say("the same messages in one process")
        here = _in_one_process(base / "here", plan, ready)
        found.append(_measured("one process", sites, here, None))
        say("deployed")
        there = run_deployed(base / "there", plan, ready, per_process, Terms())
        found.append(_measured("deployed", sites, there, here))
        if flower_rounds:
            say("flwr run")
            short = replace(plan.experiment, rounds=flower_rounds).resolve()
            beside = _flwr_run(base / "flwr", short, ready)
            found.append(_measured("flwr run", sites, beside, here))
    return found


class _Times:
    """When it began, and when each round ended."""

    def __init__(self) -> None:
        self.began, self.ends = time.perf_counter(), list[float]()
        self.peaks: Sequence[int | None] = (None, None)  # bytes of the coordinator and of its gate

    def on_round(self, row: object, rounds: int) -> None:
        self.ends.append(time.perf_counter())

    @property
    def per_round(self) -> float:
        """The median, without the first round, which waits for the start."""
        return statistics.median(after - before for before, after in itertools.pairwise(self.ends))


def _measured(name: str, sites: int, times: _Times, base: _Times | None) -> Deployed:
    over = None if base is None else times.per_round - base.per_round
    first = times.ends[0] - times.began
    total = times.ends[-1] - times.ends[0]
    return Deployed(name, sites, len(times.ends), times.per_round, over, first, total, *times.peaks)


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


def run_deployed(base: Path, plan: Plan, ready: Prepared, per_process: int, terms: Terms) -> _Times:
    """Every process as an operator would start it, but several sites in one process where that is asked for."""
    times, out, log = _Times(), base / "run", base / "coordinator.log"
    coordinator, sites = lay_out(base, ready, plan, terms, out)
    words: list[str | Path] = [sys.executable, "-m", "fedpub", "coordinator", "start", "--quiet"]
    running = [start([*words, "--folder", coordinator], log)]
    try:
        if per_process == 1:
            running += start_sites(sites)
        for few in _groups(sites, per_process) if per_process > 1 else ():
            words = [sys.executable, "-m", many_sites.__name__, *few]
            running.append(start(words, few[0] / "logs" / "sites.log", {"OMP_NUM_THREADS": "1"}))
        for done in range(1, plan.rounds + 1):
            _until(lambda done=done: running[0].poll() is not None or rounds_in(out) >= done, log)  # type: ignore[misc]
            if rounds_in(out) < done:
                raise FedpubError(f"the coordinator ended: {_text(log)[-500:]}")
            times.on_round(None, plan.rounds)
            times.peaks = _peaks(running[0].pid) or times.peaks
        running[0].wait(PATIENCE)
    finally:
        stop(running)
    return times


def _groups(sites: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    for first in range(0, len(sites), size):
        yield sites[first : first + size]


def _peaks(pid: int) -> list[int] | None:
    """The peak memory of the coordinator and of its gate; None where the system does not tell, or it has ended."""
    found = [peak(pid), *map(peak, children(pid)[:1])]
    return found if len(found) == 2 and all(found) else None


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
    link: list[str | Path] = [beside / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    running = [start([*link, "--disable-runtime-dependency-installation"], base / "superlink.log", env)]
    try:
        _until(lambda: "Uvicorn running" in _text(base / "superlink.log"), base / "superlink.log")
        for site in sites:
            words: list[str | Path] = [beside / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}"]
            words += ["--port", str(free_port()), "--node-config", f'folder="{site}"']
            running.append(start(words, site / "node.log", env))
        words = [beside / "flwr", "run", app, "here", "--run-config", f'folder="{coordinator}"']
        if start(words, base / "flwr.log", env).wait(PATIENCE):
            raise FedpubError(f"`flwr run` failed: {_text(base / 'flwr.log')[-500:]}")
        for done in range(1, plan.rounds + 1):
            _until(lambda done=done: rounds_in(out) >= done, base / "superlink.log")  # type: ignore[misc]
            times.on_round(None, plan.rounds)
        _until(lambda: RunDirectory(out).finished, base / "superlink.log")
    finally:
        stop(running)
        _end_strays(base)
    return times


def _end_strays(base: Path) -> None:
    """End what Flower has started for this run in sessions of its own, where the system tells."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FLWR_HOME={base / 'home'}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def _until(done: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise FedpubError(f"Flower's federation made no progress for {PATIENCE:g} s: {_text(log)[-500:]}")
        time.sleep(LOOK)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
