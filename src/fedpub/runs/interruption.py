"""Ctrl-C that takes effect after the current round."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """While the block runs, the first Ctrl-C is only recorded: the yielded function returns whether there was one.

    The current round can then be finished and saved. A second Ctrl-C interrupts at once, as usual.
    """
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread():  # the only one that can handle signals
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
