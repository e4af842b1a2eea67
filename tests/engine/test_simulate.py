"""The engine against a loop over clients, in float64; who takes part; what goes on after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpub.algorithms import GCFL, METHODS, Algorithm, Context, FedAvg, FedPub, Local, Oracle
from fedpub.core.message import Message
from fedpub.core.tree import State, pack, select, state_map
from fedpub.data.clients.split import Split, split
from fedpub.data.clients.stack import Report, stack
from fedpub.data.clients.subgraph import Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.data.synthetic import communities_graph
from fedpub.engine.rounds import Round, Snapshot, measure, participants, sparsity
from fedpub.engine.setup import set_up
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.models import GCN, MODELS
from fedpub.models.fallback import SECOND, WithFallback
from fedpub.store.record import Record, Row
from fedpub.tasks import NodeClassification
from small import TINY, made_for, random_tree, small_clients

# Few words: some clients' features are stacked sparse, others dense.
SPEC = replace(TINY, subgraphs=(3, 2, 2), features=60, words=3)
SIZES = (31, 8, 22, 14, 27, 18, 5, 15)
CLIENTS = len(SIZES)


@cache
def graph() -> Graph:
    return communities_graph("tiny", SPEC)


def nodes_of_clients() -> tuple[Tensor, ...]:
    return torch.split(torch.arange(sum(SIZES)), SIZES)


def subgraphs(model: str = "gcn", chosen: Split | None = None) -> list[Subgraph]:
    whole = graph()
    chosen = chosen or split(whole, 0)
    kind = MODELS[model].propagation
    return [subgraph_of(whole, own, chosen, client, kind) for client, own in enumerate(nodes_of_clients())]


def federation(**changes: Any) -> Federation:
    plain: dict[str, Any] = {"subgraphs": None, "num_classes": SPEC.classes, "device": torch.device("cpu")}
    plain |= {"dtype": torch.float64} | changes
    return Federation(**plain | {"subgraphs": plain["subgraphs"] or subgraphs()})


def oracle_federation(nodes: tuple[Tensor, ...], chosen: Split, **changes: Any) -> Federation:
    """One client with the whole graph, reported for the owners of `nodes`."""
    whole = graph()
    one = subgraph_of(whole, torch.arange(whole.num_nodes), chosen, 0, "symmetric")
    owner_M = torch.cat([torch.full_like(own, client) for client, own in enumerate(nodes)])
    report = Report(torch.cat(nodes), owner_M, torch.zeros(len(nodes), dtype=torch.int64))
    return federation(subgraphs=[one], report=report, **changes)


def context(model: str = "gcn", **changes: Any) -> Context:
    plain = {"seed": 3, "round": 0, "epochs": 2, "lr": 0.02, "weight_decay": 1e-3, "dropout": 0.4}
    return Context(model=MODELS[model](8), task=NodeClassification(), **(plain | changes))


def method(name: str, **options: Any) -> Algorithm:
    return Experiment(method=name, options=options).resolve().algorithm


def copied(measured: Round) -> Round:
    """A client step may write into the states of the round before it."""
    snapshot = measured.snapshot
    own = Snapshot(snapshot.round, state_map(Tensor.clone, snapshot.server), state_map(Tensor.clone, snapshot.clients))
    return replace(measured, snapshot=own)


def rounds_of(algorithm: Algorithm, ctx: Context, *arguments: Any, **named: Any) -> list[Round]:
    return [copied(measured) for measured in simulate(algorithm, made_for(algorithm, ctx), *arguments, **named)]


def values(measured: Round) -> Iterator[tuple[str, Tensor]]:
    """Everything that a round holds, by name."""
    yield from pack(measured.snapshot.server, "server/").items()
    yield from pack(measured.snapshot.clients, "clients/").items()
    yield from measured.metrics.items()
    yield from measured.notes.items()
    for name in ("took_part_R", "loss_R", "sparsity_R", "bytes_up_R", "bytes_down_R", "ids"):
        yield name, getattr(measured, name)


def assert_same(one: list[Round], other: list[Round], tolerance: float = 0.0) -> None:
    assert [measured.snapshot.round for measured in one] == [measured.snapshot.round for measured in other]
    for a, b in zip(one, other, strict=True):
        mine, theirs = dict(values(a)), dict(values(b))
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert value.dtype == theirs[name].dtype, name
            torch.testing.assert_close(
                value,
                theirs[name],
                rtol=0,
                atol=tolerance if value.is_floating_point() else 0,
                equal_nan=True,
                msg=lambda text, name=name, number=a.snapshot.round: f"{name} in round {number}: {text}",
            )


def bits_equal(one: State, other: State, clients: list[int]) -> bool:
    index = torch.tensor(clients, dtype=torch.int64)
    a, b = pack(select(one, index)), pack(select(other, index))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


VARIANTS: dict[str, Algorithm] = {name: method(name) for name in METHODS} | {
    "gcfl that splits": GCFL(warm_up=1, eps1=10.0, eps2=0.0),
    "fedprox that pulls": method("fedprox", mu=0.5),
    "no masks": method("fedpub", masks=False),
    "no similarity": method("fedpub", similarity=False),
    "parameter": method("fedpub", measure="parameter"),
    "gradient": method("fedpub", measure="gradient"),
    "label": method("fedpub", measure="label"),
    "er": method("fedpub", proxy="er"),
    "one": method("fedpub", proxy="one"),
    "feature": method("fedpub", proxy="feature"),
    "explicit": method("fedpub", communities="explicit"),
    "official": method("fedpub", official=True),
    "sparse": method("fedpub", lambda1=0.3, mask_lr=5.0),
    "pruned in few steps": method("fedpub", lambda1=8.0, mask_lr=10.0),
}


def federation_for(algorithm: Algorithm, chunk: int | None, model: str = "gcn") -> Federation:
    if isinstance(algorithm, Oracle):
        return oracle_federation(nodes_of_clients(), split(graph(), 0), chunk=chunk)
    return after_setup(algorithm, context(model), federation(subgraphs=subgraphs(model), chunk=chunk))


def after_setup(algorithm: Algorithm, ctx: Context, own: Federation) -> Federation:
    made = set_up(algorithm, ctx, own)
    return made.extend(own) if made else own


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_stacked_clients_do_what_a_loop_over_clients_does(name, chunk):
    algorithm, ctx = VARIANTS[name], context()
    together = rounds_of(algorithm, ctx, federation_for(algorithm, None), 4, fraction=0.5)
    apart = rounds_of(algorithm, ctx, federation_for(algorithm, chunk), 4, fraction=0.5)
    assert len(together) == 4
    assert_same(together, apart, 1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["fedavg", "fedpub", "pruned in few steps", "feature", "gcfl that splits"])
def test_stacked_clients_do_what_a_loop_does_when_all_take_part(name, model):
    algorithm, ctx = VARIANTS[name], context(model)
    together = rounds_of(algorithm, ctx, federation_for(algorithm, None, model), 3)
    apart = rounds_of(algorithm, ctx, federation_for(algorithm, 1, model), 3)
    assert_same(together, apart, 1e-9)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"oracle"}))
def test_clients_whose_features_are_all_zero_are_computed_in_any_company(name):
    algorithm, ctx = VARIANTS[name], context()
    everyone = [replace(own, x=own.x * 0) if own.id in (1, 4) else own for own in subgraphs()]

    def rounds(chunk: int | None) -> list[Round]:
        own = after_setup(algorithm, ctx, federation(subgraphs=everyone, chunk=chunk))
        return rounds_of(algorithm, ctx, own, 2)

    assert_same(rounds(None), rounds(1), 1e-9)


def test_the_variants_do_something():
    """What the comparisons above compare is not the same thing under many names."""
    last = {
        name: rounds_of(algorithm, context(), federation_for(algorithm, None), 4, fraction=0.5)[-1]
        for name, algorithm in VARIANTS.items()
        if not isinstance(algorithm, Oracle)
    }
    assert len(last["gcfl that splits"].snapshot.server["cluster"].unique()) > 1
    pruned_R, plain_R = last["pruned in few steps"].sparsity_R, last["fedpub"].sparsity_R
    assert ((plain_R < pruned_R) & (pruned_R < 1)).sum() > 3
    weights = {name: pack(measured.snapshot.clients)["weights/conv1.weight"] for name, measured in last.items()}
    alike = {(a, b) for a in weights for b in weights if a < b and torch.equal(weights[a], weights[b])}
    # FedAvg and GCFL before its first split are the same method.
    assert alike <= {("fedavg", "gcfl")}
    idle = [client for client in range(CLIENTS) if torch.isnan(last["fedpub"].loss_R[client])]
    assert len(idle) == CLIENTS // 2


def test_an_alone_client_does_not_notice_who_is_beside_it():
    ctx = context()
    everyone = rounds_of(Local(), ctx, federation(), 3)
    some = rounds_of(Local(), ctx, federation(subgraphs=subgraphs()[:3]), 3)
    first_three = torch.arange(3)
    for whole, part in zip(everyone, some, strict=True):
        expected = pack(select(whole.snapshot.clients, first_three))
        for name, leaf in pack(part.snapshot.clients).items():
            torch.testing.assert_close(leaf, expected[name], rtol=0, atol=1e-12)
        torch.testing.assert_close(part.loss_R, whole.loss_R[:3], rtol=0, atol=1e-12)
        torch.testing.assert_close(part.metrics["test"], whole.metrics["test"][:3], equal_nan=True)


def test_any_clients_in_any_order_compute_the_same():
    ctx, own = context(), federation()
    expected = rounds_of(Local(), ctx, own, 2)[-1].snapshot.clients
    ids = torch.tensor([5, 2, 7])
    data = stack([own.subgraphs[client] for client in ids.tolist()], SPEC.classes, dtype=torch.float64)
    state = Local().init_client(first_weights(own, ctx), len(ids))
    for number in (1, 2):
        state, up, _ = Local().client(replace(ctx, round=number), state, {}, data)
        assert up == {}
    for name, leaf in pack(select(expected, ids)).items():
        torch.testing.assert_close(pack(state)[name], leaf, rtol=0, atol=1e-12)


def test_who_takes_part_depends_on_seed_and_round_alone():
    drawn = [participants(3, number, CLIENTS, 0.5, 0.0) for number in range(1, 5)]
    assert all(one == sorted(set(one)) and len(one) == CLIENTS // 2 for one in drawn)
    assert len({tuple(one) for one in drawn}) > 1
    assert drawn != [participants(4, number, CLIENTS, 0.5, 0.0) for number in range(1, 5)]
    for algorithm, chunk, hidden in ((Local(), None, 8), (FedAvg(), 3, 4), (method("fedpub"), 1, 8)):
        ctx = replace(context(), model=MODELS["gcn"](hidden))
        found = rounds_of(algorithm, ctx, federation(chunk=chunk), 4, fraction=0.5)
        assert [measured.ids.tolist() for measured in found] == drawn


def test_everybody_is_chosen_about_equally_often_and_fails_as_often_as_asked():
    chosen, lost, rounds = np.zeros(CLIENTS), np.zeros(CLIENTS), 400
    for number in range(1, rounds + 1):
        before = participants(0, number, CLIENTS, 0.5, 0.0)
        after = participants(0, number, CLIENTS, 0.5, 0.25)
        assert set(after) <= set(before)
        chosen[before] += 1
        lost[sorted(set(before) - set(after))] += 1
    # Five standard deviations: sqrt(400 * 0.5 * 0.5) = 10 draws, sqrt(200 * 0.25 * 0.75) = 6.1 failures.
    assert abs(chosen - rounds * 0.5).max() < 50
    assert abs(lost - rounds * 0.5 * 0.25).max() < 31


def test_a_tiny_fraction_still_picks_one():
    assert [len(participants(0, number, 1000, 1e-9, 0.0)) for number in range(1, 9)] == [1] * 8
    assert participants(0, 1, 5, 1.0, 0.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["local", "fedavg", "fedper", "gcfl that splits", "fedpub", "sparse"])
def test_who_does_not_take_part_or_fails_keeps_its_state(name):
    algorithm, ctx, own = VARIANTS[name], context(), federation()
    w0 = first_weights(own, ctx)
    before = algorithm.init_client(w0, CLIENTS)
    steps = torch.zeros(CLIENTS, dtype=torch.int64)
    for measured in rounds_of(algorithm, ctx, own, 5, fraction=0.75, failures=0.4):
        took_part = measured.ids.tolist()
        assert took_part == participants(3, measured.snapshot.round, CLIENTS, 0.75, 0.4)
        idle = sorted(set(range(CLIENTS)) - set(took_part))
        after = measured.snapshot.clients
        assert bits_equal(before, after, idle)
        assert not any(bits_equal(before, after, [client]) for client in took_part)
        assert measured.took_part_R.tolist() == [client in took_part for client in range(CLIENTS)]
        assert torch.isnan(measured.loss_R).tolist() == [client in idle for client in range(CLIENTS)]
        assert not measured.bytes_up_R[idle].any()
        assert not measured.bytes_down_R[idle].any()
        before = after
        steps[took_part] += ctx.epochs
    assert before["step"].tolist() == steps.tolist()
    assert len(set(steps.tolist())) > 2


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "oracle"])
def test_where_everybody_fails_nothing_changes(name):
    algorithm, ctx, own = VARIANTS[name], context(), federation_for(VARIANTS[name], None)
    w0 = first_weights(own, made_for(algorithm, ctx))
    everyone = list(range(CLIENTS))
    found = rounds_of(algorithm, ctx, own, 2, failures=1.0)
    assert [measured.snapshot.round for measured in found] == [1, 2]
    for measured in found:
        assert len(measured.ids) == 0
        assert bits_equal(measured.snapshot.clients, algorithm.init_client(w0, CLIENTS), everyone)
        first, now = pack(algorithm.init_server(w0, CLIENTS)), pack(measured.snapshot.server)
        assert first.keys() == now.keys()
        assert all(torch.equal(first[leaf], now[leaf]) for leaf in first)
        assert int(measured.bytes_up_R.sum() + measured.bytes_down_R.sum()) == 0
        assert torch.isfinite(measured.metrics["val"]).any()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_federation_goes_on_from_any_snapshot(name):
    algorithm, ctx, own = VARIANTS[name], context(), federation_for(VARIANTS[name], None)
    named = {"fraction": 0.75, "failures": 0.1}
    whole = rounds_of(algorithm, ctx, own, 5, **named)
    for at in (2, 4):
        start = copied(whole[at - 1]).snapshot
        assert start.round == at
        assert_same(rounds_of(algorithm, ctx, own, 5, **named, start=start), whole[at:])
    assert rounds_of(algorithm, ctx, own, 5, **named, start=copied(whole[-1]).snapshot) == []


def test_rounds_are_made_one_at_a_time():
    engine = simulate(Local(), context(), federation(), 10**9)
    assert [next(engine).snapshot.round for _ in range(2)] == [1, 2]


# The model of these tests has 60·8 + 8, 8·8 + 8 and 8·3 + 3 parameters, of 8 bytes.
PARAMETERS, BASE = 587, 560


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [
        ("local", 0, 0),
        ("fedavg", 8 * PARAMETERS + 8, 8 * PARAMETERS),  # and the number of training nodes
        ("fedprox", 8 * PARAMETERS + 8, 8 * PARAMETERS),
        ("fedper", 8 * BASE + 8, 8 * BASE),
        ("gcfl", 8 * PARAMETERS + 8, 8 * PARAMETERS),
        ("no masks", 8 * PARAMETERS + 8 * 8, 8 * PARAMETERS),  # and the embedding
        ("no similarity", None, 8 * PARAMETERS),
        ("label", None, 8 * PARAMETERS),
        ("pruned in few steps", None, 8 * PARAMETERS),
    ],
)
def test_bytes_by_hand(name, up, down):
    for measured in rounds_of(VARIANTS[name], context(), federation(), 3):
        assert measured.bytes_down_R.tolist() == [down] * CLIENTS
        if up is None:
            extra = {"no similarity": 0, "label": 8 * SPEC.classes}.get(name, 8 * 8)
            masks = measured.snapshot.clients["masks"]
            expected = [8 * (8 + 8 + 3) + extra + sent(masks, client) for client in range(CLIENTS)]
            assert len(set(expected)) > 3
        assert measured.bytes_up_R.tolist() == ([up] * CLIENTS if up is not None else expected)


def sent(masks: dict[str, Tensor], client: int) -> int:
    """A client's matrices: their kept entries and which these are, as a bitmap or as a list of 32-bit numbers."""
    total = 0
    for mask in masks.values():
        entries, kept = mask[client].numel(), int((mask[client] != 0).sum())
        total += 8 * kept + (min(4 * kept, -(-entries // 8)) if kept < entries else 0)
    return total


class Leaky(FedAvg):
    """Sends the labels of its nodes, which it does not declare."""

    def client(self, ctx, own, msg, data):
        state, up, loss_K = super().client(ctx, own, msg, data)
        return state, up | {"secret": data.y_N[: data.num_clients]}, loss_K


class Bold(Local):
    """Declares nothing, as Local, and sends its weights all the same."""

    def client(self, ctx, own, msg, data):
        state, _, loss_K = super().client(ctx, own, msg, data)
        return state, Message({"weights": state["weights"]}), loss_K


@pytest.mark.parametrize(("algorithm", "name"), [(Leaky(), "secret"), (Bold(), "weights")])
def test_what_is_not_declared_is_not_sent(algorithm, name):
    with pytest.raises(AssertionError, match=rf"{type(algorithm).__name__} tried to send \['{name}'\]"):
        next(simulate(algorithm, context(), federation(), 1))


def with_huge_features(client: int) -> list[Subgraph]:
    """One client's features are infinite in single precision."""
    wild = subgraphs()
    wild[client] = replace(wild[client], x=wild[client].x * 1e300)
    return wild


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_a_loss_that_is_not_finite_names_client_and_round(chunk):
    own = federation(subgraphs=with_huge_features(3), chunk=chunk, dtype=torch.float32)
    with pytest.raises(FedpubError, match=r"loss of client 3 is (nan|inf) in round 1\b"):
        next(simulate(FedAvg(), context(), own, 2))


def test_a_learning_rate_that_is_too_high_is_noticed_in_the_next_round():
    rounds = simulate(FedAvg(), context(lr=1e200, epochs=1), federation(), 4)
    assert next(rounds).snapshot.round == 1
    with pytest.raises(FedpubError, match=r"loss of client 0 is (nan|inf) in round 2: .*lower lr"):
        next(rounds)


class Breaking(Local):
    """Trains as Local does; then client 4 has a weight that is not finite, which its loss has not met yet."""

    def client(self, ctx, own, msg, data):
        own, up, loss_K = super().client(ctx, own, msg, data)
        own["weights"]["classifier.bias"][data.ids_K == 4, 0] = float("inf")
        return own, up, loss_K


@pytest.mark.parametrize("chunk", [None, 3])
def test_weights_that_are_not_finite_name_client_and_round(chunk):
    with pytest.raises(FedpubError, match="sum of all weights of client 4 is inf in round 1"):
        next(simulate(Breaking(), context(), federation(chunk=chunk), rounds=1))


def test_sparsity_is_of_the_federated_model_s_matrices():
    """One zero of four entries, and one of two; biases and the fallback do not count."""
    weights = {
        "conv1.weight": torch.tensor([[[1.0, 0.0], [2.0, 3.0]], [[0.0, 0.0], [0.0, 4.0]]]),
        "conv1.bias": torch.zeros(2, 2),
        "conv2.weight": torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]]),
        SECOND + "conv1.weight": torch.zeros(2, 5, 5),
    }
    model = WithFallback(GCN(2), GCN(2))
    assert sparsity(model.federated(weights)).tolist() == pytest.approx([2 / 6, 3 / 6])


def test_what_is_measured_leaves_a_fallback_out():
    """Its weights are all zero here, and none of the others is."""
    ctx = replace(context(), model=WithFallback(GCN(4), GCN(4)))
    weights = {name: leaf * (not name.startswith(SECOND)) for name, leaf in random_tree(ctx.model, 3).items()}
    metrics, _ = measure(FedAvg(), ctx, {"weights": weights}, small_clients())
    assert metrics["sparsity"].tolist() == [0, 0, 0]


def test_the_client_that_diverges_is_named_when_few_take_part():
    client = participants(3, 1, CLIENTS, 0.5, 0.0)[2]
    assert client != 2
    own = federation(subgraphs=with_huge_features(client), dtype=torch.float32)
    with pytest.raises(FedpubError, match=rf"client {client} is .* round 1\b"):
        next(simulate(FedAvg(), context(), own, 1, fraction=0.5))


def predicted_by_hand(weights: dict[str, Tensor]) -> np.ndarray:
    """The class of every node of the whole graph: the paper's model with dense matrices."""
    whole = graph()
    a = whole.adjacency().toarray() + np.eye(whole.num_nodes)
    a = a / np.sqrt(np.outer(a.sum(1), a.sum(1)))
    w = {name: leaf[0].numpy() for name, leaf in weights.items()}
    h = np.maximum(a @ whole.x.numpy() @ w["conv1.weight"] + w["conv1.bias"], 0)
    h = np.maximum(a @ h @ w["conv2.weight"] + w["conv2.bias"], 0)
    return (h @ w["classifier.weight"] + w["classifier.bias"]).argmax(1)


def test_the_oracle_is_reported_on_each_overlapping_client_s_own_nodes(tmp_path):
    graph().save(tmp_path / "tiny.graph")
    one = Experiment(str(tmp_path / "tiny.graph"), "overlapping", 10, "oracle", hidden=8, seed=1, dtype="float64")
    ready = prepare(replace(one, lr=0.05).resolve())
    nodes, chosen = ready.partition.nodes, split(ready.graph, 1)
    assert torch.bincount(torch.cat(nodes)).max() > 1  # they do overlap
    found = rounds_of(Oracle(), context(lr=0.05), ready.federation, 3)[-1]
    right = predicted_by_hand(found.snapshot.clients["weights"]) == ready.graph.y.numpy()
    for name, members in (("val", chosen.val), ("test", chosen.test)):
        expected = [right[own[members[own]].numpy()].mean() for own in nodes]
        assert len(set(expected)) > 3
        assert found.metrics[name].tolist() == pytest.approx(expected, abs=1e-12)
    assert found.loss_R.shape == (10,)
    assert len(found.loss_R.unique()) == 1  # one model
    assert int(found.bytes_up_R.sum() + found.bytes_down_R.sum()) == 0
    sizes = NodeClassification().sizes(ready.federation.subgraphs, ready.federation.report).tolist()
    assert sizes == [int(chosen.test[own].sum()) for own in nodes]


def lacking(no_test: int, no_train: int) -> Split:
    """The usual split, where one client has no test nodes and another none to train on."""
    sets = Split(*(part.clone() for part in split(graph(), 0)))
    nodes = nodes_of_clients()
    sets.test[nodes[no_test]] = False
    sets.train[nodes[no_train]] = False
    return sets


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "oracle"])
def test_clients_without_test_or_training_nodes(name, chunk):
    own = federation(subgraphs=subgraphs(chosen=lacking(no_test=1, no_train=4)), chunk=chunk)
    own = after_setup(VARIANTS[name], context(), own)
    found = rounds_of(VARIANTS[name], context(), own, 2)
    for measured in found:
        assert torch.isnan(measured.metrics["test"]).nonzero().flatten().tolist() == [1]
        assert torch.isnan(measured.metrics["test_f1"]).nonzero().flatten().tolist() == [1]
        assert measured.loss_R[4] == 0
        assert torch.isfinite(measured.loss_R).all()
        tensors = pack(measured.snapshot.clients) | pack(measured.snapshot.server)
        assert all(torch.isfinite(leaf).all() for leaf in tensors.values())
    sizes = NodeClassification().sizes(own.subgraphs).tolist()
    summary = Record([Row.of(measured, 0.0) for measured in found]).summary("accuracy", sizes)
    assert summary["clients_without_test"] == 1
    assert summary["per_client_test"][1] is None
    best = found[summary["best_round"] - 1].metrics["test"].tolist()
    others = [value for client, value in enumerate(best) if client != 1]
    assert summary["test"] == pytest.approx(sum(others) / len(others), abs=1e-12)


def test_alone_a_client_without_training_nodes_learns_nothing():
    own = federation(subgraphs=subgraphs(chosen=lacking(no_test=1, no_train=4)))
    ctx = context(weight_decay=0.0)
    last = rounds_of(Local(), ctx, own, 2)[-1].snapshot.clients
    w0 = Local().init_client(first_weights(own, ctx), CLIENTS)
    weights = {name: part for name, part in last.items() if name == "weights"}
    first = {"weights": w0["weights"]}
    assert bits_equal(weights, first, [4])
    assert not bits_equal(weights, first, [0])


def test_all_clients_count_in_fed_pub_s_average_also_one_that_cannot_train():
    """Similarities exist for every pair, so that the client without training nodes gets a model too."""
    own = federation(subgraphs=subgraphs(chosen=lacking(no_test=1, no_train=4)))
    algorithm = VARIANTS["fedpub"]
    assert isinstance(algorithm, FedPub)
    found = rounds_of(algorithm, context(), own, 2)[-1]
    assert found.notes["similarity"].shape == (CLIENTS, CLIENTS)
    assert torch.isfinite(found.notes["similarity"]).all()
