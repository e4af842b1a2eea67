"""Progress of a federation, read from its coordinator's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpub.federation.known import SITES, Known
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import read_admitted
from fedpub.store.directory import RunDirectory, read_rows


def status_of(folder: Path) -> dict[str, Any]:
    """State, rounds, and what each site did last; `updated` is when the last round ended."""
    place, config = CoordinatorFolder(folder), CoordinatorConfig.load(folder)
    out = place.out(config)
    rows, events, admitted = read_rows(out), place.read_events(), read_admitted(place.admitted)
    known = Known.load(folder / SITES)
    sites = list(known.sites if known else admitted)  # those admitted later are not in this run
    finished, running = RunDirectory(out).finished, place.is_in_use()
    found: dict[str, Any] = {
        "state": "finished" if finished else "running" if running else "stopped" if rows else "not begun",
        "round": rows[-1].round if rows else 0,
        "rounds": config.experiment.rounds,
        "method": config.experiment.method,
        "updated": (out / "rounds.csv").stat().st_mtime if rows else None,
        "sites": [],
    }
    for client, site in enumerate(sites):
        took = [
            row.round for row in rows if client < len(row.clients["took_part"]) and row.clients["took_part"][client]
        ]
        mine = [event for event in events if event["site"] == site]
        found["sites"].append(
            {
                "site": site,
                "removed": site not in admitted,
                "last_round": took[-1] if took else 0,
                "rounds": len(took),
                "val": rows[-1].clients["val"][client] if rows else None,
                "left_out": sum(event["event"] == "left out" for event in mine),
                "refused": sum(event["event"] == "refused" for event in mine),
                "last_problem": mine[-1]["reason"] if mine else None,
            }
        )
    return found
