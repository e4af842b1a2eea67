"""The mailboxes behind the gate, and sites as nodes: real TLS and keys, in one process where it will do."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import shutil
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node as NodeNumber
from flwr.supercore.inflatable.inflatable_object import get_object_id
from flwr.supernode.fleet_http_client import FleetHttpClient
from hypothesis import given
from hypothesis import strategies as st
from test_deployment import wait_for
from test_federation import assert_same_rows
from test_gate import signed

from fedpub.bench.watched import children
from fedpub.cli import main
from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.countersigned import unwrapped
from fedpub.federation.requests import Terms
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.flower import coordinator as coordinating
from fedpub.flower import gate as gates
from fedpub.flower import link as links
from fedpub.flower.connection import HttpError
from fedpub.flower.coordinator import Running, Watchdog
from fedpub.flower.exchange import (
    BYTES,
    KIND,
    RECORD,
    FlowerExchange,
    IncompleteError,
    Present,
    packed,
    payload_of,
)
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.gate import Gate
from fedpub.flower.keys import admit, make_authority, make_certificate, make_site_key, private_key, read_admitted
from fedpub.flower.link import Link
from fedpub.flower.lobby import Limits
from fedpub.flower.local import lay_out, start_site
from fedpub.flower.node import ConnectionTroubleError, Node, _Line
from fedpub.flower.preflight import context_of
from fedpub.flower.processes import free_port, start, stop
from fedpub.flower.site import answered, run_site
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]
LARGEST = 2**25
SITES = ("a", "b")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coordinator")
    make_authority(folder)
    make_certificate(folder, [])
    for site in SITES:
        admit(folder / "admitted.txt", site, make_site_key(folder / f"{site}.key"))
    make_site_key(folder / "stranger.key")
    return folder


class Mailboxes:
    """A gate with its mailboxes in this process, as `Post` has them in another."""

    def __init__(self, folder: Path, port: int, **limits) -> None:
        self.answers: dict[str, bytes | None] = {}
        self.link = Link(self.answers.__setitem__, LARGEST, folder)
        self.gate = Gate("127.0.0.1", port, self.link.serve, folder, Limits(**limits))
        self._numbers = itertools.count()

    def done(self, what):
        """What the thread of the gate returns: all mailboxes belong to it."""
        found, ended = [], threading.Event()
        self.gate.call(lambda: (found.append(what()), ended.set()))
        assert ended.wait(60)
        return found[0]

    def present(self) -> dict[int, Present]:
        admitted = dict.fromkeys(self.gate.admission.now().values())
        there = self.done(lambda: self.link.present(admitted))
        return {client: Present(there[site]) for client, site in enumerate(SITES) if site in there}

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        number = str(next(self._numbers))
        return number if self.done(lambda: self.link.send(node, number, data)) else None

    def replies(self, numbers) -> dict[str, bytes | None]:
        return {number: self.answers.pop(number) for number in numbers if number in self.answers}

    def forget(self) -> None:
        self.done(self.link.forget)

    def wait(self, seconds: float) -> None:
        time.sleep(0.01)


@dataclass
class Federation:
    """A gate, and nodes that are made as they are asked for."""

    folder: Path
    post: Mailboxes
    nodes: list[Node] = field(default_factory=list)

    @property
    def gate(self) -> Gate:
        return self.post.gate

    def node(self, site: str) -> Node:
        key = private_key(self.folder / f"{site}.key")
        made = Node(f"127.0.0.1:{self.gate.port}", context_of(self.folder / "ca.pem"), key)
        self.nodes.append(made.__enter__())
        return made

    def exchange(self, messages: dict[int, bytes], deadline: float = 60.0) -> dict[int, bytes]:
        return FlowerExchange(self.post, self.post.present, again=math.inf)(messages, deadline)

    def later(self, messages: dict[int, bytes], deadline: float = 60.0) -> Later:
        return Later(lambda: self.exchange(messages, deadline))


class Later:
    """What a function returns in a thread of its own."""

    def __init__(self, what) -> None:
        self._thread = threading.Thread(target=self._run, args=(what,), daemon=True)
        self._thread.start()

    def _run(self, what) -> None:
        try:
            self._found = what()
        except BaseException as error:
            self._found = error

    def result(self):
        self._thread.join(120)
        assert not self._thread.is_alive()
        if isinstance(self._found, BaseException):
            raise self._found
        return self._found


@contextmanager
def opened(folder: Path, port: int = 0, **limits) -> Iterator[Federation]:
    post = Mailboxes(folder, port, **limits)
    with post.gate:
        made = Federation(folder, post)
        try:
            yield made
        finally:
            for node in made.nodes:
                node.__exit__()


@pytest.fixture(autouse=True)
def quick_poll(monkeypatch) -> None:
    """A site that has nothing to do is told so at once."""
    monkeypatch.setattr("fedpub.flower.link.LONG_POLL", 0.3)


@pytest.fixture
def fed(made: Path, tmp_path: Path) -> Iterator[Federation]:
    with opened(Path(shutil.copytree(made, tmp_path / "coordinator"))) as federation:
        yield federation


@pytest.fixture
def in_objects(monkeypatch) -> None:
    """As if every message were a large one."""
    for where in ("link", "node"):
        monkeypatch.setattr(f"fedpub.flower.{where}.WHOLE", -1)


def taken(node: Node) -> tuple[object, bytes]:
    """The next message, which is waited for."""
    found = []
    wait_for(lambda: found.append(node.next_message()) or found[-1])
    return found[-1]


# Messages


def test_messages_go_to_their_site_and_come_back(fed):
    a, b = fed.node("a"), fed.node("b")
    large = os.urandom(2**20) * 12  # three objects of Flower's
    assert a.next_message() is None
    answers = fed.later({0: large, 1: b"to b"})
    for node, expected in ((a, large), (b, b"to b")):
        received, data = taken(node)
        assert data == expected
        node.reply(received, data + b"!")
    assert answers.result() == {0: large + b"!", 1: b"to b!"}
    boxes = fed.post.link._boxes.values()
    assert [(box.question, box.answer) for box in boxes] == [(None, None)] * 2, "nothing stays"


def test_a_node_that_leaves_after_its_answer_has_answered(fed):
    a = fed.node("a")
    answers = fed.later({0: b"x"})
    received, _ = taken(a)
    a.reply(received, b"y")
    fed.nodes.remove(a)
    a.__exit__()
    assert answers.result() == {0: b"y"}


def test_a_site_that_was_killed_gets_its_message_again_at_once(fed):
    answers = fed.later({0: b"x"})
    taken(fed.node("a"))  # and nothing more is heard of it
    again = fed.node("a")
    received, data = taken(again)
    again.reply(received, b"y")
    assert (data, answers.result()) == (b"x", {0: b"y"})


def test_a_site_outlives_its_coordinator(made):
    with opened(made) as first:
        node, port = first.node("a"), first.gate.port
        assert node.next_message() is None
        first.nodes.clear()
    with pytest.raises(ConnectionTroubleError, match="the connection failed"):
        node.next_message()
    with opened(made, port) as second:
        second.nodes.append(node)
        answers = second.later({0: b"x"})
        received, _ = taken(node)
        node.reply(received, b"y")
        assert answers.result() == {0: b"y"}


def test_a_message_is_handed_out_as_soon_as_it_is_there(fed, monkeypatch):
    monkeypatch.setattr("fedpub.flower.link.LONG_POLL", 100.0)
    a = fed.node("a")
    waiting = Later(lambda: taken(a))
    wait_for(lambda: fed.post.present())
    answers = fed.later({0: b"x"})
    received, data = waiting.result()
    a.reply(received, b"y")
    assert (data, answers.result()) == (b"x", {0: b"y"})


def test_a_message_is_handed_out_until_it_is_answered(fed):
    """Whoever asks has none in hand: its process died, or the answer was lost on its way."""
    a = fed.node("a")
    answers = fed.later({0: b"x"})
    assert [taken(a)[1] for _ in range(3)] == [b"x"] * 3
    a.reply(taken(a)[0], b"y")
    assert answers.result() == {0: b"y"}
    assert a.next_message() is None


def test_a_node_of_another_time_is_not_known(fed):
    a = fed.node("a")
    assert a.next_message() is None
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        a._fleet.PullMessages(PullMessagesRequest(node=NodeNumber(node_id=a._number.node_id + 1)))


def test_an_answer_to_an_earlier_message_is_not_taken(fed):
    a = fed.node("a")
    late = fed.later({0: b"x"}, deadline=3.0)
    received, _ = taken(a)
    assert late.result() == {}
    answers = fed.later({0: b"z"})
    again, data = taken(a)
    a.reply(received, b"too late")
    a.reply(again, b"y")
    assert (data, answers.result()) == (b"z", {0: b"y"})


def test_an_answer_that_is_too_large_is_refused_and_forgotten(fed, either_way, monkeypatch):
    monkeypatch.setattr(fed.post.link, "_largest", 100_000)
    a = fed.node("a")
    answers = fed.later({0: b"x"})
    received, _ = taken(a)
    with pytest.raises(ConnectionTroubleError, match="413: an answer may have 100000 bytes"):
        a.reply(received, b"y" * 200_000)
    a.reply(taken(a)[0], b"y")
    assert answers.result() == {0: b"y"}


def test_a_site_pushes_nothing_that_was_not_asked_for(fed, in_objects):
    """Neither without a question, nor more objects than it has named."""
    a, asked = fed.node("a"), b"x" * 1000
    answers = fed.later({0: asked})
    received, _ = taken(a)
    wanted, pushed = "f" * 64, a._fleet.PushObject
    about = {"node": a._number, "run_id": 1, "session_id": "s"}
    assert not pushed(PushObjectRequest(**about, object_id=wanted, object_content=b"x")).stored
    a.reply(received, b"y")
    assert answers.result() == {0: b"y"}
    assert not pushed(PushObjectRequest(**about, object_id=wanted, object_content=b"x")).stored
    tree = ObjectTree(object_id="0" * 64, children=[ObjectTree(object_id=f"{n:064x}") for n in range(1, 5000)])
    answers = fed.later({0: asked})
    received, _ = taken(a)
    reply = Message(packed(b"y"), reply_to=received.message)
    reply.metadata.__dict__["_message_id"] = "0" * 64
    pushes = PushMessagesRequest(node=a._number, message_object_trees=[tree])
    pushes.messages_list.append(message_to_proto(remove_content_from_message(reply)))
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        a._fleet.PushMessages(pushes)
    for tree in (  # refused before a look at each: millions of them fit into a request
        ObjectTree(object_id="0" * 64, children=[ObjectTree()] * 100_000),
        ObjectTree(object_id="0" * 64, children=[ObjectTree(object_id="x")]),
    ):
        del pushes.message_object_trees[:]
        pushes.message_object_trees.append(tree)
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            a._fleet.PushMessages(pushes)
    del pushes.message_object_trees[:]
    pushes.message_object_trees.append(ObjectTree(object_id="0" * 64))
    assert a._fleet.PushMessages(pushes).objects_to_push == ["0" * 64]
    assert not pushed(PushObjectRequest(**about, object_id=wanted, object_content=b"x")).stored
    a.reply(received, b"y")
    assert answers.result() == {0: b"y"}


def test_a_large_answer_waits_on_disk(fed, monkeypatch):
    monkeypatch.setattr("fedpub.flower.link.SMALL", 1000)
    a = fed.node("a")
    answers = fed.later({0: b"x"})
    received, _ = taken(a)
    on_disk, push = [], a._fleet.PushObject

    def look(request) -> object:
        stored = push(request)
        on_disk.extend(box.answer._file._rolled for box in fed.post.link._boxes.values() if box.answer)
        return stored

    monkeypatch.setattr(a._fleet, "PushObject", look)
    large = os.urandom(2**20) * 6
    a.reply(received, large)
    assert answers.result() == {0: large}
    assert any(on_disk)


def test_a_new_key_of_a_site_counts_from_its_next_start(fed):
    lines = (fed.folder / "admitted.txt").read_text().splitlines()
    (fed.folder / "a.key").unlink()
    new = make_site_key(fed.folder / "a.key").rsplit(" ", 1)[0]
    (fed.folder / "admitted.txt").write_text("\n".join([f"a {new}", *lines[1:]]) + "\n")
    assert fed.node("a").next_message() is None
    assert fed.post.present().keys() == {0}
    (fed.folder / "admitted.txt").write_text(lines[1] + "\n")
    assert not fed.post.present(), "who is not on the list any more gets nothing"


def test_a_key_that_is_not_admitted_is_no_node(fed):
    with pytest.raises(ConnectionTroubleError, match=r"401: the key SHA256:.* is not admitted"):
        fed.node("stranger").next_message()


# Whom the others wait for


class Mail:
    """Carries messages to made-up sites, which answer after so many seconds, or never."""

    def __init__(self, seconds: dict[int, float | None]) -> None:
        self.seconds, self.sent, self.sites = seconds, {}, dict.fromkeys(seconds)

    def present(self) -> dict[int, Present]:
        return {site: Present(site) for site in self.sites}

    def send(self, node: int, data: bytes, ttl: float) -> str:
        self.sent[str(node)] = time.monotonic()
        return str(node)

    def replies(self, numbers) -> dict[str, bytes]:
        took = {number: self.seconds[int(number)] for number in numbers}
        now = time.monotonic()
        return {number: b"y" for number, one in took.items() if one is not None and now - self.sent[number] >= one}

    def forget(self) -> None:
        self.sent = {}

    def wait(self, seconds: float) -> None:
        time.sleep(0.01)


def waited(exchange: FlowerExchange, sites: int, deadline: float) -> tuple[set[int], float]:
    """Who has answered, and the seconds that it took."""
    begun = time.monotonic()
    return {*exchange(dict.fromkeys(range(sites), b"x"), deadline)}, time.monotonic() - begun


def test_a_site_that_is_away_does_not_cost_the_deadline():
    mail = Mail({0: 0.0, 1: 0.0})
    del mail.sites[1]
    exchange = FlowerExchange(mail, mail.present, grace=0.4)
    found, seconds = waited(exchange, 2, 20.0)
    assert (found, 0.4 <= seconds < 5) == ({0}, True), "it may come"
    mail.sites[1] = None
    assert waited(exchange, 2, 20.0)[0] == {0, 1}


def test_a_site_that_comes_within_the_grace_takes_part():
    mail = Mail({0: 0.0, 1: 0.0})
    del mail.sites[1]
    threading.Timer(0.3, lambda: mail.sites.setdefault(1)).start()
    assert waited(FlowerExchange(mail, mail.present, grace=10.0), 2, 20.0)[0] == {0, 1}


def test_a_slow_site_costs_the_deadline_once_and_is_waited_for_again_when_it_is_in_time():
    mail = Mail({0: 0.0, 1: None})
    exchange = FlowerExchange(mail, mail.present, grace=0.5)
    found, seconds = waited(exchange, 2, 3.0)
    assert (found, seconds >= 3.0) == ({0}, True)
    found, seconds = waited(exchange, 2, 3.0)
    assert (found, 0.5 <= seconds < 2.5) == ({0}, True)
    mail.seconds[1] = 0.1
    assert waited(exchange, 2, 3.0)[0] == {0, 1}
    mail.seconds[1] = 1.2  # longer than the grace, and in time
    assert waited(exchange, 2, 3.0)[0] == {0, 1}


def test_what_came_in_time_counts_however_long_the_others_take():
    mail = Mail({0: 0.0, 1: 0.2, 2: 0.3})
    found = []
    for client, _ in FlowerExchange(mail, mail.present).stream(dict.fromkeys(range(3), b"x"), 0.6):
        found.append(client)
        time.sleep(0.8 if client == 0 else 0)  # longer than the deadline
    assert sorted(found) == [0, 1, 2]


def test_a_site_that_is_removed_is_not_waited_for():
    mail, members = Mail({0: 0.0, 1: None}), {0, 1}
    exchange = FlowerExchange(mail, mail.present, is_member=members.__contains__)
    threading.Timer(0.3, lambda: members.discard(1)).start()
    found, seconds = waited(exchange, 2, 20.0)
    assert (found, seconds < 5) == ({0}, True), "also in the middle of a round"


# What no message is


def forged(**change: object) -> RecordDict:
    array = Array(**({"dtype": BYTES, "shape": (3,), "stype": KIND, "data": b"abc"} | change))
    return RecordDict({RECORD: ArrayRecord({RECORD: array})})


NOT_OURS = {
    "nothing": RecordDict({}),
    "other record": RecordDict({RECORD: ConfigRecord({"a": 1})}),
    "other name": RecordDict({"x": ArrayRecord({RECORD: Array(BYTES, (1,), KIND, b"x")})}),
    "absurd shape": forged(shape=(2**60,)),
    "npy with an absurd header": forged(
        stype="numpy.ndarray", data=b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (2**60,)}"
    ),
    "other type": forged(dtype="float32"),
    "no type at all": forged(dtype="\udcff\x1b["[1:]),
}  # fmt: skip


@pytest.fixture(params=["whole", "in objects"])
def either_way(request, monkeypatch) -> None:
    if request.param == "in objects":
        request.getfixturevalue("in_objects")
    else:  # what Flower's form for whole messages has no room for
        monkeypatch.setitem(NOT_OURS, "absurd shape", forged(shape=(2**31 - 1,)))


@pytest.mark.parametrize("name", NOT_OURS)
def test_an_answer_that_is_no_message_harms_nobody_else(fed, name, either_way, monkeypatch):
    content = NOT_OURS[name]
    a, b = fed.node("a"), fed.node("b")
    answers = fed.later({0: b"x", 1: b"x"})
    received, _ = taken(a)
    monkeypatch.setattr("fedpub.flower.node.packed", lambda _: content)
    a.reply(received, b"")
    monkeypatch.undo()
    received, _ = taken(b)
    b.reply(received, b"good")
    assert answers.result() == {0: b"", 1: b"good"}


@pytest.mark.parametrize("name", NOT_OURS)
def test_a_site_answers_whatever_comes(fed, name, either_way, monkeypatch):
    content = NOT_OURS[name]
    a = fed.node("a")
    assert a.next_message() is None
    monkeypatch.setattr("fedpub.flower.link.packed", lambda _: content)
    answers = fed.later({0: b"x"})
    received, data = taken(a)
    assert data == b""
    a.reply(received, b"it was none")
    assert answers.result() == {0: b"it was none"}


def test_half_an_answer_delays_nobody_else(fed, in_objects, monkeypatch):
    a, b = fed.node("a"), fed.node("b")
    answers = fed.later({0: b"x", 1: b"x"}, deadline=5.0)
    received, _ = taken(a)
    with monkeypatch.context() as patch:
        patch.setattr(a._fleet, "PushObject", lambda _: (_ for _ in ()).throw(OSError("cut")))
        with pytest.raises(ConnectionTroubleError):
            a.reply(received, b"never whole")
    received, _ = taken(b)
    b.reply(received, b"good")
    assert answers.result() == {1: b"good"}


def test_the_names_on_the_wire_stay():
    """Sites and coordinators of different versions have to understand each other."""
    assert (RECORD, KIND, BYTES) == ("letter", "fedpub.letter", "uint8")


def deflated(kind: str, children: list[str], body: bytes) -> tuple[str, bytes]:
    content = f"{kind} {','.join(children)} {len(body)}".encode() + b"\x00" + body
    return get_object_id(content), content


def test_pieces_that_are_named_a_million_times_are_not_put_together(monkeypatch):
    array = packed(b"x" * 1000)[RECORD][RECORD]
    piece, held = next(iter(array.children.items()))
    told = {"dtype": BYTES, "shape": [10**9], "stype": KIND, "arraychunk_ids": [0] * 10**6}
    name, large = deflated("Array", [piece], json.dumps(told).encode())
    objects = {piece: held.deflate(), name: large}
    monkeypatch.setattr("fedpub.flower.exchange.inflate_object_from_contents", lambda *_: pytest.fail("made"))
    assert payload_of(name, objects.__getitem__, 2**24) is None


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\xff\xff\x00", b"Array  x\x00", b"Message " + b"," * 9000 + b" 0\x00"]
)
def test_objects_of_no_kind_are_no_message(content):
    assert payload_of("0" * 64, lambda _: content, 2**20) is None


def test_no_more_is_taken_than_a_message_may_have(monkeypatch):
    """An endless chain of objects, each of which names the next: the site stops asking, by bytes or by their number."""
    for largest, objects, most in ((2**20, 50, 50), (5000, 4096, 6)):
        monkeypatch.setattr("fedpub.flower.exchange.OBJECTS", objects)
        asked: list[str] = []

        def fetch(name: str, asked: list[str] = asked) -> bytes:
            asked.append(name)
            return deflated("Array", [f"{len(asked):064x}"], b"x" * 1000)[1] if len(asked) < 1000 else b""

        assert payload_of("0" * 64, fetch, largest) is None
        assert len(asked) <= most


def test_what_is_missing_is_waited_for():
    def fetch(name: str) -> bytes:
        raise IncompleteError(name)

    with pytest.raises(IncompleteError):
        payload_of("0" * 64, fetch, 2**20)


def test_whatever_answering_does_the_site_answers():
    class Broken:
        news = ""

        def answer(self, data: bytes) -> bytes:
            raise MemoryError("far too much")

    site = Broken()
    told = decode(answered(site, b"x"))  # type: ignore[arg-type]
    assert (told.kind, told.fields["reason"]) == ("refused", "the site failed: MemoryError")
    assert "far too much" in site.news


HERE = {"location": "http://127.0.0.1:1/"}


def test_a_response_without_end_and_a_redirection_are_errors(made, monkeypatch):
    """The coordinator decides what comes: not how much of this machine's memory, nor where the site goes next."""
    monkeypatch.setattr("fedpub.flower.node.RESPONSE", 1000)
    node = Node("127.0.0.1:1", context_of(made / "ca.pem"), private_key(made / "a.key"))
    said = [
        httpx.Response(code, headers=HERE, stream=httpx.ByteStream(b"x" * size))
        for code, size in ((200, 5000), (307, 5))
    ]
    node._line.http._transport = httpx.MockTransport(lambda _: said[0])
    with pytest.raises(ConnectionTroubleError, match="more than 1000 bytes"):
        node.next_message()
    said.pop(0)
    with pytest.raises(ConnectionTroubleError, match=r"refused a request .307"):
        node.next_message()


def test_a_site_goes_where_its_owner_sent_it_and_nowhere_else():
    asked: list[str] = []

    def elsewhere(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(307, headers={"location": "https://elsewhere/"}, stream=httpx.ByteStream(b""))

    line = _Line(ssl.create_default_context())
    line.http._transport = httpx.MockTransport(elsewhere)
    call = SimpleNamespace(request=httpx.Request("POST", "https://coordinator/pull"))
    assert line.intercept(call, pytest.fail).status_code == 307
    assert asked == ["https://coordinator/pull"]


# The part of Flower that this leans on


def test_flower_is_the_one_that_was_looked_at():
    """The pin in pyproject.toml says so, too; with another version look at link.py and node.py again."""
    from importlib.metadata import version

    assert version("flwr").startswith("1.41.")
    fields = {
        ActivateNodeRequest: "public_key heartbeat_interval",
        PullMessagesRequest: "node message_ids",
        PullMessagesResponse: "reconnect messages_list message_object_trees",
        PushMessagesRequest: "node messages_list message_object_trees clientapp_runtime_list",
        PushMessagesResponse: "reconnect results objects_to_push session_id",
        PullObjectRequest: "node run_id object_id",
        PullObjectResponse: "object_found object_available object_content",
        PushObjectRequest: "node run_id object_id object_content session_id",
        PushObjectResponse: "stored",
        ObjectTree: "object_id children",
    }
    assert {kind.__name__: " ".join(field.name for field in kind.DESCRIPTOR.fields) for kind in fields} == {
        kind.__name__: names for kind, names in fields.items()
    }


def test_flowers_own_node_understands_the_mailboxes(fed):
    """The gate serves what Flower's node asks for, and how it asks: here are all its calls."""
    served = {name for name in dir(FleetHttpClient) if name[0].isupper()}
    ours = {"".join(word.capitalize() for word in name.split("-")) for name in gates.ENDPOINTS}
    assert served - ours == {"RegisterNode", "UnregisterNode", "GetRun", "GetFab"}
    assert ours <= served
    assert links._ENDPOINTS.keys() == gates.ENDPOINTS


# A whole federation in one process


@dataclass
class Deployed:
    experiment: Experiment
    coordinator: Path
    sites: list[Path]
    out: Path
    said: list[str] = field(default_factory=list)

    def say(self, line: str, event: str = "") -> None:
        self.said.append(line)

    def start_sites(self) -> list[Later]:
        return [Later(lambda site=site: run_site(site, self.say, once=True)) for site in self.sites]

    def play(self, resume: bool = False) -> dict:
        with Running(self.coordinator, resume) as running:
            return running.wait()


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    experiment = Experiment(clients=2, rounds=3, hidden=4, dtype="float64").resolve()
    out = tmp_path / "deployed"
    coordinator, sites = lay_out(tmp_path / "all", prepare(experiment), experiment, Terms(deadline=60), out)
    return Deployed(experiment, coordinator, sites, out)


def test_a_full_disk_is_a_sentence_and_a_later_start_resumes(deployed, tmp_path, monkeypatch):
    sites = deployed.start_sites()
    deployed.out.mkdir()
    (deployed.out / ".config.json.x1y2").write_text("{")  # killed as it began
    save = RunDirectory.checkpoint

    def full(self, snapshot, *rest) -> None:
        if snapshot.round == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, snapshot, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "checkpoint", full)
        with pytest.raises(
            FedpubError, match=r"No space left on device.*continue it with fedpub coordinator start --resume"
        ):
            deployed.play()
    with pytest.raises(FedpubError, match="holds a run that has begun"):
        deployed.play()
    summary = deployed.play(resume=True)
    for site in sites:
        site.result()
    run(deployed.experiment, tmp_path / "simulated", keep_checkpoint=True)
    assert_same_rows(deployed.out, tmp_path / "simulated")
    assert summary["best_round"] == RunDirectory(tmp_path / "simulated").summary()["best_round"]
    assert deployed.play(resume=True) == summary, "a supervisor that starts it once more is told the result"


def test_only_one_coordinator_works_in_a_folder(deployed):
    folder = CoordinatorFolder(deployed.coordinator)
    assert not folder.is_in_use()
    with Running(deployed.coordinator):
        assert folder.is_in_use()
        with pytest.raises(FedpubError, match="a coordinator is already running in"), Running(deployed.coordinator):
            pass
    assert not folder.is_in_use()


def test_a_site_is_removed_from_a_run_in_progress(deployed, capsys):
    """Its key opens nothing any more, the run ends without it, and every later average is of the others."""
    sites = deployed.start_sites()
    gone = CoordinatorFolder(deployed.coordinator)
    name = list(read_admitted(gone.admitted))[1]

    def after(row, rounds) -> None:
        if row.round == 1:
            assert main(["coordinator", "remove", name, "--folder", str(deployed.coordinator)]) == 0

    with Running(deployed.coordinator) as running:
        begun = time.monotonic()
        running.wait(after)
        assert time.monotonic() - begun < 50, "nobody waits for the deadline, which is 60 s"
        wait_for(lambda: any("does not admit this site" in said for said in deployed.said), 30)
    sites[0].result()
    rows = read_rows(deployed.out)
    assert [[bool(one) for one in row.clients["took_part"]] for row in rows] == [[True, True]] + [[True, False]] * 2
    assert [event["event"] for event in gone.read_events()] == ["removed"]
    capsys.readouterr()
    assert main(["status", "--folder", str(deployed.coordinator), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sites"]
    assert [(one["removed"], one["rounds"]) for one in told] == [(False, 3), (True, 1)]


def test_a_gate_that_has_closed_ends_the_rounds(deployed):
    with Running(deployed.coordinator) as running:
        running.post.__exit__()
        with pytest.raises(FedpubError, match=r"the gate has closed.*--resume"):
            running.wait()


def test_the_watchdog_notices_what_does_not_move():
    stuck = threading.Event()
    with Watchdog(0.2, stuck.set):
        assert stuck.wait(60)
    stuck.clear()
    with Watchdog(3600.0, stuck.set) as watchdog:
        watchdog.moved()
    assert not stuck.is_set()


def test_a_stuck_process_ends_and_says_where(deployed, monkeypatch):
    ended = []
    monkeypatch.setattr(coordinating.os, "_exit", ended.append)
    Running(deployed.coordinator)._end_stuck()
    assert ended == [1]
    folder = CoordinatorFolder(deployed.coordinator)
    assert folder.read_events()[-1]["event"] == "stuck"
    assert "test_link.py" in (folder.logs / "stuck.log").read_text()


# What sites say


@given(text=st.text(alphabet=st.characters(codec=None)))
def test_whatever_is_said_is_one_line_of_printable_characters(text):
    said = printable(text)
    assert said.isprintable()
    assert len(said) <= 200
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 199 + "…"


def test_why_a_site_cannot_take_part_is_spelt_out(deployed):
    refused = encode(Envelope("refused", {"reason": "\x1b[2Jgone\n" + "x" * 1000}))
    events = []
    coordinator = Coordinator(
        deployed.experiment,
        "0" * 16,
        ["a", "b"],
        lambda messages, _: dict.fromkeys(messages, refused),
        deployed.coordinator,
        on_event=lambda *event: events.append(event),
    )
    with pytest.raises(FedpubError) as caught:
        coordinator.prepare()
    assert str(caught.value).startswith(r"site 'a' cannot take part: \x1b[2Jgone\nxxx")
    assert len(events[0][-1]) == 200
    assert events[0][-1].isprintable()


def test_what_sites_say_is_cut_and_spelt_out_wherever_it_is_shown(deployed, capsys):
    evil = "\x1b[2J\x1b[1;1Hround 99/99  val 100.00\r\n[/nosuch] [bold]" + "x" * 2**22
    folder = CoordinatorFolder(deployed.coordinator)
    name = next(iter(read_admitted(folder.admitted)))
    event = folder.event(name, "refused", 1, evil)
    assert len(event["reason"]) == 200
    assert event["reason"].isprintable()
    assert folder.events.stat().st_size < 1000
    assert main(["status", "--folder", str(deployed.coordinator)]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "nosuch" in told


def test_torn_events_stop_nobody(deployed, capsys):
    folder = CoordinatorFolder(deployed.coordinator)
    folder.event("site-0", "left out", 1, "first")
    with folder.events.open("ab") as file:
        file.write(b'{"time": 1.0, "site": "site-0", "ev\xff')
    assert [event["reason"] for event in folder.read_events()] == ["first"]
    folder.event("site-0", "left out", 2, "second")
    assert [event["reason"] for event in folder.read_events()] == ["first", "second"]
    folder.events.open("ab").write(b'{"time": 1}\n[]\n')
    assert main(["status", "--folder", str(deployed.coordinator)]) == 0
    assert "second" in capsys.readouterr().out


# Processes

HOSTILE = """\
from pathlib import Path
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.app import Message
from fedpub.flower.exchange import packed, unpacked
import json, sys, time

server = ServerApp()
client = ClientApp()

@client.query()
def steal(message, context):
    Path(MARKER).write_text(Path(KEY).read_text())
    return Message(packed(b"stolen"), reply_to=message)

@server.main()
def serve(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    for kind in ("query", "train", "query.steal"):
        said = []
        while not said:  # on a busy machine Flower's link may hand out a message before all of it is there: then, again
            sent = [Message(packed(b"x"), node, kind) for node in nodes]
            said = [(unpacked(reply.content) or b"").hex() for reply in grid.send_and_receive(sent, timeout=30)]
        with open(REPLIES, "a") as file:
            file.write(json.dumps(said) + chr(10))
"""


class Superlink:
    """Flower's own link in a process of its own, with everything that it serves; requests are signed here once more."""

    def __init__(self, port: int, folder: Path, key: Path) -> None:
        self._port, self._key = port, key
        self._line = httpx.AsyncClient(verify=context_of(folder / "ca.pem"), timeout=60)
        self.names: list[str] = []

    async def __call__(self, site: str, name: str, body: bytes) -> bytes:
        self.names.append(name)
        headers = signed(self._key.parent, self._key.stem)
        headers |= {"content-type": "application/protobuf", "accept": "application/protobuf"}
        said = await self._line.post(f"https://127.0.0.1:{self._port}/v1/fleet/{name}", headers=headers, content=body)
        if said.status_code != 200:
            raise HttpError(said.status_code, "Flower's link refuses it")
        return said.content


def test_an_app_that_the_coordinator_hands_out_does_not_run_at_a_site(deployed, tmp_path, monkeypatch):
    """A coordinator that means ill: Flower's whole link, `flwr run`, and a gate that lets everything through."""
    site, marker, replies = deployed.sites[0], tmp_path / "stolen", tmp_path / "replies"
    app, home, folder = tmp_path / "app", tmp_path / "home", deployed.coordinator
    coordinating.write_app(app)
    code = HOSTILE.replace("MARKER", repr(str(marker))).replace("KEY", repr(str(site / f"{site.name}.key")))
    (app / "fedpub_app" / "app.py").write_text(code.replace("REPLIES", repr(str(replies))))
    beside, port = Path(sys.executable).parent, free_port()
    words = [beside / "flower-superlink", "--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth"]
    words += ["--ssl-certfile", folder / "server.pem", "--ssl-keyfile", folder / "server.key"]
    words += ["--ssl-ca-certfile", folder / "ca.pem", "--disable-runtime-dependency-installation"]
    env = {"FLWR_HOME": str(home), "PATH": f"{beside}:{os.environ['PATH']}"}
    home.mkdir()
    authority = json.dumps(str(folder / "ca.pem"))
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f"root-certificates = {authority}\n"
    )
    (tmp_path / "site.pub").write_text(read_admitted(folder / "admitted.txt")[site.name] + "\n")
    everything = {*gates.ENDPOINTS, "get-run", "get-fab", "register-node", "unregister-node"}
    monkeypatch.setattr(gates, "ENDPOINTS", frozenset(everything))
    running = [start(words, tmp_path / "superlink.log", env)]
    link = Superlink(port, folder, site / f"{site.name}.key")
    try:
        with Gate("127.0.0.1", CoordinatorConfig.load(folder).port, link, folder):
            flwr, log = beside / "flwr", tmp_path / "flwr.log"
            wait_for(lambda: "Uvicorn running" in (tmp_path / "superlink.log").read_text())
            words = ["supernode", "register", tmp_path / "site.pub", "here"]
            assert start([flwr, *words], log, env).wait(300) == 0, log.read_text()
            running.append(start_site(site))
            for _ in range(4):  # now and then Flower's link loses an object of a reply, which then never comes
                replies.unlink(missing_ok=True)
                assert start([flwr, "run", app, "here"], log, env).wait(300) == 0, log.read_text()
                with contextlib.suppress(AssertionError):
                    wait_for(lambda: replies.is_file() and len(replies.read_text().splitlines()) == 3, 60)
                    break
            assert len(replies.read_text().splitlines()) == 3
            assert running[-1].poll() is None, "the site lives"
    finally:
        stop(running)
    for line in replies.read_text().splitlines():
        (reply,) = json.loads(line)
        assert decode(unwrapped(bytes.fromhex(reply)).answer).kind == "refused"
    assert not marker.exists()
    assert {"pull-messages", "push-messages"} <= {*link.names}
    assert not {"get-run", "get-fab"} & {*link.names}


def listening(pid: int) -> list[str]:
    """The sockets, of any kind, on which a process listens."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(os.readlink(entry))
        except OSError:
            continue
    found = []
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in held:
                found.append(words[1])
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & 0x10000 and f"socket:[{words[6]}]" in held:
            found.append(line)
    return found


def test_the_gate_is_all_that_a_coordinator_opens_and_a_kill_there_does_no_harm(deployed, tmp_path):
    config = CoordinatorConfig.load(deployed.coordinator)
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", deployed.coordinator, "--quiet"]
    log = tmp_path / "coordinator.log"
    leader = start(words, log)
    try:
        wait_for(lambda: log.is_file() and "serving on" in log.read_text())
        family = [leader.pid, *children(leader.pid)]
        assert len(family) == 2, "the gate is a process of its own"
        assert [one for pid in family for one in listening(pid)] == [f"0100007F:{config.port:04X}"]
        sites = deployed.start_sites()
        wait_for(lambda: (deployed.coordinator / "sites.json").is_file() or leader.poll() is not None)
        leader.kill()
        leader.wait()
        leader = start([*words, "--resume"], log)
        wait_for(lambda: leader.poll() is not None)
        assert leader.returncode == 0, log.read_text()
        for site in sites:
            site.result()
    finally:
        stop([leader])
    run(deployed.experiment, tmp_path / "simulated", keep_checkpoint=True)
    assert_same_rows(deployed.out, tmp_path / "simulated")
