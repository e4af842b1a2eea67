"""Link prediction: nothing held out leaks, the loss and the metrics by hand, every method, and the command line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_directory import kept, run_until
from test_simulate import CLIENTS, SPEC, after_setup, assert_same, graph, method, nodes_of_clients, rounds_of
from test_simulate import context as plain_context
from torch import Tensor

from fedpub.algorithms import METHODS, Algorithm, Context, FedAvg, FedGNN, FedPer, FedSage, Local, Oracle, title_of
from fedpub.cli import main
from fedpub.core.segments import pair_product
from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import Tree, pack, tree
from fedpub.data.clients.links import TRAIN, Judged, split_links
from fedpub.data.clients.split import Ratios
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Propagation, Subgraph
from fedpub.data.graph import Graph, undirected
from fedpub.engine.simulate import Federation, first_weights
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.models import GCN, MODELS, Dropout, GraphSAGE, Model
from fedpub.runs.simulated import run
from fedpub.tasks import LinkPrediction, Step
from fedpub.tasks.link_prediction import LINK_RATIOS, Decoder
from fedpub.tasks.metrics import ranking
from small import refused

MODEL = pytest.mark.parametrize("model", [GCN(4), GraphSAGE(4)], ids=["gcn", "sage"])
DECODER = pytest.mark.parametrize("decoder", ["dot", "mlp"])


def doubles(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def graph_of(num_nodes: int, *pairs: tuple[int, int], x: Tensor | None = None) -> Graph:
    edges = undirected(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T, num_nodes)
    if x is None:
        x = torch.rand(num_nodes, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    return Graph(x=x, y=torch.arange(num_nodes) % 2, edges=edges, classes=("a", "b"), name="hand-made").validate()


def divide(
    whole: Graph, *nodes: range | tuple[int, ...], ratios: Ratios = LINK_RATIOS, kind: Propagation = "symmetric"
) -> list[Subgraph]:
    return LinkPrediction(4).divide(whole, tuple(torch.tensor(own) for own in nodes), 0, ratios, kind)


def clients_of(*arguments: Any, **named: Any) -> Clients:
    return stack(divide(*arguments, **named), 2, dtype=torch.float64)


def active_weights(model: Model, task: LinkPrediction, num_features: int, clients: int) -> Tree:
    """Different for every client, so small beside the biases that no hidden unit is silent."""
    stream = torch.Generator().manual_seed(3)
    w0 = model.init(num_features, task.hidden, stream) | task.init(stream)
    noise = {name: torch.randn(clients, *leaf.shape, generator=stream).double() / 20 for name, leaf in w0.items()}
    return {name: leaf + 1.0 if name.endswith("bias") else leaf for name, leaf in noise.items()}


def softplus(value: float) -> float:
    """The binary cross entropy of a pair that is none, of the score `value`; of an edge, of minus its score."""
    return math.log1p(math.exp(value))


# A held-out edge passes no message: 30 nodes in a row, of which client 0 has twenty and client 1 ten.

ROW = (range(20), range(20, 30))


def row(x: Tensor | None = None) -> Graph:
    return graph_of(30, *((node, node + 1) for node in range(29)), x=x)


def in_a_row(model: Model, whole: Graph, oracle: bool) -> Clients:
    nodes = tuple(torch.tensor(own) for own in ROW)
    how = (whole, nodes, 0, LINK_RATIOS, model.propagation)
    made = [LinkPrediction(4).undivided(*how)[0]] if oracle else LinkPrediction(4).divide(*how)
    return stack(made, 2, dtype=torch.float64)


def embeddings(model: Model, data: Clients) -> Tensor:
    """Of one model, which all have."""
    one = active_weights(model, LinkPrediction(4), data.num_features, 1)
    return model.apply({name: torch.cat([leaf] * data.num_clients) for name, leaf in one.items()}, data)


def edges_by_role() -> dict[tuple[int, int], int]:
    whole = row()
    chosen = split_links(whole.edges, 30, tuple(torch.tensor(own) for own in ROW), 0, LINK_RATIOS)
    return dict(zip(map(tuple, whole.edges.T.tolist()), chosen.role_E.tolist(), strict=True))


@pytest.mark.parametrize("oracle", [False, True], ids=["clients", "oracle"])
@MODEL
def test_the_features_of_one_end_of_a_held_out_edge_do_not_reach_the_other(model, oracle):
    whole, by_role = row(), edges_by_role()
    before, reached = embeddings(model, in_a_row(model, whole, oracle)), {}
    for u, v in by_role:
        x = whole.x.clone()
        x[u] += 1.0
        after = embeddings(model, in_a_row(model, row(x), oracle))
        assert not torch.equal(after[u], before[u])
        reached[u, v] = not torch.equal(after[v], before[v])
        if not reached[u, v]:
            assert torch.equal(after[v:], before[v:]), "there is no other way"
    assert sorted(by_role.values()) == [0] * 25 + [1] + [2] * 3
    passes = {pair for pair, role in by_role.items() if role == TRAIN}
    assert {pair for pair in reached if reached[pair]} == (passes if oracle else passes - {(19, 20)})


@pytest.mark.parametrize("oracle", [False, True], ids=["clients", "oracle"])
@MODEL
def test_an_embedding_has_a_gradient_in_the_nodes_within_two_training_edges_and_in_no_others(model, oracle):
    data, by_role = in_a_row(model, row(), oracle), edges_by_role()
    x = row().x.clone().requires_grad_()
    z_NH = embeddings(model, data.with_features(x))
    torch.testing.assert_close(z_NH, embeddings(model, data))
    mixed = z_NH @ doubles([0.3, -0.5, 0.7, 1.1])
    reach = torch.stack([torch.autograd.grad(each, x, retain_graph=True)[0].abs().amax(1) > 0 for each in mixed])
    a = torch.eye(30)
    for (u, v), role in by_role.items():
        if role == TRAIN and (oracle or (u, v) != (19, 20)):
            a[u, v] = a[v, u] = 1
    assert torch.equal(reach, a @ a > 0)
    for (u, v), role in by_role.items():
        if role != TRAIN:
            assert not reach[u, v]
            assert not reach[v, u]


# Neither do the nodes that set-up adds join what is held out.


def set_up_pairs(algorithm: Algorithm, made: list[Subgraph]) -> Iterator[tuple[Subgraph, Subgraph]]:
    """Every client before and after set-up."""
    own = Federation(made, 3, torch.device("cpu"), torch.float64)
    yield from zip(made, after_setup(algorithm, context(), own).subgraphs, strict=True)


SETUPS = {
    "similar nodes": FedGNN("similarity"),
    "same neighbourhood": FedGNN("neighbourhood"),
    "generated nodes": FedSage(generator_epochs=12, generator_rounds=2),
}


def hubs_and_leaves() -> tuple[Graph, tuple[Tensor, ...]]:
    """Three hubs with twelve leaves each, every node with its own feature; five clients hold half of the leaves."""
    leaves = range(3, 39)
    whole = graph_of(39, *((leaf % 3, leaf) for leaf in leaves), x=torch.eye(39, dtype=torch.float64))
    stream = np.random.default_rng(0)
    nodes = [np.sort(np.concatenate([[0, 1, 2], stream.permutation(leaves)[:18]])) for _ in range(5)]
    return whole, tuple(map(torch.from_numpy, nodes))


def set_up_scenario(name: str) -> tuple[Graph, tuple[Tensor, ...], Algorithm]:
    return (*(hubs_and_leaves() if name == "same neighbourhood" else (graph(), nodes_of_clients())), SETUPS[name])


@pytest.mark.parametrize("name", SETUPS)
def test_set_up_joins_no_two_nodes_of_a_client(name):
    whole, nodes, algorithm = set_up_scenario(name)
    made = LinkPrediction(8).divide(whole, nodes, 0, (0.6, 0.2, 0.2), "symmetric")
    grown = 0
    for before, after in set_up_pairs(algorithm, made):
        own = before.num_nodes
        assert torch.equal(after.edges[:, : before.edges.shape[1]], before.edges)
        new = after.edges[:, before.edges.shape[1] :]
        assert (new[0] < own).all()
        assert (new[1] >= own).all()
        grown += new.shape[1]
        a = after.adjacency.toarray()
        for judged in (after.links.val, after.links.test):
            assert not a[judged.pairs[0], judged.pairs[1]].any()
            assert not a[judged.pairs[1], judged.pairs[0]].any()
        assert a[after.links.train[0], after.links.train[1]].all()
    assert grown > 10


def test_what_is_held_out_anywhere_joins_nobody_s_copy_of_a_node():
    """An added node is known by its feature: its new edges are training edges of the whole graph."""
    whole, nodes, algorithm = set_up_scenario("same neighbourhood")
    ratios = (0.6, 0.2, 0.2)
    chosen = split_links(whole.edges, whole.num_nodes, nodes, 0, ratios)
    roles = dict(zip(map(tuple, whole.edges.T.tolist()), chosen.role_E.tolist(), strict=True))
    made = LinkPrediction(8).divide(whole, nodes, 0, ratios, "symmetric")
    new = set()
    for before, after in set_up_pairs(algorithm, made):
        number = after.x.toarray().argmax(1)
        added = set(number[before.num_nodes :].tolist())
        assert not added & set(before.nodes.tolist())
        new |= {(int(number[u]), int(number[v])) for u, v in after.edges[:, before.edges.shape[1] :].T.tolist()}
    assert len(new) > 5
    assert {roles[pair] for pair in new} == {TRAIN}
    assert len({pair for pair, role in roles.items() if role != TRAIN}) > 5


@pytest.mark.parametrize("name", SETUPS)
def test_after_set_up_negatives_are_still_pairs_of_a_client_s_own_nodes(name):
    whole, nodes, algorithm = set_up_scenario(name)
    made = LinkPrediction(8).divide(whole, nodes, 0, LINK_RATIOS, "symmetric")
    data = stack([after for _, after in set_up_pairs(algorithm, made)], 3)
    links = data.links
    drawn = links.negatives.draw(0, data.ids_K, links.train_owner_E, links.train_row_E, 1, 0)
    own = torch.tensor([before.num_nodes for before in made])[links.train_owner_E]
    assert (data.segments.owner_N[drawn] == links.train_owner_E).all()
    assert (data.segments.row_N[drawn] < own).all()


# The loss by hand.


@dataclass(frozen=True, eq=False)
class Fixed:
    """A model whose embeddings are known."""

    z_NH: Tensor
    propagation: ClassVar[Propagation] = "symmetric"

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        return self.z_NH


# Client 0 has the edges 0 - 1 - 2; client 1 all pairs of 3, 4, 5 and 6 but one; client 2 none. So the negatives are
# known: (0, 2) and (5, 6). Client 3 is a path of six edges, of which one tests, and all its products are zero.
HAND_EDGES = ((0, 1), (1, 2), (3, 4), (3, 5), (3, 6), (4, 5), (4, 6))
HAND_Z = [[1, 0], [1, 1], [0, 2], [1, 1], [2, -1], [0, 1], [1, -3], [5, 5], [5, 5], *[[0, 0]] * 7]


def hand_made() -> Clients:
    whole = graph_of(16, *HAND_EDGES, *((node, node + 1) for node in range(9, 15)))
    data = clients_of(whole, range(3), range(3, 7), range(7, 9), range(9, 16))
    assert data.num_train_K.tolist() == [2, 5, 0, 5]
    return data


def mean_loss(edges: tuple[float, ...], negative: float) -> float:
    return sum(softplus(-score) + softplus(negative) for score in edges) / (2 * len(edges))


def test_the_loss_with_products_by_hand():
    """Client 0 adds 3 to every product, client 1 takes 2 away."""
    offset = {"decoder.bias": doubles([[3], [-2], [9], [0]])}
    found = LinkPrediction(2).loss(Fixed(doubles(HAND_Z)), offset, hand_made(), Step())
    expected = [mean_loss((1 + 3, 2 + 3), 0 + 3), mean_loss((1 - 2, 1 - 2, -2 - 2, -1 - 2, 5 - 2), -3 - 2)]
    assert found.tolist() == pytest.approx([*expected, 0, math.log(2)], abs=1e-12)


# Client 0: scores 2 ReLU(p) + 3 ReLU(1 − q) − 1 of a product (p, q); client 1: ReLU(q) − ReLU(p); clients 2 and 3: 9.
HAND_DECODER = {
    "decoder1.weight": doubles([[[1, 0], [0, -1]], [[0, 1], [1, 0]], *[[[0, 0], [0, 0]]] * 2]),
    "decoder1.bias": doubles([[0, 1], [0, 0], [0, 0], [0, 0]]),
    "decoder2.weight": doubles([[[2], [3]], [[1], [-1]], [[0], [0]], [[0], [0]]]),
    "decoder.bias": doubles([[-1], [0], [9], [9]]),
}


def test_the_scores_and_the_loss_of_the_network_by_hand():
    task = LinkPrediction(2, "mlp")
    pairs, owner_P = torch.tensor([*HAND_EDGES, (7, 8)]).T, torch.tensor([0, 0, 1, 1, 1, 1, 1, 2])
    scores = task.score(HAND_DECODER, doubles(HAND_Z), pairs, owner_P)
    assert scores.tolist() == [4, -1, -2, 1, -1, 0, 1, 9]
    # (0, 2) has the product (0, 0) and scores 2, (5, 6) has (0, −3) and scores 0.
    found = task.loss(Fixed(doubles(HAND_Z)), HAND_DECODER, hand_made(), Step())
    expected = [mean_loss((4, -1), 2), mean_loss((-2, 1, -1, 0, 1), 0), 0, mean_loss((9,), 9)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@DECODER
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_score_does_not_depend_on_which_end_comes_first(decoder, seed):
    stream = torch.Generator().manual_seed(seed)
    task = LinkPrediction(6, decoder)
    w = {
        name: torch.randn(3, *leaf.shape, generator=stream, dtype=torch.float64)
        for name, leaf in task.init(stream).items()
    }
    z_NH = torch.randn(9, 6, generator=stream, dtype=torch.float64)
    pairs, owner_P = torch.randint(9, (2, 12), generator=stream), torch.arange(3).repeat_interleave(4)
    found = task.score(w, z_NH, pairs, owner_P)
    assert torch.equal(found, task.score(w, z_NH, pairs.flip(0), owner_P))
    assert len(found.unique()) > 6


@DECODER
@MODEL
def test_a_client_s_loss_has_a_gradient_in_each_of_its_weights_and_in_nobody_else_s(model, decoder):
    task = LinkPrediction(4, decoder)
    whole = graph_of(18, *((node, node + 1) for node in range(17)), (0, 3), (8, 11), (12, 16))
    data = clients_of(whole, range(7), range(7, 12), range(12, 18), kind=model.propagation)
    w = {name: leaf.requires_grad_() for name, leaf in active_weights(model, task, 5, 3).items()}
    assert ("decoder1.weight" in w) == (decoder == "mlp")
    loss_K = task.loss(model, w, data, Step())
    for client in range(3):
        gradients = torch.autograd.grad(loss_K[client], list(w.values()), retain_graph=True)
        for name, found in zip(w, gradients, strict=True):
            assert (found[client] != 0).all(), f"{name} of client {client}"
            assert not found[[other for other in range(3) if other != client]].any(), f"{name}: another client's"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12), st.sampled_from(["float32", "float64"]))
def test_products_of_pairs_have_the_gradient_of_autograd(ends, dtype):
    """Also where a pair occurs twice, in either direction, a node meets itself, or there is no pair."""
    pairs = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T
    stream = torch.Generator().manual_seed(len(ends))
    z = torch.randn(5, 3, generator=stream, dtype=getattr(torch, dtype)).requires_grad_()
    above = torch.randn(len(ends), generator=stream, dtype=z.dtype)
    plain = (z[pairs[0]] * z[pairs[1]]).sum(1)
    found = pair_product(z, pairs)
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(torch.autograd.grad(found, z, above), torch.autograd.grad(plain, z, above))


@DECODER
def test_the_gradient_is_that_of_finite_differences(decoder):
    task, model = LinkPrediction(4, decoder), GCN(4)
    data = clients_of(graph_of(12, *((node, node + 1) for node in range(11)), (0, 5)), range(6), range(6, 12))
    w = {name: leaf.requires_grad_() for name, leaf in active_weights(model, task, 5, 2).items()}
    step = Step(seed=1, round=2, epoch=1, p=0.25)
    gradients = torch.autograd.grad(task.loss(model, w, data, step).sum(), list(w.values()))
    stream = torch.Generator().manual_seed(0)
    along = {name: torch.randn(leaf.shape, generator=stream, dtype=torch.float64) for name, leaf in w.items()}
    slope = sum(float((g * along[name]).sum()) for name, g in zip(w, gradients, strict=True))

    @torch.no_grad()
    def at(distance: float) -> float:
        moved = {name: leaf + distance * along[name] for name, leaf in w.items()}
        return float(task.loss(model, moved, data, step).sum())

    assert (at(1e-5) - at(-1e-5)) / 2e-5 == pytest.approx(slope, rel=1e-6)


def test_the_loss_changes_with_the_step_and_dropout_and_is_the_same_for_the_same():
    data, task, model = clients_of(graph(), range(31), range(31, 70)), LinkPrediction(4), GCN(4)
    w = active_weights(model, task, SPEC.features, 2)
    steps = [Step(), Step(seed=1), Step(round=1), Step(epoch=1), Step(p=0.5)]
    found = [tuple(task.loss(model, w, data, step).tolist()) for step in steps]
    assert len(set(found)) == len(steps)
    assert found == [tuple(task.loss(model, w, data, step).tolist()) for step in steps]


# Clients that lack something.


@DECODER
@pytest.mark.parametrize("nodes", [(range(5), range(5, 9)), (range(5, 9), range(5)), (range(5),)], ids=str)
def test_a_client_all_of_whose_pairs_are_edges_trains_on_these_alone(nodes, decoder):
    """All pairs of the first five nodes: nine train and one tests, against nothing."""
    data = clients_of(graph_of(9, *combinations(range(5), 2), (5, 6), (6, 7)), *nodes)
    task, model, client = LinkPrediction(4, decoder), GCN(4), nodes.index(range(5))
    w = {name: leaf.requires_grad_() for name, leaf in active_weights(model, task, 5, len(nodes)).items()}
    assert data.links.negatives.count_K[client] == 0
    loss_K, z_NH = task.loss(model, w, data, Step()), model.apply(w, data)
    scores = task.score(w, z_NH, data.links.train, data.links.train_owner_E)[data.links.train_owner_E == client]
    assert loss_K[client].item() == pytest.approx(sum(map(softplus, (-scores).tolist())) / 9)
    for found in torch.autograd.grad(loss_K[client], list(w.values())):
        assert torch.isfinite(found).all()
        assert not found[[other for other in range(len(nodes)) if other != client]].any()
    assert torch.isnan(task.evaluate(model, w, data)["test"][client])


@DECODER
def test_a_client_without_edges_has_no_loss_no_gradient_and_no_metrics(decoder):
    """Client 1 has three nodes and no edge, client 2 a single node."""
    data = clients_of(row(), range(12), (14, 17, 19), (25,))
    task, model = LinkPrediction(4, decoder), GCN(4)
    w = {name: leaf.requires_grad_() for name, leaf in active_weights(model, task, 5, 3).items()}
    loss_K = task.loss(model, w, data, Step())
    assert loss_K[0] > 0
    assert loss_K[1:].tolist() == [0, 0]
    for found in torch.autograd.grad(loss_K.sum(), list(w.values())):
        assert torch.isfinite(found).all()
        assert found[0].any()
        assert not found[1:].any()
    metrics = task.evaluate(model, w, data)
    assert metrics.keys() == {*LinkPrediction.metrics}
    for found in metrics.values():
        assert torch.isnan(found).tolist() == [False, True, True]
    held = divide(row(), range(12), (14, 17, 19), (25,))
    assert task.sizes(held).tolist() == [1, 0, 0]
    assert task.unlearnt(held)[0] == 0.5
    assert torch.isnan(task.unlearnt(held)).tolist() == [False, True, True]


@DECODER
def test_nobody_who_is_stacked_has_an_edge(decoder):
    """As when those few take part in a round."""
    whole = row()
    data = stack(divide(whole, range(12), (14, 17), (25,))[1:], 2, dtype=torch.float64)
    task, model = LinkPrediction(4, decoder), GCN(4)
    w = {name: leaf.requires_grad_() for name, leaf in active_weights(model, task, 5, 2).items()}
    loss_K = task.loss(model, w, data, Step())
    assert loss_K.tolist() == [0, 0]
    assert not any(found.any() for found in torch.autograd.grad(loss_K.sum(), list(w.values())))
    assert all(torch.isnan(found).all() for found in task.evaluate(model, w, data).values())


# ROC-AUC and average precision.


def auc_by_pairs(score: list[float], true: list[bool]) -> float:
    """The share of (edge, other) pairs in the right order; half for equals."""
    better = [
        (a > b) + (a == b) / 2
        for a, t in zip(score, true, strict=True)
        if t
        for b, o in zip(score, true, strict=True)
        if not o
    ]
    return sum(better) / len(better) if better else math.nan


def precision_by_thresholds(score: list[float], true: list[bool]) -> float:
    """Σ (recall − recall before) · precision over the thresholds, from the highest."""
    if not any(true) or all(true):
        return math.nan
    total, before = 0.0, 0
    for threshold in sorted(set(score), reverse=True):
        taken = [t for s, t in zip(score, true, strict=True) if s >= threshold]
        total += (sum(taken) - before) / sum(true) * sum(taken) / len(taken)
        before = sum(taken)
    return total


def test_ranking_by_hand():
    """Client 0: (3 +) (2 − +) (1 −). Client 1: all in order. Client 2: all in reverse. Client 3: all equal."""
    score = [*(3, 2, 2, 1), *(9, 8, 7), *(1, 2, 3, 4), *(5, 5, 5, 5)]
    true = [*(1, 0, 1, 0), *(1, 1, 0), *(1, 1, 0, 0), *(1, 0, 0, 0)]
    owner = [*(0, 0, 0, 0), *(1, 1, 1), *(2, 2, 2, 2), *(3, 3, 3, 3)]
    auc, precision = ranking(doubles(score), torch.tensor(true).bool(), torch.tensor(owner), 4)
    assert auc.tolist() == pytest.approx([3.5 / 4, 1, 0, 0.5])
    assert precision.tolist() == pytest.approx([1 / 2 + 1 / 2 * 2 / 3, 1, (1 / 3 + 2 / 4) / 2, 1 / 4])


def test_ranking_has_no_value_where_a_kind_of_pair_is_missing():
    true, owner = torch.tensor([True, True, False, True, False]), torch.tensor([1, 1, 3, 4, 4])
    auc, precision = ranking(torch.arange(5.0), true, owner, 6)
    assert auc.dtype == precision.dtype == torch.float64
    assert torch.isnan(auc).tolist() == torch.isnan(precision).tolist() == [True, True, True, True, False, True]
    assert (auc[4].item(), precision[4].item()) == (0, 0.5)
    nothing = ranking(torch.empty(0), torch.empty(0, dtype=torch.bool), torch.empty(0, dtype=torch.int64), 2)
    assert torch.isnan(torch.stack(nothing)).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), max_size=40))
def test_ranking_is_what_comparing_all_pairs_finds(examples):
    """Few values, so that many are equal; clients in any order."""
    score, true, owner = (list(part) for part in zip(*examples, strict=True)) if examples else ([], [], [])
    found = ranking(
        torch.tensor(score, dtype=torch.float64) / 3,
        torch.tensor(true, dtype=torch.bool),
        torch.tensor(owner, dtype=torch.int64),
        4,
    )
    for client in range(4):
        mine = [(s, t) for s, t, o in examples if o == client]
        own_score, own_true = [s for s, _ in mine], [t for _, t in mine]
        expected = auc_by_pairs(own_score, own_true), precision_by_thresholds(own_score, own_true)
        assert (found[0][client].item(), found[1][client].item()) == pytest.approx(expected, nan_ok=True)


# A federation: clients of many sizes, some of which have next to nothing.


def subgraphs(model: str = "gcn") -> list[Subgraph]:
    return LinkPrediction(8).divide(graph(), nodes_of_clients(), 0, LINK_RATIOS, MODELS[model].propagation)


def federation(model: str = "gcn", chunk: int | None = None) -> Federation:
    return Federation(subgraphs(model), SPEC.classes, torch.device("cpu"), torch.float64, chunk)


def context(decoder: Decoder = "dot", model: str = "gcn", **changes: Any) -> Context:
    return replace(plain_context(model, **changes), task=LinkPrediction(8, decoder))


def metrics_by_hand(task: LinkPrediction, model: Model, weights: Tree, own: Subgraph) -> list[float]:
    """One client, its pairs one by one."""
    data = stack([own], SPEC.classes, dtype=torch.float64)
    z_NH = model.apply(weights, data)
    found = []
    for judged in (own.links.val, own.links.test):
        score = task.score(weights, z_NH, judged.pairs, torch.zeros_like(judged.owner)).tolist()
        found.append(auc_by_pairs(score, judged.true.tolist()))
    return [*found, precision_by_thresholds(score, judged.true.tolist())]


def loss_by_hand(task: LinkPrediction, model: Model, weights: Tree, own: Subgraph) -> float:
    """−ln of the probability that the model gives to what a pair is, the mean over the validation pairs."""
    judged = own.links.val
    if judged.true.all() or not judged.true.any():
        return float("nan")
    z_NH = model.apply(weights, stack([own], SPEC.classes, dtype=torch.float64))
    score = task.score(weights, z_NH, judged.pairs, torch.zeros_like(judged.owner))
    chance = torch.sigmoid(score)
    return float(-torch.where(judged.true, chance, 1 - chance).log().mean())


@DECODER
def test_metrics_are_those_of_each_client_s_own_pairs(decoder):
    task, model, made = LinkPrediction(8, decoder), GCN(8), subgraphs()
    weights = active_weights(model, task, SPEC.features, CLIENTS)
    data = stack(made, SPEC.classes, dtype=torch.float64)
    found = task.evaluate(model, weights, data)
    for client, own in enumerate(made):
        mine = {name: leaf[client : client + 1] for name, leaf in weights.items()}
        expected = metrics_by_hand(task, model, mine, own)
        assert [found[name][client].item() for name in ("val", "test", "test_ap")] == pytest.approx(
            expected, nan_ok=True
        )
        assert found["val_loss"][client].item() == pytest.approx(loss_by_hand(task, model, mine, own), nan_ok=True)
    assert len(found["test"].unique()) > 3
    assert task.sizes(made).tolist() == [int(own.links.test.true.sum()) for own in made]


def test_test_examples_are_edges_and_chance_needs_both_kinds():
    """One client with two edges and a pair that is none to judge by, another with an edge alone."""
    both = Judged(torch.tensor([[0, 1, 0], [1, 2, 2]]), torch.tensor([True, True, False]), torch.zeros(3).long())
    alone = Judged(torch.tensor([[0], [1]]), torch.tensor([True]), torch.zeros(1).long())
    held = [
        replace(own, links=replace(own.links, test=test)) for own, test in zip(subgraphs(), (both, alone), strict=False)
    ]
    task = LinkPrediction(8)
    assert task.sizes(held).tolist() == [2, 1]
    assert task.unlearnt(held)[0] == 0.5
    assert bool(task.unlearnt(held)[1].isnan())


VARIANTS: dict[str, tuple[Algorithm, Decoder]] = {
    name: (method(name), "dot") for name in METHODS if name not in ("oracle", "fedsage")
} | {
    "fedsage": (method("fedsage", generator_epochs=8, generator_rounds=2), "dot"),
    "fedavg, mlp": (method("fedavg"), "mlp"),
    "fedper, mlp": (method("fedper"), "mlp"),
    "fedpub, mlp": (method("fedpub"), "mlp"),
    "pruned, mlp": (method("fedpub", lambda1=8.0, mask_lr=10.0), "mlp"),
}


DECODERS = {"dot": {"decoder.bias"}, "mlp": {"decoder.bias", "decoder1.bias", "decoder1.weight", "decoder2.weight"}}


def test_every_method_is_tried():
    assert {type(algorithm) for algorithm, _ in VARIANTS.values()} | {Oracle} == set(METHODS.values())


@pytest.mark.parametrize("name", VARIANTS)
def test_stacked_clients_do_what_a_loop_over_clients_does(name):
    algorithm, decoder = VARIANTS[name]
    ctx = context(decoder)
    assert ctx.dropout > 0
    together, apart = (
        rounds_of(algorithm, ctx, after_setup(algorithm, ctx, federation(chunk=chunk)), 3, fraction=0.5)
        for chunk in (None, 1)
    )
    assert len(together) == 3
    assert_same(together, apart, 1e-9)
    last = together[-1]
    assert last.metrics.keys() == {*LinkPrediction.metrics}
    assert torch.isfinite(last.metrics["test"]).sum() >= 5
    weights = pack(last.snapshot.clients)
    first = first_weights(federation(), ctx)["conv1.weight"]
    trained = "community_weights" if name == "fedpub-plus" else "weights"  # it begins alone
    assert sum(not torch.equal(own, first) for own in weights[f"{trained}/conv1.weight"]) >= CLIENTS // 2


@pytest.mark.parametrize("name", ["fedavg, mlp", "fedpub, mlp"])
def test_stacked_clients_do_what_a_loop_does_with_graphsage(name):
    algorithm, decoder = VARIANTS[name]
    ctx = context(decoder, "sage")
    together, apart = (rounds_of(algorithm, ctx, federation("sage", chunk), 3) for chunk in (None, 1))
    assert_same(together, apart, 1e-9)


def test_a_client_without_edges_among_others_goes_along():
    """Client 6 has five nodes; without their edges it learns nothing, and what the others do stays finite."""
    whole, nodes = graph(), nodes_of_clients()
    outside = ~torch.isin(whole.edges, nodes[6]).all(0)
    made = LinkPrediction(8).divide(
        replace(whole, edges=whole.edges[:, outside]), nodes, 0, LINK_RATIOS, GCN.propagation
    )
    own = Federation(made, SPEC.classes, torch.device("cpu"), torch.float64)
    for algorithm, decoder in VARIANTS.values():
        ctx = context(decoder)
        last = rounds_of(algorithm, ctx, after_setup(algorithm, ctx, own), 2)[-1]
        assert last.loss_R[6] == 0
        assert (torch.cat([last.loss_R[:6], last.loss_R[7:]]) > 0).all()
        assert all(torch.isnan(found[6]) for found in last.metrics.values())
        assert all(torch.isfinite(leaf).all() for leaf in pack(last.snapshot.clients).values())


def test_alone_a_clear_graph_is_learnt():
    """Two groups of fifteen with a feature each: edges are within them."""
    pairs = [(u, v) for u, v in combinations(range(30), 2) if u // 15 == v // 15 and (u * v) % 5 != 1]
    x = torch.zeros(30, 2, dtype=torch.float64)
    x[:15, 0] = x[15:, 1] = 1
    own = Federation(divide(graph_of(30, *pairs, x=x), range(30)), 2, torch.device("cpu"), torch.float64)
    found = rounds_of(Local(), context(dropout=0.0, lr=0.05), own, 20)
    assert found[-1].loss_R[0] < found[0].loss_R[0] / 1.5
    assert found[-1].metrics["test"][0] > 0.8


def test_fed_avg_weighs_clients_by_their_training_edges():
    own, ctx = federation(), context("mlp")
    sizes = doubles([edges.links.train.shape[1] for edges in own.subgraphs])
    assert own.chunks(list(range(CLIENTS)))[0].num_train_K.tolist() == sizes.tolist()
    assert len(sizes.unique()) > 5
    (found,) = rounds_of(FedAvg(), ctx, own, 1)
    server, clients = tree(found.snapshot.server["weights"]), tree(found.snapshot.clients["weights"])
    assert DECODERS["mlp"] < server.keys()
    for name, leaf in clients.items():
        expected = torch.einsum("k,k...->...", sizes / sizes.sum(), leaf)
        torch.testing.assert_close(server[name][0], expected, rtol=0, atol=1e-12)
    # The decoder is trained, by everybody in another way.
    first = first_weights(own, ctx)
    for name in DECODERS["mlp"]:
        assert all(not torch.equal(leaf, first[name]) for leaf in clients[name])
        assert not torch.equal(clients[name][0], clients[name][1])


def test_fed_per_shares_the_decoder_and_keeps_the_last_layer():
    ctx, own = context("mlp"), federation()
    algorithm = FedPer()
    first = first_weights(own, ctx)
    server = algorithm.init_server(first, CLIENTS)
    data = own.chunks(list(range(CLIENTS)))[0]
    state = algorithm.init_client(first, CLIENTS)
    _, up, _ = algorithm.client(replace(ctx, round=1), state, algorithm.send(server, data.ids_K), data)
    base = tree(up["base"])
    assert {name for name in first if name not in base} == {"classifier.weight", "classifier.bias"}
    after = rounds_of(algorithm, ctx, own, 2)[-1]
    shared = tree(after.snapshot.server["base"])
    assert {name.split(".")[0] for name in shared} == {"conv1", "conv2", "decoder", "decoder1", "decoder2"}
    assert not torch.equal(shared["decoder1.weight"][0], first["decoder1.weight"])


def test_both_decoders_begin_with_the_same_encoder():
    dot, mlp = (first_weights(federation(), context(decoder)) for decoder in ("dot", "mlp"))
    encoder = GCN(8).init(5, 8, torch.Generator()).keys()
    assert (dot.keys() - encoder, mlp.keys() - encoder) == (DECODERS["dot"], DECODERS["mlp"])
    assert all(torch.equal(leaf, mlp[name]) for name, leaf in dot.items())
    shapes = [list(mlp[name].shape) for name in sorted(DECODERS["mlp"])]
    assert shapes == [[1], [8], [8, 8], [8, 1]]
    assert mlp["classifier.weight"].shape == (8, 8), "the encoder's outputs are as wide as its hidden layers"


# FED-PUB.


MATRICES = {"dot": {"conv1.weight", "conv2.weight", "classifier.weight"}}
MATRICES["mlp"] = MATRICES["dot"] | {"decoder1.weight", "decoder2.weight"}


@DECODER
def test_fed_pub_trains_a_mask_on_every_matrix_and_compares_clients(decoder):
    own = federation()
    last = rounds_of(method("fedpub"), context(decoder), own, 3)[-1]
    masks = tree(last.snapshot.clients["masks"])
    assert masks.keys() == MATRICES[decoder]
    for name, mask in masks.items():
        assert all((one != 1).any() for one in mask), name
        assert not torch.equal(mask[0], mask[1]), name
    # What no node of a client has, along training edges, is pruned from the start.
    seen_KF = own.chunks(list(range(CLIENTS)))[0].seen_walks[0]
    assert torch.equal((masks["conv1.weight"] != 0).any(2), seen_KF)
    assert 0 < seen_KF.double().mean() < 1
    assert ((last.sparsity_R > 0) & (last.sparsity_R < 1)).all()
    similarity = last.notes["similarity"]
    assert similarity.shape == (CLIENTS, CLIENTS)
    torch.testing.assert_close(similarity.diagonal(), torch.ones(CLIENTS, dtype=torch.float64))
    torch.testing.assert_close(similarity, similarity.T)
    assert len(similarity.unique()) > CLIENTS
    assert similarity.abs().max() <= 1 + 1e-12


@DECODER
def test_strong_penalties_prune_every_matrix(decoder):
    algorithm = method("fedpub", lambda1=6.0, mask_lr=10.0)
    first, *others = rounds_of(algorithm, context(decoder), federation(), 3)
    pruned = {name for found in others for name, mask in found.snapshot.clients["masks"].items() if not mask.all()}
    assert pruned == MATRICES[decoder]
    assert max(float(found.sparsity_R.max()) for found in others) > float(first.sparsity_R.max())
    own = others[-1].snapshot.clients
    for name, mask in tree(own["masks"]).items():
        assert not algorithm.personal(own)[name][mask == 0].any()


@pytest.mark.parametrize(
    "options", [{"measure": "parameter"}, {"measure": "gradient"}, {"measure": "label"}, {"proxy": "feature"}], ids=str
)
def test_fed_pub_s_other_measures_work_on_links(options):
    (found,) = rounds_of(method("fedpub", **options), context(), federation(), 1)
    similarity = found.notes["similarity"]
    assert torch.isfinite(similarity).all()
    assert len(similarity.unique()) > CLIENTS


def test_nodes_without_a_label_take_part():
    whole = graph()
    y = whole.y.clone()
    y[::2] = -1
    made = LinkPrediction(8).divide(replace(whole, y=y), nodes_of_clients(), 0, LINK_RATIOS, "symmetric")
    own, plain = (Federation(parts, SPEC.classes, torch.device("cpu"), torch.float64) for parts in (made, subgraphs()))
    assert_same(rounds_of(FedAvg(), context(), own, 2), rounds_of(FedAvg(), context(), plain, 2))
    (found,) = rounds_of(method("fedpub", measure="label"), context(), own, 1)
    assert torch.isfinite(found.notes["similarity"]).all()


# The oracle.


def an_experiment(path: str | Path, **changes: Any) -> Experiment:
    plain: dict[str, Any] = {"dataset": str(path), "scenario": "natural", "task": "link-prediction"}
    plain |= {"hidden": 8, "rounds": 4, "epochs": 2, "method": "fedavg"}
    return Experiment(**(plain | changes))


@DECODER
@pytest.mark.parametrize(("scenario", "clients"), [("natural", None), ("overlapping", 10)])
def test_the_oracle_is_judged_by_each_client_s_own_pairs(scenario, clients, decoder, tmp_path):
    graph().save(tmp_path / "tiny.graph")
    one = an_experiment(
        tmp_path / "tiny.graph", scenario=scenario, clients=clients, decoder=decoder, dtype="float64", seed=1
    )
    divided = prepare(one.resolve()).federation.subgraphs
    oracle = replace(one, method="oracle").resolve()
    ready, again = prepare(oracle), prepare(oracle, chunk=1)
    ctx = oracle.context
    found = rounds_of(Oracle(), ctx, ready.federation, 3)
    assert_same(found, rounds_of(Oracle(), ctx, again.federation, 3), 1e-9)
    weights = tree(found[-1].snapshot.clients["weights"])
    assert len(weights["conv1.weight"]) == 1
    (everything,) = ready.federation.subgraphs
    z_NH = ctx.model.apply(weights, stack([everything], SPEC.classes, dtype=torch.float64))
    for own in divided:
        for name, judged in (("val", own.links.val), ("test", own.links.test)):
            pairs, true = own.nodes[judged.pairs], judged.true.tolist()
            score = ctx.task.score(weights, z_NH, pairs, torch.zeros_like(judged.owner)).tolist()
            assert found[-1].metrics[name][own.id].item() == pytest.approx(auc_by_pairs(score, true), nan_ok=True)
        expected = precision_by_thresholds(score, true)
        assert found[-1].metrics["test_ap"][own.id].item() == pytest.approx(expected, nan_ok=True)
    assert len(found[-1].metrics["test"].unique()) > 3
    assert len(found[-1].loss_R.unique()) == 1
    assert everything.num_train > sum(own.num_train for own in divided) or scenario == "overlapping"
    sizes = ctx.task.sizes([everything], ready.federation.report).tolist()
    assert sizes == [int(own.links.test.true.sum()) for own in divided]


# Experiments and the command line.


def test_the_ratios_of_an_experiment_are_those_of_its_task():
    assert Experiment(task="link-prediction").resolve().ratios == (0.85, 0.05, 0.1)
    assert Experiment(dataset="ogbn-arxiv", clients=10, task="link-prediction").resolve().ratios == (0.85, 0.05, 0.1)
    assert Experiment().resolve().ratios == (0.2, 0.4, 0.4)
    chosen = Experiment(task="link-prediction", ratios=(0.6, 0.2, 0.2)).resolve()
    assert chosen.ratios == (0.6, 0.2, 0.2)
    assert Experiment.from_json(chosen.experiment.to_json(), Path("config.json")) == chosen.experiment


def test_rounds_and_epochs_of_links_are_the_same_for_all_graphs():
    for dataset in ("communities", "photo", "ogbn-arxiv"):
        found = Experiment(dataset=dataset, clients=10, task="link-prediction").resolve()
        assert (found.rounds, found.epochs) == (100, 20)
        chosen = Experiment(dataset=dataset, clients=10, task="link-prediction", rounds=7, epochs=5).resolve()
        assert (chosen.rounds, chosen.epochs) == (7, 5)


def test_an_experiment_s_ratios_divide_its_clients_edges(graph_file):
    for ratios in (None, (0.6, 0.2, 0.2)):
        ready = prepare(an_experiment(graph_file, ratios=ratios).resolve())
        _, val, test = ratios or LINK_RATIOS
        for own in ready.federation.subgraphs:
            count = own.num_train + int(own.links.val.true.sum() + own.links.test.true.sum())
            assert int(own.links.val.true.sum()) == round(val * count)
            assert int(own.links.test.true.sum()) == round(test * count)


def test_a_data_seed_keeps_the_pairs_while_the_seed_changes(graph_file):
    one, same, other = (
        prepare(an_experiment(graph_file, seed=seed, data_seed=data).resolve()).federation.subgraphs[0].links
        for seed, data in ((0, 3), (1, 3), (0, 4))
    )
    assert torch.equal(one.test.pairs, same.test.pairs)
    assert not torch.equal(one.test.pairs, other.test.pairs)


def test_the_network_is_refused_where_there_are_no_links():
    with pytest.raises(FedpubError, match=r"decoder=mlp has no effect on node-classification; add task=link-pred"):
        Experiment(decoder="mlp").resolve()
    assert Experiment(decoder="mlp", task="link-prediction").resolve().task == LinkPrediction(128, "mlp")


@pytest.fixture
def words(graph_file: str) -> list[str]:
    """The words of a run of a moment."""
    plain = ["run", "--quiet", "--task", "link-prediction", "--dataset", graph_file, "--scenario", "natural"]
    return [*plain, "--hidden", "8", "--rounds", "4", "--epochs", "2"]


def test_a_run_on_the_built_in_graph_prints_both_metrics(capsys):
    assert main(["run", "--task", "link-prediction", "--rounds", "2", "--hidden", "8"]) == 0
    said = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    values = {line[0].strip(): line[-1].strip() for line in said}
    for name in ("test ROC-AUC", "average precision"):
        assert values[name].endswith(" %")
        assert 0 < float(values[name].removesuffix(" %")) < 100
    assert "macro-F1" not in values


@pytest.mark.parametrize("flags", [["--decoder", "mlp"], ["--method", "fedgnn"], ["--method", "oracle"]], ids=" ".join)
def test_a_run_directory_has_both_metrics(flags, words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*words, *flags, "--out", str(out)]) == 0
    with (out / "rounds.csv").open(newline="") as lines:
        rounds = list(csv.DictReader(lines))
    with (out / "clients.csv").open(newline="") as lines:
        clients = list(csv.DictReader(lines))
    assert (len(rounds), len(clients)) == (4, 4 * 5)
    assert {"val", "test", "test_ap", "loss"} <= rounds[0].keys() & clients[0].keys()
    assert not {"test_f1"} & (rounds[0].keys() | clients[0].keys())
    summary = json.loads((out / "summary.json").read_text())
    assert summary["metric"] == "ROC-AUC"
    best = rounds[summary["best_round"] - 1]
    mine = [one for one in clients if one["round"] == best["round"]]
    for name in ("test", "test_ap"):
        assert summary[name] == float(best[name]) == pytest.approx(np.mean([float(one[name]) for one in mine]))
        assert 0 < summary[name] < 1
    config = json.loads((out / "config.json").read_text())
    assert (config["task"], config["ratios"]) == ("link-prediction", [0.85, 0.05, 0.1])
    said = capsys.readouterr().out
    assert f"{100 * summary['test']:.2f} %" in said
    assert f"{100 * summary['test_ap']:.2f} %" in said
    names = read_tensors(out / "models.safetensors")[0].keys()
    assert ("decoder2.weight" in names) == ("mlp" in flags)


@pytest.mark.parametrize(
    "changes",
    [{"method": "fedpub", "decoder": "mlp"}, {"method": "oracle"}, {"method": "fedavg", "fraction": 0.6}],
    ids=lambda changes: changes["method"],
)
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(changes, graph_file, tmp_path, capsys):
    one = an_experiment(graph_file, **changes)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(one, whole, checkpoint_seconds=0, keep_checkpoint=True)
    run_until(one, parts, 3, checkpoint_seconds=0)
    assert not (parts / "summary.json").exists()
    assert main(["run", "--quiet", "--resume", str(parts), "--keep-checkpoint"]) == 0
    assert "test ROC-AUC" in capsys.readouterr().out
    assert kept(parts) == kept(whole)


def test_what_set_up_made_is_not_made_again(graph_file, tmp_path):
    one = an_experiment(graph_file, method="fedgnn")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(one, whole, checkpoint_seconds=0)
    run_until(one, parts, 2, checkpoint_seconds=0)
    before = (parts / "setup.safetensors").read_bytes()
    run(one, parts, resume=True, keep_checkpoint=True)
    assert (parts / "setup.safetensors").read_bytes() == before
    assert all(kept(parts)[name] == kept(whole)[name] for name in ("clients.csv", "models.safetensors"))


@pytest.mark.parametrize("ratios", ["0.85 0.05 0.2", "0 0.5 0.5", "1.5 -0.25 -0.25"])
def test_bad_ratios_are_one_sentence(ratios, words, tmp_path, capsys):
    said = refused([*words, "--ratios", *ratios.split(), "--out", str(tmp_path / "new")], capsys)
    assert "must sum to 1 with a positive first one, as in 0.85 0.05 0.1" in said
    assert not (tmp_path / "new").exists()


def test_the_network_without_links_is_one_sentence(capsys):
    said = refused(["run", "--quiet", "--decoder", "mlp"], capsys)
    assert "--decoder mlp has no effect on node-classification; add --task link-prediction" in said


def test_a_comparison_prints_a_table(graph_file, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    plain = ["compare", "--quiet", "--task", "link-prediction", "--dataset", graph_file, "--scenario", "natural"]
    plain += [
        "--hidden",
        "8",
        "--rounds",
        "3",
        "--epochs",
        "2",
        "--seeds",
        "2",
        "--methods",
        "fedpub",
        "local",
        "oracle",
    ]
    assert main([*plain, "--json", str(tmp_path / "all.json"), "--markdown", str(tmp_path / "all.md")]) == 0
    table = capsys.readouterr().out
    assert "test ROC-AUC in percent, 2 seeds" in table
    assert "test ROC-AUC in percent" in (tmp_path / "all.md").read_text()
    runs = json.loads((tmp_path / "all.json").read_text())
    for name in ("fedpub", "local", "oracle"):
        own = [one for one in runs if one["method"] == name]
        assert [one["metric"] for one in own] == ["ROC-AUC"] * 2
        (line,) = (line for line in table.splitlines() if line.split()[1:2] == [title_of(name)])
        assert f"{np.mean([100 * one['test'] for one in own]):.2f} ± " in line


NO_EDGES, NONE_WITHIN, ONE_EACH = (), ((0, 1), (2, 3), (1, 4), (2, 5)), ((0, 1), (0, 2), (1, 3))


@pytest.mark.parametrize("name", ["fedpub", "fedsage", "oracle"])
@pytest.mark.parametrize("pairs", [NO_EDGES, NONE_WITHIN, ONE_EACH], ids=["none", "none within", "none to judge by"])
def test_a_graph_without_enough_edges_within_clients_is_one_sentence(pairs, name, tmp_path, capsys):
    """Two clients: the even nodes and the odd ones."""
    whole = replace(graph_of(6, *pairs), client=torch.arange(6) % 2, client_names=("even", "odd"))
    whole.save(tmp_path / "hand.graph")
    words = ["run", "--quiet", "--task", "link-prediction", "--dataset", str(tmp_path / "hand.graph")]
    words += ["--method", name, "--hidden", "4", "--rounds", "2", "--out", str(tmp_path / "new")]
    said = refused(words, capsys)
    assert "graph 'hand-made' has too few edges for link prediction: " in said
    assert not (tmp_path / "new").exists()


def test_edges_that_all_validate_and_test_are_too_few():
    """Of two edges 40 % validate and 40 % test: one each, and none is left to train."""
    how = (graph_of(3, (0, 1), (1, 2)), (torch.arange(3),), 0, (0.2, 0.4, 0.4), "symmetric")
    for make in (LinkPrediction(4).divide, LinkPrediction(4).undivided):
        with pytest.raises(FedpubError, match="too few edges for link prediction"):
            make(*how)
