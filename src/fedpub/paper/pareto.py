"""Accuracy against bytes: FED-PUB and FED-PUB-plus at several sparsities and precisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpub.algorithms import title_of
from fedpub.bench import wire
from fedpub.paper.main import cells
from fedpub.paper.recipe import Artefact, Rows, Settings
from fedpub.paper.store import Job, Outcomes
from fedpub.report.curves import frontier
from fedpub.report.style import GUIDE, looks

# How strongly masks are driven to zero: the L1 and the masks' learning rate.
STRENGTHS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    **{name: strength for name, strength in wire.STRENGTHS.items() if name != "no L1"},
    "stronger L1": {"lambda1": 6.0, "mask_lr": 10.0},
}
SPLITS = (7, 8, 9)  # seeds of split and partition
MARKERS = {"exact": "o", "float16": "s", "int8": "D"}


@dataclass(frozen=True)
class Point:
    method: str
    strength: str = ""
    precision: str = "exact"

    @property
    def label(self) -> str:
        said = ", ".join(word for word in (self.strength, self.precision.replace("exact", "")) if word)
        return f"{title_of(self.method)}, {said}" if said else title_of(self.method)


class Pareto:
    """Bytes that a run sends up, in percent of FED-PUB's."""

    title = "Accuracy against bytes sent, 10 disjoint clients of Cora, CiteSeer and PubMed"
    datasets = ("cora", "citeseer", "pubmed")

    def points(self, settings: Settings) -> list[Point]:
        found = [Point("fedavg"), Point("fedper")]
        for method, strengths in (("fedpub", list(STRENGTHS)), ("fedpub-plus", [""])):  # the latter's masks save none
            found += [Point(method, strength) for strength in settings.some(strengths)]
            found += [Point(method, precision=kind) for kind in settings.some(["float16", "int8"])]
        return found

    def of(self, settings: Settings, point: Point) -> dict[str, list[Job]]:
        """For each cell, one run per split; a single seed, since splits differ more than seeds."""
        options = dict(STRENGTHS[point.strength])
        look = "" if point.precision == "exact" else point.precision
        columns = cells(self.datasets, "disjoint", (10,))(settings)
        return {
            cell: [
                Job(settings.experiment(0, method=point.method, options=options, data_seed=split, **column), look)
                for split in _splits(settings)
            ]
            for cell, column in columns.items()
        }

    def jobs(self, settings: Settings) -> list[Job]:
        every = [self.of(settings, point) for point in self.points(settings)]
        return [job for by_cell in every for jobs in by_cell.values() for job in jobs]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        def summaries(point: Point) -> dict[str, list[dict[str, Any]]]:
            def summary(job: Job) -> dict[str, Any]:
                return found[job].seen if job.look else found[job].summary

            return {cell: [summary(job) for job in jobs] for cell, jobs in self.of(settings, point).items()}

        def sent(by_cell: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
            return {cell: float(np.mean([one["bytes_up"] for one in some])) for cell, some in by_cell.items()}

        usual = sent(summaries(Point("fedpub")))
        rows: Rows = []
        for point in self.points(settings):
            by_cell = summaries(point)
            tests = {cell: 100 * float(np.mean([one["test"] for one in some])) for cell, some in by_cell.items()}
            zeros = 100 * float(np.mean([one["sparsity"] for some in by_cell.values() for one in some]))
            share = 100 * float(np.mean([value / usual[cell] for cell, value in sent(by_cell).items()]))
            rows.append([point.label, *tests.values(), float(np.mean(list(tests.values()))), zeros, share])

        header = ["method", *usual, "mean", "zeros", "sent up"]
        splits = ", ".join(map(str, _splits(settings)))
        note = (
            f"Splits {splits}, seed 0. Accuracy and zeros in percent; what a run sends up in "
            "percent of FED-PUB's. Rounded uploads are those of sites (`--precision`): these runs encode their "
            "messages, and bytes are counted from them; the others' are the simulator's count."
        )
        points = self.points(settings)
        return Artefact(header, rows, note, lambda figure: draw(figure, points, rows), (6.5, 4.2))


def draw(figure: Any, points: Sequence[Point], rows: Rows) -> None:
    """Draw the rows of the file, one point each."""
    axes, look = figure.subplots(), looks(point.method for point in points)
    best = frontier({row[0]: {"up": row[-1], "test": row[-3]} for row in rows})
    line = [(row[-1], row[-3]) for label in best for row in rows if row[0] == label]
    axes.plot(*zip(*line, strict=True), color=GUIDE, linewidth=0.8, linestyle="--", drawstyle="steps-post")
    for method in dict.fromkeys(point.method for point in points):
        colour = look[method].colour
        own = [(point, row) for point, row in zip(points, rows, strict=True) if point.method == method]
        pruned = sorted((row[-1], row[-3]) for point, row in own if point.precision == "exact")
        axes.plot(
            *zip(*pruned, strict=True),
            linewidth=0.8,
            marker="o",
            markersize=4,
            label=title_of(method),
            **look[method].line,
        )
        for point, row in own:
            axes.scatter(row[-1], row[-3], color=colour, marker=MARKERS[point.precision], s=30, zorder=3)
            said = point.strength or point.precision.replace("exact", "")
            left = method == "fedpub-plus"  # two curves near each other
            beside = {"textcoords": "offset points", "ha": "right" if left else "left"}
            axes.annotate(said, (row[-1], row[-3]), (-5, 5) if left else (5, -10), fontsize=7, **beside)
    axes.set_xlabel("bytes up, percent of FED-PUB's")
    axes.set_ylabel("test accuracy, percent")
    axes.set_xlim(left=0)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)


def _splits(settings: Settings) -> Sequence[int]:
    return SPLITS[:1] if settings.quick else SPLITS
