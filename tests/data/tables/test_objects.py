"""Weights, directions and kinds of edges from PyG and NetworkX: the same graph as from tables; what is refused."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import fedpub
from fedpub.cli import main
from fedpub.data.graph import Edges, Graph, arranged, merged
from fedpub.data.tables import from_networkx, from_pyg, from_tables
from fedpub.data.tables.building import Imported
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.runs.simulated import run
from fedpub.store.run_models import model_of_run
from small import small_graph

# From a to b and back, from b to c, from c to a, and from d to c; the first is repeated, and c pays itself.
ROWS = (
    ("a", "b", 2.0, "pay"),
    ("b", "a", 3.0, "pay"),
    ("b", "c", 1.0, "call"),
    ("a", "b", 4.0, "pay"),
    ("c", "a", 0.5, "call"),
    ("c", "c", 9.0, "pay"),
    ("d", "c", 0.0, "pay"),
)
IDS, X, LABEL = "abcd", (1.0, 2.0, 4.0, 9.0), "uvuv"
PLACE = {name: at for at, name in enumerate(IDS)}


def imported(rows: tuple[tuple[str, str, float, str], ...] = ROWS, **how: Any) -> Imported:
    nodes = "".join(f"{i},{x},{c}\n" for i, x, c in zip(IDS, X, LABEL, strict=True))
    Path("nodes.csv").write_text(f"id,x,label\n{nodes}")
    Path("edges.csv").write_text("source,target,w,kind\n" + "".join(f"{u},{v},{w},{k}\n" for u, v, w, k in rows))
    return from_tables([Path("nodes.csv")], [Path("edges.csv")], id_column="id", label_column="label", **how)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def network(directed: bool, rows: tuple[tuple[str, str, float, str], ...]) -> nx.Graph:
    g = nx.MultiDiGraph() if directed else nx.MultiGraph()
    for name, x, label in zip(IDS, X, LABEL, strict=True):
        g.add_node(name, x=x, label=label)
    for u, v, w, _ in rows:
        g.add_edge(u, v, w=w)
    return g


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("directed", [False, True])
def test_a_network_is_the_same_graph_as_its_tables(directed, weight):
    """Also where edges are repeated, in one direction or in both."""
    tables = imported(edge_weight=weight, directed=directed).graph
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graph = from_networkx(network(directed, ROWS), weight=weight, directed=directed)
    unused = [] if weight else ["the NetworkX graph has edges with w, which fedpub does not use"]
    assert [str(one.message) for one in said] == unused
    assert graph.digest() == tables.digest()
    assert (graph.directed, graph.meta) == (directed, tables.meta)
    assert (graph.weight is None) == (weight is None)


def test_the_weights_of_a_network_by_hand():
    both = from_networkx(network(True, ROWS), weight="w")
    assert both.edges.tolist() == [[0, 0, 1, 2], [1, 2, 2, 3]]
    assert both.weight.tolist() == [9, 0.5, 1, 0]
    one_way = from_networkx(network(True, ROWS), weight="w", directed=True)
    assert one_way.edges.tolist() == [[0, 1, 1, 2, 3], [1, 0, 2, 0, 2]]
    assert one_way.weight.tolist() == [6, 3, 1, 0.5, 0]


def test_a_network_without_directions_cannot_keep_them():
    with pytest.raises(FedpubError, match="is not directed; give a DiGraph, or leave out directed"):
        from_networkx(network(False, ROWS), directed=True)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "heavy", "2", None, True, 1j], ids=str)
def test_a_weight_of_a_network_that_is_none_is_refused(value):
    g = network(True, ROWS)
    g.edges["b", "c", 0]["w"] = value
    with pytest.raises(FedpubError) as said:
        from_networkx(g, weight="w")
    assert f"the edge of 'b' and 'c' has the w {value!r}; weights are finite numbers, 0 or more" in str(said.value)


def pyg(rows: tuple[tuple[str, str, float, str], ...], x: Tensor, **further: Any) -> Data:
    ends = torch.tensor([[PLACE[u] for u, *_ in rows], [PLACE[v] for _, v, *_ in rows]])
    kinds = sorted({kind for *_, kind in rows})
    weight, kind = torch.tensor([w for *_, w, _ in rows]), torch.tensor([kinds.index(k) for *_, k in rows])
    y = torch.tensor(["uv".index(label) for label in LABEL])
    return Data(x=x, y=y, edge_index=ends, edge_weight=weight, edge_type=kind, **further)


def both_ways(rows: tuple[tuple[str, str, float, str], ...]) -> tuple[tuple[str, str, float, str], ...]:
    return rows + tuple((v, u, w, kind) for u, v, w, kind in rows)


@pytest.mark.parametrize("keys", [{"edge_weight", "edge_type"}, {"edge_weight"}, {"edge_type"}, set()], ids=sorted)
@pytest.mark.parametrize("directed", [False, True])
def test_pyg_data_is_the_same_graph_as_its_tables(directed, keys):
    """Without directions PyG lists every edge twice, which is one edge in a table."""
    rows = tuple(row for at, row in enumerate(ROWS) if at != 3 and (directed or at != 1))
    columns = {"edge_weight": {"edge_weight": "w"}, "edge_type": {"edge_type": "kind"}}
    chosen = {name: value for key in keys for name, value in columns[key].items()}
    tables = imported(rows, directed=directed, **chosen).graph
    data = pyg(rows if directed else both_ways(rows), tables.x)
    for key in columns.keys() - keys:
        del data[key]
    graph = from_pyg(data, directed=directed)
    assert graph.digest() == tables.digest()
    assert graph.num_relations == tables.num_relations == (1 + directed) * (1 + ("edge_type" in keys))


def test_one_column_of_attributes_is_the_weight_of_edges():
    rows = ROWS[2:3]
    x = torch.ones(4, 1)
    plain = pyg(rows, x)
    graphs = [from_pyg(plain, directed=True)]
    for attribute in (torch.tensor([[1.0]]), torch.tensor([1.0])):
        data = pyg(rows, x, edge_attr=attribute)
        del data["edge_weight"]
        graphs.append(from_pyg(data, directed=True))
    assert len({graph.digest() for graph in graphs}) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_weight": torch.tensor([1.0, -2.0])}, "edge 1 has the edge_weight -2.0; weights are finite numbers"),
        ({"edge_weight": torch.tensor([torch.nan, 2.0])}, "edge 0 has the edge_weight nan; weights are finite numbers"),
        ({"edge_weight": torch.tensor([1.0, torch.inf])}, "edge 1 has the edge_weight inf; weights are finite numbers"),
        ({"edge_attr": torch.tensor([[1.0], [-1.0]])}, "edge 1 has the edge_attr -1.0; weights are finite numbers"),
        ({"edge_weight": torch.ones(3)}, "edge_weight of shape [3]; give one number per edge"),
        ({"edge_weight": ["a", "b"]}, "edge_weight of the type list, which is not a tensor"),
        ({"edge_type": torch.tensor([0.5, 1.0])}, "edge_type of shape [2] and type torch.float32; number the kind"),
        ({"edge_type": torch.tensor([0, -1])}, "number the kind of every edge from 0"),
        ({"edge_type": torch.tensor([0, 100])}, "has the edge_type 100; every kind is a matrix, so there are at most"),
        ({"edge_weight": torch.tensor([1.0, 2.0])}, "different weights for the edge between 0 and 1; keep both"),
    ],
)
def test_edges_of_pyg_data_that_are_refused(change, said):
    data = Data(x=torch.ones(2, 1), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0, 1], [1, 0]]), **change)
    with pytest.raises(FedpubError) as error:
        from_pyg(data)
    assert said in str(error.value)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_comes_back_from_pyg_with_its_weights(weighted):
    """With names, clients and the owner's split; in single precision, as PyG has features."""
    graph = replace(
        small_graph(),
        x=small_graph().x.float(),
        weight=torch.arange(6, dtype=torch.float64) if weighted else None,
        client=torch.arange(10) // 5,
        client_names=("north", "south"),
        node_ids=tuple(f"n{at}" for at in range(10)),
        split=(torch.arange(10) % 4 - 1).to(torch.int8),
    ).validate()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = fedpub.graph_from_pyg(graph.to_pyg())
    assert again.digest() == graph.digest()
    for name in ("classes", "name", "client_names", "node_ids", "directed", "kinds"):
        assert getattr(again, name) == getattr(graph, name), name


def test_directions_kinds_and_weights_go_to_pyg_and_their_edges_come_back():
    """Every edge once if it has a direction, else twice, with its own weight and kind."""
    rows = {(0, 1, 2.0, 1), (1, 0, 3.0, 1), (1, 2, 1.0, 0), (2, 0, 0.5, 0)}
    for directed in (True, False):
        given = [row for row in sorted(rows) if directed or row[0] != 1 or row[1] != 0]
        ends = torch.tensor([row[:2] for row in given]).T
        edges, _ = arranged(
            Edges(ends, torch.tensor([row[2] for row in given]), torch.tensor([row[3] for row in given]), directed), 3
        )
        graph = Graph(torch.ones(3, 1), torch.tensor([0, 1, 0]), edges.ends, ("a", "b"), kinds=("0", "1"))
        graph = replace(graph, weight=edges.weight, kind=edges.kind, directed=directed).validate()
        data = graph.to_pyg()
        listed = zip(*data.edge_index.tolist(), data.edge_weight.tolist(), data.edge_type.tolist(), strict=True)
        expected = set(given) if directed else {*given} | {(v, u, w, kind) for u, v, w, kind in given}
        assert sorted(listed) == sorted(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fedpub.graph_from_pyg(data, directed=directed).digest() == graph.digest()


def test_a_gcn_has_every_joined_pair_once_with_its_weights_added():
    """0 → 1 and 1 → 0 are one edge of 2 + 3, and so are two edges of different kinds between 3 and 4."""
    ends = torch.tensor([[0, 1, 3, 4, 3], [1, 0, 4, 3, 5]])
    given = Edges(ends, torch.tensor([2.0, 3.0, 1.0, 0.5, 4.0]).double(), torch.tensor([0, 0, 0, 1, 1]), True)
    edges, repeated = arranged(given, 10)
    assert repeated == 0
    whole = replace(small_graph(), edges=edges.ends, weight=edges.weight, kind=edges.kind, kinds=("a", "b"))
    whole = replace(whole, directed=True).validate()
    alike = merged(whole)
    assert alike.edges.tolist() == [[0, 3, 3], [1, 4, 5]]
    assert alike.weight.tolist() == [5, 1.5, 4]
    assert (alike.directed, alike.kind, alike.kinds, alike.num_relations) == (False, None, (), 1)
    assert merged(alike) is alike
    unweighted = merged(replace(whole, weight=None).validate())
    assert (unweighted.edges.tolist(), unweighted.weight) == (alike.edges.tolist(), None)
    whole.save("whole.graph")
    plan = Experiment("whole.graph", "random", 1, "local", model="gcn", dtype="float64").resolve()
    with pytest.warns(UserWarning, match="the model gcn treats all edges of graph 'small' alike"):
        ready = prepare(plan)
    (own,) = ready.federation.subgraphs
    # The digest is that of the graph as it is given, so that the run knows it again.
    assert (plan.relational, own.num_relations, ready.graph.digest()) == (False, 1, whole.digest())
    expected = torch.tensor([[1 / 6, 5 / 6], [5 / 6, 1 / 6]], dtype=torch.float64)
    torch.testing.assert_close(torch.from_numpy(own.adjacency.toarray()[:2, :2]), expected)
    for model in ("sage", "twin", "hops"):
        plan = Experiment("whole.graph", "random", 1, "local", model=model, dtype="float64").resolve()
        assert [one.num_relations for one in prepare(plan).federation.subgraphs] == [4]
    links = Experiment("whole.graph", "random", 1, "local", model="hops", task="link-prediction").resolve()
    assert not links.relational


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"directed": True}, "directions are"),
        ({"kind": torch.tensor([0, 0, 0, 1, 1, 1]), "kinds": ("a", "b")}, "kinds are"),
        ({"directed": True, "kind": torch.tensor([0, 0, 0, 1, 1, 1]), "kinds": ("a", "b")}, "directions and kinds are"),
        ({"weight": torch.arange(6, dtype=torch.float64)}, None),
    ],
)
def test_what_a_model_does_not_use_of_edges_is_said(changes, lost, capsys):
    """By a run and by a prediction, once; a model that uses everything says nothing."""
    graph = replace(small_graph(), **changes).validate()
    graph.save("my.graph")
    replace(graph, y=torch.full((10,), -1), classes=()).save("unlabelled.graph")
    short = ["--scenario", "random", "--clients", "1", "--method", "local", "--rounds", "1", "--hidden", "4", "--quiet"]
    links = ["--task", "link-prediction", "--ratios", "0.6", "0.2", "0.2"]
    for out, flags, user in (
        ("gcn", ["--model", "gcn"], "the model gcn"),
        ("hops", ["--model", "hops"], None),
        ("links", ["--model", "hops", *links], "link prediction"),
    ):
        capsys.readouterr()
        assert main(["run", "--dataset", "my.graph", *short, *flags, "--out", out]) == 0
        said = [" ".join(capsys.readouterr().err.split())]
        if out != "links":
            table = ["--client", "0", "--graph", "unlabelled.graph", "--out", "found.csv", "--quiet"]
            assert main(["predict", "--model", out, *table]) == 0
            said.append(" ".join(capsys.readouterr().err.split()))
        for text, who in zip(said, (user, "the model of '0'"), strict=False):
            unused = "weights are" if out == "links" and lost is None else lost
            told = f"{who} treats all edges of graph 'small' alike: their {unused} not used"
            assert text.count(told) == text.count("alike") == (1 if user and unused else 0)


# Tables of weights: what the other tests of rules lack


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1.0, -0.5], "row 2: the weight -0.5 in column 'w' is not possible; weights are finite numbers, 0 or more"),
        ([math.inf, 1.0], "row 1: the weight inf in column 'w' is not possible"),
        ([1.0, math.nan], "row 2: the weight in column 'w' is empty; fill it in or remove the edge"),
        ([None, 1.0], "row 1: the weight in column 'w' is empty; fill it in or remove the edge"),
        (["1", "two"], "row 2: the weight 'two' in column 'w' is not a number; correct it"),
        ([True, False], "column 'w' holds bool, not weights; name a column of numbers"),
    ],
    ids=str,
)
def test_a_weight_in_a_parquet_file_that_is_none_is_refused(weights, said):
    imported()
    pq.write_table(pa.table({"source": ["a", "b"], "target": ["b", "c"], "w": weights}), "more.parquet")
    with pytest.raises(FedpubError) as error:
        from_tables(
            [Path("nodes.csv")],
            [Path("edges.csv"), Path("more.parquet")],
            id_column="id",
            label_column="label",
            edge_weight="w",
        )
    assert str(error.value).startswith("more.parquet, ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    "further",
    [{"directed": True}, {"kind": torch.tensor([0, 0, 0, 1, 1, 1]), "kinds": ("card", "pay")}],
    ids=["directed", "kinds"],
)
def test_directions_and_kinds_come_back_from_pyg(further):
    graph = replace(small_graph(), x=small_graph().x.float(), **further).validate()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = fedpub.graph_from_pyg(graph.to_pyg())
    assert (again.digest(), again.directed, again.kinds) == (graph.digest(), graph.directed, graph.kinds)


def test_targets_come_back_from_pyg():
    graph = replace(
        small_graph(), x=small_graph().x.float(), y=torch.full((10,), -1), target=torch.eye(10, 3).double()
    ).validate()
    assert fedpub.graph_from_pyg(graph.to_pyg()).digest() == graph.digest()


@pytest.mark.parametrize(
    "changes", [{"model": "gcn"}, {"model": "hops", "task": "link-prediction", "ratios": (0.6, 0.2, 0.2)}], ids=str
)
def test_a_run_that_uses_no_directions_knows_its_graph_again(changes, tmp_path):
    replace(small_graph(), directed=True).validate().save(tmp_path / "my.graph")
    asked = Experiment(str(tmp_path / "my.graph"), "random", 1, "local", rounds=1, hidden=4, **changes)
    run(asked, tmp_path / "run")
    assert model_of_run(tmp_path / "run", 0)[1].classes == ("a", "b", "c")
