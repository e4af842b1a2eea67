"""What runs look like in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedpub.compare import Run, Score
from fedpub.experiment import Result
from fedpub.results import Row

SECOND = {"test_f1": "macro-F1", "test_ap": "average precision"}  # further metrics of the tasks


class Bar:
    """A live bar with round, metric and time left; over `total` runs."""

    def __init__(self, bar: Progress, total: int) -> None:
        self._bar, self._total, self._done = bar, total, 0
        self._task = bar.add_task("round", total=None, run="", values="")

    def _run(self) -> str:
        return f"run {self._done + 1}/{self._total}  " if self._total > 1 else ""

    def on_step(self, name: str, done: int, total: int) -> None:
        """An exchange before the first round."""
        self._bar.update(self._task, description="set-up", completed=done, total=total, run=self._run(), values=name)

    def on_round(self, row: Row, rounds: int) -> None:
        values = f"val {100 * row.mean('val'):.2f}  test {100 * row.mean('test'):.2f}"
        shown: dict[str, Any] = {"description": "round", "run": self._run(), "values": values}
        self._bar.update(self._task, completed=row.round, total=rounds, **shown)
        if row.round == rounds:
            self._done += 1
            self._bar.reset(self._task, total=rounds, **shown)


@contextmanager
def progress(quiet: bool, total: int = 1) -> Iterator[Bar]:
    """A bar on the terminal's error output, where that is one."""
    columns = (
        TextColumn("{task.fields[run]}{task.description}"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[values]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        yield Bar(bar, total)


def show_result(found: Result) -> None:
    summary = found.summary
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows = {
        f"test {summary['metric']}": _percent(summary["test"]),
        "at the best validation": f"{_percent(summary['val'])}, round {summary['best_round']} of {summary['rounds']}",
        **{title: _percent(summary[name]) for name, title in SECOND.items() if name in summary},
        "weighted by test set": _percent(summary["weighted_test"]),
        "worst client": f"{_percent(summary['worst_client_test'])} (client {summary['worst_client']})",
        "zeros in the weights": _percent(summary["sparsity"]),
        "sent up, down": f"{summary['bytes_up'] / 1e6:,.1f} MB, {summary['bytes_down'] / 1e6:,.1f} MB",
        "time": f"{summary['seconds']:.1f} s",
    }
    if summary.get("setup_seconds"):
        up, down = summary["setup_bytes_up"] / 1e6, summary["setup_bytes_down"] / 1e6
        rows["of these for set-up"] = f"{up:,.1f} MB, {down:,.1f} MB, {summary['setup_seconds']:.1f} s"
    if summary["clients_without_test"]:
        rows["clients without a test set"] = str(summary["clients_without_test"])
    for name, value in rows.items():
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    for line in splits(found.record.rows):
        console.print(line)
    for client in found.idle:
        console.print(f"[yellow]client {client} has nothing to train on: it only received")
    if found.path:
        console.print(f"run directory: {found.path}", soft_wrap=True)


def splits(rows: Sequence[Row]) -> list[str]:
    """GCFL's splits, a line each."""
    said, before = [], 1
    for row in rows:
        # Clusters are numbered as they arise, and those who split are there when they do.
        count = int(max(row.clients.get("cluster", [0]))) + 1
        if count > before:
            said.append(f"round {row.round}: {before} cluster{'s' if before > 1 else ''} became {count}")
            before = count
    return said


def show_comparison(runs: Sequence[Run], lines: Sequence[Score]) -> None:
    cells = list(dict.fromkeys(one.cell for one in runs))
    seeds = len({one.seed for one in runs})
    metric = runs[0].summary["metric"]
    table = Table(title=f"test {metric} in percent, {seeds} seeds", title_justify="left", header_style="bold")
    table.add_column("method", no_wrap=True)
    for cell in cells:
        count = f" {cell.clients}" if cell.clients else ""
        table.add_column(f"{Path(cell.dataset).stem}\n{cell.scenario}{count}", justify="right")
    headings = (
        "average",
        f"p against\n{lines[0].method}",
        "better\nthan local",
        "worst\nclient",
        "zeros",
        "MB up",
        "s",
    )
    for heading in headings if len(cells) > 1 else headings[1:]:
        table.add_column(heading, justify="right")
    for line in lines:
        row = [line.method, *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in line.cells)]
        if len(cells) > 1:
            row.append(f"{line.average:.2f}")
        row.append("" if line.p_value is None else f"{line.p_value:.3f}")
        row.append("" if line.better_than_local is None else f"{line.better_than_local:.0%}")
        row += [
            f"{line.worst_client:.1f}",
            f"{line.sparsity:.0f} %",
            f"{line.megabytes_up:,.1f}",
            f"{line.seconds:.1f}",
        ]
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or another program has no width
        console = Console(highlight=False, width=1000)
    console.print(table)


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.2f} %"
