from __future__ import annotations

import json
import math

import pytest
import torch

from fedpub.cli import main
from fedpub.data.clients.partition import Partition, partition
from fedpub.data.clients.split import Split, split
from fedpub.data.clients.statistics import graph_statistics, partition_statistics
from fedpub.data.datasets import load
from fedpub.data.graph import Graph
from fedpub.report.published import statistics


def test_clustering_and_isolated_nodes_by_hand():
    # A triangle 0 1 2, node 3 hanging on 0, node 4 alone. Node 0: one of three pairs is joined; 1 and 2: all.
    edges = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 2]])
    found = graph_statistics(edges, torch.tensor([0, 0, 1, -1, 2]))
    assert (found.nodes, found.edges, found.classes, found.isolated) == (5, 8, 3, 1)
    assert found.clustering == pytest.approx((1 / 3 + 1 + 1) / 5)


def test_heterogeneity_and_missing_edges_by_hand():
    # A cycle 0 1 2 3 4 5; clients {0, 1, 2}, {2, 3} (2 is held twice), nobody holds 5.
    edges = torch.tensor([[0, 0, 1, 2, 3, 4], [1, 5, 2, 3, 4, 5]])
    graph = Graph(torch.zeros(6, 0), torch.tensor([0, 0, 0, 1, 1, 1]), edges, ("a", "b"), "cycle")
    parts = Partition((torch.tensor([0, 1, 2]), torch.tensor([2, 3]), torch.tensor([4])), "by hand", 0, "cycle", "")
    train = torch.tensor([True, False, True, False, True, False])
    found = partition_statistics(graph, parts, Split(train, ~train, ~train))
    # Held: 0-1, 1-2, 2-3. Missing: 3-4 (3 and 4 are held apart). 0-5 and 4-5 have an end that nobody holds.
    assert found.missing_edges == 2
    assert found.edges == pytest.approx((4 + 2 + 0) / 3)
    assert found.training_nodes == (2, 1, 1)

    def distance(p: float, q: float) -> float:
        """Square root of the divergence, natural logarithm, of (p, 1 - p) and (q, 1 - q)."""
        total = 0.0
        for a, b in ((p, q), (1 - p, 1 - q)):
            m = (a + b) / 2
            total += (a * math.log(a / m) if a else 0) + (b * math.log(b / m) if b else 0)
        return math.sqrt(total / 2)

    pairs = sorted([distance(1, 0.5), distance(1, 0), distance(0.5, 0)])
    assert found.heterogeneity == pytest.approx(pairs[1])
    assert found.heterogeneity_mean == pytest.approx(sum(pairs) / 3)
    assert distance(1, 0) == pytest.approx(math.sqrt(math.log(2)))


def test_json_has_the_promised_keys(capsys):
    command = ["data", "stats", "--dataset", "communities", "--scenario", "disjoint", "--clients", "4", "8", "--json"]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)
    keys = {"dataset", "scenario", "clients", "nodes", "edges", "classes", "clustering", "heterogeneity"}
    assert [row["clients"] for row in rows] == [4, 8]
    for row in rows:
        assert keys | {"missing_edges"} <= set(row)
        inside = row["edges"] * row["clients"]
        assert inside + row["missing_edges"] == row["graph"]["edges"]


# The paper's table of statistics: nodes, edges, classes and clustering of the whole graph.
WHOLE = {
    "cora": (2485, 10138, 7, 0.238),
    "citeseer": (2120, 7358, 6, 0.170),
    "pubmed": (19717, 88648, 3, 0.060),
    "computers": (13381, 491556, 10, 0.351),
    "photo": (7487, 238086, 8, 0.410),
    "ogbn-arxiv": (169343, 2315598, 40, 0.226),
}


@pytest.mark.parametrize("name", list(WHOLE))
def test_the_whole_graphs_are_the_papers(real_data, name):
    graph = load(name, features=False)
    found = graph_statistics(graph.edges, graph.y)
    nodes, edges, classes, clustering = WHOLE[name]
    assert (found.nodes, found.edges, found.classes) == (nodes, edges, classes)
    assert found.clustering == pytest.approx(clustering, abs=0.001)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "computers", "photo"])
@pytest.mark.parametrize(
    ("scenario", "edge_tolerance", "clustering_tolerance"), [("disjoint", 0.03, 0.01), ("overlapping", 0.10, 0.015)]
)
def test_the_papers_table_of_statistics(real_data, name, scenario, edge_tolerance, clustering_tolerance):
    graph = load(name)
    table = {place[2]: values for place, values in statistics().items() if place[:2] == (name, scenario)}
    assert len(table) == 3
    for clients, (nodes, edges, clustering, heterogeneity) in table.items():
        found = partition_statistics(graph, partition(graph, scenario, clients), split(graph, 0))
        assert int(found.nodes + 0.5) == nodes
        assert found.edges == pytest.approx(edges, rel=edge_tolerance)
        assert found.clustering == pytest.approx(clustering, abs=clustering_tolerance)
        if (scenario, clients) != ("overlapping", 10):  # there the paper's figure is not its stated median
            assert found.heterogeneity == pytest.approx(heterogeneity, abs=0.08)
