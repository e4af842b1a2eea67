"""Steps on batches of nodes: by hand, as one step if a batch has all nodes, in any company, and after a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_directory import kept, run_until
from test_simulate import (
    CLIENTS,
    after_setup,
    assert_same,
    context,
    federation,
    federation_for,
    graph,
    method,
    rounds_of,
)
from test_simulate import subgraphs as everyone
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpub.algorithms import METHODS
from fedpub.algorithms.context import Context
from fedpub.algorithms.training import batches, train
from fedpub.core.optim import adam_init
from fedpub.core.rng import numpy_stream
from fedpub.core.tree import Tree, pack, tensor
from fedpub.data.clients.split import Split, split
from fedpub.data.clients.stack import Clients, stack
from fedpub.engine.rounds import Round
from fedpub.experiment import Experiment
from fedpub.models import Hops
from fedpub.runs.simulated import run
from fedpub.tasks import NodeClassification, Step
from small import (
    NODES,
    TRAIN,
    assert_trees_equal,
    random_tree,
    refused,
    small_graph,
    subgraphs,
)
from small import context as small_context

MODEL = Hops(4)
SEED, ROUND = 5, 3
# The training nodes of the clients, as positions among their own nodes: two, three and one of them.
ROWS = ((0, 1), (0, 1, 2), (0,))
assert [tuple(at for at, node in enumerate(own) if node in TRAIN) for own in NODES] == list(ROWS)


def held(*which: int) -> Clients:
    """The named clients side by side, with what batches need."""
    own = subgraphs()
    return stack([own[client] for client in which], 3, dtype=torch.float64, steps=2, propagates=False, apart=True)


def own_order(client: int, epoch: int) -> list[int]:
    """A client's training nodes in the order of its stream for this epoch of the round."""
    return [
        ROWS[client][at] for at in numpy_stream(SEED, "batches", client, ROUND, epoch).permutation(len(ROWS[client]))
    ]


def visited(data: Clients, epoch: int, size: int) -> list[list[list[int]]]:
    """The positions in every batch of every client, batch by batch."""
    found: list[list[list[int]]] = [[] for _ in NODES]
    for some, clients in batches(data, SEED, ROUND, epoch, size):
        assert torch.equal(some.ids_K, data.ids_K[clients])
        assert bool(some.train_N.all())
        assert some.num_train_K.tolist() == list(some.segments.sizes)
        assert len(some.train_rows) == len(some.y_N)
        for rows, client in zip(some.segments.row_N.split(list(some.segments.sizes)), some.ids_K, strict=True):
            found[client].append(rows.tolist())
        truth = [LABEL[client][row] for client, own in zip(some.ids_K, rows_of(some), strict=True) for row in own]
        assert some.y_N.tolist() == truth
    return found


LABEL = [small_graph().y[list(own)].tolist() for own in NODES]


def rows_of(data: Clients) -> list[list[int]]:
    return [rows.tolist() for rows in data.segments.row_N.split(list(data.segments.sizes))]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_an_epoch_visits_every_training_node_once_in_the_client_s_own_order(size):
    together, orders = held(0, 1, 2), set()
    for epoch in range(6):
        found = visited(together, epoch, size)
        for client, own in enumerate(found):
            order = own_order(client, epoch)
            assert own == [sorted(order[start : start + size]) for start in range(0, len(order), size)]
            assert sorted(row for batch in own for row in batch) == list(ROWS[client])
        assert visited(held(1), epoch, size)[1] == found[1], "whoever is beside it"
        assert visited(held(2, 1), epoch, size)[1] == found[1]
        orders.add(str(found[1]))
    assert (len(orders) > 1) == (size < 3), "every epoch has an order of its own"


def trained(
    ctx: Context, which: tuple[int, ...], w: Tree, proximal: tuple[float, Tree] | None = None, **named: Any
) -> tuple[Tree, list[int], Tensor]:
    """Weights, numbers of steps and losses of these clients after an epoch or more."""
    weights = {name: leaf[list(which)].clone() for name, leaf in w.items()}
    anchor = proximal and (proximal[0], {name: leaf[list(which)] for name, leaf in proximal[1].items()})
    done, loss_K = train(ctx, held(*which), weights, adam_init(weights), proximal=anchor, **named)
    return weights, tensor(done["step"]).tolist(), loss_K


def alone_by_hand(
    ctx: Context, client: int, w: Tree, size: int, proximal: tuple[float, Tree] | None
) -> tuple[Tree, int, float]:
    """One client, whose whole graph is computed for every batch, with PyTorch's Adam."""
    data = held(client)
    leaves = {name: leaf[[client]].clone().requires_grad_() for name, leaf in w.items()}
    adam = torch.optim.Adam(leaves.values(), lr=ctx.lr, weight_decay=ctx.weight_decay)
    steps, last = 0, 0.0
    for epoch in range(ctx.epochs):
        order, last = own_order(client, epoch), 0.0
        for number, start in enumerate(range(0, len(order), size)):
            rows = sorted(order[start : start + size])
            dropout = Step(SEED, ROUND, epoch, ctx.dropout, batch=number).dropout
            loss = cross_entropy(ctx.model.apply(leaves, data, dropout)[rows], data.y_N[rows])
            last += loss.item() * len(rows) / len(order)
            if proximal:
                pull = sum((leaves[name] - leaf[[client]]).square().sum() for name, leaf in proximal[1].items())
                loss = loss + proximal[0] * pull
            adam.zero_grad()
            loss.backward()
            adam.step()
            steps += 1
    return {name: leaf.detach() for name, leaf in leaves.items()}, steps, last


@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.1, "dropout": 0.5}, {"mu": 0.7}], ids=str)
@pytest.mark.parametrize("size", [1, 2])
def test_training_on_batches_by_hand(size, changes):
    """Clients with fewer nodes make fewer steps: two epochs of 2, 3 and 1 batches, or of 1, 2 and 1."""
    options = dict(changes)
    w, mu = random_tree(MODEL, 3), options.pop("mu", None)
    proximal = None if mu is None else (mu, {name: leaf.clone() for name, leaf in w.items()})
    ctx = replace(small_context(MODEL), seed=SEED, round=ROUND, epochs=2, batch_size=size, **options)
    found, steps, loss_K = trained(ctx, (0, 1, 2), w, proximal)
    assert steps == {1: [4, 6, 2], 2: [2, 4, 2]}[size]
    for client in range(3):
        own, count, last = alone_by_hand(ctx, client, w, size, proximal)
        assert count == steps[client]
        assert loss_K[client].item() == pytest.approx(last, abs=1e-10)
        assert_trees_equal({name: leaf[[client]] for name, leaf in found.items()}, own, exact=False)


@pytest.mark.parametrize(
    "changes", [{}, {"lr": torch.tensor([0.1, 0.2, 0.3]), "shrink": torch.tensor([0.0, 0.1, 0.2])}]
)
def test_a_client_s_batches_do_not_depend_on_who_is_beside_it(changes):
    """Also where every client has a learning rate of its own, and its masks shrink by an amount of its own."""
    w = random_tree(MODEL, 3)
    masks = {name: torch.ones_like(leaf) for name, leaf in w.items() if leaf.dim() == 3} if changes else None
    ctx = replace(small_context(MODEL), seed=SEED, round=ROUND, epochs=2, batch_size=1, dropout=0.3)

    def found(*which: int) -> tuple[Tree, Tree, list[int]]:
        own = list(which)
        mine = masks and {name: leaf[own].clone() for name, leaf in masks.items()}
        rates = {"lr": dict.fromkeys(w, changes["lr"][own].double())} if changes else {}
        rates |= {"shrink": changes["shrink"][own].double()} if changes else {}
        weights = {name: leaf[own].clone() for name, leaf in w.items()}
        state = adam_init(weights | {f"mask.{name}": leaf for name, leaf in (mine or {}).items()})
        done, _ = train(ctx, held(*which), weights, state, masks=mine, **rates)
        return weights, mine or {}, tensor(done["step"]).tolist()

    together = found(0, 1, 2)
    for client in range(3):
        weights, mine, steps = found(client)
        assert steps == together[2][client : client + 1]
        assert_trees_equal({name: leaf[[client]] for name, leaf in together[0].items()}, weights, exact=False)
        assert_trees_equal({name: leaf[[client]] for name, leaf in together[1].items()}, mine, exact=False)
    assert found(2, 0)[2] == [2, 4]


def rounds(name: str, size: int, chunk: int | None = None, chosen: Split | None = None) -> list[Round]:
    algorithm = method(name, **({"generator_epochs": 2, "generator_rounds": 1} if name == "fedsage" else {}))
    ctx = context("hops", batch_size=size, epochs=1)
    if name == "oracle":
        made = federation_for(algorithm, chunk, "hops")
    else:
        made = after_setup(algorithm, ctx, federation(subgraphs=everyone("hops", chosen), chunk=chunk))
    return rounds_of(algorithm, ctx, made, 2, fraction=0.75)


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedpub-plus"])
def test_a_batch_of_all_training_nodes_is_the_whole(name):
    """Of clients that all have some: the smallest has two of them, the largest sixteen."""
    chosen = split(graph(), 0, (0.5, 0.25, 0.25))
    counts = [own.num_train for own in everyone("hops", chosen)]
    assert (min(counts), max(counts)) == (2, 16)
    whole = rounds(name, 0, chosen=chosen)
    assert_same(whole, rounds(name, 16, chosen=chosen), 1e-12)
    with pytest.raises(AssertionError, match="in round"):
        assert_same(whole, rounds(name, 15, chosen=chosen), 1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_batches_in_stacked_clients_are_those_of_a_loop(name):
    together, apart = rounds(name, 2), rounds(name, 2, chunk=1)
    assert_same(together, apart, 1e-9)
    if name == "local":
        assert_same(together, rounds(name, 2, chunk=3), 1e-9)
    steps = pack(together[-1].snapshot.clients)["community_step" if name == "fedpub-plus" else "step"]
    assert len(steps.unique()) > 1 or name == "oracle", "clients have different numbers of batches"
    assert len(steps) == (1 if name == "oracle" else CLIENTS)


@pytest.mark.parametrize("name", ["fedprox", "fedpub-plus"])
def test_an_interrupted_run_with_batches_ends_as_one_that_was_not(name, graph_file, tmp_path):
    experiment = Experiment(
        graph_file, method=name, model="hops", hidden=4, rounds=4, batch_size=2, dropout=0.3, epochs=2, fraction=0.6
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(experiment, whole, checkpoint_seconds=0, keep_checkpoint=True)
    run_until(experiment, parts, 2, checkpoint_seconds=0)
    run(experiment, parts, resume=True, keep_checkpoint=True)
    assert kept(parts) == kept(whole)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "twin"], "--batch-size 7 is not possible for the model twin, which needs all nodes at once"),
        (["--model", "hops", "--task", "link-prediction"], "--batch-size 7 is not possible for link-prediction"),
        (["--model", "hops", "--batch-size", "-1"], "--batch-size -1 is not possible; give 0 or more"),
    ],
)
def test_batches_that_are_not_possible_are_one_sentence(flags, said, graph_file, tmp_path, capsys):
    given = flags if "--batch-size" in flags else [*flags, "--batch-size", "7"]
    out = tmp_path / "new"
    assert said in refused(["run", "--dataset", graph_file, *given, "--out", str(out)], capsys)
    assert not out.exists()


def test_outputs_in_parts_are_the_outputs(monkeypatch):
    """Many independent nodes are computed some at a time."""
    data, w = held(0, 1, 2), random_tree(MODEL, 3)
    whole = small_context(MODEL).task.evaluate(MODEL, w, data)
    monkeypatch.setattr("fedpub.tasks.base.AT_A_TIME", 3)
    for name, value in small_context(MODEL).task.evaluate(MODEL, w, data).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_balanced_weights_are_those_of_all_training_nodes_in_every_batch(size):
    own = subgraphs(train=(0, 1, 2, 3, 4, 5, 7, 8))
    data = stack(own, 3, dtype=torch.float64, steps=2, propagates=False, apart=True)
    task, w = NodeClassification(class_weights="balanced"), random_tree(Hops(4), 3)
    ctx = replace(small_context(Hops(4)), task=task, lr=1e-300)
    whole = train(ctx, data, dict(w), adam_init(w))[1]
    parts = train(replace(ctx, batch_size=size), data, dict(w), adam_init(w))[1]
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)


def test_a_client_without_training_nodes_takes_the_same_steps_with_a_large_batch():
    assert_same(rounds("local", 0), rounds("local", 100), 1e-12)
