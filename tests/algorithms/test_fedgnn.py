"""FedGNN by hand: which nodes of others a client gets, what they are joined to, and what leaves a client for that."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from fedpub.algorithms import FedGNN, fedgnn
from fedpub.core.message import Message
from fedpub.core.tree import pack, state_map
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.engine import setup as engine
from fedpub.engine.setup import set_up
from fedpub.engine.simulate import Federation
from fedpub.experiment import Experiment
from small import client_by_hand, context

SIMILAR = FedGNN(relation="similarity")
NEIGHBOURS = FedGNN(relation="neighbourhood")


def client(number: int, x: Any, nodes: tuple[int, ...] = (), edges: tuple[tuple[int, int], ...] = ()) -> Subgraph:
    """A client with these features; its nodes are nobody else's unless their numbers are given."""
    count = len(x)
    chosen = torch.arange(count) % 2 == 0
    own = torch.tensor(nodes or [100 * number + row for row in range(count)])
    return client_by_hand(number, x, edges, own, chosen)


def added(method: FedGNN, clients: list[Subgraph], **changes: Any) -> list[Added]:
    own = Federation(clients, 3, torch.device("cpu"), **({"dtype": torch.float64} | changes))
    made = set_up(method, context(), own)
    assert made is not None
    return made.added


def joined(one: Added) -> list[tuple[tuple[float, ...], list[int]]]:
    """The features of every added node in their order, and the client's nodes that it is joined to."""
    rows = one.x.toarray().tolist()
    anchors = [sorted(one.anchor[one.node == node].tolist()) for node in range(len(rows))]
    assert sum(map(len, anchors)) == len(one.anchor) == len(one.node)
    return list(zip(map(tuple, rows), anchors, strict=True))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Everything that clients upload, a message per client and step."""
    messages: list[Message] = []
    check = engine.check_declared

    def record(algorithm: FedGNN, up: Message) -> None:
        check(algorithm, up)
        messages.append(state_map(torch.clone, up))

    monkeypatch.setattr(engine, "check_declared", record)
    return messages


# Similar features. All these vectors have whole norms, so that their cosines are exact.

HERE = ((1, 0, 0, 0), (0, 0, 2, 0))
THERE = (
    (1, 1, 1, 1),  # 0.5 to both: not above
    (3, 4, 0, 0),  # 0.6 and 0
    (0, 0, 0, 5),  # 0 to both
    (0, 3, 4, 0),  # 0 and 0.8
    (8, 0, 6, 0),  # 0.8 and 0.6
)


def spread(x: Any, apart: int) -> np.ndarray:
    """The same features with empty columns between them."""
    wide = np.zeros((len(x), 4 * apart))
    wide[:, ::apart] = x
    return wide


@pytest.mark.parametrize("apart", [1, 50], ids=["dense", "sparse"])
@pytest.mark.parametrize("rows", [1, 1024])
def test_two_clients_get_the_similar_nodes_of_each_other(apart, rows, monkeypatch):
    monkeypatch.setattr(fedgnn, "ROWS", rows)
    here, there = spread(HERE, apart), spread(THERE, apart)
    first, second = added(SIMILAR, [client(0, here), client(1, there)])
    assert joined(first) == [(tuple(there[1]), [0]), (tuple(there[3]), [1]), (tuple(there[4]), [0, 1])]
    assert joined(second) == [(tuple(here[0]), [1, 4]), (tuple(here[1]), [3, 4])]


def test_an_added_node_is_joined_in_both_directions_and_to_nothing_else():
    own = client(0, HERE, edges=((0, 1),))
    graph = own.extended(added(SIMILAR, [own, client(1, THERE)])[0])
    reached = {(int(u), int(v)) for u, v in zip(*graph.adjacency.nonzero(), strict=True) if u != v}
    edges = {(0, 1), (0, 2), (1, 3), (0, 4), (1, 4)}
    assert reached == edges | {(v, u) for u, v in edges}
    assert graph.edges.shape[1] == len(edges)
    assert graph.nodes.tolist() == [0, 1, -1, -1, -1]
    assert graph.y.tolist() == [0, 1, -1, -1, -1]
    assert graph.train.tolist() == [True, False, False, False, False]
    assert graph.val.tolist() == graph.test.tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("ones", "shared"), [(4, 2), (16, 8), (64, 32)])
def test_a_cosine_of_the_threshold_is_not_above_it(ones, shared, dtype):
    here, there = np.zeros((1, 2 * ones)), np.zeros((1, 2 * ones))
    here[0, :ones] = there[0, ones - shared : 2 * ones - shared] = 1
    clients = [client(0, here), client(1, there)]
    assert [joined(one) for one in added(SIMILAR, clients, dtype=dtype)] == [[], []]
    lower = replace(SIMILAR, threshold=0.49)
    assert [joined(one) for one in added(lower, clients, dtype=dtype)] == [
        [(tuple(there[0]), [0])],
        [(tuple(here[0]), [0])],
    ]


@pytest.mark.parametrize(("threshold", "expected"), [(0.0, [1, 2, 3]), (0.55, [2, 3]), (0.7, [3]), (0.9, [])])
def test_nothing_below_the_threshold_is_added(threshold, expected):
    there = ((0, 5), (5, 12), (3, 4), (4, 3), (-1, 0), (0, 0))  # cosines 0, 5/13, 0.6, 0.8, -1 and none
    found = added(replace(SIMILAR, threshold=threshold), [client(0, [(1, 0)]), client(1, there)])[0]
    assert joined(found) == [(there[row], [0]) for row in expected]


def test_a_node_without_features_is_similar_to_nobody():
    method = replace(SIMILAR, threshold=0.0)
    assert [joined(one) for one in added(method, [client(0, [(0, 0)]), client(1, [(0, 0), (1, 2)])])] == [[], []]


OTHERS = (
    ((3, 4), (2, 0), (4, 3)),  # 0.6, 1, 0.8
    ((4, 0), (8, 6), (6, 8)),  # 1, 0.8, 0.6
)
BY_RANK = ((2, 0), (4, 0), (4, 3), (8, 6), (3, 4), (6, 8))  # of equals the node of the first client


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 6, 10])
def test_of_three_clients_the_limit_keeps_the_most_similar_and_of_equals_the_first(limit):
    clients = [client(0, [(1, 0)]), *(client(1 + i, x) for i, x in enumerate(OTHERS))]
    found = added(replace(SIMILAR, limit=limit), clients)[0]
    assert sorted(joined(found)) == sorted((x, [0]) for x in BY_RANK[:limit])


def test_the_limit_is_each_node_s_own():
    """Both nodes here have the same two best; each may have them, and a third node its own."""
    here = ((1, 0, 0), (5, 0, 0), (0, 0, 1))
    there = ((4, 3, 0), (1, 0, 0), (3, 4, 0), (0, 3, 4))
    found = added(replace(SIMILAR, limit=2), [client(0, here), client(1, there)])[0]
    assert joined(found) == [(there[0], [0, 1]), (there[1], [0, 1]), (there[3], [2])]


def test_the_middle_one_of_three_clients_gets_nodes_of_both_others():
    found = added(SIMILAR, [client(0, [(1, 0), (0, 1)]), client(1, [(2, 0)]), client(2, [(0, 1), (3, 4), (4, 3)])])
    assert joined(found[1]) == [((1, 0), [0]), ((3, 4), [0]), ((4, 3), [0])]


def test_nodes_of_the_same_client_are_not_compared():
    found = added(SIMILAR, [client(0, [(1, 0), (1, 0)]), client(1, [(0, 1), (0, 1)])])
    assert [joined(one) for one in found] == [[], []]


def test_clients_upload_their_features_once_and_nothing_more(sent):
    added(SIMILAR, [client(0, HERE), client(1, THERE)])
    assert [set(up) for up in sent] == [{"features"}, {"features"}, set(), set()]
    for up, x in zip(sent, (HERE, THERE), strict=False):
        assert fedgnn.unpack_rows(up["features"], 4).toarray().tolist() == [list(map(float, row)) for row in x]
        assert set(up["features"]) == {"values", "columns", "pointer"}


@pytest.mark.parametrize(("ones", "dtype"), [(6, torch.float64), (12, torch.float64), (18, torch.float32)])
def test_a_cosine_of_the_threshold_is_not_above_it_whatever_the_norm(ones, dtype):
    here, there = np.zeros((1, 2 * ones)), np.zeros((1, 2 * ones))
    here[0, :ones] = there[0, ones // 2 : ones // 2 + ones] = 1
    assert [joined(one) for one in added(SIMILAR, [client(0, here), client(1, there)], dtype=dtype)] == [[], []]


# The same neighbourhood. Of the whole graph 0 - 2, 1 - 2, 0 - 3, 1 - 3, 0 - 4 and 0 - 5
#   client 0 holds 0, 1, 2, 7, with the neighbourhoods {2}, {2}, {0, 1} and none,
#   client 1 holds 0, 1, 3, 4, with the neighbourhoods {3, 4}, {3}, {0, 1} and {0},
#   client 2 holds 0, 2, 5, 6, with the neighbourhoods {2, 5}, {0}, {0} and none.

WHOLE = ((0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (0, 5))
HELD = ((0, 1, 2, 7), (0, 1, 3, 4), (0, 2, 5, 6))


def features(node: int) -> tuple[float, ...]:
    return (1.0 + node, 0.1 * node, -1 / 3)


def holding(held: tuple[tuple[int, ...], ...], edges: tuple[tuple[int, int], ...]) -> list[Subgraph]:
    """Clients that hold these nodes of a graph, with every edge between them."""
    made = []
    for number, own in enumerate(held):
        between = sorted((own.index(u), own.index(v)) for u, v in edges if u in own and v in own)
        made.append(client(number, [features(node) for node in own], own, tuple(between)))
    return made


def named(one: Added, own: tuple[int, ...]) -> dict[int, list[int]]:
    """The numbers of the added nodes in the whole graph, read off their features, and of their neighbours."""
    number = {features(node): node for node in range(30)}
    found = {number[x]: [own[anchor] for anchor in anchors] for x, anchors in joined(one)}
    assert len(found) == one.x.shape[0]  # each once
    return found


def test_nodes_with_the_same_neighbourhood_join_it():
    found = added(NEIGHBOURS, holding(HELD, WHOLE))
    assert [named(one, own) for one, own in zip(found, HELD, strict=True)] == [
        {3: [0, 1]},  # as 2
        {2: [0, 1], 5: [0]},  # 2 as 3 by client 0 and as 4 by client 2; 5 as 4; 7 and 6 have no neighbours
        {4: [0]},  # as 2 and 5
    ]
    assert len(found[1].anchor) == 3  # the edge 0 - 2, found twice, is one


def test_isolated_nodes_have_no_neighbourhood_in_common():
    assert [joined(one) for one in added(NEIGHBOURS, holding(((0, 1), (2, 3), (1, 4)), ()))] == [[], [], []]


def test_a_neighbourhood_has_to_be_exactly_the_same():
    """5 has 0 and 1 beside it as 2 has, and 3 besides; 6 has 0 alone."""
    edges = ((0, 2), (1, 2), (0, 5), (1, 5), (3, 5), (0, 6))
    found = added(NEIGHBOURS, holding(((0, 1, 2), (0, 1, 3, 5, 6)), edges))
    assert [joined(one) for one in found] == [[], []]


def test_only_nodes_that_match_are_uploaded_each_once_by_one_who_holds_it(sent):
    added(NEIGHBOURS, holding(HELD, WHOLE))
    assert [set(up) for up in sent] == [{"hashes"}] * 3 + [{"features"}] * 3 + [set()] * 3
    number = {features(node): node for node in range(8)}
    uploaded = [[number[tuple(row)] for row in fedgnn.unpack_rows(up["features"], 3).toarray()] for up in sent[3:6]]
    # 2 is wanted for two reasons, and clients 0 and 2 have it.
    assert sorted(node for one in uploaded for node in one) == [2, 3, 4, 5]
    assert all(set(one) <= set(own) for one, own in zip(uploaded, HELD, strict=True))
    assert [up["hashes"].shape for up in sent[:3]] == [(1, 2, 4)] * 3


def test_the_hashes_tell_equal_neighbourhoods_and_not_the_numbers(sent):
    added(NEIGHBOURS, holding(HELD, WHOLE))
    node, around = (torch.stack([up["hashes"][0, row] for up in sent[:3]]) for row in (0, 1))
    assert len(set(node.flatten().tolist())) == 8  # nodes 0 to 7
    assert int(node.min()) > 10**6
    assert around[0, 2] == around[1, 2] != around[1, 3] == around[2, 1] == around[2, 2]
    assert (around == 0).nonzero().tolist() == [[0, 3], [2, 3]]
    assert not set(node.flatten().tolist()) & set(around.flatten().tolist())


def by_definition(held: tuple[tuple[int, ...], ...], edges: tuple[tuple[int, int], ...]) -> list[dict[int, list[int]]]:
    """Every node w of another client that a client does not hold and whose N_j(w) is N_i(v), joined to N_i(v)."""

    def around(own: tuple[int, ...], node: int) -> frozenset[int]:
        return frozenset(a + b - node for a, b in edges if node in (a, b) and a in own and b in own)

    found: list[dict[int, list[int]]] = []
    for mine in held:
        known = {around(mine, node) for node in mine} - {frozenset()}
        new: dict[int, set[int]] = {}
        for other in held:
            for node in set(other) - set(mine):
                if around(other, node) in known:
                    new.setdefault(node, set()).update(around(other, node))
        found.append({node: sorted(anchors) for node, anchors in new.items()})
    return found


def test_the_hand_made_clients_are_as_the_definition_has_them():
    assert by_definition(HELD, WHOLE) == [{3: [0, 1]}, {2: [0, 1], 5: [0]}, {4: [0]}]


@pytest.mark.parametrize("chunk", [None, 1])
def test_random_overlapping_clients_get_what_the_definition_says(chunk):
    total = 0
    for seed in range(12):
        stream = np.random.default_rng(seed)
        edges = tuple(pair for pair in product(range(4), range(4, 16)) if stream.random() < 0.4)
        held = tuple(tuple(sorted(stream.choice(16, size=11, replace=False).tolist())) for _ in range(4))
        found = added(NEIGHBOURS, holding(held, edges), chunk=chunk)
        expected = by_definition(held, edges)
        assert [named(one, own) for one, own in zip(found, held, strict=True)] == expected
        total += sum(len(anchors) > 1 for one in expected for anchors in one.values())
    assert total > 10  # neighbourhoods of more than one node do occur


# Both relations


def clients_for(method: FedGNN) -> list[Subgraph]:
    if method.relation == "neighbourhood":
        return holding(HELD, WHOLE)
    return [client(0, HERE, edges=((0, 1),)), client(1, THERE, edges=((0, 1), (2, 4))), client(2, [(0, 0, 1, 0)])]


BOTH = pytest.mark.parametrize("method", [SIMILAR, NEIGHBOURS], ids=["similarity", "neighbourhood"])


@BOTH
def test_labels_and_what_they_are_for_never_travel(method, sent):
    clients = clients_for(method)
    added(method, clients)
    added(method, [replace(own, y=2 - own.y, train=own.test, val=own.train, test=own.train) for own in clients])
    count = len(sent) // 2
    for first, second in zip(sent[:count], sent[count:], strict=True):
        one, other = pack(first), pack(second)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(sent)


@BOTH
@pytest.mark.parametrize("chunk", [1, 2])
def test_how_clients_are_stacked_does_not_matter(method, chunk):
    whole, parts = added(method, clients_for(method)), added(method, clients_for(method), chunk=chunk)
    assert [joined(one) for one in whole] == [joined(one) for one in parts]
    assert sum(one.x.shape[0] for one in whole) > 3


@BOTH
def test_a_client_alone_gets_nothing(method):
    found = added(method, clients_for(method)[:1])
    assert [joined(one) for one in found] == [[]]
    assert found[0].x.shape == (0, clients_for(method)[0].x.shape[1])


@BOTH
def test_features_arrive_in_the_precision_of_the_run(method):
    clients = clients_for(method)
    exact = {tuple(row) for own in clients for row in own.x.toarray().tolist()}
    for dtype, kind in ((torch.float64, np.float64), (torch.float32, np.float32)):
        known = {tuple(np.array(row, dtype=kind).tolist()) for row in exact}
        found = [row for one in added(method, clients, dtype=dtype) for row, _ in joined(one)]
        assert found
        assert set(found) <= known


# What the experiment chooses


@pytest.mark.parametrize(
    ("scenario", "relation"),
    [
        ("overlapping", "neighbourhood"),
        ("disjoint", "similarity"),
        ("imbalanced", "similarity"),
        ("louvain", "similarity"),
        ("random", "similarity"),
        (None, "similarity"),
    ],
)
def test_the_scenario_chooses_the_relation(scenario, relation):
    plan = Experiment(scenario=scenario, clients=10, method="fedgnn").resolve()
    assert plan.experiment.options["relation"] == relation
    assert plan.algorithm == FedGNN(relation=relation)
    assert plan.experiment.resolve() == plan


@pytest.mark.parametrize("scenario", ["overlapping", "disjoint"])
@pytest.mark.parametrize("relation", ["neighbourhood", "similarity"])
def test_a_relation_that_is_asked_for_stays(scenario, relation):
    experiment = Experiment(scenario=scenario, clients=10, method="fedgnn", options={"relation": relation})
    assert experiment.resolve().experiment.options["relation"] == relation


def test_each_relation_declares_what_it_sends():
    assert SIMILAR.uploads == {"weights", "size", "features"}
    assert NEIGHBOURS.uploads == {"weights", "size", "features", "hashes"}
