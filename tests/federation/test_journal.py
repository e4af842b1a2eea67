"""The audit logs of both ends: what they hold, and that whatever is done to them later is found."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.federation import journal as journals
from fedpub.federation import wire_header
from fedpub.federation.countersigned import LONGEST, signed_text, unwrapped, wrapped
from fedpub.federation.journal import START, BrokenError, Journal, chained, lines
from fedpub.federation.journal_check import Checked, checked, compared
from fedpub.federation.log_summary import summarized
from fedpub.federation.logged import Keys, LoggedExchange, SiteLog, described
from fedpub.federation.wire import Envelope, decode, encode

RUN = "0123456789abcdef"
SECRET = 271828.182845


def sign(key: str) -> Callable[[bytes], bytes]:
    """Stands in for a signature, which only the real one's own tests need."""
    return lambda text: hashlib.sha256(key.encode() + text).digest()


def verify(key: str, signature: bytes, text: bytes) -> bool:
    return sign(key)(text) == signature


def message(kind: str, number: int = 0) -> bytes:
    weights = Message.of({"weights": {"conv1.weight": torch.full((1, 2, 3), SECRET)}})
    fields = {"run": RUN, "secret": SECRET} | ({"round": number} if kind == "round" else {})
    return encode(Envelope(kind, fields, weights if kind == "round" else Message()))


def answer(data: bytes) -> bytes:
    asked = decode(data)
    if asked.kind == "begin":
        return encode(Envelope("refused", {"reason": "not \x1b[2J today"}))
    return encode(Envelope(asked.kind, {"loss": SECRET}, asked.message))


@dataclass
class Federation:
    """A coordinator and sites in one process, each with its log."""

    folder: Path
    names: tuple[str, ...] = ("a",)
    keys: dict[str, str] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    change: Callable[[str, bytes], bytes] = lambda name, data: data
    dropped: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = self.keys or {name: f"key-{name}" for name in self.names}
        self.own = dict(self.keys)  # that the sites sign with
        self.restart()

    def restart(self) -> None:
        self.sites = {
            name: SiteLog(Journal(self.site(name)), name, sign(self.own[name])) if name in self.own else None
            for name in self.names
        }
        keys = Keys(self.keys.get, verify)
        journal = Journal(self.coordinator)
        self.exchange = LoggedExchange(
            self.carry, journal, self.names.__getitem__, keys, lambda *one: self.dropped.append(one)
        )

    @property
    def coordinator(self) -> Path:
        return self.folder / "coordinator" / "audit.jsonl"

    def site(self, name: str = "a") -> Path:
        return self.folder / name / "audit.jsonl"

    def carry(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        names = {client: self.names[client] for client in messages}
        return {
            client: self.change(names[client], self.sites[names[client]].answer(data, answer))
            for client, data in messages.items()
            if names[client] not in self.away
        }

    def ask(self, kind: str, number: int = 0) -> dict[int, bytes]:
        return self.exchange(dict.fromkeys(range(len(self.names)), message(kind, number)), 5.0)

    def play(self, rounds: int = 3) -> Federation:
        for kind in ("hello", "begin"):
            self.ask(kind)
        for number in range(1, rounds + 1):
            self.ask("round", number)
        self.ask("finish")
        return self


@pytest.fixture
def fed(tmp_path: Path) -> Federation:
    return Federation(tmp_path, ("a", "b")).play()


def entries(path: Path) -> list[dict]:
    return [line.entry for line in lines(path)]


def rewritten(path: Path, change: Callable[[list[dict]], list[dict]]) -> None:
    """What somebody with the file in their hands can do: write it again, with hashes that are right."""
    text, head = b"", START
    for number, entry in enumerate(change(entries(path)), start=1):
        plain = {name: value for name, value in entry.items() if name not in ("line", "previous")}
        line, head = chained(number, plain, head)
        text += line
    path.write_bytes(text)


# What is logged


def test_a_line_says_what_a_message_is_about_and_holds_no_data(fed):
    asked, answered = entries(fed.site())[4:6]
    assert (asked["direction"], asked["kind"], asked["run"], asked["round"]) == ("in", "round", RUN, 1)
    assert asked["tensors"] == [["weights/conv1.weight", "float32", [1, 2, 3]]]
    assert asked["bytes"] == len(message("round", 1))
    assert asked["digest"] == hashlib.sha256(message("round", 1)).hexdigest()
    assert (answered["direction"], answered["question"]) == ("out", asked["digest"])
    assert answered["digest"] == hashlib.sha256(answer(message("round", 1))).hexdigest()
    known = entries(fed.coordinator)
    assert [(one["direction"], one["site"], one["key"]) for one in known[:2]] == [
        ("key", "a", "key-a"),
        ("key", "b", "key-b"),
    ]
    assert [(one["direction"], one["site"]) for one in known[2:6]] == [
        ("out", "a"),
        ("out", "b"),
        ("in", "a"),
        ("in", "b"),
    ]
    for path in (fed.coordinator, fed.site("a"), fed.site("b")):
        text = path.read_text()
        assert "271828" not in text
        assert "secret" not in text
        assert "loss" not in text


def test_a_refusal_is_logged_with_its_reason_and_can_be_shown(fed):
    refusal = entries(fed.site())[3]
    assert (refusal["kind"], refusal["reason"]) == ("refused", r"not \x1b[2J today")


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda noise: message("round", 1)[:-20] + noise)))
@example(b"")
def test_what_cannot_be_read_is_logged_by_its_digest(data):
    found = described(data)
    assert (found.kind, found.bytes, found.digest) == ("unreadable", len(data), hashlib.sha256(data).hexdigest())
    assert (found.run, found.round, found.tensors) == (None, None, [])


def test_a_kind_that_is_none_is_not_written_down():
    assert described(encode(Envelope("my data: 1 2 3", {"run": "x" * 16, "round": -1}))).kind == "unreadable"
    found = described(encode(Envelope("round", {"run": "my data", "round": 10**40})))
    assert (found.run, found.round) == (None, None)


def of_tensors(count: int, shape: list[int], name: str = "w") -> bytes:
    """A message with a right checksum whose header names so many tensors, and has no payload."""
    tensors = {f"{name}{number}": ["float64", shape, "exact"] for number in range(count)}
    text = wire_header.spell({"kind": "hello", "fields": {}, "message": {"w": tensors}})
    start = wire_header.MAGIC + bytes([wire_header.VERSION]) + len(text).to_bytes(4, "little") + text
    return start + hashlib.sha256(start).digest()[: wire_header.CHECKSUM]


@pytest.mark.parametrize(
    ("data", "listed", "unlisted"),
    [
        (of_tensors(500, [2]), 500, None),
        (of_tensors(501, [2]), 0, 501),
        (of_tensors(50, [0] * 16, "w" * 190), 50, None),
        (of_tensors(100, [0] * 16, "w" * 190), 0, 100),
        (of_tensors(10, [0], "\U00010348" * 190), 0, 10),  # twelve characters each where only ASCII is written
        (of_tensors(9_000, [1] * 16, "w" * 190), 0, 9_000),
    ],
)
def test_a_line_is_short_whatever_a_message_lists(data, listed, unlisted, tmp_path):
    found = described(data)
    assert (found.kind, len(found.tensors)) == ("hello", listed)
    head = data[wire_header.BEFORE_HEADER : -wire_header.CHECKSUM]
    assert found.unlisted == (unlisted and {"tensors": unlisted, "header": hashlib.sha256(head).hexdigest()})
    exchange = LoggedExchange(lambda *_: {0: data}, Journal(tmp_path / "log"), lambda _: "a")
    exchange({0: message("hello")}, 1.0)
    assert (tmp_path / "log").stat().st_size < 2**15
    assert checked(tmp_path / "log", verify).defect is None


def test_tensors_that_could_not_be_decoded_are_not_listed():
    assert described(of_tensors(10, [9_999_999_999] * 16)).kind == "unreadable"


def test_a_message_is_read_once(monkeypatch):
    """By what is hashed: that is what it costs."""
    hashed, original = [], hashlib.sha256

    class Counting:
        def __init__(self, data=b""):
            self._own = original()
            self.update(data)

        def update(self, data):
            hashed.append(len(data))
            self._own.update(data)

        def digest(self):
            return self._own.digest()

        def hexdigest(self):
            return self._own.hexdigest()

    data = message("round", 1)
    monkeypatch.setattr(wire_header.hashlib, "sha256", Counting)
    assert described(data).kind == "round"
    assert sum(hashed) == len(data)


def test_a_line_is_there_before_its_message_leaves(tmp_path):
    seen: list[tuple[str, str]] = []

    def carry(messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        seen.append(("coordinator", entries(tmp_path / "c")[-1]["kind"]))
        return {}

    def signing(text: bytes) -> bytes:
        last = list(lines(tmp_path / "s"))[-1]
        seen.append(("site", last.entry["direction"]))
        assert f"head {last.hash}\n".encode() in text
        return b"signed"

    LoggedExchange(carry, Journal(tmp_path / "c"), lambda _: "a")({0: message("hello")}, 1.0)
    SiteLog(Journal(tmp_path / "s"), "a", signing).answer(message("hello"), answer)
    assert seen == [("coordinator", "hello"), ("site", "out")]


def test_without_keys_answers_come_as_they_are_and_are_logged(tmp_path):
    """In a federation of Flower's own, where a node says who it is."""
    site = SiteLog(Journal(tmp_path / "s"), "a")
    plain = LoggedExchange(
        lambda messages, _: {client: site.answer(data, answer) for client, data in messages.items()},
        Journal(tmp_path / "c"),
        lambda _: "a",
    )
    assert plain({0: message("round", 1)}, 1.0) == {0: answer(message("round", 1))}
    found = checked(tmp_path / "c", verify)
    assert (found.answers, found.countersigned, found.defect) == (1, 0, None)
    both = compared(tmp_path / "c", tmp_path / "s")
    assert (both.messages, both.defect) == (1, None)


def test_a_node_that_has_not_said_who_it_is_may_be_the_site(tmp_path):
    """The first messages of `flwr run` are of nodes; another node's answer is not the site's."""
    sites = [SiteLog(Journal(tmp_path / name), name) for name in ("a", "b")]
    exchange = LoggedExchange(
        lambda messages, _: {
            n: sites[n].answer(data, lambda _, n=n: encode(Envelope("hello", {"site": n})))
            for n, data in messages.items()
        },
        Journal(tmp_path / "c"),
        lambda number: f"node {number}",
    )
    exchange(dict.fromkeys((0, 1), message("hello")), 1.0)
    for name in ("a", "b"):
        both = compared(tmp_path / "c", tmp_path / name)
        assert (both.defect, both.messages, both.late) == (None, 1, 0)


# The file


def test_a_line_cut_short_is_cut_off_and_the_chain_goes_on_from_the_one_before(fed):
    whole = fed.site().read_bytes()
    for cut in (1, 5, 300):
        torn = whole[:-cut]
        fed.site().write_bytes(torn)
        found = checked(fed.site(), verify)
        assert (found.torn, found.defect) == (True, None)
        fed.restart()
        assert fed.site().read_bytes() == torn[: torn.rfind(b"\n") + 1]
        fed.sites["a"].answer(message("hello"), answer)
        assert checked(fed.site(), verify).defect is None


def test_a_full_disk_keeps_the_message_here_and_the_log_whole(fed, monkeypatch):
    before, write = fed.site().read_bytes(), os.write

    cut = iter([100])

    def once(file: int, text: bytes) -> int:
        for size in cut:
            return write(file, text[:size])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "write", once)
        with pytest.raises(FedpubError, match=r"cannot write .*audit.jsonl \(No space left on device\)"):
            fed.sites["a"].answer(message("hello"), answer)
    assert fed.site().read_bytes() == before
    fed.sites["a"].answer(message("hello"), answer)
    assert checked(fed.site(), verify).defect is None


def test_restarts_and_several_writers_continue_one_chain(fed):
    other = SiteLog(Journal(fed.site()), "a", sign("key-a"))
    for _ in range(2):
        other.answer(message("hello"), answer)
        fed.sites["a"].answer(message("hello"), answer)
    fed.restart()
    fed.ask("finish")
    assert checked(fed.site(), verify).defect is None
    assert compared(fed.coordinator, fed.site()).defect is None


@pytest.mark.parametrize("size", [10, 2**16 - 400, 2**16, 3 * 2**16])
def test_a_long_line_is_found_again(size, tmp_path):
    entry = described(message("hello")).entry("site", "x" * size, "in")
    path = tmp_path / "audit.jsonl"
    heads = [Journal(path).write([entry]) for _ in range(3)]
    assert [line.hash for line in lines(path)] == heads


def test_nothing_is_added_to_a_log_whose_end_was_changed(fed):
    fed.site().write_bytes(fed.site().read_bytes().replace(b'"kind":"finish"', b'"kind":"finisH"'))
    with pytest.raises(FedpubError, match=r"the last line of .* was changed .*fedpub audit verify"):
        fed.restart()


def test_a_line_that_is_no_line_of_a_log_is_named(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(chained(1, {"time": 1}, START)[0])
    with pytest.raises(BrokenError, match="line 1 was changed: it is no line of an audit log"):
        list(lines(path))


# What is found in one log


@cache
def logs() -> tuple[bytes, bytes]:
    """The coordinator's log of one site, and that site's."""
    fed = Federation(Path(tempfile.mkdtemp(prefix="fedpub-journal-"))).play()
    return fed.coordinator.read_bytes(), fed.site().read_bytes()


def found(text: bytes, folder: Path) -> Checked:
    path = folder / "changed.jsonl"
    path.write_bytes(text)
    return checked(path, verify)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def first_named(defect: str | None) -> int:
    assert defect is not None
    return int(defect.split()[1])


WHICH = st.integers(0, 1)


@given(st.data(), WHICH)
@settings(max_examples=150, deadline=None)
def test_any_change_is_found(shared, data, which):
    whole = logs()[which]
    at = data.draw(st.integers(0, len(whole) - 2))  # without the last newline the last line is one that was cut short
    text = bytearray(whole)
    text[at] ^= data.draw(st.integers(1, 255))
    assert first_named(found(bytes(text), shared).defect) == whole[:at].count(b"\n") + 1


@given(st.data(), WHICH)
@settings(max_examples=60, deadline=None)
def test_any_missing_repeated_or_moved_line_is_found(shared, data, which):
    whole = logs()[which].splitlines(keepends=True)
    at = data.draw(st.integers(0, len(whole) - 2))
    other = data.draw(st.integers(at + 1, len(whole) - 1))
    moved = [*whole]
    moved[at], moved[other] = whole[other], whole[at]
    assert first_named(found(b"".join(moved), shared).defect) == at + 1
    assert first_named(found(b"".join(whole[:at] + whole[other:]), shared).defect) == at + 1
    repeated = whole[: other + 1] + whole[at:]
    assert first_named(found(b"".join(repeated), shared).defect) == other + 2


def test_the_first_bad_line_is_named_with_what_is_wrong(fed):
    whole = fed.coordinator.read_bytes().splitlines(keepends=True)

    def said(text: list[bytes]) -> str | None:
        fed.coordinator.write_bytes(b"".join(text))
        return checked(fed.coordinator, verify).defect

    assert said(whole) is None
    assert said([*whole[:3], *whole[4:]]) == (
        "line 4 was written as line 5: lines are missing before it, or out of order"
    )
    assert said([*whole[:3], whole[3].replace(b"hello", b"hallo"), *whole[4:]]) == (
        "line 4 was changed: its hash is not that of its content"
    )
    assert said([*whole[:3], chained(4, {**json.loads(whole[3]), "previous": START}, START)[0], *whole[4:]]) == (
        "line 4 does not follow line 3: one of the two was replaced"
    )
    site = fed.site().read_bytes().splitlines(keepends=True)
    mixed, head = whole[:3], json.loads(whole[2])["hash"]
    plain = {name: one for name, one in json.loads(site[3]).items() if name not in ("line", "previous", "hash")}
    assert said([*mixed, chained(4, plain, head)[0]]) == "line 4 is of the other end's log"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "0" * 64}, "has a countersignature of a that is wrong"),
        ({"question": "0" * 64}, "has a countersignature of a that is wrong"),
        ({"run": "f" * 16}, "has a countersignature of a that is wrong"),
        ({"head": "0" * 64}, "has a countersignature of a that is wrong"),
        ({"signature": "00"}, "has a countersignature of a that is wrong"),
        ({"signature": None}, "has a countersignature of a that is wrong"),
        ({"key": "key-b"}, "has a countersignature of a that is wrong"),
    ],
)
def test_an_answer_that_is_written_again_is_not_what_the_site_has_signed(fed, change, words):
    at = next(n for n, one in enumerate(entries(fed.coordinator)) if one["kind"] == "round" and "head" in one)
    rewritten(fed.coordinator, lambda old: [*old[:at], old[at] | change, *old[at + 1 :]])
    assert checked(fed.coordinator, verify).defect == f"line {at + 1} {words}"


def test_an_answer_without_its_countersignature_is_named(fed):
    signed = ("head", "key", "signature")
    rewritten(fed.coordinator, lambda old: [*old[:-1], {k: v for k, v in old[-1].items() if k not in signed}])
    count = len(entries(fed.coordinator))
    assert checked(fed.coordinator, verify).defect == f"line {count} is an answer of b without its countersignature"


SIGNED = ("head", "key", "signature")


def forged(one: dict) -> dict:
    """Another answer, with a countersignature of a key that the coordinator has made."""
    one = one | {"digest": "f" * 64, "key": "own"}
    return one | {"signature": sign("own")(signed_text(RUN, one["question"], one["digest"], one["head"])).hex()}


def unsigned(one: dict, **more: str) -> dict:
    return {name: value for name, value in one.items() if name not in SIGNED} | {"digest": "f" * 64} | more


def is_answer(one: dict) -> bool:
    return one["direction"] == "in" and one["site"] == "a"


def test_an_answer_that_the_coordinator_signs_itself_is_named(fed):
    """With a key that no line has admitted; with such a line, the site's own key is what shows it."""
    honest = entries(fed.coordinator)
    at = next(n for n, one in enumerate(honest) if one["kind"] == "round" and is_answer(one))
    rewritten(fed.coordinator, lambda old: [*old[:at], forged(old[at]), *old[at + 1 :]])
    said = f"line {at + 1} is countersigned with a key that a did not have, by this log"
    assert checked(fed.coordinator, verify).defect == said
    lines_ = [honest[0] | {"key": key} for key in ("own", "key-a")]
    rewritten(
        fed.coordinator, lambda old: [*old[: at - 2], lines_[0], *old[at - 2 : at + 1], lines_[1], *old[at + 1 :]]
    )
    assert checked(fed.coordinator, verify).keys["a"] == ["key-a", "own"], "alone it looks right"
    given = {"a": {"key-a"}, "b": {"key-b"}}
    said = f"line {at + 2} is countersigned with a key that a did not have, by the keys given"
    assert checked(fed.coordinator, verify, given).defect == said
    assert compared(fed.coordinator, fed.site()).defect, "the site's log shows it, too"


def test_an_answer_by_a_key_that_was_replaced_is_named(tmp_path):
    """Before its message left."""
    fed = Federation(tmp_path).play(1)
    last = next(one for one in reversed(entries(fed.coordinator)) if one["direction"] == "in")
    new = entries(fed.coordinator)[0] | {"key": "new-key"}
    rewritten(fed.coordinator, lambda old: [*old[:-2], new, *old[-2:]])
    assert last["key"] == "key-a"
    assert "with a key that a did not have, by this log" in str(checked(fed.coordinator, verify).defect)


@pytest.mark.parametrize("which", [lambda one: True, lambda one: one["kind"] == "hello", lambda one: one["round"] == 2])
def test_an_answer_that_lost_its_countersignature_is_named(which, fed):
    """All of a run, those before the first signed one, and one in between."""
    rewritten(fed.coordinator, lambda old: [unsigned(one) if is_answer(one) and which(one) else one for one in old])
    assert "is an answer of a without its countersignature" in str(checked(fed.coordinator, verify).defect)
    as_flower = {"over": "flwr run"}
    rewritten(
        fed.coordinator,
        lambda old: [unsigned(one, **as_flower) if is_answer(one) and which(one) else one for one in old],
    )
    assert "is of flwr run or not, unlike earlier lines of its run" in str(checked(fed.coordinator, verify).defect)


def test_with_the_keys_of_the_sites_every_answer_is_signed_by_one_of_them(fed):
    given = {"a": {"key-a", "older"}, "b": {"key-b"}}
    assert checked(fed.coordinator, verify, given).defect is None
    said = str(checked(fed.coordinator, verify, {"a": {"key-a"}}).defect)
    assert "a key that b did not have, by the keys given" in said
    rewritten(
        fed.coordinator,
        lambda old: [unsigned(one, over="flwr run") for one in old if one["direction"] != "key"],
    )
    plain = checked(fed.coordinator, verify)
    assert (plain.defect, plain.over_flower, plain.countersigned) == (None, 12, 0), "alone it looks like flwr run"
    assert "without its countersignature" in str(checked(fed.coordinator, verify, given).defect)


def test_the_keys_that_have_signed_are_listed(tmp_path):
    """A site's key is rotated: the log needs no admission list, and says which keys there were."""
    fed = Federation(tmp_path, ("a",)).play(1)
    fed.own["a"] = fed.keys["a"] = "new-key"
    fed.restart()
    fed.play(1)
    known = checked(fed.coordinator, verify)
    assert (known.keys, known.defect) == ({"a": ["key-a", "new-key"]}, None)


# What is found against the other end


@given(st.data(), WHICH)
@settings(max_examples=60, deadline=None)
def test_any_cut_at_the_end_is_found_against_the_other_end(shared, data, which):
    whole = logs()[which].splitlines(keepends=True)
    kept = data.draw(st.integers(0, len(whole) - 1))
    paths = shared / "coordinator.jsonl", shared / "site.jsonl"
    for path, text in zip(paths, logs(), strict=True):
        path.write_bytes(text)
    assert compared(*paths).defect is None
    paths[which].write_bytes(b"".join(whole[:kept]))
    assert checked(paths[which], verify).defect is None, "alone it looks whole"
    assert compared(*paths).defect is not None


@pytest.mark.parametrize("at", range(3, 13))
def test_a_site_that_writes_its_log_again_is_found(at, tmp_path):
    fed = Federation(tmp_path).play()
    rewritten(fed.site(), lambda old: [*old[: at - 1], *old[at:]])
    assert checked(fed.site(), verify).defect is None
    assert "the site's log was cut off or written again" in str(compared(fed.coordinator, fed.site()).defect)


@pytest.mark.parametrize("lines_", [(6,), (6, 7), (7,)])
def test_a_coordinator_that_writes_its_log_again_is_found(lines_, tmp_path):
    """It leaves out the message of a round, its answer, or both."""
    fed = Federation(tmp_path).play()
    assert [entries(fed.coordinator)[n - 1]["kind"] for n in (6, 7)] == ["round", "round"]
    rewritten(fed.coordinator, lambda old: [one for n, one in enumerate(old, 1) if n not in lines_])
    assert checked(fed.coordinator, verify).defect is None
    said = compared(fed.coordinator, fed.site()).defect
    if lines_ == (7,):
        assert said.startswith("the coordinator's log does not say what became of the message in line 6")
    else:
        assert said.startswith("the coordinator's log lacks the message in line 5 of the site's log")


@pytest.mark.parametrize("rounds", [(2, 3), (1, 2, 3)])
def test_a_coordinator_that_leaves_a_site_out_of_rounds_is_found(rounds, fed):
    """The other site was sent the same bytes, as FedAvg does."""
    rewritten(fed.coordinator, lambda old: [one for one in old if one["site"] != "a" or one["round"] not in rounds])
    assert checked(fed.coordinator, verify).defect is None
    said = str(compared(fed.coordinator, fed.site("a")).defect)
    assert said.startswith(f"the coordinator's log lacks the message in line {3 + 2 * rounds[0]} of the site's log")
    assert compared(fed.coordinator, fed.site("b")).defect is None


def test_answers_in_runs_that_the_coordinator_has_nothing_of_are_counted(fed):
    fed.sites["a"].answer(encode(Envelope("round", {"run": "f" * 16, "round": 1})), answer)
    both = compared(fed.coordinator, fed.site("a"))
    assert (both.defect, both.elsewhere, both.late) == (None, 1, 0)


def test_another_answer_at_the_site_than_at_the_coordinator_is_found(tmp_path):
    """Where nothing is countersigned, too."""
    for name in ("s", "c"):
        (tmp_path / name).mkdir()
    site = SiteLog(Journal(tmp_path / "s" / "log"), "a")
    exchange = LoggedExchange(
        lambda messages, _: {0: site.answer(messages[0], answer) and message("hello", 1)},
        Journal(tmp_path / "c" / "log"),
        lambda _: "a",
    )
    exchange({0: message("finish")}, 1.0)
    said = compared(tmp_path / "c" / "log", tmp_path / "s" / "log").defect
    assert said == "the site's log lacks the answer in line 2 of the coordinator's log"


def test_logs_of_different_federations_are_told_apart(tmp_path):
    fed, other = Federation(tmp_path / "1").play(), Federation(tmp_path / "2", ("b",))
    other.sites["b"].answer(encode(Envelope("hello", {"run": "f" * 16})), answer)
    assert "no run in common" in str(compared(fed.coordinator, other.site("b")).defect)


def test_an_answer_that_came_too_late_is_no_defect(tmp_path):
    fed = Federation(tmp_path).play(1)
    carried = fed.exchange._exchange
    fed.exchange._exchange = lambda messages, deadline: carried(messages, deadline) and {}
    fed.ask("round", 2)
    fed.exchange._exchange = carried
    fed.ask("finish")
    assert entries(fed.coordinator)[-3]["kind"] == "silent"
    both = compared(fed.coordinator, fed.site())
    assert (both.defect, both.late, both.messages) == (None, 1, 4)


def test_a_repeated_message_gets_the_same_answer_and_another_signature_around_it(tmp_path):
    fed = Federation(tmp_path).play(1)
    first, again = (fed.sites["a"].answer(message("round", 1), answer) for _ in range(2))
    assert first != again
    assert unwrapped(first).answer == unwrapped(again).answer == answer(message("round", 1))
    fed.ask("round", 1)
    assert compared(fed.coordinator, fed.site()).defect is None


# Answers that are not used


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: unwrapped(data).answer, "the answer is not countersigned"),
        (lambda data: b"", "the answer is not countersigned"),
        (lambda data: data[:20], "cut short"),
        (lambda data: data[:4] + b"\x02" + data[5:], "has format 2"),
        (lambda data: data[:37] + b"\x00" + data[38:], "cut short or too long"),
        (lambda data: data[:37] + b"\xff" + data[38:], "cut short or too long"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "not one of the site's key over this answer"),
        (lambda data: data[:8] + bytes([data[8] ^ 1]) + data[9:], "not one of the site's key over this answer"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "not one of the site's key over this answer"),
    ],
)
def test_an_answer_with_a_wrong_countersignature_is_dropped_and_harms_no_other(change, words, tmp_path):
    fed = Federation(tmp_path, ("a", "b"), change=lambda name, data: change(data) if name == "a" else data)
    assert fed.ask("round", 1) == {1: answer(message("round", 1))}
    ((client, number, reason),) = fed.dropped
    assert (client, number) == (0, 1)
    assert words in reason
    kept = entries(fed.coordinator)[-2]
    assert (kept["kind"], kept["reason"]) == ("dropped", reason)
    assert checked(fed.coordinator, verify).defect is None


def test_an_answer_to_another_message_is_dropped(tmp_path):
    """The last round's answer, with the signature that was right then."""
    held: list[bytes] = []

    def replayed(name: str, data: bytes) -> bytes:
        held.append(data)
        return held[0]

    fed = Federation(tmp_path, change=replayed)
    assert fed.ask("round", 1)
    assert fed.ask("round", 2) == {}


def test_a_key_that_is_rotated_in_the_meantime_is_as_good_as_the_new_one(tmp_path):
    fed = Federation(tmp_path)

    def rotating(name: str, data: bytes) -> bytes:
        fed.keys["a"] = "new-key"
        return data

    fed.change = rotating
    assert fed.ask("round", 1), "signed by the key that was valid when the message left"
    assert fed.ask("round", 2) == {}, "and no longer when the next one does"
    found = checked(fed.coordinator, verify)
    assert (found.defect, found.countersigned) == (None, 1)
    named = [(one["direction"], one.get("key")) for one in entries(fed.coordinator)[:4]]
    assert named == [("key", "key-a"), ("out", None), ("key", "new-key"), ("in", "key-a")]


def test_a_site_that_is_no_longer_admitted_has_no_key(tmp_path):
    fed = Federation(tmp_path)
    fed.keys.clear()
    assert fed.ask("round", 1) == {}


@given(st.binary(max_size=100), st.binary(min_size=1, max_size=LONGEST), st.binary(min_size=32, max_size=32))
def test_what_is_put_around_an_answer_comes_off_again(data, signature, head):
    got = unwrapped(wrapped(data, head.hex(), signature))
    assert (got.answer, got.signature, got.head) == (data, signature, head.hex())


@given(st.sampled_from([b"FPCS\x01", b"FPCS\x02"]), st.binary(max_size=60) | st.binary(min_size=33, max_size=60))
def test_whatever_is_around_an_answer_is_taken_off_or_refused(start, noise):
    try:
        got = unwrapped(start + noise)
    except FedpubError:
        return
    assert wrapped(got.answer, got.head, got.signature) == start + noise


@pytest.mark.parametrize("signature", [b"", b"x" * (LONGEST + 1)])
def test_a_signature_has_a_size(signature):
    with pytest.raises(FedpubError, match="cannot be sent"):
        wrapped(b"", "0" * 64, signature)


# The summary


def test_a_summary_counts_by_run_and_kind(fed):
    one = summarized(fed.site())
    assert (one.lines, one.defect) == (12, None)
    by_kind = {found.kind: found for found in one.messages}
    assert (by_kind["round"].received, by_kind["round"].sent) == (3, 3)
    assert by_kind["round"].bytes_in == sum(len(message("round", number)) for number in (1, 2, 3))
    assert by_kind["round"].bytes_out == sum(len(answer(message("round", number))) for number in (1, 2, 3))
    assert by_kind["round"].first < by_kind["round"].last <= by_kind["finish"].last
    assert [(found.reason, found.times) for found in one.refusals] == [(r"not \x1b[2J today", 1)]
    assert {found.run for found in one.messages} == {RUN}
    text = fed.site().read_bytes()
    fed.site().write_bytes(text.replace(b'"kind":"finish"', b'"kind":"finisH"'))
    assert summarized(fed.site()).defect == "line 11 was changed: its hash is not that of its content"
