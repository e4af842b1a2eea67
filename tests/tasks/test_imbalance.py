"""Classes of very different size: weights in the loss, metrics that decide the best round, and thresholds."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_federation import InProcessSites, coordinator, play
from torch import Tensor

import fedpub
from fedpub.cli import main
from fedpub.core.tree import Tree
from fedpub.data.clients.split import Split
from fedpub.data.clients.stack import stack
from fedpub.data.clients.subgraph import Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.models import GCN
from fedpub.runs.prediction import predict
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.model_card import FORMAT, ModelCard
from fedpub.store.model_files import load_model, save_model
from fedpub.store.record import Record, Row
from fedpub.store.run_models import model_of_run
from fedpub.tasks import NodeClassification, Step
from fedpub.tasks.metrics import EVEN, RANKINGS, TITLES, Metric, best_threshold, by_class, column
from small import NODES, few_of_one_class, refused, small_clients, small_graph

METRICS: tuple[Metric, ...] = get_args(Metric)
NAN = float("nan")


def outputs_only() -> SimpleNamespace:
    """A model whose outputs are its weights."""
    return SimpleNamespace(independent=False, propagates=True, apply=lambda w, data, dropout=None: w["z"])


def logits(shares: list[list[float]]) -> Tensor:
    """Outputs with these shares of the classes."""
    return torch.tensor(shares, dtype=torch.float64).log()


# Weights of classes


EVENLY = [1 / 3, 1 / 3, 1 / 3]


def test_balanced_weights_in_the_loss_by_hand():
    """Client 1 trains on the classes 2, 1 and 2: with weights of 3/(2·2) = 3/4 and 3/(2·1) = 3/2 both count alike.

    Client 0 has one node each of two classes, client 2 one node: their weights are 1.
    """
    data = small_clients()
    shares = [EVENLY] * 10
    shares[3], shares[4], shares[5] = [1 / 4, 1 / 4, 1 / 2], [1 / 8, 1 / 8, 3 / 4], [1 / 3, 1 / 3, 1 / 3]
    z = logits(shares).requires_grad_()
    loss_K = NodeClassification(class_weights="balanced").loss(outputs_only(), {"z": z}, data, Step())
    second = (3 / 4 * math.log(2) + 3 / 2 * math.log(8) + 3 / 4 * math.log(3)) / 3
    assert loss_K.tolist() == pytest.approx([math.log(3), second, math.log(3)])
    loss_K.sum().backward()
    assert z.grad[3].tolist() == pytest.approx([1 / 4 / 4, 1 / 4 / 4, -1 / 2 / 4])
    assert z.grad[4].tolist() == pytest.approx([1 / 8 / 2, -7 / 8 / 2, 3 / 4 / 2])
    assert z.grad[5].tolist() == pytest.approx([1 / 3 / 4, 1 / 3 / 4, -2 / 3 / 4])
    assert z.grad[[2, 6, 8, 9]].abs().sum().item() == 0
    plain = NodeClassification().loss(outputs_only(), {"z": z}, data, Step())
    assert plain[1].item() == pytest.approx((math.log(2) + math.log(8) + math.log(3)) / 3)


def test_balanced_weights_in_the_validation_loss_by_hand():
    """Client 1 trains on 0, 2, 2 and 2: its validation nodes 5 and 6 weigh 4/(2·3) = 2/3 and 4/(2·1) = 2."""
    graph = replace(small_graph(), y=torch.tensor([0, 1, 0, 2, 2, 2, 0, 1, 0, 2]))
    train, val = torch.ones(10, dtype=torch.bool), torch.zeros(10, dtype=torch.bool)
    val[[5, 6, 8]] = True
    held = [subgraph_of(graph, torch.tensor(own), Split(train, val, val), at, "mean") for at, own in enumerate(NODES)]
    shares = [EVENLY] * 10
    shares[5], shares[6] = [1 / 4, 1 / 4, 1 / 2], [1 / 8, 1 / 8, 3 / 4]
    data, w = stack(held, 3, dtype=torch.float64), {"z": logits(shares)}
    for how, expected in (
        ("balanced", (2 / 3 * math.log(2) + 2 * math.log(8)) / (2 / 3 + 2)),
        ("none", (math.log(2) + math.log(8)) / 2),
    ):
        task = NodeClassification(class_weights=how)
        for found in (task.evaluate(outputs_only(), w, data), task.validate(outputs_only(), w, data)):
            assert found["val_loss"].tolist() == pytest.approx([NAN, expected, math.log(3)], nan_ok=True)


# Metrics that decide


def by_pairs(score: list[float], true: list[bool]) -> float:
    """The share of the ordered pairs of a positive and a negative that are in order; ties count half."""
    nodes = list(zip(score, true, strict=True))
    pairs = [(s > t) + (s == t) / 2 for s, a in nodes for t, b in nodes if a and not b]
    return sum(pairs) / len(pairs) if pairs else NAN


def by_thresholds(score: list[float], true: list[bool]) -> float:
    """The sum over distinct thresholds, from above, of precision times the step of recall."""
    if not any(true) or all(true):
        return NAN
    total, before = 0.0, 0
    for threshold in sorted(set(score), reverse=True):
        taken = [t for s, t in zip(score, true, strict=True) if s >= threshold]
        total += sum(taken) / len(taken) * (sum(taken) - before) / sum(true)
        before = sum(taken)
    return total


def mean_of_known(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else NAN


EXAMPLES = st.lists(st.tuples(st.lists(st.integers(-1, 2), min_size=4, max_size=4), st.integers(0, 3)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(EXAMPLES, EXAMPLES, st.integers(2, 4))
def test_rankings_of_several_classes_are_the_mean_over_each_against_the_others(one, other, classes):
    """Few values, so that many are equal; two clients, either of which may lack classes."""
    both = [
        (scores[:classes], label % classes, client) for client, own in enumerate((one, other)) for scores, label in own
    ]
    output = torch.tensor([scores for scores, *_ in both], dtype=torch.float64).view(-1, classes)
    y, owner = (torch.tensor([node[at] for node in both], dtype=torch.int64) for at in (1, 2))
    found, counted = by_class(output, y, owner, 2)
    score = output[:, 1:] - output[:, :1] if classes == 2 else torch.log_softmax(output, 1)
    for client in range(2):
        mine, truth = score[owner == client], y[owner == client]
        judged = range(1, 2) if classes == 2 else range(classes)
        for name, slowly in (("roc-auc", by_pairs), ("average-precision", by_thresholds)):
            each = [
                slowly(mine[:, at if classes > 2 else 0].tolist(), (truth == label).tolist())
                for at, label in enumerate(judged)
            ]
            assert found[name][client].item() == pytest.approx(mean_of_known(each), nan_ok=True)
        said = output[owner == client].argmax(1)
        assert int(counted[client].sum()) == len(truth)
        assert counted[client].diagonal().sum().item() == int((said == truth).sum())


def test_rankings_of_three_classes_by_hand():
    """Client 0 ranks class a as + (− +) and class b as (+ −) −; it has no node of class c. Client 1 has no nodes."""
    output = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 0.0]], dtype=torch.float64)
    found, _ = by_class(output, torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.int64), 2)
    assert found["roc-auc"].tolist() == pytest.approx([(3 / 4 + 3 / 4) / 2, NAN], nan_ok=True)
    assert found["average-precision"].tolist() == pytest.approx([((1 + 2 / 3) / 2 + 1 / 2) / 2, NAN], nan_ok=True)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 3 / 4),
        ("balanced-accuracy", 1 / 2),
        ("macro-f1", (6 / 7 + 0) / 2),
        ("roc-auc", 1 / 2),
        ("average-precision", 1 / 4),
    ],
)
def test_what_learning_nothing_gives_by_hand(metric, expected):
    """Most nodes to train on are of the first class, as are three of the four test nodes; then of all four."""
    everyone = torch.ones(4, dtype=torch.bool)
    own = SimpleNamespace(y=torch.tensor([0, 0, 1, 0]), train=everyone, test=everyone, num_nodes=4)
    alike = SimpleNamespace(y=torch.tensor([0, 0, 0, 0]), train=everyone, test=everyone, num_nodes=4)
    found = NodeClassification(metric=metric).unlearnt([own, alike]).tolist()
    assert found == pytest.approx([expected, NAN if metric in RANKINGS else 1], nan_ok=True)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("few") / "few.graph"
    few_of_one_class().save(path)
    return str(path)


def asked(few: str, **changes) -> Experiment:
    plain = {"method": "fedavg", "scenario": "natural", "hidden": 4, "rounds": 8, "lr": 0.1, "dropout": 0.0, "seed": 2}
    return Experiment(few, **(plain | {"ratios": (0.4, 0.3, 0.3), "dtype": "float64"} | changes))


def decided_by(rows: list[Row], name: str) -> int:
    """The first round with the highest mean, of those the one of the lowest loss."""
    means = [(row.mean(name), -row.standing[1]) for row in rows]
    highest = max(value for value, _ in means)
    level = [(loss, -row.round) for (value, loss), row in zip(means, rows, strict=True) if value > highest - 1e-12]
    return -max(level)[1]


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_decides_the_best_round(metric, few, tmp_path):
    summary = run(asked(few, metric=metric), tmp_path / "run").summary
    rows = read_rows(tmp_path / "run")
    for part in ("val", "test"):
        chosen, named = ([row.clients[name] for row in rows] for name in (part, column(metric, part)))
        assert repr(chosen) == repr(named)  # NaN is not equal to itself
    assert summary["metric"] == TITLES[metric]
    assert summary["best_round"] == decided_by(rows, column(metric, "val"))
    best = rows[summary["best_round"] - 1]
    assert summary["val"] == best.mean(column(metric, "val"))
    assert summary["test"] == best.mean(column(metric, "test"))


def test_accuracy_and_average_precision_keep_different_rounds(few, tmp_path):
    """Nearly all nodes are of one class: accuracy is the same in all rounds, and a lower loss decides."""
    rounds = {}
    for metric in ("accuracy", "average-precision"):
        rounds[metric] = run(asked(few, metric=metric), tmp_path / metric).summary["best_round"]
    assert rounds["accuracy"] != rounds["average-precision"]
    one, other = ([repr(row.clients["val_ap"]) for row in read_rows(tmp_path / metric)] for metric in rounds)
    assert one == other, "the rounds are the same"


def test_the_best_round_of_rows_by_hand():
    """Accuracy is highest in the first round, average precision in the second: what `val` holds decides."""

    def rows(metric: Metric) -> list[Row]:
        found = []
        for number, (right, ranked) in enumerate(((0.9, 0.2), (0.8, 0.6), (0.8, 0.5)), 1):
            of = {"accuracy": right, "average-precision": ranked}
            values = {"val": [of[metric]], "val_loss": [1.0], "test": [of[metric]], "took_part": [1], "loss": [1.0]}
            found.append(Row(number, 0.5, values | {"sparsity": [0.0], "bytes_up": [0], "bytes_down": [0]}))
        return found

    assert Record(rows("accuracy")).best().round == 1
    assert Record(rows("average-precision")).best().round == 2


# Thresholds


def by_threshold(share: Tensor, true: Tensor, threshold: float, metric: Metric) -> float:
    """A metric of the nodes of two classes, counted one by one."""
    said = [value > threshold for value in share.tolist()]
    truth = true.tolist()
    cells = {(a, b): sum(t == a and s == b for t, s in zip(truth, said, strict=True)) for a in (0, 1) for b in (0, 1)}
    recalls = [cells[a, a] / (cells[a, 0] + cells[a, 1]) for a in (0, 1)]
    if metric == "accuracy":
        return (cells[0, 0] + cells[1, 1]) / len(truth)
    if metric == "balanced-accuracy":
        return sum(recalls) / 2
    parts = [2 * cells[a, a] / (2 * cells[a, a] + cells[0, 1] + cells[1, 0]) for a in (0, 1)]
    return sum(parts) / 2


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("share", "true", "metric", "expected"),
    [
        # No mistake: between the lowest positive and the highest negative, unless one half is there, too.
        ((0.9, 0.4, 0.3, 0.1), (1, 1, 1, 0), "accuracy", 0.2),
        ((0.9, 0.4, 0.3, 0.1), (1, 0, 0, 0), "accuracy", EVEN),
        ((0.9, 0.8, 0.7, 0.6), (1, 1, 0, 0), "accuracy", 0.75),
        ((0.2, 0.3, 0.1, 0.15), (1, 1, 0, 0), "macro-f1", 0.175),
        # Accuracy 3/4 with nobody above, as at one half; recalls 2/3 and 1 above 0.25.
        ((0.4, 0.3, 0.2, 0.1), (0, 1, 0, 0), "accuracy", EVEN),
        ((0.4, 0.3, 0.2, 0.1), (0, 1, 0, 0), "balanced-accuracy", 0.25),
        # Rankings have no threshold: macro-F1 decides.
        ((0.2, 0.3, 0.1, 0.15), (1, 1, 0, 0), "roc-auc", 0.175),
        ((0.2, 0.3, 0.1, 0.15), (1, 1, 0, 0), "average-precision", 0.175),
        # One class is missing, or both; two nodes have the same share; one has a share of one half.
        ((0.4, 0.3), (1, 1), "accuracy", EVEN),
        ((), (), "accuracy", EVEN),
        ((0.4, 0.2, 0.2), (1, 1, 0), "accuracy", 0.3),
        ((0.5, 0.7), (0, 1), "accuracy", EVEN),
    ],
)
def test_the_best_threshold_by_hand(share, true, metric, expected):
    assert best_threshold(doubles(*share), torch.tensor(true) == 1, metric) == pytest.approx(expected)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 15), st.booleans()), min_size=1, max_size=9), st.sampled_from(METRICS))
def test_no_threshold_is_better_than_the_best(examples, metric):
    """Shares in sixteenths, many of them equal; thresholds between them, beyond them, and one half."""
    share, true = doubles(*(part / 16 for part, _ in examples)), torch.tensor([kind for _, kind in examples])
    found = best_threshold(share, true, metric)
    if bool(true.all()) or not bool(true.any()):
        assert found == EVEN
        return
    judge = metric if metric not in RANKINGS else "macro-f1"
    values = sorted({0.0, *share.tolist(), 1.0})
    between = [(low + high) / 2 for low, high in pairwise(values)]
    reached = by_threshold(share, true, found, judge)
    assert reached == pytest.approx(max(by_threshold(share, true, one, judge) for one in (*between, EVEN)))
    assert found == EVEN or reached > by_threshold(share, true, EVEN, judge) + 1e-12


def two_classes(dtype: torch.dtype = torch.float64) -> tuple[list[Subgraph], Tensor]:
    """Two clients of four and two nodes, whose shares of the second class are fixed; validation nodes are tested, too.

    Client 0: 0.9 +, 0.4 +, 0.3 −, 0.1 −: perfect from a threshold of 0.35. Client 1 has only nodes of the first class.
    """
    y = torch.tensor([1, 1, 0, 0, 0, 0])
    graph = Graph(torch.ones(6, 1), y, torch.tensor([[0], [1]]), ("no", "yes")).validate()
    everyone, nodes = torch.ones(6, dtype=torch.bool), (torch.arange(4), torch.arange(4, 6))
    held = [subgraph_of(graph, own, Split(everyone, everyone, everyone), at, "mean") for at, own in enumerate(nodes)]
    second = torch.tensor([0.9, 0.4, 0.3, 0.1, 0.7, 0.4], dtype=torch.float64)
    return held, torch.stack([1 - second, second], 1).log().to(dtype)


def test_thresholds_and_confusion_matrices_by_hand():
    held, z = two_classes()
    task = NodeClassification(metric="macro-f1")
    details = task.details(outputs_only(), {"z": z}, stack(held, 2, dtype=torch.float64))
    assert details["threshold"] == pytest.approx([0.35, EVEN])
    assert details["confusion"] == [[[2, 0], [0, 2]], [[1, 1], [0, 0]]]
    decided = task.decided(details)
    assert decided["accuracy"] == pytest.approx((1 + 1 / 2) / 2)
    assert decided["balanced-accuracy"] == pytest.approx((1 + 1 / 2) / 2)
    assert decided["macro-f1"] == pytest.approx((1 + (2 / 3 + 0) / 2) / 2)


def test_a_confusion_matrix_of_three_classes_by_hand():
    """Rows are true classes: node 2 of class a is taken for c, node 6 of class a for b, 8 for a and 9 is right."""
    shares = [EVENLY] * 10
    shares[2], shares[6] = [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]
    shares[8], shares[9] = [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]
    found = NodeClassification().details(outputs_only(), {"z": logits(shares)}, small_clients())
    assert found.keys() == {"confusion"}
    assert found["confusion"] == [
        [[0, 0, 1], [0, 0, 0], [0, 0, 0]],
        [[0, 1, 0], [0, 0, 0], [0, 0, 0]],
        [[1, 0, 0], [0, 0, 0], [0, 0, 1]],
    ]
    assert NodeClassification().decided(found) == {}


def confusion_of(graph: Graph, own: Subgraph, found: Tensor) -> list[list[int]]:
    """Counts of the test nodes, one by one."""
    counts = [[0, 0], [0, 0]]
    for node, said in zip(own.nodes[own.test].tolist(), found[own.test].tolist(), strict=True):
        counts[int(graph.y[node])][said] += 1
    return counts


def test_thresholds_go_with_the_models_and_decide_what_is_predicted(few, tmp_path):
    """From the files of a run, and from the folders of sites: a threshold for each client, and what follows from it."""
    experiment = asked(few, metric="average-precision", class_weights="balanced", rounds=5)
    made = run(experiment, tmp_path / "run")
    details = json.loads((tmp_path / "run" / "details.json").read_text())
    assert details == RunDirectory(tmp_path / "run").details()
    sites = InProcessSites(tmp_path / "sites", experiment)
    assert play(coordinator(sites, experiment), tmp_path / "deployed")["best_round"] == made.summary["best_round"]
    assert any(threshold != EVEN for threshold in details["threshold"])
    assert any(row[1] for matrix in details["confusion"] for row in matrix), "some nodes are above it"
    graph = Graph.load(Path(few))
    pieces = prepare(experiment.resolve()).federation.subgraphs
    for client, name in enumerate(sites.names):
        weights, card = model_of_run(tmp_path / "run", client)
        assert card.threshold == details["threshold"][client]
        assert card.confusion == details["confusion"][client]
        there = load_model(tmp_path / "sites" / name / "model")[1]
        assert there.threshold == pytest.approx(card.threshold, abs=1e-9)
        assert there.confusion == card.confusion
        save_model(tmp_path / name, weights, card)
        own = graph.subgraph(pieces[client].nodes)
        for source in ({"run": tmp_path / "run", "client": client}, {"run": tmp_path / name}):
            frame = fedpub.predict(**source, graph=own)
            second = frame["prediction"] == graph.classes[1]
            assert second.tolist() == (frame["p:rare"] > card.threshold).tolist()
            assert (frame["confidence"] == frame["p:rare"].where(second, frame["p:usual"])).all()
            assert card.confusion == confusion_of(graph, pieces[client], torch.tensor(second.to_numpy()).long())
    expected = NodeClassification().decided(details)
    assert made.summary["decided"] == expected
    assert made.summary["decided"].keys() == {"accuracy", "balanced-accuracy", "macro-f1"}


CARD = ModelCard(
    model="gcn",
    hidden=1,
    task="node-classification",
    decoder="dot",
    num_features=1,
    classes=("no", "yes"),
    method="local",
    site="0",
    round=1,
    seed=0,
    dtype="float64",
)


def as_they_are(card: ModelCard = CARD) -> Tree:
    """Weights with which the second class's output is the node's own feature, where nodes have no neighbours."""
    w = {name: torch.zeros(shape, dtype=getattr(torch, card.dtype)) for name, shape in card.shapes().items()}
    for name in ("conv1.weight", "conv2.weight"):
        w[name] += 1
    w["classifier.weight"] += torch.tensor([[[0.0, 1.0]]])
    return w


def lonely(*values: float) -> Graph:
    x, nothing = torch.tensor(values, dtype=torch.float64).view(-1, 1), torch.empty(2, 0, dtype=torch.int64)
    return Graph(x, torch.full((len(values),), -1), nothing, ())


@pytest.mark.parametrize(
    ("threshold", "said"), [(None, [1, 1, 0]), (0.5, [1, 1, 0]), (0.7, [1, 0, 0]), (0.95, [0, 0, 0]), (0.4, [1, 1, 1])]
)
def test_the_second_class_is_predicted_above_its_threshold(threshold, said):
    """Features whose shares are 9/10, 2/3 and 1/2."""
    found = predict(as_they_are(), replace(CARD, threshold=threshold), lonely(math.log(9), math.log(2), 0))
    assert found.probability_NC[:, 1].tolist() == pytest.approx([9 / 10, 2 / 3, 1 / 2])
    assert found.class_N.tolist() == said


@pytest.mark.parametrize("without", [("threshold", "confusion"), ("threshold",), ()])
def test_a_card_of_a_version_without_thresholds_is_read(without, tmp_path):
    """And its model predicts by one half."""
    save_model(tmp_path / "model", as_they_are(), replace(CARD, threshold=0.7))
    content = {"format": FORMAT, **asdict(replace(CARD, threshold=0.7))}
    (tmp_path / "model" / "config.json").write_text(
        json.dumps({name: value for name, value in content.items() if name not in without})
    )
    weights, card = load_model(tmp_path / "model")
    assert card.threshold == (None if without else 0.7)
    assert predict(weights, card, lonely(math.log(2))).class_N.tolist() == [1 if without else 0]


def test_weights_of_classes_change_what_is_learnt(few, tmp_path, capsys):
    words = ["--dataset", few, "--method", "fedavg", "--rounds", "4", "--hidden", "4", "--lr", "0.1", "--quiet"]
    words += ["--dropout", "0", "--ratios", "0.4", "0.3", "0.3"]
    for how in ("none", "balanced"):
        assert main(["run", *words, "--class-weights", how, "--out", str(tmp_path / how)]) == 0
    capsys.readouterr()
    plain, balanced = (read_rows(tmp_path / how)[-1].mean("loss") for how in ("none", "balanced"))
    assert plain < 0.5 < balanced


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--class-weights", "balanced"], "--class-weights balanced has no effect on link-prediction"),
        (["--metric", "accuracy"], "--metric accuracy does not fit link-prediction; give roc-auc or average-precision"),
    ],
)
def test_settings_of_classes_do_not_fit_links(flags, said, few, tmp_path, capsys):
    words = ["run", "--dataset", few, "--task", "link-prediction", *flags, "--out", str(tmp_path / "new")]
    assert said in refused(words, capsys)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_threshold_close_to_one_decides_what_is_predicted(dtype):
    x, everyone = torch.tensor([[20.0], [21.0], [22.0], [23.0]]), torch.ones(4, dtype=torch.bool)
    graph = Graph(x, torch.tensor([0, 0, 1, 1]), torch.empty(2, 0, dtype=torch.int64), ("no", "yes")).validate()
    own = subgraph_of(graph, torch.arange(4), Split(everyone, everyone, everyone), 0, "symmetric")
    card = replace(CARD, dtype=dtype)
    w = as_they_are(card)
    details = NodeClassification().details(GCN(1), w, stack([own], 2, dtype=getattr(torch, dtype)))
    assert details["confusion"] == [[[2, 0], [0, 2]]]
    assert predict(w, replace(card, threshold=details["threshold"][0]), graph).class_N.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("share", "true", "metric"), [((0.0, 0.0, 0.2), (1, 1, 0), "macro-f1"), ((1 - 2**-53, 1.0), (0, 1), "accuracy")]
)
def test_the_best_threshold_where_shares_are_saturated(share, true, metric):
    share, true = doubles(*share), torch.tensor(true) == 1
    found = best_threshold(share, true, metric)
    assert by_threshold(share, true, found, metric) >= by_threshold(share, true, 0.5, metric)
