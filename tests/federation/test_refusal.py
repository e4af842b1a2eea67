"""Sites that are broken or hostile: what they send is refused, said, and never reaches the aggregate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_federation import TERMS, assert_same_rows, coordinator, number_of, small

from fedpub.algorithms.fedgnn import SimilarNodes
from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.requests import Terms
from fedpub.federation.validate.upload import Expected, _too_far, most_examples
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.store.directory import read_rows
from small import context

Change = Callable[[Envelope], Envelope | bytes]


def with_parts(envelope: Envelope, **parts: Any) -> Envelope:
    return replace(envelope, message=envelope.message | parts)


def only(envelope: Envelope, **parts: Any) -> Envelope:
    return replace(envelope, message=Message(parts))


def with_weights(change) -> Change:
    def changed(envelope: Envelope) -> Envelope:
        return replace(
            envelope,
            message=Message.of({**envelope.message.flat(), "weights": change(dict(envelope.message["weights"]))}),
        )

    return changed


def with_fields(**fields) -> Change:
    return lambda envelope: replace(envelope, fields={**envelope.fields, **fields})


def with_metrics(**metrics) -> Change:
    return lambda envelope: replace(
        envelope, fields={**envelope.fields, "metrics": {**envelope.fields["metrics"], **metrics}}
    )


def with_size(count: int) -> Change:
    return lambda one: with_parts(one, size=torch.tensor([count]))


def without_active(leaf):
    return torch.full_like(leaf, float("nan"))


BAD: dict[str, tuple[Change, str]] = {
    "not a message": (lambda _: b"garbage", "message"),
    "another name": (with_weights(lambda w: {**w, "conv9.weight": w["conv2.weight"]}), "weights has"),
    "a name missing": (with_weights(lambda w: {n: v for n, v in w.items() if n != "conv1.bias"}), "weights has"),
    "an undeclared tree": (
        lambda one: with_parts(one, masks={}),
        "it has ['active'",
    ),
    "another shape": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"][:, :-1]}), "conv1.bias is [1, 7]"),
    "another type": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"].float()}), "torch.float32, not"),
    "two clients": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"].repeat(2, 1)}), "conv1.bias is [2, 8]"),
    "NaN": (with_weights(lambda w: {**w, "conv1.bias": without_active(w["conv1.bias"])}), "conv1.bias has values"),
    "an infinity": (
        lambda one: replace(
            one, message=Message.of({**one.message.flat(), "embedding": torch.full((1, 8), float("inf")).double()})
        ),
        "embedding has values",
    ),
    "an absurd norm": (
        with_weights(lambda w: {**w, "conv2.bias": w["conv2.bias"] + 1e6}),
        "conv2.bias is 1e+06 from where it",
    ),
    "another round": (with_fields(round=7), "it is of round 7, not 2"),
    "a loss that is none": (with_fields(loss=float("nan")), "its loss is nan"),
    "a loss in words": (with_fields(loss="small"), "its loss is 'small'"),
    "an accuracy above one": (with_metrics(val=1.5), "its val is 1.5"),
    "a validation loss below zero": (with_metrics(val_loss=-0.5), "its val_loss is -0.5"),
    "an absurd validation loss": (with_metrics(val_loss=1e31), "its val_loss is 1e+31"),
    "an unknown metric": (with_metrics(fame=0.5), "its metrics are not"),
    "no end of examples": (with_size(2**62), "its number of examples is [4611686018427387904]"),
    "fewer than no examples": (with_size(-1), "its number of examples is [-1]"),
    "a loss beyond floats": (with_fields(loss=10**400), "its loss is"),
    "metrics that are none": (with_fields(metrics=[["val", 0.5]]), "its metrics are not"),
    "a long reason": (lambda _: Envelope("refused", {"reason": "x" * 2**20}), "x" * 199 + "…"),
    "a reason that is none": (lambda _: Envelope("refused", {"reason": {"a": [1]}}), "{'a': [1]}"),
    "another kind": (lambda one: Envelope("refused", {"reason": "I would rather not"}), "I would rather not"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_refused_and_said(name, tmp_path):
    """Site 1 misbehaves in round 2: the others' round is as if it had not been there."""
    change, reason = BAD[name]
    experiment = small("fedavg" if "examples" in name else "fedpub", rounds=2)
    sites, events = InProcessSites(tmp_path / "sites", experiment), []

    def bad(messages, deadline):
        answers = sites(messages, deadline)
        if 2 in number_of(messages):
            made = change(decode(answers[1]))
            answers[1] = made if isinstance(made, bytes) else encode(made)
        return answers

    play(coordinator(sites, experiment, exchange=bad, events=events), tmp_path / "deployed")
    assert events[0][:3] == (1, "refused", 2)
    assert reason in events[0][3], events
    absent, other = InProcessSites(tmp_path / "absent", experiment), []

    def away(messages, deadline):
        answers = absent(messages, deadline)
        return {client: data for client, data in answers.items() if client != 1 or 2 not in number_of(messages)}

    play(coordinator(absent, experiment, exchange=away, events=other), tmp_path / "without")
    assert_same_rows(tmp_path / "deployed", tmp_path / "without", 0.0)
    assert read_rows(tmp_path / "deployed")[1].clients["took_part"] == [1, 0, 1, 1]


@pytest.mark.parametrize(("origin", "refusals"), [("random", 1), ("own", 0), ("default", 0)])
def test_only_drawn_sets_bound_a_site_s_examples(origin, refusals, tmp_path):
    """A million training nodes beside a few dozen test nodes: possible only where the owner has divided them."""
    experiment = small("fedavg", rounds=1)
    sites, events = InProcessSites(tmp_path / "sites", experiment), []

    def many(messages, deadline):
        answers = sites(messages, deadline)
        if 1 in number_of(messages):
            answers[1] = encode(with_size(10**6)(decode(answers[1])))
        return answers

    play(coordinator(sites, replace(experiment, split=origin), exchange=many, events=events), tmp_path / "deployed")
    assert [event[:2] for event in events if event[1] == "refused"] == [(1, "refused")] * refusals


def test_an_answer_above_the_limit_is_refused(tmp_path):
    experiment = small("fedavg", rounds=1, hidden=400)
    sites, events = InProcessSites(tmp_path / "sites", experiment), []
    tight = Terms(deadline=5, patience=0.1, max_message=1)
    with pytest.raises(FedpubError, match="round 1 has the answers of 0 sites and needs 2"):
        play(coordinator(sites, experiment, tight, events=events), tmp_path / "deployed")
    assert {event[1] for event in events} == {"refused", "left out"}


def test_a_method_that_needs_all_data_cannot_be_deployed(tmp_path):
    with pytest.raises(FedpubError, match="oracle needs all data in one place"):
        coordinator(InProcessSites(tmp_path, small("fedavg")), small("oracle"))


def test_sites_with_other_columns_are_told(tmp_path):
    sites = InProcessSites(tmp_path / "sites", small("fedavg"))
    other = InProcessSites(tmp_path / "other", small("fedavg", dataset="communities-5-15", clients=20))
    (tmp_path / "sites" / "site-2" / "piece.safetensors").write_bytes(
        (tmp_path / "other" / other.names[2] / "piece.safetensors").read_bytes()
    )
    with pytest.raises(FedpubError, match=r"site 'site-2' has \d+ features and 'site-0'"):
        play(coordinator(sites, small("fedavg"), TERMS), tmp_path / "deployed")


@pytest.mark.parametrize("answer", [None, b"garbage", encode(Envelope("refused", {"reason": "never"}))])
def test_a_site_that_says_it_lost_everything_holds_nobody_up(answer, tmp_path):
    """Told to begin anew, it is silent, talks nonsense or refuses: the others' rounds go on."""
    experiment, events = small("fedpub", rounds=3), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def spoils(messages, deadline):
        if list(messages) == [1]:
            return {} if answer is None else {1: answer}
        answers = sites(messages, deadline)
        if number_of(messages) - {1}:
            answers[1] = encode(Envelope("lost", {"reason": "all is gone"}))
        return answers

    play(coordinator(sites, experiment, exchange=spoils, events=events), tmp_path / "deployed")
    assert [row.clients["took_part"] for row in read_rows(tmp_path / "deployed")][1:] == [[1, 0, 1, 1]] * 2
    assert any("did not begin anew" in event[3] for event in events)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("hello", {"features": "many"}),
        ("hello", {"classes": [1, 2]}),
        ("begun", {"metrics": {}}),
        ("begun", {"test_size": -1}),
        ("begun", {"idle": "no"}),
        ("begun", {"test_size": 2**62}),
        ("begun", {"metrics": {"val": 1e300}}),
        ("hello", {"features": 10**9}),
        ("hello", {"features": float("inf")}),
        ("hello", {"classes": ["x" * 300]}),
        ("hello", {"classes": [str(number) for number in range(150_000)]}),
        ("hello", {"classes": [f"class {number}" for number in range(10_000)]}),
    ],
)
def test_a_site_that_talks_nonsense_at_the_beginning_is_named(kind, changed, tmp_path):
    experiment = small("fedavg")
    sites = InProcessSites(tmp_path / "sites", experiment)

    def nonsense(messages, deadline):
        answers = sites(messages, deadline)
        envelope = decode(answers[2])
        if envelope.kind == kind:
            answers[2] = encode(replace(envelope, fields={**envelope.fields, **changed}))
        return answers

    events = []
    with pytest.raises(FedpubError, match="site 'site-2' cannot take part") as caught:
        play(coordinator(sites, experiment, exchange=nonsense, events=events), tmp_path / "deployed")
    assert len(str(caught.value)) < 300
    assert [event[:2] for event in events] == [(2, "refused")]


def test_a_set_up_that_sends_more_than_is_declared_is_refused(tmp_path):
    experiment = small("fedgnn")
    sites = InProcessSites(tmp_path / "sites", experiment)

    def more(messages, deadline):
        answers = sites(messages, deadline)
        envelope = decode(answers[0])
        if envelope.kind == "setup":
            answers[0] = encode(replace(envelope, message=Message.of({**envelope.message.flat(), "masks": {}})))
        return answers

    with pytest.raises(FedpubError, match=r"site 'site-0' cannot take part: it sent \['masks'\]"):
        play(coordinator(sites, experiment, exchange=more), tmp_path / "deployed")


def features(**changes) -> Change:
    return lambda one: replace(one, message=Message.of({"features": {**one.message["features"], **changes}}))


def without(name: str) -> Change:
    return lambda one: replace(
        one,
        message=Message.of(
            {"features": {leaf: part for leaf, part in one.message["features"].items() if leaf != name}}
        ),
    )


def made_of(change) -> Change:
    """The features with one of its parts changed by a function."""
    return lambda one: features(**change(one.message["features"]))(one)


def latent(one: Envelope) -> Envelope:
    return with_parts(one, latent=one.message["latent"][:, :-1]) if one.message else one


def head(one: Envelope) -> Envelope:
    if "head" not in one.message:
        return one
    return replace(
        one, message=Message.of({**one.message.flat(), "head": {"head1.bias": one.message["head"]["head1.bias"]}})
    )


BAD_SET_UP: dict[str, tuple[str, Change, str]] = {
    "no pointer": ("fedgnn", without("pointer"), "not a tree of"),
    "a pointer from one": ("fedgnn", made_of(lambda x: {"pointer": x["pointer"] + 1}), "does not ascend from 0"),
    "a pointer down": ("fedgnn", made_of(lambda x: {"pointer": x["pointer"].flip(1)}), "does not ascend from 0"),
    "too few columns": ("fedgnn", made_of(lambda x: {"columns": x["columns"][:, 1:]}), "values in"),
    "a column beyond": ("fedgnn", made_of(lambda x: {"columns": x["columns"] + 10**6}), "a column outside the 500"),
    "a column before": ("fedgnn", made_of(lambda x: {"columns": x["columns"] - 500}), "a column outside the 500"),
    "whole values": ("fedgnn", made_of(lambda x: {"values": x["values"].long()}), "not [1, any] torch.float64"),
    "values not finite": ("fedgnn", made_of(lambda x: {"values": x["values"] / 0}), "not finite"),
    "a tensor": (
        "fedgnn",
        lambda one: only(one, features=torch.ones(1, 3)),
        "not a tree of",
    ),
    "nothing": ("fedgnn", lambda one: replace(one, message=Message()), "it has []"),
    "another latent": ("fedsage", latent, "latent is [1, "),
    "another head": ("fedsage", head, "head has ['head1.bias']"),
    "another step": ("fedsage", lambda one: replace(one, fields={"step": math.inf}), "step of the message"),
}


@pytest.mark.parametrize("name", BAD_SET_UP)
def test_a_malformed_set_up_names_its_site(name, tmp_path):
    method, change, reason = BAD_SET_UP[name]
    options = {"options": {"generator_epochs": 1, "generator_rounds": 1}} if method == "fedsage" else {}
    experiment, events = small(method, **options), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def bad(messages, deadline):
        answers = sites(messages, deadline)
        if decode(answers[2]).kind == "setup":
            answers[2] = encode(change(decode(answers[2])))
        return answers

    with pytest.raises(FedpubError, match="site 'site-2' cannot take part"):
        play(coordinator(sites, experiment, exchange=bad, events=events), tmp_path / "deployed")
    assert events[-1][:2] == (2, "refused")
    assert reason in events[-1][3]


@pytest.mark.parametrize(
    ("step", "change", "reason"),
    [
        (
            0,
            lambda one: only(one, hashes=one.message["hashes"][0]),
            "not two whole numbers",
        ),
        (0, lambda one: only(one, hashes=-1 - one.message["hashes"]), "is negative"),
        (1, made_of(lambda x: {name: part[:, : name == "pointer"] for name, part in x.items()}), "features of 0 nodes"),
    ],
)
def test_a_malformed_set_up_of_overlapping_sites_names_its_site(step, change, reason, tmp_path):
    experiment, events = small("fedgnn", scenario="overlapping", clients=5), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def bad(messages, deadline):
        answers = sites(messages, deadline)
        asked = decode(answers[2])
        if asked.kind == "setup" and asked.fields["step"] == step:
            answers[2] = encode(change(asked))
        return answers

    with pytest.raises(FedpubError, match="site 'site-2' cannot take part"):
        play(coordinator(sites, experiment, exchange=bad, events=events), tmp_path / "deployed")
    assert reason in events[-1][3]


def test_what_no_check_foresaw_in_a_set_up_is_a_sentence(tmp_path, monkeypatch):
    experiment = small("fedgnn")
    sites = InProcessSites(tmp_path / "sites", experiment)
    monkeypatch.setattr(SimilarNodes, "server", lambda *_: {}["gone"])
    with pytest.raises(FedpubError, match="'comparing nodes' before the first round cannot be combined"):
        play(coordinator(sites, experiment), tmp_path / "deployed")


def test_one_answer_that_cannot_be_judged_harms_nobody_else(tmp_path, monkeypatch):
    experiment, events = small("fedavg", rounds=2), []
    sites, original = InProcessSites(tmp_path / "sites", experiment), Expected.problem

    def problem(self, answer, number, examples):
        if number == 2 and torch.equal(answer.message["size"], sizes[1]):
            raise MemoryError("shape 2^60")
        return original(self, answer, number, examples)

    sizes = {}

    def watch(messages, deadline):
        answers = sites(messages, deadline)
        sizes.update({client: decode(data).message.get("size") for client, data in answers.items()})
        return answers

    monkeypatch.setattr(Expected, "problem", problem)
    play(coordinator(sites, experiment, exchange=watch, events=events), tmp_path / "deployed")
    refused = [event for event in events if event[1] == "refused"]
    assert all("cannot be read: shape 2^60" in event[3] for event in refused)
    assert 0 < len(refused) < 4


@pytest.mark.parametrize(
    ("test_size", "ratios", "most"),
    [
        (0, (0.2, 0.4, 0.4), 10_000),
        (900, (0.2, 0.4, 0.4), 100_000),
        (900, (0.8, 0.1, 0.1), 800_000),
        (9, (0.5, 0.5, 0.0), 10**9),
        (9, None, 10**9),
        (10**9, (0.2, 0.4, 0.4), 10**9),
    ],
)
def test_the_most_examples_by_hand(test_size, ratios, most):
    assert most_examples(test_size, ratios) == most


def test_how_far_an_upload_may_be_by_hand():
    """η = 0.1, two rounds: 0.632 from the start, and 1 % of the largest entry. What was not sent is not far away."""
    first, ctx = Message({"weights": {"w": torch.zeros(1, 2)}}), context(lr=0.1)

    def far(value, *active):
        sent = {"w": torch.tensor([active])} if active else {}
        return _too_far(ctx, Message({"weights": {"w": torch.tensor([[0.0, value]])}}, sent), first, 2)

    assert far(0.63) is None
    assert far(-0.65) == "w is 0.65 from where it started; no training of 2 rounds goes beyond 0.639"
    assert far(0.65, True, True) == far(-0.65)
    assert far(0.65, True, False) is None
