"""Data behind the figures, on the page and in files: values by round, gains of clients, costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpub.report.load import Loaded, thinned
from fedpub.report.summary import counted, in_percent, mean_of_known, num_clients
from fedpub.runs.significance import deviation

MAX_POINTS = 400  # per curve


def curves(runs: Sequence[Loaded]) -> dict[str, Any] | None:
    """Mean and deviation per round, over the seeds that have reached it."""
    numbers = sorted({row.round for one in runs for row in one.rows})
    if not numbers:
        return None
    kept = thinned(numbers, MAX_POINTS)
    found: dict[str, Any] = {"rounds": kept}
    for column in ("val", "test"):
        by_round = [{row.round: 100 * row.mean(column) for row in one.rows} for one in runs]
        means, deviations = [], []
        for number in kept:
            values = [own[number] for own in by_round if number in own and not math.isnan(own[number])]
            means.append(float(np.mean(values)) if values else None)
            deviations.append(deviation(values))
        found[column] = {"mean": means, "deviation": deviations}
    return found


def gains(runs: Sequence[Loaded], local: Sequence[Loaded]) -> list[dict[str, Any]]:
    """Gain of each client over training alone, in points, for every seed that also has a local run."""
    alone = {one.trial: one for one in counted(local)}
    found = []
    for one in counted(runs):
        other = alone.get(one.trial)
        if other is None or not one.summary or not other.summary or num_clients(one) != num_clients(other):
            continue
        pairs = zip(one.summary["per_client_test"], other.summary["per_client_test"], strict=True)
        points = [None if a is None or b is None else 100 * (a - b) for a, b in pairs]
        found.append({"seed": one.experiment.seed, "gains": points})
    return found


def costs(runs: Sequence[Loaded]) -> dict[str, Any]:
    """Mean over seeds, per run: test and zeros in percent, megabytes in total and for set-up, seconds."""
    summaries = [one.summary for one in counted(runs) if one.summary]

    def mean(name: str, factor: float) -> float | None:
        value = mean_of_known(summary.get(name, 0) for summary in summaries)
        return None if value is None else factor * value

    return {
        "test": in_percent(mean_of_known(summary["test"] for summary in summaries)),
        "sparsity": mean("sparsity", 100),
        "up": mean("bytes_up", 1e-6),
        "down": mean("bytes_down", 1e-6),
        "setup_up": mean("setup_bytes_up", 1e-6),
        "setup_down": mean("setup_bytes_down", 1e-6),
        "seconds": mean("seconds", 1),
    }


def frontier(lines: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The methods that no other method beats with the same bytes up or fewer, sorted by bytes."""
    known = [(one["up"], -one["test"], label) for label, one in lines.items() if None not in (one["up"], one["test"])]
    best, found = -math.inf, []
    for _, test, label in sorted(known):
        if -test > best:
            best = -test
            found.append(label)
    return found
