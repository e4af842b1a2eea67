"""FED-PUB-plus, in numbers that were worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpub.algorithms import Local, communities
from fedpub.algorithms.communities import communities as found_in
from fedpub.algorithms.fedpub_plus import FedPubPlus, standing
from fedpub.algorithms.fedpub_plus.beside import KEPT, LOCAL, LOCAL_DROPOUT, init_beside
from fedpub.algorithms.fedpub_plus.choice import chosen, means, smoothed
from fedpub.algorithms.fedpub_plus.standing import (
    ALONE,
    BESIDE,
    COMMUNITY,
    EVERYONE,
    IN_COMMUNITY,
    PERSONAL,
    TRYING,
    USED,
    WITH_EVERYONE,
)
from fedpub.algorithms.masks import masked, with_masks
from fedpub.algorithms.training import optimiser_of, train
from fedpub.core.message import Message
from fedpub.core.optim import adam_init
from fedpub.core.tree import State, Tree, pack, stacked, state_map, tree_map
from fedpub.data.clients.subgraph import Subgraph, subgraph_of
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.engine.size import message_bytes
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.models import GCN, MODELS, Hops
from fedpub.models.fallback import SECOND, WithFallback, apart, together
from fedpub.models.twin import Twin
from fedpub.store.model_card import ModelCard
from fedpub.store.model_files import load_model, save_model, settled
from fedpub.store.record import Record, Row
from fedpub.store.run_models import unsettled
from fedpub.tasks import NodeClassification
from small import (
    NODES,
    assert_trees_equal,
    context,
    few_of_one_class,
    random_tree,
    small_clients,
    small_graph,
    small_split,
    subgraphs,
)

ONE = Twin(4)
TASK = NodeClassification()


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(*values: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Communities


def test_communities_by_hand():
    """Two directions that have nothing to do with each other, and one in between that is nearer to the second."""
    change_KD = rows((1, 0), (0, 2), (5, 0.1), (0.1, 3), (3, 0), (0.1, 1))
    assert found_in(change_KD, 3).tolist() == [0, 1, 0, 1, 0, 1]
    assert found_in(change_KD.flip(0), 3).tolist() == [0, 1, 0, 1, 0, 1], "numbered by their first members"


def test_a_cosine_of_a_tenth_is_where_communities_begin():
    for cosine, count in ((0.09, 2), (0.11, 1)):
        other = (cosine, math.sqrt(1 - cosine**2))
        assert len(set(found_in(rows((1, 0), (1, 0), other, other), 1).tolist())) == count


def test_the_mean_over_all_pairs_counts():
    """The third is at 60 degrees from the first and at right angles to the second: 0.25 on average with both."""
    first, second, third = (1.0, 0.0, 0.0), (0.5, 0.866, 0.0), (0.5, -0.2887, 0.8165)
    assert found_in(rows(first, second, third), 1).tolist() == [0, 0, 0]
    lone = (0.15, -0.0866, 0.985)  # a cosine of 0.15 with the first, 0 with the second
    assert found_in(rows(first, second, lone), 1).tolist() == [0, 0, 1]


def test_a_community_that_is_too_small_joins_the_one_most_like_it():
    change_KD = rows((1, 0, 0), (1, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0), (0, 1, 0), (-0.5, 0.05, 1))
    assert found_in(change_KD, 1).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert found_in(change_KD, 3).tolist() == [0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "least", "found"),
    [
        (((1, 0),), 3, [0]),
        (((1, 0), (0, 1)), 3, [0, 0]),
        (((1, 0), (0, 1)), 1, [0, 1]),
        (((0, 0), (0, 0), (0, 0)), 1, [0, 1, 2]),
        (((1, 0, 0), (0, 1, 0), (0, 0, 1)), 3, [0, 0, 0]),
    ],
    ids=["one client", "two", "two, each its own", "who has learnt nothing is like nobody", "all different"],
)
def test_odd_communities(change, least, found):
    assert found_in(rows(*change), least).tolist() == found


def test_the_size_of_a_community_changes_nothing():
    """Forty of one and three of each of two others."""
    stream = torch.Generator().manual_seed(0)
    centre = torch.eye(3, 60, dtype=torch.float64)
    true_K = torch.tensor([0] * 3 + [1] * 3 + [2] * 40)
    change_KD = centre[true_K] + 0.1 * torch.randn(46, 60, generator=stream, dtype=torch.float64)
    assert found_in(change_KD, 3).tolist() == true_K.tolist()


def test_clients_beyond_those_that_are_compared_join_the_nearest(monkeypatch):
    monkeypatch.setattr(communities, "AT_ONCE", 4)
    change_KD = rows((1, 0), (0, 1), (1, 0), (0, 1), (0.2, 1), (1, 0.3))
    assert found_in(change_KD, 2).tolist() == [0, 1, 0, 1, 1, 0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4))
def test_communities_are_never_too_small_and_do_not_depend_on_the_order(seed, clients, least):
    stream = torch.Generator().manual_seed(seed)
    change_KD = torch.randn(clients, 6, generator=stream, dtype=torch.float64)
    found = found_in(change_KD, least)
    size = torch.bincount(found)
    assert len(size) == 1 or int(size.min()) >= least
    order = torch.randperm(clients, generator=stream)
    again = found_in(change_KD[order] * 3, least)
    assert torch.equal(
        again.unsqueeze(0) == again.unsqueeze(1), (found[order].unsqueeze(0) == found[order].unsqueeze(1))
    )


# The choice of a model


def test_own_examples_and_those_of_all_are_weighed():
    """The first model is better for all by 0.1, the second for this client by 0.2: half as much with 20 examples
    beside 50, more with 200."""
    score, mean = rows((0.6, 0.8), (0.6, 0.8)), rows((0.7, 0.6), (0.7, 0.6))
    both = torch.ones(2, 2, dtype=torch.bool)
    assert chosen(both, score, mean, torch.tensor([20, 200]), 50).tolist() == [0, 1]
    assert chosen(both, score, mean, torch.tensor([24, 26]), 50).tolist() == [0, 1], "equal at 25"
    assert chosen(both, score, mean, torch.tensor([20, 20]), 0).tolist() == [1, 1], "its own alone"


def test_models_that_are_not_known_are_not_chosen():
    unknown = -1.0
    score, mean = rows((unknown, 0.2, 0.4), (0.9, 0.2, 0.4)), rows((unknown, 0.6, 0.5), (unknown, 0.6, 0.5))
    here = torch.ones(2, 3, dtype=torch.bool)
    best = chosen(here, score, mean, torch.tensor([0, 0]), 50)
    assert best.tolist() == [1, 1], "without examples: what is best for all"
    assert chosen(here, score, mean, torch.tensor([9, 9]), 50).tolist() == [1, 0]
    nothing = torch.full((1, 3), unknown, dtype=torch.float64)
    assert chosen(here[:1], nothing, nothing, torch.tensor([5]), 50).tolist() == [0]


def test_a_model_that_a_client_has_not_trained_is_never_chosen():
    """The first is the best for all and the third for this client, but it has only the second."""
    score, mean = rows((-1, -1, 0.9)), rows((0.9, 0.1, 0.2))
    only = torch.tensor([[False, True, False]])
    for examples in (0, 1000):
        assert chosen(only, score, mean, torch.tensor([examples]), 50).tolist() == [1]


def test_means_are_over_those_who_know():
    assert means(rows((0.5, -1, 0.2), (0.7, -1, -1))).tolist() == pytest.approx([0.6, -1, 0.2])


def test_scores_are_smoothed():
    assert smoothed(numbers(-1, 0.5, 0.5, -1), numbers(0.3, 1.0, -1, -1)).tolist() == pytest.approx([0.3, 0.6, 0.5, -1])


# Local's model beside


def one_number() -> State:
    """A client whose model beside is the number 5, and was 9 when it was kept."""
    leaf = {"w": numbers(5).view(1, 1, 1)}
    own = init_beside({"w": numbers(9).view(1, 1)}, 1)
    return own | {
        "alone_weights": leaf,
        "alone_score": numbers(0.5),
        "kept_score": numbers(0.4),
        "kept_mean": numbers(0.6),
        "kept_mean_loss": numbers(0.7),
        "alone_rounds": torch.tensor([3]),
        "has_kept": torch.tensor([1]),
    }


@pytest.mark.parametrize(
    ("mean", "mean_loss", "new"),
    [(0.7, 0.9, True), (0.6, 0.7, False), (0.6, 0.65, True), (0.5, 0.1, False), (-1.0, 0.0, False)],
    ids=["a better round", "as good a round", "one of lower loss", "a worse one", "nobody knows"],
)
def test_the_model_beside_is_kept_from_the_best_round(mean, mean_loss, new):
    from fedpub.algorithms.fedpub_plus.beside import _kept

    done = _kept(replace(context(), round=4), one_number(), numbers(mean), numbers(mean_loss))
    assert done[KEPT]["w"].item() == (5.0 if new else 9.0)
    found = [done[name].item() for name in ("kept_score", "kept_mean", "kept_mean_loss")]
    assert found == pytest.approx([0.5, mean, mean_loss] if new else [0.4, 0.6, 0.7])


@pytest.mark.parametrize(
    ("rounds", "score", "has_kept", "new"),
    [(0, -1.0, 0, False), (2, 0.5, 1, True), (2, 0.3, 1, False), (2, 0.3, 0, True), (2, -1.0, 0, False)],
    ids=["not trained yet", "better than before", "worse", "the first one", "nothing to validate on"],
)
def test_a_client_that_has_missed_rounds_keeps_its_own_best_model_beside(rounds, score, has_kept, new):
    """In round 9; the others' best round was long ago, so their mean says nothing about this client's."""
    from fedpub.algorithms.fedpub_plus.beside import _kept

    late = {"alone_rounds": torch.tensor([rounds]), "alone_score": numbers(score), "has_kept": torch.tensor([has_kept])}
    done = _kept(replace(context(), round=9), one_number() | late, numbers(0.5), numbers(0.9))
    assert done[KEPT]["w"].item() == (5.0 if new else 9.0)
    assert done["has_kept"].item() == max(has_kept, new)


def a_rare_class() -> list[Subgraph]:
    """Clients whose models are right equally often in every round."""
    graph = few_of_one_class()
    return TASK.divide(graph, tuple(torch.arange(120).view(2, 60)), 0, (0.4, 0.3, 0.3), "symmetric")


@pytest.mark.parametrize("made", [subgraphs, a_rare_class])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_model_to_fall_back_to_is_the_one_that_local_reports(dtype, made):
    """Number for number: the weights of the round in which Local's clients were best on average."""
    federation = Federation(made(), 3, torch.device("cpu"), dtype)
    plus, ctx = FedPubPlus(), context(GCN(128), epochs=2, lr=0.02, dropout=0.5, weight_decay=0.0)
    rounds = 12
    reported, record = {}, Record()
    for measured in simulate(Local(), ctx, federation, rounds - 1):  # the last one is not known before its end
        if record.append(Row.of(measured, 0.0)):
            reported = tree_map(torch.clone, measured.snapshot.clients["weights"])
    best = record.best()
    *_, last = simulate(plus, replace(ctx, model=plus.net(ONE, TASK), dropout=0.6), federation, rounds)
    kept = last.snapshot.clients
    assert kept["kept_mean"][0].item() == pytest.approx(best.mean("val"))
    assert kept["kept_mean_loss"][0].item() == pytest.approx(best.mean("val_loss"))
    assert_trees_equal(kept[KEPT], reported)
    assert best.round > 1 or made is subgraphs


# The server


def server_of(count: int, **options: Any) -> tuple[FedPubPlus, State]:
    """A server whose model is one matrix of one number and one bias."""
    plus = FedPubPlus(**options)
    return plus, plus.init_server({"w": numbers(0).view(1, 1), "b": numbers(0)}, count)


def upload(
    values: list[float], sent: list[bool] | None = None, scores: list[float] = (), change: Any = None
) -> Message:  # type: ignore[assignment]
    count = len(values)
    told = torch.full((count, USED + 1), -1.0, dtype=torch.float64)
    told[:, : len(scores)] = numbers(*scores)
    weights = {"w": numbers(*values).view(-1, 1, 1), "b": numbers(*values).view(-1, 1)}
    here = torch.tensor([True] * count if sent is None else sent)
    parts: State = {"weights": weights, "scores": told}
    entries = {"w": here.view(-1, 1, 1), "b": here.view(-1, 1)}
    if change is not None:
        parts["functions"] = {"change": change}
        entries["change"] = torch.ones_like(change, dtype=torch.bool)
    return Message(parts, entries)


def phase(plus: FedPubPlus, server: State, count: int) -> list[int]:
    return plus.send(server, torch.arange(count)).tensor("phase").tolist()


def value(tree: Tree) -> list[float]:
    return tree["w"].flatten().tolist()


TWO = rows((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1))  # clients 0, 2, 4 and clients 1, 3, 5


def alone_until_placed(monkeypatch: pytest.MonkeyPatch, change_KD: torch.Tensor = TWO, **options: Any):
    """A server after one round alone."""
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 1)
    plus, server = server_of(len(change_KD), **options)
    assert phase(plus, server, len(change_KD)) == [ALONE] * len(change_KD)
    ids, nothing = torch.arange(len(change_KD)), [False] * len(change_KD)
    server, notes = plus.server(context(), server, ids, upload([9.0] * len(ids), nothing, change=change_KD))
    assert value(server["everyone"]) == [0], "nothing was sent"
    return plus, server, notes


def test_after_their_rounds_alone_clients_are_placed(monkeypatch):
    _, server, notes = alone_until_placed(monkeypatch)
    assert server["community"].tolist() == [0, 1, 0, 1, 0, 1]
    assert value(server["communities"]) == [0, 0], "both begin with everybody's"
    assert notes["community"].tolist() == [0, 1, 0, 1, 0, 1]
    torch.testing.assert_close(notes["alpha"], torch.eye(6), msg="nobody was averaged with another")
    assert notes["similarity"][0].tolist() == pytest.approx([1, 0, 1, 0, 1, 0])


def test_rounds_alone_are_counted_by_client(monkeypatch):
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 2)
    plus, server = server_of(3)
    for ids in ([0, 1], [0]):
        up = upload([1.0] * len(ids), [False] * len(ids), change=rows(*[(1, 0)] * len(ids)))
        server, _ = plus.server(context(), server, torch.tensor(ids), up)
    assert phase(plus, server, 3) == [WITH_EVERYONE, ALONE, ALONE]


def test_both_averages_are_tried_in_turns_and_the_better_goes_on(monkeypatch):
    """Everybody's models score 0.5 and 0.6, those of communities 0.7; then the other way round."""
    monkeypatch.setattr(standing, "TRIAL", 4)
    for community, decided in ((0.7, [IN_COMMUNITY]), (0.6, [WITH_EVERYONE])):
        plus, server, _ = alone_until_placed(monkeypatch)
        found = []
        for _ in range(6):
            found.append(phase(plus, server, 6)[0])
            up = upload([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], scores=[0.6, 0.5, community, 0.9])
            server, notes = plus.server(context(), server, torch.arange(6), up)
        assert found == [WITH_EVERYONE, TRYING, WITH_EVERYONE, TRYING, *decided * 2]
        assert value(server["everyone"]) == pytest.approx([3.5])
        assert value(server["communities"]) == pytest.approx([3.0, 4.0])
        received = plus.send(server, torch.arange(6)).tree("weights")
        assert value(received) == pytest.approx([3.0, 4.0] * 3 if decided == [IN_COMMUNITY] else [3.5] * 6)
        share = [1 / 3, 0, 1 / 3, 0, 1 / 3, 0] if decided == [IN_COMMUNITY] else [1 / 6] * 6
        assert notes["alpha"][0].tolist() == pytest.approx(share)


def test_a_client_that_is_away_is_in_no_average(monkeypatch):
    """Clients 0, 1 and 2 in a round with everybody; then 0, 1, 2 and 4 with their communities, of the second only 1."""
    plus, server, _ = alone_until_placed(monkeypatch, min_group=2)
    server, _ = plus.server(context(), server, torch.tensor([0, 1, 2]), upload([1.0, 4.0, 7.0]))
    assert value(server["everyone"]) == pytest.approx([4.0])
    server, notes = plus.server(context(), server, torch.tensor([0, 1, 2, 4]), upload([1.0, 4.0, 7.0, 10.0]))
    assert value(server["communities"]) == pytest.approx([6.0, 0.0]), "of the second one alone: what was there stays"
    third = [pytest.approx(1 / 3)] * 3
    assert notes["alpha"][0, [0, 2, 3]].tolist() == third
    assert notes["alpha"][1].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(("there", "mean"), [(3, 2.0), (2, 0.0), (1, 0.0)])
def test_an_average_is_of_as_many_as_a_group_needs(monkeypatch, there, mean):
    """With fewer answers than `min_group` the last average is kept: nobody receives a single client's model."""
    plus, server, _ = alone_until_placed(monkeypatch)
    ids = torch.tensor([0, 2, 4][:there])
    values = upload([1.0, 2.0, 3.0][:there])
    server, notes = plus.server(context(), server, ids, values)
    assert value(server["everyone"]) == pytest.approx([mean])
    averaged = torch.full((there, there), 1 / there) if there == 3 else torch.eye(there)
    torch.testing.assert_close(notes["alpha"], averaged)
    others = torch.tensor([1, 3, 5])
    server = server | {"tried": torch.ones_like(server["tried"])}
    server, _ = plus.server(context(), server, torch.cat([ids, others]), Message.together([values, upload([4.0] * 3)]))
    assert value(server["communities"]) == pytest.approx([mean, 4.0])


def test_two_clients_are_a_group_though_three_are_asked_for():
    plus, server = server_of(2, grouping=False)
    server, _ = plus.server(context(), server, torch.arange(2), upload([1.0, 3.0]))
    assert value(server["everyone"]) == pytest.approx([2.0])


def test_the_trial_compares_the_same_clients(monkeypatch):
    """Clients that were alone till now know no shared model of all; their scores decide nothing."""
    monkeypatch.setattr(standing, "TRIAL", 1)
    plus, server, _ = alone_until_placed(monkeypatch)
    told = upload([1.0] * 6, scores=[-1, 0.7, 0.6])
    told["scores"][3:, EVERYONE] = -1
    told["scores"][3:, COMMUNITY] = 0.95
    server, _ = plus.server(context(), server, torch.arange(6), told)
    assert phase(plus, server, 6) == [WITH_EVERYONE] * 6


def test_a_row_that_few_have_sent_goes_a_part_of_the_way():
    """One of four goes from 0 to 8: 1 · 7 / (4 · 4) of that. Two go to 6, 2 · 7 / (4 · 5); all four, all the way."""
    plus, server = server_of(4, grouping=False)
    for sent, mean in (([True, False, False, False], 3.5), ([True, True, False, False], 4.2), ([True] * 4, 3.0)):
        done, _ = plus.server(context(), server, torch.arange(4), upload([8.0, 4.0, 0.0, 0.0], sent))
        assert value(done["everyone"]) == pytest.approx([mean])


def test_a_latecomer_is_placed_when_it_comes(monkeypatch):
    """Client 5 misses the first rounds. Its round alone changes no average, and then it is with those like it."""
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 1)
    plus, server = server_of(6)
    early = torch.arange(5)
    server, _ = plus.server(context(), server, early, upload([0.0] * 5, [False] * 5, change=TWO[:5]))
    assert server["community"].tolist() == [0, 0, 0, 0, 0, -1], "two are too few for a community"
    for _ in range(2):
        server, _ = plus.server(context(), server, early, upload([2.0] * 5))
    assert phase(plus, server, 6) == [WITH_EVERYONE] * 5 + [ALONE]
    assert value(plus.send(server, torch.tensor([5])).tree("weights")) == [0], "the common start"
    up = upload([2.0] * 5 + [50.0], [True] * 5 + [False], change=torch.cat([TWO[:5] * 0, TWO[5:]]))
    server, _ = plus.server(context(), server, torch.arange(6), up)
    assert server["community"].tolist() == [0, 1, 0, 1, 0, 1]
    assert value(server["everyone"]) == pytest.approx([2.0])
    assert value(server["communities"]) == pytest.approx([2.0, 2.0]), "new communities begin with everybody's"


def test_until_half_of_the_clients_are_known_all_are_one(monkeypatch):
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 1)
    plus, server = server_of(14)
    ids = torch.arange(6)
    server, _ = plus.server(context(), server, ids, upload([0.0] * 6, [False] * 6, change=TWO))
    assert server["community"].tolist() == [0] * 6 + [-1] * 8


def test_one_community_is_everybody_and_nothing_is_tried(monkeypatch):
    plus, server, _ = alone_until_placed(monkeypatch, rows(*[(1, 0)] * 4))
    for _ in range(3):
        assert phase(plus, server, 4) == [WITH_EVERYONE] * 4
        server, _ = plus.server(context(), server, torch.arange(4), upload([1.0, 2.0, 3.0, 4.0]))
    assert int(server["tried"]) == 0


def test_without_communities_nobody_is_alone():
    plus, server = server_of(2, grouping=False)
    assert phase(plus, server, 2) == [WITH_EVERYONE] * 2
    assert plus.uploads == {"weights", "active", "scores"}
    assert plus.introduction(server) is None


def test_communities_that_are_given():
    plus, server = server_of(4, given="7,3,3,7", min_group=2)
    assert phase(plus, server, 4) == [IN_COMMUNITY] * 4
    server, _ = plus.server(context(), server, torch.arange(4), upload([1.0, 2.0, 3.0, 4.0]))
    assert value(server["communities"]) == pytest.approx([2.5, 2.5])
    server, _ = plus.server(context(), server, torch.arange(4), upload([1.0, 2.0, 3.0, 9.0]))
    assert value(plus.send(server, torch.arange(4)).tree("weights")) == pytest.approx([5.0, 2.5, 2.5, 5.0])
    with pytest.raises(FedpubError, match=r"given has 4 numbers for 3 clients"):
        plus.init_server({"w": numbers(0).view(1, 1)}, 3)


def test_numbers_of_communities_may_be_any():
    assert FedPubPlus(given="99999999999999999999,07,7,99999999999999999999", min_group=2).known == [0, 1, 1, 0]


def test_the_means_of_the_scores_go_to_everybody():
    plus, server = server_of(3, grouping=False)
    server, _ = plus.server(
        context(), server, torch.arange(2), upload([0.0, 0.0], scores=[0.5, -1, 0.2, 99.0, 0.4, 3.0])
    )
    mean = plus.send(server, torch.tensor([2])).tensor("means")
    assert mean.tolist() == [pytest.approx([0.5, -1, 0.2, 1.0, 0.4, 3.0])], "no value is above one, a loss may be"


def test_losses_that_are_too_large_to_be_added_stop_nobody():
    plus, server = server_of(3, grouping=False)
    huge = upload([0.0] * 3, scores=[0.5, 0.5, 0.5, 0.5, 0.5, 1.7e308])
    server, _ = plus.server(context(), server, torch.arange(3), huge)
    assert torch.isfinite(plus.send(server, torch.arange(3)).tensor("means")).all()


def test_a_newcomer_gets_the_average_of_those_like_it():
    """Clients 0 to 2 and 3 to 5 are two communities, 6 is still alone."""
    plus, known = FedPubPlus(), rows(*[(1, 0)] * 3, *[(0, 1)] * 4)
    server: State = {"alone": torch.tensor([0, 0, 0, 0, 0, 0, 2])}
    third = pytest.approx(1 / 3)
    assert plus.shares(server, rows((0, 2)), known).tolist() == [[0, 0, 0, third, third, third, 0]]
    like_nobody = FedPubPlus(min_group=1).shares(server, rows((-1, -1)), known)
    assert like_nobody.tolist() == [[*[pytest.approx(1 / 6)] * 6, 0]], "all that are placed"
    nobody: State = {"alone": torch.full((7,), 5)}
    assert plus.shares(nobody, rows((1, 0)), known).tolist() == [[pytest.approx(1 / 7)] * 7]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_group": 0}, r"min_group=0 is not possible"),
        ({"given": "0,0,0", "grouping": False}, r"given names communities and grouping=False has none"),
        ({"lambda1": -1.0}, r"lambda1=-1.0 is not possible"),
        ({"evidence": math.inf}, r"evidence=inf is not possible"),
        ({"given": "0,a"}, r"given=0,a is not a list of numbers"),
        ({"given": "0,0,1"}, r"fewer than min_group=3 clients"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(FedpubError, match=said):
        FedPubPlus(**options)


# The client


def played(plus: FedPubPlus, model: Any, w0: Tree, phases: list[int], data: Any = None, **changes: Any):
    """A client step of the three small clients in these phases; what they had, received, have and send."""
    data = small_clients() if data is None else data
    own, count = plus.init_client(w0, data.num_clients), data.num_clients
    received = random_tree(apart_model(model), count, seed=3)
    mean_KM = torch.full((count, USED), -1.0, dtype=torch.float64)
    msg = Message({"weights": received, "phase": torch.tensor(phases), "means": mean_KM})
    before = state_map(torch.clone, own)
    done, up, _ = plus.client(context(model, epochs=2, dropout=0.3, **changes), own, msg, data)
    return before, received, done, up


def apart_model(model: Any) -> Any:
    return model.model if isinstance(model, WithFallback) else model


def test_what_is_shared_is_trained_without_masks_from_what_was_received():
    plus, data = FedPubPlus(fallback=False), small_clients()
    before, received, done, up = played(plus, ONE, random_tree(ONE), [WITH_EVERYONE] * 3)
    weights = tree_map(torch.clone, received)
    optimiser, _ = train(context(ONE, epochs=2, dropout=0.3), data, weights, adam_init(weights))
    assert_trees_equal(up.tree("weights"), weights)
    assert_trees_equal(done["everyone_weights"], weights)
    assert_trees_equal(done["everyone_first"], optimiser["first"])
    assert_trees_equal(done["community_weights"], before["community_weights"])
    assert done["community_step"].tolist() == [0, 0, 0]


def test_the_personal_model_has_masks_and_begins_at_the_same_weights():
    """Masks learn at e / (e + 0.1) of their speed, with 2/5, 3/5 and 1/5 training nodes per feature."""
    plus, data = FedPubPlus(fallback=False, lambda1=0.5), small_clients()
    before, received, done, _ = played(plus, ONE, random_tree(ONE), [WITH_EVERYONE] * 3)
    weights, masks = tree_map(torch.clone, received), tree_map(torch.clone, before["masks"])
    for name, seen_KF in ONE.seen(data).items():
        masks[name] *= seen_KF.unsqueeze(2)
    pace_K = numbers(0.4 / 0.5, 0.6 / 0.7, 0.2 / 0.3) * 0.1
    train(
        context(ONE, epochs=2, dropout=0.3),
        data,
        weights,
        optimiser_of(before),
        masks,
        lr={"mask." + name: pace_K for name in masks},
        shrink=0.5 * pace_K,
    )
    assert_trees_equal(done["weights"], weights, exact=False)
    assert_trees_equal(done["masks"], masks, exact=False)


def test_in_each_phase_the_right_models_learn():
    """One client with everybody, one in a community for good, one that tries it: whose masks stay."""
    plus = FedPubPlus(fallback=False)
    before, _, done, _ = played(plus, ONE, random_tree(ONE), [WITH_EVERYONE, IN_COMMUNITY, TRYING])
    for client, (everyone, community, personal) in enumerate(((1, 0, 1), (0, 1, 1), (0, 1, 0))):
        for name, learns in (("everyone_weights", everyone), ("community_weights", community), ("weights", personal)):
            for leaf, value in done[name].items():
                assert torch.equal(value[client], before[name][leaf][client]) != bool(learns), (client, name, leaf)
        assert torch.equal(done["masks"]["conv2.self"][client], before["masks"]["conv2.self"][client]) != bool(personal)
    together_, alone = played(plus, ONE, random_tree(ONE), [IN_COMMUNITY] * 3)[2], done
    for name in ("community_weights", "weights"):
        for leaf, value in alone[name].items():
            torch.testing.assert_close(value[1], together_[name][leaf][1], msg="whatever the others do")


def test_alone_a_client_sends_the_change_of_its_function_and_nothing_else():
    plus, w0 = FedPubPlus(fallback=False), random_tree(ONE)
    own = plus.init_client(w0, 3)
    server = plus.init_server(w0, 3)
    ctx = context(ONE, epochs=2, dropout=0.3)
    msg = plus.send(server, torch.arange(3))
    assert msg.tensor("phase").tolist() == [ALONE] * 3
    first = stacked(w0, 3)
    done, up, _ = plus.client(ctx, own, msg, small_clients())
    assert not any(up.sent[name].any() for name in first)
    assert up.sent["change"].all()
    assert_trees_equal(done["masks"], tree_map(torch.ones_like, done["masks"]))
    proxy = next(made for key, made in ctx.made.items() if key[0] == "proxy")
    change = ONE.respond(done["community_weights"], proxy) - ONE.respond(first, proxy)
    change = change - change.mean(1, keepdim=True)
    torch.testing.assert_close(up.tree("functions")["change"], change.flatten(1))
    size = message_bytes(up, 3, torch.device("cpu"))
    assert size.tolist() == [500 * 3 * 8 + 7 * 8] * 3, "and seven scores"
    # A second round alone goes on from the client's own weights.
    again, up, _ = plus.client(replace(ctx, round=2), done, msg, small_clients())
    assert again["community_step"].tolist() == [4, 4, 4]
    torch.testing.assert_close(
        up.tree("functions")["change"].view(3, 500, 3),
        (c := ONE.respond(again["community_weights"], proxy) - ONE.respond(first, proxy)) - c.mean(1, keepdim=True),
    )


def test_rows_that_training_did_not_change_are_not_sent():
    """Features that no training node and no neighbour of one has: of client 0's, with hops."""
    model, plus = Hops(4), FedPubPlus(fallback=False)
    data = small_clients_for(model)
    _, received, _, up = played(plus, model, random_tree(model), [WITH_EVERYONE] * 3, data)
    for name, leaf in up.tree("weights").items():
        changed = (leaf != received[name]).any(-1)
        assert torch.equal(up.sent[name].any(-1), changed)
        assert torch.equal(up.sent[name].all(-1), changed), "whole rows"
    assert up.sent["hop0.weight"].any(-1).int().tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 0]]


def small_clients_for(model: Hops) -> Any:
    from fedpub.data.clients.stack import stack

    return stack(subgraphs(), 3, dtype=torch.float64, steps=model.steps)


@pytest.mark.parametrize("used", [PERSONAL, EVERYONE, COMMUNITY, BESIDE])
def test_a_client_is_answered_by_the_model_it_uses(used):
    plus, data = FedPubPlus(evidence=0.0), small_clients()
    model = plus.net(ONE, TASK)
    own = plus.init_client(random_tree(ONE) | {SECOND + name: leaf for name, leaf in random_tree(LOCAL).items()}, 3)
    shared = enumerate(("everyone_weights", "community_weights", "weights"))
    own |= {name: random_tree(ONE, 3, seed=number) for number, name in shared}
    own |= {KEPT: random_tree(LOCAL, 3, seed=8), "examples": torch.ones(3).long(), "has_kept": torch.ones(3).long()}
    own |= {name: torch.ones(3) for name in ("step", "everyone_step", "community_step")}
    score = torch.zeros(3, 4, dtype=torch.float64)
    score[:, used] = 0.5
    own["scores"] = score
    expected = [
        lambda: ONE.apply(masked(with_masks(own["weights"], own["masks"])), data),
        lambda: ONE.apply(own["everyone_weights"], data),
        lambda: ONE.apply(own["community_weights"], data),
        lambda: LOCAL.apply(own[KEPT], data),
    ][used]()
    torch.testing.assert_close(model.apply(plus.personal(own), data), expected)
    assert plus.used(own).tolist() == [used] * 3


def test_scores_are_of_the_models_that_learnt():
    plus = FedPubPlus()
    model = plus.net(ONE, TASK)
    w0 = random_tree(ONE) | {SECOND + name: leaf for name, leaf in random_tree(LOCAL).items()}
    _, _, done, up = played(plus, model, w0, [WITH_EVERYONE, IN_COMMUNITY, ALONE])
    data, score = small_clients(), done["scores"]
    shared = TASK.validate(ONE, up.tree("weights"), data)["val"].tolist()
    personal = TASK.validate(ONE, masked(with_masks(done["weights"], done["masks"])), data)["val"].tolist()
    beside = TASK.validate(LOCAL, done["alone_weights"], data)
    assert score[:, EVERYONE].tolist() == pytest.approx([shared[0], -1, -1])
    assert score[:, COMMUNITY].tolist() == pytest.approx([-1, shared[1], shared[2]])
    assert score[:, PERSONAL].tolist() == pytest.approx([personal[0], personal[1], -1])
    assert score[:, BESIDE].tolist() == [-1] * 3, "nothing is kept before the means are known"
    assert up.tensor("scores")[:, 4].tolist() == pytest.approx(beside["val"].tolist())
    assert up.tensor("scores")[:, 5].tolist() == pytest.approx(beside["val_loss"].tolist())
    assert done["examples"].tolist() == [1, 1, 2]


def test_who_has_nothing_to_validate_on_uses_what_is_best_for_all():
    """Client 2 has no validation nodes."""
    split = small_split()
    split.val[torch.tensor(NODES[2])] = False
    own = [subgraph_of(small_graph(), torch.tensor(nodes), split, client, "symmetric")
           for client, nodes in enumerate(NODES)]  # fmt: skip
    plus, ctx = FedPubPlus(), context(GCN(4), epochs=1)
    ctx = replace(ctx, model=plus.net(ONE, TASK))
    federation = Federation(own, 3, torch.device("cpu"), torch.float64)
    *_, last = simulate(plus, ctx, federation, 8)
    clients = last.snapshot.clients
    assert clients["examples"].tolist()[2] == 0
    assert clients["scores"][2, :3].tolist() == [-1, -1, -1]
    best = int(means(last.snapshot.server["scores"][:, :4]).argmax())
    before = plus.used(clients)
    assert int(before[2]) == int(clients["means"][2].argmax())
    assert 0 <= best < 4


# The whole


def shifted() -> list[Subgraph]:
    """Eight natural clients of two communities that contradict each other."""
    from fedpub.data.synthetic import Communities, communities_graph

    spec = Communities((4, 4), 24, 0.3, 0.02, 0.005, 3, 40, 0.5, 12, 0.2, 1.0)
    graph = communities_graph("shifted", spec)
    nodes = tuple((graph.client == one).nonzero().flatten() for one in range(8))
    return TASK.divide(graph, nodes, 0, (0.4, 0.3, 0.3), "symmetric")


@pytest.fixture
def short(monkeypatch):
    """All phases within a few rounds."""
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 3)
    monkeypatch.setattr(standing, "TRIAL", 6)


def rounds_of(fraction: float = 1.0, chunk: int | None = None, start: Any = None, rounds: int = 14) -> list[Any]:
    plus = FedPubPlus()
    ctx = context(Hops(8), epochs=3, lr=0.05, dropout=0.3)
    ctx = replace(ctx, model=plus.net(Hops(8), TASK))
    federation = Federation(shifted(), 3, torch.device("cpu"), torch.float64, chunk=chunk)
    found = []
    for measured in simulate(plus, ctx, federation, rounds, fraction, start=start):
        state = pack(state_map(torch.clone, measured.snapshot.server))
        found.append((measured.metrics["val"].clone(), measured.notes, state, measured.bytes_up_R.clone()))
    return found


def test_communities_that_contradict_each_other_are_found_and_kept(short):
    found = rounds_of()
    last = found[-1][2]
    assert last["community"].tolist() == [0] * 4 + [1] * 4
    assert int(last["tried"]) == 6
    assert int(last["decided"]) == COMMUNITY
    assert len(last["communities/hop.bias"]) == 2
    assert found[-1][1]["alpha"][0].tolist() == pytest.approx([0.25] * 4 + [0] * 4)


@pytest.mark.parametrize("fraction", [1.0, 0.6])
def test_who_is_beside_a_client_changes_nothing_in_any_phase(short, fraction):
    together_, one_by_one, three = (rounds_of(fraction, chunk) for chunk in (None, 1, 3))
    assert {int(state["tried"]) for *_, state, _ in together_} > {0, 1}
    for whole, one, some in zip(together_, one_by_one, three, strict=True):
        for other in (one, some):
            torch.testing.assert_close(whole[0], other[0], rtol=0, atol=1e-9, equal_nan=True)
            for name, leaf in whole[2].items():
                torch.testing.assert_close(leaf, other[2][name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("clients", [1, 2])
def test_one_client_and_two(clients, short):
    plus, ctx = FedPubPlus(), context(Hops(8), epochs=1, dropout=0.3)
    ctx = replace(ctx, model=plus.net(Hops(8), TASK))
    federation = Federation(shifted()[:clients], 3, torch.device("cpu"), torch.float64)
    *_, last = simulate(plus, ctx, federation, 6)
    assert last.snapshot.server["community"].tolist() == [0] * clients
    assert torch.isfinite(last.metrics["val"]).all()


@pytest.mark.parametrize("name", MODELS)
def test_outputs_on_a_proxy_graph_are_those_on_that_graph(name):
    from fedpub.data.clients.stack import stack
    from fedpub.data.graph import Graph
    from fedpub.models.proxy import random_proxy

    model = MODELS[name](4)
    proxy = random_proxy("sbm", 5, 5, model.propagation, 0.01, torch.device("cpu"), torch.float64, model.steps)
    edges = proxy.edge_index[:, proxy.edge_index[0] < proxy.edge_index[1]]
    graph = Graph(proxy.x, torch.arange(500) % 3, edges, ("a", "b", "c"), name="proxy").validate()
    nothing = torch.zeros(500, dtype=torch.bool)
    own = subgraph_of(graph, torch.arange(500), (nothing,) * 3, 0, model.propagation)  # type: ignore[arg-type]
    data = stack([own], 3, dtype=torch.float64, steps=model.steps)
    w = random_tree(model, 1)
    torch.testing.assert_close(model.respond(w, proxy)[0], model.apply(w, data))


# Models beside each other


def test_local_s_model_is_what_an_experiment_gives_local():
    asked = Experiment(method="local").resolve()
    assert (asked.model, asked.dropout) == (LOCAL, LOCAL_DROPOUT)


def test_two_models_beside_each_other_begin_as_if_alone():
    model = WithFallback(ONE, GCN(8))
    both = model.init(5, 3, torch.Generator().manual_seed(1))
    first, second = apart(both)
    assert_trees_equal(first, ONE.init(5, 3, torch.Generator().manual_seed(1)))
    assert_trees_equal(second, GCN(8).init(5, 3, torch.Generator().manual_seed(1)))


def test_every_client_is_answered_by_the_model_it_chose():
    data, first, second = small_clients(), random_tree(ONE, 3), random_tree(GCN(8), 3)
    both = together(first, second, torch.tensor([False, True, False]))
    expected = torch.where(data.segments.owner_N.unsqueeze(1) == 1, GCN(8).apply(second, data), ONE.apply(first, data))
    torch.testing.assert_close(WithFallback(ONE, GCN(8)).apply(both, data), expected)


def test_a_model_of_links_beside_its_like_is_saved_as_what_it_is():
    """GraphSAGE has weights of the same names and shapes."""
    asked = Experiment(method="fedpub-plus", task="link-prediction", hidden=4).resolve()
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float32)
    weights = first_weights(federation, asked.context)
    both = together(*(stacked(part, 1) for part in apart(weights)), torch.tensor([True]))
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    assert settled(both, card)[1] == card


@pytest.mark.parametrize("which", [(False, True, False), (True, True, True), (False, False, False)], ids=str)
def test_the_models_of_all_sites_are_kept_as_a_simulation_keeps_them(which):
    asked = Experiment(method="fedpub-plus", model="twin", hidden=4, dtype="float64").resolve()
    data, first, second = small_clients(), random_tree(ONE, 3), random_tree(LOCAL, 3)
    both = together(first, second, torch.tensor(which))
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    models = [settled(tree_map(lambda leaf, at=at: leaf[at : at + 1], both), card) for at in range(3)]
    found = unsettled(models, asked)
    kept = both if any(which) else first  # where nobody fell back, there is nothing to choose from
    assert {name: leaf.shape for name, leaf in found.items()} == {name: leaf.shape for name, leaf in kept.items()}
    torch.testing.assert_close(asked.model.apply(found, data), asked.model.apply(both, data))
    plain = Experiment(method="fedpub", model="twin", hidden=4).resolve()
    assert_trees_equal(unsettled([({"w": numbers(1)}, card), ({"w": numbers(2)}, card)], plain), {"w": numbers(1, 2)})


def test_a_model_of_one_s_own_may_name_its_weights_as_it_likes():
    class Named(GCN):
        def init(self, *arguments):
            return {name.replace("classifier", "decoder"): leaf for name, leaf in super().init(*arguments).items()}

        def apply(self, w, data, dropout=None):
            return super().apply(
                {name.replace("decoder", "classifier"): leaf for name, leaf in w.items()}, data, dropout
            )

        def respond(self, w, proxy):
            return super().respond({name.replace("decoder", "classifier"): leaf for name, leaf in w.items()}, proxy)

    plus = FedPubPlus()
    federation = Federation(subgraphs(), 3, torch.device("cpu"), torch.float64)
    assert len(list(simulate(plus, context(plus.net(Named(4), TASK), dropout=0.3), federation, 2))) == 2


def test_a_task_s_own_parameters_are_those_of_the_chosen_model():
    first, second = {"decoder.bias": numbers(1, 2).view(2, 1)}, {"decoder.bias": numbers(3, 4).view(2, 1)}
    both = together(first, second, torch.tensor([True, False]))
    assert both["decoder.bias"].flatten().tolist() == [3, 2]


@pytest.mark.parametrize("alone", [False, True])
def test_a_saved_model_is_the_one_that_the_client_uses(alone, tmp_path):
    data, first, second = small_clients(1), random_tree(ONE, 1), random_tree(GCN(8), 1)
    both = together(first, second, torch.tensor([alone]))
    asked = Experiment(method="fedpub-plus", model="twin", hidden=4, dtype="float64").resolve()
    card = ModelCard.of(asked.experiment, num_features=5, classes=("a", "b", "c"), site="1", round=1)
    save_model(tmp_path, both, card)
    weights, found = load_model(tmp_path)
    assert (found.model, found.hidden) == (("gcn", 8) if alone else ("twin", 4))
    expected = WithFallback(ONE, GCN(8)).apply(both, data)
    torch.testing.assert_close(found.net().apply(weights, data), expected)


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
