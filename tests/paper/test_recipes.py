"""Results of recipes, worked out by hand: the runs are made up, so that no dataset is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch

from fedpub.data.clients.partition import Partition
from fedpub.data.synthetic import SYNTHETIC, communities_graph
from fedpub.engine.rounds import Round, Snapshot
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import prepare
from fedpub.paper import beyond, costs, differences, looks, pareto, structure, variants
from fedpub.paper.recipe import Artefact, Settings
from fedpub.paper.recipes import RECIPES
from fedpub.paper.store import Job
from fedpub.store.record import Row
from small import TINY, small_graph

CORA = ("cora",)
TWO = Settings(datasets=CORA, seeds=2)


class Found:
    """Made-up outcomes: the values of a function of a job's experiment and look."""

    def __init__(self, of: Callable[[Experiment], dict[str, Any]]) -> None:
        self.of = of

    def __getitem__(self, job: Job) -> SimpleNamespace:
        said = self.of(job.experiment)
        relation = said.get("relation")
        return SimpleNamespace(
            summary=said,
            seen=said.get("seen"),
            rows=said.get("rows"),
            relation=lambda name: {"similarity": relation}[name],
        )


def drawn(made: Artefact) -> matplotlib.figure.Figure:
    figure = matplotlib.figure.Figure(figsize=made.size, layout="constrained")
    assert made.draw is not None
    made.draw(figure)
    return figure


def heights(figure: matplotlib.figure.Figure, axes: int = 0) -> list[float]:
    """Heights of all bars, series by series."""
    return [bar.get_height() for bar in figure.axes[axes].patches]


def generous(one: Experiment) -> dict[str, Any]:
    """All values that a recipe may need from a run with twenty clients, fifty in the largest."""
    pairs = torch.rand(40, 20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    said: dict[str, Any] = {"test": 0.5, "val": 0.5, "sparsity": 0.5, "bytes_up": 1, "bytes_down": 1, "rounds": 1}
    square = pairs[0].tolist()
    seen = {"label_similarity": square, "missing": square, "community": [0, 1] * 10, "seconds": 1.0, "values": 1}
    seen |= dict.fromkeys(("similar", "dissimilar", "own", "neighbour"), 0.5)
    seen |= {"score": 0.9, "guess": 0.5, "groups": 1.0}
    seen["findings"] = [{"attack": "a", "measure": "b", "score": 0.9, "guess": 0.5, "worst": 1.0}]
    rows = [Row(number, 1.0, {"test": [0.5]}) for number in (1, 2)]
    return said | {"per_client_test": [0.5] * 50, "relation": pairs, "rows": rows, "seen": said | seen}


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "table-statistics"])  # which has no runs
def test_a_recipe_asks_for_the_runs_that_it_shows_and_for_no_others(name: str) -> None:
    asked: set[str] = set()

    class Asked(Found):
        def __getitem__(self, job: Job) -> SimpleNamespace:
            asked.add(job.name)
            return super().__getitem__(job)

    settings = Settings(datasets=("cora", "photo", "twitch"), seeds=1)
    made = RECIPES[name].make(settings, Asked(generous))
    assert asked == {job.name for job in RECIPES[name].jobs(settings)}
    assert all(len(row) == len(made.header) for row in made.rows)


# Which data is reported


@pytest.mark.parametrize(
    ("name", "seeds", "splits"),
    [
        ("more-beyond", {13, 14}, {13, 14}),
        ("more-communities", {13, 14}, {13, 14}),
        ("more-hops", {10, 11}, {10, 11}),
        ("more-pareto", {0}, {7, 8, 9}),
    ],
)
def test_what_is_reported_is_of_splits_that_nothing_was_chosen_on(name: str, seeds: set[int], splits: set[int]) -> None:
    jobs = RECIPES[name].jobs(Settings(seeds=2))
    assert {job.experiment.data_seed for job in jobs} == splits
    assert {job.experiment.seed for job in jobs} == seeds


def test_parts_are_judged_by_validation_data_of_the_splits_that_they_were_chosen_on() -> None:
    made = beyond.PARTS.make(TWO, Found(lambda one: {"val": 0.6 + 0.1 * one.seed, "test": 0.1}))
    real = {job.experiment.data_seed for job in beyond.PARTS.jobs(TWO) if job.experiment.dataset == "cora"}
    made_up = {job.experiment.data_seed for job in beyond.PARTS.jobs(TWO) if job.experiment.dataset != "cora"}
    assert (real, made_up) == ({0}, {0, 1})
    assert [row[2] for row in made.rows] == pytest.approx([65] * len(made.rows))
    assert [row[3] for row in made.rows] == pytest.approx([math.sqrt(50)] * len(made.rows))


def test_every_part_is_taken_away_alone() -> None:
    whole, *without = (
        Settings().experiment(dataset="communities", **row) for row in list(beyond.PARTS.rows.values())[2:]
    )
    assert (whole.method, whole.model, whole.hidden) == ("fedpub-plus", "hops", 64)
    changes = [
        {
            name: value
            for name, value in (vars(one) | dict(one.options)).items()
            if name != "options" and value != (vars(whole) | dict(whole.options))[name]
        }
        for one in without
    ]
    assert changes == [
        {"grouping": False},
        {"masks": False},
        {"fallback": False},
        {"evidence": 0.0},
        {"model": "twin"},
        {"model": "gcn", "hidden": 128, "dropout": 0.5},
    ]


def test_the_table_of_other_splits_by_hand() -> None:
    def of(one: Experiment) -> dict[str, Any]:
        test = {"local": 0.7, "fedpub": 0.8}.get(one.method, 0.9) + 0.01 * (one.seed - 13)
        return {"test": test, "per_client_test": [test] * 2, "bytes_up": 4000, "rounds": 2}

    made = beyond.Beyond().make(TWO, Found(of))
    assert len(made.rows) == 2 * 3 * len(beyond.Beyond.rows)
    spread = pytest.approx(math.sqrt(0.5))  # of two values that are a point apart
    assert made.rows[0] == ["disjoint", "cora 5", "Local", pytest.approx(70.5), spread, 2]
    assert made.rows[-1] == ["overlapping", "cora 50", "FED-PUB-plus", pytest.approx(90.5), spread, 2]
    assert [head[0] for head, _ in made.read] == ["disjoint", "overlapping", "both"]
    assert made.read[2][1][1] == [
        "FED-PUB-plus with twin",
        pytest.approx(90.5),
        "100.0%",
        "100.0%",
        "20.0",
        pytest.approx(1.0),
    ]


def test_a_split_and_seed_is_compared_with_its_own_local() -> None:
    """Half a point below in one split and three above in another: only paired by split is no client a point worse."""
    local = {13: 0.9, 14: 0.5, 15: 0.7}

    def of(one: Experiment) -> dict[str, Any]:
        gain = 0.0 if one.method == "local" else {13: -0.005, 14: 0.03, 15: 0.03}[one.seed]
        test = local[one.seed] + gain
        return {"test": test, "per_client_test": [test, None], "bytes_up": 0, "rounds": 1}

    (_, lines), *_ = beyond.Beyond().make(replace(TWO, seeds=3), Found(of)).read
    assert lines[-1][2:5] == ["66.7%", "100.0%", "-0.5"]


def test_the_better_of_two_that_know_everything_is_the_measure_of_communities() -> None:
    """One average is best at the first graph, the true communities are at the second."""

    def of(one: Experiment) -> dict[str, Any]:
        known = 0.7 if one.dataset == "communities" else 0.9
        plus = {"": 0.86 if one.options.get("grouping") else 0.8}.get(one.options.get("given", "none"), known)
        return {"test": plus + 0.01 * (one.seed - 13)}

    made = beyond.Community().make(TWO, Found(of))
    (header, lines), *_ = made.read
    assert header == ["graph", "communities", "shift", *beyond.Community.rows, "difference"]
    assert len(lines) == 12
    assert lines[0][1] == "5/5/5/5"
    assert [lines[0][3 + list(beyond.Community.rows).index(row)] for row in ("FED-PUB-plus", "one average")] == [
        "86.5",
        "80.5",
    ]
    assert [line[-1] for line in lines[:2]] == ["+6.0", "-4.0"]
    given = beyond.Community().row("true communities", "communities-5-5-40")
    assert given["options"] == {"given": ",".join(["0"] * 5 + ["1"] * 5 + ["2"] * 40), "min_group": 1}


# Time and traffic


def test_efficiency_by_hand() -> None:
    """FED-PUB sends half as much up and gets as much back: 50 percent up, (500 + 3000) / 4000 of both."""

    def of(one: Experiment) -> dict[str, Any]:
        if one.method == "fedpub":
            return {"test": 0.7 + 0.2 * one.seed, "sparsity": 0.25, "bytes_up": 500, "bytes_down": 3000}
        # Seeds differ; it is their mean that is 1000 up and 3000 down.
        return {"test": 0.6, "sparsity": 0.0, "bytes_up": 800 + 400 * one.seed, "bytes_down": 2000 + 2000 * one.seed}

    made = costs.Efficiency().make(TWO, Found(of))
    rows = {row[0]: row[1:] for row in made.rows}
    assert rows["FedAvg"] == pytest.approx([60, 0, 76.48, 100, 100, 100, 100, 100])
    assert rows["FED-PUB, dense"] == pytest.approx([80, math.sqrt(200), 79.89, 75, 57.07, 50, 87.5, 85.61])
    assert list(rows) == list(costs.Efficiency.lines)
    assert "FedSage+" not in [row[0] for row in costs.Efficiency().make(replace(TWO, quick=True), Found(of)).rows]


def curve(*tests: float) -> list[Row]:
    return [Row(number, 1.0, {"test": [value, value + 0.2, float("nan")]}) for number, value in enumerate(tests, 1)]


def test_convergence_by_hand() -> None:
    """Every round from the first to the last, the mean over clients and seeds: 0.3 + 0.1, 0.4 + 0.1, ..."""
    recipe = costs.Convergence("by hand", "disjoint", 10, CORA)
    made = recipe.make(TWO, Found(lambda one: {"rows": curve(*(0.2 + 0.1 * one.seed + n / 10 for n in range(3)))}))
    assert [row[:3] for row in made.rows[:4]] == [["cora 10", "Local", n] for n in (1, 2, 3)] + [
        ["cora 10", "FedAvg", 1]
    ]
    assert [row[3] for row in made.rows[:3]] == pytest.approx([35, 45, 55])
    assert made.rows[0][4] == pytest.approx(math.sqrt(50))
    line = drawn(made).axes[0].lines[0]
    assert line.get_xdata().tolist() == [1, 2, 3]
    assert line.get_ydata().tolist() == pytest.approx([35, 45, 55])


@pytest.mark.parametrize("quick", [True, False])
def test_collapse_is_told_community_by_community(quick: bool) -> None:
    """Five, five and forty clients; one of the last has no test nodes."""
    tests = [0.1] * 5 + [0.2] * 5 + [0.3] * 20 + [0.5] * 19 + [None]
    made = costs.Collapse().make(
        replace(TWO, quick=quick),
        Found(lambda one: {"per_client_test": tests if one.seed else [0.1] * 10 + [0.3] * 40}),
    )
    assert SYNTHETIC["communities-5-5-40"].subgraphs == (5, 5, 40)
    last = 100 * (20 * 0.3 + 19 * 0.5 + 40 * 0.3) / 79
    assert [row[1:] for row in made.rows] == [[*map(pytest.approx, (10, 15, last))]] * (3 if quick else 9)
    assert made.rows[-1][0] == ("FED-PUB" if quick else "FED-PUB-plus")
    assert heights(drawn(made))[:3] == pytest.approx([10, 15, last])


def test_measures_tell_communities_apart_after_the_last_round() -> None:
    """Within 0.8, between 0.2, oneself left out: 5 · 4 + 15 · 14 = 230 pairs within and 150 between, in two runs."""
    community = np.repeat([0, 1], (5, 15))
    last = np.where(community[:, None] == community, 0.8, 0.2)
    np.fill_diagonal(last, 9.0)
    relation = torch.from_numpy(np.stack([np.zeros((20, 20)), last]))
    made = costs.Measures().make(
        TWO, Found(lambda one: {"relation": relation, "seen": {"seconds": 0.002 + 0.002 * one.seed, "values": 7}})
    )
    deviation = 0.6 * math.sqrt(460 * 300 / (760 * 759))
    assert made.rows == [
        [name, pytest.approx(0.8), pytest.approx(0.2), pytest.approx(0.6 / deviation), pytest.approx(3.0), 7]
        for name in ("parameter", "gradient", "function")
    ]
    assert heights(drawn(made), 3) == pytest.approx([3, 3, 3])


def test_points_of_all_strengths_are_drawn() -> None:
    """The frontier goes by bytes, from the fewest to the best: FedPer, then FED-PUB-plus with a quarter of its half.
    Bytes are shares of FED-PUB's on the same graph, however large that is."""
    large = {"cora": 1, "citeseer": 2, "pubmed": 3}
    sent = {"fedavg": 2000, "fedper": 100, "fedpub": 1000, "fedpub-plus": 500}
    test = {"fedavg": 0.6, "fedper": 0.5, "fedpub": 0.8, "fedpub-plus": 0.9}

    def of(one: Experiment) -> dict[str, Any]:
        up = sent[one.method] * large[one.dataset]
        said = {"test": test[one.method], "bytes_up": up, "sparsity": 0.0}
        return said | {"seen": said | {"bytes_up": up / 4}}

    made = pareto.Pareto().make(Settings(seeds=2), Found(of))
    assert made.header[:4] == ["method", "cora 10", "citeseer 10", "pubmed 10"]
    assert "Splits 7, 8, 9, seed 0" in made.note
    sent_up, accuracy = drawn(made).axes[0].lines[0].get_data()
    assert list(sent_up) == pytest.approx([10, 12.5])
    assert list(accuracy) == pytest.approx([50, 90])


# Who is like whom


def test_statistics_beside_the_paper_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred nodes: two communities of about fifty, of which five clients have half each; ten of ten; and parts."""
    whole = communities_graph("cora", TINY)
    monkeypatch.setattr(structure.datasets, "load", lambda name, root: whole)
    made = structure.Statistics().make(Settings(datasets=CORA, quick=True), None)
    assert [row[:3] for row in made.rows] == [
        ["cora", "overlapping", 10],
        ["cora", "overlapping", 50],
        ["cora", "disjoint", 5],
        ["cora", "disjoint", 20],
    ]
    assert [row[3] for row in made.rows] == pytest.approx([25, 5, 20, 5], abs=0.11)
    assert [row[4] for row in made.rows] == [structure.statistics()["cora", *row[1:3]][0] for row in made.rows]
    assert made.header[3:5] == ["nodes", "paper"]
    assert made.rows[3][-1] > made.rows[2][-1] > 0, "the more clients, the more edges are missing"


def alike(*pairs: float) -> list[list[float]]:
    """A similarity of three clients from those of (0, 1), (0, 2) and (1, 2)."""
    a, b, c = pairs
    return [[1, a, b], [a, 1, c], [b, c, 1]]


def test_proxy_graphs_by_hand() -> None:
    """Estimates that follow the labels for one seed and go against them for the other: 1, −1, and their mean."""
    labels = alike(0.1, 0.2, 0.3)

    def of(one: Experiment) -> dict[str, Any]:
        against = one.seed == 1 and one.options["proxy"] != "sbm"
        last = alike(0.7, 0.5, 0.3) if against else alike(0.3, 0.5, 0.7)
        return {"relation": torch.tensor([alike(0, 0, 0), last]), "seen": {"label_similarity": labels}}

    made = structure.ProxyGraphs().make(TWO, Found(of))
    assert [row[0] for row in made.rows] == ["sbm", "er", "one", "feature"]
    assert made.rows[0] == pytest.approx(["sbm", 1, 0, 0.937, 1, 0, 0.810])
    assert [row[1] for row in made.rows[1:]] == pytest.approx([0, 0, 0])


def test_heat_maps_of_rounds_five_and_thirty() -> None:
    """Round n has the similarity n / 100; a run of twenty rounds is shown at its last."""
    rounds = torch.arange(1, 21).double().view(-1, 1, 1).expand(-1, 2, 2) / 100
    seen = {"missing": [[0, 3], [3, 0]], "label_similarity": [[1, 0.5], [0.5, 1]]}
    made = structure.HeatMaps().make(TWO, Found(lambda one: {"relation": rounds, "seen": seen}))
    assert made.header[-2:] == ["functional similarity, round 5", "functional similarity, round 30"]
    assert made.rows[1] == [0, 1, 3, 0.5, pytest.approx(0.05), pytest.approx(0.2)]
    assert len(drawn(made).axes) == 4


def test_divergence_within_and_between_communities() -> None:
    """Similarities 0.9 within and 0.4 between, as distances of 0.1 and 0.6 times √ln 2."""
    seen = {"label_similarity": alike(0.9, 0.4, 0.4), "community": [0, 0, 1]}
    made = structure.Divergence().make(TWO, Found(lambda one: {"seen": seen}))
    within, between = (share * math.sqrt(math.log(2)) for share in (0.1, 0.6))
    assert made.rows == [
        ["disjoint", pytest.approx(within), 0.384, pytest.approx(between), 0.639],
        ["overlapping", pytest.approx(within), 0.047, pytest.approx(between), 0.528],
    ]
    assert heights(drawn(made)) == pytest.approx([within, within, between, between])


def test_shared_weights_and_neighbours_by_hand() -> None:
    shared = {"similar": 0.75, "dissimilar": 0.25, "own": 0.8, "neighbour": 0.3}

    def of(one: Experiment) -> dict[str, Any]:
        return {
            "sparsity": 0.2 + 0.2 * one.seed,
            "seen": {name: value + 0.1 * one.seed for name, value in shared.items()},
        }

    masks = structure.Masks().make(TWO, Found(of))
    assert [row[1:] for row in masks.rows] == [pytest.approx([30, 80, 75.0, 30, 27.0])] * 2
    assert heights(drawn(masks)) == pytest.approx([80, 80, 30, 30])
    beside = structure.Neighbours().make(TWO, Found(of))
    assert [row[0] for row in beside.rows] == ["FedAvg", "FedGNN", "FedSage+", "FED-PUB"]
    assert [row[1:] for row in beside.rows] == [pytest.approx([85, 35])] * 4
    assert heights(drawn(beside)) == pytest.approx([85] * 4 + [35] * 4)


# Variants


def test_similarities_after_rounds_20_to_80() -> None:
    """Round n has the mean n / 200 for one seed and n / 100 for the other."""

    def of(one: Experiment) -> dict[str, Any]:
        return {"rows": [Row(n, 1.0, {"test": [n / (200 - 100 * one.seed)]}) for n in range(1, 101)]}

    made = variants.SIMILARITIES.make(TWO, Found(of))
    assert [row[1::2] for row in made.rows] == [pytest.approx([15, 30, 45, 60])] * 5
    assert made.rows[0][2::2] == [29.94, 32.69, 47.84, 52.42]
    short = variants.SIMILARITIES.make(TWO, Found(lambda one: {"rows": of(one)["rows"][:50]}))
    assert short.rows[0][1::2] == pytest.approx([15, 30, 37.5, 37.5]), "the last one, where a run is shorter"


def test_penalties_by_hand() -> None:
    made = variants.SENSITIVITY.make(
        TWO, Found(lambda one: {"test": one.options["lambda1"], "sparsity": one.options["lambda2"] / 4})
    )
    assert [row[:2] for row in made.rows] == [list(line[:2]) for line in variants.PENALTIES]
    assert made.rows[1] == pytest.approx([0.5, 0.001, 50, 0, 79.42, 0.025, 0, 42.38])
    assert {job.experiment.epochs for job in variants.SENSITIVITY.jobs(TWO)} == {2}


def test_communities_beside_the_paper_s_table() -> None:
    made = variants.EXPLICIT.make(TWO, Found(lambda one: {"test": 0.76}))
    papers = {(row[0], row[1]): row[5] for row in made.rows}
    assert papers["overlapping, cora 30", "explicit communities"] == 76.59
    assert papers["overlapping, cora 30", "implicit communities"] == 75.40
    assert papers["disjoint, cora 10", "explicit communities"] == 80.45
    assert [row[-1] for row in made.rows if row[0].startswith("overlapping")] == ["no", "yes"]


def test_bars_have_their_values() -> None:
    made = variants.ABLATION.make(TWO, Found(lambda one: {"test": {"fedavg": 0.5}.get(one.method, 0.7)}))
    assert heights(drawn(made)) == pytest.approx([50, 50] + [70] * 6)
    epochs = variants.EPOCHS.jobs(TWO)
    assert {job.experiment.epochs for job in epochs} == {1, 3, 5}
    assert len(epochs) == 3 * 3 * 2


# What ours and the paper's numbers differ by


def test_differences_of_more_than_two_points_beside_the_suspects() -> None:
    """Local on Cora with 5, 10 and 20 disjoint clients is 2.5, 1.5 and −3 points above the paper; all else is level."""
    off = {5: 2.5, 10: 1.5, 20: -3.0}

    def of(one: Experiment) -> dict[str, Any]:
        cell = {"dataset": one.dataset, "scenario": one.scenario, "clients": one.clients}
        points = 0.0
        if one.method == "local" and one.scenario == "disjoint":
            points = 0.5 if one.weight_decay else off[one.clients or 0]
            points += 0.1 if one.seed > 1 else 0.0
        return {"test": ((differences.paper({"method": one.method}, cell) or 0.0) + points) / 100}

    made = differences.Differences().make(TWO, Found(of))
    assert [row[:3] for row in made.rows] == [["disjoint", "cora 5", "Local"], ["disjoint", "cora 20", "Local"]]
    assert [row[5] for row in made.rows] == pytest.approx([2.5, -3.0])
    assert [row[6] - row[4] for row in made.rows] == pytest.approx([0.5, 0.5]), "with the published decay"
    assert [row[7] - row[4] for row in made.rows] == pytest.approx([2.58, -2.92]), "with ten seeds, eight of them more"
    (_, lines), _ = made.read
    assert lines == [["Local", "cora", 2, pytest.approx(-0.25), pytest.approx(0.5)]]


def test_suspects_differ_from_the_main_tables_in_one_thing() -> None:
    usual = [job.experiment for job in differences.DISJOINT.jobs(TWO)]
    assert {one.weight_decay for one in usual} == {0.0}
    decayed = [job.experiment for job in differences.WEIGHT_DECAY.jobs(TWO) if job.experiment.scenario == "disjoint"]
    assert {one.weight_decay for one in decayed} == {1e-6}
    assert all(replace(one, weight_decay=0.0) in usual for one in decayed)
    assert sorted({job.experiment.seed for job in differences.SPLITS.jobs(TWO)}) == list(range(10))
    assert {job.experiment.seed for job in differences.SPLITS.jobs(replace(TWO, quick=True))} == {0, 1}


# What is looked at


def test_which_weights_two_clients_share_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients 0 and 1 are most alike and share 1 of 3 entries; 1 and 2 least, and share 2 of 3. Biases do not count."""
    weights = {
        "w": torch.tensor([[[1.0, 2.0, 0.0, 0.0]], [[0.0, 3.0, 4.0, 0.0]], [[0.0, 5.0, 6.0, 7.0]]]),
        "b": torch.ones(3, 4),
    }
    similarity = torch.tensor(alike(0.9, 0.5, 0.1))
    asked = []

    def played(algorithm, ctx, federation, rounds):
        asked.append(rounds)
        for last in (torch.zeros(3, 3), similarity):
            yield SimpleNamespace(notes={"similarity": last}, snapshot=SimpleNamespace(clients=weights))

    monkeypatch.setattr(looks, "simulate", played)
    method = SimpleNamespace(personal=lambda own: own)
    experiment = SimpleNamespace(algorithm=method, context=None, rounds=5)
    found = looks.masks(experiment, SimpleNamespace(federation=None))
    assert found == pytest.approx({"similar": 1 / 3, "dissimilar": 2 / 3})
    assert asked == [5]


def test_a_neighbour_s_model_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the second round, as good as the third by validation and with less loss: 0.3, 0.6 and 0.9. The neighbours of
    0, 1 and 2 are 2, 0 and 0."""
    nobody = torch.tensor([0, 0, 0])

    def played(algorithm, ctx, federation, rounds):
        tests = (0.1, 0.2, 0.1), (0.3, 0.6, 0.9), (1.0, 1.0, 1.0)
        for val, loss, own in zip((0.5, 0.8, 0.8), (0.1, 0.3, 0.4), tests, strict=True):
            metrics = {"val": torch.tensor([val, float("nan")]), "val_loss": torch.tensor([loss, float("nan")])}
            after = Snapshot(1, {}, {"w": torch.tensor(own)})
            yield Round(after, nobody, metrics, nobody, nobody, nobody, nobody, nobody, {})

    monkeypatch.setattr(looks, "simulate", played)
    monkeypatch.setattr(looks, "set_up", lambda *_: None)
    task = SimpleNamespace(evaluate=lambda model, w, data: {"test": w["w"]})
    federation = SimpleNamespace(num_clients=3, device="cpu", chunks=lambda ids, ctx: [ids])
    method = SimpleNamespace(personal=lambda own: own)
    experiment = SimpleNamespace(algorithm=method, context=SimpleNamespace(task=task, model=None), rounds=3)
    parts = (torch.tensor([0, 5, 6, 8, 9]), torch.tensor([1, 2]), torch.tensor([3, 4, 7]))
    ready = SimpleNamespace(
        graph=small_graph(), partition=Partition(parts, "by hand", 0, "small", ""), federation=federation
    )
    found = looks.neighbours(experiment, ready)
    assert found == pytest.approx({"own": 0.6, "neighbour": (0.9 + 0.3 + 0.3) / 3})


def tiny(graph_file: str, **changes: Any) -> Plan:
    return Experiment(dataset=graph_file, scenario="natural", method="fedpub", rounds=2, hidden=4, **changes).resolve()


def test_clients_are_looked_at_as_they_are(graph_file: str) -> None:
    """Five clients in communities of three and two: edges between them, and Louvain finds the communities."""
    experiment = tiny(graph_file)
    ready = prepare(experiment)
    found = looks.clients(experiment, ready)
    assert set(found) == {"label_similarity", "missing", "community"}
    missing = np.asarray(found["missing"])
    owner, (u, v) = ready.graph.client, ready.graph.edges
    assert missing.sum() == 2 * int((owner[u] != owner[v]).sum())
    assert found["community"] == [0, 0, 0, 1, 1]
    assert np.diag(found["label_similarity"]) == pytest.approx(np.ones(5))
    five = replace(ready.partition, scenario="overlapping")
    assert looks.communities(np.zeros((10, 10)), replace(ready, partition=five)) == [0] * 5 + [1] * 5


@pytest.mark.parametrize(("measure", "values"), [("function", 4), ("parameter", 30 * 4 + 4 + 16 + 4 + 12 + 3)])
def test_how_many_values_are_compared(graph_file: str, measure: str, values: int) -> None:
    experiment = tiny(graph_file, options={"measure": measure})
    found = looks.seconds(experiment, prepare(experiment))
    assert found["values"] == values
    assert found["seconds"] > 0


def test_a_run_of_all_rounds_that_is_rounded_more_sends_less(graph_file: str) -> None:
    experiment = tiny(graph_file)
    ready = prepare(experiment)
    half, eighth = (looks.LOOKS[name](experiment, ready) for name in ("float16", "int8"))
    assert half["rounds"] == eighth["rounds"] == 2
    assert 0 < eighth["bytes_up"] < half["bytes_up"]


# Attacks


def test_attacks_are_shown_beside_guesses_as_means_over_seeds():
    def of(one: Experiment) -> dict[str, Any]:
        score = {0: 0.7, 1: 0.9}[one.seed]
        known = {"attack": "classes", "measure": "overlap", "score": score, "guess": 0.4, "worst": 1.0}
        none = {"attack": "words", "measure": "F1", "score": None, "guess": None, "worst": None}
        return {"seen": {"findings": [known, none]}}

    made = RECIPES["more-attacks"].make(TWO, Found(of))
    plain = [row for row in made.rows if row[1:3] == ["FedAvg", "plain"]]
    assert plain == [
        ["cora", "FedAvg", "plain", "classes", "overlap", pytest.approx(0.8), pytest.approx(0.4), 1.0],
        ["cora", "FedAvg", "plain", "words", "F1", None, None, None],
    ]
    ((heads, lines),) = made.read
    assert heads[0] == "cora"
    assert dict(zip(heads, lines[0], strict=True))["FedAvg, plain"] == "0.80 (0.40)"
    assert set(lines[1][1:]) == {""}


def test_the_look_of_a_recipe_attacks_all_its_rounds(graph_file):
    plan = Experiment(dataset=graph_file, scenario="natural", method="fedavg", rounds=2, hidden=4).resolve()
    found = looks.attacked(plan, prepare(plan))["findings"]
    assert any("LiRA" in one["attack"] and one["score"] is not None for one in found)
