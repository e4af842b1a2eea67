"""The relations between the clients of a run, as the page draws them: who is similar to whom, who averages with whom,
which communities there are, and which model every client uses.

Axes: S recorded rounds, K clients.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpub.algorithms.fedpub_plus.standing import MODELS
from fedpub.report.communities import NOBODY, contributors, linked, numbered, rand_index, true_communities
from fedpub.report.load import ALPHA, MAX_SNAPSHOTS, SIMILARITY, Loaded, thinned
from fedpub.store.directory import MAX_RELATED

MISSING = 65535
# Whose model a client uses, in the order of the numbers that are recorded.
OWNERS = {"personal": "personal", "everyone": "everyone's", "community": "community's", "local": "Local's"}
OWNERS_IN_ORDER = [OWNERS[name] for name in MODELS]


def size(one: Loaded) -> int:
    """Values that the page holds for every round of a run: its matrices, and three numbers per client."""
    return sum(relation.values[0].size + 3 * len(relation.values[0]) for relation in one.relations)


def section(one: Loaded, snapshots: int) -> dict[str, Any] | None:
    """All relations of a run; those of single clients in at most that number of rounds."""
    rows = {row.round: row.clients for row in one.rows}
    noted = [number for number, columns in rows.items() if "used" in columns or "community" in columns]
    rounds = one.relations[0].rounds if one.relations else thinned(noted, MAX_SNAPSHOTS)
    if not rounds:
        return None
    values = {relation.name: relation.values for relation in one.relations}
    clients = len(next(iter(values.values()))[0]) if values else len(rows[rounds[0]]["val"])
    shown = thinned(range(len(rounds)), snapshots) if snapshots > 1 else [len(rounds) - 1]
    if clients > MAX_RELATED:
        shown = []  # too many to show one by one

    true = true_communities(one.place.dataset, one.place.scenario, clients)
    # Looking for communities takes time: it is done for the rounds that are shown, and for the index.
    rule, found = _communities(one, range(len(rounds)) if true else shown, rounds, values, clients)
    index = [rand_index(own, true) for own in found.values()] if true and found else None
    used = _noted(rows, rounds, "used", clients)
    effective = [contributors(alpha).tolist() for alpha in values[ALPHA]] if ALPHA in values else None
    return {
        "method": one.label,
        "seed": one.experiment.seed,
        "clients": clients,
        "rounds": [rounds[at] for at in shown],
        "matrices": [{"name": name, **packed(of[shown])} for name, of in values.items() if shown],
        "rule": rule,
        "communities": _at(shown, found),
        "true": true,
        "index": _at(shown, index),
        "contributors": _at(shown, effective),
        "used": _at(shown, used),
        "history": {
            "rounds": rounds,
            "index": index,
            "contributors": [_spread(own) for own in effective] if effective else None,
            "used": [[own.count(model) for model in range(len(MODELS))] for own in used] if used else None,
        },
    }


def _communities(
    one: Loaded, places: Sequence[int], rounds: Sequence[int], values: dict[str, np.ndarray], clients: int
) -> tuple[str | None, dict[int, list[int]]]:
    """Where communities come from, and those of the rounds at these places: the method's own if it has any, or else
    those that follow from similarities."""
    rows = {row.round: row.clients for row in one.rows}
    for name in ("community", "cluster"):
        if found := _noted(rows, rounds, name, clients):
            return name, {place: numbered(found[place]) for place in places}
    if SIMILARITY in values:
        return "linkage", {place: linked(values[SIMILARITY][place]) for place in places}
    return None, {}


def _noted(
    rows: dict[int, dict[str, list[float]]], rounds: Sequence[int], name: str, clients: int
) -> list[list[int]] | None:
    """A note of every client in the rounds: of one that is away, its last one; a round whose rows are lost has none."""
    if not any(name in columns for columns in rows.values()):
        return None
    found, last = {}, [NOBODY] * clients
    for number in sorted(rows):
        noted, there = rows[number].get(name, last), rows[number]["took_part"]
        last = [int(new) if here else old for new, old, here in zip(noted, last, there, strict=True)]
        found[number] = last
    return [found.get(number, [NOBODY] * clients) for number in rounds]


def _at(places: Sequence[int], values: Sequence[Any] | dict[int, Any] | None) -> list[Any] | None:
    return [values[place] for place in places] if values else None


def _spread(values: Sequence[float]) -> list[float] | None:
    """The smallest, the mean and the largest of the known values."""
    known = [value for value in values if np.isfinite(value)]
    return [min(known), float(np.mean(known)), max(known)] if known else None


def packed(values: np.ndarray) -> dict[str, Any]:
    """Matrices in base64, as 16-bit steps between the smallest and largest value: compact, and exact to 1e-5."""
    known = np.isfinite(values)
    low, high = (float(values[known].min()), float(values[known].max())) if known.any() else (0.0, 1.0)
    steps = np.full(values.shape, MISSING, dtype="<u2")
    width = (high - low) or 1.0
    steps[known] = np.round((values[known] - low) / width * (MISSING - 1)).astype("<u2")
    return {
        "low": float(f"{low:.9g}"),
        "high": float(f"{low + width:.9g}"),
        "values": base64.b64encode(steps.tobytes()).decode("ascii"),
    }
