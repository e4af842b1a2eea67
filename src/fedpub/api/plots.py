"""Figures of runs and comparisons for a notebook, in the package's style."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpub.errors import FedpubError, unknown
from fedpub.report import figures
from fedpub.report.compared import cell_name
from fedpub.report.load import ALPHA, SIMILARITY, Relation, compared, together
from fedpub.report.style import GUIDE, STYLE, Look, looks
from fedpub.report.text import titled
from fedpub.runs.comparison import Cell, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedpub.api.results import Run


def plot_run(run: Run, kind: str) -> Figure:
    kinds: dict[str, Callable[[Run], Figure]] = {
        "convergence": _convergence,
        "clients": _clients,
        "similarity": lambda run: _related(run, SIMILARITY),
        "alpha": lambda run: _related(run, ALPHA),
    }
    if kind not in kinds:
        raise unknown("kind of plot", kind, kinds)
    return _drawn(lambda: kinds[kind](run))


def plot_comparison(scores: Mapping[Cell, Sequence[Score]], metric: str) -> Figure:
    return _drawn(lambda: _panels(scores, metric))


def _drawn(draw: Callable[[], Figure]) -> Figure:
    """A figure in the package's style, closed in pyplot: otherwise a notebook would show it twice."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        figure = draw()
    pyplot.close(figure)
    return figure


def _look(run: Run) -> Look:
    return looks([run.method])[run.method]


def _convergence(run: Run) -> Figure:
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(4.8, 2.4), layout="constrained")
    rounds = [row.round for row in run.record.rows]
    for column, label, colour, stroke in (("val", "validation", GUIDE, "--"), ("test", "test", _look(run).colour, "-")):
        means = [100 * row.mean(column) for row in run.record.rows]
        panel.plot(rounds, means, color=colour, linestyle=stroke, label=label)
    panel.axvline(run.summary["best_round"], color=GUIDE, linewidth=0.6, linestyle=":", label="best round")
    panel.set(xlabel="round", ylabel=f"{run.summary['metric']} (%)", title=run.title)
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _clients(run: Run) -> Figure:
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    if not run.summary["per_client_test"]:
        raise FedpubError(f"{run.path} has no values of single clients: of a deployed secure run only means are known")
    values = [np.nan if value is None else 100 * value for value in run.summary["per_client_test"]]
    figure, panel = pyplot.subplots(figsize=(4.8, 2.4), layout="constrained")
    panel.bar(range(len(values)), values, color=_look(run).colour)
    if run.test is not None:
        panel.axhline(100 * run.test, color=GUIDE, linewidth=0.8, label=f"mean {100 * run.test:.1f}")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="client", ylabel=f"test {run.summary['metric']} (%)", title=run.title)
    return figure


def _related(run: Run, wanted: str) -> Figure:
    related = {name: values[-1] for name, values in run.relations.items() if name == wanted}
    if SIMILARITY in related:
        related[SIMILARITY] = compared(related[SIMILARITY][None])[0]
    last = run.record.rows[-1]
    if wanted == SIMILARITY and "cluster" in last.clients:
        related["same cluster"] = together(last.clients["cluster"])
    if not related:
        keeps = "fedpub, fedpub-plus and gcfl do" if wanted == SIMILARITY else "fedpub and fedpub-plus do"
        raise FedpubError(
            f"this run of {run.method} kept no relations between clients to draw; {keeps}, with at most 256 clients"
        )
    ((name, values),) = related.items()
    return figures.similarity(run.method, Relation(name, [last.round], values[None]))


def _panels(scores: Mapping[Cell, Sequence[Score]], metric: str) -> Figure:
    """The mean test value of every method, with the deviation over seeds: a panel per cell."""
    from matplotlib import pyplot

    labels = [line.method for line in next(iter(scores.values()))]
    look = looks(labels)
    size = (1 + 2.4 * len(scores), 0.9 + 0.3 * len(labels))
    figure, panels = pyplot.subplots(1, len(scores), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for panel, (cell, lines) in zip(panels[0], scores.items(), strict=True):
        for height, line in enumerate(lines):
            (mean, deviation), how = line.cells[0], look[line.method]
            panel.errorbar(mean, height, xerr=deviation, color=how.colour, marker=how.marker, markersize=4, capsize=2)
        panel.set(title=cell_name(cell), xlabel=f"test {metric} (%)")
        panel.set(yticks=range(len(labels)), yticklabels=[titled(label) for label in labels])
        panel.margins(y=0.2)
    panels[0][0].invert_yaxis()  # the axis is shared
    return figure
