"""Numbers as words of fixed length, and what methods add up with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpub.algorithms import METHODS, FedAvg, FedPub, FedPubPlus
from fedpub.algorithms.context import Context
from fedpub.algorithms.fedpub_plus import secret, standing
from fedpub.algorithms.sums import FARTHEST, Hidden, Summed, reach, sums_of
from fedpub.core.message import Message
from fedpub.engine.sums import Block, added, decoded, format_of, means_of, reported, words_of
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.simulated import run


def context(**changes) -> Context:
    plan = Experiment(**changes).resolve()
    return replace(plan.context, round=1)


CTX = context()


def summed(hidden: Hidden, clients: int, shared_out: bool = False) -> Hidden:
    form = format_of(hidden, CTX, clients, shared_out)
    return decoded(form, added(form, words_of(form, hidden)))


def test_words_worked_out_by_hand():
    """Two clients, eight bits, S = 63 for values within ±1: 0.5 and -1 are 31.5 -> 32 and -63 -> 193 (mod 256)."""
    block = Block("steps", "w", (2,), 8, 63.0, 1.0, torch.float32)
    words = block.words(torch.tensor([[0.5, -1.0], [1.0, -1.0]]))
    assert words.tolist() == [[32, 193], [63, 193]]
    total = block.modulo(words.sum(0))
    assert total.tolist() == [95, 130]  # 386 mod 256
    assert block.value(total).tolist() == pytest.approx([95 / 63, -126 / 63])


def test_what_is_too_long_is_cut():
    block = Block("steps", "w", (1,), 24, 1000.0, 0.5, torch.float64)
    assert block.words(torch.tensor([[7.0], [-7.0]])).tolist() == [[500], [2**24 - 500]]


@given(
    clients=st.integers(1, 300),
    spread=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**20),
    shared_out=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_sums_never_overflow_and_are_as_exact_as_their_steps(clients, spread, seed, shared_out):
    """Also where every client is at the end of the range."""
    stream = torch.Generator().manual_seed(seed)
    far = reach(CTX)
    value = (far * (2 * torch.rand(clients, 3, generator=stream, dtype=torch.float64) - 1)) * spread
    value[:, 0] = far
    value[:, 1] = -far
    if shared_out:
        share = torch.rand(clients, 1, generator=stream, dtype=torch.float64)
        value = value * share / share.sum()
    hidden = Hidden({"w": value}, {"n": (value > 0).double()}, {"v": value[:, 2] / far})
    form = format_of(hidden, CTX, clients, shared_out)
    found = summed(hidden, clients, shared_out)
    step = 1 / next(block.scale for block in form if block.part == "steps")
    torch.testing.assert_close(found.steps["w"], value.sum(0), rtol=1e-12, atol=0.5001 * clients * step)
    assert torch.equal(found.counts["n"], (value > 0).double().sum(0))
    torch.testing.assert_close(found.numbers["v"], (value[:, 2] / far).sum(), rtol=0, atol=1e-13 * clients)


@pytest.mark.parametrize(
    ("clients", "bits", "counted"), [(3, 16, 8), (63, 16, 8), (64, 24, 8), (255, 24, 8), (256, 24, 16)]
)
def test_the_length_of_words_follows_the_number_of_clients(clients, bits, counted):
    form = format_of(Hidden({"w": torch.zeros(1, 4)}, {"n": torch.zeros(1, 2)}), CTX, clients, False)
    assert [(block.bits, block.bytes) for block in form] == [(bits, bits // 2), (counted, counted // 4)]


def test_the_reach_is_that_of_adam():
    """(1 - 0.9) / sqrt(1 - 0.999) learning rates a step."""
    assert pytest.approx(3.1623, abs=1e-4) == FARTHEST
    assert reach(replace(CTX, lr=0.01, epochs=2)) == pytest.approx(0.063246, abs=1e-6)
    batches = replace(CTX, batch_size=8)
    assert reach(batches) == 32 * reach(CTX)


def test_means_are_over_those_that_know_a_number():
    values = {"val": torch.tensor([0.25, float("nan"), 0.5]), "val_loss": torch.tensor([2.0, 4.0, float("nan")])}
    total = summed(Hidden(numbers=reported(values)), 3).numbers
    assert means_of([total]) == {"val": pytest.approx(0.375, abs=1e-12), "val_loss": pytest.approx(3.0, abs=1e-9)}
    nothing = summed(Hidden(numbers=reported({"val": torch.full((3,), float("nan"))})), 3).numbers
    assert str(means_of([nothing])["val"]) == "nan"


# What methods add up


def test_fed_avg_by_hand():
    """Three clients with 1, 3 and 0 examples at steps of 0.004, 0.008 and 0.02: (0.004 + 3 * 0.008) / 4 = 0.007."""
    received = torch.full((3, 1, 1), 1.0)
    step = torch.tensor([0.004, 0.008, 0.02]).view(3, 1, 1)
    up = Message({"weights": {"w": received + step}, "size": torch.tensor([1, 3, 0])})
    method, server = FedAvg(), {"weights": {"w": received[:1]}}
    found = sums_of(method, CTX, server, torch.arange(3), up, 3, 4, lambda hidden: summed(hidden, 3, True))
    assert float(found[0].sums.numbers["share"]) == 1
    after, _ = method.summed(CTX, server, torch.arange(3), found, Message())
    assert float(after["weights"]["w"]) == pytest.approx(1.007, abs=1e-6)
    kept, _ = method.summed(CTX, server, torch.arange(3), [], Message())
    assert float(kept["weights"]["w"]) == 1.0


def test_a_group_that_is_too_small_has_no_sum():
    up = Message({"weights": {"w": torch.ones(2, 1, 1)}, "size": torch.ones(2, dtype=torch.int64)})
    server = {"weights": {"w": torch.zeros(1, 1, 1)}}
    assert sums_of(FedAvg(), CTX, server, torch.arange(2), up, 3, 2) == []
    assert len(sums_of(FedAvg(), CTX, server, torch.arange(2), up, 2, 2)) == 1


def test_fed_pub_averages_entries_over_those_that_sent_them():
    """Entry 0 was sent by both: (0.01 + 0.03) / 2. Entry 1 by the second: 0.03. Entry 2 by neither: as it was."""
    method = FedPub(communities="disjoint", similarity=False, tau=3.0)
    server = {
        "weights": {"w": torch.ones(2, 1, 3)},
        "community": torch.zeros(2, dtype=torch.int64),
        "embeddings": torch.zeros(2, 0),
    }
    weights = torch.ones(2, 1, 3) + torch.tensor([0.01, 0.03]).view(2, 1, 1)
    sent = torch.tensor([[[True, False, False]], [[True, True, False]]])
    up = Message({"weights": {"w": weights}}, {"w": sent})
    found = sums_of(method, CTX, server, torch.arange(2), up, 2)
    assert found[0].sums.counts["w"].tolist() == [[2, 1, 0]]
    after, _ = method.summed(CTX, server, torch.arange(2), found, Message())
    for own in after["weights"]["w"]:
        assert own.flatten().tolist() == pytest.approx([1.02, 1.03, 1.0])


def test_a_new_community_starts_from_the_averages_of_its_members():
    """Embeddings split four clients into two and two, whose averages were 0, 0, 2 and 4."""
    method = FedPub(communities="disjoint", tau=3.0)
    server = {
        "weights": {"w": torch.tensor([0.0, 0.0, 2.0, 4.0]).view(4, 1, 1)},
        "community": torch.tensor([0, 0, 1, 2]),
        "embeddings": torch.zeros(4, 2),
    }
    clear = Message({"embedding": torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])})
    after, notes = method.summed(replace(CTX, min_group=2), server, torch.arange(4), [], clear)
    assert after["community"].tolist() == [0, 0, 1, 1]
    assert after["weights"]["w"].flatten().tolist() == [0, 0, 3, 3]
    assert notes["alpha"][0].tolist() == [0.5, 0.5, 0, 0]


def plus_message(phase: int, clients: int) -> tuple[Message, Message]:
    sent = Message({"weights": {"w": torch.zeros(clients, 2, 1)}, "phase": torch.full((clients,), phase)})
    scores = torch.tensor([[0.5, 0.25, -1.0, 0.75, 0.5, 3.0, 1.0]], dtype=torch.float64).repeat(clients, 1)
    rows = torch.tensor([[[True], [False]]]).repeat(clients, 1, 1)
    up = Message({"weights": {"w": 0.01 * rows}, "scores": scores}, {"w": rows})
    return sent, up


def test_fed_pub_plus_alone_adds_no_weights():
    sent, up = plus_message(standing.ALONE, 3)
    hidden = secret.hidden(sent, up)
    assert not hidden.steps
    assert not hidden.counts
    assert hidden.numbers["known"][0].tolist() == [1, 1, 0, 1, 1, 1]
    assert hidden.numbers["scores"][0].tolist() == [0.5, 0.25, 0, 0.75, 0.5, 3e-6]


def test_fed_pub_plus_means_and_rows_by_hand():
    """Three of three changed row 0: the whole step of 0.01. One of three: 0.01 / 3 * (3 + 3) / (1 + 3) of the mean."""
    w0 = {"w": torch.zeros(2, 1)}
    server = FedPubPlus(given="0,0,0", fallback=False).init_server(w0, 3)
    sent, up = plus_message(standing.IN_COMMUNITY, 3)
    found = [Summed(2, torch.arange(3), secret.hidden(sent, up).total())]
    after = secret.from_sums(CTX, server, found)
    assert after["communities"]["w"].flatten().tolist() == pytest.approx([0.01, 0])
    assert after["scores"].flatten().tolist() == pytest.approx([0.5, 0.25, -1, 0.75, 0.5, 3.0, -1])
    one = Message(up.parts, {"w": up.sent["w"] & torch.tensor([True, False, False]).view(3, 1, 1)})
    alone = Message({"weights": {"w": up.tree("weights")["w"] * one.sent["w"]}, "scores": up["scores"]}, one.sent)
    after = secret.from_sums(CTX, server, [Summed(2, torch.arange(3), secret.hidden(sent, alone).total())])
    assert float(after["communities"]["w"][0, 0, 0]) == pytest.approx(0.01 * 6 / (3 * 4))
    kept = secret.from_sums(CTX, after, [])
    assert torch.equal(kept["scores"], after["scores"]), "without a sum, the last means are kept"


def test_only_those_who_have_tried_both_averages_decide():
    known = torch.tensor([[0.5, 0.2, 0.6, -1, -1, -1, 0], [0.9, 0.9, -1, -1, -1, -1, 0]], dtype=torch.float64)
    told = Hidden(numbers=secret._told(known)).total()
    assert secret.compared([Summed(0, torch.arange(2), told)]).tolist() == pytest.approx([0.5, 0.2, 0.6, -1])


# What an experiment says


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_is_secure_or_says_why_not(method):
    can = method in ("fedavg", "fedprox", "fedper", "fedpub-plus")
    experiment = Experiment(clients=4, method=method, secure=True)
    if can:
        assert experiment.resolve().context.secure
        return
    with pytest.raises(FedpubError, match=r"every single client|cannot be sums"):
        experiment.resolve()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "fedpub"}, "cannot be sums over groups"),
        ({"method": "fedpub", "options": {"measure": "label"}}, "measure=label"),
        ({"method": "fedpub", "options": {"measure": "gradient"}}, "measure=gradient"),
        ({"method": "fedpub", "options": {"embedding": "server", "communities": "explicit"}}, "embedding=server"),
        ({"method": "fedpub", "options": {"neighbours": 2}}, "cannot be sums"),
        ({"min_group": 2}, "min_group=2 is not possible with secure"),
        ({"defence": "clip"}, "defence=clip"),
        ({"defence": "median"}, "defence=median"),
        ({"clients": 2}, "clients=2"),
        ({"embedding_noise": 1.0}, "has no effect"),
        ({"embedding_noise": -1.0, "method": "fedpub-plus"}, "embedding_noise=-1.0"),
    ],
)
def test_what_contradicts_sums_is_refused(changes, said):
    with pytest.raises(FedpubError) as caught:
        Experiment(**{"clients": 5, "method": "fedavg", "secure": True, **changes}).resolve()
    assert said in str(caught.value)


def test_explicit_communities_are_disjoint_in_secure_runs():
    held = Experiment(clients=5, secure=True, options={"communities": "explicit"}).resolve()
    assert held.experiment.options["communities"] == "disjoint"
    assert held.experiment.resolve().experiment == held.experiment


def test_min_group_is_an_option_of_fed_pub_plus_and_a_setting():
    assert Experiment(method="fedpub-plus", min_group=5).resolve().algorithm.min_group == 5
    by_option = Experiment(method="fedpub-plus", options={"min_group": 2}).resolve()
    assert by_option.min_group == by_option.algorithm.min_group == 2
    with pytest.raises(FedpubError, match="contradicts"):
        Experiment(method="fedpub-plus", min_group=5, options={"min_group": 2}).resolve()


def test_clients_of_a_small_community_add_nothing_in_a_secure_simulation():
    """Six clients in groups of at least four: one group, however many communities there are."""
    usual = {"dataset": "communities", "clients": 6, "rounds": 3, "hidden": 8, "secure": True, "min_group": 4}
    found = run(Experiment(**usual, options={"communities": "explicit"}))
    assert found.summary["rounds"] == 3


def test_noise_hides_the_embedding_and_repeats_with_its_seed():
    experiment = Experiment(dataset="communities", clients=5, rounds=1, hidden=8)
    from fedpub.algorithms.measures import noisy
    from fedpub.experiment.prepare import prepare

    data = prepare(experiment.resolve()).federation.chunks(list(range(5)))[0]
    embedding = torch.randn(5, 4000, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 6).view(5, 1)
    ctx = replace(CTX, embedding_noise=0.5)
    assert torch.equal(noisy(CTX, embedding, data), embedding)
    found = noisy(ctx, embedding, data)
    assert (found - embedding).std(1).tolist() == pytest.approx([0.5 * (k + 1) for k in range(5)], rel=0.1)
    assert torch.equal(noisy(ctx, embedding, data), found)
    other = noisy(replace(ctx, private_seed=7), embedding, data)
    assert not torch.equal(other, found), "a site's own seed decides"
    assert not torch.equal(noisy(replace(ctx, round=2), embedding, data), found)


def test_the_mean_of_a_sum_is_bounded_whatever_one_client_adds():
    """A hostile client makes the divisor vanish: 0.02 / 0.001 is no mean of steps of at most 0.0316."""
    server = {"weights": {"w": torch.zeros(1, 1)}}
    sums = Hidden({"w": torch.tensor([0.02])}, numbers={"share": torch.tensor(0.001, dtype=torch.float64)})
    found = [Summed(0, torch.arange(3), sums)]
    after, _ = FedAvg().summed(CTX, server, torch.arange(3), found, Message())
    assert float(after["weights"]["w"]) == pytest.approx(reach(CTX))
