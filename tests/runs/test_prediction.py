"""Predictions by personal models: as the simulator computes them, on any graph that fits, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from fedpub.cli import main
from fedpub.core.tree import Tree
from fedpub.data.graph import Graph
from fedpub.data.tables.encoding import META_KEY, Column, Encoding
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.runs.prediction import check_fits, notes, predict, read_pairs, table_of
from fedpub.runs.simulated import run
from fedpub.store.model_card import ModelCard
from fedpub.store.model_files import load_model, save_model
from fedpub.store.run_models import model_of_run
from fedpub.tasks.metrics import ranking
from small import refused

CLASSES = ("a", "b", "c")
CARD = ModelCard(
    model="gcn",
    hidden=2,
    task="node-classification",
    decoder="dot",
    num_features=2,
    classes=CLASSES,
    method="local",
    site="here",
    round=1,
    seed=0,
    dtype="float64",
)


def pair(**changes) -> Graph:
    """Two nodes and the edge between them, without labels: Â is a half everywhere."""
    plain = {
        "x": torch.tensor([[2.0, 0.0], [0.0, 4.0]]),
        "y": torch.tensor([-1, -1]),
        "edges": torch.tensor([[0], [1]]),
    }
    return Graph(**(plain | {"classes": (), "name": "pair"} | changes))


def plain_weights() -> Tree:
    """ÂX is (1, 2) at both nodes. H1 = relu((1, 2) + (0, -5)) = (1, 0) and H2 = (1, 0) + (0, 3) = (1, 3)."""
    eye = torch.eye(2, dtype=torch.float64).unsqueeze(0)
    return {
        "conv1.weight": eye,
        "conv1.bias": torch.tensor([[0.0, -5.0]]).double(),
        "conv2.weight": eye.clone(),
        "conv2.bias": torch.tensor([[0.0, 3.0]]).double(),
        "classifier.weight": torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]).double(),
        "classifier.bias": torch.tensor([[0.0, 0.0, 1.0]]).double(),
    }


def test_classes_by_hand():
    found = predict(plain_weights(), CARD, pair())
    assert found.class_N.tolist() == [1, 1]
    exponential = np.exp([1.0, 3.0, 1.0])  # the logits are (1, 3, 1)
    np.testing.assert_allclose(found.probability_NC, [exponential / exponential.sum()] * 2)
    np.testing.assert_allclose(found.confidence, [exponential[1] / exponential.sum()] * 2)


def test_a_node_without_neighbours_by_hand():
    found = predict(plain_weights(), CARD, pair(edges=torch.empty(2, 0, dtype=torch.int64)))
    # Of (2, 0) and (0, 4), H1 is (2, 0) and (0, 0), the logits (2, 3, 1) and (0, 3, 1).
    np.testing.assert_allclose(
        found.confidence, [np.exp(3) / np.exp([2, 3, 1]).sum(), np.exp(3) / np.exp([0, 3, 1]).sum()]
    )


def test_sage_by_hand():
    card = replace(CARD, model="sage")
    weights = {name: torch.zeros(shape).double() for name, shape in card.shapes().items()}
    weights["conv1.neighbour"] += torch.eye(2)  # every node gets what the other has: (0, 4) and (2, 0)
    weights["conv2.self"] += torch.eye(2)
    weights["classifier.weight"] += torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = predict(weights, card, pair())
    assert found.class_N.tolist() == [1, 0]
    np.testing.assert_allclose(found.confidence, [np.exp(4) / (np.exp(4) + 2), np.exp(2) / (np.exp(2) + 2)])


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_links_by_hand(decoder):
    card = replace(CARD, task="link-prediction", decoder=decoder)
    weights = {name: torch.zeros(shape).double() for name, shape in card.shapes().items()}
    weights |= {name: leaf for name, leaf in plain_weights().items() if name.startswith("conv")}
    weights["classifier.weight"] += torch.eye(2)
    weights["decoder.bias"] += 0.5
    if decoder == "mlp":
        weights["decoder1.weight"] += torch.eye(2)
        weights["decoder2.weight"] += torch.tensor([[10.0], [1.0]])
    graph = pair(edges=torch.empty(2, 0, dtype=torch.int64))  # embeddings (2, 3) and (0, 3)
    score = predict(weights, card, graph, torch.tensor([[0, 1, 0], [1, 0, 0]])).score_P
    expected = {"dot": [9.5, 9.5, 13.5], "mlp": [9.5, 9.5, 49.5]}[decoder]
    assert score.tolist() == expected


def experiment(graph_file: str, **changes) -> Plan:
    plain = {"dataset": graph_file, "scenario": "natural", "hidden": 16, "rounds": 12, "method": "fedpub"}
    return Experiment(**(plain | changes)).resolve()


def ran(wanted: Plan, out: Path) -> tuple[Prepared, list[float]]:
    """The data of an experiment, and every client's test value."""
    return prepare(wanted), run(wanted, out).summary["per_client_test"]


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accuracy_is_that_of_the_run(model, dtype, graph_file, tmp_path):
    ready, tested = ran(experiment(graph_file, model=model, dtype=dtype), tmp_path / "out")
    assert len(set(tested)) > 1
    for client, own in enumerate(ready.federation.subgraphs):
        weights, card = model_of_run(tmp_path / "out", client)
        save_model(tmp_path / str(client), weights, card)
        weights, card = load_model(tmp_path / str(client))
        found = predict(weights, card, ready.graph.subgraph(own.nodes))
        correct = (found.class_N == own.y)[own.test].double().mean()
        assert float(correct) == tested[client] == card.test


def test_the_oracle_predicts_on_the_whole_graph(graph_file, tmp_path):
    ready, tested = ran(experiment(graph_file, method="oracle"), tmp_path / "out")
    weights, card = model_of_run(tmp_path / "out", 3)
    found = predict(weights, card, ready.graph)
    rows = ready.partition.nodes[3][ready.federation.subgraphs[0].test[ready.partition.nodes[3]]]
    assert float((found.class_N == ready.graph.y)[rows].double().mean()) == tested[3]


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_auc_is_that_of_the_run(model, decoder, graph_file, tmp_path):
    wanted = experiment(graph_file, task="link-prediction", decoder=decoder, model=model, rounds=3, epochs=3)
    ready, tested = ran(wanted, tmp_path / "out")
    for client, own in enumerate(ready.federation.subgraphs):
        weights, card = model_of_run(tmp_path / "out", client)
        # In training, messages pass along the training edges only.
        graph = replace(ready.graph.subgraph(own.nodes), edges=own.edges)
        score_P = predict(weights, card, graph, own.links.test.pairs).score_P
        auc, _ = ranking(score_P, own.links.test.true, torch.zeros(len(score_P), dtype=torch.int64), 1)
        assert float(auc) == tested[client]


def test_labels_are_compared_by_name():
    graph = pair(y=torch.tensor([0, 1]), classes=("b", "c"))
    found = predict(plain_weights(), CARD, graph)
    assert found.accuracy() == (0.5, 2)  # b and b, where b and c are right
    assert replace(found, graph=replace(graph, y=torch.tensor([-1, 1]))).accuracy() == (0.0, 1)
    assert replace(found, graph=pair()).accuracy() is None


def encoded(*columns: Column) -> dict[str, str]:
    return {META_KEY: Encoding(columns, CLASSES).to_json()}


AGE, TALL = Column("age", "numeric", 30.0, 5.0), Column("tall", "boolean")


@pytest.mark.parametrize(
    ("card", "graph", "said"),
    [
        ({}, {"x": torch.zeros(2, 3)}, "graph 'pair' has 3 features, but the model of 'here' expects 2; make"),
        ({}, {"y": torch.tensor([1, -1]), "classes": ("b", "d")}, "has nodes of the class 'd', but those"),
        (encoded(AGE, TALL), encoded(AGE), "has no column 'tall', which the model of 'here' learnt from; import"),
        (
            encoded(AGE),
            encoded(AGE, TALL),
            "has a column 'tall' in addition to those that the model of 'here' learnt from",
        ),
        (encoded(AGE, TALL), encoded(TALL, AGE), "has the columns in a different order from the graph that"),
        (encoded(AGE), encoded(replace(AGE, mean=31.0)), "encodes the column 'age' differently from the graph that"),
        (encoded(AGE), {META_KEY: "{"}, "the encoding of columns in graph 'pair' is damaged"),
        ({META_KEY: "[]"}, encoded(AGE), "the encoding of columns in the model of 'here' is damaged"),
    ],
)
def test_what_does_not_fit_is_refused(card, graph, said):
    changes = {"meta": graph} if META_KEY in graph else graph
    if "classes" in changes:  # the foreign one has to occur
        assert check_fits(CARD, pair(y=torch.tensor([0, -1]), classes=changes["classes"])) is None
        changes = changes | {"y": torch.tensor([0, 1])}
    with pytest.raises(FedpubError) as caught:
        predict(plain_weights(), replace(CARD, meta=card), pair(**changes))
    assert said in str(caught.value)


def test_what_cannot_be_checked_is_said():
    assert notes(CARD, pair()) == []
    assert notes(replace(CARD, meta=encoded(AGE, TALL)), pair(meta=encoded(AGE, TALL))) == []
    assert notes(replace(CARD, method="of tomorrow"), pair()) == []
    (note,) = notes(replace(CARD, meta=encoded(AGE, TALL)), pair())
    assert note == "the graph does not say how its features were made: only their number could be checked"
    (note,) = notes(CARD, pair(meta=encoded(AGE, TALL)))
    assert note.startswith("the model does not say")
    (note,) = notes(replace(CARD, method="fedsage"), pair())
    assert note.startswith("fedsage learnt on a graph with further neighbours")


def test_a_model_of_links_has_no_classes_and_the_other_way_round():
    with pytest.raises(FedpubError, match="predicts links, not classes; name pairs of nodes with pairs"):
        predict({}, replace(CARD, task="link-prediction"), pair())
    with pytest.raises(FedpubError, match="predicts classes, not links; leave pairs out"):
        predict({}, CARD, pair(), torch.empty(2, 0))


def test_the_table_by_hand():
    table = table_of(predict(plain_weights(), CARD, pair()))
    assert table.column_names == ["node", "prediction", "confidence", "p:a", "p:b", "p:c"]
    assert table["node"].to_pylist() == [0, 1]
    assert table["prediction"].to_pylist() == ["b", "b"]
    assert table["p:b"].to_pylist() == table["confidence"].to_pylist()
    named = table_of(predict(plain_weights(), CARD, pair(node_ids=("ana", "007"))))
    assert named["node"].to_pylist() == ["ana", "007"]


def test_pairs_are_named_as_the_owner_names_nodes(tmp_path):
    graph = pair(node_ids=("007", "bob"))
    (tmp_path / "pairs.csv").write_text("u,v,note\n007,bob,x\nbob,bob,y\n")
    assert read_pairs(tmp_path / "pairs.csv", graph).tolist() == [[0, 1], [1, 1]]
    pq.write_table(pa.table({"target": [0, 1], "source": [1, 1]}), tmp_path / "pairs.parquet")
    assert read_pairs(tmp_path / "pairs.parquet", pair()).tolist() == [[1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("u,v\n0,1\n1,7\n", "line 3: '7' is not the id of a node of graph 'pair'; correct it or remove the row"),
        ("u,v\n0,\n", "line 2: a node id is empty"),
        ("u,v\n", "has no rows"),
        ("u\n0\n", "two columns"),
    ],
)
def test_pairs_that_are_refused(text, said, tmp_path):
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(FedpubError) as caught:
        read_pairs(tmp_path / "pairs.csv", pair())
    assert said in str(caught.value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", plain_weights(), CARD)
    return tmp_path / "model"


@pytest.fixture
def words(model: Path, tmp_path: Path) -> list[str]:
    pair(node_ids=("ana", "bob")).save(tmp_path / "new.graph")
    return ["predict", "--model", str(model), "--graph", str(tmp_path / "new.graph"), "--out"]


def read(path: Path) -> dict[str, list]:
    return (pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)).to_pydict()


@pytest.mark.parametrize("ending", ["csv", "parquet", "CSV"])
def test_the_verb_writes_a_table(ending, words, tmp_path, capsys):
    out = tmp_path / "to" / f"out.{ending}"
    out.parent.mkdir()
    out.write_text("of yesterday")
    assert main([*words, str(out)]) == 0
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[:4]] == [
        ["nodes", "2"],
        ["of", "class", "a", "0"],
        ["of", "class", "b", "2"],
        ["of", "class", "c", "0"],
    ]
    assert "mean confidence" in said
    assert "78.70 %" in said  # e³ / (e + e³ + e)
    assert "accuracy" not in said  # nobody has a label
    found = read(out)
    assert found["node"] == ["ana", "bob"]
    assert found["prediction"] == ["b", "b"]
    assert found["confidence"] == pytest.approx([0.78699] * 2, abs=1e-5)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_the_verb_judges_by_labels_and_can_be_quiet(model, tmp_path, capsys):
    pair(y=torch.tensor([1, 0]), classes=CLASSES).save(tmp_path / "old.graph")
    words = ["predict", "--model", str(model), "--graph", str(tmp_path / "old.graph")]
    assert main([*words, "--out", str(tmp_path / "out.csv")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "accuracy on 2 labelled nodes, training nodes included 50.00 %" in said
    assert main([*words, "--out", str(tmp_path / "out.csv"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_the_verb_on_a_run(graph_file, tmp_path, capsys):
    run(experiment(graph_file, rounds=2), tmp_path / "run")
    words = ["predict", "--model", str(tmp_path / "run"), "--graph", graph_file, "--out", str(tmp_path / "out.csv")]
    assert main([*words, "--client", "4"]) == 0
    weights, card = model_of_run(tmp_path / "run", 4)
    expected = predict(weights, card, Graph.load(Path(graph_file)))
    assert read(tmp_path / "out.csv")["prediction"] == expected.class_N.tolist()  # a CSV's reader takes "0" for 0
    assert "choose one of them by --client, 0 to 4" in refused(words, capsys)
    assert "--client 5 is not one of the clients" in refused([*words, "--client", "5"], capsys)
    number = (tmp_path / "out.csv").read_bytes()
    assert main([*words, "--client", "community1-1"]) == 0  # clients 3 and 4 are the second community's
    assert (tmp_path / "out.csv").read_bytes() == number
    said = refused([*words, "--client", "coast-0"], capsys)
    assert "--client coast-0 is not one of the clients" in said
    assert "give 0 to 4, or a name such as community0-0" in said


def test_the_verb_on_links(graph_file, tmp_path, capsys):
    run(experiment(graph_file, task="link-prediction", rounds=1, epochs=1), tmp_path / "run")
    graph = Graph.load(Path(graph_file))
    u, v = graph.edges[:, 0].tolist()
    (tmp_path / "pairs.csv").write_text(f"u,v\n{v},{u}\n0,99\n")
    words = ["predict", "--model", str(tmp_path / "run"), "--client", "1", "--graph", graph_file]
    words += ["--out", str(tmp_path / "out.parquet")]
    assert main([*words, "--pairs", str(tmp_path / "pairs.csv")]) == 0
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[:2]] == [["pairs", "2"], ["edges", "of", "the", "graph", "1"]]
    found = read(tmp_path / "out.parquet")
    assert (found["source"], found["target"]) == ([v, 0], [u, 99])
    weights, card = model_of_run(tmp_path / "run", 1)
    score_P = predict(weights, card, graph, torch.tensor([[v, 0], [u, 99]])).score_P
    assert found["score"] == score_P.tolist()
    assert found["probability"] == torch.sigmoid(score_P).tolist()
    assert "name pairs of nodes with --pairs" in refused(words, capsys)


def test_what_the_verb_refuses(words, model, tmp_path, capsys):
    out, graph = tmp_path / "out.csv", Path(words[4])
    (tmp_path / "pairs.csv").write_text("u,v\nana,bob\n")
    pairs = ["--pairs", str(tmp_path / "pairs.csv")]
    (tmp_path / "folder.csv").mkdir()
    other = [*words[:-1], "--out", str(out)]
    cases = [
        ([*words, str(tmp_path / "out.xlsx")], "has the suffix '.xlsx'; give a name that ends in .csv or .parquet"),
        ([*words, str(tmp_path / "folder.csv")], "is a folder"),
        ([*words, str(tmp_path / "pairs.csv"), *pairs], "is an input file; write to another name"),
        ([*words, str(out), *pairs], "predicts classes, not links"),
        ([*words, str(out), "--client", "1"], "holds one model"),
        ([*words, "/proc/no/out.csv"], "cannot write /proc/no/out.csv"),
        (["predict", "--model", str(tmp_path), *other[3:]], "holds neither a model nor a run"),
        ([*other[:4], str(tmp_path / "none.graph"), *other[5:]], "there is no graph file"),
        ([*other[:4], str(tmp_path / "pairs.csv"), *other[5:]], "is a table, not a graph"),
        ([*other[:4], "communities", *other[5:]], "features, but the model of 'here' expects 2"),
    ]
    for line, said in cases:
        assert said in refused(line, capsys)
    assert not out.exists()
    assert graph.is_file()
    assert (tmp_path / "pairs.csv").read_text() == "u,v\nana,bob\n"


def test_a_graph_without_labels_is_for_predictions_only(words, tmp_path, capsys):
    with pytest.raises(FedpubError, match="classification needs at least two"):
        Graph.load(Path(words[4]))
    pair(classes=CLASSES).save(tmp_path / "unlabelled.graph")
    said = refused(["run", "--dataset", str(tmp_path / "unlabelled.graph"), "--clients", "1"], capsys)
    assert "has no labelled node" in said
    assert Graph.load(tmp_path / "unlabelled.graph", labelled=False).num_nodes == 2


def test_own_tables_from_training_to_prediction(tmp_path, monkeypatch, capsys):
    """Import, run, and predict on a table of another site that was encoded alike; one that was not is refused."""
    monkeypatch.chdir(tmp_path)
    for name, shift in (("a", 0), ("b", 5)):
        rows = [f"p{i},{i % 7 + shift},{'north' if i % 3 else 'south'},{'yes' if i % 2 else 'no'}" for i in range(40)]
        Path(f"{name}.csv").write_text("\n".join(["id,age,city,label", *rows]) + "\n")
    Path("edges.csv").write_text("\n".join(["source,target", *(f"p{i},p{(i + 2) % 40}" for i in range(40))]) + "\n")
    tables = ["--edges", "edges.csv", "--id", "id", "--label", "label", "--out"]
    assert main(["data", "import", "--nodes", "a.csv", *tables, "a.graph"]) == 0
    assert main(["data", "import", "--nodes", "b.csv", *tables, "alike.graph", "--like", "a.graph"]) == 0
    assert main(["data", "import", "--nodes", "b.csv", *tables, "otherwise.graph"]) == 0
    training = ["--scenario", "random", "--clients", "2", "--method", "local", "--rounds", "5", "--hidden", "8"]
    assert main(["run", "--quiet", "--dataset", "a.graph", *training, "--out", "run"]) == 0
    words = ["predict", "--model", "run", "--client", "1", "--out", "out.parquet", "--graph"]
    assert main([*words, "alike.graph"]) == 0
    found = read(Path("out.parquet"))
    assert found["node"][:3] == ["p0", "p1", "p2"]
    assert set(found["prediction"]) <= {"yes", "no"}
    assert list(found)[3:] == ["p:no", "p:yes"]
    assert "encodes the column 'age' differently" in refused([*words, "otherwise.graph"], capsys)


def test_neither_training_nor_network_packages_are_needed(words, tmp_path):
    blocked = ["torch_geometric", "flwr", "pymetis", "igraph"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        f"from fedpub.cli import main; sys.exit(main({[*words, str(tmp_path / 'out.csv')]}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path / "out.csv")["prediction"] == ["b", "b"]
