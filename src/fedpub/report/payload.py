"""JSON-ready data for the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from fedpub.algorithms import has_all_data
from fedpub.report import attacked, related
from fedpub.report.curves import costs, curves, frontier, gains
from fedpub.report.load import Loaded, Place
from fedpub.report.style import COLOURS, looks
from fedpub.report.summary import cell_names, in_percent, methods, metric_of, tables
from fedpub.report.swept import section
from fedpub.report.text import titled
from fedpub.version import __version__

MAX_VALUES = 1_000_000  # in all relations together: about 3 MB of the page


def payload(runs: Sequence[Loaded], complaints: Sequence[str], live: bool = False) -> dict[str, Any]:
    """All data shown on the page, in a form that JSON can hold."""
    names = cell_names(runs)
    places = sorted(names)
    environments: list[dict[str, Any]] = []
    listed = []
    for one in runs:
        if one.environment not in environments:
            environments.append(one.environment)
        listed.append(
            {
                "path": str(one.path),
                "cell": places.index(one.place),
                "method": one.label,
                "seed": one.experiment.seed,
                "finished": one.finished,
                "round": one.rows[-1].round if one.rows else (one.summary or {}).get("rounds", 0),
                "rounds": one.experiment.rounds,
                "best_round": (one.summary or {}).get("best_round"),
                "test": in_percent((one.summary or {}).get("test")),
                "config": dataclasses.asdict(one.experiment),
                "environment": environments.index(one.environment),
            }
        )
    said = list(complaints)
    attacks = attacked.sections(runs, said.append)
    snapshots = max(1, MAX_VALUES // max(1, sum(map(related.size, runs))))
    sweeps = [sweep for sweep in dict.fromkeys(one.sweep for one in runs) if sweep]
    labels = list(dict.fromkeys([*methods(runs), *(one.method for sweep in sweeps for one in sweep.points)]))
    plain = {
        "version": __version__,
        "live": live,
        "complaints": said,
        "methods": methods(runs),
        "owners": related.OWNERS_IN_ORDER,
        "looks": {
            label: {"title": titled(label), "colour": look.place % len(COLOURS), "dash": look.dash}
            for label, look in looks(labels).items()
        },
        "tables": [dataclasses.asdict(table) for table in tables(runs)],
        "sweeps": [section(sweep) for sweep in sweeps],
        "cells": [_cell(runs, place, names[place], snapshots) for place in places],
        "runs": listed,
        "attacks": [one | {"place": None, "cell": places.index(one["place"])} for one in attacks],
        "environments": environments,
    }
    cleaned: dict[str, Any] = clean(plain)
    return cleaned


def _cell(runs: Sequence[Loaded], place: Place, name: str, snapshots: int) -> dict[str, Any]:
    mine = [one for one in runs if one.place == place]
    groups = {label: [one for one in mine if one.label == label] for label in methods(mine)}
    drawn = {label: curves(group) for label, group in groups.items()}
    cost = {label: costs(group) for label, group in groups.items()}
    return {
        "name": name,
        "dataset": place.dataset,
        "task": place.task,
        "metric": metric_of(mine),
        "curves": {label: curve for label, curve in drawn.items() if curve},
        "gains": {
            label: found
            for label, group in groups.items()
            if group[0].experiment.method != "local" and (found := gains(group, groups.get("local", [])))
        },
        "costs": cost,
        # A method that has all data in one place is not a federation and sends nothing.
        "frontier": frontier(
            {label: cost[label] for label in cost if not has_all_data(groups[label][0].experiment.method)}
        ),
        "relations": [
            relations
            for one in sorted(mine, key=lambda one: (methods(mine)[::-1].index(one.label), one.experiment.seed))
            if (relations := related.section(one, snapshots))
        ],
    }


def clean(value: Any) -> Any:
    """Numbers rounded to six digits; NaN and infinity, which JSON lacks, become None."""
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
