"""The gate in a process of its own: what reaches the port takes neither the coordinator's time nor its memory.

Commands come on standard input; presence, answers, counts and the log leave on standard output. It ends with the
coordinator, which closes the pipe however it ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.flower.frames import Writer, frames
from fedpub.flower.gate import Gate
from fedpub.flower.link import Link
from fedpub.flower.logs import log_to

LOOK = 0.5  # seconds between two looks at which sites are present
BEAT = 4  # looks between two signs of life
FILES = 4096  # open files, where the system allows them


class _ToCoordinator(logging.Handler):
    def __init__(self, out: Writer) -> None:
        super().__init__(logging.WARNING)
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._out.write({"is": "log", "level": record.levelno, "text": printable(record.getMessage(), 1000)})


class Served:
    """The gate and the mailboxes behind it, and what the coordinator is told of them."""

    def __init__(self, host: str, port: int, folder: Path, largest: int, out: Writer) -> None:
        self._out, self._told = out, ""
        self._link = Link(lambda number, data: out.write({"is": "answer", "number": number}, data), largest, folder)
        self.gate = Gate(host, port, self._serve, folder)

    async def _serve(self, site: str, name: str, body: bytes) -> bytes:
        answer = await self._link.serve(site, name, body)
        if name in ("activate-node", "deactivate-node"):
            self._tell_present()
        return answer

    def do(self, head: dict[str, Any], body: bytes) -> None:
        """One command; mailboxes belong to the thread of the gate."""
        if head["do"] == "send":
            self.gate.call(lambda: self._sent(head, body))
        elif head["do"] == "forget":
            self.gate.call(self._link.forget)

    def _sent(self, head: dict[str, Any], body: bytes) -> None:
        if not self._link.send(head["node"], head["number"], body):
            self._out.write({"is": "lost", "number": head["number"]})

    def look(self, beat: bool) -> None:
        self.gate.call(lambda: self._tell_present(beat))

    def _tell_present(self, beat: bool = False) -> None:
        """Tell who is there, how many strangers are connected, and what was refused, if it has changed or is due."""
        sites = dict.fromkeys(self.gate.admission.now().values(), 0)
        head: dict[str, Any] = {"is": "present", "sites": self._link.present(sites)}
        head |= {"strangers": self.gate.lobby.strangers, "refused": dict(self.gate.lobby.refused)}
        if (told := json.dumps(head)) != self._told or beat:
            self._told = told
            self._out.write(head)


def _look(served: Served, ended: threading.Event) -> None:
    looks = 0
    while not ended.wait(LOOK):
        looks += 1
        served.look(looks % BEAT == 0)


def _allow_files() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        if soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main() -> int:
    """Serve until standard input ends; the first line of it says where and what."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which then closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _allow_files()
    out = Writer(os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else writes into the pipe
    asked = frames(sys.stdin.buffer)
    head, _ = next(asked)
    log_to(Path(head["folder"]) / "logs" / "link.log", "")
    logging.getLogger("fedpub").addHandler(_ToCoordinator(out))
    served = Served(head["host"], head["port"], Path(head["folder"]), head["largest"], out)
    try:
        with served.gate as gate:
            out.write({"is": "ready", "port": gate.port})
            ended = threading.Event()
            threading.Thread(target=_look, args=(served, ended), name="fedpub-looking", daemon=True).start()
            for command, body in asked:
                served.do(command, body)
            ended.set()
    except FedpubError as error:
        out.write({"is": "failed", "why": str(error)})
        return 2
    except BrokenPipeError:  # the coordinator is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
