"""The coordinator's machine: one process that plays the rounds, behind a gate in a process of its own."""

from __future__ import annotations

import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedpub.core.files import write_text
from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.federation.joining import check_joinable
from fedpub.federation.known import SITES
from fedpub.federation.logged import Keys
from fedpub.flower.coordinator_view import CoordinatorView
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import check_certificate, read_admitted
from fedpub.flower.processes import require_flower
from fedpub.runs.loop import OnRound
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Row

APP = """\
[project]
name = "fedpub-app"
description = "Personalised subgraph federated learning"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedpub"

[tool.flwr.app.components]
serverapp = "fedpub_app.app:server"
clientapp = "fedpub_app.app:client"

[tool.flwr.app.config]
folder = ""
"""
# Flower looks for these names without running the file.
CODE = """\
from fedpub.flower import app

server = app.server
client = app.client
"""
STUCK = 1800.0  # seconds without progress, beyond the deadline, after which the process ends
STUCK_STATUS = 1


def write_app(folder: Path) -> None:
    """An app for `flwr run` in a Flower federation; it only refers to the installed fedpub."""
    write_text(folder / "pyproject.toml", APP)
    write_text(folder / "fedpub_app" / "__init__.py", "")
    write_text(folder / "fedpub_app" / "app.py", CODE)


def check_run(folder: CoordinatorFolder, config: CoordinatorConfig, resume: bool, joins: bool) -> None:
    out = folder.out(config)
    if joins:
        check_joinable(config.experiment.resolve().algorithm)
        if not RunDirectory(out).finished:
            raise FedpubError(f"the run of {folder.path} is not finished; sites can join when it is")
        return
    begun = (out / "clients.csv").is_file() or (folder.path / SITES).is_file()
    if begun and not resume:
        raise FedpubError(
            f"{folder.path} holds a run that has begun; continue it with fedpub coordinator start --resume, or init "
            "another folder"
        )


class Watchdog:
    """Ends the process when there is no progress for too long: a supervisor restarts it, and it resumes."""

    def __init__(self, seconds: float, on_stuck: Callable[[], None]) -> None:
        self._seconds, self._on_stuck = seconds, on_stuck
        self._moved, self._ended = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fedpub-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._thread.join()

    def moved(self) -> None:
        self._moved = time.monotonic()

    def last_moved(self) -> float:
        return self._moved

    def _watch(self) -> None:
        while not self._ended.wait(min(10.0, self._seconds / 4)):
            if time.monotonic() - self._moved > self._seconds:
                self._on_stuck()
                return


class Running:
    """A running coordinator: a context manager that opens its gate and closes it."""

    def __init__(
        self,
        path: Path,
        resume: bool = False,
        joins: bool = False,
        view: CoordinatorView | None = None,
        keep_uploads: bool = False,
    ) -> None:
        require_flower()
        self.folder, self.config = CoordinatorFolder(path.resolve()), CoordinatorConfig.load(path)
        check_run(self.folder, self.config, resume, joins)
        self._joins, self._keep_uploads = joins, keep_uploads
        self.sites = read_admitted(self.folder.admitted)
        if not self.sites:
            raise FedpubError(f"{self.folder.admitted} admits no site; add one with fedpub coordinator admit")
        self._warnings: list[dict[str, Any]] = []
        self._stack = ExitStack()
        self._view = view or CoordinatorView()
        rows = read_rows(self.folder.out(self.config))
        self._view.begin(self.config.experiment.method, self.config.experiment.resolve().rounds, rows)

    def __enter__(self) -> Running:
        from fedpub.flower.admission import Admission
        from fedpub.flower.post import Post

        with ExitStack() as stack:
            stack.enter_context(self.folder.in_use())
            if problem := check_certificate(self.folder.path):
                self._warnings = [self.folder.event(None, "certificate", 0, problem)]
            self._admission = Admission(self.folder.admitted)
            largest = self.config.terms.max_message * 2**20
            self.post = Post(self.config.bind, self.config.port, self.folder.path, largest)
            stack.enter_context(self.post)
            self._view.state, self._view.is_serving = "waiting", self.post.is_serving
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def wait(
        self,
        on_round: OnRound | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Wait for the end of the run; returns the summary."""
        from fedpub.flower.server import play_rounds, serve_joins

        def on_line(event: dict[str, Any]) -> None:
            self._view.on_event(event)
            if on_event:
                on_event(event)

        for warning in self._warnings:
            on_line(warning)
        with Watchdog(self.config.terms.deadline + STUCK, self._end_stuck) as self._watchdog:
            self._view.watch(self._watchdog.last_moved, self.config.terms.deadline + STUCK)
            try:
                if self._joins:
                    return serve_joins(
                        self.folder,
                        self.config,
                        lambda site: bool(self._present({0: site})),
                        lambda site: self._exchange({0: site}),
                        on_line,
                        self._keys,
                    )
                return play_rounds(
                    self.folder,
                    self.config,
                    self._exchange(dict(enumerate(self._members()))),
                    lambda row, rounds: self._progressed(row, rounds, on_round),
                    on_line,
                    self._is_admitted,
                    self._keys,
                    self._keep_uploads,
                )
            except FedpubError:
                raise
            except Exception as error:
                why = printable(f"{type(error).__name__}: {error}")
                raise FedpubError(
                    f"the run ended early ({why}), with all finished rounds saved; continue it with "
                    "fedpub coordinator start --resume"
                ) from error

    def _members(self) -> list[str]:
        from fedpub.flower.server import members

        return members(self.folder)

    def _progressed(self, row: Row, rounds: int, on_round: OnRound | None) -> None:
        self._watchdog.moved()
        self._view.on_round(row)
        if on_round:
            on_round(row, rounds)

    def _present(self, sites: dict[int, str]) -> dict[int, Any]:
        self._alive()
        return self.post.present(sites)

    def _exchange(self, sites: dict[int, str]) -> Any:
        from fedpub.flower.exchange import FlowerExchange

        def present() -> dict[int, Any]:
            there = self.post.present(sites)
            self._view.on_presence(len(there), sites.values(), self._admission.now().values())
            self._view.on_gate(self.post.strangers, self.post.refused)
            return there

        exchange = FlowerExchange(
            self.post,
            present,
            again=math.inf,  # the mailboxes see to it
            alive=self._alive,
            is_member=lambda client: self._is_admitted(sites[client]),
        )
        return self._view.counted(exchange)

    @property
    def _keys(self) -> Keys:
        """For the countersignatures of sites: the keys by which they are admitted now."""
        from fedpub.flower.countersign import verify

        return Keys(lambda site: {name: key for key, name in self._admission.now().items()}.get(site), verify)

    def _is_admitted(self, site: str) -> bool:
        return site in self._admission.now().values()

    def _alive(self) -> None:
        self._watchdog.moved()
        self.post.check()

    def _end_stuck(self) -> None:
        """A stuck thread cannot be unwound: end the process, and log where it is stuck."""
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        with (self.folder.logs / "stuck.log").open("a", encoding="utf-8") as file:
            faulthandler.dump_traceback(file)
        self.folder.event(None, "stuck", 0, "no progress for too long, see logs/stuck.log; resume the run")
        os._exit(STUCK_STATUS)
