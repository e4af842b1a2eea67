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
TRIES, CALM = 10, 60.0  # how often the gate's process is started again within that many seconds

log = logging.getLogger("fedpub.flower.gate")


class Post:
    """Carries messages through a gate in a process of its own, which is started again should it die.

    - `folder`: the coordinator's.
    - `largest`: the most bytes of an answer.
    """

    def __init__(self, host: str, port: int, folder: Path, largest: int) -> None:
        self.host, self.port, self._folder, self._largest = host, port, folder, largest
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._sites: dict[str, int] = {}
        self._answers: dict[str, bytes | None] = {}
        self._ready, self._problem = False, ""
        self._numbers, self._ended, self._starts = 0, False, list[float]()
        self.strangers, self.refused = 0, dict[str, int]()

    def __enter__(self) -> Post:
        self._start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._problem, READY)
        if not self._ready:
            self.__exit__()
            raise FedpubError(self._problem or f"the gate on {self.host}:{self.port} did not open; see logs/gate.log")
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended = True
        if self._process is not None:
            end(self._process)
            self._reader.join()

    @property
    def pid(self) -> int:
        """The number of the gate's process."""
        assert self._process is not None
        return self._process.pid

    def is_serving(self) -> bool:
        """Whether the gate is open, or is opened again."""
        return self._ready and not self._ended and not self._problem

    # What the exchange needs

    def present(self, sites: Mapping[int, str]) -> dict[int, Present]:
        """The connected nodes of these sites."""
        with self._changed:
            return {client: Present(self._sites[site]) for client, site in sites.items() if site in self._sites}

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        with self._changed:
            self._numbers += 1
            number = str(self._numbers)
        try:
            self._writer.write({"do": "send", "node": node, "number": number}, data)
        except (OSError, ValueError):  # the process is being replaced, and its nodes with it
            return None
        return number

    def replies(self, numbers: Iterable[str]) -> dict[str, bytes | None]:
        with self._changed:
            return {number: self._answers.pop(number) for number in numbers if number in self._answers}

    def forget(self) -> None:
        """Drop what is still in transit."""
        with self._changed:
            self._answers.clear()
        try:
            self._writer.write({"do": "forget"})
        except (OSError, ValueError):
            return

    def wait(self, seconds: float) -> None:
        """Until something has arrived or changed, at most so long."""
        with self._changed:
            if not self._answers:
                self._changed.wait(seconds)

    # The process

    def _start(self) -> None:
        self._starts.append(time.monotonic())
        words = [sys.executable, "-m", "fedpub.flower.gate_process"]
        self._process = child(words, self._folder / "logs" / "gate.log", QUIET)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._writer = Writer(self._process.stdin)
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="fedpub-post", daemon=True)
        self._reader.start()
        about = {"host": self.host, "port": self.port, "folder": str(self._folder), "largest": self._largest}
        self._writer.write(about)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        for head, body in frames(process.stdout):  # type: ignore[arg-type]
            self._take(head, body)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        with self._changed:
            self._sites = {}
            self._changed.notify_all()
        if not self._ended and not self._problem:
            self._start_again(process.returncode)

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        if head["is"] == "log":
            log.log(head["level"], "%s", head["text"])
            return
        with self._changed:
            match head["is"]:
                case "ready":
                    self._ready, self.port = True, head["port"]
                case "failed":
                    self._problem = head["why"]
                case "present":
                    self._sites, self.strangers, self.refused = head["sites"], head["strangers"], head["refused"]
                case "answer":
                    self._answers[head["number"]] = body
                case "lost":  # the node has changed meanwhile: to be sent again
                    self._answers[head["number"]] = None
            self._changed.notify_all()

    def _start_again(self, status: int) -> None:
        """Sites reconnect by themselves, and get their messages again."""
        recent = [one for one in self._starts if one > time.monotonic() - CALM]
        if not self._ready or len(recent) > TRIES:
            with self._changed:
                self._problem = f"the gate has ended with status {status}; see logs/gate.log"
                self._changed.notify_all()
            return
        log.warning("the gate has ended with status %s and is started again", status)
        self._start()
