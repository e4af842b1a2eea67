"""Progress of a federation, read from its coordinator's folder: no running coordinator is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpub.federation.known import SITES, Known
from fedpub.flower.folder import CONFIG, CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import read_admitted
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Row

ROWS = "clients.csv"  # of the run directory: every round is appended
MOST_EVENTS = 200  # the latest, on a page


@dataclass(frozen=True)
class _Read:
    """What the folder holds."""

    config: CoordinatorConfig
    state: str
    rows: list[Row]
    events: list[dict[str, Any]]
    admitted: dict[str, str]
    sites: list[str]

    @staticmethod
    def of(folder: Path) -> _Read:
        place, config = CoordinatorFolder(folder), CoordinatorConfig.load(folder)
        out, admitted = place.out(config), read_admitted(place.admitted)
        rows, events, known = read_rows(out), place.read_events(), Known.load(folder / SITES)
        finished, running = RunDirectory(out).finished, place.is_in_use()
        state = "finished" if finished else "running" if running else "stopped" if rows else "not begun"
        sites = list(known.sites if known else admitted)  # those admitted later are not in this run
        return _Read(config, state, rows, events, admitted, sites)


def status_of(folder: Path) -> dict[str, Any]:
    """State, rounds, and what each site did last; `updated` is when the last round ended."""
    return _status(_Read.of(folder), folder)


def history_of(folder: Path) -> dict[str, Any]:
    """The status, what every round took and reached, bytes, and the latest events, the newest first."""
    read = _Read.of(folder)
    sums = {name: int(sum(sum(row.clients[name]) for row in read.rows)) for name in ("bytes_up", "bytes_down")}
    return _status(read, folder) | {
        "run": read.config.run,
        "history": {
            "round": [row.round for row in read.rows],
            "seconds": [row.seconds for row in read.rows],
            "validation": [_known(row.mean("val")) for row in read.rows],
        },
        **sums,
        "events": read.events[: -MOST_EVENTS - 1 : -1],
        "older_events": max(0, len(read.events) - MOST_EVENTS),
    }


def fingerprint_of(folder: Path) -> object:
    """What differs when the history may do so."""
    place = CoordinatorFolder(folder)
    out = place.out(CoordinatorConfig.load(folder))
    files = (folder / CONFIG, folder / SITES, place.admitted, place.events, out / ROWS, out / "summary.json")
    return place.is_in_use(), [_stamp(file) for file in files]


def _stamp(file: Path) -> object:
    try:
        known = file.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size


def _status(read: _Read, folder: Path) -> dict[str, Any]:
    rows = read.rows
    found: dict[str, Any] = {
        "state": read.state,
        "round": rows[-1].round if rows else 0,
        "rounds": read.config.experiment.rounds,
        "method": read.config.experiment.method,
        "updated": (CoordinatorFolder(folder).out(read.config) / ROWS).stat().st_mtime if rows else None,
        "sites": [],
    }
    for client, site in enumerate(read.sites):
        mine = [event for event in read.events if event["site"] == site]
        took = _rounds_of(client, rows, mine, read.config.experiment.secure)
        found["sites"].append(
            {
                "site": site,
                "removed": site not in read.admitted,
                "last_round": took[-1] if took else 0,
                "rounds": len(took),
                "val": rows[-1].clients["val"][client] if rows and not read.config.experiment.secure else None,
                "left_out": sum(event["event"] == "left out" for event in mine),
                "refused": sum(event["event"] == "refused" for event in mine),
                "last_problem": mine[-1]["reason"] if mine else None,
            }
        )
    return found


def _rounds_of(client: int, rows: Sequence[Row], mine: Sequence[Mapping[str, Any]], secure: bool) -> list[int]:
    """The rounds in which a site took part. Where there are only sums, it did where nothing else is told of it."""
    if secure:
        missed = {event["round"] for event in mine}
        return [row.round for row in rows if row.round not in missed]
    return [row.round for row in rows if client < len(row.clients["took_part"]) and row.clients["took_part"][client]]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
