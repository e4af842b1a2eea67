"""The summary table as Markdown and as LaTeX, from the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedpub.report.summary import Average, Line, TaskTable
from fedpub.runs.significance import CONVENTION

HEADS = (
    "data",
    "method",
    "seeds",
    "measured",
    "baseline",
    "paper",
    "difference",
    "ours ≥ paper",
    "p",
    "better than local",
    "worst",
)
AVERAGE_HEADS = ("method", "cells", "average", "paper", "difference", "cells ≥ paper", "p")
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": r"$-$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def markdown(tables: Sequence[TaskTable]) -> str:
    """A table per task, and one of averages where there are several cells."""
    blocks = []
    for table in tables:
        blocks += [f"**{_escaped(caption(table))}**", _markdown(HEADS, lines(table))]
        if table.cells > 1 and table.averages:
            blocks += [f"**{_escaped(average_caption(table))}**", _markdown(AVERAGE_HEADS, averages(table))]
        blocks += [f"- {_escaped(note)}" for note in notes(table)]
    return "\n\n".join(blocks) + "\n"


def latex(tables: Sequence[TaskTable]) -> str:
    """The same with the rules of the booktabs package."""
    blocks = ["% \\usepackage{booktabs}"]
    for table in tables:
        blocks.append(_latex(caption(table), HEADS, 2, lines(table), notes(table)))
        if table.cells > 1 and table.averages:
            blocks.append(_latex(average_caption(table), AVERAGE_HEADS, 1, averages(table), []))
    return "\n\n".join(blocks) + "\n"


def caption(table: TaskTable) -> str:
    return (
        f"{table.task}, test {table.metric} in percent, mean ± deviation over seeds; "
        f"baseline: {table.baseline}; p over seeds against {table.reference}, {CONVENTION}"
    )


def average_caption(table: TaskTable) -> str:
    cells = table.averages[0].cells
    return (
        f"{table.task}, averages over the {cells} cells that all methods have; p over these cells against "
        f"{table.reference}, {CONVENTION}"
    )


def notes(table: TaskTable) -> list[str]:
    return [f"{line.cell}, {line.method}: {line.note}" for line in table.lines if line.note]


def lines(table: TaskTable) -> list[list[str]]:
    return [_line(line) for line in table.lines]


def averages(table: TaskTable) -> list[list[str]]:
    return [_average(line) for line in table.averages]


def _line(line: Line) -> list[str]:
    measured = number(line.mean) + ("" if line.deviation is None else f" ± {line.deviation:.2f}")
    return [
        line.cell,
        line.method,
        str(line.runs) if line.done == line.runs else f"{line.done} of {line.runs}",
        measured + ("" if line.finished else " (unfinished)"),
        number(line.baseline),
        number(line.paper),
        signed(line.difference),
        "" if line.reached is None else ("yes" if line.reached else "no"),
        p_value(line.p_value),
        "" if line.better_than_local is None else f"{line.better_than_local:.0%}",
        number(line.worst_client),
    ]


def _average(line: Average) -> list[str]:
    reached = f"{line.reached} of {line.published}" if line.published else ""
    paper, difference = number(line.paper), signed(line.difference)
    return [line.method, str(line.cells), number(line.mean), paper, difference, reached, p_value(line.p_value)]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}".replace("-", "−")


def p_value(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    aligned = ["---" if head in ("data", "method") else "---:" for head in heads]
    shown = [heads, aligned, *([_escaped(word) for word in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _escaped(text: str) -> str:
    """Nothing in a name is markup."""
    flat = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\|`*_[]<>" else character for character in flat)


def _latex(title: str, heads: Sequence[str], words: int, rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    row: Callable[[Sequence[str]], str] = lambda cells: " & ".join(map(escaped_latex, cells)) + r" \\"  # noqa: E731
    columns = "l" * words + "r" * (len(heads) - words)
    text = "; ".join([title, *notes])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped_latex(text)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            row(heads),
            r"\midrule",
            *map(row, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def escaped_latex(text: str) -> str:
    flat = " ".join(text.split())
    return "".join(SPECIAL.get(character, character) for character in flat).replace("< ", "$<$ ")
