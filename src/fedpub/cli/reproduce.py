"""The verb `reproduce`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedpub.cli.show import as_json
from fedpub.cli.typed import known_recipes
from fedpub.errors import FedpubError, unknown
from fedpub.runs.progress import check_loudness, say

if TYPE_CHECKING:
    from fedpub.paper.recipe import Settings

QUICK_ROUNDS = 5


def reproduce(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    list_: Annotated[bool, tyro.conf.arg(name="list")] = False,
    datasets: tuple[str, ...] = (),
    seeds: int | None = None,
    quick: bool = False,
    out: Path = Path("reproduction"),
    jobs: int = 1,
    device: str = "cpu",
    listed: Path | None = None,
    json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    data_root: Path | None = None,
) -> None:
    """The paper's tables and figures by name, or `all` of them.

    Runs are kept in OUT/runs under the hash of their experiment: an interrupted command resumes where it stopped, and a
    second call computes nothing.

    Example: fedpub reproduce figure-collapse --quick --out reproduction

    Args:
        names: Names of tables and figures, or all; `list` shows them.
        out: Folder for tables, figures and runs.
        datasets: Datasets to restrict recipes to. (default: all but ogbn-arxiv)
        seeds: Number of seeds. (default: 3; 1 with `quick`)
        quick: A quick look: one seed, five rounds, the first dataset, few methods.
        jobs: Number of parallel processes.
        list_: List of the names.
        listed: A runs.csv.gz of an earlier call, whose runs fill the tables; nothing is computed.
        json: Names, or files that were written, as JSON.
        verbose: One line per run on standard error, and tracebacks of errors.
    """
    console = Console(highlight=False)
    check_loudness(quiet, verbose)
    if list_:
        if not as_json([{"name": name, "title": title} for name, title in known_recipes().items()], json):
            _show_names(console)
        return
    from fedpub.paper.recipe import Settings
    from fedpub.paper.recipes import RECIPES
    from fedpub.paper.store import Outcomes, compute, is_done
    from fedpub.paper.write import Listed, write, write_runs

    chosen = _chosen(names)
    if jobs < 1 or (seeds is not None and seeds < 1):
        raise FedpubError(f"--jobs {jobs} --seeds {seeds} is not possible; give 1 or more")
    settings = Settings(
        datasets=datasets or None,
        seeds=seeds or (1 if quick else 3),
        device=device,
        rounds=QUICK_ROUNDS if quick else None,
        quick=quick,
        root=data_root,
    )
    planned = [job for name in chosen for job in RECIPES[name].jobs(settings)]
    found = Listed(listed) if listed else Outcomes(out / "runs")
    todo = {job.name for job in planned if not listed and not is_done(job, out / "runs")}
    count = len({job.name for job in planned})
    if not quiet and not json:
        console.print(f"{count} runs, {len(todo)} of them to be computed")
    columns = (TextColumn("runs"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    shown = Console(stderr=True)
    hidden = quiet or verbose or not shown.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=shown, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=len(todo))
        for job in compute([] if listed else planned, out / "runs", data_root, jobs):
            one = job.experiment
            what = f"{one.dataset} {one.scenario} {one.clients or ''} {one.method}"
            bar.update(task, advance=1, description=what)
            if verbose:
                say(f"{what}, seed {one.seed}")
    made_of: dict[str, list[Path]] = {}
    for name in chosen:
        command = shlex.join(["fedpub", "reproduce", name, *_flags(settings)])
        made = RECIPES[name].make(settings, found)
        summaries = (found[job].summary for job in RECIPES[name].jobs(settings))
        made_of[name] = write(made, name, RECIPES[name].title, command, out, summaries)
        if not json:
            console.print(f"{name}: {', '.join(path.name for path in made_of[name])}", soft_wrap=True)
    lines = write_runs(planned, found, out) if planned and not listed else None
    if as_json({"files": made_of, "runs": count, "computed": len(todo), "every_run": lines, "out": out}, json):
        return
    if lines:
        console.print(f"every run as a line: {lines.name}")
    console.print(f"in {out}", soft_wrap=True)


def _chosen(names: tuple[str, ...]) -> list[str]:
    if not names:
        raise FedpubError(
            "there is nothing to reproduce; name a table or figure, or all of them: fedpub reproduce --list"
        )
    known = list(known_recipes())
    if "all" in names:
        return known
    for name in names:
        if name not in known:
            raise unknown("table or figure", name, ["all", *known])
    return list(dict.fromkeys(names))


def _flags(settings: Settings) -> list[str]:
    """The settings as command-line flags."""
    flags = ["--seeds", str(settings.seeds)]
    flags += ["--datasets", *settings.datasets] if settings.datasets else []
    return [*flags, "--quick"] if settings.quick else flags


def _show_names(console: Console) -> None:
    table = Table("name", "what", header_style="bold")
    for name, title in known_recipes().items():
        table.add_row(name, title)
    console.print(table)
