"""The gate in a process of its own."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from hypothesis import given
from hypothesis import strategies as st
from test_deployment import wait_for
from test_link import LARGEST, Later, taken

from fedpub.errors import FedpubError
from fedpub.flower.exchange import FlowerExchange
from fedpub.flower.frames import Writer, frames
from fedpub.flower.keys import admit, make_authority, make_certificate, make_site_key, private_key
from fedpub.flower.node import ConnectionTroubleError, Node
from fedpub.flower.post import Post
from fedpub.flower.preflight import context_of
from fedpub.flower.processes import free_port

pytestmark = [pytest.mark.timeout(200), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]


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
        assert post.is_serving(), "a run does not end for a gate that is opened again"
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
    assert "the gate has ended with status -9 and is started again" in caplog.text
    wait_for(lambda: not post.present({0: "a"}))


def test_a_gate_that_keeps_dying_ends_the_run(post, monkeypatch):
    monkeypatch.setattr("fedpub.flower.post.TRIES", 3)
    for _ in range(4):
        process = post._process
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda process=process: post._process is not process or post._problem)
    assert not post.is_serving()
    assert "the gate has ended with status -9" in post._problem


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
