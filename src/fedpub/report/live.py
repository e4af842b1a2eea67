"""The same page, updated during runs, from a small server that only this machine can reach."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedpub.errors import FedpubError
from fedpub.report.load import load, run_directories
from fedpub.report.page import dumped, page
from fedpub.report.payload import payload
from fedpub.runs.sweep import SWEEP
from fedpub.store.directory import FILES

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Source:
    """The current data of the folders, read again only when a file has changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._lock = threading.Lock()
        self._seen: object = None
        self._data: dict[str, Any] = {}
        self.now()

    def now(self) -> dict[str, Any]:
        with self._lock:
            seen = _fingerprint(self._folders)
            if seen != self._seen:
                runs, complaints = load(self._folders)
                self._data, self._seen = payload(runs, complaints, live=True), seen
            return self._data


def _fingerprint(folders: Sequence[Path]) -> list[tuple[str, int, int]]:
    found = []
    paths = run_directories(folders)
    sweeps = sorted({path.parent.parent / SWEEP for path in paths})
    for file in (*sweeps, *(path / name for path in paths for name in (*FILES, "checkpoint/state.safetensors"))):
        try:
            known = file.stat()
        except OSError:
            continue
        found.append((str(file), known.st_mtime_ns, known.st_size))
    return found


def server(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, ready to serve; port 0 picks a free port."""
    source = Source(folders)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "fedpub", ""

        def do_GET(self) -> None:
            # DNS rebinding: a foreign page whose name resolves to this machine sends that name as the host; refuse it.
            if not _is_loopback(self.headers.get("Host", "")):
                return self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this server answers to loopback names only\n")
            try:
                path = self.path.partition("?")[0]
                if path == "/":
                    return self._answer(HTTPStatus.OK, "text/html", page(source.now()))
                if path == "/data.json":
                    return self._answer(HTTPStatus.OK, "application/json", dumped(source.now()))
            except FedpubError as error:
                return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
            return self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is / and /data.json\n")

        do_HEAD = do_GET

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            same = status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag
            self.send_response(HTTPStatus.NOT_MODIFIED if same else status)
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", "0" if same else str(len(body)))
            self.end_headers()
            if not same and self.command != "HEAD":
                with contextlib.suppress(ConnectionError):  # the browser has disconnected
                    self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Do nothing: the terminal shows only the address."""

    try:
        made = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise FedpubError(f"`port={port}` cannot be used ({error}); leave it out to use a free port") from error
    made.daemon_threads = True
    return made


def _is_loopback(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    return name.lower() in LOOPBACK
