"""Tables and figures on similar clients: statistics, proxy graphs, heat maps, divergence, masks, neighbours."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedpub.algorithms import title_of
from fedpub.data import datasets
from fedpub.data.clients.partition import cached_partition
from fedpub.data.clients.split import split
from fedpub.data.clients.statistics import partition_statistics
from fedpub.paper.recipe import ALL, Artefact, Settings, grouped_bars
from fedpub.paper.store import Job, Outcomes
from fedpub.report.published import statistics
from fedpub.runs.significance import deviation

CORA_20: dict[str, Any] = {"dataset": "cora", "clients": 20}
SCENARIOS = ("overlapping", "disjoint")


class Statistics:
    title = "Statistics of the clients"

    def jobs(self, settings: Settings) -> list[Job]:
        return []

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        paper = statistics()
        for name in settings.chosen(ALL):
            graph = datasets.load(name, settings.root)
            for scenario, counts in (("overlapping", (10, 30, 50)), ("disjoint", (5, 10, 20))):
                for clients in settings.some(counts):
                    parts = cached_partition(graph, scenario, clients, 0)
                    one = partition_statistics(graph, parts, split(graph, 0))
                    ours = (one.nodes, one.edges, one.clustering, one.heterogeneity)
                    beside = [
                        value for pair in zip(ours, paper[name, scenario, clients], strict=True) for value in pair
                    ]
                    rows.append([name, scenario, clients, *beside, one.missing_edges])
        header = ["dataset", "scenario", "clients"]
        header += [
            name for measured in ("nodes", "edges", "clustering", "heterogeneity") for name in (measured, "paper")
        ]
        header.append("missing edges")
        return Artefact(
            header, rows, "Means over the clients of seed 0; edges in both directions, as the paper counts."
        )


class ProxyGraphs:
    title = "Proxy graphs: correlation of estimated and label similarity, Cora, 20 clients"
    paper: ClassVar = {"sbm": (0.937, 0.810), "er": (0.920, 0.712), "one": (0.822, 0.656), "feature": (0.897, 0.632)}

    def variant(self, settings: Settings, proxy: str, scenario: str) -> list[Job]:
        return settings.repeated("clients", method="fedpub", options={"proxy": proxy}, scenario=scenario, **CORA_20)

    def jobs(self, settings: Settings) -> list[Job]:
        return [
            job for proxy in self.paper for scenario in SCENARIOS for job in self.variant(settings, proxy, scenario)
        ]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        for proxy, published in self.paper.items():
            line: list[Any] = [proxy]
            for scenario, value in zip(SCENARIOS, published, strict=True):
                each = [correlation(found, job) for job in self.variant(settings, proxy, scenario)]
                line += [float(np.mean(each)), deviation(each), value]
            rows.append(line)
        header = ["graph", "overlapping", "±", "paper", "disjoint", "±", "paper"]
        return Artefact(header, rows, "Pearson, over all pairs of clients, after the last round.")


def correlation(found: Outcomes, job: Job) -> float:
    """Correlation of the server's last similarities with label similarities, over pairs of clients."""
    seen = found[job].relation("similarity")[-1].double().numpy()
    labels = np.asarray(found[job].seen["label_similarity"])
    above = np.triu_indices(len(labels), k=1)
    return float(np.corrcoef(seen[above], labels[above])[0, 1])


class HeatMaps:
    title = "Community structure, Cora, 20 overlapping clients"

    def job(self, settings: Settings) -> Job:
        return Job(settings.experiment(method="fedpub", scenario="overlapping", **CORA_20), "clients")

    def jobs(self, settings: Settings) -> list[Job]:
        return [self.job(settings)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        one = found[self.job(settings)]
        relation = one.relation("similarity").numpy()
        at = {f"functional similarity, round {n}": relation[min(n, len(relation)) - 1] for n in (5, 30)}
        missing, labels = np.asarray(one.seen["missing"]), np.asarray(one.seen["label_similarity"])
        maps: dict[str, np.ndarray] = {"missing edges": missing, "label similarity": labels, **at}

        def draw(figure: Any) -> None:
            for axes, (name, values) in zip(figure.subplots(1, 4), maps.items(), strict=True):
                axes.imshow(values, cmap="Blues")
                axes.set_title(name, fontsize=8)
                axes.set_xticks([])
                axes.set_yticks([])

        count = len(missing)
        rows = [[i, j, *(float(values[i, j]) for values in maps.values())] for i in range(count) for j in range(count)]
        return Artefact(["client", "client", *maps], rows, "Seed 0.", draw, (10.0, 2.8))


class Divergence:
    title = "Label divergence within and between communities, Cora, 20 clients"
    paper: ClassVar = {"disjoint": (0.384, 0.639), "overlapping": (0.047, 0.528)}

    def variant(self, settings: Settings, scenario: str) -> list[Job]:
        return settings.repeated("clients", method="fedpub", scenario=scenario, **CORA_20)

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for scenario in self.paper for job in self.variant(settings, scenario)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        for scenario, published in self.paper.items():
            each = [self.divergence(found[job].seen) for job in self.variant(settings, scenario)]
            within, between = np.mean(each, axis=0).tolist()
            rows.append([scenario, within, published[0], between, published[1]])
        note = (
            "Mean Jensen-Shannon distance (natural logarithm) of pairs of clients. Overlapping clients are drawn five "
            "by five from a community; the communities of disjoint ones, which the paper does not define, are those "
            "that Louvain finds on the edges that the clients miss."
        )

        def draw(figure: Any) -> None:
            series = {"within": ([row[1] for row in rows], None), "between": ([row[3] for row in rows], None)}
            grouped_bars(figure, [row[0] for row in rows], series, "label distance")

        return Artefact(["scenario", "within", "paper", "between", "paper"], rows, note, draw)

    def divergence(self, seen: dict[str, Any]) -> tuple[float, float]:
        # Invert the similarity 1 − d / sqrt(ln 2).
        distance = (1 - np.asarray(seen["label_similarity"])) * np.sqrt(np.log(2))
        community = np.asarray(seen["community"])
        i, j = np.triu_indices(len(distance), k=1)
        same = community[i] == community[j]
        return float(distance[i, j][same].mean()), float(distance[i, j][~same].mean())


class Masks:
    title = "Weights that two clients share, Cora, 20 disjoint clients"
    paper: ClassVar = {"similar": 75.0, "dissimilar": 27.0}
    settings: ClassVar = {"λ1 0.001": {}, "λ1 6, mask_lr 10": {"lambda1": 6.0, "mask_lr": 10.0}}

    def variant(self, settings: Settings, options: dict[str, Any]) -> list[Job]:
        return settings.repeated("masks", method="fedpub", scenario="disjoint", options=options, **CORA_20)

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for options in self.settings.values() for job in self.variant(settings, options)]

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        for label, options in self.settings.items():
            outcomes = [found[job] for job in self.variant(settings, options)]
            line: list[Any] = [label, 100 * float(np.mean([one.summary["sparsity"] for one in outcomes]))]
            for pair, value in self.paper.items():
                line += [100 * float(np.mean([one.seen[pair] for one in outcomes])), value]
            rows.append(line)
        header = ["masks", "zeros", "most similar", "paper", "least similar", "paper"]

        def draw(figure: Any) -> None:
            series = {
                "most similar": ([row[2] for row in rows], None),
                "least similar": ([row[4] for row in rows], None),
            }
            grouped_bars(figure, [row[0] for row in rows], series, "shared weights, percent")

        return Artefact(header, rows, "Of the weights that either of the two uses, the percentage that both use.", draw)


class Neighbours:
    title = "A neighbour's model on one's own subgraph, Cora, 10 overlapping clients"
    methods = ("fedavg", "fedgnn", "fedsage", "fedpub")

    def variant(self, settings: Settings, method: str) -> list[Job]:
        return settings.repeated("neighbours", dataset="cora", scenario="overlapping", clients=10, method=method)

    def jobs(self, settings: Settings) -> list[Job]:
        return [job for method in self.shown(settings) for job in self.variant(settings, method)]

    def shown(self, settings: Settings) -> list[str]:
        return ["fedavg", "fedpub"] if settings.quick else list(self.methods)

    def make(self, settings: Settings, found: Outcomes) -> Artefact:
        rows: list[list[Any]] = []
        for method in self.shown(settings):
            seen = [found[job].seen for job in self.variant(settings, method)]
            means = [100 * float(np.mean([one[name] for one in seen])) for name in ("own", "neighbour")]
            rows.append([title_of(method), *means])
        note = (
            "The neighbour is the client to which most edges are missing. The paper shows it as bars, without numbers."
        )

        def draw(figure: Any) -> None:
            series = {"own model": ([row[1] for row in rows], None), "neighbour's": ([row[2] for row in rows], None)}
            grouped_bars(figure, [row[0] for row in rows], series, "test accuracy, percent")

        return Artefact(["method", "own model", "neighbour's model"], rows, note, draw)
