"""A coordinator that does not follow the protocol, and sites that do not: what the others lose by it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_federation import RUN, coordinator
from test_secure_rounds import _quickly, assert_same_server, begun, changed, later, reason, secure  # noqa: F401

from fedpub.algorithms import FedAvg
from fedpub.core.message import Message
from fedpub.core.tree import tensor
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.plan import Plan
from fedpub.federation import preparation
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.secure.records import dealt_bytes, dealt_of
from fedpub.federation.secure.run_keys import Identity
from fedpub.federation.validate.weights import implausible
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows


def begin_message(sites: InProcessSites, experiment: Experiment, attempt: int = 0) -> bytes:
    leader = coordinator(sites, experiment)
    envelope = leader.preparation.begin(0, leader.prepare(), attempt)
    return encode(envelope)


def without(question: bytes, client: int) -> bytes:
    """The question to mask, with one member less said to be there."""
    envelope = decode(question)
    alive = [one for one in envelope.fields["alive"] if one != client]
    dealt = dealt_of(tensor(envelope.message["dealt"]).numpy().tobytes())
    few = torch.frombuffer(
        bytearray(dealt_bytes({one: held for one, held in dealt.items() if one != client})), dtype=torch.uint8
    )
    fields = {**envelope.fields, "alive": alive}
    return encode(replace(envelope, fields=fields, message=Message({"dealt": few.unsqueeze(0)})))


@pytest.mark.parametrize("how", ["at once", "the run begins as before", "after a restart"])
def test_a_site_masks_for_one_list_of_members_only(how, tmp_path):
    """The difference of two masked vectors of an attempt is a pairwise mask."""
    experiment = secure(rounds=3)
    sites, asked = begun(tmp_path, experiment, stop="confirm")
    if how == "the run begins as before":
        sites.site(0).answer(begin_message(sites, experiment))
    elif how == "after a restart":
        sites.restart()
    assert "asked before" in reason(sites.site(0).answer(without(asked["masked"][0], 4)))


def test_sums_of_earlier_rounds_are_over_even_if_the_run_begins_anew(tmp_path):
    """Two sums of the same vector over different sites would give that of a single one."""
    experiment = secure(rounds=3)
    sites, asked = begun(tmp_path, experiment, stop="reveal")
    site = sites.site(0)
    assert decode(site.answer(begin_message(sites, experiment, 1))).kind == "begun"
    again = changed(later(asked["shares"][0]), round=0, members=[0, 1, 2])
    assert "over" in reason(site.answer(again))


def test_a_round_that_is_computed_again_is_not_added_under_the_same_masks(tmp_path):
    """Of two vectors under the same masks, the difference would be known."""
    experiment = secure(rounds=3)
    sites, asked = begun(tmp_path, experiment, stop="reveal")
    site = sites.site(0)
    site.answer(begin_message(sites, experiment, 1))
    other = changed(asked["round"][0], examples=decode(asked["round"][0]).fields["examples"])
    assert decode(site.answer(other)).kind in ("round", "refused")
    again = later(asked["shares"][0])
    assert "once" in reason(site.answer(again)), "its part of the sum of that round was confirmed"


def test_numbers_of_a_site_are_not_told_before_the_rounds(tmp_path):
    sites, _ = begun(tmp_path, stop="round")
    assert "exchanges nothing" in reason(sites.site(0).answer(encode(Envelope("ready", {"run": RUN}))))


def test_a_refusal_does_not_tell_the_weights_of_a_site(tmp_path):
    """Whether weights are refused depends on its own: that is told once a round."""
    experiment = secure(rounds=3)
    sites = InProcessSites(tmp_path / "sites", experiment)
    said: list[str] = []

    def far(messages, deadline):
        for client, message in dict(messages).items():
            envelope = decode(message)
            if envelope.kind == "round" and envelope.fields["round"] == 2 and client == 0:
                weights = {name: leaf.clone() for name, leaf in envelope.message.tree("weights").items()}
                name = min(weights, key=lambda one: weights[one].numel())
                weights[name] += 0.05
                wrong = encode(replace(envelope, message=Message({"weights": weights})))
                said.append(reason(sites.site(0).answer(wrong)))
                said.append(reason(sites.site(0).answer(message)))
        return sites(messages, deadline)

    play(coordinator(sites, experiment, exchange=far), tmp_path / "run")
    assert "not an average of models" in said[0]
    assert "asked before" in said[1]


def test_how_far_weights_are_from_a_site_s_own_is_not_told():
    ctx = replace(Experiment(method="fedavg").resolve().context, round=200)
    first, own = Message({"weights": {"w": torch.zeros(1, 4, 4)}}), {"w": torch.ones(1, 4, 4)}
    wrong = implausible(ctx, Message({"weights": {"w": torch.full((1, 4, 4), 5.7)}}), first, own, 199)
    assert wrong == "w is farther from this site's own weights than honest training gets"


def test_a_site_that_loses_trust_in_another_shares_no_more_sums_with_it(tmp_path):
    experiment = secure(rounds=3)
    sites, asked = begun(tmp_path, experiment, stop="masked")
    own = sites.site(0).identity
    sites.restart()
    known = {name: key for name, key in own.peers().items() if name != "site-3"}
    sites.identities["site-0"] = Identity(own.name, own.sign, own.verify, lambda: known)
    assert "does not trust site-3 any more" in reason(sites.site(0).answer(asked["masked"][0]))


# Sites


def losing(sites: InProcessSites, tmp_path: Path, also=lambda kind, number, client, answers: None):
    """Site 2 loses its folder before round 2."""

    def exchange(messages, deadline):
        kind, number = next((decode(one).kind, decode(one).fields.get("round")) for one in messages.values())
        if (kind, number) == ("round", 2) and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            shutil.rmtree(sites.folder / "site-2" / "runs")
            sites.sites.pop(2)
        answers = sites(messages, deadline)
        also(kind, number, messages, answers)
        return answers

    return exchange


@pytest.mark.parametrize("away", [1, 2])
def test_who_misses_the_keys_of_all_is_told_again(away, tmp_path):
    """Another site, or the one itself that has a new key."""
    experiment = secure(rounds=4)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def misses(kind, number, messages, answers):
        if kind == "peers" and (tmp_path / "lost").exists() and not (tmp_path / "missed").exists() and away in messages:
            (tmp_path / "missed").touch()
            answers.pop(away)

    events: list = []
    exchange = losing(sites, tmp_path, misses)
    play(coordinator(sites, experiment, exchange=exchange, events=events), tmp_path / "run")
    assert not [event for event in events if event[2] > 2], "from the next round on, all are in the sum"
    assert len(read_rows(tmp_path / "run")) == 4


def test_a_wrong_key_keeps_only_its_own_site_out(tmp_path):
    """It is signed by no one that the others trust: they refuse it, and are added up without that site."""
    experiment = secure(rounds=4)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def forged(kind, number, messages, answers):
        if kind == "begin" and (tmp_path / "lost").exists():
            answers[2] = changed(answers[2], key="11" * 32)

    events: list = []
    exchange = losing(sites, tmp_path, forged)
    play(coordinator(sites, experiment, exchange=exchange, events=events), tmp_path / "run")
    assert {client for client, *_ in events} == {2}
    assert [row.clients["took_part"] for row in read_rows(tmp_path / "run")] == [[1.0]] * 4


def test_a_dealer_of_rubbish_is_left_out_not_those_who_complain(tmp_path):
    experiment = secure(rounds=1, clients=6)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def rubbish(messages, deadline):
        answers = sites(messages, deadline)
        for client, answer in answers.items():
            envelope = decode(answer)
            if envelope.kind == "shares" and envelope.fields["round"] == 1 and client == 4:
                noise = torch.randint(0, 256, tensor(envelope.message["deposit"]).shape, dtype=torch.uint8)
                answers[client] = encode(replace(envelope, message=Message({"deposit": noise})))
        return answers

    play(coordinator(sites, experiment, exchange=rubbish), tmp_path / "run")
    others = InProcessSites(tmp_path / "others", experiment)

    def absent(messages, deadline):
        mine = [client for client, one in messages.items() if client == 4 and decode(one).fields.get("round") == 1]
        return others({client: one for client, one in messages.items() if client not in mine}, deadline)

    play(coordinator(others, experiment, exchange=absent), tmp_path / "without")
    assert_same_server(tmp_path / "run", tmp_path / "without")


@pytest.mark.parametrize("times", [1, 5])
def test_the_first_sum_is_over_all_sites(times, tmp_path, monkeypatch):
    """Its number of examples is what all later shares are of: it is asked for until all are in it."""
    monkeypatch.setattr(preparation, "PAUSE", 0.0)
    experiment = secure(rounds=1)
    sites, missed = InProcessSites(tmp_path / "sites", experiment), []

    def late(messages, deadline):
        answers = sites(messages, deadline)
        kind, number = next((decode(one).kind, decode(one).fields.get("round")) for one in messages.values())
        if (kind, number) == ("masked", 0) and len(missed) < times:
            missed.append(answers.pop(3))
        return answers

    expected = run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    play(coordinator(sites, experiment, exchange=late), tmp_path / "run")
    assert len(missed) == times
    assert_same_server(tmp_path / "run", tmp_path / "simulated")
    assert expected.summary["rounds"] == 1


class OwnServer(FedAvg):
    def server(self, ctx, server, ids, up):
        return super().server(ctx, server, ids, up)


def test_a_server_step_of_one_s_own_is_not_replaced_by_a_mean():
    with pytest.raises(FedpubError, match="every single client"):
        Plan.of(Experiment(clients=5, secure=True), OwnServer())


def test_too_few_clients_a_round_are_refused():
    with pytest.raises(FedpubError, match=r"clients=5 with fraction=0.4 are fewer than min_group=3"):
        Experiment(clients=5, method="fedavg", fraction=0.4, secure=True).resolve()
