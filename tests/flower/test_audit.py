"""Countersignatures with real keys, both logs of a federation over the real link, and the verbs that read them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from test_link import Deployed

from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.countersigned import MAGIC, signed_text, wrapped
from fedpub.federation.journal import START, Journal, chained, lines
from fedpub.federation.logged import Keys, LoggedExchange, SiteLog
from fedpub.federation.policy import FILE, Policy
from fedpub.federation.requests import Terms
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.flower import app
from fedpub.flower import site as sites
from fedpub.flower.coordinator import Running
from fedpub.flower.countersign import signer, verify
from fedpub.flower.folder import CoordinatorFolder
from fedpub.flower.keys import fingerprint, make_site_key, private_key, read_admitted
from fedpub.flower.local import lay_out
from fedpub.flower.server import coordinate
from fedpub.flower.site import run_site
from fedpub.flower.sites import AGREED, open_site
from small import refused

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]
LOG = "audit.jsonl"


# Signatures


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("a", "b"):
        (folder / f"{name}.pub").write_text(make_site_key(folder / f"{name}.key"))
    return folder / "a.key", folder / "b.key"


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


@given(text=st.binary(min_size=1, max_size=200), data=st.data())
def test_a_signature_is_of_one_key_and_one_text(keys, text, data):
    signature = signer(private_key(keys[0]))(text)
    assert verify(public(keys[0]), signature, text)
    assert not verify(public(keys[1]), signature, text)
    at, bit = data.draw(st.integers(0, len(text) - 1)), data.draw(st.integers(1, 255))
    other = text[:at] + bytes([text[at] ^ bit]) + text[at + 1 :]
    assert not verify(public(keys[0]), signature, other)
    at = data.draw(st.integers(0, 10**6)) % len(signature)  # no two signatures are equally long
    broken = signature[:at] + bytes([signature[at] ^ bit]) + signature[at + 1 :]
    assert not verify(public(keys[0]), broken, text)


@pytest.mark.parametrize("key", ["", "no key", "ssh-ed25519 AAAA", "ecdsa-sha2-nistp384 AAAA", "\x00"])
def test_what_is_no_key_has_signed_nothing(key, keys):
    assert not verify(key, signer(private_key(keys[0]))(b"x"), b"x")


# Over the real link


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    experiment = Experiment(clients=2, rounds=2, hidden=4, dtype="float64").resolve()
    coordinator, folders = lay_out(
        tmp_path / "all", prepare(experiment), experiment, Terms(deadline=60), tmp_path / "out"
    )
    return Deployed(experiment, coordinator, folders, tmp_path / "out")


def played(deployed: Deployed) -> None:
    running = deployed.start_sites()
    deployed.play()
    for one in running:
        one.result()


def test_both_ends_log_the_same_and_every_answer_is_countersigned(deployed, capsys):
    played(deployed)
    coordinator, site = str(deployed.coordinator), str(deployed.sites[0])
    assert main(["audit", "verify", coordinator, "--against", site, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["intact"]
    assert (told["logs"][0]["answers"], told["logs"][0]["countersigned"]) == (10, 10), "hello, begin, 2 rounds, finish"
    assert told["both"]["messages"] == 5
    admitted = read_admitted(deployed.coordinator / "admitted.txt")
    assert told["logs"][0]["keys"] == {site: [key] for site, key in admitted.items()}
    assert main(["audit", "verify", site, "--against", coordinator]) == 0, "in either order"
    said = capsys.readouterr().out
    assert "countersigned: 10 of 10 answers" in said
    assert f"signed by {deployed.sites[0].name}: {fingerprint(admitted[deployed.sites[0].name])}" in said
    assert "both logs have the same 5 answers" in said
    kinds = [line.entry["kind"] for line in lines(deployed.sites[0] / LOG)]
    assert kinds == ["hello", "hello", "begin", "begun", *["round"] * 4, "finish", "finished"]

    reads(deployed.sites[0], capsys)
    cuts(deployed, capsys)


def reads(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`fedpub site audit` of a site that has taken part, and of one whose owner has moved the runs away."""
    assert main(["site", "audit", "--folder", str(site)]) == 0
    said = capsys.readouterr().out
    assert "weights/conv1.weight" in said
    assert "the chain of the log is intact, 10 lines" in said
    assert main(["site", "audit", "--folder", str(site), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (rounds,) = [one for one in told["log"]["messages"] if one["kind"] == "round"]
    assert (rounds["received"], rounds["sent"], rounds["run"]) == (2, 2, next((site / "runs").iterdir()).name)
    assert main(["site", "audit", "--folder", str(site), "--log"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 10
    assert "weights/conv1.weight [1, " in shown[5]
    assert main(["site", "audit", "--folder", str(site), "--log", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 10
    (site / "runs").rename(site / "old")
    assert main(["site", "audit", "--folder", str(site), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log"]["lines"] == 10
    (site / "old").rename(site / "runs")


def cuts(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """What `fedpub audit verify` says of logs that were changed."""
    coordinator, site = deployed.coordinator / LOG, deployed.sites[0] / LOG
    theirs, ours = coordinator.read_bytes(), site.read_bytes()
    words = ["audit", "verify", str(deployed.coordinator), "--against", str(deployed.sites[0])]
    for path, text, expected in (
        (
            coordinator,
            theirs.replace(b'"kind":"round"', b'"kind":"ready"', 1),
            "was changed: its hash",
        ),
        (site, ours[: ours[:-1].rfind(b"\n") + 1], "the site's log was cut off or written again"),
        (site, b"", "no run in common"),
        (coordinator, b"", "no run in common"),
        (coordinator, forged(coordinator), "has a countersignature of"),
    ):
        path.write_bytes(text)
        assert main(words) == 1
        said = capsys.readouterr().out
        assert "not intact: " in said
        assert expected in said
        assert main([*words, "--json"]) == 1
        assert expected in json.loads(capsys.readouterr().out)["defect"]
        coordinator.write_bytes(theirs)
        site.write_bytes(ours)
    other = ["audit", "verify", str(site), "--against", str(deployed.sites[1])]
    assert "--against" in refused(other, capsys)
    assert "there is no audit log" in refused(["audit", "verify", str(deployed.coordinator / "logs")], capsys)


def forged(path: Path) -> bytes:
    """The log with another answer, and hashes that are right."""
    text, head = b"", START
    for line in lines(path):
        entry = {name: one for name, one in line.entry.items() if name not in ("line", "previous")}
        if entry["direction"] == "in" and entry["kind"] == "round":
            entry["digest"] = "0" * 64
        one, head = chained(line.number, entry, head)
        text += one
    return text


def signed_by(path: Path, site: str, key: Path) -> bytes:
    """The log with answers of a site that another key has signed, and a line that admits the key."""
    text, head = b"", START
    for line in lines(path):
        entry = {name: one for name, one in line.entry.items() if name not in ("line", "previous")}
        if entry["site"] == site and "key" in entry:
            entry["key"] = " ".join(public(key).split()[:2])
            if "signature" in entry:
                signed = signed_text(entry["run"], entry["question"], entry["digest"], entry["head"])
                entry["signature"] = signer(private_key(key))(signed).hex()
        one, head = chained(line.number, entry, head)
        text += one
    return text


def test_a_log_is_verified_with_the_keys_that_sites_gave(keys, tmp_path, capsys):
    path = tmp_path / "fed" / LOG
    theirs = Keys({"a": " ".join(public(keys[0]).split()[:2])}.get, verify)
    site = SiteLog(Journal(tmp_path / "a" / LOG), "a", signer(private_key(keys[0])))
    question = encode(Envelope("hello", {"run": "0" * 16}))
    exchange = LoggedExchange(
        lambda messages, _: {0: site.answer(messages[0], lambda data: data)}, Journal(path), lambda _: "a", theirs
    )
    assert exchange({0: question}, 1.0) == {0: question}
    older, listed, empty = tmp_path / "older.txt", tmp_path / "list.txt", tmp_path / "empty.pub"
    listed.write_text(f"# ours\na {public(keys[0])}\n")
    older.write_text(f"a {public(keys[1])}\n")
    empty.write_text("# none\n")
    words = ["audit", "verify", str(path.parent), "--keys"]
    for files in ([keys[0].with_suffix(".pub")], [listed], [listed, older], [older, keys[0].with_suffix(".pub")]):
        assert main([*words, *map(str, files)]) == 0
        assert "these keys are those given" in capsys.readouterr().out
    assert main(words[:3]) == 0
    assert "--keys compares them with the sites' own" in capsys.readouterr().out
    path.write_bytes(signed_by(path, "a", keys[1]))
    assert main(words[:3]) == 0, "alone it looks right"
    assert main([*words, str(listed)]) == 1
    assert "line 3 is countersigned with a key that a did not have, by the keys given" in capsys.readouterr().out
    assert "there are no keys in" in refused([*words, str(listed), str(empty)], capsys)
    assert "there are no keys in" in refused([*words, str(tmp_path / "away.pub")], capsys)
    assert "is for the log of a coordinator" in refused(
        ["audit", "verify", str(tmp_path / "a"), "--keys", str(listed)], capsys
    )


def test_a_coordinator_that_resumes_and_sites_that_restart_continue_their_logs(deployed, monkeypatch, capsys):
    """The coordinator ends after the first round, and both sites with it."""
    running = deployed.start_sites()

    def interrupted(row, rounds) -> None:
        raise FedpubError("enough for today")

    with Running(deployed.coordinator) as first, pytest.raises(FedpubError, match="enough for today"):
        first.wait(interrupted)
    before = [len(list(lines(folder / LOG))) for folder in (deployed.coordinator, *deployed.sites)]
    deployed.play(resume=True)
    for one in running:
        one.result()
    for place, count in zip((deployed.coordinator, *deployed.sites), before, strict=True):
        assert len(list(lines(place / LOG))) > count >= 6
    for folder in deployed.sites:
        assert main(["audit", "verify", str(deployed.coordinator), "--against", str(folder)]) == 0, (
            capsys.readouterr().out
        )


WRONG = {
    "none": lambda data, key: data[data.index(b"FPUB") :],
    "another key": lambda data, key: wrapped(data[data.index(b"FPUB") :], START, signer(private_key(key))(b"x")),
    "noise": lambda data, key: b"\x00" * 10,
}


@pytest.mark.parametrize("how", WRONG)
def test_an_answer_without_its_countersignature_is_refused_and_the_run_continues(how, deployed, monkeypatch, tmp_path):
    stranger, name = tmp_path / "stranger.key", deployed.sites[1].name
    make_site_key(stranger)
    original = sites.SiteLog.answer

    def answer(self, data, answered):
        got = original(self, data, answered)
        assert got.startswith(MAGIC)
        return WRONG[how](got, stranger) if self._site == name and decode(data).kind == "round" else got

    monkeypatch.setattr(sites.SiteLog, "answer", answer)
    played(deployed)
    folder = CoordinatorFolder(deployed.coordinator)
    events = [(one["site"], one["event"], one["round"]) for one in folder.read_events()]
    assert events == [(name, what, number) for number in (1, 2) for what in ("refused", "left out")]
    assert "countersign" in folder.read_events()[0]["reason"]
    kinds = [line.entry["kind"] for line in lines(folder.audit) if line.entry["site"] == name]
    assert kinds == ["key", "hello", "hello", "begin", "begun", *["round", "dropped"] * 2, "finish", "finished"]
    assert main(["audit", "verify", str(folder.path), "--against", str(deployed.sites[1])]) == 0, "nothing is hidden"


def test_a_run_outside_the_policy_of_a_site_does_not_begin(deployed, capsys):
    words = ["site", "policy", "--folder", str(deployed.sites[1]), "--min-other-sites", "2"]
    assert main(words) == 0
    running = deployed.start_sites()
    with pytest.raises(
        FedpubError, match=r"cannot take part: a run with 1 other sites is outside .*min_other_sites: 2"
    ):
        deployed.play()
    assert main([*words[:4], "--lift", "min-other-sites"]) == 0, "it follows at once"
    deployed.play(resume=True)
    for one in running:
        one.result()
    capsys.readouterr()
    assert main(["site", "audit", "--folder", str(deployed.sites[1]), "--json"]) == 0
    (refusal,) = json.loads(capsys.readouterr().out)["log"]["refusals"]
    assert (refusal["times"], refusal["reason"].startswith("a run with 1 other sites")) == (1, True)


def test_a_site_whose_disk_is_full_sends_nothing_and_ends_with_a_sentence(deployed, monkeypatch):
    site, write = deployed.sites[0], sites.Journal.write

    def full(self, entries, durable=True):
        if entries[0]["direction"] == "out" and entries[0]["at"] == "site":
            raise FedpubError("no message leaves without its line")
        return write(self, entries, durable)

    class Line:
        """A connection on which a message waits, and nothing may leave."""

        __enter__, __exit__ = (lambda self: self), (lambda *_: None)

        def next_message(self):
            return None, encode(Envelope("hello", {"run": "0" * 16}))

        def reply(self, received, answer):
            pytest.fail("an answer has left")

    monkeypatch.setattr(sites.Journal, "write", full)
    monkeypatch.setattr(sites, "_introduce", lambda *_: None)
    monkeypatch.setattr("fedpub.flower.node.Node", lambda *_: Line())
    with pytest.raises(FedpubError, match="no message leaves"):
        run_site(site, lambda line, event="": deployed.said.append(line), once=True)


# Without keys


class Grid:
    """Flower's grid, as far as it is used: its nodes run the app of `flwr run` in their folders and answer at once."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = dict(enumerate(folders, start=100))
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return [*self.folders]

    def push_messages(self, messages: list[Message]) -> list[str]:
        names = []
        for message in messages:
            name = message.metadata.__dict__["_message_id"] = str(len(self.replies))
            place = SimpleNamespace(node_config={"folder": str(self.folders[message.metadata.dst_node_id])})
            self.replies[name] = app.client(message, place)
            names.append(name)
        return names

    def pull_messages(self, names: list[str]) -> list[Message]:
        return [self.replies[name] for name in names]


def test_a_federation_of_flower_s_own_is_logged_without_countersignatures(deployed, capsys, monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)  # Flower sets them in the process of an app
    coordinate(Grid(deployed.sites), deployed.coordinator)
    for folder in deployed.sites:
        words = ["audit", "verify", str(deployed.coordinator), "--against", str(folder), "--json"]
        assert main(words) == 0, capsys.readouterr().out
        told = json.loads(capsys.readouterr().out)
        assert told["both"]["messages"] == 5
        assert (told["logs"][0]["countersigned"], told["logs"][0]["keys"]) == (0, {})
        assert told["logs"][0]["over_flower"] == told["logs"][0]["answers"] > 0
    names = {line.entry["site"] for line in lines(deployed.coordinator / LOG)}
    assert names == {"node 100", "node 101", *(folder.name for folder in deployed.sites)}, "a node, until it says who"


# A site's folder


def test_what_was_agreed_with_an_earlier_version_is_taken_over(deployed):
    site, other = deployed.sites[0], replace(deployed.experiment.experiment, rounds=99)
    (site / AGREED).write_text(other.to_json())
    open_site(site)
    assert not (site / AGREED).exists()
    assert Policy.load(site) == Policy(experiment=other)
    (site / AGREED).write_text(other.to_json())
    open_site(site)
    assert not (site / AGREED).exists(), "killed between the two files"
    (site / AGREED).write_text(deployed.experiment.experiment.to_json())
    with pytest.raises(FedpubError, match="name different experiments"):
        open_site(site)
    assert Policy.load(site) == Policy(experiment=other), "nothing is lost"
    assert (site / AGREED).exists()


def test_an_agreed_experiment_is_one_setting_of_the_policy(deployed, tmp_path, capsys):
    site, path = deployed.sites[0], tmp_path / "config.json"
    path.write_text(deployed.experiment.experiment.to_json())
    Policy(rounds_per_day=7).save(site)
    assert main(["site", "start", "--folder", str(site), "--experiment", str(path), "--no-wait"]) == 2
    assert "refuses connections" in capsys.readouterr().err
    assert Policy.load(site) == Policy(rounds_per_day=7, experiment=deployed.experiment.experiment)


def test_the_policy_is_shown_and_changed(deployed, tmp_path, capsys):
    site = str(deployed.sites[0])
    assert main(["site", "policy", "--folder", site]) == 0
    assert capsys.readouterr().out.count("no limit") == 9
    assert not (deployed.sites[0] / FILE).exists(), "a look changes nothing"
    words = ["--methods", "fedpub", "fedavg", "--rounds-per-day", "0", "--precisions", "int8", "--uploads", "weights"]
    assert main(["site", "policy", "--folder", site, *words]) == 0
    shown = capsys.readouterr().out
    assert "fedpub, fedavg" in shown
    path = tmp_path / "config.json"
    path.write_text(deployed.experiment.experiment.to_json())
    assert main(["site", "policy", "--folder", site, "--secure", "--min-group", "4"]) == 0
    assert "required" in capsys.readouterr().out
    words = ["--lift", "methods", "rounds-per-day", "--runs-per-day", "3", "--experiment", str(path), "--json"]
    assert main(["site", "policy", "--folder", site, *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["methods"], told["rounds_per_day"], told["runs_per_day"]) == (None, None, 3)
    assert (told["secure"], told["min_group"]) == (True, 4)
    assert (told["precisions"], told["uploads"], told["experiment"]["rounds"]) == (["int8"], ["weights"], 2)
    before = Policy.load(deployed.sites[0])
    assert "did you mean fedpub" in refused(["site", "policy", "--folder", site, "--methods", "fedpup"], capsys)
    assert "unknown setting" in refused(["site", "policy", "--folder", site, "--lift", "all"], capsys)
    assert Policy.load(deployed.sites[0]) == before


def test_a_site_does_not_start_with_a_policy_that_cannot_be_read(deployed, capsys):
    (deployed.sites[0] / FILE).write_text('{"method": null}')
    words = ["site", "start", "--folder", str(deployed.sites[0]), "--no-wait"]
    assert main(words) == 2
    assert "unknown setting 'method': did you mean methods" in capsys.readouterr().err


def test_a_log_whose_end_was_changed_is_not_continued(deployed, capsys):
    entry = {"line": 1}
    (deployed.sites[0] / LOG).write_bytes(chained(1, entry, START)[0])
    words = ["site", "start", "--folder", str(deployed.sites[0]), "--no-wait"]
    assert main(words) == 2
    assert "fedpub audit verify" in capsys.readouterr().err
