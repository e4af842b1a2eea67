"""What FED-PUB-plus adds, in numbers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpub.algorithms import FedPub
from fedpub.algorithms.fedpub_plus import ALONE, FedPubPlus
from fedpub.engine.simulate import Federation, simulate
from fedpub.engine.size import message_bytes
from fedpub.models import GCN
from fedpub.models.twin import Twin
from fedpub.tree import State, Tree, pack, stacked, state_map, tree_map
from small import context, random_tree, small_clients, subgraphs

ONE = Twin(4)


def one_number(mean: float, now: float, rounds: int, alone: tuple[float, float] = (0.0, 0.0)) -> State:
    """The state of a client whose model is one number; `alone`: that of the model trained alone, and its mean."""

    def leaf(value: float) -> Tree:
        return {"w": torch.tensor([[[value]]], dtype=torch.float64)}

    return {
        "weights": leaf(now),
        "masks": leaf(1.0),
        "mean": leaf(mean),
        "rounds": torch.tensor([float(rounds)], dtype=torch.float64),
        ALONE + "weights": leaf(alone[0]),
        ALONE + "mean": leaf(alone[1]),
        "val": torch.tensor([0.36], dtype=torch.float64),
        ALONE + "val": torch.tensor([0.0], dtype=torch.float64),
    }


def test_the_mean_over_rounds():
    """β = 0.8; weights 1, then 2: 0.8 · 0.2 · 1 + 0.2 · 2 = 0.56 of 1 − 0.64 = 0.36, which is 14/9."""
    method = FedPubPlus(average=0.8)
    first = method._averaged({"w": torch.zeros(1, 1, 1).double()}, {"w": torch.ones(1, 1, 1).double()})
    second = method._averaged(first, {"w": torch.full((1, 1, 1), 2.0).double()})
    assert second["w"].item() == pytest.approx(0.56)
    assert method.personal(one_number(0.56, 2.0, 2))["w"].item() == pytest.approx(14 / 9)


def test_before_the_first_round_the_weights_themselves_count():
    assert FedPubPlus().personal(one_number(0.0, 7.0, 0))["w"].item() == 7


def test_what_is_pruned_now_is_zero_whatever_it_was():
    state = one_number(0.56, 2.0, 2)
    state["masks"]["w"].zero_()
    assert FedPubPlus().personal(state)["w"].item() == 0


@pytest.mark.parametrize(("val", "expected"), [(0.363, 14 / 9), (0.364, 5.0)])
def test_the_model_trained_alone_must_be_better_by_the_margin(val, expected):
    """Both validation means have 0.36 of their weight after two rounds, so a margin of 0.01 is 0.0036 of them."""
    state = one_number(0.56, 2.0, 2, alone=(9.0, 1.8)) | {ALONE + "val": torch.tensor([val], dtype=torch.float64)}
    assert FedPubPlus(margin=0.01).personal(state)["w"].item() == pytest.approx(expected)
    assert FedPubPlus(choose=False).personal(state)["w"].item() == pytest.approx(14 / 9)


def test_what_is_sent_is_fed_pub_s():
    """Neither the means nor the model trained alone change what leaves a client, or what it learns together."""
    ctx = replace(context(dropout=0.3), model=ONE)
    data, server = small_clients(), {"weights": random_tree(ONE, 3)}
    ids = torch.arange(3)
    uploads = []
    for method in (FedPub(tau=3.0), FedPubPlus(tau=3.0)):
        own = method.init_client(random_tree(ONE), 3)
        _, up, _ = method.client(ctx, own, method.send(state_map(torch.clone, server), ids), data)
        uploads.append(up)
    assert pack(uploads[0]).keys() == pack(uploads[1]).keys()
    for name, leaf in pack(uploads[0]).items():
        torch.testing.assert_close(leaf, pack(uploads[1])[name], rtol=0, atol=0)


def test_the_model_trained_alone_is_that_of_the_method_local():
    from fedpub.algorithms import Local

    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float64)
    ctx = replace(context(epochs=2, dropout=0.3), model=ONE)
    plus, local = (list(simulate(method, ctx, federation, 3))[-1] for method in (FedPubPlus(tau=3.0), Local()))
    for name, leaf in local.snapshot.clients["weights"].items():
        torch.testing.assert_close(plus.snapshot.clients[ALONE + "weights"][name], leaf, rtol=1e-12, atol=1e-14)


def test_half_as_wide_it_sends_no_more_than_fed_pub():
    """With 1,433 features and 7 classes, width 64 with two matrices against width 128 with one."""
    stream = torch.Generator().manual_seed(0)
    sizes = []
    for model in (Twin(64), GCN(128)):
        weights = stacked(tree_map(torch.Tensor.float, model.init(1433, 7, stream)), 1)
        sizes.append(int(message_bytes({"weights": weights}, 1, torch.device("cpu"))[0]))
    assert sizes[0] <= sizes[1]


def test_the_twin_model_by_its_formula():
    """ReLU(norm(X S1 + ÂX N1 + b1)), then the same with a way round it, in NumPy."""
    own = subgraphs()[1]
    w = {name: leaf.numpy() for name, leaf in random_tree(ONE).items()}

    def norm(h):
        centred = h - h.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    x, a = own.x.toarray(), own.adjacency.toarray()
    h = np.maximum(norm(x @ w["conv1.self"] + a @ x @ w["conv1.neighbour"] + w["conv1.bias"]), 0)
    h = np.maximum(norm(h @ w["conv2.self"] + a @ h @ w["conv2.neighbour"] + w["conv2.bias"]), 0) + h
    expected = h @ w["classifier.weight"] + w["classifier.bias"]
    found = ONE.apply(stacked(random_tree(ONE), 1), small_clients(1))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
