from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpub.core.files import file_name, slug
from fedpub.data.clients.partition import SCENARIOS, Partition, _merge_communities, cached_partition, partition
from fedpub.data.clients.split import split, without_training
from fedpub.data.datasets import load
from fedpub.data.download import cache_folder
from fedpub.data.graph import Graph, undirected
from fedpub.errors import FedpubError


def cliques(count: int, size: int) -> Graph:
    """`count` complete graphs of `size` nodes, each joined to the next by one edge: where to cut is plain to see."""
    n = count * size
    pairs = [(c * size + i, c * size + j) for c in range(count) for i in range(size) for j in range(i)]
    pairs += [(c * size, c * size + size) for c in range(count - 1)]
    return Graph(
        x=torch.eye(n),
        y=torch.arange(n) // size % 2,
        edges=undirected(torch.tensor(pairs).T, n),
        classes=("even", "odd"),
        name="cliques",
        client=torch.arange(n) // size,
        client_names=tuple(f"c{i}" for i in range(count)),
    )


@st.composite
def graphs(draw) -> Graph:
    n = draw(st.integers(12, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=120))
    y = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    edges = undirected(torch.tensor([*pairs, *zip(range(n - 1), range(1, n), strict=True)]).T, n)
    return Graph(torch.zeros(n, 0), torch.tensor(y), edges, ("a", "b", "c"), "random")


@pytest.mark.parametrize("scenario", ["disjoint", "louvain", "leiden", "natural"])
def test_cliques_are_cut_where_one_would_cut_them(scenario):
    made = partition(cliques(4, 6), scenario, None if scenario == "natural" else 4)
    found = {tuple(own.tolist()) for own in made.nodes}
    assert found == {tuple(range(c * 6, c * 6 + 6)) for c in range(4)}


def test_overlapping_draws_five_halves_of_each_community():
    made = partition(cliques(2, 12), "overlapping", 10)
    assert [len(own) for own in made.nodes] == [6] * 10
    communities = [{int(node) // 12 for node in own} for own in made.nodes]
    assert all(len(c) == 1 for c in communities)
    assert communities[:5] == communities[:1] * 5
    assert communities[0] != communities[5]
    assert len({tuple(own.tolist()) for own in made.nodes}) > 5  # drawn anew each time


def test_imbalanced_gives_ten_clients_the_papers_sizes():
    made = partition(cliques(20, 6), "imbalanced", 10)
    assert [len(own) // 6 for own in made.nodes] == [5, 3, 2, 2, 2, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 10, 13, 20])
def test_imbalanced_uses_every_part_for_any_number_of_clients(clients):
    made = partition(cliques(40, 3), "imbalanced", clients)
    assert torch.cat(made.nodes).sort().values.tolist() == list(range(120))
    assert made.num_clients == clients


def test_dirichlet_skews_labels_more_for_a_small_alpha():
    graph = cliques(10, 20)

    def skew(alpha: float) -> float:
        made = partition(graph, "dirichlet", 5, seed=1, alpha=alpha)
        return float(np.std([graph.y[own].float().mean() for own in made.nodes]))

    assert skew(100.0) < 0.1 < skew(0.1)


def test_louvain_cuts_a_community_that_is_larger_than_a_fair_share():
    sizes = [len(own) for own in partition(cliques(2, 12), "louvain", 4).nodes]
    assert sizes == [6] * 4


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), clients=st.sampled_from([1, 2, 5, 6]), seed=st.integers(0, 5))
@pytest.mark.parametrize("scenario", ["disjoint", "imbalanced", "louvain", "leiden", "random", "dirichlet"])
def test_disjoint_scenarios_cover_every_node_once(scenario, graph, clients, seed):
    made = partition(graph, scenario, clients, seed)
    assert torch.cat(made.nodes).sort().values.tolist() == list(range(graph.num_nodes))
    assert all(own.tolist() == sorted(own.tolist()) for own in made.nodes)


@settings(deadline=None, max_examples=25)
@given(graph=graphs(), seed=st.integers(0, 5))
def test_overlapping_clients_are_subsets_of_disjoint_communities(graph, seed):
    made = partition(graph, "overlapping", 10, seed)
    unions = [set(torch.cat(made.nodes[first : first + 5]).tolist()) for first in (0, 5)]
    assert not unions[0] & unions[1]
    assert all(len(set(own.tolist())) == len(own) for own in made.nodes)


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_partition(tmp_path, scenario):
    graph = load("communities")
    clients = None if scenario == "natural" else 10
    files = []
    for attempt, seed in enumerate((3, 3, 4)):
        made = partition(graph, scenario, clients, seed)
        path = tmp_path / str(attempt) / made.file_name
        made.save(path)
        files.append(path)
    assert files[0].name == files[1].name != files[2].name
    assert files[0].read_bytes() == files[1].read_bytes()
    again = Partition.load(files[0])
    assert again.file_name == files[0].name
    if scenario != "natural":
        assert [own.tolist() for own in again.nodes] != [own.tolist() for own in Partition.load(files[2]).nodes]


def test_the_cache_keeps_partitions_of_different_graphs_apart():
    first, other = cliques(4, 6), replace(cliques(4, 6), y=torch.zeros(24, dtype=torch.int64))
    names = {cached_partition(graph, "disjoint", 4, 0).file_name for graph in (first, other)}
    assert len(names) == 2
    again = cached_partition(first, "disjoint", 4, 0)
    assert [own.tolist() for own in again.nodes] == [own.tolist() for own in partition(first, "disjoint", 4).nodes]


@pytest.mark.parametrize("name", ["../../escaped", "/etc/escaped", "long" * 60, "..", "", "a/b", "ü\0\n"])
def test_whatever_a_graph_is_called_its_partition_is_kept_in_the_cache(tmp_path, monkeypatch, name):
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "deep" / "down" / "cache"))
    made = cached_partition(replace(cliques(4, 6), name=name), "disjoint", 4, 0)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file.parent == cache_folder() / "partitions"
    assert Partition.load(file).digest == made.digest


def test_graphs_of_any_names_have_partitions_of_their_own():
    names = ["a/b", "a-b", "a\\b", "a b", "a", "A" * 300, "A" * 301, slug("a/b"), file_name("a/b"), "..", ".", ""]
    assert len({partition(replace(cliques(4, 6), name=name), "disjoint", 4).file_name for name in names}) == 11
    assert partition(cliques(4, 6), "disjoint", 4).file_name.startswith("cliques-")


@given(st.text(), st.text())
def test_a_name_becomes_one_part_of_a_path_and_stays_different_from_others(one, other):
    made = file_name(one)
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,80}(~[0-9a-f]{10})?", made)
    assert made not in ("", ".", "..")
    assert (made == file_name(other)) == (one == other)


@pytest.mark.parametrize(
    "damage",
    [lambda raw: b"", lambda raw: raw[:-8], lambda raw: raw.replace(b"sizes", b"sorts"), lambda raw: b"{}" * 9],
)
def test_a_damaged_partition_in_the_cache_is_made_anew(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path))
    made = cached_partition(cliques(4, 6), "disjoint", 4, 0)
    file = tmp_path / "partitions" / made.file_name
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.raises(FedpubError, match="damaged"):
        Partition.load(str(file))
    assert cached_partition(cliques(4, 6), "disjoint", 4, 0).digest == made.digest
    assert file.read_bytes() == whole


def test_the_digest_of_a_partition_says_who_holds_what():
    a = partition(cliques(2, 3), "natural")
    moved = replace(a, nodes=(torch.tensor([0, 1]), torch.tensor([2, 3, 4, 5])))
    assert len({a.digest, moved.digest, replace(a, nodes=(a.nodes[1], a.nodes[0])).digest}) == 3
    assert replace(a, seed=7).digest == a.digest


@pytest.mark.parametrize(
    ("scenario", "clients", "words"),
    [
        ("disjiont", 2, "did you mean disjoint"),
        ("overlapping", 12, "use 10 or 15"),
        ("overlapping", 4, "use 5$"),
        ("disjoint", 25, "25 clients are more than the 24 nodes"),
        ("imbalanced", 13, "26 parts"),
        ("disjoint", 0, "1 or more"),
        ("disjoint", None, "give clients"),
        ("natural", 3, "4 natural clients, not 3"),
    ],
)
def test_an_impossible_partition_says_what_to_do(scenario, clients, words):
    with pytest.raises(FedpubError, match=words):
        partition(cliques(4, 6), scenario, clients)
    with pytest.raises(FedpubError, match=words):
        cached_partition(cliques(4, 6), scenario, clients, 0)


def test_no_natural_clients_says_how_to_get_them():
    with pytest.raises(FedpubError, match="client=COLUMN"):
        partition(replace(cliques(2, 3), client=None), "natural")


def test_dirichlet_needs_a_positive_alpha():
    with pytest.raises(FedpubError, match="positive alpha"):
        partition(cliques(2, 3), "dirichlet", 2, alpha=0.0)


def test_split_by_hand():
    graph = replace(cliques(5, 4), y=torch.tensor([0, 1] * 5 + [-1] * 10))
    chosen = split(graph, seed=0, ratios=(0.2, 0.4, 0.4))
    assert [int(part.sum()) for part in chosen] == [2, 4, 4]
    assert not (chosen.train & chosen.val).any()
    assert not (chosen.val & chosen.test).any()
    assert not torch.stack(chosen).any(0)[10:].any()  # nodes without a label are in no set
    assert split(graph, 0).train.tolist() == chosen.train.tolist()
    assert any(split(graph, seed).train.tolist() != chosen.train.tolist() for seed in (1, 2, 3))


@pytest.mark.parametrize("ratios", [(0.5, 0.5, 0.5), (0.0, 0.5, 0.5), (1.2, -0.2, 0.0)])
def test_split_refuses_ratios_that_are_none(ratios):
    with pytest.raises(FedpubError, match="sum to 1"):
        split(cliques(2, 3), 0, ratios)


def test_clients_without_training_nodes_are_named():
    graph = cliques(10, 4)
    chosen = split(graph, seed=0, ratios=(0.05, 0.5, 0.45))  # two training nodes for ten clients
    made = partition(graph, "natural")
    missing = without_training(made.nodes, chosen)
    trained = {int(node) // 4 for node in torch.nonzero(chosen.train)}
    assert missing == sorted(set(range(10)) - trained)
    assert missing


def test_the_cache_tells_close_alphas_apart():
    graph = cliques(5, 20)
    names = {cached_partition(graph, "dirichlet", 5, 0, alpha).file_name for alpha in (0.1234567, 0.12345678)}
    assert len(names) == 2


@pytest.mark.parametrize("scenario", ["louvain", "leiden"])
def test_more_clients_than_communities_still_all_have_nodes(scenario):
    made = partition(cliques(4, 6), scenario, 20)
    assert all(len(own) for own in made.nodes)
    assert torch.cat(made.nodes).sort().values.tolist() == list(range(24))


def test_an_odd_node_falls_to_every_other_client():
    """Seven nodes in one community: halves of 3 and 4."""
    assert [len(own) for own in partition(cliques(1, 7), "overlapping", 5).nodes] == [3, 4, 3, 4, 3]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("communities", "clients"),
    [
        ((4, 3, 2, 1), [5, 5]),  # 4 and 3 are apart; 2 has room beside 3 only, and then 1 beside 4 only
        ((4, 3, 3, 2), [3, 4, 5]),  # 2 has room nowhere: it goes where most is left, beside a 3
    ],
    ids=["what is left has one place", "no place is left"],
)
def test_communities_are_merged_where_there_is_room(communities, clients, seed):
    nodes = _merge_communities(np.repeat(np.arange(len(communities)), communities), len(clients), seed)
    assert sorted(map(len, nodes)) == clients
    assert torch.cat(nodes).sort().values.tolist() == list(range(sum(communities)))
