"""Progress of a run in a terminal, on standard error: a live bar, or one line per round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedpub.core.steps import Step
from fedpub.errors import FedpubError

if TYPE_CHECKING:
    from fedpub.store.record import Row


def say(line: str) -> None:
    """Print a line on standard error, apart from the result."""
    print(f"{line}\n", end="", file=sys.stderr, flush=True)  # in one piece, since several threads print


class Bar:
    """A live bar with round, metric and time left, or one line per round, over `total` runs."""

    def __init__(self, bar: Progress, total: int, lines: bool) -> None:
        self._bar, self._total, self._done, self._lines = bar, total, 0, lines
        self._task = bar.add_task("round", total=None, run="", values="")

    def _run(self) -> str:
        return f"run {self._done + 1}/{self._total}  " if self._total > 1 else ""

    def on_prepare(self, what: str, done: int, total: int | None) -> None:
        """Show what comes before everything else."""
        self._bar.update(self._task, description=what, completed=done, total=total, run=self._run(), values="")

    def on_step(self, name: str, done: int, total: int) -> None:
        """Show an exchange before the first round."""
        self._bar.update(self._task, description="set-up", completed=done, total=total, run=self._run(), values=name)
        if self._lines:
            say(f"{self._run()}set-up {done}/{total}  {name}")

    def on_round(self, row: Row, rounds: int) -> None:
        values = f"val {100 * row.mean('val'):.2f}  test {100 * row.mean('test'):.2f}"
        shown: dict[str, Any] = {"description": "round", "run": self._run(), "values": values}
        self._bar.update(self._task, completed=row.round, total=rounds, **shown)
        if self._lines:
            say(f"{self._run()}round {row.round}/{rounds}  {values}  {row.seconds:.2f} s")
        if row.round == rounds:
            self._done += 1
            self._bar.reset(self._task, total=rounds, **shown)


@contextmanager
def progress(quiet: bool, verbose: bool = False, total: int = 1) -> Iterator[Bar]:
    """A bar on standard error if that is a terminal; nothing with `quiet`, one line per round with `verbose`."""
    check_loudness(quiet, verbose)
    columns = (
        TextColumn("{task.fields[run]}{task.description}"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[values]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = quiet or verbose or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        yield Bar(bar, total, verbose)


@contextmanager
def steps(quiet: bool = False) -> Iterator[Step]:
    """A bar on standard error, if that is a terminal, for work of a known or unknown length without rounds."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:

        def step(what: str, done: int, total: int | None) -> None:
            if what not in [task.description for task in bar.tasks]:
                for old in bar.task_ids:
                    bar.remove_task(old)
                bar.add_task(what, total=total, count="")
            of = "" if total is None else f" of {total:,}"
            bar.update(bar.task_ids[-1], completed=done, count=f"{done:,}{of}" if done else "")

        yield step


def check_loudness(quiet: bool, verbose: bool) -> None:
    if quiet and verbose:
        raise FedpubError("`quiet` and `verbose` contradict each other; leave one of them out")
