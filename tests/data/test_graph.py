from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from fedpub.core.sparse import from_scipy, to_scipy
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.data.graph import Graph, induced_edges, largest_component, row_normalised, undirected
from fedpub.errors import FedpubError


def path_graph(**changes) -> Graph:
    """0 - 1 - 2   3: three nodes in a row and one alone."""
    graph = Graph(
        x=torch.tensor([[1.0, 3.0], [0.0, 0.0], [2.0, 2.0], [0.0, 5.0]]),
        y=torch.tensor([0, 1, 0, -1]),
        edges=torch.tensor([[0, 1], [1, 2]]),
        classes=("a", "b"),
        name="path",
        client=torch.tensor([0, 0, 1, 1]),
        client_names=("north", "south"),
        node_ids=("n0", "n1", "n2", "ß\n"),
    )
    return replace(graph, **changes)


def sparse(x: torch.Tensor) -> torch.Tensor:
    return from_scipy(to_scipy(x))


def test_undirected_keeps_each_pair_once_and_drops_loops():
    edge_index = torch.tensor([[2, 0, 1, 1, 3], [0, 2, 0, 1, 2]])
    assert undirected(edge_index, 4).tolist() == [[0, 0, 2], [1, 2, 3]]


def test_induced_edges_are_renumbered_to_the_order_given():
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    assert induced_edges(edges, torch.tensor([3, 2, 0]), 4).tolist() == [[0], [1]]  # only 2 - 3 is inside


@given(st.data())
def test_induced_edges_are_exactly_those_with_both_ends_inside(data):
    n = data.draw(st.integers(2, 12))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    nodes = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    edges = undirected(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T, n)
    inside = induced_edges(edges, torch.tensor(nodes, dtype=torch.int64), n)
    found = {frozenset((nodes[u], nodes[v])) for u, v in inside.T.tolist()}
    assert found == {frozenset(pair) for pair in pairs if pair[0] != pair[1] and set(pair) <= set(nodes)}


def test_subgraph_takes_everything_along():
    part = path_graph().subgraph(torch.tensor([2, 1]))
    assert part.x.tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert part.y.tolist() == [0, 1]
    assert part.edges.tolist() == [[0], [1]]
    assert part.client.tolist() == [1, 0]
    assert part.node_ids == ("n2", "n1")


def test_largest_component_and_row_normalisation_by_hand():
    graph = row_normalised(largest_component(path_graph()))
    assert graph.num_nodes == 3
    assert graph.x.tolist() == [[0.25, 0.75], [0.0, 0.0], [0.5, 0.5]]
    alike = row_normalised(path_graph(x=sparse(path_graph().x)))
    assert alike.x.to_dense().tolist() == row_normalised(path_graph()).x.tolist()


FINITE = st.floats(-4, 4, width=32, allow_subnormal=False)


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=FINITE), st.booleans())
def test_bags_of_words_are_normalised_as_pyg_does_and_signed_features_stay(found, as_sparse):
    found[0, 0] = 0  # as in every bag of words; PyG subtracts the smallest value
    for x in (torch.from_numpy(found), torch.from_numpy(np.abs(found))):
        n = len(x)
        graph = Graph(sparse(x) if as_sparse else x.clone(), torch.zeros(n, dtype=torch.int64), torch.empty(2, 0), ())
        normalised = row_normalised(graph).x
        assert normalised.layout == graph.x.layout
        expected = x if bool((x < 0).any()) else NormalizeFeatures()(Data(x=x.clone())).x
        torch.testing.assert_close(normalised.to_dense(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_saved_and_loaded_is_the_same_and_the_bytes_repeat(tmp_path, layout):
    graph = path_graph(meta={"encoding": "{}", "about": "ü"})
    if layout == "sparse":
        graph = replace(graph, x=sparse(graph.x))
    graph.save(tmp_path / "a.graph")
    graph.save(tmp_path / "b.graph")
    again = Graph.load(tmp_path / "a.graph")
    assert (tmp_path / "a.graph").read_bytes() == (tmp_path / "b.graph").read_bytes()
    assert again.digest() == graph.digest()
    assert again.x.layout == graph.x.layout
    for name in ("classes", "name", "client_names", "node_ids", "meta"):
        assert getattr(again, name) == getattr(graph, name)
    assert [file.name for file in tmp_path.iterdir()] in (["a.graph", "b.graph"], ["b.graph", "a.graph"])


def test_the_digest_sees_every_part_but_not_the_layout():
    graph = path_graph()
    assert replace(graph, x=sparse(graph.x)).digest() == graph.digest()
    others = [
        replace(graph, x=graph.x + 1),
        replace(graph, y=torch.tensor([0, 1, 1, -1])),
        replace(graph, edges=torch.tensor([[0, 1], [1, 3]])),
        replace(graph, client=None),
    ]
    assert len({other.digest() for other in [graph, *others]}) == 5
    assert replace(graph, x=graph.x + 1).digest(features=False) == graph.digest(features=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": torch.zeros(0, 2), "y": torch.zeros(0, dtype=torch.int64)}, ["no nodes"]),
        ({"x": torch.zeros(3, 2)}, ["[4, F]", "[3, 2]"]),
        ({"x": torch.tensor([[0.0], [1.0], [float("nan")], [0.0]])}, ["feature 0 of node 2", "not finite"]),
        ({"x": sparse(torch.tensor([[0.0, 0], [0, 0], [0, float("inf")], [1, 0]]))}, ["feature 1 of node 2"]),
        ({"y": torch.tensor([0, 1, 2, 0])}, ["label 2 of node 2", "0..1"]),
        ({"y": torch.full((4,), -1)}, ["no labelled node"]),
        ({"classes": ("a",), "y": torch.zeros(4, dtype=torch.int64)}, ["1 class", "at least two"]),
        ({"edges": torch.tensor([[0, 1], [1, 4]])}, ["edge 1", "1 and 4", "0..3"]),
        ({"edges": torch.tensor([[1], [0]])}, ["u < v", "undirected"]),
        ({"edges": torch.tensor([[0, 0], [1, 1]])}, ["without repetition"]),
        ({"client": torch.tensor([0, 0, 2, 1])}, ["outside 0..1"]),
        ({"node_ids": ("only",)}, ["1 node ids for 4"]),
    ],
)
def test_validate_names_what_is_wrong_and_where(changes, words):
    with pytest.raises(FedpubError) as caught:
        path_graph(**changes).validate()
    for word in ["'path'", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\xff" * 64])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "my.graph").write_bytes(content)
    with pytest.raises(FedpubError, match=r"my\.graph.*damaged"):
        Graph.load(tmp_path / "my.graph")


def test_a_path_may_be_a_string(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path_graph().save(str(tmp_path / "x.graph"))
    path_graph().save("~/y.graph")
    for name in (str(tmp_path / "x.graph"), "~/x.graph", tmp_path / "y.graph"):
        assert Graph.load(name).digest() == path_graph().digest()


@pytest.mark.parametrize("missing", ["y", "edges", "classes", "meta", "x.shape"])
def test_a_file_without_one_of_its_parts_is_named(tmp_path, missing):
    path_graph(x=sparse(path_graph().x)).save(tmp_path / "my.graph")
    tensors, header = read_tensors(tmp_path / "my.graph")
    for part in (tensors, header):
        part.pop(missing, None)
    write_tensors(tmp_path / "my.graph", tensors, header)
    with pytest.raises(FedpubError, match=rf"my\.graph is damaged.*{missing}.*import the graph again"):
        Graph.load(tmp_path / "my.graph")


def test_a_truncated_file_is_named(tmp_path):
    path_graph().save(tmp_path / "my.graph")
    whole = (tmp_path / "my.graph").read_bytes()
    (tmp_path / "my.graph").write_bytes(whole[:-4])
    with pytest.raises(FedpubError, match=r"my\.graph.*damaged"):
        Graph.load(tmp_path / "my.graph")
