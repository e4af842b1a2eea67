"""A coordinator's folder: the experiment, the admitted sites and the terms."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from fedpub.core.files import append_line, write_text
from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.federation.journal import FILE as LOG
from fedpub.federation.requests import Terms

CONFIG = "coordinator.json"
LOOKS = 5  # attempts to lock the folder


@dataclass(frozen=True)
class CoordinatorConfig:
    bind: str  # the address of this machine that the gate listens on
    port: int
    run: str  # the run's name: sites keep their state under it
    experiment: Experiment
    terms: Terms
    out: str = "run"  # the run directory, from the coordinator's folder

    @staticmethod
    def new(bind: str, port: int, experiment: Experiment | Plan, terms: Terms, out: str = "run") -> CoordinatorConfig:
        return CoordinatorConfig(bind, port, secrets.token_hex(8), experiment.resolve().experiment, terms, out)

    def save(self, folder: Path) -> None:
        held = asdict(replace(self, experiment=Experiment())) | {"experiment": json.loads(self.experiment.to_json())}
        write_text(folder / CONFIG, json.dumps(held, indent=2) + "\n")

    @staticmethod
    def load(folder: Path) -> CoordinatorConfig:
        path = folder / CONFIG
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            experiment = Experiment.from_json(json.dumps(held.pop("experiment")), path)
            return CoordinatorConfig(experiment=experiment, terms=Terms(**held.pop("terms")), **held)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FedpubError(
                f"{folder} is not a coordinator's folder ({error}); create one with fedpub coordinator init"
            ) from error


@dataclass(frozen=True)
class CoordinatorFolder:
    """The files of the folder, by their purpose."""

    path: Path

    @property
    def admitted(self) -> Path:
        return self.path / "admitted.txt"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def audit(self) -> Path:
        """The log of all messages."""
        return self.path / LOG

    @property
    def app(self) -> Path:
        """For a Flower federation."""
        return self.path / "flower" / "app"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def out(self, config: CoordinatorConfig) -> Path:
        return (self.path / config.out).resolve()

    def event(self, site: str | None, what: str, number: int, reason: str) -> dict[str, Any]:
        """Log an event; parts of `reason` may come from sites."""
        line = {
            "time": round(time.time(), 3),
            "site": site,
            "event": what,
            "round": number,
            "reason": printable(reason),
        }
        append_line(self.events, json.dumps(line))
        return line

    def read_events(self) -> list[dict[str, Any]]:
        """All events except those cut short by a kill or a full disk."""
        if not self.events.is_file():
            return []
        found = []
        for line in self.events.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                one = json.loads(line)
                if isinstance(one, dict) and {"time", "site", "event", "round", "reason"} <= one.keys():
                    found.append(one)
        return found

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Only one process at a time coordinates; the system releases the lock however the process ends."""
        with self._lock.open("ab") as file:
            tries = 0
            while not _is_locked_by_us(file):  # a look at the status has the lock for an instant
                if (tries := tries + 1) > LOOKS:
                    raise FedpubError(f"a coordinator is already running in {self.path}; stop it first")
                time.sleep(0.02)
            yield

    def is_in_use(self) -> bool:
        if not self._lock.is_file():
            return False
        with self._lock.open("rb") as file:
            return not _is_locked_by_us(file)

    @property
    def _lock(self) -> Path:
        return self.path / "lock"


def _is_locked_by_us(file: IO[bytes]) -> bool:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has no such lock
        return True
    except OSError:
        return False
    return True
