"""Every loss term moves what it should and nothing else; every server step by hand; what leaves a client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import product

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedpub.algorithms import (
    GCFL,
    METHODS,
    Algorithm,
    Context,
    FedAvg,
    FedGNN,
    FedPer,
    FedProx,
    FedPub,
    FedSage,
    Local,
    title_of,
    training,
)
from fedpub.algorithms.fedpub_plus import FedPubPlus
from fedpub.algorithms.gcfl import minimum_cut
from fedpub.algorithms.masks import MASK, is_matrix, masked
from fedpub.algorithms.training import train, weighted_mean
from fedpub.core.kernels import average_sent
from fedpub.core.message import Message
from fedpub.core.optim import adam_step
from fedpub.core.tree import State, Tree, pack, select, state_map, tree_map, unpack, update
from fedpub.data.clients.stack import stack
from fedpub.data.synthetic import communities_graph
from fedpub.engine.cuda_graph import looks_at_values
from fedpub.engine.rounds import drawn_weights, sparsity
from fedpub.engine.simulate import Federation, simulate
from fedpub.engine.size import message_bytes
from fedpub.models import GCN, Dropout, GraphSAGE, Model
from fedpub.models.base import dropout_seeds
from fedpub.models.proxy import P_OUT, feature_proxy, proxy_structure, random_proxy
from fedpub.tasks import LinkPrediction, NodeClassification, Step, Task
from fedpub.tasks import base as tasks_base
from small import SEEN_X, TINY, assert_trees_equal, context, made_for, random_tree, small_clients, subgraphs

LN3 = math.log(3)


def short(method: Algorithm) -> str:
    """A method's name and what differs from its defaults."""
    plain = type(method)()
    changed = [f"{one.name}={getattr(method, one.name)}" for one in fields(method)]
    usual = {f"{one.name}={getattr(plain, one.name)}" for one in fields(method)} | {"tau=3.0"}
    return " ".join([type(method).__name__, *(text for text in changed if text not in usual)])


MODEL = pytest.mark.parametrize("model", [GCN(4), GraphSAGE(4)], ids=["gcn", "sage"])
SOME_OF_EACH = (
    Local(),
    FedAvg(),
    FedProx(mu=0.5),
    FedPer(),
    GCFL(eps1=10.0, eps2=0.0, warm_up=0),
    FedPub(tau=3.0),
    FedPub(tau=3.0, lambda1=2.0, lambda2=0.5, mask_lr=3.0),
    FedPub(tau=3.0, official=True),
    FedPub(tau=3.0, masks=False, measure="label"),
    FedPub(tau=3.0, proxy="feature", measure="function", communities="explicit"),
)
EACH = pytest.mark.parametrize("method", SOME_OF_EACH, ids=short)


def doubles(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def ids(*clients: int) -> Tensor:
    return torch.tensor(clients)


def copy(state: State) -> State:
    return state_map(torch.clone, state)


def copied(message: Message) -> Message:
    return Message.of(copy(message.flat()))


def assert_states_equal(one: State, other: State, exact: bool = True) -> None:
    assert_trees_equal(pack(one), pack(other), exact)


def begin(method: Algorithm, model: Model) -> tuple[State, State]:
    w0 = random_tree(model)
    return method.init_server(w0, 3), method.init_client(w0, 3)


def local_steps(
    method: Algorithm, ctx: Context, own: State | None = None, server: State | None = None
) -> tuple[State, Message]:
    """Local training of the three clients: their new state and what they send."""
    ctx = made_for(method, ctx)
    data = small_clients(kind=ctx.model.propagation)
    first_server, first_own = begin(method, ctx.model)
    message = method.send(server or first_server, data.ids_K)
    own, up, _ = method.client(ctx, copy(own or first_own), message, data)
    return own, up


@dataclass
class Taken:
    parameters: Tree  # before the step
    gradients: Tree


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Taken]:
    """Every step of Adam that is taken."""
    taken: list[Taken] = []

    def record(parameters: Tree, gradients: Tree, *rest) -> State:
        taken.append(Taken(tree_map(torch.clone, parameters), tree_map(torch.clone, gradients)))
        return adam_step(parameters, gradients, *rest)

    monkeypatch.setattr(training, "adam_step", record)
    return taken


# The task loss


@MODEL
@pytest.mark.parametrize("client", range(3))
def test_a_clients_loss_moves_all_its_weights_and_masks_and_nobody_elses(model: Model, client: int) -> None:
    weights = random_tree(model, 3)
    masks = {MASK + name: leaf + 3 for name, leaf in random_tree(model, 3, seed=1).items() if is_matrix(leaf)}
    leaves = {name: leaf.requires_grad_() for name, leaf in (weights | masks).items()}
    data = small_clients(kind=model.propagation)
    loss_K = context(model).task.loss(model, masked(leaves), data, Step())
    gradients = torch.autograd.grad(loss_K[client], list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        moved = [bool((part != 0).any()) for part in gradient]
        assert moved == [other == client for other in range(3)], name


def test_gradients_of_weights_and_masks_follow_the_chain_rule(steps: list[Taken]) -> None:
    """With w = θ ⊙ μ: ∂L/∂θ = ∂L/∂w ⊙ μ and ∂L/∂μ = ∂L/∂w ⊙ θ."""
    model, method = GCN(4), FedPub(tau=3.0, lambda1=0.0)
    server, own = begin(method, model)
    own["masks"] = {name: mask * 0.25 for name, mask in own["masks"].items()}
    local_steps(method, context(), own, server)
    plain = {name: leaf * 0.25 if is_matrix(leaf) else leaf for name, leaf in server["weights"].items()}
    local_steps(FedAvg(), context(), server={"weights": plain})
    found, on_w = steps[0].gradients, steps[1].gradients
    for name, w in server["weights"].items():
        if is_matrix(w):
            torch.testing.assert_close(found[name], on_w[name] * 0.25)
            torch.testing.assert_close(found[MASK + name], on_w[name] * w)
        else:
            torch.testing.assert_close(found[name], on_w[name])
            assert MASK + name not in found, "biases have no mask"


@MODEL
@EACH
def test_what_a_client_computes_does_not_depend_on_who_is_beside_it(method: Algorithm, model: Model) -> None:
    """Two rounds with dropout: all together, and each alone."""
    first = context(model, dropout=0.5, epochs=2, weight_decay=0.01)
    server, own = begin(method, model)
    alone = [select(copy(own), ids(client)) for client in range(3)]
    for number in (1, 2):
        ctx = replace(first, round=number)
        data = small_clients(kind=model.propagation)
        own, up, loss_K = method.client(ctx, own, method.send(server, data.ids_K), data)
        for client in range(3):
            data = small_clients(client, kind=model.propagation)
            alone[client], lone_up, loss = method.client(ctx, alone[client], method.send(server, data.ids_K), data)
            assert_states_equal(alone[client], select(own, ids(client)), exact=False)
            assert_states_equal(lone_up.flat(), up.select(ids(client)).flat(), exact=False)
            torch.testing.assert_close(loss, loss_K[[client]])
        server, _ = method.server(ctx, server, ids(0, 1, 2), copied(up))


@EACH
def test_a_server_step_changes_no_argument(method: Algorithm) -> None:
    server, _ = begin(method, GCN(4))
    _, up = local_steps(method, context())
    before = copy(server), copy(up.flat())
    after, _ = method.server(context(), server, ids(0, 1, 2), up)
    assert_states_equal(server, before[0])
    assert_states_equal(up.flat(), before[1])
    assert after.keys() == server.keys()


@EACH
def test_a_client_step_changes_no_message(method: Algorithm) -> None:
    ctx, data = context(epochs=2), small_clients()
    server, own = begin(method, ctx.model)
    message = method.send(server, data.ids_K)
    before = copy(message.flat()), copy(server)
    method.client(ctx, own, message, data)
    assert_states_equal(message.flat(), before[0])
    assert_states_equal(server, before[1])


def test_a_client_without_training_nodes_keeps_what_it_received() -> None:
    server, own = begin(FedAvg(), GCN(4))
    data = small_clients(train=(0, 3))
    own, up, loss_K = FedAvg().client(context(epochs=3), own, FedAvg().send(server, data.ids_K), data)
    assert float(loss_K[2]) == 0
    assert up["size"].tolist() == [1, 1, 0]
    assert_trees_equal(select(up, ids(2))["weights"], server["weights"])
    assert not torch.equal(up["weights"]["conv1.weight"][0], server["weights"]["conv1.weight"][0])


def test_the_reported_loss_is_that_of_the_last_epoch_without_penalties() -> None:
    ctx, data = context(epochs=3), small_clients()
    server, own = begin(FedProx(), ctx.model)
    *_, loss_K = FedProx(mu=100.0).client(ctx, copy(own), FedProx().send(server, data.ids_K), data)
    own, *_ = FedProx(mu=100.0).client(replace(ctx, epochs=2), own, FedProx().send(server, data.ids_K), data)
    torch.testing.assert_close(loss_K, ctx.task.loss(ctx.model, own["weights"], data, Step()))


def test_training_lowers_every_clients_loss(steps: list[Taken]) -> None:
    ctx, data = context(lr=0.01, epochs=30), small_clients()
    _, own = begin(FedAvg(), ctx.model)
    before_K = ctx.task.loss(ctx.model, own["weights"], data, Step())
    optimiser, after_K = train(ctx, data, own["weights"], training.optimiser_of(own))
    assert bool((after_K < before_K).all())
    assert len(steps) == 30
    assert optimiser["step"].tolist() == [30] * 3


def test_dropout_is_drawn_anew_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(tasks_base, "Dropout", lambda *name: drawn.append(name) or Dropout(*name))
    local_steps(FedAvg(), context(dropout=0.5, seed=7, round=4, epochs=3))
    assert drawn == [(0.5, dropout_seeds(7, 4, epoch)) for epoch in range(3)]
    assert len({seed for _, seeds in drawn for seed in seeds}) == 9, (
        "every epoch and layer, the inputs too, has its own"
    )


def test_weights_of_other_names_may_have_other_rates() -> None:
    ctx, data = context(lr=0.01), small_clients()
    _, own = begin(FedAvg(), ctx.model)
    before = copy(own)["weights"]
    train(ctx, data, own["weights"], training.optimiser_of(own), lr={"conv2.bias": 0.0, "classifier.bias": 0.5})
    assert torch.equal(own["weights"]["conv2.bias"], before["conv2.bias"])
    for name, rate in (("classifier.bias", 0.5), ("conv2.weight", 0.01)):
        moved = (own["weights"][name] - before[name]).abs().max()
        assert float(moved) == pytest.approx(rate, rel=1e-5), "Adam's first step is the learning rate"


# FedProx


def test_the_proximal_gradient_is_mu_times_the_distance(steps: list[Taken]) -> None:
    """The first step begins at the received weights and feels nothing; the second feels how far it went."""
    received = begin(FedAvg(), GCN(4))[0]["weights"]
    local_steps(FedProx(mu=0.0), context(epochs=2))
    local_steps(FedProx(mu=0.5), context(epochs=2))
    free, bound = steps[:2], steps[2:]
    assert_trees_equal(bound[0].gradients, free[0].gradients)
    assert_trees_equal(bound[1].parameters, free[1].parameters)
    for name, w in bound[1].parameters.items():
        distance = w - received[name]
        assert bool((distance != 0).any())
        pull = bound[1].gradients[name] - free[1].gradients[name]
        torch.testing.assert_close(pull, 0.5 * distance, rtol=1e-9, atol=1e-12)


def test_fedprox_without_mu_is_fedavg() -> None:
    plain, prox = (local_steps(method, context(epochs=3, dropout=0.5)) for method in (FedAvg(), FedProx(mu=0.0)))
    assert_states_equal(plain[0], prox[0])


# FED-PUB's client


def test_lambda2_pulls_the_weights_and_not_the_masks(steps: list[Taken]) -> None:
    received = begin(FedPub(), GCN(4))[0]["weights"]
    local_steps(FedPub(tau=3.0, lambda1=0.0, lambda2=0.0), context(epochs=2))
    local_steps(FedPub(tau=3.0, lambda1=0.0, lambda2=0.5), context(epochs=2))
    free, bound = steps[:2], steps[2:]
    assert_trees_equal(bound[0].gradients, free[0].gradients)
    assert_trees_equal(bound[1].parameters, free[1].parameters)
    for name, p in bound[1].parameters.items():
        pull = bound[1].gradients[name] - free[1].gradients[name]
        if name.startswith(MASK):
            assert bool((p != 1).any()), "the mask has moved"
            assert bool((pull == 0).all()), "and is not pulled back"
        else:
            torch.testing.assert_close(pull, 2 * 0.5 * (p - received[name]), rtol=1e-9, atol=1e-12)
            assert bool((pull != 0).any())


def test_lambda1_shrinks_the_masks_and_not_the_weights(steps: list[Taken]) -> None:
    """One step: masks that were near one lose η λ1 = 0.1 · 0.5. The gradients do not know of it."""
    free, _ = local_steps(FedPub(tau=3.0, lambda1=0.0), context())
    shrunk, _ = local_steps(FedPub(tau=3.0, lambda1=0.5), context())
    assert_trees_equal(shrunk["weights"], free["weights"])
    for name in ("conv2.weight", "classifier.weight"):
        torch.testing.assert_close(shrunk["masks"][name], free["masks"][name] - 0.05)
    seen = torch.tensor(SEEN_X, dtype=torch.bool)
    torch.testing.assert_close(shrunk["masks"]["conv1.weight"][seen], free["masks"]["conv1.weight"][seen] - 0.05)
    assert_trees_equal(
        {name: gradient for name, gradient in steps[1].gradients.items() if name != MASK + "conv1.weight"},
        {name: gradient for name, gradient in steps[0].gradients.items() if name != MASK + "conv1.weight"},
    )


def test_the_threshold_is_felt_after_every_step() -> None:
    once, _ = local_steps(FedPub(tau=3.0, lambda1=0.5, mask_lr=0.0), context(epochs=1))
    thrice, _ = local_steps(FedPub(tau=3.0, lambda1=0.5, mask_lr=0.0), context(epochs=3))
    assert once["masks"]["conv2.weight"].unique().tolist() == pytest.approx([0.95])
    assert thrice["masks"]["conv2.weight"].unique().tolist() == pytest.approx([0.85])


def test_small_mask_entries_become_exact_zeros() -> None:
    """A step of 0.1 · 0.01 and a threshold of 0.05: what begins at ±0.02 ends at zero, what begins at one does not."""
    method = FedPub(tau=3.0, lambda1=0.5, mask_lr=0.01)
    _, own = begin(method, GCN(4))
    small = torch.zeros(3, 4, 4, dtype=torch.bool)
    small[:, 1, 2] = small[1, 3, :] = True
    own["masks"]["conv2.weight"][small] = doubles([0.02, -0.02]).repeat(4)[: int(small.sum())]
    own, up = local_steps(method, context(), own)
    assert torch.equal(own["masks"]["conv2.weight"] == 0, small)
    assert torch.equal(up.sent["conv2.weight"], ~small)
    assert torch.equal(method.personal(own)["conv2.weight"] == 0, small)
    assert bool((own["weights"]["conv2.weight"] != 0).all()), "the weights themselves stay"
    # GCN(4) on 5 features and 3 classes has 20 + 16 + 12 entries; of 5 features the clients lack 3, 2 and 2.
    expected = [(3 * 4 + 1) / 48, (2 * 4 + 5) / 48, (2 * 4 + 1) / 48]
    assert sparsity(method.personal(own)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("lambda1", [1e-9, 0.5])
def test_masks_of_unseen_features_are_exactly_zero(lambda1: float) -> None:
    own, up = local_steps(FedPub(tau=3.0, lambda1=lambda1), context(epochs=3, weight_decay=0.01))
    seen = torch.tensor(SEEN_X, dtype=torch.bool)
    mask = own["masks"]["conv1.weight"]
    assert bool((mask[~seen] == 0).all())
    assert bool((mask[seen] != 0).all())
    assert torch.equal(up.sent["conv1.weight"].all(2), seen)


def test_unseen_features_of_a_client_that_comes_later() -> None:
    """Clients 0 and 2 have trained before and client 1 has not."""
    method = FedPub(tau=3.0, lambda1=0.001)
    trained, _ = local_steps(method, context())
    _, fresh = begin(method, GCN(4))
    own, _ = local_steps(method, context(round=2), update(trained, ids(1), select(fresh, ids(1))))
    assert own["step"].tolist() == [2, 1, 2]
    assert (own["masks"]["conv1.weight"] != 0).all(2).int().tolist() == [list(row) for row in SEEN_X]


def test_sage_has_two_matrices_on_the_inputs() -> None:
    own, _ = local_steps(FedPub(tau=3.0, lambda1=0.001), context(GraphSAGE(4)))
    for name, seen in (("conv1.self", SEEN_X), ("conv1.neighbour", (*SEEN_X[:2], (0, 0, 1, 1, 0)))):
        assert (own["masks"][name] != 0).all(2).int().tolist() == [list(row) for row in seen]


@pytest.mark.parametrize("method", [FedPub(lambda1=0.0), FedPub(lambda1=0.5, official=True)], ids=["no L1", "official"])
def test_masks_of_unseen_features_are_untouched_otherwise(method: FedPub) -> None:
    own, _ = local_steps(method, context(epochs=3))
    seen = torch.tensor(SEEN_X, dtype=torch.bool)
    assert bool((own["masks"]["conv1.weight"][~seen] == 1).all())
    assert bool((own["masks"]["conv1.weight"][seen] != 1).any())


def test_penalties_of_the_published_code_have_no_effect() -> None:
    ctx = context(epochs=3)
    plain, _ = local_steps(FedPub(lambda1=0.0, lambda2=0.0), ctx)
    official, up = local_steps(FedPub(lambda1=0.5, lambda2=0.5, official=True), ctx)
    corrected, _ = local_steps(FedPub(lambda1=0.5, lambda2=0.5), ctx)
    assert_states_equal(official, plain)
    assert not torch.equal(corrected["weights"]["conv2.weight"], plain["weights"]["conv2.weight"])
    assert not up.sent


def test_the_published_code_prunes_in_evaluation_alone() -> None:
    weights = {"w": doubles([[[2.0, 3.0, 4.0]]]), "b": doubles([[5.0]])}
    masks = {"w": doubles([[[0.05, -0.2, 0.1]]])}
    own: State = {"weights": weights, "masks": masks}
    assert FedPub(lambda1=0.1, official=True).personal(own)["w"].tolist() == [[[0, pytest.approx(-0.6), 0.4]]]
    assert FedPub(lambda1=0.1).personal(own)["w"].tolist() == [[[0.1, pytest.approx(-0.6), 0.4]]]
    assert masks["w"].tolist() == [[[0.05, -0.2, 0.1]]]


def test_masks_begin_at_one_on_every_matrix_and_on_no_bias() -> None:
    own = FedPub().init_client(random_tree(GCN(4)), 3)
    assert own["masks"].keys() == {"conv1.weight", "conv2.weight", "classifier.weight"}
    assert all(bool((mask == 1).all()) for mask in own["masks"].values())
    assert_trees_equal(FedPub().personal(own), own["weights"])
    assert FedPub(masks=False).init_client(random_tree(GCN(4)), 3)["masks"] == {}


def test_masks_have_a_learning_rate_of_their_own() -> None:
    """Adam's first step is the learning rate: 0.1 for a weight, three times that for a mask."""
    method = FedPub(tau=3.0, lambda1=0.0, mask_lr=3.0)
    before = begin(method, GCN(4))[0]["weights"]["classifier.weight"]
    own, _ = local_steps(method, context())
    assert float((own["weights"]["classifier.weight"] - before).abs().max()) == pytest.approx(0.1, rel=1e-4)
    assert float((own["masks"]["classifier.weight"] - 1).abs().max()) == pytest.approx(0.3, rel=1e-4)


def test_masks_persist_while_weights_are_received_anew() -> None:
    method = FedPub(tau=3.0, lambda1=0.0, lambda2=0.0)
    own, _ = local_steps(method, context())
    server = {"weights": random_tree(GCN(4), 3, seed=9)}
    again, _ = local_steps(method, context(lr=0.0), own, server)
    assert_trees_equal(again["weights"], server["weights"])
    assert_trees_equal(again["masks"], own["masks"])
    assert again["step"].tolist() == [2, 2, 2]


# FedAvg, FedPer and Local


def test_fedavg_weighs_by_training_nodes() -> None:
    up = Message.of({"weights": {"w": doubles([[2, 0], [6, 4], [100, 8]])}, "size": torch.tensor([1, 3, 0])})
    server, _ = FedAvg().server(context(), {}, ids(0, 1, 2), up)
    assert server["weights"]["w"].tolist() == [[5, 3]]


def test_where_nobody_has_examples_all_count_alike() -> None:
    up = Message.of({"weights": {"w": doubles([[2], [6]])}, "size": torch.tensor([0, 0])})
    assert weighted_mean(up)["w"].tolist() == [[4]]


@pytest.mark.parametrize("method", [FedAvg(), FedProx()], ids=str)
def test_everybody_starts_from_the_servers_model(method: FedAvg) -> None:
    server = {"weights": random_tree(GCN(4), 1, seed=9)}
    _, up = local_steps(method, context(lr=0.0), server=server)
    for client in range(3):
        assert_trees_equal(select(up, ids(client))["weights"], server["weights"])
    assert up["size"].tolist() == [2, 3, 1]


def test_fedper_averages_the_base_and_leaves_each_head() -> None:
    method = FedPer()
    own: State = {"weights": random_tree(GCN(4), 3, seed=1)}
    own |= training.adam_init(own["weights"])
    server, _ = begin(method, GCN(4))
    names = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"}
    assert server["base"].keys() == names
    after, up = local_steps(method, context(lr=0.0), own, server)
    for name, leaf in after["weights"].items():
        expected = server["base"][name].expand(3, *leaf.shape[1:]) if name in names else own["weights"][name]
        assert torch.equal(leaf, expected), name
    assert up["base"].keys() == names, "the head is not in the message"

    trained, _ = local_steps(method, context(), own, server)
    assert not torch.equal(trained["weights"]["classifier.weight"], own["weights"]["classifier.weight"])

    message = Message.of({"base": {"conv": doubles([[2], [6]])}, "size": torch.tensor([3, 1])})
    assert method.server(context(), server, ids(0, 1), message)[0]["base"]["conv"].tolist() == [[3]]


def test_local_sends_nothing_and_hears_nothing() -> None:
    server, _ = begin(Local(), GCN(4))
    assert server == {}
    assert Local().send(server, ids(0, 1)).flat() == {}
    own, up = local_steps(Local(), context())
    assert up.flat() == {}
    again, _ = local_steps(Local(), context(lr=0.0), own)
    assert_trees_equal(again["weights"], own["weights"])
    assert Local().server(context(), {}, ids(0, 1, 2), Message()) == ({}, {})


# GCFL

EAST_WEST = doubles([[1, 0], [1, 0.5], [-1, 0], [-1, -0.5]])  # their mean is zero


def clusters(*numbers: int, at: float = 0.0) -> State:
    return {"weights": {"w": torch.full((len(numbers), 2), at, dtype=torch.float64)}, "cluster": torch.tensor(numbers)}


def gcfl_round(
    method: GCFL, server: State, delta: Tensor, sizes: list[int], took_part: Tensor | None = None, number: int = 11
) -> State:
    took_part = torch.arange(len(delta)) if took_part is None else took_part
    up = Message.of({"weights": {"w": server["weights"]["w"][took_part] + delta}, "size": torch.tensor(sizes)})
    after, notes = method.server(context(round=number), server, took_part, up)
    assert torch.equal(notes["cluster"], after["cluster"][took_part])
    return after


def test_gcfl_splits_along_the_cut_and_weighs_by_size() -> None:
    after = gcfl_round(GCFL(eps1=0.1, eps2=0.1, warm_up=10), clusters(0, 0, 0, 0, at=10.0), EAST_WEST, [1, 3, 1, 1])
    assert after["cluster"].tolist() == [0, 0, 1, 1]
    assert after["weights"]["w"].tolist() == [[11, 10.375]] * 2 + [[9, 9.75]] * 2


def test_gcfl_does_not_split_in_warm_up() -> None:
    method = GCFL(eps1=0.1, eps2=0.1, warm_up=10)
    after = gcfl_round(method, clusters(0, 0, 0, 0, at=10.0), EAST_WEST, [1, 1, 1, 1], number=10)
    assert after["cluster"].tolist() == [0, 0, 0, 0]
    assert after["weights"]["w"].tolist() == [[10, 10]] * 4
    after = gcfl_round(method, after, EAST_WEST, [1, 1, 1, 1], number=11)
    assert after["cluster"].tolist() == [0, 0, 1, 1]
    assert after["weights"]["w"].tolist() == [[11, 10.25]] * 2 + [[9, 9.75]] * 2


@pytest.mark.parametrize(
    ("delta", "eps1", "eps2", "split"),
    [
        (EAST_WEST, 0.1, 0.75, True),  # the largest norm is √1.25, per √2 parameters 0.79
        (EAST_WEST, 0.1, 0.8, False),  # nobody moves far enough
        (EAST_WEST + doubles([0.2, 0]), 0.15, 0.1, True),  # the mean has the norm 0.2, per √2 0.141
        (EAST_WEST + doubles([0.2, 0]), 0.14, 0.1, False),  # they have a direction in common
        (EAST_WEST[[0, 2]], 0.1, 0.1, False),  # two do not split
        (EAST_WEST[[0, 2]].repeat_interleave(doubles([2, 1]).long(), 0), 1.0, 0.1, True),  # three do
    ],
)
def test_when_a_cluster_splits(delta: Tensor, eps1: float, eps2: float, split: bool) -> None:
    method = GCFL(eps1=eps1, eps2=eps2, warm_up=0)
    assert method.splits(delta) == split
    after = gcfl_round(method, clusters(*[0] * len(delta)), delta, [1] * len(delta))
    assert (len(after["cluster"].unique()) == 2) == split


def test_absent_members_get_their_clusters_model() -> None:
    """Client 1 is absent, stays where client 0 is, and gets its model; cluster 1 is absent and keeps its own."""
    server = clusters(0, 0, 0, 0, 0, 1, at=10.0)
    delta, sizes = EAST_WEST, [1, 3, 1, 1]
    after = gcfl_round(GCFL(eps1=0.1, eps2=0.1, warm_up=0), server, delta, sizes, took_part=ids(0, 2, 3, 4))
    assert after["cluster"].tolist() == [0, 0, 0, 2, 2, 1], "the new cluster has a new number"
    assert after["weights"]["w"].tolist() == [[11, 10.375]] * 3 + [[9, 9.75]] * 2 + [[10, 10]]


def test_clusters_do_not_mix_and_split_apart() -> None:
    """Cluster 0 agrees; cluster 1 divides, by the update since each one's own model."""
    server = clusters(0, 0, 1, 1, 1, 1)
    server["weights"]["w"][2:] = 100.0
    delta = torch.cat([doubles([[4, 0], [8, 0]]), EAST_WEST])
    after = gcfl_round(GCFL(eps1=0.1, eps2=0.1, warm_up=0), server, delta, [1] * 6)
    assert after["cluster"].tolist() == [0, 0, 1, 1, 2, 2]
    assert after["weights"]["w"].tolist() == [[6, 0]] * 2 + [[101, 100.25]] * 2 + [[99, 99.75]] * 2


def test_everybody_gets_the_model_of_the_cluster() -> None:
    server = clusters(0, 1, 0)
    server["weights"]["w"][1] = 7.0
    assert GCFL().send(server, ids(2, 1))["weights"]["w"].tolist() == [[0, 0], [7, 7]]


def test_minimum_cut_by_hand() -> None:
    """{0, 3} and {1, 2, 4} are held together by 0.9; 0.1 is between them, and enmity counts as nothing."""
    s = torch.full((5, 5), 0.1)
    for group in ((0, 3), (1, 2, 4)):
        for i, j in product(group, group):
            s[i, j] = 0.9
    s[0, 1] = s[1, 0] = -5.0
    assert minimum_cut(s).tolist() == [1, 2, 4]
    s[3] = s[:, 3] = 0.01
    assert minimum_cut(s).tolist() == [3]


def square(n: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, (n, n), elements=st.integers(-4, 8).map(lambda i: i / 8))


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 8).flatmap(square))
def test_minimum_cut_is_as_light_as_that_of_networkx(half: np.ndarray) -> None:
    similarity = np.triu(half, 1) + np.triu(half, 1).T + np.eye(len(half))
    away = minimum_cut(torch.from_numpy(similarity)).tolist()
    rest = [node for node in range(len(half)) if node not in away]
    assert away
    assert 0 in rest
    bond = similarity.clip(min=0)
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, bond[i, j]) for i in range(len(half)) for j in range(i))
    lightest, _ = networkx.stoer_wagner(graph)
    assert bond[np.ix_(away, rest)].sum() == lightest  # eighths: exact


# FED-PUB's server


def fedpub_round(
    method: FedPub, server: Tensor, up: Message, took_part: Tensor | None = None
) -> tuple[list, dict[str, Tensor]]:
    took_part = torch.arange(len(server)) if took_part is None else took_part
    after, notes = method.server(context(), {"weights": {"w": server}}, took_part, up)
    return after["weights"]["w"].tolist(), notes


def test_fedpub_averages_by_similarity() -> None:
    """cos = 0 and τ = ln 3: three quarters of oneself and a quarter of the other. Sizes do not count."""
    up = Message.of({"weights": {"w": doubles([[0], [4]])}, "embedding": doubles([[2, 0], [0, 5]])})
    after, notes = fedpub_round(FedPub(tau=LN3), doubles([[9], [9]]), up)
    assert after == [[pytest.approx(1)], [pytest.approx(3)]]
    torch.testing.assert_close(notes["similarity"], doubles([[1, 0], [0, 1]]))


def test_an_average_takes_its_own_client_s_row_of_attention() -> None:
    """Who has two friends shares differently from who has none: with τ = ln 3 the rows of α are 3 : 1 : 1, 1 : 3 : 3
    and 1 : 3 : 3, of 5, 7 and 7; where client 1 did not send an entry, 3 : 1, 1 : 3 and 1 : 3, of 4 each."""
    up = Message.of(
        {
            "weights": {"w": doubles([[[70, 70]], [[35, 999]], [[0, 14]]]), "b": doubles([[7], [14], [35]])},
            "active": {"w": torch.tensor([[[True, True]], [[True, False]], [[True, True]]])},
            "embedding": doubles([[1, 0], [0, 1], [0, 2]]),
        }
    )
    server: State = {"weights": {"w": doubles([[[9, 9]]] * 3), "b": doubles([[9]] * 3)}}
    after, _ = FedPub(tau=LN3).server(context(), server, torch.arange(3), up)
    # (3 · 70 + 35) / 5 and (70 + 3 · 35) / 7; (3 · 70 + 14) / 4 and (70 + 3 · 14) / 4.
    torch.testing.assert_close(after["weights"]["w"], doubles([[[49, 56]], [[25, 28]], [[25, 28]]]))
    # (3 · 7 + 14 + 35) / 5 and (7 + 3 · 14 + 3 · 35) / 7.
    torch.testing.assert_close(after["weights"]["b"], doubles([[14], [22], [22]]))


def test_fedpub_averages_over_those_that_took_part() -> None:
    up = Message.of({"weights": {"w": doubles([[0], [4]])}, "embedding": doubles([[1, 0], [0, 1]])})
    after, _ = fedpub_round(FedPub(tau=LN3), doubles([[7], [8], [9]]), up, took_part=ids(2, 0))
    assert after == [[pytest.approx(3)], [8], [pytest.approx(1)]]


def test_without_similarity_everybody_counts_alike() -> None:
    up = Message.of({"weights": {"w": doubles([[0], [4]])}})
    after, _ = fedpub_round(FedPub(tau=LN3, similarity=False), doubles([[9], [9]]), up)
    assert after == [[2], [2]]


def test_explicit_communities_leave_out_the_unlike() -> None:
    """cos(0, 1) = 0.6 is a community; cos(0, 2) = 0 and cos(1, 2) = 0.48 are none."""
    up = Message.of(
        {
            "weights": {"w": doubles([[0], [4], [8]])},
            "embedding": doubles([[1, 0, 0], [0.6, 0.64, 0.48], [0, 0, 1]]),
        }
    )
    tau = LN3 / 0.4  # odds of exp(τ (1 − 0.6)) = 3
    after, _ = fedpub_round(FedPub(tau=tau, communities="explicit"), doubles([[9], [9], [9]]), up)
    assert after == [[pytest.approx(1)], [pytest.approx(3)], [8]]
    everybody, _ = fedpub_round(FedPub(tau=tau), doubles([[9], [9], [9]]), up)
    assert everybody[2][0] < 7


def test_a_similarity_of_exactly_a_half_is_a_community() -> None:
    """cos(0, 1) = 2 / (2 · 2), in floating point, too; cos(0, 2) is 0.4999, and client 1 is not near 2."""
    up = Message.of(
        {
            "weights": {"w": doubles([[0], [4], [8]])},
            "embedding": doubles([[2, 0, 0, 0], [1, 1, 1, 1], [0.4999, -((1 - 0.4999**2) ** 0.5), 0, 0]]),
        }
    )
    tau = LN3 / 0.5  # odds of exp(τ (1 − 0.5)) = 3
    after, notes = fedpub_round(FedPub(tau=tau, communities="explicit"), doubles([[9], [9], [9]]), up)
    assert notes["similarity"][0, 1] == 0.5
    assert after == [[pytest.approx(1)], [pytest.approx(3)], [8]]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("parameter", 0.6),  # (5, 0) and (3, 4)
        ("gradient", -1.0),  # (5, 0) − (3, 0) and (3, 4) − (4, 4)
        ("label", 0.0),  # no class in common
    ],
)
def test_what_is_compared(measure: str, expected: float) -> None:
    sent = doubles([[3, 0], [4, 4]])
    up = Message.of({"weights": {"w": doubles([[5, 0], [3, 4]])}})
    if measure == "label":
        up = up | {"labels": doubles([[2, 0], [0, 3]])}
    method = FedPub(tau=LN3, measure=measure)
    _, notes = fedpub_round(method, sent, up)
    torch.testing.assert_close(notes["similarity"], doubles([[1, expected], [expected, 1]]))


def test_each_entry_is_averaged_over_those_that_sent_it() -> None:
    """Entries: all sent; only client 1; only client 0; nobody."""
    alpha = doubles([[0.75, 0.25], [0.25, 0.75]])
    weights = {"w": doubles([[[0, 100, 6, 100]], [[4, 7, 100, 100]]]), "b": doubles([[1], [3]])}
    active = {"w": torch.tensor([[[True, False, True, False]], [[True, True, False, False]]])}
    last = {"w": doubles([[[-1, -1, -1, -1]], [[-2, -2, -2, -2]]]), "b": doubles([[-1], [-1]])}
    found = average_sent(alpha, weights, active, last)
    assert found["w"].tolist() == [[[1, 7, 6, -1]], [[3, 7, 6, -2]]]
    assert found["b"].tolist() == [[1.5], [2.5]], "a leaf without a mask is averaged over all"


def test_whole_rows_may_be_missing() -> None:
    """Inputs that a client does not see: rows that both, only client 1 and nobody sent."""
    alpha = doubles([[0.75, 0.25], [0.25, 0.75]])
    weights = {"w": doubles([[[0, 8], [100, 100], [100, 100]], [[4, 0], [7, 9], [100, 100]]])}
    rows = torch.tensor([[True, False, False], [True, True, False]])
    last = {"w": doubles([[[-1, -2]] * 3, [[-3, -4]] * 3])}
    found = average_sent(alpha, weights, {"w": rows.unsqueeze(2).expand(2, 3, 2)}, last)
    assert found["w"].tolist() == [[[1, 6], [7, 9], [-1, -2]], [[3, 2], [7, 9], [-3, -4]]]
    rows[:, 2] = True
    found = average_sent(alpha, weights, {"w": rows.unsqueeze(2).expand(2, 3, 2)}, last)
    assert found["w"].tolist() == [[[1, 6], [7, 9], [100, 100]], [[3, 2], [7, 9], [100, 100]]]


def test_shares_are_taken_among_the_senders() -> None:
    """Client 2 did not send: 0.5 and 0.3 of the others become 5/8 and 3/8."""
    alpha = doubles([[0.5, 0.3, 0.2]])
    weights, active = {"w": doubles([[[8]], [[16]], [[1000]]])}, {"w": torch.tensor([[[True]], [[True]], [[False]]])}
    assert average_sent(alpha, weights, active, {"w": doubles([[[0]]])})["w"].item() == pytest.approx(11)


def test_an_entry_that_only_strangers_sent_keeps_its_value() -> None:
    """Explicit communities: client 0 counts only itself and has pruned the entry."""
    active = {"w": torch.tensor([[[False]], [[True]]])}
    weights, last = {"w": doubles([[[5]], [[6]]])}, {"w": doubles([[[1]], [[2]]])}
    assert average_sent(torch.eye(2).double(), weights, active, last)["w"].flatten().tolist() == [1, 6]


def test_pruned_entries_in_a_server_step() -> None:
    up = Message.of(
        {
            "weights": {"w": doubles([[[0, 100]], [[4, 100]]])},
            "active": {"w": torch.tensor([[[True, False]], [[True, False]]])},
            "embedding": doubles([[1, 0], [0, 1]]),
        }
    )
    after, _ = fedpub_round(FedPub(tau=LN3), doubles([[[8, 9]], [[8, -9]]]), up)
    assert after == [[[pytest.approx(1), 9]], [[pytest.approx(3), -9]]]


def test_fedpub_sends_each_client_its_own_average() -> None:
    server: State = {"weights": {"w": doubles([[0], [1], [2]])}}
    assert FedPub().send(server, ids(2, 0))["weights"]["w"].tolist() == [[2], [0]]
    assert FedPub().send(server, ids(0, 1, 2))["weights"]["w"].tolist() == [[0], [1], [2]]


@pytest.mark.parametrize("measure", ["parameter", "gradient"])
def test_what_was_not_sent_is_not_compared(measure: str) -> None:
    active = {"w": torch.tensor([[[True, True]], [[True, False]]])}
    found = []
    for unsent in (0.0, 100.0):
        up = Message.of({"weights": {"w": doubles([[[1, 2]], [[1, unsent]]])}, "active": active})
        _, notes = fedpub_round(FedPub(tau=LN3, measure=measure), doubles([[[0, 1]], [[0, 1]]]), up)
        found.append(notes["similarity"])
    torch.testing.assert_close(found[0], found[1])


def test_masks_survive_a_file() -> None:
    _, own = begin(FedPub(), GCN(4))
    assert_states_equal(unpack(pack(own)), own)
    assert unpack(pack(own)).keys() == own.keys()


def test_a_client_without_masks_goes_on_after_a_file() -> None:
    method = FedPub(tau=3.0, masks=False)
    _, own = begin(method, GCN(4))
    local_steps(method, context(), unpack(pack(own)))


# What leaves a client

UPLOADS: dict[Algorithm, set[str]] = {
    Local(): set(),
    FedAvg(): {"weights", "size"},
    FedProx(): {"weights", "size"},
    FedPer(): {"base", "size"},
    GCFL(): {"weights", "size"},
    METHODS["oracle"](): set(),
    FedPub(): {"weights", "active", "embedding"},
    FedPub(masks=False): {"weights", "embedding"},
    FedPub(official=True): {"weights", "embedding"},
    FedPub(official=True, similarity=False): {"weights"},
    FedPub(similarity=False): {"weights", "active"},
    FedPub(similarity=False, measure="label"): {"weights", "active"},
    FedPub(similarity=False, masks=False): {"weights"},
    FedPub(measure="label"): {"weights", "active", "labels"},
    FedPub(measure="label", masks=False): {"weights", "labels"},
    FedPub(measure="parameter"): {"weights", "active"},
    FedPub(measure="gradient", masks=False): {"weights"},
    FedPub(proxy="er"): {"weights", "active", "embedding"},
    FedPub(proxy="one"): {"weights", "active", "embedding"},
    FedPub(proxy="feature"): {"weights", "active", "embedding"},
    FedPub(communities="explicit"): {"weights", "active", "embedding"},
    FedPub(lambda1=0.0): {"weights", "active", "embedding"},
    FedPubPlus(): {"weights", "active", "functions", "scores"},
    FedPubPlus(grouping=False): {"weights", "active", "scores"},
}


def test_every_method_is_in_the_list() -> None:
    with_setup = {FedGNN, FedSage}  # theirs are in test_setup.py
    assert {type(method) for method in UPLOADS} | with_setup == set(METHODS.values())


@pytest.mark.parametrize("task", [NodeClassification(), LinkPrediction(4, "mlp")], ids=["nodes", "links"])
@pytest.mark.parametrize("method", UPLOADS, ids=map(short, UPLOADS))
def test_an_upload_looks_as_the_method_declares(method: Algorithm, task: Task) -> None:
    """A coordinator refuses what is unlike this, without having seen a client's data."""
    ctx = made_for(method, replace(context(), task=task))
    graph = communities_graph("tiny", TINY)
    own = task.divide(graph, (torch.arange(graph.num_nodes),), 0, (0.5, 0.25, 0.25), ctx.model.propagation)
    data = stack(own, graph.num_classes, dtype=torch.float64)
    w0 = drawn_weights(ctx, graph.num_features, graph.num_classes)
    message = method.send(method.init_server(w0, 1), data.ids_K)
    _, up, _ = method.client(ctx, method.init_client(w0, 1), message, data)
    assert up.unlike(method.upload_like(ctx, w0, graph.num_classes)) is None


@pytest.mark.parametrize(("method", "names"), UPLOADS.items(), ids=map(short, UPLOADS))
def test_a_message_holds_what_is_declared_and_nothing_else(method: Algorithm, names: set[str]) -> None:
    own, up = local_steps(method, context())
    assert up.names == method.uploads == names
    # FED-PUB-plus sends a model that it shares, and never the one with masks; which entries is tested with the method.
    shared = "community_weights" if getattr(method, "grouping", False) else "everyone_weights"
    plus = isinstance(method, FedPubPlus)
    if "weights" in up:
        assert_trees_equal(up["weights"], own[shared if plus else "weights"])
    if "size" in up:
        assert up["size"].tolist() == [2, 3, 1]
    if up.sent and not plus:
        assert_trees_equal(up.sent, tree_map(lambda mask: mask != 0, own["masks"]))
    if "labels" in up:
        assert up["labels"].tolist() == [[1, 1, 0], [0, 1, 2], [0, 1, 0]], "of training nodes alone"


@pytest.mark.parametrize(
    ("method", "proxy"),
    [
        (FedPub(lambda1=2.0), lambda ctx, data: random_proxy("sbm", 7, 5, "symmetric", 0.01, data.device, data.dtype)),
        (FedPub(proxy="er"), lambda ctx, data: random_proxy("er", 7, 5, "symmetric", 0.01, data.device, data.dtype)),
        (FedPub(official=True), lambda ctx, data: random_proxy("sbm", 7, 5, "symmetric", 0, data.device, data.dtype)),
        (
            FedPub(proxy="feature"),
            lambda ctx, data: feature_proxy(7, data, proxy_structure("sbm", 7, "symmetric", P_OUT)),
        ),
    ],
    ids=["sbm", "er", "official", "feature"],
)
def test_the_embedding_is_that_of_the_masked_model(method: FedPub, proxy: Callable) -> None:
    ctx = context(seed=7)
    own, up = local_steps(method, ctx)
    expected = ctx.model.embed(method.personal(own), proxy(ctx, small_clients()))
    torch.testing.assert_close(up["embedding"], expected)
    unmasked = ctx.model.embed(own["weights"], proxy(ctx, small_clients()))
    assert not torch.allclose(up["embedding"], unmasked)


class Talkative(FedAvg):
    def client(self, ctx, own, msg, data):
        own, up, loss_K = super().client(ctx, own, msg, data)
        return own, up | {"secrets": data.y_N[: data.num_clients]}, loss_K


def test_the_engine_stops_what_is_not_declared() -> None:
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float64)
    with pytest.raises(AssertionError, match=r"Talkative tried to send \['secrets'\]"):
        next(simulate(Talkative(), context(), federation, rounds=1))


# How many bytes that takes


def size(message: Message, clients: int) -> list[int]:
    return message_bytes(message, clients, torch.device("cpu")).tolist()


def test_a_dense_message_costs_its_entries() -> None:
    """3 · 4 and 4 single-precision numbers, a 64-bit size, an embedding of 5: 48 + 16 + 8 + 20."""
    weights = {"w": torch.zeros(2, 3, 4), "b": torch.zeros(2, 4)}
    message = Message.of({"weights": weights, "size": torch.tensor([1, 2]), "embedding": torch.zeros(2, 5)})
    assert size(message, 2) == [92, 92]
    assert size(Message({"weights": {"w": torch.zeros(2, 3, 4, dtype=torch.float64)}}), 2) == [96, 96]
    assert size(Message(), 2) == [0, 0]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (0, 0),
        (1, 4 + 4),  # its position, 4 bytes, is shorter than a bitmap of 8
        (2, 8 + 8),  # a tie
        (3, 12 + 8),  # the bitmap
        (63, 252 + 8),
        (64, 256),  # all: no bitmap
    ],
)
def test_pruned_entries_cost_their_places(kept: int, expected: int) -> None:
    active = torch.zeros(2, 64, dtype=torch.bool)
    active[0, :kept] = True
    active[1] = True
    message = Message.of({"weights": {"w": torch.zeros(2, 4, 16)}, "active": {"w": active.view(2, 4, 16)}})
    assert size(message, 2) == [expected, 256]


def test_a_bitmap_is_whole_bytes_and_other_parts_stay_dense() -> None:
    """9 entries need 2 bytes: 5 · 4 + 2; the bias 3 · 4; the embedding 2 · 4."""
    active = torch.tensor([[True] * 5 + [False] * 4]).view(1, 3, 3)
    weights = {"w": torch.zeros(1, 3, 3), "b": torch.zeros(1, 3)}
    assert size(Message({"weights": weights, "embedding": torch.zeros(1, 2)}, {"w": active}), 1) == [42]


def test_bytes_of_a_round() -> None:
    """GCN(4) on 5 features and 3 classes: 48 weights in three matrices and 11 biases, in double precision.

    Clients 0, 1 and 2 lack 3, 2 and 2 of 5 features: of conv1's 20 entries 8, 12 and 12 are sent, with a bitmap of
    3 bytes; an embedding has 4 numbers.
    """
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float64)
    done = next(simulate(FedPub(tau=3.0), context(), federation, rounds=1))
    full = 8 * (20 + 16 + 12 + 11)
    assert done.bytes_down_R.tolist() == [full] * 3
    assert done.bytes_up_R.tolist() == [full - 8 * pruned + 3 + 8 * 4 for pruned in (12, 8, 8)]
    silent = next(simulate(Local(), context(), federation, rounds=1))
    assert silent.bytes_up_R.tolist() == silent.bytes_down_R.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "method",
    [FedPub(tau=3.0, lambda1=0.5, lambda2=0.1), FedPubPlus(lambda1=0.5, fallback=False, grouping=False)],
    ids=["one speed", "each client's own"],
)
def test_a_few_clients_at_a_time_give_the_same(method: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are taken for parts of the clients that fit into a cache; here one client at a time, in three epochs."""
    ctx = context(epochs=3, dropout=0.5)
    together, up = local_steps(method, ctx)
    monkeypatch.setattr("fedpub.core.kernels.PART_ENTRIES", 1)
    apart, up_apart = local_steps(method, ctx)
    for one, other in ((apart, together), (up_apart.flat(), up.flat())):
        for name, leaf in pack(one).items():
            torch.testing.assert_close(leaf, pack(other)[name], rtol=1e-12, atol=1e-15)


def test_methods_that_look_at_values_say_so() -> None:
    """A GPU would fail to record it."""
    steady = (FedAvg(), FedPub(), FedPub(measure="gradient"), FedPub(official=True))
    assert not any(looks_at_values(method) for method in steady)
    looking = (GCFL(), FedPubPlus(), FedPub(measure="label"), FedPub(proxy="feature"), FedPub(neighbours=2))
    assert all(looks_at_values(method) for method in looking)


@pytest.mark.parametrize("masks", [True, False])
def test_the_embedding_is_the_same_at_the_server(masks) -> None:
    """The server gets the masked weights, or needs nothing more where there are no masks."""
    here, there = (FedPub(tau=3.0, masks=masks, lambda1=0.5, embedding=place) for place in ("client", "server"))
    assert ("personal" in there.uploads) == masks
    assert "embedding" not in there.uploads
    found = [local_steps(method, context(dropout=0.2))[1] for method in (here, there)]
    weights = {"weights": random_tree(GCN(4), 3)}
    ids, ctx = torch.arange(3), context()
    (one, notes), (other, same) = (
        method.server(ctx, weights, ids, up) for method, up in zip((here, there), found, strict=True)
    )
    torch.testing.assert_close(notes["similarity"], same["similarity"], rtol=0, atol=1e-12)
    assert_trees_equal(one["weights"], other["weights"], exact=False)


def test_every_method_has_a_title_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that is made of another one is not shown under that one's name."""
    titles = [title_of(name) for name in METHODS]
    assert len(set(titles)) == len(titles)
    assert not set(titles) & set(METHODS)
    assert (title_of("fedpub"), title_of("fedsage")) == ("FED-PUB", "FedSage+")

    class Mine(FedAvg):
        """A user's method without a title."""

    monkeypatch.setitem(METHODS, "mine", Mine)
    assert title_of("mine") == "mine"
    assert title_of("unknown") == "unknown"
