"""The measurements of a run: one row per round, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from fedpub.core.best import LEVEL, Best, rounded_loss
from fedpub.engine.rounds import Round
from fedpub.tasks import TASKS

SUMS = ("took_part", "bytes_up", "bytes_down")


NO_SETUP = {"setup_bytes_up": 0, "setup_bytes_down": 0, "setup_seconds": 0.0}


@dataclass
class Row:
    """One round: its duration in seconds and one list of values per column, one value per client."""

    round: int
    seconds: float
    clients: dict[str, list[float]]

    @staticmethod
    def of(measured: Round, seconds: float) -> Row:
        columns = {"took_part": measured.took_part_R.to(torch.int64), "loss": measured.loss_R, **measured.metrics}
        columns |= {"sparsity": measured.sparsity_R}
        columns |= {"bytes_up": measured.bytes_up_R, "bytes_down": measured.bytes_down_R}
        for name, note in measured.notes.items():
            if note.dim() == 1:
                values = torch.full((len(measured.took_part_R),), -1, dtype=note.dtype)
                values[measured.ids] = note
                columns[name] = values
        return Row(measured.snapshot.round, seconds, {name: column.tolist() for name, column in columns.items()})

    @property
    def means(self) -> list[str]:
        """The columns whose mean over clients is meaningful: losses, metrics and sparsity."""
        return [name for name in self.clients if name in ("loss", "sparsity") or name.split("_")[0] in ("val", "test")]

    def mean(self, column: str) -> float:
        """The unweighted mean over the clients that have a value."""
        values = np.asarray(self.clients[column], dtype=float)
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    @property
    def standing(self) -> tuple[float, float]:
        """The mean validation value, and the mean of the losses as rounded for a coordinator."""
        losses = self.clients["val_loss"]
        if len(losses) > 1:  # of one it is a mean already, over sites that have told none of their own
            losses = [rounded_loss(loss) for loss in losses]
        return self.mean("val"), float(np.nanmean(losses)) if not np.isnan(losses).all() else float("nan")


@dataclass
class Record:
    """The rows of a run so far, and the best of them."""

    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._best = Best()
        for row in self.rows:
            self._best.update(row.round, *row.standing)

    def append(self, row: Row) -> bool:
        """Add a row; True if it is the best so far."""
        self.rows.append(row)
        return self._best.update(row.round, *row.standing)

    def best(self) -> Row:
        """The round whose model is kept."""
        return next(row for row in self.rows if row.round == self._best.round)

    def summary(
        self,
        metric: str,
        test_sizes: list[int] | None,
        setup: Mapping[str, float] = MappingProxyType(NO_SETUP),
        baseline: tuple[str, list[float]] | None = None,
    ) -> dict[str, Any]:
        """The result; bytes and seconds include both set-up and rounds.

        Without `test_sizes` the rows hold means over all clients, and nothing of a single one is known.
        `baseline`: its name, and every client's value of the task's metric without any learning.
        """
        best = self.best()
        test = np.asarray(best.clients["test"], dtype=float)
        known = ~np.isnan(test)

        def mean(column: str) -> float | None:
            value = best.mean(column)
            return None if np.isnan(value) else value

        def total(column: str) -> int:
            return int(sum(sum(row.clients[column]) for row in self.rows) + setup[f"setup_{column}"])

        return {
            "metric": metric,
            "test": mean("test"),
            "val": mean("val"),
            "val_loss": mean("val_loss"),
            "best_round": best.round,
            "level_rounds": sum(abs(row.mean("val") - best.mean("val")) <= LEVEL for row in self.rows),
            "rounds": self.rows[-1].round,
            **_of_clients(test, test_sizes),
            **{name: mean(name) for name in best.means if name.startswith("test_")},
            **(_beside(*baseline) if baseline else {}),
            "clients_without_test": int((~known).sum()) if test_sizes else None,
            "sparsity": best.mean("sparsity"),
            "bytes_up": total("bytes_up"),
            "bytes_down": total("bytes_down"),
            "seconds": sum(row.seconds for row in self.rows) + setup["setup_seconds"],
            **setup,
        }


def _of_clients(test: np.ndarray, test_sizes: list[int] | None) -> dict[str, Any]:
    """What a summary says of single clients, where something is known of them."""
    known, sizes = ~np.isnan(test), np.asarray(test_sizes, dtype=float)
    if test_sizes is None or not known.any():
        each = [None] * len(test) if test_sizes else []
        return {"per_client_test": each, "worst_client": None, "worst_client_test": None, "weighted_test": None}
    return {
        "per_client_test": [None if np.isnan(value) else value for value in test.tolist()],
        "worst_client": int(np.nanargmin(test)),
        "worst_client_test": float(np.nanmin(test)),
        "weighted_test": float((test[known] * sizes[known]).sum() / sizes[known].sum()),
    }


def _beside(name: str, values: list[float]) -> dict[str, Any]:
    """A baseline in a summary: its name, its mean over the clients, and the value of every client."""
    each = [None if np.isnan(value) else value for value in values]
    known = [value for value in each if value is not None]
    return {"baseline": name, name: float(np.mean(known)) if known else None, f"per_client_{name}": each}


def of_all(secure: bool, rows: Sequence[Row]) -> bool:
    """Whether the rows are of all clients together, as the coordinator of a secure run knows them."""
    return secure and bool(rows) and len(rows[0].clients["test"]) == 1  # a simulated one has three clients or more


def baseline_of(summary: Mapping[str, Any]) -> tuple[str, float] | None:
    """The title of the baseline that a run should beat, and its value; None if the summary has none."""
    name = summary.get("baseline")
    title = next((task.baseline_title for task in TASKS.values() if task.baseline == name), None)
    value = summary.get(str(name))
    return None if title is None or not isinstance(value, float) else (title, value)


def not_above(test: float | None, baseline: tuple[str, float] | None) -> str | None:
    """A sentence if a result is not better than its baseline."""
    if test is None or baseline is None or test > baseline[1] + LEVEL:
        return None
    return f"{100 * test:.2f} % is not above the baseline ({baseline[0]}, {100 * baseline[1]:.2f} %)"
