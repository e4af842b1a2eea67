"""Figures for a paper: PDF and SVG, in the width of a column, without colour alone telling methods apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpub.algorithms import METHODS
from fedpub.core.files import atomic, slug
from fedpub.errors import FedpubError
from fedpub.report.load import Loaded, Place, Relation
from fedpub.report.summary import cell_names, curves, gains, methods
from fedpub.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#7a7a7a", "#3b6fb6", "#d1782e", "#4a9a62", "#8e63b0", "#a5761b", "#2f9aa8", "#333333", "#c2334d")
STYLES = ("-", "--", "-.", ":")
STYLE: Any = {
    "font.size": 8,
    "font.family": "serif",
    "mathtext.fontset": "dejavuserif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a name is one
    "lines.linewidth": 1.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # text stays text in the PDF
    "svg.hashsalt": "fedpub",  # the same runs give the same file
}


def save_all(runs: Sequence[Loaded], folder: Path) -> list[Path]:
    """Convergence, similarity and gains of every cell that has them; the files that were written."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise FedpubError("--figures needs matplotlib, which is not installed: pip install matplotlib") from error
    mpl.use("Agg")
    from matplotlib import pyplot

    written: list[Path] = []
    with mpl.rc_context(STYLE):
        for name, figure in _figures(runs):
            for suffix in ("pdf", "svg"):
                path = folder / f"{name}.{suffix}"
                dateless: dict[str, Any] = {"CreationDate": None} if suffix == "pdf" else {"Date": None}
                with atomic(path) as temporary:
                    figure.savefig(temporary, format=suffix, bbox_inches="tight", metadata=dateless)
                written.append(path)
            pyplot.close(figure)
    return written


def _figures(runs: Sequence[Loaded]) -> Iterator[tuple[str, Figure]]:
    used: set[str] = set()
    order = methods(runs)
    for place, name in cell_names(runs).items():
        mine = [one for one in runs if one.place == place]
        end = _file_name(place, name, used)
        if any(one.rows for one in mine):
            yield f"convergence-{end}", _convergence(mine, place, order)
        related = [(one, one.relations[0]) for one in mine if one.relations]
        if related:
            one, relation = max(related, key=lambda pair: (order.index(pair[0].label), -pair[0].experiment.seed))
            yield f"similarity-{end}", _similarity(one, relation)
        local = [one for one in mine if one.label == "local"]
        found = {label: gains([one for one in mine if one.label == label], local) for label in methods(mine)}
        found = {label: points for label, points in found.items() if points and label != "local"}
        if found:
            yield f"gain-{end}", _gains(found, place, order)


def _file_name(place: Place, name: str, used: set[str]) -> str:
    task = "" if place.task == "node-classification" else f"{place.task} "
    plain = slug(f"{task}{name}".lower()) or "cell"
    unique = next(
        candidate for candidate in (plain, *(f"{plain}-{n}" for n in range(2, 1000))) if candidate not in used
    )
    used.add(unique)
    return unique


def _look(label: str, order: Sequence[str]) -> dict[str, Any]:
    """A method has the same colour in every figure; its variants differ by their strokes, and FED-PUB is solid."""
    method = label.split()[0]
    variant = [other for other in order if other.split()[0] == method].index(label)
    place = list(METHODS).index(method)
    stroke = variant if method == "fedpub" else place + variant
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": STYLES[stroke % len(STYLES)]}


def _convergence(runs: Sequence[Loaded], place: Place, order: Sequence[str]) -> Figure:
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(5.5, 2.1), sharey=True, layout="constrained")
    for label in methods(runs):
        curve = curves([one for one in runs if one.label == label])
        if not curve:
            continue
        for panel, column in zip(panels, ("val", "test"), strict=True):
            _line(panel, curve["rounds"], curve[column], label, _look(label, order))
    for panel, title in zip(panels, ("validation", "test"), strict=True):
        panel.set(title=title, xlabel="round")
    panels[0].set_ylabel(f"{TASKS[place.task].metric} (%)")
    panels[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _line(panel: Axes, rounds: list[int], curve: dict[str, Any], label: str, look: dict[str, Any]) -> None:
    mean = np.array(curve["mean"], dtype=float)
    deviation = np.nan_to_num(np.array(curve["deviation"], dtype=float))
    panel.plot(rounds, mean, label=label, **look)
    panel.fill_between(rounds, mean - deviation, mean + deviation, color=look["color"], alpha=0.15, linewidth=0)


def _similarity(one: Loaded, relation: Relation) -> Figure:
    """The last round that was kept."""
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, panel = pyplot.subplots(figsize=(2.7, 2.3), layout="constrained")
    image = panel.imshow(relation.values[-1], cmap="Blues", interpolation="nearest")
    panel.set(xlabel="client", ylabel="client", title=f"{one.label}, round {relation.rounds[-1]}")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    panel.spines[:].set_visible(False)
    figure.colorbar(image, ax=panel, label=relation.name)
    return figure


def _gains(found: dict[str, list[dict[str, Any]]], place: Place, order: Sequence[str]) -> Figure:
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(3.4, 0.6 + 0.35 * len(found)), layout="constrained")
    panel.axvline(0, color="#888888", linewidth=0.6)
    for height, (label, seeds) in enumerate(found.items()):
        points = [(gain, client) for one in seeds for client, gain in enumerate(one["gains"]) if gain is not None]
        across = max((client for _, client in points), default=0) or 1
        places = [height + 0.5 * (client / across - 0.5) for _, client in points]
        colour = _look(label, order)["color"]
        panel.scatter([gain for gain, _ in points], places, s=9, color=colour, alpha=0.7, linewidth=0)
    panel.set(yticks=range(len(found)), yticklabels=list(found))
    panel.invert_yaxis()
    panel.set_xlabel(f"{TASKS[place.task].metric} of a client over training alone (points)")
    return figure
