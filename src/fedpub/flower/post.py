"""The coordinator's end of its gate: messages to the sites behind it, and their answers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedpub.errors import FedpubError
from fedpub.flower.exchange import Present
from fedpub.flower.frames import Writer, frames
from fedpub.flower.processes import QUIET, child, end

READY = 60.0  # seconds in which the gate must have opened
TRIES, CALM = 10, 60.0  # how often the gate is opened again within that many seconds
PAUSE = 0.5  # seconds before it is opened again
SILENT = 15.0  # seconds after which a gate that says nothing is ended, and opened again; it speaks every other second

log = logging.getLogger("fedpub.flower.gate")


class Post:
    """Carries messages through a gate in a process of its own, which is started again should it die.

    - `folder`: the coordinator's.
    - `largest`: the most bytes of an answer.
    """

    def __init__(self, host: str, port: int, folder: Path, largest: int) -> None:
        self.host, self.port, self._folder, self._largest = host, port, folder, largest
        self.problem = ""  # why the gate is closed for good
        self.strangers, self.refused = 0, dict[str, int]()
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: Writer | None = None
        self._sites: dict[str, int] = {}
        self._pending, self._answers = set[str](), dict[str, bytes | None]()
        self._changes = self._seen = self._numbers = 0
        self._ready, self._ended, self._starts = False, False, list[float]()
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="fedpub-post", daemon=True)

    def __enter__(self) -> Post:
        try:
            self._thread.start()
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self.problem, READY)
            if not self._ready:
                raise FedpubError(
                    self.problem or f"the gate on {self.host}:{self.port} did not open; see logs/gate.log"
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        with self._changed:
            self._ended, process = True, self._process
        if process is not None:
            end(process)
        self._thread.join()

    @property
    def pid(self) -> int:
        """The number of the gate's process."""
        assert self._process is not None
        return self._process.pid

    def is_serving(self) -> bool:
        """Whether the gate is open now."""
        return self._ready and not self._ended and not self.problem and time.monotonic() - self._heard < SILENT

    def check(self) -> None:
        """End a gate that hangs, so that it is opened again; an error if that is not possible any more."""
        process = self._process
        if process is not None and process.poll() is None and time.monotonic() - self._heard > SILENT:
            log.warning("the gate has said nothing for %g seconds and is ended", SILENT)
            process.kill()
            self._heard = time.monotonic()
        if self.problem or self._ended:
            why = self.problem or "it was ended"
            raise FedpubError(f"the gate has closed ({why}); continue with fedpub coordinator start --resume")

    # What the exchange needs

    def present(self, sites: Mapping[int, str]) -> dict[int, Present]:
        """The connected nodes of these sites."""
        with self._changed:
            return {client: Present(self._sites[site]) for client, site in sites.items() if site in self._sites}

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        with self._changed:
            self._numbers += 1
            number, writer = str(self._numbers), self._writer
            self._pending.add(number)
        try:
            if writer is not None:
                writer.write({"do": "send", "node": node, "number": number}, data)
                return number
        except (OSError, ValueError):  # the gate is being opened again, and its nodes are gone
            pass
        return None

    def replies(self, numbers: Iterable[str]) -> dict[str, bytes | None]:
        with self._changed:
            found = {number: self._answers.pop(number) for number in numbers if number in self._answers}
            self._pending -= found.keys()
            return found

    def forget(self) -> None:
        """Drop what is still in transit."""
        with self._changed:
            self._pending.clear()
            self._answers.clear()
            writer = self._writer
        try:
            if writer is not None:
                writer.write({"do": "forget"})
        except (OSError, ValueError):
            return

    def wait(self, seconds: float) -> None:
        """Until something has arrived or changed, at most so long."""
        with self._changed:
            if self._seen == self._changes:
                self._changed.wait(seconds)
            self._seen = self._changes

    # The process, which one thread starts, listens to, and starts again

    def _run(self) -> None:
        while not self._ended:
            status: object = "no process"
            try:
                status = self._served()
            except Exception as error:  # such as no memory for a process
                status = repr(error)
            with self._changed:
                self._sites, self._writer = {}, None
                self._tell_changed()
            if self._ended or self.problem:
                return
            recent = [one for one in self._starts if one > time.monotonic() - CALM]
            if len(recent) > TRIES:
                with self._changed:
                    self.problem = f"it has ended with status {status}; see logs/gate.log"
                    self._tell_changed()
                return
            log.warning("the gate has ended with status %s and is opened again", status)
            time.sleep(PAUSE)  # the port, or the memory for a process, may become free

    def _served(self) -> int:
        """One life of the gate's process; its exit status."""
        self._starts.append(time.monotonic())
        words = [sys.executable, "-m", "fedpub.flower.gate_process"]
        process = child(words, self._folder / "logs" / "gate.log", QUIET)
        assert process.stdin is not None
        assert process.stdout is not None
        writer = Writer(process.stdin)
        try:
            about = {"host": self.host, "port": self.port, "folder": str(self._folder), "largest": self._largest}
            writer.write(about)  # before anything else can be
            with self._changed:
                self._process, self._heard = process, time.monotonic()
                if self._ended:
                    return 0
            for head, body in frames(process.stdout):
                self._take(head, body, writer)
        finally:
            end(process)
            process.stdout.close()
        return process.returncode

    def _take(self, head: dict[str, Any], body: bytes, writer: Writer) -> None:
        self._heard = time.monotonic()
        if head["is"] == "log":
            log.log(head["level"], "%s", head["text"])
            return
        with self._changed:
            match head["is"]:
                case "ready":
                    self._ready, self.port, self._writer = True, head["port"], writer
                case "failed" if not self._ready:
                    self.problem = head["why"]
                case "failed":  # at a later start: to be tried again
                    log.warning("%s", head["why"])
                case "present":
                    self._sites, self.strangers, self.refused = head["sites"], head["strangers"], head["refused"]
                case "answer" if head["number"] in self._pending:
                    self._answers[head["number"]] = body
                case "lost" if head["number"] in self._pending:  # the node has changed meanwhile: to be sent again
                    self._answers[head["number"]] = None
                case _:
                    return
            self._tell_changed()

    def _tell_changed(self) -> None:
        self._changes += 1
        self._changed.notify_all()
