"""The small server of pages and metrics: who is answered, and what one client can hold."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedpub.core import serving
from fedpub.core.serving import Answer, Server, is_loopback, is_loopback_name


@contextmanager
def running(host: str = "127.0.0.1") -> Iterator[Server]:
    with Server(lambda path: Answer("text/plain", "here\n") if path == "/" else None, host) as server:
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


def test_connections_are_bounded_and_become_free_again(monkeypatch):
    monkeypatch.setattr(serving, "MOST", 1)
    with running() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\n")  # and no end
            with socket.create_connection(("127.0.0.1", server.port), timeout=serving.SECONDS / 2) as other:
                assert other.recv(100) == b"", "it is closed at once"
        wanted = threading.Event()
        for _ in range(200):
            try:
                assert ask(server) == 200
                break
            except (OSError, http.client.HTTPException):
                wanted.wait(0.05)
        else:
            pytest.fail("the place is still taken")


def test_a_silent_connection_is_closed(monkeypatch):
    assert serving._Handler.timeout == serving.SECONDS
    monkeypatch.setattr(serving._Handler, "timeout", 0.1)
    with running() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert silent.recv(100) == b""
