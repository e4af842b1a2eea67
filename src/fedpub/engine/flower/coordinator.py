"""The coordinator's machine: Flower's link on loopback, the gate that publishes its sites' paths, and the run.

Flower serves sites and operators on one port, and asks operators for no key. So the link listens on loopback only, and
what the network sees is the gate, which lets admitted sites through to the sites' paths and nobody anywhere else.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedpub.engine.federate import SITES
from fedpub.engine.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.engine.flower.gate import Gate
from fedpub.engine.flower.keys import check_certificate, read_admitted
from fedpub.engine.flower.processes import LEADER, QUIET, command, free_port, is_alive, require_flower, start, stop
from fedpub.engine.joining import check_joinable
from fedpub.errors import FedpubError
from fedpub.files import write_text
from fedpub.results import Row, RunDirectory, read_rows

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
joins = false
"""
# Flower looks for these names without running the file.
CODE = """\
from fedpub.engine.flower import app

server = app.server
client = app.client
"""
CONNECTION = "here"
START_SECONDS, LIFE_SECONDS, TRIES = 90.0, 120.0, 5


def write_app(folder: Path) -> None:
    """The app that Flower runs at both ends: a name for what is installed there."""
    write_text(folder / "pyproject.toml", APP)
    write_text(folder / "fedpub_app" / "__init__.py", "")
    write_text(folder / "fedpub_app" / "app.py", CODE)


def check_run(folder: CoordinatorFolder, config: CoordinatorConfig, resume: bool, joins: bool) -> None:
    out = folder.out(config)
    if joins:
        check_joinable(config.experiment.algorithm())
        if not RunDirectory(out).finished:
            raise FedpubError(f"the run of {folder.path} is not finished: sites can join when it is")
        return
    begun = (out / "clients.csv").is_file() or (folder.path / SITES).is_file()
    if begun and not resume:
        raise FedpubError(
            f"{folder.path} holds a run that has begun: go on with it by --resume, or init another folder"
        )
    if RunDirectory(out).finished:
        raise FedpubError(f"the run of {folder.path} is finished: its result is in {out}")


class Running:
    """A coordinator at work: a context that starts its processes and ends them."""

    def __init__(self, path: Path, resume: bool = False, joins: bool = False) -> None:
        require_flower()
        self.folder, self.config = CoordinatorFolder(path.resolve()), CoordinatorConfig.load(path)
        check_run(self.folder, self.config, resume, joins)
        self._joins = joins
        self.sites = read_admitted(self.folder.admitted)
        if not self.sites:
            raise FedpubError(f"{self.folder.admitted} admits no site; add one with fedpub coordinator admit")
        if problem := check_certificate(self.folder.path):
            self.folder.event(None, "certificate", 0, problem)
        self._stack = ExitStack()
        self._env = {"FLWR_HOME": str(self.folder.flower), LEADER: str(os.getpid())}

    def __enter__(self) -> Running:
        with ExitStack() as stack:
            port = free_port()
            self._link = self._start_link(port)
            stack.callback(stop, [self._link])
            self._wait_for(port)
            self._register(port)
            largest = self.config.terms.max_message * 2**20
            stack.enter_context(Gate(self.config.bind, self.config.port, port, self.folder.path, largest=largest))
            write_app(self.folder.flower / "app")
            self._submit()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def _start_link(self, port: int) -> subprocess.Popen[bytes]:
        path = self.folder.path
        words = [command("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)]
        words += ["--ssl-certfile", str(path / "server.pem"), "--ssl-keyfile", str(path / "server.key")]
        words += ["--ssl-ca-certfile", str(path / "ca.pem"), "--enable-supernode-auth"]
        # Nodes keep their numbers over a restart; what is installed here is what runs.
        words += ["--database", str(path / "flower.db"), "--disable-runtime-dependency-installation"]
        return start(words, self.folder.logs / "link.log", self._env)

    def _wait_for(self, port: int) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._link.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise FedpubError(
            f"Flower's link did not start; {self.folder.logs / 'link.log'} ends with: {self._last_words()}"
        )

    def _last_words(self) -> str:
        lines = (self.folder.logs / "link.log").read_text(encoding="utf-8", errors="replace").split("\n")
        return " ".join(line.strip() for line in lines[-4:] if line.strip())

    def _flwr(self, *words: str | Path) -> dict[str, Any]:
        done = subprocess.run(
            [command("flwr"), *map(str, words), "--format", "json"],
            env={**os.environ, **QUIET, **self._env},
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            said: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            said = {}
        if not said.get("success"):
            raise FedpubError(f"flwr {words[0]} failed: {said or (done.stdout + done.stderr).strip()}")
        return said

    def _register(self, port: int) -> None:
        """Make the sites' keys known to Flower; it has kept those that it knows."""
        connection = (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{port}"\n'
        )
        authority = json.dumps(str(self.folder.path / "ca.pem"))
        write_text(self.folder.flower / "config.toml", f"{connection}root-certificates = {authority}\n")
        known: dict[str, str] = {}
        if self.folder.nodes.is_file():
            known = json.loads(self.folder.nodes.read_text(encoding="utf-8"))
        for site, key in self.sites.items():
            if site not in known:
                public = self.folder.flower / "keys" / f"{site}.pub"
                write_text(public, f"{key}\n")
                known[site] = str(self._flwr("supernode", "register", public, CONNECTION)["node-id"])
                write_text(self.folder.nodes, json.dumps(known, indent=2) + "\n")

    def _submit(self) -> None:
        self.folder.process.unlink(missing_ok=True)
        self.folder.failure.unlink(missing_ok=True)
        self.folder.joined.unlink(missing_ok=True)
        where = f"folder={json.dumps(str(self.folder.path))} joins={json.dumps(self._joins)}"
        self._flwr("run", self.folder.flower / "app", CONNECTION, "--run-config", where)
        self._submitted = time.monotonic()

    def wait(
        self,
        on_round: Callable[[Row, int], None] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The summary, when the run has ended."""
        out, rounds = self.folder.out(self.config), self.config.experiment.resolved().rounds
        shown, told, tries = len(read_rows(out)), len(self.folder.read_events()), 1
        assert rounds is not None
        while True:
            for row in read_rows(out)[shown:]:
                shown += 1
                if on_round:
                    on_round(row, rounds)
            for event in self.folder.read_events()[told:]:
                told += 1
                if on_event:
                    on_event(event)
            if self.folder.joined.is_file() if self._joins else RunDirectory(out).finished:
                return RunDirectory(out).summary()
            if self.folder.failure.is_file():
                raise FedpubError(self.folder.failure.read_text(encoding="utf-8").strip())
            if self._link.poll() is not None:
                raise FedpubError(f"Flower's link ended: {self._last_words()}; go on with --resume")
            if not self._is_played():
                tries += 1
                if tries > TRIES:
                    raise FedpubError(
                        f"the process of the rounds ended {TRIES} times; {self.folder.logs / 'link.log'} says why"
                    )
                self.folder.event(None, "restarted", 0, "the process of the rounds ended before the run did")
                self._submit()
            time.sleep(0.3)

    def _is_played(self) -> bool:
        try:
            return is_alive(int(self.folder.process.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return time.monotonic() - self._submitted < LIFE_SECONDS  # it has not got there yet
