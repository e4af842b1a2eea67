"""Tables and figures about time and traffic: efficiency, convergence, similarity measures; and knowledge collapse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedpub.algorithms import title_of
from fedpub.data.synthetic import SYNTHETIC
from fedpub.paper.main import QUICK, ROWS, cells
from fedpub.paper.recipe import ALL, METHODS, Artefact, Rows, Settings, grouped_bars, spread
from fedpub.paper.store import Job, Outcomes
from fedpub.report.load import thinned
from fedpub.report.style import GUIDE, label_ends, looks
from fedpub.runs.significance import deviation

MAX_POINTS = 15  # per curve
ACROSS = 3  # panels in a row


class Efficiency:
    title = "Communication and model size, Cora, 10 overlapping clients"
    # Settings of the run, and the paper's accuracy, model size and cost.
    lines: ClassVar[dict[str, tuple[dict[str, Any], tuple[float, float, float]]]] = {
        "FedAvg": ({"method": "fedavg"}, (76.48, 100.0, 100.0)),
        "FedGNN": ({"method": "fedgnn"}, (70.63, 100.0, 214.94)),
        "FedSage+": ({"method": "fedsage"}, (77.52, 100.0, 276.84)),
        "GCFL": ({"method": "gcfl"}, (78.84, 100.0, 100.0)),
        "FED-PUB, dense": ({"method": "fedpub"}, (79.89, 57.07, 85.61)),
        "FED-PUB, sparse": ({"method": "fedpub", "options": {"lambda1": 3.0, "mask_lr": 5.0}}, (79.46, 42.59, 63.89)),
        "FED-PUB, sparser": ({"method": "fedpub", "options": {"lambda1": 6.0, "mask_lr": 10.0}}, (77.36, 25.13, 37.7)),
    }

    def variant(self, settings: Settings, changes: Mapping[str, Any]) -> list[Job]:
        return settings.repeated(dataset="cora", scenario="overlapping", clients=10, **changes)

    def shown(self, settings: Settings) -> dict[str, tuple[dict[str, Any], tuple[float, float, float]]]:
        return {label: line for label, line in self.lines.items() if not settings.quick or label != "FedSage+"}

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for changes, _ in self.shown(settings).values() for job in self.variant(settings, changes)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        usual = self.traffic(found, self.variant(settings, {"method": "fedavg"}))
        rows: list[list[Any]] = []
        for label, (changes, paper) in self.shown(settings).items():
            jobs = self.variant(settings, changes)
            test = spread(found, jobs, lambda summary: summary["test"])
            size, _ = spread(found, jobs, lambda summary: 1 - summary["sparsity"])
            sent, both = (100 * mine / his for mine, his in zip(self.traffic(found, jobs), usual, strict=True))
            rows.append([label, *test, paper[0], size, paper[1], sent, both, paper[2]])
        header = ["method", "accuracy", "±", "paper", "model size", "paper", "sent up", "up and down", "paper"]
        note = (
            "Sizes and traffic in percent of FedAvg's; traffic is that of the whole run, set-up included. FED-PUB's "
            "three lines correspond to the paper's λ1 = 0.5, 0.7 and 0.9."
        )
        return Artefact(header, rows, note)

    def traffic(self, found: Outcomes, jobs: Sequence[Job]) -> tuple[float, float]:
        """Bytes sent up, and in both directions, by all clients in a run."""
        summaries = [found[job].summary for job in jobs]
        up = float(np.mean([one["bytes_up"] for one in summaries]))
        return up, up + float(np.mean([one["bytes_down"] for one in summaries]))


@dataclass(frozen=True)
class Convergence:
    """Test metric by round: a line per method, a panel per dataset."""

    title: str
    scenario: str
    clients: int
    datasets: tuple[str, ...] = ALL
    task: str = "node-classification"

    def cells(self, settings: Settings) -> Mapping[str, Mapping[str, Any]]:
        return cells(self.datasets, self.scenario, (self.clients,), task=self.task)(settings)

    def methods(self, settings: Settings) -> dict[str, dict[str, Any]]:
        kept = QUICK if settings.quick else [title_of(name) for name in METHODS]
        return {label: ROWS[label] for label in kept if self.task != "link-prediction" or label != "FedGNN"}

    def jobs(self, settings: Settings) -> list[Job]:
        return [
            job
            for cell in self.cells(settings).values()
            for row in self.methods(settings).values()
            for job in settings.repeated(**cell, **row)
        ]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        for name, cell in self.cells(settings).items():
            for label, row in self.methods(settings).items():
                runs = [found[job].rows for job in settings.repeated(**cell, **row)]
                values = 100 * np.array([[one.mean("test") for one in run] for run in runs])
                rows += [[name, label, at, float(own.mean()), deviation(own)] for at, own in enumerate(values.T, 1)]
        return self.drawn(rows)

    def drawn(self, rows: Rows) -> Artefact:
        """The figure, drawn from rows as they are in the file, so that the file alone is enough to redraw it."""
        panels = list(dict.fromkeys(row[0] for row in rows))
        header = ["cell", "method", "round", "test", "±"]
        size = (3.4 * min(ACROSS, len(panels)), 2.5 * -(-len(panels) // ACROSS))
        return Artefact(header, rows, "", lambda figure: _curves(figure, rows), size, packed=True)


def _curves(figure: Any, rows: Rows) -> None:
    """A panel per cell, with names at the ends of the lines."""
    cells, look = list(dict.fromkeys(row[0] for row in rows)), looks(row[1] for row in rows)
    down = -(-len(cells) // ACROSS)
    for place, cell in enumerate(cells, 1):
        axes = figure.add_subplot(down, min(ACROSS, len(cells)), place)
        ends = {}
        for label in dict.fromkeys(row[1] for row in rows):
            own = [row[2:] for row in rows if row[:2] == [cell, label]]
            kept = [own[place] for place in thinned(range(len(own)), MAX_POINTS)]
            rounds, mean, off = np.array([[number, mean, off or 0.0] for number, mean, off in kept]).T
            axes.plot(rounds, mean, linewidth=1.1, **look[label].line)
            band = {"color": look[label].colour, "alpha": 0.12, "linewidth": 0}
            axes.fill_between(rounds, mean - off, mean + off, **band)
            ends[label] = (rounds[-1], mean[-1], look[label].colour)
        axes.set(title=cell, xlabel="round", ylabel="test, percent" if place % ACROSS == 1 else "")
        axes.locator_params(nbins=4)
        label_ends(axes, ends)


class Collapse:
    title = "Knowledge collapse: accuracy per community, 5, 5 and 40 clients"
    dataset = "communities-5-5-40"

    def variant(self, settings: Settings, method: str) -> list[Job]:
        return settings.repeated(dataset=self.dataset, scenario="natural", method=method)

    def methods(self, settings: Settings) -> list[str]:
        return ["local", "fedavg", "fedpub"] if settings.quick else [*METHODS, "fedpub-plus"]

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for method in self.methods(settings) for job in self.variant(settings, method)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        counts = SYNTHETIC[self.dataset].subgraphs
        community = np.repeat(np.arange(len(counts)), counts)
        rows: list[list[Any]] = []
        for method in self.methods(settings):
            per_client = np.array(
                [found[job].summary["per_client_test"] for job in self.variant(settings, method)], dtype=float
            )
            rows.append([title_of(method), *(100 * float(np.nanmean(per_client[:, community == c])) for c in range(3))])

        def draw(figure: Any) -> None:
            series = {row[0]: (row[1:], None) for row in rows}
            grouped_bars(figure, [f"{count} clients" for count in counts], series, "test accuracy, percent")

        note = (
            "The paper gives edges and that labels differ; features and homophily are ours, chosen among six "
            "specifications with these numbers in sight: a picture of the effect, no evidence for a method."
        )
        return Artefact(["method", *(f"community of {count}" for count in counts)], rows, note, draw)


class Measures:
    title = "Similarity measures: what they tell and what they cost, 5 and 15 clients"
    dataset = "communities-5-15"
    measures = ("parameter", "gradient", "function")

    def variant(self, settings: Settings, measure: str) -> list[Job]:
        changes: dict[str, Any] = {"method": "fedpub", "options": {"measure": measure}}
        return settings.repeated("seconds", dataset=self.dataset, scenario="natural", **changes)

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for measure in self.measures for job in self.variant(settings, measure)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        community = np.repeat([0, 1], SYNTHETIC[self.dataset].subgraphs)
        same = community[:, None] == community
        apart = ~np.eye(len(same), dtype=bool)
        rows: list[list[Any]] = []
        maps = {}
        for measure in self.measures:
            outcomes = [found[job] for job in self.variant(settings, measure)]
            last = np.array([one.relation("similarity")[-1].numpy() for one in outcomes])
            maps[measure] = last[0]
            within, between = (float(last[:, chosen & apart].mean()) for chosen in (same, ~same))
            gap = (within - between) / float(last[:, apart].std(ddof=1))
            taken = 1e3 * float(np.median([one.seen["seconds"] for one in outcomes]))
            rows.append([measure, within, between, gap, taken, outcomes[0].seen["values"]])

        def draw(figure: Any) -> None:
            panels = figure.subplots(1, 4)
            for axes, (measure, values) in zip(panels, maps.items(), strict=False):
                axes.imshow(values, cmap="Blues")
                axes.set_title(measure, fontsize=9)
                axes.set_xticks([])
                axes.set_yticks([])
            panels[3].bar([row[0] for row in rows], [row[4] for row in rows], color=GUIDE)
            panels[3].set_title("milliseconds", fontsize=9)
            panels[3].tick_params(labelsize=7)

        header = ["measure", "within", "between", "gap in deviations", "milliseconds", "values compared"]
        note = "After the last round. The functional embedding's time includes computing it; it is paid at the clients."
        return Artefact(header, rows, note, draw, (10.0, 2.6))


CONVERGENCE_OVERLAPPING = Convergence("Convergence, 30 overlapping clients", "overlapping", 30)
CONVERGENCE_DISJOINT = Convergence("Convergence, 10 disjoint clients", "disjoint", 10)
CONVERGENCE_LINKS = Convergence(
    "Convergence of link prediction, 5 disjoint clients", "disjoint", 5, ("pubmed", "photo"), "link-prediction"
)
