"""SIGTERM, with which systemd, containers and Kubernetes end a service: it ends cleanly, and with status 0.

Status 0, since being stopped is what was asked for: a supervisor that restarts after failures leaves it stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130  # the exit status that shells use
# The verbs that end cleanly, and with which status; a federation that was to have a result has none.
STATUS = {"coordinator start": 0, "site start": 0, "site join": 0, "deploy local": INTERRUPTED}
SENTENCE = "ended by SIGTERM"


class Terminated(KeyboardInterrupt):
    """SIGTERM has arrived: what is open is closed on the way out."""


@contextmanager
def at_once(verb: str, say: Callable[[str], None]) -> Iterator[None]:
    """Until a verb has opened anything, SIGTERM prints a sentence and ends the process.

    An exception would not do: it could be lost in the import of another library.
    """

    def end(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError, OSError):  # it arrived in the middle of printing, or no one reads it
            say(SENTENCE)
            sys.stderr.flush()
        os._exit(STATUS[verb])

    with _handled(end if verb in STATUS else None):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM raises Terminated in the main thread."""
    asked = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise Terminated

    with _handled(end):
        try:
            yield
        except Terminated:
            raise
        except BaseException as error:  # another library's error about the interruption
            if asked:
                raise Terminated from error
            raise


@contextmanager
def _handled(end: Callable[[int, FrameType | None], None] | None) -> Iterator[None]:
    """With this handler for SIGTERM; only the main thread can have one."""
    if end is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
