"""A comparison as text, for the terminal, Markdown files and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpub.report.text import BOLD, best, bold, escaped, markdown_table, number, spread, titled, whole_percent
from fedpub.runs.comparison import Cell, Run, Score, baselines, scores


def cell_name(cell: Cell) -> str:
    return f"{Path(cell.dataset).stem}, {cell.scenario}{f' {cell.clients}' if cell.clients else ''}"


def best_in(lines: Sequence[Score]) -> list[set[str]]:
    """For each cell, the methods shown in bold."""
    columns = range(len(lines[0].cells)) if lines else ()
    return [best({line.method: line.cells[place][0] for line in lines}) for place in columns]


def not_above(runs: Sequence[Run], lines: Sequence[Score]) -> list[str]:
    """One sentence for each cell in which some method does not beat the baseline."""
    beside = baselines(runs)
    if beside is None:
        return []
    words, values = beside
    said = []
    for place, cell in enumerate(dict.fromkeys(one.cell for one in runs)):
        if cell in values and (lost := [one.method for one in lines if one.cells[place][0] <= values[cell] + 1e-9]):
            names = ", ".join(map(titled, lost))
            said.append(f"{cell_name(cell)}: not above the baseline ({words}, {values[cell]:.2f} %): {names}")
    return said


def markdown(runs: Sequence[Run]) -> str:
    """One table per scenario, with a column for each graph and number of clients."""
    blocks = []
    for scenario in dict.fromkeys(one.cell.scenario for one in runs):
        mine = [one for one in runs if one.cell.scenario == scenario]
        cells, lines = list(dict.fromkeys(one.cell for one in mine)), scores(mine)
        seeds = ", ".join(map(str, sorted({one.seed for one in mine})))
        metric = mine[0].summary["metric"]
        heads = [f"{cell.dataset} {cell.clients or ''}".strip() for cell in cells]
        marked, top = best_in(lines), best({line.method: line.average for line in lines})
        rows = []
        for line in lines:
            texts = [spread(*cell) for cell in line.cells]
            values = [bold(text) if line.method in own else text for text, own in zip(texts, marked, strict=True)]
            average = bold(number(line.average)) if line.method in top else number(line.average)
            sent = f"{line.megabytes_up:,.0f}"
            rows.append([escaped(titled(line.method)), *values, average, whole_percent(line.sparsity / 100), sent])
        if beside := baselines(mine):
            rows.append([beside[0], *(number(beside[1].get(cell)) for cell in cells), "", "", ""])
        table = markdown_table(["method", *map(escaped, heads), "average", "zeros", "MB up"], rows)
        title = f"**{scenario}**, test {metric} in percent, mean ± deviation over seeds {seeds}; {BOLD}"
        blocks.append("\n".join([title, "", table, "", *(f"- {sentence}" for sentence in not_above(mine, lines))]))
    return "\n\n".join(blocks) + "\n"
