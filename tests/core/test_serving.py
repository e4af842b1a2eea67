"""The small server of pages and metrics: who is answered, and what one client can hold."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fedpub.core import serving
from fedpub.core.serving import Answer, Server, is_loopback, is_loopback_name


@contextmanager
def running(host: str = "127.0.0.1", answer: Callable[[str], Answer | None] | None = None) -> Iterator[Server]:
    def usual(path: str) -> Answer | None:
        return Answer("text/plain", "here\n") if path == "/" else None

    with Server(answer or usual, host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str = "/", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_on_loopback_only_loopback_names_are_answered():
    with running() as server:
        assert [ask(server, Host=host) for host in ("localhost", "127.0.0.1:80", "[::1]:80")] == [200, 200, 200]
        assert [ask(server, Host=host) for host in ("evil.example", "127.0.0.1.evil.example", "")] == [403, 403, 403]
        assert ask(server, "/other") == 404


def test_at_another_address_any_name_is_answered():
    with running("0.0.0.0") as server:
        assert ask(server, Host="coordinator:9464") == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "::1", "localhost"])
def test_addresses_of_this_machine_alone(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_addresses_that_others_reach(host):
    assert not is_loopback(host)
    assert not is_loopback_name(host)


def begun(server: Server) -> socket.socket:
    """A connection with a request that has no end."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    return connection


def test_connections_are_bounded_and_become_free_again(monkeypatch):
    monkeypatch.setattr(serving, "MOST", 1)
    held, asked = threading.Event(), threading.Event()

    def slow(path: str) -> Answer:
        if path == "/slow":
            asked.set()
            held.wait(10)
        return Answer("text/plain", "here\n")

    with running(answer=slow) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as busy:
            busy.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert asked.wait(10)
            with socket.create_connection(("127.0.0.1", server.port), timeout=serving.SECONDS / 2) as other:
                assert other.recv(100) == b"", "it is closed at once"
            held.set()
            assert busy.recv(100).startswith(b"HTTP/1.0 200")
        wanted = threading.Event()
        for _ in range(200):
            try:
                assert ask(server) == 200
                break
            except (OSError, http.client.HTTPException):
                wanted.wait(0.05)
        else:
            pytest.fail("the place is still taken")


def test_clients_that_never_finish_a_request_keep_no_one_out(monkeypatch):
    monkeypatch.setattr(serving, "MOST", 2)
    with running() as server:
        slow = [begun(server) for _ in range(4)]
        assert [ask(server) for _ in range(3)] == [200, 200, 200]
        assert slow[0].recv(100) == b"", "the oldest has made room"
        for connection in slow:
            connection.close()


def test_a_request_has_a_deadline_however_often_a_byte_of_it_comes(monkeypatch):
    monkeypatch.setattr(serving, "SECONDS", 0.3)  # for the request; silence alone would end it after ten seconds
    with running() as server, begun(server) as drip:
        drip.settimeout(0.02)
        for _ in range(300):
            try:
                drip.sendall(b"a")
                if drip.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


def test_a_silent_connection_is_closed(monkeypatch):
    assert serving._Handler.timeout == serving.SECONDS
    monkeypatch.setattr(serving._Handler, "timeout", 0.1)
    with running() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert silent.recv(100) == b""
