"""Live logging to TensorBoard or MLflow; each is an optional extra, enabled by `--track`.

Both receive the means over the clients of every round, the experiment's settings and the result.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.store.record import SUMS, Row


class Sink(Protocol):
    def on_round(self, row: Row) -> None: ...

    def close(self, summary: dict[str, Any] | None) -> None:
        """End the log; `summary` is None if the run did not finish."""


def means(row: Row) -> dict[str, float]:
    """The logged values of a round: means over clients, total bytes."""
    told = {name: row.mean(name) for name in row.means} | {"seconds": row.seconds}
    return told | {name: float(sum(row.clients[name])) for name in SUMS}


def settings(experiment: Experiment) -> dict[str, Any]:
    """An experiment as flat names and values."""
    flat = asdict(experiment)
    options = flat.pop("options")
    return flat | {f"{experiment.method}.{name}": value for name, value in options.items()}


class TensorBoard:
    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self._writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard"))
        lines = (f"| {name} | {value} |" for name, value in settings(experiment).items())
        self._writer.add_text("experiment", "\n".join(("| setting | value |", "|---|---|", *lines)))

    def on_round(self, row: Row) -> None:
        for name, value in means(row).items():
            self._writer.add_scalar(name, value, row.round)

    def close(self, summary: dict[str, Any] | None) -> None:
        for name, value in _numbers(summary).items():
            self._writer.add_scalar(f"result/{name}", value)
        self._writer.close()


class MLflow:
    """Logs to MLFLOW_TRACKING_URI if that is set, else to a database in the run directory."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            self._mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        self._mlflow.set_experiment("fedpub")
        self._mlflow.start_run(run_name=f"{Path(experiment.dataset).stem}-{experiment.method}-{experiment.seed}")
        self._mlflow.log_params(settings(experiment))

    def on_round(self, row: Row) -> None:
        self._mlflow.log_metrics({name: value for name, value in means(row).items() if value == value}, step=row.round)

    def close(self, summary: dict[str, Any] | None) -> None:
        if summary:
            self._mlflow.log_metrics({f"result_{name}": value for name, value in _numbers(summary).items()})
        self._mlflow.end_run("FINISHED" if summary else "KILLED")


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
NEEDS = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}


@dataclass
class Tracker:
    """The sinks of a run, opened at the first round, when the run directory exists."""

    names: Sequence[str]
    experiment: Experiment
    folder: Path
    sinks: list[Sink] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in SINKS:
                raise unknown("tracker", name, SINKS)
            if not all(importlib.util.find_spec(package) for package in NEEDS[name]):
                raise FedpubError(f"`track={name}` needs packages that are not installed: pip install 'fedpub[{name}]'")

    def on_round(self, row: Row) -> None:
        if not self.sinks:
            kinds: list[Any] = [SINKS[name] for name in dict.fromkeys(self.names)]
            self.sinks = [kind(self.experiment, self.folder) for kind in kinds]
        for sink in self.sinks:
            sink.on_round(row)

    def close(self, summary: dict[str, Any] | None) -> None:
        for sink in self.sinks:
            sink.close(summary)
        self.sinks = []


def _numbers(summary: dict[str, Any] | None) -> dict[str, float]:
    """The values of a summary that are single numbers."""
    kept = (summary or {}).items()
    return {name: float(value) for name, value in kept if isinstance(value, int | float)}
