"""What a site takes part in, by its owner's policy."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_federation import RUN, coordinator, small
from test_probing import Prober, join, joiner, refusal

from fedpub.algorithms import METHODS
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.checks import LEAST_GROUP
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.journal import Journal
from fedpub.federation.limits import Limits, Used
from fedpub.federation.logged import Described, SiteLog
from fedpub.federation.policy import FILE, SETTINGS, Policy, check_agreed
from fedpub.federation.wire import Envelope, decode, encode

PLAN = small("fedpub").resolve()
NOW = datetime.now(UTC)


def write(folder: Path, **settings: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(settings), encoding="utf-8")


# The file


def test_a_policy_comes_back_from_its_file(tmp_path):
    whole = Policy(("fedpub", "fedavg"), ("weights",), 3, 100, 1, ("exact",), True, 5, PLAN.experiment)
    for policy in (whole, Policy(), Policy(methods=(), min_other_sites=0)):
        policy.save(tmp_path)
        assert Policy.load(tmp_path) == policy
    assert Policy.load(tmp_path / "none") == Policy()


def test_an_owner_sees_what_can_be_limited(tmp_path):
    Policy().save(tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == dict.fromkeys(SETTINGS)
    assert SETTINGS == (
        "methods",
        "uploads",
        "min_other_sites",
        "rounds_per_day",
        "runs_per_day",
        "precisions",
        "secure",
        "min_group",
        "experiment",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"method": ["fedpub"]}', "unknown setting 'method': did you mean methods"),
        ('{"methods": ["fedpop"]}', "unknown method 'fedpop': did you mean fedp"),
        ('{"precisions": ["int4"]}', "unknown precision 'int4': did you mean int8"),
        ('{"methods": "fedpub"}', "methods is 'fedpub'; give a list of names"),
        ('{"uploads": [1]}', r"uploads is \[1\]; give a list of names"),
        ('{"min_other_sites": -1}', "min_other_sites is -1; give a whole number"),
        ('{"rounds_per_day": true}', "rounds_per_day is True; give a whole number"),
        ('{"runs_per_day": 1.5}', "runs_per_day is 1.5; give a whole number"),
        ('{"secure": false}', "secure is False; give true, or null"),
        ('{"secure": 1}', "secure is 1; give true, or null"),
        ('{"min_group": 2}', "min_group is 2; give a whole number from 3 on"),
        ('{"experiment": "config.json"}', "experiment is 'config.json'"),
        ('{"experiment": {"rounds": 0}}', "rounds"),
        ('{"experiment": {"round": 1}}', "round"),
        ("[]", "not a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_a_wrong_policy_is_a_sentence(text, words, tmp_path):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(FedpubError, match=words):
        Policy.load(tmp_path)


# The rules


@pytest.mark.parametrize(
    ("inside", "outside", "words"),
    [
        ({"methods": ["fedpub"]}, {"methods": ["fedavg"]}, "the method fedpub is outside .* policy .methods: fedavg"),
        (
            {"uploads": sorted(PLAN.algorithm.uploads)},
            {"uploads": ["weights", "size"]},
            "sending active, embedding with fedpub is outside .* policy .uploads: weights, size",
        ),
        ({"min_other_sites": 3}, {"min_other_sites": 4}, "a run with 3 other sites is outside .*min_other_sites: 4"),
        ({"precisions": ["exact"]}, {"precisions": ["int8"]}, "the precision exact is outside .*precisions: int8"),
        ({"methods": [*METHODS]}, {"methods": []}, "methods: empty"),
    ],
)
def test_a_run_is_within_the_policy_or_outside_of_it(inside, outside, words):
    Policy.of(inside, "here").check(PLAN, 4, "exact")
    with pytest.raises(FedpubError, match=words):
        Policy.of(outside, "here").check(PLAN, 4, "exact")


def of_groups(secure: bool, smallest: int) -> Plan:
    """A plan of which only the settings of secure aggregation are asked."""
    plan = copy(PLAN)
    object.__setattr__(plan, "experiment", copy(PLAN.experiment))
    vars(plan.experiment).update(secure=secure, min_group=smallest)
    return plan


def test_a_site_may_take_part_in_secure_runs_only():
    Policy(secure=True).check(of_groups(True, 3), 4, "exact")
    Policy().check(of_groups(False, 3), 4, "exact")
    with pytest.raises(FedpubError, match=r"a run without secure aggregation is outside .*secure: true"):
        Policy(secure=True).check(of_groups(False, 3), 4, "exact")


def test_a_site_is_hidden_in_groups_of_the_size_that_its_owner_wants():
    """Never in smaller ones than three; without secure aggregation it is in no group at all."""
    policy = Policy(min_group=5)
    for smallest in (5, 6):
        policy.check(of_groups(True, smallest), 8, "exact")
    with pytest.raises(FedpubError, match=r"sums over groups of 4 sites is outside .*min_group: 5"):
        policy.check(of_groups(True, 4), 8, "exact")
    with pytest.raises(FedpubError, match=r"without secure aggregation, with no group at all, .*min_group: 5"):
        policy.check(of_groups(False, 8), 8, "exact")
    Policy(min_group=LEAST_GROUP).check(of_groups(True, 1), 8, "exact")
    Policy().check(of_groups(True, 3), 8, "exact")


def test_the_agreed_experiment_is_part_of_the_policy():
    other = Policy(experiment=replace(PLAN.experiment, rounds=99))
    Policy(experiment=PLAN.experiment).check(PLAN, 1, "exact")
    with pytest.raises(FedpubError, match="rounds 3, but this site has agreed to 99"):
        other.check(PLAN, 1, "exact")
    check_agreed(PLAN.experiment, None)


def test_rounds_and_runs_are_limited_from_none_on():
    Policy(rounds_per_day=2, runs_per_day=1).check_new_round(1)
    Policy(rounds_per_day=2, runs_per_day=1).check_new_run(0)
    Policy().check_new_round(10**6)
    Policy().check_new_run(10**6)
    for check, words in (
        (lambda: Policy(rounds_per_day=2).check_new_round(2), "one more round after 2 within 24 hours"),
        (lambda: Policy(runs_per_day=0).check_new_run(0), "one more run after 0 within 24 hours"),
    ):
        with pytest.raises(FedpubError, match=words):
            check()


# What is counted


def told(log: Journal, hours: float, kind: str, run: str = RUN, question: str = "q", digest: str = "d") -> None:
    """A line about an answer that left so many hours ago."""
    entry = dict(Described(kind, run, 1, [], 1, digest).entry("site", "a", "out", question=question))
    log.write([entry | {"time": (NOW - timedelta(hours=hours)).isoformat()}])


def test_rounds_of_the_last_day_are_counted_once_each(tmp_path):
    path = tmp_path / "audit.jsonl"
    log, used = Journal(path), Used(path)
    told(log, 30, "round", question="old")
    told(log, 23, "round", question="1")
    told(log, 22, "round", question="1")  # the same message again
    told(log, 21, "round", question="2")
    told(log, 20, "refused", question="3")
    used.read()
    assert used.rounds == 2
    told(log, 1, "round", question="4")
    used.read()
    assert used.rounds == 3, "lines that were added since"
    again = Used(path)
    again.read()
    assert again.rounds == 3, "and after a restart"


def test_runs_of_the_last_day_are_counted_once_each(tmp_path):
    path = tmp_path / "audit.jsonl"
    log, used = Journal(path), Used(path)
    told(log, 30, "begun", "0" * 16)
    told(log, 3, "begun", "1" * 16)
    told(log, 2, "begun", "1" * 16)
    told(log, 1, "join", "2" * 16)
    used.read()
    assert used.runs == {"1" * 16, "2" * 16}


def test_what_is_a_day_old_counts_no_longer(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    told(Journal(path), 1, "round")
    used = Used(path)
    used.read()
    assert used.rounds == 1
    monkeypatch.setattr("fedpub.federation.limits.DAY", timedelta(minutes=30))
    used.read()
    assert used.rounds == 0


def test_a_damaged_line_is_not_counted_and_stops_nothing(tmp_path):
    path = tmp_path / "audit.jsonl"
    told(Journal(path), 1, "round")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"q"', b'"r"') + b"{}\n" + whole + whole[:50])
    used = Used(path)
    used.read()
    assert used.rounds == 1


# At a site


class Owned(Prober):
    """A prober whose site has an owner, with a policy and a log."""

    @property
    def folder(self) -> Path:
        return self.site.folder

    def ask(self, envelope: Envelope) -> Envelope:
        log = SiteLog(Journal(self.folder / "audit.jsonl"), self.site.name)
        return decode(log.answer(encode(envelope), self.site.answer))

    def log(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
def owned(tmp_path):
    return Owned(tmp_path)


def test_the_policy_is_read_again_when_it_changes_and_refusals_are_logged(owned):
    assert owned.round(1, 0).kind == "round"
    write(owned.folder, methods=["fedpub"])
    words = "the method fedavg is outside this site's policy (methods: fedpub)"
    assert refusal(owned.round(2, 1)).startswith(words)
    assert owned.log()[-1]["reason"].startswith(words)
    write(owned.folder, methods=["fedpub", "fedavg"])
    assert owned.round(2, 1).kind == "round"
    (owned.folder / FILE).write_text("{")
    for _ in range(2):
        assert "policy.json cannot be read" in refusal(owned.round(3, 2)), "until it is repaired"
    write(owned.folder)
    assert owned.round(3, 2).kind == "round"


def test_a_policy_that_is_away_remains_in_force(tmp_path, monkeypatch):
    """An editor's rename, or a file that vanishes between two looks."""
    path, other = tmp_path / FILE, tmp_path / "other"
    limits = Limits(tmp_path)
    assert limits.now() == Policy(), "at the start there was none"
    write(tmp_path, methods=["fedpub"])
    assert limits.now().methods == ("fedpub",)
    path.rename(other)
    assert limits.now().methods == ("fedpub",)
    other.rename(path)
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(FedpubError, match="cannot be read"):
            limits.now()
        path.unlink(missing_ok=True)
    write(tmp_path, methods=["fedavg"])
    with monkeypatch.context() as patch:
        patch.setattr("fedpub.federation.limits._read", lambda _: None)
        with pytest.raises(FedpubError, match="cannot be read"):
            limits.now()
    assert limits.now().methods == ("fedavg",)
    write(tmp_path)
    assert limits.now() == Policy()


def test_what_was_answered_is_answered_again_whatever_the_policy_says_now(owned):
    """It has left already."""
    first = owned.round(1, 0)
    write(owned.folder, methods=[])
    assert owned.round(1, 0).fields == first.fields


@pytest.mark.parametrize(
    ("settings", "changes", "words"),
    [
        ({"methods": ["fedpub"]}, {}, "methods: fedpub"),
        ({"uploads": ["size"]}, {}, "sending weights with fedavg is outside"),
        ({"min_other_sites": 4}, {}, "a run with 3 other sites is outside"),
        ({"min_other_sites": 3}, {"sites": 3}, "a run with 2 other sites is outside"),
        ({"precisions": ["int8", "float16"]}, {}, "the precision exact is outside"),
        ({"runs_per_day": 0}, {}, "one more run after 0 within 24 hours is outside"),
        ({"nonsense": 1}, {}, "unknown setting 'nonsense'"),
    ],
)
def test_a_run_outside_the_policy_is_not_begun(settings, changes, words, owned, monkeypatch):
    write(owned.folder, **settings)
    owned.sites.restart()
    fields = {**owned.seen["begin"].fields, "run": "f" * 16, **changes}
    monkeypatch.setattr("fedpub.federation.part.OnePiece.piece", lambda *_: pytest.fail("data was touched"))
    assert words in refusal(owned.ask(Envelope("begin", fields)))
    assert not (owned.folder / "runs" / ("f" * 16)).exists()


@pytest.mark.parametrize("kind", ["ready", "setup"])
def test_what_happens_before_the_rounds_is_within_the_policy_too(kind, tmp_path):
    owned = Owned(tmp_path, "fedgnn")
    write(owned.folder, methods=[])
    fields = {"run": RUN} | ({"step": 1} if kind == "setup" else {})
    setup = next(iter(owned.part.folder.glob("setup-*")), None)
    if kind == "setup":
        assert setup is not None
        setup.unlink()
        fields["step"] = 0
    envelope = owned.seen["setup"] if kind == "setup" else Envelope(kind, fields)
    assert "methods: empty" in refusal(owned.ask(envelope))


def test_joining_is_within_the_policy(tmp_path):
    finished, site, place = joiner(tmp_path)
    for settings, words in (
        ({"methods": []}, "methods: empty"),
        ({"min_other_sites": 4}, "a run with 3 other sites"),
        ({"runs_per_day": 0}, "one more run after 0"),
        ({"precisions": ["int8"]}, "the precision exact"),
    ):
        write(place, **settings)
        with pytest.raises(FedpubError, match=words):
            join(finished, site())
        assert not (place / "runs").exists()
    write(place, min_other_sites=3, runs_per_day=1, precisions=["exact"])
    assert join(finished, site())


def test_rounds_per_day_outlive_restarts_and_repeated_messages_are_free(owned):
    write(owned.folder, rounds_per_day=2)
    for number in (1, 2):
        assert owned.round(number, number - 1).kind == "round"
        owned.sites.restart()
        assert owned.round(number, number - 1).kind == "round", "the same again"
    assert "one more round after 2 within 24 hours" in refusal(owned.round(3, 2))
    owned.sites.restart()
    assert "one more round after 2 within 24 hours" in refusal(owned.round(3, 2))
    write(owned.folder, rounds_per_day=3)
    assert owned.round(3, 2).kind == "round", "what was refused can be asked again"


def test_runs_per_day_outlive_the_folder_of_runs(owned):
    write(owned.folder, runs_per_day=1)
    assert owned.begin(1).kind == "begun"
    owned.sites.restart()
    assert owned.begin(2).kind == "begun", "the run that has begun begins again"
    (owned.folder / "runs").rename(owned.folder / "old")
    owned.sites.restart()
    assert "one more run after 1 within 24 hours" in refusal(owned.begin(0, run="f" * 16))
    write(owned.folder, runs_per_day=2)
    assert owned.begin(0, run="f" * 16).kind == "begun"


def test_a_run_says_how_many_sites_take_part(tmp_path):
    """The fields that the policy is checked by come from the coordinator of a run."""
    sites, seen = InProcessSites(tmp_path / "sites", small("fedavg")), {}

    def watch(messages, deadline):
        seen.update({decode(data).kind: decode(data).fields for data in messages.values()})
        return sites(messages, deadline)

    play(coordinator(sites, small("fedavg"), exchange=watch), tmp_path / "run")
    assert seen["begin"]["sites"] == 4
    for wrong in (0, 4.0, True, None, 10**9):
        answer = sites.site(0).answer(encode(Envelope("begin", {**seen["begin"], "sites": wrong})))
        assert "sites of the message 'begin' is" in decode(answer).fields["reason"]


def test_the_limits_of_a_folder_without_a_policy_are_none(tmp_path):
    limits = Limits(tmp_path)
    limits.check(PLAN, 1, "exact")
    limits.check_new_round()
    limits.check_new_run(RUN)
    assert limits.now() == Policy()


def test_an_experiment_of_a_run_can_be_agreed_to(tmp_path):
    """As `config.json` holds it, with a device of its own."""
    (tmp_path / "config.json").write_text(replace(PLAN.experiment, device="cuda").to_json())
    agreed = Experiment.read(tmp_path / "config.json")
    Policy(experiment=agreed).save(tmp_path)
    Policy.load(tmp_path).check(PLAN, 1, "exact")
