"""The verb that shows and changes what a site takes part in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpub.cli.show import as_json
from fedpub.errors import unknown


def policy(
    folder: Path,
    methods: tuple[str, ...] = (),
    uploads: tuple[str, ...] = (),
    min_other_sites: int | None = None,
    rounds_per_day: int | None = None,
    runs_per_day: int | None = None,
    precisions: tuple[str, ...] = (),
    secure: bool = False,
    min_group: int | None = None,
    experiment: Path | None = None,
    lift: tuple[str, ...] = (),
    json: bool = False,
) -> None:
    """Show what a site takes part in, and change it; a running site follows the change at once.

    Example: fedpub site policy --folder hospital-a --methods fedpub fedavg --min-other-sites 3

    Args:
        folder: Folder of the site.
        methods: Methods that the site takes part in.
        uploads: Parts of messages that may leave the site, as methods declare them.
        min_other_sites: Number of sites that must take part besides this one, by what the coordinator says.
        rounds_per_day: Number of rounds that are answered within 24 hours.
        runs_per_day: Number of runs that are begun or joined within 24 hours.
        precisions: Precisions of uploads: exact, float16, int8.
        secure: Only runs with secure aggregation.
        min_group: Number of sites in the smallest group in whose sums this site's upload is hidden, 3 or more.
        experiment: The agreed config.json; the site takes part in nothing else.
        lift: Names of settings that limit nothing from now on.
    """
    from fedpub.core.private import owner_only
    from fedpub.federation.policy import SETTINGS, Policy
    from fedpub.flower.sites import SiteConfig, agree, take_over

    with owner_only():
        SiteConfig.load(folder)
        take_over(folder)
        held = Policy.load(folder)
        lifted = [name.replace("-", "_") for name in lift]
        for name in lifted:
            if name not in SETTINGS:
                raise unknown("setting", name, SETTINGS)
        numbers = {"min_other_sites": min_other_sites, "rounds_per_day": rounds_per_day, "runs_per_day": runs_per_day}
        numbers |= {"min_group": min_group}
        given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
        given |= {"secure": True} if secure else {}
        names = {"methods": methods, "uploads": uploads, "precisions": precisions}
        changes = given | {name: list(value) for name, value in names.items() if value}
        if changes or lifted:
            now = held.to_dict() | dict.fromkeys(lifted) | changes
            held = Policy.of(now, "the new policy")
            held.save(folder)
        if experiment is not None:
            agree(folder, experiment)
            held = Policy.load(folder)
    if as_json(held.to_dict(), json):
        return
    table = Table(box=None, header_style="bold")
    for heading in ("setting", "limit"):
        table.add_column(heading)
    for name in SETTINGS:
        value = getattr(held, name)
        said = f"{value.method}, {value.rounds} rounds" if name == "experiment" and value else value
        said = ", ".join(said) or "nothing" if isinstance(said, tuple) else said
        table.add_row(name, Text("no limit" if said is None else "required" if said is True else str(said)))
    Console(highlight=False).print(table)
