"""The live page of a federation: `fedpub status --live`, from the coordinator's folder alone."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

from fedpub.core.printable import printable
from fedpub.core.serving import Server
from fedpub.flower.status import fingerprint_of, history_of
from fedpub.report.live import serving
from fedpub.report.load import thinned
from fedpub.report.page import page
from fedpub.report.text import titled
from fedpub.version import __version__

MOST_POINTS = 1000  # of a line


class FolderSource:
    """The data of the page, read again only when a file has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._seen: object = None
        self._data: dict[str, Any] = {}
        self.now()

    def now(self) -> dict[str, Any]:
        with self._lock:
            seen = fingerprint_of(self._folder)
            if seen != self._seen:
                self._data, self._seen = federation_payload(self._folder), seen
            return self._data


def federation_payload(folder: Path) -> dict[str, Any]:
    """All data of the page, in a form that JSON can hold; text from sites is on one line of printable characters."""
    found: dict[str, Any] = plain(history_of(folder))
    history = found["history"]
    shown = thinned(range(len(history["round"])), MOST_POINTS)
    found["history"] = {name: [values[place] for place in shown] for name, values in history.items()}
    return found | {"folder": folder.resolve().name, "title": titled(found["method"]), "version": __version__}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value


def federation_server(folder: Path, port: int = 0) -> Server:
    """A server of the page on 127.0.0.1; port 0 picks a free one."""
    source = FolderSource(folder)
    return serving(lambda: page(source.now(), "status"), source.now, port)
