"""The model hops, and the matrices of weighted, directed and several kinds of edges, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients import stack as clients_file
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Propagation, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.models import MODELS, Dropout, GraphSAGE, Hops, Model, Twin
from fedpub.models.base import dropout_seeds, numbered
from fedpub.models.proxy import P_OUT, ProxyKind, feature_proxy, narrowed, proxy_structure, random_proxy
from small import NODES, random_tree, small_graph, small_split

RELATIONAL = pytest.mark.parametrize("model", [Hops(4), GraphSAGE(4), Twin(4)], ids=["hops", "sage", "twin"])


def path(**changes: Any) -> Graph:
    """0 - 1 - 2"""
    edges = torch.tensor([[0, 1], [1, 2]])
    x = torch.eye(3, dtype=torch.float64)
    return Graph(x, torch.tensor([0, 1, 0]), edges, ("a", "b"), **changes).validate()


def matrices(graph: Graph, kind: Propagation) -> list[list[list[float]]]:
    nothing = torch.zeros(3, dtype=torch.bool)
    own = subgraph_of(graph, torch.arange(3), (nothing, nothing, nothing), 0, kind)  # type: ignore[arg-type]
    return [matrix.toarray().tolist() for matrix in own.adjacencies]


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-10, atol=1e-12)


def test_weights_on_three_nodes() -> None:
    weighted = path(weight=torch.tensor([3.0, 5.0], dtype=torch.float64))
    half, last = 3 / sqrt(4 * 9), 5 / sqrt(9 * 6)  # with a self-loop of one, the nodes have 4, 9 and 6
    close(matrices(weighted, "symmetric"), [[[1 / 4, half, 0], [half, 1 / 9, last], [0, last, 1 / 6]]])
    close(matrices(weighted, "mean"), [[[0, 1, 0], [3 / 8, 0, 5 / 8], [0, 1, 0]]])


def test_directions_on_three_nodes() -> None:
    directed = path(directed=True)
    into = [[sqrt(0.5), 0, 0], [0.5, 0.5, 0], [0, 0.5, sqrt(0.5)]]  # who is paid 1, 2, 2; who pays 2, 2, 1
    close(matrices(directed, "symmetric"), [into, np.transpose(into)])
    close(matrices(directed, "mean"), [[[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 0, 1], [0, 0, 0]]])


def test_kinds_on_three_nodes() -> None:
    kinds = path(kind=torch.tensor([0, 1]), kinds=("card", "transfer"))
    first = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    close(matrices(kinds, "symmetric"), [first, [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]])
    close(matrices(kinds, "mean"), [[[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 1, 0]]])


def test_directions_kinds_and_weights_together() -> None:
    everything = path(
        directed=True,
        kind=torch.tensor([0, 1]),
        kinds=("card", "transfer"),
        weight=torch.tensor([3.0, 1.0], dtype=torch.float64),
    )
    found = matrices(everything, "symmetric")
    assert len(found) == everything.num_relations == 4
    close(found[0], [[1 / 2, 0, 0], [3 / 4, 1 / 2, 0], [0, 0, 1]])  # card, in: rows 1, 4, 1 and columns 4, 1, 1
    close(found[1], np.transpose(found[0]))
    close(found[2], [[1, 0, 0], [0, sqrt(0.5), 0], [0, 0.5, sqrt(0.5)]])  # transfer, in: rows 1, 1, 2, columns 1, 2, 1
    close(found[3], np.transpose(found[2]))


def clients(graph: Graph, model: Model) -> list[Subgraph]:
    chosen = small_split()
    return [
        subgraph_of(graph, torch.tensor(own), chosen, client, model.propagation) for client, own in enumerate(NODES)
    ]


def stacked(graph: Graph, model: Model, **how: Any) -> Clients:
    return stack(clients(graph, model), 3, dtype=torch.float64, steps=model.steps, **how)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_one_are_no_weights(name: str) -> None:
    model, plain = MODELS[name](4), small_graph()
    weighted = replace(plain, weight=torch.ones(plain.edges.shape[1], dtype=torch.float64)).validate()
    w = random_tree(model, 3)
    close(model.apply(w, stacked(weighted, model)), model.apply(w, stacked(plain, model)))
    heavier = replace(weighted, weight=weighted.weight * 2)  # type: ignore[operator]
    assert not torch.allclose(model.apply(w, stacked(heavier, model)), model.apply(w, stacked(plain, model))) or (
        model.propagation == "mean"  # a mean does not know the unit of its weights
    )


def both_ways(plain: Graph) -> Graph:
    ends = torch.cat([plain.edges, plain.edges.flip(0)], 1)
    order = torch.argsort(ends[0] * plain.num_nodes + ends[1])
    return replace(plain, edges=ends[:, order], directed=True).validate()


def shared_out(w: Tree, two: Model) -> Tree:
    """Weights for two relations, whose sums are the weights of the one."""
    found = dict(w)
    for name in random_tree(two, 3).keys() - w.keys():
        (base,) = (one for one in w if name in _second(one))
        found[name] = w[base] / 3
        found[base] = w[base] * 2 / 3
    return found


def _second(name: str) -> tuple[str, str]:
    stem, _, rest = name.partition(".")
    return numbered(name, 1), f"{numbered(stem, 1)}.{rest}"


@RELATIONAL
def test_an_undirected_graph_in_both_directions_is_itself(model: Model) -> None:
    plain = small_graph()
    directed = both_ways(plain)
    for one, other in zip(clients(plain, model), clients(directed, model), strict=True):
        for matrix in other.adjacencies:
            close(matrix.toarray(), one.adjacency.toarray())
    two, w = model.related(2), random_tree(model, 3)
    apart = shared_out(w, two)
    assert len(apart) > len(w)
    close(two.apply(apart, stacked(directed, two)), model.apply(w, stacked(plain, model)))


@RELATIONAL
def test_directions_make_a_difference(model: Model) -> None:
    plain = small_graph()
    one_way, two = replace(plain, directed=True).validate(), model.related(2)
    apart = shared_out(random_tree(model, 3), two)
    assert not torch.allclose(two.apply(apart, stacked(one_way, two)), two.apply(apart, stacked(both_ways(plain), two)))


def by_hand(model: Hops, w: Tree, own: Subgraph, client: int) -> Tensor:
    """H = ReLU(norm(Σ_r Â^r X W_r + b)) of one client, dense."""
    x, a = torch.from_numpy(own.x.toarray()), torch.from_numpy(own.adjacency.toarray())

    def norm(h: Tensor) -> Tensor:
        return (h - h.mean(1, keepdim=True)) / (h.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()

    total = w["hop.bias"][client] + x @ w["hop0.weight"][client]
    for r in range(1, model.hops + 1):
        x = a @ x
        total = total + x @ w[f"hop{r}.weight"][client]
    h = torch.relu(norm(total))
    if model.layers == 2:
        h = torch.relu(norm(h @ w["dense.weight"][client] + w["dense.bias"][client])) + h
    return h @ w["classifier.weight"][client] + w["classifier.bias"][client]


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["dense", "sparse"])
@pytest.mark.parametrize("batches", [False, True], ids=["walking", "walked"])
@pytest.mark.parametrize("model", [Hops(4), Hops(4, hops=3), Hops(4, layers=2), Hops(4, hops=1)])
def test_hops_by_hand(model: Hops, batches: bool, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_file, "SPARSE_BELOW", {torch.float64: share})
    w, whole = random_tree(model, 3), clients(small_graph(), model)
    data = stacked(small_graph(), model, apart=batches, propagates=False)
    assert (None in data.walks) <= (not batches)
    found = torch.split(model.apply(w, data), list(data.segments.sizes))
    for client, own in enumerate(whole):
        close(found[client], by_hand(model, w, own, client))


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["dense", "sparse"])
def test_some_nodes_of_some_clients_are_computed_as_among_all(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_file, "SPARSE_BELOW", {torch.float64: share})
    model = Hops(4)
    data, w = stacked(small_graph(), model, apart=True), random_tree(model, 3)
    dropout = Dropout(0.5, dropout_seeds(0, 1, 0))
    owner = data.segments.owner_N
    chosen = torch.nonzero((owner != 1) & (torch.arange(len(owner)) % 2 == 0)).flatten()
    some = data.rows(chosen, torch.tensor([0, 2]))
    own = {name: leaf[[0, 2]] for name, leaf in w.items()}
    close(model.apply(own, some), model.apply(w, data)[chosen])
    close(model.apply(own, some, dropout), model.apply(w, data, dropout)[chosen])
    assert some.ids_K.tolist() == [0, 2]
    assert some.y_N.tolist() == data.y_N[chosen].tolist()


def hidden_by_hand(model: Hops, w: Tree, client: int, x: Tensor, a: Tensor) -> Tensor:
    """H of one client's model on a graph whose edges are those of all relations."""
    total = w["hop.bias"][client] + x @ w["hop0.weight"][client]
    for r in range(1, model.hops + 1):
        x = a @ x
        for name in (f"hop{r}", f"hop{r}2")[: model.relations]:
            total = total + x @ w[f"{name}.weight"][client]
    h = torch.relu(torch.nn.functional.layer_norm(total, (model.hidden,)))
    if model.layers == 2:
        further = h @ w["dense.weight"][client] + w["dense.bias"][client]
        h = torch.relu(torch.nn.functional.layer_norm(further, (model.hidden,))) + h
    return h


@pytest.mark.parametrize("kind", ["sbm", "er", "one", "feature"])
@pytest.mark.parametrize("model", [Hops(4), Hops(4, hops=3, layers=2), Hops(4, hops=1, relations=2)], ids=str)
def test_the_embedding_is_the_mean_of_the_hidden_values_on_the_proxy_graph(model: Hops, kind: ProxyKind) -> None:
    w, structure = random_tree(model, 3), "sbm" if kind == "feature" else kind
    a_PP = torch.from_numpy(proxy_structure(structure, 5, "symmetric", P_OUT))
    if kind == "feature":
        proxy = feature_proxy(5, stacked(small_graph(), model.related(1)), a_PP.numpy(), model.steps)
        x_K = list(proxy.x)
    else:
        where = (torch.device("cpu"), torch.float64)
        proxy = random_proxy(kind, 5, 5, model.propagation, P_OUT, *where, model.steps)
        x_K = [proxy.x] * 3
    found = model.embed(w, proxy)
    assert found.shape == (3, 4)
    for client, x in enumerate(x_K):
        close(found[client], hidden_by_hand(model, w, client, x, a_PP).mean(0))


def test_a_narrow_proxy_graph_has_the_same_embeddings() -> None:
    """Every client sees three of the five features, and its weights on the others are zero."""
    model, data = Hops(4), stacked(small_graph(), Hops(4))
    proxy = random_proxy("sbm", 5, 5, "symmetric", P_OUT, torch.device("cpu"), torch.float64, model.steps)
    seen_KF = torch.stack([*model.seen(data).values()]).any(0)
    assert seen_KF.sum(1).tolist() == [2, 3, 3]
    w = random_tree(model, 3)
    pruned = w | {name: w[name] * seen_KF.unsqueeze(2) for name in model.inputs}
    narrow = narrowed(proxy, seen_KF)
    assert narrow.x.shape == (3, 500, 3)
    close(model.embed(pruned, narrow), model.embed(pruned, proxy))


def test_what_each_step_can_reach_by_hand() -> None:
    """Three nodes with a feature each. Two of them are joined, and hear of each other's; the third is alone."""
    whole = Graph(torch.eye(3, 4, dtype=torch.float64), torch.tensor([0, 1, 0]), torch.tensor([[0], [1]]), ("a", "b"))
    nothing = torch.zeros(3, dtype=torch.bool)
    parts = [torch.tensor([0, 1]), torch.tensor([2])]
    held = [
        subgraph_of(whole, own, (nothing,) * 3, client, "symmetric")  # type: ignore[arg-type]
        for client, own in enumerate(parts)
    ]
    seen = Hops(4).seen(stack(held, 2, dtype=torch.float64, steps=2))
    assert seen.keys() == {"hop0.weight", "hop1.weight", "hop2.weight"}
    for seen_KF in seen.values():
        assert seen_KF.int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
