"""Which pairs train, validate and test, which may be drawn as negatives, and along which edges messages pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedpub.data.clients.links import (
    TEST,
    TRAIN,
    VAL,
    Links,
    LinkSplit,
    NonEdges,
    StackedLinks,
    links_of,
    numbered_pair,
    pair_number,
    split_links,
    stack_links,
)
from fedpub.data.clients.partition import partition
from fedpub.data.clients.split import Ratios
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.data.graph import Graph
from fedpub.data.synthetic import communities_graph
from fedpub.errors import FedpubError
from fedpub.tasks import LinkPrediction
from fedpub.tasks.link_prediction import LINK_RATIOS
from small import TINY

Pairs = set[tuple[int, int]]
Nodes = tuple[Tensor, ...]

SPEC = replace(TINY, subgraphs=(3, 2, 2))
HALVES: Ratios = (0.5, 0.25, 0.25)  # so that tiny clients are judged, too


@cache
def communities() -> Graph:
    return communities_graph("tiny", SPEC)


def natural() -> Nodes:
    return partition(communities(), "natural").nodes


def overlapping(seed: int = 0) -> Nodes:
    return partition(communities(), "overlapping", 10, seed).nodes


def edges_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2).T


def as_set(pairs: Tensor) -> Pairs:
    """Without their direction; each of them once."""
    found = {(min(pair), max(pair)) for pair in pairs.T.tolist()}
    assert len(found) == pairs.shape[1], "a pair occurs twice"
    return found


def inside(edges: Tensor, own: Tensor) -> Pairs:
    """The edges between the given nodes, one by one."""
    held = set(own.tolist())
    return {(u, v) for u, v in edges.T.tolist() if u in held and v in held}


def shared_out(
    edges: Tensor, num_nodes: int, nodes: Nodes, seed: int = 0, ratios: Ratios = LINK_RATIOS
) -> tuple[LinkSplit, list[Links]]:
    chosen = split_links(edges, num_nodes, nodes, seed, ratios)
    return chosen, [links_of(edges, num_nodes, own, chosen, {client: own})[1] for client, own in enumerate(nodes)]


def roles(links: Links, own: Tensor) -> tuple[Pairs, Pairs, Pairs]:
    """A client's edges of each role, as pairs of the whole graph."""
    return (
        as_set(own[links.train]),
        as_set(own[links.val.pairs[:, links.val.true]]),
        as_set(own[links.test.pairs[:, links.test.true]]),
    )


def judged_negatives(links: Links, own: Tensor) -> tuple[Pairs, Pairs]:
    return as_set(own[links.val.pairs[:, ~links.val.true]]), as_set(own[links.test.pairs[:, ~links.test.true]])


def stacked(parts: list[Links], nodes: Nodes) -> StackedLinks:
    return stack_links(parts, [len(own) for own in nodes], reported=False)


@st.composite
def divided(draw: st.DrawFn, overlap: bool = True) -> tuple[Tensor, int, Nodes]:
    """A small graph, from empty to complete, and up to three clients in any order of their nodes."""
    num_nodes = draw(st.integers(1, 9))
    every = list(combinations(range(num_nodes), 2))
    some = draw(st.sets(st.sampled_from(every))) if every else set()
    few = draw(st.sets(st.sampled_from(every), max_size=3)) if every else set()
    pairs = draw(st.sampled_from([some, few, set(every) - few, set(every)]))
    order = draw(st.permutations(range(num_nodes)))
    count = draw(st.integers(1, min(3, num_nodes)))
    if overlap and draw(st.booleans()):
        held = [draw(st.lists(st.sampled_from(order), min_size=1, unique=True)) for _ in range(count)]
    else:
        held = [order[client::count] for client in range(count)]
    return edges_of(*pairs), num_nodes, tuple(torch.tensor(own) for own in held)


# Pairs have numbers.


def test_pairs_are_counted_off_by_their_greater_end():
    expected = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 4), (1, 4), (2, 4), (3, 4)]
    assert [tuple(pair) for pair in numbered_pair(torch.arange(10)).T.tolist()] == expected
    assert pair_number(edges_of(*expected)).tolist() == [0, 1, 3, 6, 2, 4, 7, 5, 8, 9]  # in lexicographic order
    assert pair_number(torch.tensor([[4], [2]])).item() == pair_number(torch.tensor([[2], [4]])).item() == 8


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**30 - 2), st.integers(1, 2**30)), min_size=1))
def test_a_pair_has_the_number_that_has_the_pair(ends):
    pairs = torch.tensor([(u, u + further) for u, further in ends]).T
    assert torch.equal(numbered_pair(pair_number(pairs)), pairs)
    assert torch.equal(pair_number(pairs.flip(0)), pair_number(pairs))


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 2**30) | st.integers(1_400_000, 1_500_000), st.integers(-2, 2))
def test_a_number_has_the_pair_that_has_the_number_also_where_the_root_is_rounded(v, off):
    """Around v (v − 1) / 2, where the greater end changes: about 1e12, and up to 6e17, beyond a double's precision."""
    number = torch.tensor([max(v * (v - 1) // 2 + off, 0)])
    u, w = numbered_pair(number).flatten().tolist()
    assert 0 <= u < w
    assert w * (w - 1) // 2 + u == number.item()


# Roles: 85 / 5 / 10 of every client's edges.


def test_twenty_edges_are_seventeen_one_and_two():
    edges = edges_of(*((node, node + 1) for node in range(20)))
    chosen, (links,) = shared_out(edges, 21, (torch.arange(21),))
    assert torch.bincount(chosen.role_E.long()).tolist() == [17, 1, 2]
    assert [len(role) for role in roles(links, torch.arange(21))] == [17, 1, 2]
    assert (links.val.true.tolist(), links.test.true.tolist()) == ([True, False], [True, True, False, False])


@pytest.mark.parametrize("seed", [0, 1])
def test_every_disjoint_client_has_the_rounded_shares_of_its_edges(seed):
    whole, nodes = communities(), natural()
    _, parts = shared_out(whole.edges, whole.num_nodes, nodes, seed)
    counts = set()
    for own, links in zip(nodes, parts, strict=True):
        count = len(inside(whole.edges, own))
        val, test = round(0.05 * count), round(0.10 * count)
        assert [len(role) for role in roles(links, own)] == [count - val - test, val, test]
        counts.add((count, val, test))
    assert len(counts) > 3
    assert all(val and test for _, val, test in counts)


@settings(max_examples=150, deadline=None)
@given(divided(), st.integers(0, 5), st.sampled_from([LINK_RATIOS, HALVES]))
def test_every_edge_of_a_client_is_in_exactly_one_set_and_in_no_direction_in_another(made, seed, ratios):
    edges, num_nodes, nodes = made
    _, parts = shared_out(edges, num_nodes, nodes, seed, ratios)
    for own, links in zip(nodes, parts, strict=True):
        train, val, test = roles(links, own)
        assert train | val | test == inside(edges, own)
        assert len(train) + len(val) + len(test) == len(inside(edges, own))
        pairs = torch.cat([links.train, links.val.pairs, links.test.pairs, links.apart], dim=1)
        assert (pairs[0] < pairs[1]).all()


@settings(max_examples=100, deadline=None)
@given(divided(overlap=False), st.integers(0, 5))
def test_the_shares_of_disjoint_clients_are_exact_for_any_graph(made, seed):
    edges, num_nodes, nodes = made
    _, parts = shared_out(edges, num_nodes, nodes, seed, HALVES)
    for own, links in zip(nodes, parts, strict=True):
        count = len(inside(edges, own))
        each = min(round(count / 4), count)
        expected = [each, min(each, count - each)]
        assert [len(role) for role in roles(links, own)] == [count - sum(expected), *expected]


@settings(max_examples=100, deadline=None)
@given(divided(), st.integers(0, 5))
def test_an_edge_has_the_same_role_wherever_it_is_held(made, seed):
    edges, num_nodes, nodes = made
    chosen, parts = shared_out(edges, num_nodes, nodes, seed, HALVES)
    role_of = dict(zip(map(tuple, edges.T.tolist()), chosen.role_E.tolist(), strict=True))
    for own, links in zip(nodes, parts, strict=True):
        for role, pairs in zip((TRAIN, VAL, TEST), roles(links, own), strict=True):
            assert {role_of[pair] for pair in pairs} <= {role}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_an_overlapping_client_is_judged_by_nobody_trains_on(seed):
    whole, nodes = communities(), overlapping(seed)
    _, parts = shared_out(whole.edges, whole.num_nodes, nodes, seed)
    found = [roles(links, own) for own, links in zip(nodes, parts, strict=True)]
    train, val, test = (set.union(*role) for role in zip(*found, strict=True))
    assert not train & val
    assert not train & test
    assert not val & test
    total = sum(map(len, (train, val, test)))
    assert total < sum(len(pairs) for client in found for pairs in client), "no edge is held twice"
    # Each is near its share of every client's edges: within three standard deviations of an edge-by-edge draw.
    for own, client in zip(nodes, found, strict=True):
        count = len(inside(whole.edges, own))
        for pairs, share in zip(client, LINK_RATIOS, strict=True):
            assert abs(len(pairs) - share * count) <= 3 * (count * share * (1 - share)) ** 0.5
    assert len(train) / total == pytest.approx(0.85, abs=0.03)


def test_later_clients_make_up_for_the_roles_that_earlier_ones_gave():
    """Client 1 holds the 20 edges of client 0 and 20 others: the latter get what it still lacks."""
    edges = edges_of(*((node, node + 1) for node in range(40)))
    nodes = (torch.arange(21), torch.arange(41), torch.arange(21))
    _, parts = shared_out(edges, 41, nodes)
    found = [roles(links, own) for own, links in zip(nodes, parts, strict=True)]
    assert [[len(pairs) for pairs in client] for client in found] == [[17, 1, 2], [34, 2, 4], [17, 1, 2]]
    assert found[2] == found[0], "a client with the same nodes has the same edges in the same roles"


def test_edges_between_clients_train_and_only_the_oracle_sees_them():
    whole, nodes = communities(), natural()
    task = LinkPrediction(4)
    chosen = split_links(whole.edges, whole.num_nodes, nodes, 0, LINK_RATIOS)
    between = whole.client[whole.edges[0]] != whole.client[whole.edges[1]]
    assert between.sum() > 20
    assert set(chosen.role_E[between].tolist()) == {TRAIN}
    assert set(chosen.role_E.tolist()) == {TRAIN, VAL, TEST}
    across = as_set(whole.edges[:, between])
    for own in task.divide(whole, nodes, 0, LINK_RATIOS, "symmetric"):
        assert not across & as_set(own.nodes[own.edges])
    everything, _ = task.undivided(whole, nodes, 0, LINK_RATIOS, "symmetric")
    assert across <= as_set(everything.links.train)
    assert across <= as_set(everything.edges)


def test_the_order_of_a_client_s_nodes_does_not_matter_to_its_roles():
    whole, nodes = communities(), natural()
    turned = tuple(own.flip(0) for own in nodes)
    _, plain = shared_out(whole.edges, whole.num_nodes, nodes)
    _, other = shared_out(whole.edges, whole.num_nodes, turned)
    for own, links, back, same in zip(nodes, plain, turned, other, strict=True):
        assert roles(links, own) == roles(same, back)


def everything_of(links: Links) -> list[list]:
    judged = [part.tolist() for one in (links.val, links.test) for part in (one.pairs, one.true, one.owner)]
    return [links.train.tolist(), links.apart.tolist(), *judged]


@pytest.mark.parametrize("nodes", [natural, overlapping])
def test_the_same_seed_gives_the_same_pairs_and_another_seed_others(nodes):
    whole, held = communities(), nodes()
    first, again, other = (shared_out(whole.edges, whole.num_nodes, held, seed)[1] for seed in (0, 0, 1))
    assert list(map(everything_of, first)) == list(map(everything_of, again))
    for own, one, changed in zip(held, first, other, strict=True):
        assert roles(one, own)[0] != roles(changed, own)[0]
        assert judged_negatives(one, own)[1] != judged_negatives(changed, own)[1]


def test_what_a_disjoint_client_gets_does_not_depend_on_the_edges_of_others():
    whole, nodes = communities(), natural()
    mine = (whole.client[whole.edges] == 2).all(0)
    _, parts = shared_out(whole.edges, whole.num_nodes, nodes)
    _, alone = shared_out(whole.edges[:, mine], whole.num_nodes, nodes)
    assert everything_of(parts[2]) == everything_of(alone[2])


@pytest.mark.parametrize("ratios", [(0.85, 0.05, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1), (float("nan"), 0.5, 0.5)])
def test_shares_that_are_none_are_refused(ratios):
    with pytest.raises(FedpubError, match=r"must sum to 1 with a positive first one, as in 0\.85 0\.05 0\.1$"):
        split_links(edges_of((0, 1)), 2, (torch.arange(2),), 0, ratios)


# Messages pass along training edges and no others.


def joined(adjacency: object) -> set[tuple[int, int]]:
    """The places off the diagonal of a SciPy matrix where it is not zero."""
    entries = sp.coo_matrix(adjacency)
    return {
        (u, v) for u, v, a in zip(entries.row.tolist(), entries.col.tolist(), entries.data, strict=True) if u != v and a
    }


def both_ways(pairs: Pairs) -> set[tuple[int, int]]:
    return pairs | {(v, u) for u, v in pairs}


def held_out(links: Links) -> Pairs:
    """The edges that validate or test, as positions."""
    return as_set(torch.cat([one.pairs[:, one.true] for one in (links.val, links.test)], dim=1).unique(dim=1))


@pytest.mark.parametrize("kind", ["symmetric", "mean"])
@pytest.mark.parametrize("nodes", [natural, overlapping])
def test_the_adjacency_of_clients_and_oracle_is_that_of_the_training_edges(nodes, kind):
    whole, task, held = communities(), LinkPrediction(4), nodes()
    made = task.divide(whole, held, 3, LINK_RATIOS, kind)
    everything, _ = task.undivided(whole, held, 3, LINK_RATIOS, kind)
    for own in [*made, everything]:
        position = {node: at for at, node in enumerate(own.nodes.tolist())}
        edges = {(position[u], position[v]) for u, v in inside(whole.edges, own.nodes)}
        train, never = as_set(own.links.train), held_out(own.links)
        assert len(never) > 2
        assert train == edges - never
        assert joined(own.adjacency) == both_ways(train)
        assert bool((own.adjacency.diagonal() > 0).all()) == (kind == "symmetric")
        assert abs(own.propagated - own.adjacency @ own.x).max() == 0
    # What the clients hold out, the oracle holds out, and nobody passes messages along.
    never = set.union(*(as_set(own.nodes[edges_of(*held_out(own.links))]) for own in made))
    assert never == held_out(everything.links)
    for own in [*made, everything]:
        assert not never & as_set(own.nodes[own.edges])


def test_stacking_adds_and_loses_no_edge():
    whole, nodes = communities(), overlapping()
    made = LinkPrediction(4).divide(whole, nodes, 0, LINK_RATIOS, "symmetric")
    some = [made[client] for client in (4, 1, 8)]
    data = stack(some, SPEC.classes)
    expected, start = set(), 0
    for own in some:
        expected |= both_ways({(start + u, start + v) for u, v in as_set(own.links.train)})
        start += own.num_nodes
    assert joined(data.adjacency.forward.to_dense().numpy()) == expected
    assert joined(data.adjacency.backward.to_dense().numpy()) == expected
    assert both_ways(as_set(data.links.train)) == expected


# Stacked links.


def test_stacked_pairs_by_hand():
    """Clients of 3 and 4 nodes: the second one's nodes are 3 to 6."""
    path, star = edges_of((0, 1), (1, 2)), edges_of((0, 1), (0, 2), (0, 3))
    _, (one,) = shared_out(path, 3, (torch.arange(3),))
    _, (two,) = shared_out(star, 4, (torch.arange(4),), 1, (0.3, 0.3, 0.4))
    found = stack_links([one, two], [3, 4], reported=False)
    assert found.train_owner_E.tolist() == [0, 0, 1]
    assert found.train_row_E.tolist() == [0, 1, 0]
    assert found.train[:, :2].tolist() == path.tolist()
    assert found.train[:, 2:].tolist() == (two.train + 3).tolist()
    assert found.test.pairs.tolist() == (two.test.pairs + 3).tolist()
    assert found.test.true.tolist() == two.test.true.tolist() == [True, False]
    assert found.test.owner.tolist() == [1, 1]


@pytest.mark.parametrize("which", [(0, 1, 2, 3, 4, 5, 6), (5, 2), (3,)])
def test_stacked_pairs_are_each_client_s_own(which):
    whole, nodes = communities(), natural()
    made = LinkPrediction(4).divide(whole, nodes, 0, LINK_RATIOS, "symmetric")
    some = [made[client] for client in which]
    data = stack(some, SPEC.classes)
    number_N = torch.cat([own.nodes for own in some])
    assert data.num_train_K.tolist() == [own.links.train.shape[1] for own in some]
    for at, own in enumerate(some):
        mine = data.links.train_owner_E == at
        assert torch.equal(number_N[data.links.train[:, mine]], own.nodes[own.links.train])
        assert data.links.train_row_E[mine].tolist() == list(range(own.links.train.shape[1]))
        for both, single in ((data.links.val, own.links.val), (data.links.test, own.links.test)):
            mine = both.owner == at
            assert torch.equal(number_N[both.pairs[:, mine]], own.nodes[single.pairs])
            assert torch.equal(both.true[mine], single.true)
        assert single.owner.tolist() == [own.id] * len(single.owner)


def test_the_oracle_s_pairs_count_for_the_clients_that_own_them():
    whole, nodes = communities(), overlapping()
    task = LinkPrediction(4)
    everything, report = task.undivided(whole, nodes, 0, LINK_RATIOS, "symmetric")
    data = stack([everything], SPEC.classes, report=report)
    for own in task.divide(whole, nodes, 0, LINK_RATIOS, "symmetric"):
        for mine, theirs in ((own.links.val, data.links.val), (own.links.test, data.links.test)):
            inside_it = theirs.owner == own.id
            for true in (True, False):
                expected = as_set(own.nodes[mine.pairs[:, mine.true == true]])
                assert as_set(theirs.pairs[:, inside_it & (theirs.true == true)]) == expected
                assert expected


@settings(max_examples=100, deadline=None)
@given(divided(), st.data())
def test_the_pairs_between_some_of_the_nodes_are_kept_and_renumbered(made, data):
    edges, num_nodes, nodes = made
    _, parts = shared_out(edges, num_nodes, nodes, 0, HALVES)
    own, links = nodes[0], parts[0]
    rows = torch.tensor(sorted(data.draw(st.sets(st.integers(0, len(own) - 1), min_size=1))))
    left, chosen = links.kept(rows, len(own)), set(rows.tolist())

    def still(pairs: Tensor) -> Pairs:
        return {(u, v) for u, v in as_set(pairs) if u in chosen and v in chosen}

    assert as_set(rows[left.train]) == still(links.train)
    assert left.num_nodes == len(rows)
    assert as_set(rows[left.apart]) == still(links.apart)
    for after, before in ((left.val, links.val), (left.test, links.test)):
        for true in (True, False):
            assert as_set(rows[after.pairs[:, after.true == true]]) == still(before.pairs[:, before.true == true])
        assert len(after.owner) == len(after.true) == after.pairs.shape[1]


# Negatives.


def free_pairs(edges: Tensor, own: Tensor, chosen: LinkSplit) -> Pairs:
    """The pairs of a client's nodes that nobody is judged by and that are no edges, one by one."""
    anybody = set.union(*(as_set(part) for client in chosen.negatives for part in client.values()))
    every = {(min(pair), max(pair)) for pair in combinations(own.tolist(), 2)}
    return every - set(map(tuple, edges.T.tolist())) - anybody


@settings(max_examples=150, deadline=None)
@given(divided(), st.integers(0, 5), st.sampled_from([LINK_RATIOS, HALVES]))
def test_judged_negatives_are_no_edges_and_as_many_as_there_are_edges(made, seed, ratios):
    edges, num_nodes, nodes = made
    _, parts = shared_out(edges, num_nodes, nodes, seed, ratios)
    every_edge = set(map(tuple, edges.T.tolist()))
    for client, (own, links) in enumerate(zip(nodes, parts, strict=True)):
        (_, val, test), (no_val, no_test) = roles(links, own), judged_negatives(links, own)
        assert not (no_val | no_test) & every_edge
        assert not no_val & no_test
        assert all(u != v and {u, v} <= set(own.tolist()) for u, v in no_val | no_test)
        assert {*links.val.owner.tolist(), *links.test.owner.tolist()} <= {client}
        there = len(own) * (len(own) - 1) // 2 - len(inside(edges, own))
        if there >= len(val) + len(test):
            assert (len(no_val), len(no_test)) == (len(val), len(test))
        else:
            assert len(no_val) + len(no_test) == there
            assert len(no_val) <= len(val)
            assert len(no_test) <= len(test)


def test_judged_negatives_are_drawn_alike_from_all_pairs_without_an_edge():
    """A ring of 8: each of its 20 other pairs is one of the 4 negatives in a fifth of the seeds."""
    edges = edges_of(*((node, node + 1) for node in range(7)), (0, 7))
    seen = dict.fromkeys(set(combinations(range(8), 2)) - set(map(tuple, edges.T.tolist())), 0)
    for seed in range(500):
        chosen = split_links(edges, 8, (torch.arange(8),), seed, HALVES)
        for pair in as_set(torch.cat([chosen.negatives[0][VAL], chosen.negatives[0][TEST]], dim=1)):
            seen[pair] += 1
    assert len(seen) == 20
    assert sum(seen.values()) == 4 * 500
    # Five standard deviations: sqrt(500 * 0.2 * 0.8) = 8.9.
    assert max(abs(count - 100) for count in seen.values()) < 45


def drawn(negatives: NonEdges, ids: list[int], seed: int = 0, rows: int = 40, step: tuple[int, int] = (1, 0)) -> list:
    """For every client so many pairs, as positions among the N nodes; None where it has no free pair."""
    clients = torch.arange(len(ids))
    able = clients[negatives.count_K > 0]
    owner_E, row_E = able.repeat_interleave(rows), torch.arange(rows).repeat(len(able))
    found = negatives.draw(seed, torch.tensor(ids), owner_E, row_E, *step)
    return [found[:, owner_E == client] if client in able else None for client in clients.tolist()]


@settings(max_examples=150, deadline=None)
@given(divided(), st.integers(0, 5), st.sampled_from([LINK_RATIOS, HALVES]))
def test_training_negatives_are_never_edges_nor_pairs_that_anybody_is_judged_by(made, seed, ratios):
    edges, num_nodes, nodes = made
    chosen, parts = shared_out(edges, num_nodes, nodes, seed, ratios)
    found = stacked(parts, nodes)
    start = 0
    for client, pairs in enumerate(drawn(found.negatives, list(range(len(nodes))), seed)):
        own = nodes[client]
        free = free_pairs(edges, own, chosen)
        assert found.negatives.count_K[client] == len(free)
        assert (pairs is None) == (not free)
        if pairs is not None:
            low, high = (pairs - start).min(0).values, (pairs - start).max(0).values
            assert (low >= 0).all()
            assert (high < len(own)).all()
            assert {(min(u, v), max(u, v)) for u, v in own[pairs - start].T.tolist()} <= free
        start += len(own)


@pytest.mark.parametrize("nodes", [natural, overlapping])
def test_training_negatives_of_clients_and_oracle_in_a_graph_of_communities(nodes):
    whole, task, held = communities(), LinkPrediction(4), nodes()
    chosen = split_links(whole.edges, whole.num_nodes, held, 0, LINK_RATIOS)
    made = task.divide(whole, held, 0, LINK_RATIOS, "symmetric")
    everything, _ = task.undivided(whole, held, 0, LINK_RATIOS, "symmetric")
    for group in (made, [everything]):
        data = stack(group, SPEC.classes)
        number_N = torch.cat([own.nodes for own in group])
        for own, pairs in zip(group, drawn(data.links.negatives, [own.id for own in group], rows=500), strict=True):
            found = {(min(u, v), max(u, v)) for u, v in number_N[pairs].T.tolist()}
            assert found <= free_pairs(whole.edges, own.nodes, chosen)
            assert len(found) > 30


def small_clients() -> tuple[list[Links], Nodes]:
    """Three clients with few free pairs, whose numbers have gaps at the beginning, within and at the end."""
    edges = edges_of(
        *((0, 1), (0, 2), (1, 2), (3, 4)),  # 5 nodes: three pairs at the beginning and the last are edges
        *((5, 7), (6, 8)),  # 4 nodes: taken are two in the middle
        *((9, 10), (10, 11), (11, 12), (12, 13), (9, 13), (9, 14), (13, 14)),  # 6 nodes, 7 edges
    )
    nodes = (torch.arange(5), torch.arange(5, 9), torch.arange(9, 15))
    _, parts = shared_out(edges, 15, nodes, ratios=(1.0, 0.0, 0.0))
    return parts, nodes


FREE = (
    {(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)},
    {(5, 6), (5, 8), (6, 7), (7, 8)},
    {(9, 11), (9, 12), (10, 12), (10, 13), (10, 14), (11, 13), (11, 14), (12, 14)},
)


def test_every_free_pair_is_drawn_about_equally_often_over_the_steps():
    parts, nodes = small_clients()
    negatives = stacked(parts, nodes).negatives
    assert negatives.count_K.tolist() == [6, 4, 8]
    seen: list[dict[tuple[int, int], int]] = [{}, {}, {}]
    steps = [(number, epoch) for number in range(1, 101) for epoch in range(2)]
    for step in steps:
        for client, pairs in enumerate(drawn(negatives, [0, 1, 2], rows=24, step=step)):
            for u, v in pairs.T.tolist():
                seen[client][u, v] = seen[client].get((u, v), 0) + 1
    for client, free in enumerate(FREE):
        assert seen[client].keys() == free
        expected = 24 * len(steps) / len(free)
        statistic = sum((count - expected) ** 2 / expected for count in seen[client].values())
        freedom = len(free) - 1  # chi-square: five standard deviations above its mean
        assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_the_examples_of_a_step_are_drawn_apart_from_each_other():
    """Two examples of a client agree as often as chance has it: in a sixth, a fourth and an eighth of the steps."""
    parts, nodes = small_clients()
    negatives = stacked(parts, nodes).negatives
    agree, steps = torch.zeros(3), 400
    for number in range(steps):
        for client, pairs in enumerate(drawn(negatives, [0, 1, 2], rows=2, step=(number, 0))):
            agree[client] += torch.equal(pairs[:, 0], pairs[:, 1])
    for count, free in zip(agree.tolist(), FREE, strict=True):
        share = 1 / len(free)
        assert abs(count - steps * share) < 5 * (steps * share * (1 - share)) ** 0.5


def test_each_step_has_its_own_negatives_and_the_same_step_the_same():
    parts, nodes = small_clients()
    negatives = stacked(parts, nodes).negatives

    def all_of(**named) -> list[list]:
        return [pairs.tolist() for pairs in drawn(negatives, [0, 1, 2], **named)]

    first = all_of()
    assert first == all_of()
    for other in (all_of(step=(2, 0)), all_of(step=(1, 1)), all_of(step=(11, 0)), all_of(seed=1)):
        assert all(mine != theirs for mine, theirs in zip(first, other, strict=True))
    assert all_of(step=(1, 12)) != all_of(step=(11, 2))


def test_a_client_s_negatives_depend_on_its_number_and_not_on_who_is_beside_it():
    parts, nodes = small_clients()
    sizes = [len(own) for own in nodes]

    def of(client: int, order: list[int]) -> list:
        negatives = stack_links([parts[one] for one in order], [sizes[one] for one in order], False).negatives
        place = order.index(client)
        return (drawn(negatives, order)[place] - sum(sizes[one] for one in order[:place])).tolist()

    for client, orders in {0: ([0, 1, 2], [2, 0], [1, 2, 0]), 2: ([0, 1, 2], [2, 0], [0, 2, 1])}.items():
        alone = of(client, [client])
        assert [of(client, order) == alone for order in orders] == [True] * 3
    twins = stack_links([parts[2], parts[2]], [6, 6], False).negatives
    one, other = drawn(twins, [2, 5])
    assert one.tolist() == of(2, [2])
    assert (other - 6).tolist() != one.tolist()


def test_a_complete_graph_has_no_negatives():
    edges = edges_of(*combinations(range(8), 2))
    _, (links,) = shared_out(edges, 8, (torch.arange(8),))
    assert (links.val.true.tolist(), links.test.true.tolist()) == ([True], [True] * 3)
    negatives = stacked([links], (torch.arange(8),)).negatives
    assert negatives.count_K.tolist() == [0]
    nothing = negatives.draw(0, torch.tensor([0]), torch.zeros(9, dtype=torch.int64), torch.arange(9), 1, 0)
    assert ((nothing >= 0) & (nothing < 8)).all(), "what stands for it is no node of somebody else"


def test_where_few_pairs_are_no_edges_all_of_them_are_judged_and_none_is_left_to_train():
    """8 nodes less three edges: 25 edges, of which 1 validates and 2 test, each against one pair that is none."""
    edges = edges_of(*(set(combinations(range(8), 2)) - {(0, 1), (2, 5), (6, 7)}))
    _, (links,) = shared_out(edges, 8, (torch.arange(8),))
    assert (links.val.true.tolist(), links.test.true.tolist()) == ([True, False], [True, True, False, False])
    negatives = judged_negatives(links, torch.arange(8))
    assert negatives[0] | negatives[1] == {(0, 1), (2, 5), (6, 7)}
    assert stacked([links], (torch.arange(8),)).negatives.count_K.tolist() == [0]


# Nodes that set-up adds.


def extended_clients() -> Iterator[tuple[Subgraph, Subgraph]]:
    """Clients before and after each got seven nodes, each with edges to two of its own."""
    whole = communities()
    for own in LinkPrediction(4).divide(whole, natural(), 0, LINK_RATIOS, "symmetric"):
        anchor = torch.arange(14) % own.num_nodes
        added = Added(sp.csr_matrix((7, whole.num_features)), anchor, torch.arange(14) % 7)
        yield own, own.extended(added)


def stacked_after_setup() -> tuple[list[Subgraph], Clients]:
    before, after = zip(*extended_clients(), strict=True)
    assert [own.num_nodes for own in after] == [27] * len(after)
    return list(before), stack(list(after), SPEC.classes)


def test_added_nodes_move_no_pair_to_other_nodes():
    before, data = stacked_after_setup()
    number_N = torch.cat([torch.cat([own.nodes, torch.full((7,), -1)]) for own in before])
    assert data.num_train_K.tolist() == [own.num_train for own in before]
    for at, own in enumerate(before):
        mine = data.links.train_owner_E == at
        assert torch.equal(number_N[data.links.train[:, mine]], own.nodes[own.links.train])
        for both, single in ((data.links.val, own.links.val), (data.links.test, own.links.test)):
            assert torch.equal(number_N[both.pairs[:, both.owner == at]], own.nodes[single.pairs])


def test_added_nodes_join_no_pair_of_a_client_s_own_nodes():
    for before, after in extended_clients():
        own = slice(0, before.num_nodes)
        assert joined(after.adjacency[own, own]) == both_ways(as_set(before.links.train))
        assert joined(after.adjacency) > joined(after.adjacency[own, own])


def test_added_nodes_are_never_drawn_as_negatives():
    """Nobody learns anything on them: the draws are those of the client without them."""
    before, data = stacked_after_setup()
    ids, plain = [own.id for own in before], stack(before, SPEC.classes).links.negatives
    assert data.links.negatives.count_K.tolist() == plain.count_K.tolist()
    found = zip(drawn(data.links.negatives, ids), drawn(plain, ids), strict=True)
    for at, (pairs, without) in enumerate(found):
        assert torch.equal(pairs - 27 * at, without - 20 * at)
