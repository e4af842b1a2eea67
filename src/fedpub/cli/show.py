"""What runs look like in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedpub.compare import Run, Score
from fedpub.experiment import Result
from fedpub.results import Row

OnRound = Callable[[Row, int], None]


@contextmanager
def progress(quiet: bool, total: int = 1) -> Iterator[OnRound | None]:
    """A live bar with round, accuracy and time left; over `total` runs."""
    if quiet:
        yield None
        return
    columns = (
        TextColumn("{task.fields[run]}round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[values]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, run="", values="")
        done = 0

        def on_round(row: Row, rounds: int) -> None:
            nonlocal done
            run = f"run {done + 1}/{total}  " if total > 1 else ""
            values = f"val {100 * row.mean('val'):.2f}  test {100 * row.mean('test'):.2f}"
            bar.update(task, completed=row.round, total=rounds, run=run, values=values)
            if row.round == rounds:
                done += 1
                bar.reset(task, total=rounds, run=run, values=values)

        yield on_round


def show_result(found: Result) -> None:
    summary = found.summary
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows = {
        f"test {summary['metric']}": _percent(summary["test"]),
        "at the best validation": f"{_percent(summary['val'])}, round {summary['best_round']} of {summary['rounds']}",
        "macro-F1": _percent(summary["test_f1"]),
        "weighted by nodes": _percent(summary["weighted_test"]),
        "worst client": f"{_percent(summary['worst_client_test'])} (client {summary['worst_client']})",
        "zeros in the weights": _percent(summary["sparsity"]),
        "sent up, down": f"{summary['bytes_up'] / 1e6:,.1f} MB, {summary['bytes_down'] / 1e6:,.1f} MB",
        "time": f"{summary['seconds']:.1f} s",
    }
    if summary["clients_without_test"]:
        rows["clients without test nodes"] = str(summary["clients_without_test"])
    for name, value in rows.items():
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    for line in splits(found.record.rows):
        console.print(line)
    for client in found.idle:
        console.print(f"[yellow]client {client} has no training node: it only received")
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
