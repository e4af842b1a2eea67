"""Several labels and numbers of nodes: losses and metrics by hand, both engines, predictions, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_federation import InProcessSites, assert_same_rows, coordinator, play

import fedpub
from fedpub.cli import main
from fedpub.data.clients.stack import stack
from fedpub.data.clients.subgraph import subgraph_of
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.part import OnePiece, OwnGraph
from fedpub.federation.validate.fields import is_metric, rounded_metrics
from fedpub.runs.simulated import run
from fedpub.tasks import MultiLabel, Regression, Step
from small import NODES, small_graph, small_split

NAN = float("nan")


def outputs_only() -> SimpleNamespace:
    """A model whose outputs are its weights."""
    return SimpleNamespace(independent=False, propagates=True, apply=lambda w, data, dropout=None: w["z"])


def clients(target: list[list[float]]):
    """The small federation: training nodes are 0 and 1, 3 to 5, and 7."""
    names = tuple(f"t{at}" for at in range(len(target[0])))
    graph = replace(small_graph(), y=torch.full((10,), -1), target=torch.tensor(target).double(), classes=names)
    held = [subgraph_of(graph, torch.tensor(own), small_split(), at, "symmetric") for at, own in enumerate(NODES)]
    return stack(held, len(names), dtype=torch.float64)


def test_the_loss_of_several_labels_is_over_the_known_ones():
    """Node 0: one known label at p = 1/2; node 1: p = 3/4 of one it has, and of one it lacks."""
    logit = math.log(3)
    data = clients([[1, NAN], [1, 0], *([[0, NAN]] * 8)])
    z = torch.tensor([[0, 7.0], [logit, logit], *([[0, 9.0]] * 8)], dtype=torch.float64, requires_grad=True)
    loss = MultiLabel().loss(outputs_only(), {"z": z}, data, Step())
    second = (math.log(4 / 3) + math.log(4)) / 2
    assert loss.tolist() == pytest.approx([(math.log(2) + second) / 2, math.log(2), math.log(2)])
    loss.sum().backward()
    assert z.grad[:, 1].tolist() == pytest.approx([0, 3 / 4 / 2 / 2] + [0] * 8)


def test_several_labels_are_judged_label_by_label():
    """Client 0, label a: 3 +, 2 −, 1 +; label b: −1 +, −2 −, and 9 unknown. Client 1 has a at both its nodes."""
    output = torch.tensor([[3.0, -1], [2, -2], [1, 9], [1, 5], [-1, 5]])
    target = torch.tensor([[1, 1], [0, 0], [1, NAN], [1, NAN], [1, NAN]])
    found = MultiLabel().judge(output, target, torch.tensor([0, 0, 0, 1, 1]), 3)
    assert found["_ap"].tolist() == pytest.approx([(5 / 6 + 1) / 2, NAN, NAN], nan_ok=True)
    assert found["_auc"].tolist() == pytest.approx([(1 / 2 + 1) / 2, NAN, NAN], nan_ok=True)
    assert found["_f1"].tolist() == pytest.approx([(4 / 5 + 0) / 2, 2 / 3, NAN], nan_ok=True)
    assert torch.equal(found[""].nan_to_num(), found["_ap"].nan_to_num())
    chosen = MultiLabel("macro-f1").judge(output, target, torch.tensor([0, 0, 0, 1, 1]), 3)
    assert chosen[""].tolist() == pytest.approx(found["_f1"].tolist(), nan_ok=True)


def test_without_learning_the_average_precision_is_the_share_of_positives():
    target = torch.tensor([[1, 1], [0, 0], [1, NAN]], dtype=torch.float64)
    everyone = torch.ones(3, dtype=torch.bool)
    own = SimpleNamespace(target=target, test=everyone, num_nodes=3)
    assert MultiLabel().unlearnt([own]).tolist() == pytest.approx([(2 / 3 + 1 / 2) / 2])
    assert MultiLabel("roc-auc").unlearnt([own]).tolist() == [0.5]
    assert MultiLabel("macro-f1").unlearnt([own]).tolist() == pytest.approx([(4 / 5 + 2 / 3) / 2])
    number = SimpleNamespace(target=target[:, :1], test=everyone, num_nodes=3)
    assert Regression().unlearnt([number]).tolist() == [0]
    assert Regression().sizes([number]).tolist() == [3]


def test_numbers_are_judged_by_r2_and_rmse():
    """Client 0: squared errors 9 of 14; client 1 is worse than a constant; client 2 has equal numbers, 3 no nodes."""
    output = torch.tensor([[1.0], [2], [3], [10], [10], [0.1], [0.1], [1.1]], dtype=torch.float64)
    target = torch.tensor([[1.0], [2], [6], [1], [2], [0.1], [0.1], [0.1]], dtype=torch.float64)
    found = Regression().judge(output, target, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), 4)
    assert found[""].tolist() == pytest.approx([1 - 9 / 14, 0, NAN, NAN], nan_ok=True)
    assert found["_rmse"].tolist() == pytest.approx([3**0.5, 72.5**0.5, (1 / 3) ** 0.5, NAN], nan_ok=True)


def test_the_loss_of_numbers_is_the_mean_squared_error():
    data = clients([[float(node)] for node in range(10)])
    z = torch.full((10, 1), 1.0, dtype=torch.float64)
    loss = Regression().loss(outputs_only(), {"z": z}, data, Step())
    assert loss.tolist() == pytest.approx([(1 + 0) / 2, (4 + 9 + 16) / 3, 36])


def test_an_error_is_an_amount_and_no_share():
    assert is_metric("test_rmse", 1234.5)
    assert is_metric("val_loss", 1234.5)
    assert not is_metric("test", 1.5)
    assert not is_metric("test_rmse", float("inf"))
    assert rounded_metrics({"test_rmse": 1234.56, "test": 0.123456}) == {"test_rmse": 1235.0, "test": 0.1235}


@pytest.fixture
def with_targets(graph_file: str, tmp_path: Path):
    """The graph of the other tests with a file of labels, some of them unknown, and one of numbers."""
    graph = Graph.load(Path(graph_file))
    target = torch.nn.functional.one_hot(graph.y.clamp(min=0), graph.num_classes).double()
    target[:, 0] = torch.maximum(target[:, 0], target[:, 1])
    target[torch.rand(target.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = NAN
    none = torch.full_like(graph.y, -1)
    files = {}
    for task, part, names in (
        ("multi-label", target, graph.classes),
        ("regression", 2.0 + graph.y.double().unsqueeze(1), ("score",)),
    ):
        files[task] = str(tmp_path / f"{task}.graph")
        replace(graph, y=none, target=part, classes=names, name=task).validate().save(Path(files[task]))
    return files


@pytest.fixture
def easy(tmp_path: Path):
    """Files of 300 nodes in a circle, whose targets follow from their own features."""
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    circle = torch.cat([torch.stack([torch.arange(299), torch.arange(1, 300)]), torch.tensor([[0], [299]])], 1)
    edges = circle[:, torch.argsort(circle[0] * 300 + circle[1])]
    files = {}
    for task, target, names in (
        ("multi-label", (x[:, :2] > 0).double(), ("first", "second")),
        ("regression", 2.0 + (x[:, :1] - x[:, 1:2]).double(), ("score",)),
    ):
        files[task] = str(tmp_path / f"easy-{task}.graph")
        Graph(x, torch.full((300,), -1), edges, names, target=target).validate().save(Path(files[task]))
    return files


def tiny(files: dict[str, str], task: str, **changes) -> Experiment:
    plain = {"method": "fedavg", "hidden": 8, "dtype": "float64", "lr": 0.05, "rounds": 3}
    return Experiment(files[task], task=task, **(plain | changes))


@pytest.mark.parametrize("task", ["multi-label", "regression"])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *((method, {}) for method in ("local", "fedavg", "fedpub", "fedpub-plus", "fedgnn")),
        ("fedsage", {"options": {"generator_epochs": 2, "generator_rounds": 1}}),
        ("fedavg", {"model": "hops", "batch_size": 7}),
    ],
)
def test_both_engines_give_the_same_numbers(task, method, changes, with_targets, tmp_path):
    experiment = tiny(with_targets, task, method=method, **changes)
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    play(coordinator(InProcessSites(tmp_path / "sites", experiment), experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_it_learns_more_than_a_constant(task, easy, tmp_path, capsys):
    words = ["--dataset", easy[task], "--task", task, "--method", "fedavg", "--rounds", "30", "--lr", "0.05"]
    words += ["--clients", "2", "--model", "sage", "--hidden", "32"]
    assert main(["run", *words, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "same for all nodes" in told
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["test"] > summary["constant"] + 0.2
    if task == "regression":
        assert (summary["metric"], summary["constant"]) == ("R²", 0)
        assert f"{summary['test_rmse']:.4g} \n" in told  # not in percent
    else:
        assert summary["metric"] == "average precision"
        assert 0 < summary["test_f1"] < 1


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_its_models_predict(task, easy, tmp_path):
    graph = Graph.load(Path(easy[task]))
    how = {"task": task, "method": "oracle", "model": "sage", "clients": 2, "rounds": 60, "progress": False}
    made = fedpub.run(easy[task], **how, out=tmp_path / "run")
    frame = fedpub.predict(made, easy[task], client=0)
    assert len(frame) == graph.num_nodes
    if task == "regression":
        assert list(frame.columns) == ["node", "prediction"]
        wrong = torch.tensor(frame["prediction"].to_numpy()) - graph.target[:, 0]
        assert float(wrong.square().mean()) < float(graph.target.var())
    else:
        assert list(frame.columns) == ["node", "prediction", *(f"p:{name}" for name in graph.classes)]
        first = frame.iloc[0]
        said = ";".join(name for name in graph.classes if first[f"p:{name}"] > 0.5)
        assert first["prediction"] == said
    other = replace(graph, classes=tuple(f"other {name}" for name in graph.classes))
    with pytest.raises(FedpubError, match=r"has the target 'other .*', but those of the model of '0' are"):
        fedpub.predict(made, other, client=0)


def test_a_site_places_its_labels_among_those_of_all_sites(with_targets):
    source = OwnGraph(Path(with_targets["multi-label"]))
    everyone = ("further", *reversed(source.classes))
    own = source.piece(tiny(with_targets, "multi-label").resolve(), 0, everyone)
    assert own.target.shape[1] == len(everyone)
    assert bool(own.target[:, 0].isnan().all())
    torch.testing.assert_close(own.target[:, 1:].flip(1), source.graph.target, equal_nan=True)
    number = OwnGraph(Path(with_targets["regression"]))
    with pytest.raises(FedpubError, match="has 2 targets, but regression learns one number"):
        number.piece(tiny(with_targets, "regression").resolve(), 0, ("score", "points"))


def test_a_piece_of_another_task_is_refused(with_targets, graph_file, tmp_path):
    files = with_targets | {"node-classification": graph_file}
    for held in files:
        InProcessSites(tmp_path / held, tiny(files, held))
        piece = OnePiece(tmp_path / held / "site-0" / "piece.safetensors")
        for asked in files:
            if asked == held:
                assert piece.piece(tiny(files, asked).resolve(), 0, piece.classes).id == 0
                continue
            with pytest.raises(FedpubError, match=f"was not split for {asked}"):
                piece.piece(tiny(files, asked).resolve(), 0, piece.classes)


def test_what_a_graph_does_not_have_is_not_learnt(with_targets, graph_file, tmp_path, capsys):
    labels, number = with_targets["multi-label"], with_targets["regression"]
    for file, words, told in (
        (graph_file, ["--task", "multi-label"], "has no targets for multi-label; import columns with --labels"),
        (graph_file, ["--task", "regression"], "has no target for regression; import a column with --number"),
        (labels, [], "has no classes to learn; use --task multi-label or --task regression"),
        (labels, ["--task", "regression"], "targets, but regression learns one number"),
        (number, ["--task", "multi-label"], "but a label is 0 or 1; use --task regression"),
        (labels, ["--task", "multi-label", "--metric", "accuracy"], "--metric accuracy does not fit multi-label"),
        (number, ["--task", "regression", "--metric", "roc-auc"], "does not fit regression; leave it out"),
        (labels, ["--task", "multi-label", "--class-weights", "balanced"], "has no effect on multi-label"),
    ):
        assert main(["run", "--dataset", file, *words, "--out", str(tmp_path / "run"), "--quiet"]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "run").exists()


def test_clients_without_classes_are_not_compared_by_them(with_targets):
    with pytest.raises(FedpubError, match="measure=label compares counts of classes"):
        tiny(with_targets, "regression", method="fedpub", options={"measure": "label"}).resolve()
