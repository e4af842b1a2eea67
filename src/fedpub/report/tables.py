"""The summary table as Markdown and as LaTeX, with the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedpub.report.summary import Average, Line, TaskTable
from fedpub.report.text import (
    BOLD,
    bold,
    escaped,
    markdown_table,
    number,
    p_value,
    signed,
    spread,
    titled,
    whole_percent,
)
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
Mark = Callable[[str], str]
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
    """A table per task, plus one of averages if there are several cells."""
    blocks = []
    for table in tables:
        blocks += [f"**{escaped(caption(table))}**", markdown_table(HEADS, lines(table, escaped, bold), words=2)]
        if table.cells > 1 and table.averages:
            blocks += [
                f"**{escaped(average_caption(table))}**",
                markdown_table(AVERAGE_HEADS, averages(table, escaped, bold)),
            ]
        blocks += [f"- {escaped(note)}" for note in notes(table)]
    return "\n\n".join(blocks) + "\n"


def latex(tables: Sequence[TaskTable]) -> str:
    """The same tables, with rules from the booktabs package."""
    blocks = ["% \\usepackage{booktabs}"]
    for table in tables:
        blocks.append(_latex(caption(table), HEADS, 2, lines(table, escaped_latex, bold_latex), notes(table)))
        if table.cells > 1 and table.averages:
            blocks.append(
                _latex(average_caption(table), AVERAGE_HEADS, 1, averages(table, escaped_latex, bold_latex), [])
            )
    return "\n\n".join(blocks) + "\n"


def caption(table: TaskTable) -> str:
    return (
        f"{table.task}, test {table.metric} in percent, mean ± deviation over seeds; {BOLD}; "
        f"baseline: {table.baseline}; p over seeds against {titled(table.reference)}, {CONVENTION}"
    )


def average_caption(table: TaskTable) -> str:
    cells = table.averages[0].cells
    return (
        f"{table.task}, averages over the {cells} cells that all methods have; {BOLD}; p over these cells "
        f"against {titled(table.reference)}, {CONVENTION}"
    )


def notes(table: TaskTable) -> list[str]:
    return [f"{line.cell}, {titled(line.method)}: {line.note}" for line in table.lines if line.note]


def lines(table: TaskTable, escape: Mark, embolden: Mark) -> list[list[str]]:
    return [_marked(_line(line), 3 if line.best else None, escape, embolden) for line in table.lines]


def averages(table: TaskTable, escape: Mark, embolden: Mark) -> list[list[str]]:
    return [_marked(_average(line), 2 if line.best else None, escape, embolden) for line in table.averages]


def _marked(texts: Sequence[str], best: int | None, escape: Mark, embolden: Mark) -> list[str]:
    return [embolden(escape(text)) if place == best else escape(text) for place, text in enumerate(texts)]


def _line(line: Line) -> list[str]:
    return [
        line.cell,
        titled(line.method),
        str(line.runs) if line.done == line.runs else f"{line.done} of {line.runs}",
        spread(line.mean, line.deviation) + ("" if line.finished else " (unfinished)"),
        number(line.baseline),
        number(line.paper),
        signed(line.difference),
        "" if line.reached is None else ("yes" if line.reached else "no"),
        p_value(line.p_value),
        whole_percent(line.better_than_local),
        number(line.worst_client),
    ]


def _average(line: Average) -> list[str]:
    reached = f"{line.reached} of {line.published}" if line.published else ""
    paper, difference = number(line.paper), signed(line.difference)
    return [titled(line.method), str(line.cells), number(line.mean), paper, difference, reached, p_value(line.p_value)]


def _latex(title: str, heads: Sequence[str], words: int, rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    row: Callable[[Sequence[str]], str] = lambda cells: " & ".join(cells) + r" \\"  # noqa: E731
    columns = "l" * words + "r" * (len(heads) - words)
    text = "; ".join([title, *notes])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped_latex(text)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            row([escaped_latex(head) for head in heads]),
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


def bold_latex(text: str) -> str:
    return rf"\textbf{{{text}}}"
