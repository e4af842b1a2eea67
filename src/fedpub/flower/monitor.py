"""/healthz and /metrics of a coordinator or a site, for whatever watches it: Prometheus, a container, a load balancer.

Off unless asked for. A port alone is on loopback; another address has to be named, since there is no access control.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Protocol

from fedpub.core.serving import Answer, Server
from fedpub.errors import FedpubError
from fedpub.flower.metrics import CONTENT_TYPE

LOOPBACK = "127.0.0.1"


class View(Protocol):
    """What is shown of a process."""

    def health(self) -> dict[str, object]:
        """The state, and under `problem` a sentence if something is wrong, or None."""

    def metrics_text(self) -> str: ...


def read_address(text: str) -> tuple[str, int]:
    """Host and port of PORT or HOST:PORT."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise FedpubError(f"`monitor={text}` is no address; give PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464")
    return host, int(port)


class Monitor:
    """Serves a view until the block ends; without an address it does nothing."""

    def __init__(self, address: str | None, view: View) -> None:
        self._server: Server | None = None
        if address is None:
            return
        host, port = read_address(address)
        try:
            self._server = Server(lambda path: _answer(view, path), host, port)
        except (OSError, OverflowError) as error:
            raise FedpubError(f"`monitor={address}` cannot be used ({error}); choose another one") from error

    @property
    def place(self) -> str | None:
        """Where it is, for display."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def __enter__(self) -> Monitor:
        if self._server is not None:
            serve = partial(self._server.serve_forever, poll_interval=0.1)
            threading.Thread(target=serve, name="fedpub-monitor", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _answer(view: View, path: str) -> Answer | None:
    if path == "/healthz":
        health = view.health()
        status = HTTPStatus.OK if health["problem"] is None else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer("application/json", json.dumps(health) + "\n", status)
    if path == "/metrics":
        return Answer(CONTENT_TYPE, view.metrics_text())
    return None
