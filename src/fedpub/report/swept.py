"""Sweeps in a report: the points of a `sweep.json`, and which runs the rest of the page shows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpub.core.checks import check_types
from fedpub.errors import FedpubError
from fedpub.runs.comparison import run_name
from fedpub.runs.sweep import SWEEP, Standing

DECADE = 10  # values that span this factor have a logarithmic axis


@dataclass(frozen=True, eq=False)
class Swept:
    """A sweep as it is stored."""

    metric: str
    search: str
    names: list[str]  # of the swept settings
    ranges: dict[str, bool]  # of these, those with a range of values, and whether it is logarithmic
    complete: bool
    points: list[Standing]

    @property
    def shown(self) -> set[str]:
        """The run directories behind the test values: those of other points would tempt to choose by them."""
        return {run_name(one.label, seed) for one in self.points for seed in one.test_seeds}


def read_sweep(folder: Path, complain: Callable[[str], None]) -> Swept | None:
    """The sweep in a folder; None if there is none that can be read."""
    file = folder / SWEEP
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = Swept(**content | {"points": [Standing(**one) for one in content["points"]]})
        for part in (found, *found.points):
            check_types(part, "")
        if not found.points:
            raise ValueError("it has no points")
    except (OSError, ValueError, LookupError, TypeError, FedpubError) as error:
        complain(f"{file} cannot be read ({error}); its runs are shown without their sweep")
        return None
    return found


def how_chosen(points: Sequence[Standing]) -> str:
    """On what points were chosen, and on what they were tested."""
    chosen = next(one for one in points if one.chosen)
    said = f"Chosen by validation on {_seeds(chosen.seeds)}; "
    if set(chosen.test_seeds) & set(chosen.seeds):
        return said + "tested on the same splits: `report_seeds=3` would test the chosen points on fresh ones."
    return said + f"tested on {_seeds(chosen.test_seeds)}, whose splits no choice has seen."


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]}"


def short(value: Any) -> str:
    return (
        f"{value:g}" if isinstance(value, float) else str(value).lower() if value in (True, False, None) else str(value)
    )


def section(sweep: Swept) -> dict[str, Any]:
    """The sweep as the page draws it."""
    return {
        "metric": sweep.metric,
        "search": sweep.search,
        "complete": sweep.complete,
        "said": how_chosen(sweep.points).replace("`", ""),
        "names": sweep.names,
        "points": [
            asdict(one) | {"settings": {name: short(value) for name, value in one.settings.items()}}
            for one in sweep.points
        ],
        "panels": [panel for name in sweep.names if (panel := _panel(sweep, name))],
    }


def _panel(sweep: Swept, name: str) -> dict[str, Any] | None:
    """Validation against one setting, if its values are numbers and differ: every point, and a line through the best
    at each value; a range has a single point at most of its values, and no line."""
    known = [one for one in sweep.points if name in one.settings]
    values = [one.settings[name] for one in known]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values) or len(set(values)) < 2:
        return None
    lines: dict[str, list[tuple[float, float]]] = {}
    for method in dict.fromkeys(one.method for one in known) if name not in sweep.ranges else ():
        best: dict[float, float] = {}
        for one in known:
            if one.method == method:
                best[one.settings[name]] = max(one.val, best.get(one.settings[name], -math.inf))
        lines[method] = sorted(best.items())
    low, high = min(values), max(values)
    return {
        "name": name,
        "log": sweep.ranges.get(name, low > 0 and high >= DECADE * low),
        "ticks": sorted(set(values)) if name not in sweep.ranges else [],
        "points": [(one.method, one.settings[name], one.val, one.chosen, one.label) for one in known],
        "lines": lines,
    }
