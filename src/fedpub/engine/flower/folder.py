"""A coordinator's folder: what is to be run, with whom, on which terms."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedpub.engine.federate import Terms
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.files import append_text, write_text

CONFIG = "coordinator.json"


@dataclass(frozen=True)
class CoordinatorConfig:
    bind: str  # the address of this machine that the gate listens on
    port: int
    run: str  # the run's name: sites keep their state under it
    experiment: Experiment
    terms: Terms
    out: str = "run"  # the run directory, from the coordinator's folder

    @staticmethod
    def new(bind: str, port: int, experiment: Experiment, terms: Terms, out: str = "run") -> CoordinatorConfig:
        return CoordinatorConfig(bind, port, secrets.token_hex(8), experiment.resolved(), terms, out)

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
                f"{folder} is not a coordinator's folder ({error}); make one with fedpub coordinator init"
            ) from error


@dataclass(frozen=True)
class CoordinatorFolder:
    """The files in it, by what they are."""

    path: Path

    @property
    def admitted(self) -> Path:
        return self.path / "admitted.txt"

    @property
    def nodes(self) -> Path:
        """Which of Flower's nodes each site's key is."""
        return self.path / "nodes.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def process(self) -> Path:
        """The process that plays the rounds."""
        return self.path / "server.pid"

    @property
    def failure(self) -> Path:
        return self.path / "failed.txt"

    @property
    def joined(self) -> Path:
        """There when every new site has had its turn."""
        return self.path / "joined"

    @property
    def flower(self) -> Path:
        """Flower's own files: its app, configuration and database."""
        return self.path / "flower"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def out(self, config: CoordinatorConfig) -> Path:
        return (self.path / config.out).resolve()

    def event(self, site: str | None, what: str, number: int, reason: str) -> None:
        line = {"time": round(time.time(), 3), "site": site, "event": what, "round": number, "reason": reason}
        append_text(self.events, json.dumps(line) + "\n")

    def read_events(self) -> list[dict[str, Any]]:
        if not self.events.is_file():
            return []
        lines = self.events.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]
