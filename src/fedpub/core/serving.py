"""A small HTTP server for pages and numbers about what runs here: GET only, bounded, and by default for this machine.

It is meant for a browser or a monitor on the same machine or network, not for the internet: the gate is for that.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, NamedTuple

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SECONDS = 10.0  # that a connection may be silent, and that its whole request may take
MOST = 32  # connections at a time; for a further one, the request that has taken longest is given up
ROOM = 1.0  # seconds that a place may need to become free


class Answer(NamedTuple):
    """What a path holds now."""

    kind: str  # such as text/html
    text: str
    status: HTTPStatus = HTTPStatus.OK


class Server(ThreadingHTTPServer):
    """Serves `answer(path)` at `host`:`port`; port 0 picks a free one. An OSError if that is not possible.

    On loopback only requests to loopback names are answered. DNS rebinding: a foreign page whose name resolves to this
    machine sends that name as the host.
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[str], Answer | None], host: str = "127.0.0.1", port: int = 0) -> None:
        self.answer, self.only_loopback = answer, is_loopback(host)
        self._free = threading.BoundedSemaphore(MOST)
        self._reading: dict[socket.socket, float] = {}  # since when its request is being read, oldest first
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # that of HTTPServer asks the DNS for a name that is not used here

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False) or (self._give_up_oldest() and self._free.acquire(timeout=ROOM)):
            self._reading[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.was_read(request)
            self._free.release()

    def was_read(self, connection: Any) -> None:
        """From here on a connection takes our time, not the client's."""
        self._reading.pop(connection, None)

    def service_actions(self) -> None:
        """Give up requests that take too long: a byte now and then is no silence. serve_forever calls this."""
        for connection, since in list(self._reading.items()):
            if time.monotonic() - since > SECONDS:
                _shut(connection)

    def _give_up_oldest(self) -> bool:
        oldest = next(iter(list(self._reading)), None)
        if oldest is not None:
            _shut(oldest)
        return oldest is not None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: whatever one client does, the next one is served, and the terminal stays as it is."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version, timeout = "fedpub", "", SECONDS

    def do_GET(self) -> None:
        self.server.was_read(self.connection)
        if self.server.only_loopback and not is_loopback_name(self.headers.get("Host", "")):
            text = "this server answers to loopback names only\n"
            return self._send(Answer("text/plain", text, HTTPStatus.FORBIDDEN))
        found = self.server.answer(self.path.partition("?")[0])
        return self._send(found or Answer("text/plain", "there is no such page\n", HTTPStatus.NOT_FOUND))

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        same = answer.status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if same else answer.status)
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", "0" if same else str(len(body)))
        self.end_headers()
        if not same and self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # the client has disconnected
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do nothing: the terminal shows only the address."""


def _shut(connection: socket.socket) -> None:
    """Wake the thread that reads from it, which then closes it."""
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_loopback_name(host: str) -> bool:
    """Whether the Host of a request is a name of this machine, with or without a port."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    return name.lower() in LOOPBACK
