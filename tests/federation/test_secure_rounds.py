"""Secure sums between a coordinator and its sites: the simulator's numbers, whoever drops out and whoever restarts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_federation import RUN, coordinator, small

from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import tensor
from fedpub.errors import FedpubError
from fedpub.federation import requests
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites, identities
from fedpub.federation.policy import Policy
from fedpub.federation.requests import Terms
from fedpub.federation.secure import at_coordinator
from fedpub.federation.secure.run_keys import Identity
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows

METHODS = [
    ("fedavg", {}),
    ("fedprox", {}),
    ("fedper", {}),
    ("fedpub", {"options": {"communities": "explicit"}}),
    ("fedpub", {"options": {"similarity": False}}),
    ("fedpub-plus", {"rounds": 8}),
]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Nothing waits for what does not come, and one core computes, so that all sums are in one order."""
    monkeypatch.setattr(at_coordinator, "PAUSE", 0.0)
    monkeypatch.setattr(requests, "PAUSE", 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def secure(method: str = "fedavg", **changes):
    return small(method, **{"secure": True, "clients": 5, "dtype": "float32", **changes})


def server_of(path: Path) -> dict[str, torch.Tensor]:
    found = read_tensors(path / "checkpoint" / "state.safetensors")[0]
    return {name: leaf for name, leaf in found.items() if name.startswith("server/")}


def assert_same_server(one: Path, other: Path) -> None:
    """Bit for bit."""
    found, expected = server_of(one), server_of(other)
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert torch.equal(found[name], leaf), name


class Lossy:
    """An exchange that loses some answers, and tells others: `lose(kind, round, attempt, client)`."""

    def __init__(self, sites: InProcessSites, lose: Callable[..., bool] = lambda *_: False) -> None:
        self.sites, self.lose, self.seen, self.folder, self.names = sites, lose, [], sites.folder, sites.names

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        answers = {}
        for client, message in messages.items():
            asked = decode(message)
            what = asked.kind, asked.fields.get("round"), asked.fields.get("attempt"), client
            self.seen.append(what)
            if self.lose(*what):
                continue
            answers[client] = self.sites.site(client).answer(message)
        return answers


@pytest.mark.parametrize(("method", "changes"), METHODS)
def test_a_deployed_run_equals_a_simulated_one_bit_for_bit(method, changes, tmp_path):
    experiment = secure(method, **changes)
    expected = run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    summary = play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_server(tmp_path / "deployed", tmp_path / "simulated")
    for name in ("test", "val", "sparsity"):
        assert summary[name] == pytest.approx(expected.summary[name], abs=1e-12)
    assert summary["best_round"] == expected.summary["best_round"]
    assert summary["per_client_test"] == []
    assert summary["worst_client"] is summary["weighted_test"] is None


@pytest.mark.parametrize(("method", "changes"), METHODS)
def test_secure_and_plain_runs_differ_by_rounding_only(method, changes, tmp_path):
    """In double precision; the steps of a round are at most 0.03 long, and a word has 2^-9 of that or less."""
    options = changes.get("options", {})
    plain = {"communities": "disjoint"} if "communities" in options or "similarity" in options else {}
    usual = secure(method, **{**changes, "dtype": "float64", "defence": "none", "dropout": 0.0, "rounds": 2})
    found = run(usual, tmp_path / "secure", keep_checkpoint=True).summary
    without = replace(usual, secure=False, options={**options, **plain})
    expected = run(without, tmp_path / "plain", keep_checkpoint=True).summary
    one, other = server_of(tmp_path / "secure"), server_of(tmp_path / "plain")
    for name, leaf in other.items():
        if leaf.is_floating_point() and "scores" not in name:
            torch.testing.assert_close(one[name], leaf, rtol=0, atol=2e-4)
    assert found["val"] == pytest.approx(expected["val"], abs=0.02)


def test_the_coordinator_sees_no_weights_and_no_numbers_of_a_site(tmp_path):
    """What leaves a site in the clear is protocol; of FED-PUB, the embedding."""
    experiment = secure("fedpub", options={"communities": "explicit"})
    sites = InProcessSites(tmp_path / "sites", experiment)
    answers: list[Envelope] = []

    def watch(messages, deadline):
        found = sites(messages, deadline)
        answers.extend(map(decode, found.values()))
        return found

    play(coordinator(sites, experiment, exchange=watch), tmp_path / "run")
    names = {kind: set[str]() for kind in {one.kind for one in answers}}
    fields = {kind: set[str]() for kind in names}
    for one in answers:
        names[one.kind] |= one.message.names
        fields[one.kind] |= set(one.fields)
    assert names == {
        "hello": set(),
        "begun": set(),
        "peers": set(),
        "round": {"embedding"},
        "shares": {"deposit"},
        "masked": {"masked"},
        "confirm": {"tags"},
        "reveal": {"revealed"},
        "finished": set(),
    }
    assert fields["round"] == {"round"}
    assert fields["begun"] == {"key", "signature"}
    sizes = {tensor(one.message["masked"]).shape for one in answers if one.kind == "masked" and one.fields["round"]}
    assert len(sizes) == 1, "a vector has the same length at every site and in every round"


@pytest.mark.parametrize("kind", ["round", "shares", "masked"])
@pytest.mark.parametrize("method", ["fedavg", "fedpub-plus"])
def test_a_site_that_drops_out_is_not_in_the_sum(kind, method, tmp_path):
    """Before, during and after masking; the sum is that of a run in which it fails in that round."""
    experiment = secure(method, rounds=2)
    sites = InProcessSites(tmp_path / "sites", experiment)
    lossy = Lossy(sites, lambda what, number, attempt, client: (what, number, client) == (kind, 2, 1))
    events: list = []
    play(coordinator(sites, experiment, exchange=lossy, events=events), tmp_path / "run")
    expected = Lossy(
        InProcessSites(tmp_path / "others", experiment), lambda what, number, _, client: number == 2 and client == 1
    )
    play(coordinator(expected, experiment, exchange=expected), tmp_path / "without")
    assert_same_server(tmp_path / "run", tmp_path / "without")


@pytest.mark.parametrize("kind", ["confirm", "reveal"])
def test_a_site_that_is_killed_after_masking_is_in_the_sum(kind, tmp_path):
    """The others hold shares of its self-mask."""
    experiment = secure(rounds=2)
    sites = InProcessSites(tmp_path / "sites", experiment)
    lossy = Lossy(sites, lambda what, number, _, client: what == kind and number == 2 and client == 3)
    play(coordinator(lossy, experiment, exchange=lossy), tmp_path / "run")
    expected = run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    assert_same_server(tmp_path / "run", tmp_path / "simulated")
    assert expected.summary["best_round"]


def test_a_group_that_loses_too_many_is_asked_again_without_them(tmp_path):
    """Four of seven do not send their masked vectors: nothing is revealed, and the others make a sum of their own."""
    experiment = secure(rounds=1, clients=7)
    lossy = Lossy(InProcessSites(tmp_path / "sites", experiment))
    lossy.lose = lambda what, number, _, client: what == "masked" and number == 1 and client < 4
    play(coordinator(lossy, experiment, exchange=lossy), tmp_path / "run")
    first, second = sorted({seen[2] for seen in lossy.seen if seen[0] == "shares" and seen[1] == 1})
    assert {seen[3] for seen in lossy.seen if seen[:3] == ("shares", 1, second)} == {4, 5, 6}
    assert not [seen for seen in lossy.seen if seen[:3] == ("confirm", 1, first)]
    without = Lossy(InProcessSites(tmp_path / "others", experiment))
    without.lose = lambda what, number, _, client: number == 1 and client < 4
    play(coordinator(without, experiment, Terms(deadline=5, min_sites=3), without), tmp_path / "without")
    assert_same_server(tmp_path / "run", tmp_path / "without")


def test_with_fewer_than_three_left_there_is_no_sum(tmp_path):
    """The last average is kept; what is left of the group is not asked to reveal anything."""
    experiment = secure(rounds=1)
    sites = InProcessSites(tmp_path / "sites", experiment)
    lossy = Lossy(sites, lambda what, number, _, client: what == "masked" and number == 1 and client > 1)
    events: list = []
    play(coordinator(lossy, experiment, exchange=lossy, events=events), tmp_path / "run")
    assert not [seen for seen in lossy.seen if seen[0] in ("confirm", "reveal") and seen[1] == 1]
    assert any("has no sum" in why for *_, why in events)
    first = coordinator(lossy, experiment).algorithm.init_server(
        coordinator(lossy, experiment).first_weights(coordinator(lossy, experiment).prepare()), 5
    )
    for name, leaf in first["weights"].items():
        assert torch.equal(server_of(tmp_path / "run")[f"server/weights/{name}"], leaf)


class _KilledError(Exception):
    """Stands for a kill of the coordinator."""


@pytest.mark.parametrize("kind", ["shares", "masked", "confirm", "reveal"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_coordinator_that_is_killed_between_phases_resumes(kind, restarts, tmp_path):
    """In every phase of a round and of the sum before the first one; also if all sites restart meanwhile."""
    experiment = secure("fedpub-plus", rounds=3)
    expected = run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    for number in (0, 2):

        def killed(messages, deadline, number=number):
            answers = sites(messages, deadline)
            if {(decode(one).kind, decode(one).fields.get("round")) for one in messages.values()} == {(kind, number)}:
                raise _KilledError
            return answers

        with pytest.raises(_KilledError):
            play(coordinator(sites, experiment, exchange=killed), tmp_path / "run")
        if restarts:
            sites.restart()
    summary = play(coordinator(sites, experiment), tmp_path / "run")
    assert_same_server(tmp_path / "run", tmp_path / "simulated")
    assert summary["best_round"] == expected.summary["best_round"]
    assert len(read_rows(tmp_path / "run")) == 3


# What a site refuses


def begun(tmp_path: Path, experiment=None, stop: str = "reveal") -> tuple[InProcessSites, dict[str, dict[int, bytes]]]:
    """Sites in the first round, and the questions of its sum up to one that was not asked."""
    experiment = experiment or secure(rounds=3)
    sites, asked = InProcessSites(tmp_path / "sites", experiment), dict[str, dict[int, bytes]]()

    def watch(messages, deadline):
        kind, number = next((decode(one).kind, decode(one).fields.get("round")) for one in messages.values())
        if number == 1:
            asked[kind] = dict(messages)
        if (kind, number) == (stop, 1):
            raise _KilledError
        return sites(messages, deadline)

    with pytest.raises(_KilledError):
        play(coordinator(sites, experiment, exchange=watch), tmp_path / "run")
    return sites, asked


def changed(message: bytes, **fields) -> bytes:
    envelope = decode(message)
    return encode(replace(envelope, fields={**envelope.fields, **fields}))


def later(message: bytes) -> bytes:
    """The same of the next attempt."""
    return changed(message, attempt=decode(message).fields["attempt"] + 1)


def reason(answer: bytes) -> str:
    envelope = decode(answer)
    assert envelope.kind == "refused", envelope.kind
    return str(envelope.fields["reason"])


def test_a_second_unmasking_with_other_survivors_is_refused(tmp_path):
    sites, asked = begun(tmp_path)
    site, question = sites.site(0), asked["reveal"][0]
    others = changed(question, survivors=[0, 1, 2])
    assert "asked before" in reason(site.answer(others)), "it has confirmed all five"
    assert decode(site.answer(question)).kind == "reveal"
    assert decode(site.answer(question)).kind == "reveal", "the same question has the same answer"
    sites.restart()
    assert "asked before" in reason(sites.site(0).answer(others)), "after a restart, too"
    again = later(asked["shares"][0])
    assert "once" in reason(sites.site(0).answer(again)), "its part is given"


def test_an_attempt_that_was_followed_by_another_is_void(tmp_path):
    sites, asked = begun(tmp_path, stop="masked")
    site = sites.site(0)
    assert decode(site.answer(later(asked["shares"][0]))).kind == "shares"
    assert "void" in reason(site.answer(asked["masked"][0]))
    assert "void" in reason(site.answer(asked["shares"][0]))


def test_a_group_below_the_minimum_is_refused(tmp_path):
    sites, asked = begun(tmp_path, stop="shares")
    site = sites.site(0)
    assert "none below 3" in reason(site.answer(changed(asked["shares"][0], members=[0, 1])))
    Policy(min_group=6).save(site.folder)
    assert "outside this site's policy" in reason(site.answer(asked["shares"][0]))


def test_groups_are_at_least_as_large_as_the_run_says(tmp_path):
    sites, asked = begun(tmp_path, secure(min_group=4), stop="masked")
    few = changed(asked["masked"][0], alive=[0, 1, 2])
    assert "none below 4" in reason(sites.site(0).answer(few))


def test_other_members_than_at_the_beginning_are_refused(tmp_path):
    sites, asked = begun(tmp_path, stop="masked")
    assert "began with other members" in reason(sites.site(0).answer(changed(asked["masked"][0], members=[0, 1, 2, 3])))


def test_a_sum_of_another_round_is_refused(tmp_path):
    sites, asked = begun(tmp_path, stop="shares")
    assert "this site is in round 1" in reason(sites.site(0).answer(changed(asked["shares"][0], round=0)))


def test_a_plain_round_is_no_way_around(tmp_path):
    """Without the number of all examples a round is refused; the answer of a good one has no weights in it."""
    sites, asked = begun(tmp_path, stop="round")
    site, question = sites.site(0), decode(asked["round"][0])
    fields = {name: value for name, value in question.fields.items() if name != "examples"}
    assert "lacks examples" in reason(site.answer(encode(replace(question, fields=fields))))


def test_a_plain_run_is_refused_where_the_policy_demands_secure_ones(tmp_path):
    experiment = secure()
    sites = InProcessSites(tmp_path / "sites", experiment)
    for client in range(5):
        Policy(secure=True).save(sites.site(client).folder)
    plain = replace(experiment, secure=False)
    with pytest.raises(FedpubError, match="outside this site's policy"):
        play(coordinator(sites, plain), tmp_path / "plain")
    assert play(coordinator(sites, experiment), tmp_path / "secure")["rounds"] == 3


def test_a_coordinator_that_swaps_a_key_is_caught(tmp_path):
    """It hands out a key of its own in the place of a site's: no signature of that site is on it."""
    from fedpub.federation.secure.keys import new_key, public_of

    experiment = secure()
    sites = InProcessSites(tmp_path / "sites", experiment)
    mine = public_of(new_key()).hex()

    def swapped(messages, deadline):
        for client, message in dict(messages).items():
            envelope = decode(message)
            if envelope.kind == "peers" and client != 2:
                keys = list(envelope.fields["keys"])
                keys[2] = mine
                messages = {**messages, client: changed(message, keys=keys)}
        return sites(messages, deadline)

    with pytest.raises(FedpubError, match="not signed"):
        play(coordinator(sites, experiment, exchange=swapped), tmp_path / "run")


def test_a_site_that_is_not_trusted_is_refused(tmp_path):
    experiment = secure()
    sites = InProcessSites(tmp_path / "sites", experiment)
    everyone = identities(sites.names)
    own, known = everyone["site-0"], {name: everyone[name].peers()[name] for name in sites.names[:3]}
    sites.identities = everyone | {"site-0": Identity(own.name, own.sign, own.verify, lambda: known)}
    with pytest.raises(FedpubError, match=r"site-0.*does not know site-3"):
        play(coordinator(sites, experiment), tmp_path / "run")


def test_members_that_were_sent_different_weights_add_noise(tmp_path):
    """A coordinator that sends one site other weights, to tell its step from those of others, gets nothing."""
    experiment = secure(rounds=1)
    sites = InProcessSites(tmp_path / "sites", experiment)
    known: list = []

    def inconsistent(messages, deadline):
        found = dict(messages)
        for client, message in messages.items():
            envelope = decode(message)
            if envelope.kind == "round" and client == 0:
                found[0] = changed(message, examples=envelope.fields["examples"] + 1)
        answers = sites(found, deadline)
        known.extend(decode(one) for one in answers.values())
        return answers

    events: list = []
    play(coordinator(sites, experiment, exchange=inconsistent, events=events), tmp_path / "run")
    refusals = [one for one in known if one.kind == "refused"]
    assert refusals, "what is sealed for a site that was told something else does not open"
    assert all("does not open" in one.fields["reason"] for one in refusals)


def test_the_liar_is_named_and_the_sum_is_right(tmp_path):
    """One site is killed after masking, and another reveals wrong shares."""
    experiment = secure(rounds=1, clients=4)
    expected = run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def lying(messages, deadline):
        answers = sites(messages, deadline)
        for client, message in messages.items():
            asked = decode(message)
            if asked.kind in ("confirm", "reveal") and asked.fields["round"] == 1 and client == 3:
                del answers[client]  # killed
            elif asked.kind == "reveal" and asked.fields["round"] == 1 and client == 1:
                envelope = decode(answers[client])
                lie = tensor(envelope.message["revealed"]).clone()
                lie[:, -32:] ^= 1
                answers[client] = encode(replace(envelope, message=Message({"revealed": lie})))
        return answers

    events: list = []
    play(coordinator(sites, experiment, exchange=lying, events=events), tmp_path / "run")
    assert_same_server(tmp_path / "run", tmp_path / "simulated")
    assert [client for client, what, *_ in events if what == "refused"] == [1]
    assert expected.summary["rounds"] == 1


def test_a_vector_of_another_length_is_refused(tmp_path):
    experiment = secure(rounds=1)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def short(messages, deadline):
        answers = sites(messages, deadline)
        if 2 in answers and (envelope := decode(answers[2])).kind == "masked" and envelope.fields["round"] == 1:
            cut = tensor(envelope.message["masked"])[:, :-1].clone()
            answers[2] = encode(replace(envelope, message=Message({"masked": cut})))
        return answers

    events: list = []
    play(coordinator(sites, experiment, exchange=short, events=events), tmp_path / "run")
    assert [client for client, what, *_ in events if what == "refused"] == [2]


def test_numbers_beside_the_sum_are_refused(tmp_path):
    """A site of another version that tells its loss does not enter the run with it."""
    experiment = secure(rounds=1)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def telling(messages, deadline):
        answers = sites(messages, deadline)
        if 2 in answers and decode(answers[2]).kind == "round":
            answers[2] = changed(answers[2], loss=0.5)
        return answers

    events: list = []
    play(coordinator(sites, experiment, exchange=telling, events=events), tmp_path / "run")
    assert any(client == 2 and "belong into the sum" in why for client, *_, why in events)


def test_the_ledger_forgets_sums_of_earlier_rounds(tmp_path):
    experiment = secure(rounds=3)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "run")
    asked = json.loads((sites.folder / "site-0" / "runs" / RUN / "asked.json").read_text())["letters"]
    place = f"3.{at_coordinator.ATTEMPTS + 1}"
    assert [name for name in asked if not name.startswith("round")] == [f"masked {place}", f"confirm {place}"]


def test_a_site_that_loses_its_folder_gets_another_key_and_is_in_the_sum_again(tmp_path):
    """The others check its new key as they did the first one."""
    experiment = secure(rounds=3)
    sites = InProcessSites(tmp_path / "sites", experiment)
    events: list = []

    def losing(messages, deadline):
        kind, number = next((decode(one).kind, decode(one).fields.get("round")) for one in messages.values())
        if (kind, number) == ("round", 2) and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            shutil.rmtree(sites.folder / "site-2" / "runs")
            sites.sites.pop(2)
        return sites(messages, deadline)

    play(coordinator(sites, experiment, exchange=losing, events=events), tmp_path / "run")
    assert [(client, what, number) for client, what, number, _ in events] == [
        (2, "began anew", 2),
        (2, "left out", 2),
    ]
