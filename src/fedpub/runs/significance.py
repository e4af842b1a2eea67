"""One significance test for every table, page and verb.

The null hypothesis: a method is as good as the reference, on average. The test: a two-sided paired t-test. The
reference is fixed before anything is measured: it is the first method named, never the one that turned out best. Pairs
are cells (a graph and its division among clients), each with the mean over the seeds that both methods have there:
seeds of one cell share its graph and are not independent observations. If there is only one cell, its seeds are paired.
The p-values of a table are corrected by Holm's method over the methods compared in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Values = Mapping[tuple[Any, Any], float]  # by cell and seed
CONVENTION = "two-sided paired t-test, Holm-corrected over the methods compared"


def p_values(values: Mapping[str, Values], reference: str) -> dict[str, float | None]:
    """The corrected p-value of every method against the reference; None for the reference itself, and if undefined."""
    found = {
        method: None if method == reference else paired_p(*_pairs(own, values[reference]))
        for method, own in values.items()
    }
    return _holm(found)


def paired_p(one: np.ndarray, other: np.ndarray) -> float | None:
    """The two-sided p-value of a paired t-test; None if there are fewer than two pairs or no differences."""
    if len(one) < 2 or np.ptp(one - other) == 0:
        return None
    from scipy import stats  # takes a second, so only a comparison imports it

    return float(stats.ttest_rel(one, other).pvalue)


def deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """The sample standard deviation (ddof 1); None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _pairs(one: Values, other: Values) -> tuple[np.ndarray, np.ndarray]:
    common = [key for key in one if key in other and not np.isnan(one[key]) and not np.isnan(other[key])]
    cells = list(dict.fromkeys(cell for cell, _ in common))
    both = [np.array([own[key] for key in common]) for own in (one, other)]
    if len(cells) > 1:
        inside = [np.array([key[0] == cell for key in common]) for cell in cells]
        both = [np.array([own[rows].mean() for rows in inside]) for own in both]
    return both[0], both[1]


def _holm(found: Mapping[str, float | None]) -> dict[str, float | None]:
    known = sorted((value, method) for method, value in found.items() if value is not None)
    corrected: dict[str, float | None] = dict(found)
    most = 0.0
    for place, (value, method) in enumerate(known):
        most = max(most, min(1.0, value * (len(known) - place)))
        corrected[method] = most
    return corrected
