"""Runs and comparisons in a terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.constructors import PrimitiveConstructorSpec

from fedpub.errors import with_flags

if TYPE_CHECKING:
    from fedpub.runs.comparison import Run, Score
    from fedpub.runs.simulated import Result
    from fedpub.runs.sweep import Standing
    from fedpub.store.record import Row

STDOUT = Path("-")


def _one_file(words: list[str]) -> Path:
    if len(words) > 1:
        raise ValueError("name one file, or none to print it")
    return Path(words[0]) if words else STDOUT


# The flag --json with an optional file.
JsonFile = Annotated[
    Path | None,
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="[FILE]",
        instance_from_str=_one_file,
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
    tyro.conf.arg(help="Output as JSON; with a file, JSON in that file in addition to the usual output."),
]


def as_json(found: Any, wanted: bool | Path | None) -> bool:
    """Output `found` as one JSON document if wanted; True if it was printed, so that nothing else may be."""
    if not wanted:
        return False
    text = json.dumps(_plain(found), indent=2)
    if isinstance(wanted, Path) and wanted != STDOUT:
        from fedpub.core.files import write_text

        write_text(wanted, text + "\n")
        return False
    print(text)
    return True


def _plain(found: Any) -> Any:
    """Convert to JSON types; NaN and infinity become null."""
    if is_dataclass(found) and not isinstance(found, type):
        return _plain({one.name: getattr(found, one.name) for one in fields(found)})
    if isinstance(found, Mapping):
        return {str(name): _plain(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [_plain(value) for value in found]
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return str(found) if isinstance(found, Path) else found


def pairs_table(rows: Mapping[str, str]) -> Table:
    """Names and values, one pair per line."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def wide_console(width: int) -> Console:
    """A console for the terminal; if the output is a file or a pipe, one of the given width."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def show_result(found: Result, json: bool = False) -> None:
    from fedpub.report.text import percent
    from fedpub.store.record import baseline_of, not_above
    from fedpub.tasks import TASKS, is_amount
    from fedpub.tasks.metrics import TITLES

    summary = found.summary
    further = {name: title for task in TASKS.values() for name, title in task.further.items()}
    if as_json({**summary, "idle_clients": found.idle, "out": found.path}, json):
        return
    rows = {
        f"test {summary['metric']}": percent(summary["test"]),
        **({beside[0]: percent(beside[1])} if (beside := baseline_of(summary)) else {}),
        "best validation": f"{percent(summary['val'])} (round {summary['best_round']} of {summary['rounds']})",
        **{
            title: f"{summary[name]:.4g}" if is_amount(name) and summary[name] is not None else percent(summary[name])
            for name, title in further.items()
            if name in summary
        },
        **{f"{TITLES[name]} by thresholds": percent(value) for name, value in summary.get("decided", {}).items()},
        **_of_clients(summary),
        "zeros in the weights": percent(summary["sparsity"]),
        "sent up, down": f"{summary['bytes_up'] / 1e6:,.1f} MB, {summary['bytes_down'] / 1e6:,.1f} MB",
        "time": f"{summary['seconds']:.1f} s",
    }
    if summary.get("setup_seconds"):
        up, down = summary["setup_bytes_up"] / 1e6, summary["setup_bytes_down"] / 1e6
        rows["of these for set-up"] = f"{up:,.1f} MB, {down:,.1f} MB, {summary['setup_seconds']:.1f} s"
    if summary["clients_without_test"]:
        rows["clients without a test set"] = str(summary["clients_without_test"])
    console = Console(highlight=False)
    console.print(pairs_table(rows))
    for line in splits(found.record.rows):
        console.print(line)
    if worse := not_above(summary["test"], beside):
        console.print(f"[yellow]test {summary['metric']} {worse}")
    for client in found.idle:
        console.print(f"[yellow]client {client} has nothing to train on and only receives")
    if found.path:
        console.print(f"run directory: {found.path}", soft_wrap=True)


def _of_clients(summary: Mapping[str, Any]) -> dict[str, str]:
    """What depends on single clients; of a deployed secure run only sums are known."""
    from fedpub.report.text import percent

    if not summary["per_client_test"]:
        return {"of single clients": "nothing is known but their sums"}
    worst = f"{percent(summary['worst_client_test'])} (client {summary['worst_client']})"
    return {"weighted by test set": percent(summary["weighted_test"]), "worst client": worst}


def splits(rows: Sequence[Row]) -> list[str]:
    """GCFL's splits, one line each."""
    said, before = [], 1
    for row in rows:
        # Clusters are numbered in order of creation, and all clients of a splitting cluster take part in that round.
        count = int(max(row.clients.get("cluster", [0]))) + 1
        if count > before:
            said.append(f"round {row.round}: {before} cluster{'s' if before > 1 else ''} became {count}")
            before = count
    return said


def show_comparison(runs: Sequence[Run], lines: Sequence[Score]) -> None:
    from rich.text import Text

    from fedpub.report.compared import best_in, not_above
    from fedpub.report.text import best, number, p_value, spread, titled, whole_percent
    from fedpub.runs.comparison import baselines

    cells = list(dict.fromkeys(one.cell for one in runs))
    seeds = len({one.seed for one in runs})
    metric = runs[0].summary["metric"]
    table = Table(
        title=f"test {metric} in percent, {counted(seeds, 'seed')}", title_justify="left", header_style="bold"
    )
    table.add_column("method", no_wrap=True)
    for cell in cells:
        count = f" {cell.clients}" if cell.clients else ""
        table.add_column(f"{Path(cell.dataset).stem}\n{cell.scenario}{count}", justify="right")
    headings = (
        "average",
        f"p against\n{titled(lines[0].method)}",
        "better\nthan local",
        "worst\nclient",
        "zeros",
        "MB up",
        "s",
    )
    for heading in headings if len(cells) > 1 else headings[1:]:
        table.add_column(heading, justify="right")
    marked, top = best_in(lines), best({line.method: line.average for line in lines})
    for line in lines:
        bold = ["bold" if line.method in own else "" for own in marked]
        row = [
            Text(titled(line.method)),
            *(Text(spread(*cell), style) for cell, style in zip(line.cells, bold, strict=True)),
        ]
        if len(cells) > 1:
            row.append(Text(number(line.average), "bold" if line.method in top else ""))
        row += [
            Text(text)
            for text in (
                p_value(line.p_value),
                whole_percent(line.better_than_local),
                f"{line.worst_client:.1f}",
                whole_percent(line.sparsity / 100),
                f"{line.megabytes_up:,.1f}",
                f"{line.seconds:.1f}",
            )
        ]
        table.add_row(*row)
    if beside := baselines(runs):
        words, values = beside
        table.add_section()
        average = sum(values.values()) / len(values)
        own = [words, *(number(values.get(cell)) for cell in cells)]
        table.add_row(*own, *([number(average)] if len(values) == len(cells) > 1 else []))
    console = wide_console(1000)
    console.print(table)
    for sentence in not_above(runs, lines):
        console.print(f"[yellow]{sentence}")


def show_sweep(points: Sequence[Standing], metric: str, out: Path | None) -> None:
    from rich.text import Text

    from fedpub.report.swept import how_chosen, short
    from fedpub.report.text import spread, titled

    names = list(dict.fromkeys(name for one in points for name in one.settings))
    table = Table(
        title=f"{metric} in percent; test values of the chosen points only", title_justify="left", header_style="bold"
    )
    table.add_column("method", no_wrap=True)
    for heading in (*names, "validation", "test", "MB up", "s"):
        table.add_column(heading, justify="right")
    for one in points:
        row = [
            titled(one.method),
            *(short(one.settings[name]) if name in one.settings else "" for name in names),
            spread(one.val, one.val_deviation),
            spread(one.test, one.test_deviation),
            f"{one.megabytes_up:,.1f}",
            f"{one.seconds:.1f}",
        ]
        table.add_row(*(Text(text, "bold" if one.chosen else "") for text in row))
    console = wide_console(1000)
    console.print(table)
    console.print(with_flags(how_chosen(points)), markup=False)
    if out is not None:
        console.print(f"run directories: {out}", soft_wrap=True, markup=False)


def counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
