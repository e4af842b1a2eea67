"""The gate in a process of its own."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from hypothesis import given
from hypothesis import strategies as st
from test_deployment import wait_for as patiently
from test_link import LARGEST, Later, taken

from fedpub.errors import FedpubError
from fedpub.flower import post as post_module
from fedpub.flower.exchange import FlowerExchange
from fedpub.flower.frames import Writer, frames
from fedpub.flower.keys import admit, make_authority, make_certificate, make_site_key, private_key
from fedpub.flower.node import ConnectionTroubleError, Node
from fedpub.flower.post import Post
from fedpub.flower.preflight import context_of
from fedpub.flower.processes import free_port

pytestmark = [pytest.mark.timeout(200), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]


def wait_for(what, seconds: float = 60) -> None:
    patiently(what, seconds)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_authority(tmp_path)
    make_certificate(tmp_path, [])
    admit(tmp_path / "admitted.txt", "a", make_site_key(tmp_path / "a.key"))
    return tmp_path


@pytest.fixture
def post(folder: Path) -> Iterator[Post]:
    with Post("127.0.0.1", free_port(), folder, LARGEST) as post:
        yield post


def node_of(post: Post, folder: Path) -> Node:
    return Node(f"127.0.0.1:{post.port}", context_of(folder / "ca.pem"), private_key(folder / "a.key"))


def exchange(post: Post) -> FlowerExchange:
    return FlowerExchange(post, lambda: post.present({0: "a", 1: "b"}), again=float("inf"))


def test_messages_pass_and_a_gate_that_dies_is_started_again(post, folder, caplog):
    """The site finds the new one, and gets the message that was lost with the old one."""
    with node_of(post, folder) as node:
        answers = Later(lambda: exchange(post)({0: b"x" * 10**6}, 60.0))
        received, data = taken(node)
        node.reply(received, data + b"y")
        assert answers.result() == {0: b"x" * 10**6 + b"y"}
        answers = Later(lambda: exchange(post)({0: b"again"}, 60.0))
        first, port = post._process, post.port
        taken(node)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        post.check()  # a run does not end for a gate that is opened again
        wait_for(lambda: post._process is not first)

        def asked():
            try:
                return node.next_message()
            except ConnectionTroubleError:  # the new one is not there yet
                return None

        found = []
        wait_for(lambda: found.append(asked()) or found[-1])
        node.reply(found[-1][0], found[-1][1] + b"!")
        assert (answers.result(), post.port) == ({0: b"again!"}, port)
    assert "the gate has ended with status -9 and is opened again" in caplog.text
    wait_for(lambda: not post.present({0: "a"}))


def test_a_gate_that_keeps_dying_ends_the_run(post, monkeypatch):
    monkeypatch.setattr("fedpub.flower.post.TRIES", 3)
    for _ in range(4):
        process = post._process
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda process=process: post._process is not process or post.problem)
    assert not post.is_serving()
    with pytest.raises(FedpubError, match=r"the gate has closed .it has ended with status -9.*--resume"):
        post.check()


def test_a_gate_that_hangs_is_ended_and_opened_again(post, monkeypatch, caplog):
    first = post._process
    os.kill(first.pid, signal.SIGSTOP)
    monkeypatch.setattr("fedpub.flower.post.SILENT", 4.0)
    wait_for(lambda: not post.is_serving())
    post.check()
    wait_for(lambda: post._process is not first and post.is_serving())
    assert "the gate has said nothing for 4 seconds" in caplog.text


def test_what_fails_once_at_a_new_start_is_tried_again(post, monkeypatch):
    """No memory for a process, then a port that another program has for a moment."""
    started, first = post_module.child, post._process
    failures, blocker = iter([OSError("no memory")]), socket.socket()
    blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def fails_first(*words):
        for failure in failures:
            blocker.bind(("127.0.0.1", post.port))
            blocker.listen()
            threading.Timer(2.0, blocker.close).start()
            raise failure
        return started(*words)

    monkeypatch.setattr(post_module, "child", fails_first)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: post._process is not first and post.is_serving() and bool(post._writer))
    post.check()


def test_an_answer_that_nobody_waits_for_is_dropped(post):
    """And wakes nobody: the exchange after it would look again and again."""
    post._take({"is": "answer", "number": "77"}, b"late", post._writer)
    assert post._answers == {}
    post.wait(0.0)  # what was told before
    begun = time.monotonic()
    post.wait(0.3)
    assert time.monotonic() - begun > 0.2


def test_nothing_is_written_to_a_gate_before_it_has_opened(folder, monkeypatch):
    monkeypatch.setattr("fedpub.flower.post.READY", 0.0)
    post = Post("127.0.0.1", 0, folder, LARGEST)
    with pytest.raises(FedpubError, match="did not open"), post:
        pass
    assert post._writer is None
    assert not post._thread.is_alive()
    assert post._process is None or post._process.poll() is not None, "nothing is left of it"


def test_refusals_are_counted_and_told(post, folder):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", post.port), timeout=60) as plain:
            context = context_of(folder / "ca.pem")
            with context.wrap_socket(plain, server_hostname="localhost") as one:
                one.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
                assert one.recv(100).startswith(b"HTTP/1.1 404 ")
    wait_for(lambda: post.refused == {"HTTP 404": 3})


def test_a_port_in_use_and_a_damaged_certificate_are_sentences(post, folder):
    with (
        pytest.raises(FedpubError, match=rf"cannot listen on 127\.0\.0\.1:{post.port} "),
        Post("127.0.0.1", post.port, folder, LARGEST),
    ):
        pass
    (folder / "server.pem").write_text("damaged")
    with pytest.raises(FedpubError, match="the certificates in"), Post("127.0.0.1", 0, folder, LARGEST):
        pass


def test_nothing_is_left_when_it_ends(folder):
    before = {*threading.enumerate()}
    with Post("127.0.0.1", 0, folder, LARGEST) as post:
        process = post._process
        assert isinstance(process, subprocess.Popen)
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", free_port())):
            pass
    assert process.returncode == 0
    assert {*threading.enumerate()} <= before
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", post.port), timeout=5):
        pass
    assert post.send(1, b"x", 1.0) is None
    post.forget()


def test_it_ends_with_its_coordinator_however_that_ends(folder):
    script = (
        "import sys, time; from pathlib import Path; from fedpub.flower.post import Post\n"
        f"with Post('127.0.0.1', 0, Path({str(folder)!r}), 1000) as post:\n"
        "    print(post._process.pid, flush=True); time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as coordinator:
        gate = int(coordinator.stdout.readline())
        assert Path(f"/proc/{gate}").exists()
        coordinator.kill()
    wait_for(lambda: not Path(f"/proc/{gate}").exists(), 60)


def test_the_gate_needs_no_torch():
    """It starts in a moment and stays small."""
    code = "import fedpub.flower.gate_process, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.lists(st.tuples(st.dictionaries(st.text(), st.integers() | st.text()), st.binary())))
def test_frames_come_out_as_they_went_in(sent):
    file = io.BytesIO()
    writer = Writer(file)
    for head, body in sent:
        writer.write(head, body)
    whole = file.getvalue()
    assert list(frames(io.BytesIO(whole))) == sent
    assert list(frames(io.BytesIO(whole[:-1]))) == sent[:-1], "half a frame is none"
