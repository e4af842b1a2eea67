"""A coordinator that asks for more than was agreed on, or sends weights of its own making."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
import torch
from test_federation import RUN, coordinator, number_of, small

from fedpub.algorithms import FedAvg
from fedpub.algorithms.fedgnn import SimilarNodes
from fedpub.core.message import Message
from fedpub.core.tree import tree
from fedpub.federation import joining
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.joining import Finished
from fedpub.federation.known import Known
from fedpub.federation.ledger import ANEW, BACK, EVERY
from fedpub.federation.part import OnePiece
from fedpub.federation.requests import Terms
from fedpub.federation.site import Site, _with_feedback
from fedpub.federation.validate.weights import implausible
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.store.directory import RunDirectory
from fedpub.store.model_files import load_model
from small import context


class Prober:
    """A coordinator of one site, in the federation of an experiment, that asks what it likes."""

    def __init__(self, folder, method="fedavg", **changes):
        self.experiment = small(method, **{"rounds": 8, **changes})
        self.sites = InProcessSites(folder, self.experiment)
        self.leader, self.seen = coordinator(self.sites, self.experiment, exchange=self._watch), {}
        self.known = self.leader.prepare()
        self.answers = set()

    def _watch(self, messages, deadline):
        self.seen.update(
            {decode(envelope).kind: decode(envelope) for client, envelope in messages.items() if client == 0}
        )
        return self.sites(messages, deadline)

    @property
    def site(self):
        return self.sites.site(0)

    @property
    def part(self):
        return self.site.part(RUN)

    def ask(self, envelope: Envelope) -> Envelope:
        data = self.site.answer(encode(envelope))
        if decode(data).kind == "round":
            self.answers.add(data)
        return decode(data)

    def begin(self, attempt, **changes) -> Envelope:
        return self.ask(
            replace(self.seen["begin"], fields={**self.seen["begin"].fields, "attempt": attempt, **changes})
        )

    def round(self, number, base, message=None, shift=0.0) -> Envelope:
        """Round `number` with the first weights, each shifted by the same small amount."""
        message = message or {"weights": {n: leaf + shift for n, leaf in self.weights().items()}}
        message = Message.of(message)
        return self.ask(Envelope("round", {"run": RUN, "round": number, "base": base, "best": 0}, message))

    def weights(self):
        return {name: leaf.unsqueeze(0).clone() for name, leaf in self.leader.first_weights(self.known).items()}


@pytest.fixture
def prober(tmp_path):
    return Prober(tmp_path)


def refusal(envelope: Envelope) -> str:
    assert envelope.kind == "refused", envelope.kind
    return envelope.fields["reason"]


def test_a_round_is_answered_for_one_message(prober):
    first = prober.round(1, 0)
    assert first.kind == "round"
    assert prober.round(2, 1).kind == "round"
    again = encode(
        Envelope("round", {"run": RUN, "round": 2, "base": 1, "best": 0}, Message.of({"weights": prober.weights()}))
    )
    stored = prober.site.answer(again)
    prober.sites.restart()
    assert prober.site.answer(again) == stored, "also after a restart"
    assert refusal(prober.round(2, 1, shift=0.001)) == (
        "round 2 was asked before by another message; a site answers each question once"
    )
    prober.sites.restart()
    assert "another message" in refusal(prober.round(2, 0)), "a new message gets no old answer either"


def test_rounds_go_forward(prober):
    assert prober.round(1, 0).kind == "round"
    assert prober.round(4, 1, shift=0.001).kind == "round"
    assert refusal(prober.round(3, 1)) == "round 3 is over: this site has answered round 4"
    assert "is over" in refusal(prober.round(1, 0)), "the same message, too, once the next round was asked for"


@pytest.mark.parametrize(("number", "base"), [(1, 1), (2, 2), (2, 7)])
def test_a_round_follows_an_earlier_one(prober, number, base):
    assert refusal(prober.round(number, base)) == f"round {number} cannot follow round {base}"


def test_a_round_follows_one_that_the_site_has(prober):
    assert prober.round(1, 0).kind == "round"
    assert prober.round(3, 1).kind == "round"
    for base in (0, 2):
        answer = prober.round(4, base)
        assert (answer.kind, answer.fields["reason"]) == ("lost", f"site 'site-0' has no state of round-{base}")


def test_a_base_is_used_again_only_as_often_as_answers_may_be_lost(prober):
    """Eight rounds: 3 + 8 / 4 = 5 answers may be lost. Round 1 is the first from base 0, then rounds 2 to 6."""
    assert (BACK, EVERY) == (3, 4)
    assert [prober.round(number, 0).kind for number in range(1, 7)] == ["round"] * 6
    prober.sites.restart()
    assert (
        refusal(prober.round(7, 0)) == "5 answers of this site were reported lost, which is the limit; start a new run"
    )
    assert prober.round(7, 6).kind == "round", "from where it is the site goes on"


def test_what_was_taken_back_is_computed_from_the_earlier_state(prober, tmp_path):
    """Round 2 from base 0 is what a site answers that never heard of round 1."""
    other = Prober(tmp_path / "other")
    prober.round(1, 0)
    found, expected = prober.round(2, 0), other.round(2, 0)
    assert all(torch.equal(found.message["weights"][n], leaf) for n, leaf in expected.message["weights"].items())
    assert not torch.equal(found.message["weights"]["conv1.bias"], prober.round(3, 2).message["weights"]["conv1.bias"])


def test_a_run_begins_anew_a_few_times_and_as_it_began(prober):
    prober.round(1, 0)
    for attempt in range(1, ANEW + 1):
        assert prober.begin(attempt).kind == "begun"
        prober.sites.restart()
        assert prober.begin(attempt).kind == "begun", "the same beginning again, which counts once"
    assert (
        refusal(prober.begin(ANEW + 1))
        == "this site has begun the run anew 3 times, which is the limit; start a new run"
    )
    other = replace(prober.experiment.resolve().experiment, rounds=1000).to_json()
    assert "begun with other terms" in refusal(prober.begin(99, experiment=other))
    assert "begun with other terms" in refusal(prober.begin(0, precision="int8"))


def test_who_begins_anew_has_not_more_rounds(prober):
    """The round that the site was in may be asked once more, those before it not."""
    prober.round(1, 0)
    prober.round(2, 1)
    prober.begin(2)
    assert "another message" in refusal(prober.round(1, 0, shift=0.001))
    assert prober.round(2, 0, shift=0.001).kind == "round"


def test_a_site_takes_part_in_one_run(prober):
    other = replace(prober.seen["begin"], fields={**prober.seen["begin"].fields, "run": "f" * 16})
    assert refusal(prober.ask(other)).startswith(f"site 'site-0' has agreed to one run and takes part in {RUN}")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_there_are_no_more_answers_than_rounds(seed, tmp_path):
    """Rounds, bases, beginnings and restarts in any order: at most one answer a round, and one for beginning anew."""
    prober, draw = Prober(tmp_path, rounds=5), random.Random(seed)
    for attempt in range(60):
        if draw.random() < 0.15:
            prober.begin(draw.randrange(attempt + 1))
        if draw.random() < 0.15:
            prober.sites.restart()
        prober.round(draw.randint(1, 6), draw.randint(0, 5), shift=0.001 * draw.randint(0, 1))
    assert 0 < len(prober.answers) <= 5 + ANEW


def test_the_file_of_the_ledger_keeps_its_names(prober):
    """A site must still know what it answered with an earlier version."""
    prober.round(1, 0)
    held = json.loads((prober.part.folder / "asked.json").read_text(encoding="utf-8"))
    assert list(held) == ["terms", "attempt", "anew", "taken_back", "over", "letters"]
    assert list(held["letters"]) == ["round 1"]


def test_a_ledger_that_cannot_be_read_ends_the_answers(prober):
    prober.round(1, 0)
    path = prober.part.folder / "asked.json"
    path.write_text(path.read_text()[:20], encoding="utf-8")
    assert "does not know what it has answered" in refusal(prober.round(2, 1))


def test_an_exchange_before_the_rounds_is_answered_once(tmp_path):
    prober = Prober(tmp_path, "fedsage", options={"generator_epochs": 1, "generator_rounds": 1})
    head = {"head": torch.zeros(1, 3)}
    assert "exchange 2 was asked before by another message" in refusal(
        prober.ask(Envelope("setup", {"run": RUN, "step": 2}, Message.of({"head": head, "latent": torch.zeros(1, 2)})))
    )
    prober.begin(1)
    assert "exchange 0 was asked before by another message" in refusal(
        prober.ask(Envelope("setup", {"run": RUN, "step": 0}, Message.of({"latent": torch.zeros(1, 2)})))
    ), "also after beginning anew"


def test_numbers_have_four_digits(prober):
    answer = prober.round(1, 0)
    for name in ("test", "test_f1", "sparsity"):
        assert round(answer.fields["metrics"][name], 4) == answer.fields["metrics"][name]
    assert float(f"{answer.fields['metrics']['val_loss']:.4g}") == answer.fields["metrics"]["val_loss"]
    assert float(f"{answer.fields['loss']:.4g}") == answer.fields["loss"]
    assert set(answer.fields) == {"round", "loss", "metrics"}


# Weights of the coordinator's making


def constant_class(weights, number):
    """A model that says class `number`, whatever it sees: its accuracy is that class's share."""
    made = {name: torch.zeros_like(leaf) for name, leaf in weights.items()}
    made["classifier.bias"][0, number] = 10.0
    return made


def one_node_a_unit(weights):
    """Units that all but one node are kept out of by their bias, and gradients so small that Adam's step is one."""
    made = {name: leaf.clone() for name, leaf in weights.items()}
    made["conv1.bias"] -= 0.3
    made["conv2.weight"] *= 1e-7
    return made


@pytest.mark.parametrize("make", [lambda w: constant_class(w, 2), one_node_a_unit], ids=["constant class", "one node"])
@pytest.mark.parametrize("number", [1, 2, 8])
def test_the_reviewed_attacks_are_refused(make, number, prober):
    for earlier in range(1, number):
        assert prober.round(earlier, earlier - 1).kind == "round"
    attack = {"weights": make(prober.weights())}
    assert "are not an average of models" in refusal(prober.round(number, number - 1, attack))


def test_the_first_round_is_from_the_weights_of_everybody(prober):
    weights = prober.weights()
    weights["conv2.weight"][0, 0, 0] += 1e-12
    reason = refusal(prober.round(1, 0, {"weights": weights}))
    assert reason.endswith("conv2.weight differs from the first weights, although it is the first round")
    assert prober.round(1, 0).kind == "round"


LR = 0.01
W = (2.0 * (torch.arange(30, dtype=torch.float64) % 2) - 1).view(1, 6, 5)  # ones of both signs


def odd(leaf, own=W, base=1, number=2, **changes):
    ctx = context(lr=LR, round=number, **changes)
    return implausible(ctx, Message({"weights": {"w": leaf}}), Message({"weights": {"w": W}}), {"w": own}, base)


def test_how_far_an_average_may_be_by_hand():
    """η = 0.01: 0.0316 a round and epoch from the start, and 1 % of the largest entry."""
    assert odd(W + 0.041) is None
    assert "no training of 1 rounds goes beyond 0.042" in odd(W + 0.043)
    assert odd(W + 0.10, number=4, base=0) is None
    assert odd(W + 0.13, own=W + 0.1, number=3, epochs=2) is None
    assert "no training of 2 rounds goes beyond 0.138" in odd(W + 0.14, own=W + 0.1, number=3, epochs=2)


def test_how_far_from_the_own_weights_by_hand():
    """After round 9 the own weights have moved by 0.02: 4 (0.02 + 0.01) = 0.12 and 1 % of the largest entry."""
    own = W + 0.02
    assert odd(own + 0.12, own, 9, 10) is None
    assert "farther from this site's own weights" in odd(own + 0.14, own, 9, 10)
    assert odd(own + 0.14, own, 8, 10) is None, "who was away for a round expects more"


def test_matrices_that_vanish_by_hand():
    far = {"own": W, "base": 0, "number": 1000}
    assert odd(W * 0.05, **far) is None
    assert odd(W * 0.01, **far) == "w is almost zero"
    assert odd(W * 0.01, **far, weight_decay=0.001) is None
    row, column = W.clone(), W.clone()
    row[0, 2] *= 1e-3
    column[0, :, 2] *= 1e-3
    assert odd(row, **far) == "w has a row that is almost zero"
    assert odd(column, **far) == "w has a column that is almost zero"
    zeros = W.clone()
    zeros[0, :3] = 0
    assert odd(zeros, **far, weight_decay=0.001) is None
    zeros[0, 3, 0] = 0
    assert odd(zeros, **far, weight_decay=0.001) == "w is mostly zeros"


@pytest.mark.parametrize(("method", "changes"), [
    ("fedpub", {"options": {"lambda1": 6.0, "mask_lr": 10.0}, "epochs": 3}),
    ("fedpub-plus", {"fraction": 0.5}),
    ("fedper", {"weight_decay": 0.01}),
])  # fmt: skip
@pytest.mark.parametrize("precision", ["exact", "int8"])
def test_honest_weights_are_never_refused(method, changes, precision, tmp_path):
    """With pruning, rounding, weight decay and absent sites; in round 5 a site begins anew."""
    experiment, events = small(method, rounds=8, **changes), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def loses(messages, deadline):
        if 5 in number_of(messages) and not events:
            (sites.site(min(messages)).part(RUN).folder / "begin.json").unlink()
            sites.restart()
        return sites(messages, deadline)

    terms = Terms(deadline=5, precision=precision)
    play(coordinator(sites, experiment, terms, loses, events), tmp_path / "deployed")
    assert {event[1] for event in events} <= {"began anew", "left out"}
    assert all("left out" not in event[1] or event[2] == 5 for event in events)


# Joining


def joiner(folder, method="fedpub"):
    experiment = small(method, rounds=3)
    sites = InProcessSites(folder / "sites", experiment)
    new = sites.names.pop()
    play(coordinator(sites, experiment), folder / "deployed")
    start, _ = RunDirectory(folder / "deployed").restore(torch.device("cpu"))
    known = Known.load(folder / "sites" / "sites.json")
    place = folder / "sites" / new
    finished = Finished(experiment.resolve(), RUN, known, start.server, start.clients)
    return finished, lambda: Site(place, new, lambda: OnePiece(place / "piece.safetensors")), place


def join(finished, site, change=lambda envelope: envelope):
    """What joining tells; all messages go through `change`."""
    return finished.join("site-3", 3, lambda messages, _: {0: site.answer(encode(change(decode(messages[0]))))}, 5.0)


def test_a_site_joins_once(tmp_path):
    finished, site, _ = joiner(tmp_path)
    told = join(finished, site())
    assert join(finished, site()) == told, "the same messages again, after a restart"

    def moved(envelope):
        weights = {name: leaf + 0.001 for name, leaf in envelope.message["weights"].items()}
        return replace(envelope, message=Message.of({"weights": weights}))

    with pytest.raises(Exception, match="join near was asked before by another message"):
        join(finished, site(), moved)
    begin = Envelope("begin", {"run": RUN, "attempt": 0, "experiment": finished.plan.experiment.to_json(), "client": 3,
                             "classes": list(finished.known.classes), "precision": "exact", "sites": 4})  # fmt: skip
    assert "begun with other terms" in refusal(decode(site().answer(encode(begin))))


def test_nobody_joins_with_weights_that_are_no_average(tmp_path):
    finished, site, _ = joiner(tmp_path)

    def attack(envelope):
        return replace(envelope, message=Message.of({"weights": constant_class(envelope.message["weights"], 1)}))

    with pytest.raises(Exception, match="are not an average of models"):
        join(finished, site(), attack)


def test_a_member_does_not_join_its_own_run(prober):
    fields = {
        name: prober.seen["begin"].fields[name]
        for name in ("run", "experiment", "client", "classes", "precision", "sites")
    }
    envelope = Envelope(
        "join", {**fields, "epochs": 20, "step": "near", "nearest": {}}, Message.of({"weights": prober.weights()})
    )
    assert "begun with other terms" in refusal(prober.ask(envelope))


def test_joining_trains_as_long_as_training_alone_does(tmp_path, monkeypatch):
    """Twenty epochs to be known, twenty on what the site gets; alone forty."""
    finished, site, _ = joiner(tmp_path, "fedavg")
    epochs, original = [], FedAvg.client

    def client(self, ctx, own, msg, data):
        epochs.append(ctx.epochs)
        return original(self, ctx, own, msg, data)

    monkeypatch.setattr(FedAvg, "client", client)
    told = join(finished, site())
    assert epochs == [20, 20, 40]
    assert told["epochs"] == 40


@pytest.mark.parametrize(
    ("joined", "alone", "kept"),
    [(0.5, 0.6, "alone"), (0.6, 0.5, "joined"), (0.5, 0.5, "joined"), (math.nan, 0.5, "joined")],
)
def test_who_joins_keeps_what_is_better(joined, alone, kept, tmp_path, monkeypatch):
    finished, site, place = joiner(tmp_path, "fedavg")
    original, seen, losses = joining._judged, {}, {"joined": 0.1, "alone": 0.2}

    def judged(part, state):
        name = "alone" if seen else "joined"
        seen[name] = tree(state["weights"])
        return original(part, state) | {"val": {"joined": joined, "alone": alone}[name], "val_loss": losses[name]}

    monkeypatch.setattr(joining, "_judged", judged)
    assert join(finished, site())["kept"] == kept
    weights, _ = load_model(place / "model")
    assert all(torch.equal(weights[name], leaf) for name, leaf in seen[kept].items())
    assert not torch.equal(weights["conv1.bias"], seen["alone" if kept == "joined" else "joined"]["conv1.bias"])


# What leaves


def test_a_round_sends_nothing_that_is_not_declared(prober, monkeypatch):
    original = FedAvg.client

    def more(*arguments):
        own, up, loss_K = original(*arguments)
        return own, up | {"features": torch.ones(1)}, loss_K

    monkeypatch.setattr(FedAvg, "client", more)
    assert "tried to send ['features']" in refusal(prober.round(1, 0))


def test_a_set_up_sends_nothing_that_is_not_declared(tmp_path, monkeypatch):
    original = SimilarNodes.clients

    def more(*arguments):
        own, up = original(*arguments)
        return own, [one | {"labels": torch.ones(1)} for one in up]

    monkeypatch.setattr(SimilarNodes, "clients", more)
    with pytest.raises(Exception, match=r"tried to send \['labels'\]"):
        Prober(tmp_path, "fedgnn")


def test_what_rounding_loses_is_kept_for_the_next_time_by_hand():
    """254 is 127 steps of 2: 3.5 goes as 4 and leaves −0.5; the next 3.5 is 3, goes as 2 or 4, here 4, and leaves −1.

    An entry that is pruned is not sent and leaves nothing.
    """
    w = {"w": torch.tensor([[254.0, 3.5, 3.5]], dtype=torch.float64)}
    active = {"w": torch.tensor([[True, True, False]])}
    envelope = Envelope("round", {}, Message.of({"weights": w, "active": active}))
    first, lost = _with_feedback(envelope, {}, "int8")
    assert first.message["weights"]["w"].tolist() == [[254.0, 3.5, 3.5]]
    assert lost["weights.w"].tolist() == [[0.0, -0.5, 0.0]]
    second, lost = _with_feedback(envelope, lost, "int8")
    assert second.message["weights"]["w"].tolist() == [[254.0, 3.0, 3.5]]
    assert lost["weights.w"].tolist() == [[0.0, -1.0, 0.0]]


def test_a_site_feeds_back_what_rounding_lost(tmp_path):
    """The upload of round 2 is that of its weights and what was lost in round 1."""
    experiment = small("fedavg", rounds=2)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment, Terms(deadline=5, precision="int8")), tmp_path / "deployed")
    part = sites.site(0).part(RUN)
    (before, _), (after, answer) = part.load("round-1"), part.load("round-2")
    lost = tree(before["residual"])
    assert any(bool(leaf.any()) for leaf in lost.values())
    for name, leaf in decode(answer).message["weights"].items():
        wanted = tree(after["weights"])[name] + lost[f"weights.{name}"]
        sent = decode(encode(Envelope("round", {}, Message.of({"weights": {name: wanted}})), "int8")).message[
            "weights"
        ][name]
        assert torch.equal(leaf, sent)
        assert torch.equal(tree(after["residual"])[f"weights.{name}"], wanted - sent)
