"""The verb `attack`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpub.attacks.directory import ROUNDS, SHADOWS, Target, attack_directory
from fedpub.cli.show import as_json
from fedpub.core.printable import printable
from fedpub.report.attacked import FILE
from fedpub.runs.progress import steps


def attack(
    dir: tyro.conf.Positional[Path],
    rounds: int = ROUNDS,
    shadows: int = SHADOWS,
    target: Target = "both",
    pieces: Path | None = None,
    data_root: Path | None = None,
    json: bool = False,
) -> None:
    """What a curious coordinator learns of each client: attacks that are known to work, each beside a guess.

    A run of the simulator is played again, since what its coordinator saw is not stored. A deployed one must have been
    started with --keep-uploads. The findings are also written to attack.json in the folder, for `fedpub report`.

    Example: fedpub attack runs/first --rounds 5 --shadows 2

    Args:
        dir: Run directory, or folder of a coordinator.
        rounds: Rounds that the coordinator looks at, from the first one.
        shadows: Runs with other training nodes, to compare with (LiRA); 0 for none.
        target: Models whose training nodes are searched for: uploaded ones, those that clients keep, or both.
        pieces: Folder with the graphs of the sites, for scores on a coordinator's folder.
        json: Findings as JSON, client by client.
    """
    with steps(quiet=json) as step:
        found = attack_directory(dir, rounds, shadows, target, pieces, data_root, step)
    if as_json(found, json):
        return
    console = Console(highlight=False)
    _show(console, found)
    console.print(Text(str(dir / FILE)), soft_wrap=True)


def _show(console: Console, found: dict[str, Any]) -> None:
    kind = "secure" if found["secure"] else "plain"
    title = f"{found['method']} ({kind}), rounds 1 to {found['rounds']}, {len(found['clients'])} clients"
    table = Table(title=printable(title), title_justify="left", header_style="bold")
    for heading in ("attack", "measure", "score", "guessing", "worst client"):
        table.add_column(heading, justify="left" if heading in ("attack", "measure") else "right")
    for one in found["findings"]:
        numbers = ["" if one[name] is None else f"{one[name]:.3f}" for name in ("score", "guess", "worst")]
        table.add_row(*map(Text, (one["attack"], one["measure"], *numbers)))
    console.print(table)
    for one in found["findings"]:
        console.print(Text(printable(f"{one['attack']}: {one['sentence']}", 1000)), soft_wrap=True)
