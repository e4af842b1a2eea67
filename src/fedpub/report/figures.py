"""Figures for a paper as PDF and SVG, one column wide; lines differ in colour and dash and are named at their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpub.core.files import atomic, slug
from fedpub.errors import FedpubError
from fedpub.report.curves import curves, gains
from fedpub.report.load import Loaded, Place, Relation
from fedpub.report.style import GUIDE, STYLE, Look, label_ends, looks
from fedpub.report.summary import cell_names, methods, metric_of
from fedpub.report.text import titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def save_all(runs: Sequence[Loaded], folder: Path) -> list[Path]:
    """Write convergence, similarity and gains for every cell that has them; return the files written."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise FedpubError("`figures` needs matplotlib, which is not installed: pip install matplotlib") from error
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
    look = looks(order)
    for place, name in cell_names(runs).items():
        mine = [one for one in runs if one.place == place]
        end = _file_name(place, name, used)
        if any(one.rows for one in mine):
            yield f"convergence-{end}", _convergence(mine, look)
        related = [(one, one.relations[0]) for one in mine if one.relations]
        if related:
            one, relation = max(related, key=lambda pair: (order.index(pair[0].label), -pair[0].experiment.seed))
            yield f"similarity-{end}", similarity(one.label, relation)
        local = [one for one in mine if one.label == "local"]
        found = {label: gains([one for one in mine if one.label == label], local) for label in methods(mine)}
        found = {label: points for label, points in found.items() if points and label != "local"}
        if found:
            yield f"gain-{end}", _gains(found, metric_of(mine), look)


def _file_name(place: Place, name: str, used: set[str]) -> str:
    task = "" if place.task == "node-classification" else f"{place.task} "
    plain = slug(f"{task}{name}".lower()) or "cell"
    unique = next(
        candidate for candidate in (plain, *(f"{plain}-{n}" for n in range(2, 1000))) if candidate not in used
    )
    used.add(unique)
    return unique


def _convergence(runs: Sequence[Loaded], look: Mapping[str, Look]) -> Figure:
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(5.5, 2.1), sharey=True, layout="constrained")
    ends: dict[str, tuple[float, float, str]] = {}
    for label in methods(runs):
        curve = curves([one for one in runs if one.label == label])
        if not curve:
            continue
        for panel, column in zip(panels, ("val", "test"), strict=True):
            _line(panel, curve["rounds"], curve[column], look[label])
        reached = [(x, y) for x, y in zip(curve["rounds"], curve["test"]["mean"], strict=True) if y is not None]
        if reached:
            ends[titled(label)] = (*reached[-1], look[label].colour)
    for panel, title in zip(panels, ("validation", "test"), strict=True):
        panel.set(title=title, xlabel="round")
    panels[0].set_ylabel(f"{metric_of(runs)} (%)")
    label_ends(panels[1], ends)
    return figure


def _line(panel: Axes, rounds: list[int], curve: dict[str, Any], look: Look) -> None:
    mean = np.array(curve["mean"], dtype=float)
    deviation = np.nan_to_num(np.array(curve["deviation"], dtype=float))
    panel.plot(rounds, mean, **look.line)
    panel.fill_between(rounds, mean - deviation, mean + deviation, color=look.colour, alpha=0.15, linewidth=0)


def similarity(label: str, relation: Relation) -> Figure:
    """Heat map of the last recorded round."""
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, panel = pyplot.subplots(figsize=(2.7, 2.3), layout="constrained")
    image = panel.imshow(relation.values[-1], cmap="Blues", interpolation="nearest")
    panel.set(xlabel="client", ylabel="client", title=f"{titled(label)}, round {relation.rounds[-1]}")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    panel.spines[:].set_visible(False)
    figure.colorbar(image, ax=panel, label=relation.name)
    return figure


def _gains(found: dict[str, list[dict[str, Any]]], metric: str, look: Mapping[str, Look]) -> Figure:
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(3.4, 0.6 + 0.35 * len(found)), layout="constrained")
    panel.axvline(0, color=GUIDE, linewidth=0.6)
    for height, (label, seeds) in enumerate(found.items()):
        points = [(gain, client) for one in seeds for client, gain in enumerate(one["gains"]) if gain is not None]
        across = max((client for _, client in points), default=0) or 1
        places = [height + 0.5 * (client / across - 0.5) for _, client in points]
        values, how = [gain for gain, _ in points], look[label]
        panel.scatter(values, places, s=9, color=how.colour, marker=how.marker, alpha=0.7, linewidth=0)
    panel.set(yticks=range(len(found)), yticklabels=[titled(label) for label in found])
    panel.invert_yaxis()
    panel.set_xlabel(f"{metric} of a client over training alone (points)")
    return figure
