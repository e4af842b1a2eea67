"""The same page, updated during runs, from a small server that only this machine can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fedpub.core.serving import Answer, Server
from fedpub.errors import FedpubError
from fedpub.report.attacked import FILE as ATTACKED
from fedpub.report.load import load, run_directories
from fedpub.report.page import dumped, page
from fedpub.report.payload import payload
from fedpub.runs.sweep import SWEEP
from fedpub.store.directory import FILES


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
    for file in (
        *sweeps,
        *(path / name for path in paths for name in (*FILES, ATTACKED, "checkpoint/state.safetensors")),
    ):
        try:
            known = file.stat()
        except OSError:
            continue
        found.append((str(file), known.st_mtime_ns, known.st_size))
    return found


def server(folders: Sequence[Path], port: int = 0) -> Server:
    """A server of the page on 127.0.0.1, ready to serve; port 0 picks a free port."""
    source = Source(folders)
    return serving(lambda: page(source.now()), source.now, port)


def serving(whole: Callable[[], str], data: Callable[[], dict[str, Any]], port: int) -> Server:
    """A server on 127.0.0.1 of a page and of the data that it asks for again and again."""

    def answer(path: str) -> Answer | None:
        try:
            if path == "/":
                return Answer("text/html", whole())
            if path == "/data.json":
                return Answer("application/json", dumped(data()))
        except FedpubError as error:
            return Answer("text/plain", f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return None

    try:
        return Server(answer, port=port)
    except (OSError, OverflowError) as error:
        raise FedpubError(f"`port={port}` cannot be used ({error}); leave it out to use a free port") from error
