"""A long run with random faults: what the processes hold through it.

Sites are killed and started again, or stopped for a moment; the gate is killed; the coordinator is killed once, early,
and resumes; strangers connect. One site is left alone, so that it shows what it holds after all rounds.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from fedpub.bench import strangers
from fedpub.bench.watched import children, open_files, resident, rounds_in
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import Running
from fedpub.flower.local import lay_out, start_site
from fedpub.flower.processes import require_flower, start, stop
from fedpub.runs.progress import say
from fedpub.store.directory import RunDirectory

PATIENCE = 300.0  # seconds without a round
LOOK = 0.2


@dataclass(frozen=True)
class Held:
    """What was held after a round: bytes and open files of the coordinator, its gate, and the site left alone."""

    round: int
    seconds: float
    bytes: dict[str, int]
    files: dict[str, int]
    faults: dict[str, int]  # so far

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tiny(sites: int, rounds: int) -> Plan:
    return Experiment(clients=sites, rounds=rounds, hidden=4, epochs=1, dtype="float64").resolve()


def bench_soak(
    out: Path, sites: int, rounds: int, every: int, looks: int, seed: int = 0, say: Callable[[str], None] = say
) -> list[Held]:
    """What was held at so many moments of the run in `out`; a fault after `every` rounds, on average."""
    require_flower()
    RunDirectory.check_free(out)
    if sites < 2:
        raise FedpubError(f"`sites={sites}` is too few: one is left alone, so give 2 or more")
    plan = tiny(sites, rounds)
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder:
        base = Path(folder)
        coordinator, places = lay_out(base, prepare(plan, None), plan, Terms(deadline=60), out)
        trouble = _Trouble(base, coordinator, places, random.Random(seed), Running(coordinator).config.port)
        try:
            return trouble.through(out, rounds, every, looks, say)
        finally:
            trouble.end()


class _Trouble:
    def __init__(self, base: Path, coordinator: Path, places: list[Path], rng: random.Random, port: int) -> None:
        self._base, self._coordinator, self._places, self._rng, self._port = base, coordinator, places, rng, port
        self._leader = self._lead()
        self._sites = {place: start_site(place) for place in places}
        self._others: list[Popen[bytes]] = []
        self._faults: Counter[str] = Counter()

    def end(self) -> None:
        stop([self._leader, *self._sites.values(), *self._others])

    def through(self, out: Path, rounds: int, every: int, looks: int, say: Callable[[str], None]) -> list[Held]:
        found: list[Held] = []
        began = moved = time.monotonic()
        done, due = 0, max(1, every)
        early = max(1, rounds // 10)
        marks = [max(early + 1, rounds * number // looks) for number in range(1, looks + 1)]
        while not RunDirectory(out).finished:
            if time.monotonic() - moved > PATIENCE:
                raise FedpubError(f"no round for {PATIENCE:g} s after round {done}; see {self._base}")
            if (now := rounds_in(out)) > done:
                done, moved = now, time.monotonic()
            if done >= early:
                self._kill_coordinator()
                early = rounds + 1
            if done >= due:
                due = done + 1 + int(self._rng.expovariate(1 / every))
                self._one_fault(done < rounds // 2)
            if marks and done >= marks[0] and done < rounds:
                marks.pop(0)
                found.append(self._held(done, time.monotonic() - began))
                say(f"round {done}: {found[-1].faults}")
            time.sleep(LOOK / 10)
        return found

    def _held(self, done: int, seconds: float) -> Held:
        pids = {"coordinator": self._leader.pid, "site": self._sites[self._places[0]].pid}
        pids |= dict(zip(("gate",), children(self._leader.pid), strict=False))
        held = {name: resident(pid) for name, pid in pids.items()}
        return Held(done, seconds, held, {name: open_files(pid) for name, pid in pids.items()}, dict(self._faults))

    def _lead(self, *more: str) -> Popen[bytes]:
        words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--quiet", "--folder", str(self._coordinator)]
        return start([*words, *more], self._base / "coordinator.log")

    def _one_fault(self, gate_too: bool) -> None:
        kinds: list[Callable[[], None]] = [self._kill_site, self._stop_site, self._strangers]
        self._rng.choice([*kinds, self._kill_gate] if gate_too else kinds)()

    def _kill_coordinator(self) -> None:
        self._faults["coordinator killed"] += 1
        self._leader.kill()
        self._leader.wait()
        self._leader = self._lead("--resume")

    def _kill_site(self) -> None:
        self._faults["site killed"] += 1
        place = self._rng.choice(self._places[1:])
        self._sites[place].kill()
        self._sites[place].wait()
        self._sites[place] = start_site(place)

    def _stop_site(self) -> None:
        self._faults["site stopped for a second"] += 1
        site = self._sites[self._rng.choice(self._places[1:])]
        site.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        site.send_signal(signal.SIGCONT)

    def _kill_gate(self) -> None:
        for pid in children(self._leader.pid)[:1]:
            self._faults["gate killed"] += 1
            os.kill(pid, signal.SIGKILL)

    def _strangers(self) -> None:
        self._faults["50 strangers"] += 1
        words = [sys.executable, "-m", strangers.__name__, str(self._port), "50", "2"]
        self._others = [one for one in self._others if one.poll() is None]
        self._others.append(start(words, self._base / "strangers.log"))
