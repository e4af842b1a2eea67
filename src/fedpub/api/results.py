"""A run and a comparison as a notebook shows them: data frames, figures, short texts, a bar while one waits."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpub.core.files import read_tensors
from fedpub.core.tree import Tree
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT
from fedpub.experiment.prepare import prepare
from fedpub.store.record import SUMS, Record, Row, baseline_of, not_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from fedpub.runs.comparison import Cell, Score
    from fedpub.runs.comparison import Run as Compared
    from fedpub.store.model_files import ModelCard

CELL = "padding: 0.1em 0.8em; text-align: "


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run: what was measured, the personal models, and figures of both."""

    experiment: Experiment
    summary: dict[str, Any]
    record: Record
    path: Path
    """Its directory. A temporary one, gone with this object, where no `out` was given."""
    temporary: bool = False
    data_root: Path | None = None

    @property
    def method(self) -> str:
        return self.experiment.method.removeprefix(OBJECT)

    @property
    def test(self) -> float | None:
        """The mean test value over the clients at the round that validates best, by the task's metric."""
        value: float | None = self.summary["test"]
        return value

    @property
    def rounds(self) -> DataFrame:
        """A row per round: means over the clients, and sums of what was sent."""
        rows = [
            {"round": row.round, "seconds": row.seconds}
            | {name: row.mean(name) for name in row.means}
            | {name: int(sum(row.clients[name])) for name in SUMS}
            for row in self.record.rows
        ]
        return data_frame(rows)

    @property
    def clients(self) -> DataFrame:
        """A row per round and client."""
        rows = [
            {"round": row.round, "client": client} | dict(zip(row.clients, values, strict=True))
            for row in self.record.rows
            for client, values in enumerate(zip(*row.clients.values(), strict=True))
        ]
        return data_frame(rows)

    @property
    def relations(self) -> dict[str, np.ndarray]:
        """What the server saw between clients, [round, client, client]; NaN for who was absent. FED-PUB: similarity."""
        file = self.path / "relations.safetensors"
        return {name: found.numpy() for name, found in read_tensors(file)[0].items()} if file.is_file() else {}

    def model(self, client: int | str) -> tuple[Tree, ModelCard]:
        """A client's personal weights at the best round, and the card that says what they are for."""
        from fedpub.store.model_files import model_of_run

        name = str(self.experiment.model)
        if name.startswith(OBJECT):
            raise FedpubError(
                f"the model {name.removeprefix(OBJECT)!r} is an object, which no card can describe; "
                f"the weights of all clients are in {self.path / 'models.safetensors'}"
            )
        return model_of_run(self.path, client, self.data_root)

    def to_pyg(self, client: int | None = None) -> Any:
        """The graph as a PyG `Data`, with the number of each node's client and the masks; or one client's part of it.

        Nodes have no number where clients overlap, and no masks where links are predicted.
        """
        # What clients hold depends neither on the method nor on the model.
        plan = replace(self.experiment, method="local", options={}, model="gcn").resolve()
        ready = prepare(plan, self.data_root)
        count, graph = ready.partition.num_clients, ready.graph
        if client is not None and not 0 <= client < count:
            raise FedpubError(f"client {client} is not one of the {count} clients of this run; give 0 to {count - 1}")
        held = torch.cat(ready.partition.nodes)
        owner_N: torch.Tensor | None = None
        if len(torch.unique(held)) == len(held):
            owner_N = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
            for number, own in enumerate(ready.partition.nodes):
                owner_N[own] = number
        data = replace(graph, client=None, client_names=()).to_pyg()
        if owner_N is not None:
            data.client = owner_N
        if (chosen := plan.task.masks(graph, plan.data_seed, plan.ratios)) is not None:
            data.train_mask, data.val_mask, data.test_mask = chosen
        return data if client is None else data.subgraph(ready.partition.nodes[client])

    def plot(self, kind: str = "convergence") -> Figure:
        """A matplotlib figure, to be looked at as the value of a cell or saved with savefig.

        convergence: validation and test by round; clients: everybody's test value; similarity: what the server saw
        between clients in the last round.
        """
        kinds: dict[str, Callable[[], Figure]] = {
            "convergence": self._convergence,
            "clients": self._clients,
            "similarity": self._similarity,
        }
        if kind not in kinds:
            raise unknown("kind of plot", kind, kinds)
        return _drawn(kinds[kind])

    def _convergence(self) -> Figure:
        from matplotlib import pyplot

        from fedpub.report.style import COLOURS

        figure, panel = pyplot.subplots(figsize=(4.8, 2.4), layout="constrained")
        rounds = [row.round for row in self.record.rows]
        for column, colour, stroke in (("val", COLOURS[0], "--"), ("test", COLOURS[1], "-")):
            means = [100 * row.mean(column) for row in self.record.rows]
            panel.plot(rounds, means, color=colour, linestyle=stroke, label={"val": "validation"}.get(column, column))
        panel.axvline(self.summary["best_round"], color="#888888", linewidth=0.6, linestyle=":", label="best round")
        panel.set(xlabel="round", ylabel=f"{self.summary['metric']} (%)", title=self._title())
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure

    def _clients(self) -> Figure:
        from matplotlib import pyplot
        from matplotlib.ticker import MaxNLocator

        from fedpub.report.style import COLOURS

        values = [np.nan if value is None else 100 * value for value in self.summary["per_client_test"]]
        figure, panel = pyplot.subplots(figsize=(4.8, 2.4), layout="constrained")
        panel.bar(range(len(values)), values, color=COLOURS[1])
        if self.test is not None:
            panel.axhline(100 * self.test, color="#333333", linewidth=0.8, label=f"mean {100 * self.test:.1f}")
            panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set(xlabel="client", ylabel=f"test {self.summary['metric']} (%)", title=self._title())
        return figure

    def _similarity(self) -> Figure:
        from fedpub.report import figures
        from fedpub.report.load import Loaded, Relation, _together

        related = {name: values[-1] for name, values in self.relations.items()}
        last = self.record.rows[-1]
        if "cluster" in last.clients:
            related["same cluster"] = _together(last.clients["cluster"])
        if not related:
            raise FedpubError(
                f"this run of {self.method} kept nothing between clients to draw; fedpub and gcfl do, where there are "
                "256 clients at most"
            )
        name, values = next(iter(related.items()))
        shown = Loaded(self.path, self.experiment, [], None, True, label=self.method)
        return figures._similarity(shown, Relation(name, [last.round], values[None]))

    def _title(self) -> str:
        what, count = self.experiment, len(self.summary["per_client_test"])
        return f"{self.method} on {Path(what.dataset).stem}, {what.scenario}, {count} clients"

    def _facts(self) -> dict[str, str]:
        found = self.summary
        beside = baseline_of(found)
        worse = beside and not_above(found["test"], beside) and f"not above the baseline, {beside[0]}"
        facts = {
            f"test {found['metric']}": percent(found["test"]) + (f" ({worse})" if worse else ""),
            **({beside[0]: percent(beside[1])} if beside else {}),
            "validation": f"{percent(found['val'])}, best at round {found['best_round']} of {found['rounds']}",
            "worst client": f"{percent(found['worst_client_test'])} (client {found['worst_client']})",
            "zeros in the weights": percent(found["sparsity"]),
            "sent up, down": f"{found['bytes_up'] / 1e6:,.1f} MB, {found['bytes_down'] / 1e6:,.1f} MB",
            "time": f"{found['seconds']:.1f} s",
        }
        return facts if self.temporary else facts | {"kept in": str(self.path)}

    def __repr__(self) -> str:
        said = "; ".join(f"{heading} {text}" for heading, text in self._facts().items())
        return f"Run of {self._title()}: {said}."

    def _repr_html_(self) -> str:
        return html_table(f"Run of {self._title()}", [], list(self._facts().items()))


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several methods on the same data and seeds."""

    runs: Sequence[Compared]
    """The summary of every run, with its cell (graph and clients), method and seed."""

    @property
    def table(self) -> DataFrame:
        """A row per cell and method, in percent; p-values are over the seeds of a cell, against the first method, as
        `fedpub.runs.significance` says; `baseline` is what predicting each client's most frequent class gives."""
        from fedpub.runs.comparison import baselines

        rows: list[dict[str, Any]] = []
        for cell, lines in self._scores().items():
            clients = next(len(one.summary["per_client_test"]) for one in self.runs if one.cell == cell)
            own = {"dataset": Path(cell.dataset).stem, "scenario": cell.scenario, "clients": clients}
            for line in lines:
                test, deviation = line.cells[0]
                # A single seed has no deviation.
                row = own | {
                    "method": line.method,
                    "test": test,
                    "deviation": np.nan if deviation is None else deviation,
                }
                row |= {"baseline": beside[1].get(cell, np.nan) if (beside := baselines(self.runs)) else np.nan}
                names = ("p_value", "better_than_local", "worst_client", "sparsity", "megabytes_up", "seconds")
                rows.append(row | {name: getattr(line, name) for name in names})
        return data_frame(rows)

    def plot(self) -> Figure:
        """The mean test value of every method, with the deviation over seeds: a matplotlib figure, a panel per cell."""
        return _drawn(self._panels)

    def _panels(self) -> Figure:
        from matplotlib import pyplot

        from fedpub.report.style import looks
        from fedpub.report.text import titled

        scores = self._scores()
        labels = [line.method for line in next(iter(scores.values()))]
        look = looks(labels)
        size = (1 + 2.4 * len(scores), 0.9 + 0.3 * len(labels))
        figure, panels = pyplot.subplots(1, len(scores), figsize=size, sharey=True, squeeze=False, layout="constrained")
        for panel, (cell, lines) in zip(panels[0], scores.items(), strict=True):
            for height, line in enumerate(lines):
                mean, deviation = line.cells[0]
                how = {"color": look[line.method].colour, "marker": look[line.method].marker}
                panel.errorbar(mean, height, xerr=deviation, markersize=4, capsize=2, **how)
            panel.set(title=cell_name(cell), xlabel=f"test {self._metric} (%)")
            panel.set(yticks=range(len(labels)), yticklabels=[titled(label) for label in labels])
            panel.margins(y=0.2)
        panels[0][0].invert_yaxis()  # the axis is shared
        return figure

    def _scores(self) -> dict[Cell, list[Score]]:
        from fedpub.runs.comparison import scores

        cells = dict.fromkeys(one.cell for one in self.runs)
        return {cell: scores([one for one in self.runs if one.cell == cell]) for cell in cells}

    @property
    def _metric(self) -> str:
        return str(self.runs[0].summary["metric"])

    @property
    def _seeds(self) -> int:
        return len({one.seed for one in self.runs})

    def _lines(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Headings and a row per method."""
        from fedpub.runs.comparison import baselines

        scores = self._scores()
        rows = []
        for lines in zip(*scores.values(), strict=True):
            values = [
                f"{mean:.2f}" + ("" if off is None else f" ± {off:.2f}") for mean, off in (x.cells[0] for x in lines)
            ]
            rows.append((lines[0].method, *values))
        if beside := baselines(self.runs):
            rows.append((beside[0], *(f"{beside[1][cell]:.2f}" if cell in beside[1] else "" for cell in scores)))
        return ["method", *map(cell_name, scores)], rows

    def _title(self) -> str:
        seeds = f"mean and deviation over {self._seeds} seeds" if self._seeds > 1 else "one seed"
        return f"test {self._metric} in percent, {seeds}"

    def __repr__(self) -> str:
        headings, rows = self._lines()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in (headings, *rows)]
        return "\n".join([f"Comparison: {self._title()}", *("  ".join(row).rstrip() for row in padded)])

    def _repr_html_(self) -> str:
        headings, rows = self._lines()
        return html_table(f"Comparison: {self._title()}", headings, rows)


def data_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    frame: DataFrame = pandas().DataFrame(rows)
    return frame


def pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise FedpubError("data frames need pandas, which is not installed: pip install 'fedpub[notebook]'") from error
    return pandas


def percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.2f} %"


def cell_name(cell: Cell) -> str:
    return f"{Path(cell.dataset).stem}, {cell.scenario}{f' {cell.clients}' if cell.clients else ''}"


def html_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table; whatever it holds is text."""

    def line(row: Sequence[str], tag: str) -> str:
        sides = ("left", *["right"] * (len(row) - 1))
        pairs = zip(sides, row, strict=True)
        cells = [f'<{tag} style="{CELL}{side}">{html.escape(text)}</{tag}>' for side, text in pairs]
        return f"<tr>{''.join(cells)}</tr>"

    above = f"<thead>{line(headings, 'th')}</thead>" if headings else ""
    body = "".join(line(row, "td") for row in rows)
    caption = f'<caption style="text-align: left">{html.escape(title)}</caption>'
    return f"<table>{caption}{above}<tbody>{body}</tbody></table>"


def _drawn(draw: Callable[[], Figure]) -> Figure:
    """A figure in the package's style, which pyplot forgets: else a notebook would show it twice."""
    import matplotlib as mpl
    from matplotlib import pyplot

    from fedpub.report.style import STYLE

    with mpl.rc_context(STYLE):
        figure = draw()
    pyplot.close(figure)
    return figure


class Silent:
    """A bar that nobody sees."""

    def on_step(self, name: str, done: int, total: int) -> None:
        """An exchange before the first round."""

    def on_round(self, row: Row, rounds: int) -> None:
        """A round that is done."""


class NotebookBar(Silent):
    """A bar in a notebook's cell, over `total` runs."""

    SECONDS = 0.2  # between two looks

    def __init__(self, total: int) -> None:
        from IPython.display import HTML, display

        self._html, self._total, self._run, self._shown = HTML, total, 1, 0.0
        self._handle = display(HTML(""), display_id=True)

    def on_step(self, name: str, done: int, total: int) -> None:
        self._show(done, total, f"set-up: {name}")

    def on_round(self, row: Row, rounds: int) -> None:
        values = f"validation {100 * row.mean('val'):.2f}, test {100 * row.mean('test'):.2f}"
        self._show(row.round, rounds, f"round {row.round} of {rounds}, {values}")
        self._run += row.round == rounds

    def _show(self, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if now - self._shown < self.SECONDS:
            return
        self._shown = now
        said = f"run {self._run} of {self._total}, {text}" if self._total > 1 else text
        bar = f'<progress value="{done}" max="{total}"></progress> {html.escape(said)}'
        self._handle.update(self._html(bar))

    def close(self) -> None:
        self._handle.update(self._html(""))


@contextmanager
def progress(wanted: bool, total: int = 1) -> Iterator[Any]:
    """A bar where there is a notebook or a terminal to show it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if wanted and getattr(shell, "kernel", None) is not None:
        bar = NotebookBar(total)
        try:
            yield bar
        finally:
            bar.close()
    elif wanted and sys.stderr is not None and sys.stderr.isatty():
        from fedpub.runs.progress import progress as in_terminal

        with in_terminal(False, total=total) as shown:
            yield shown
    else:
        yield Silent()
