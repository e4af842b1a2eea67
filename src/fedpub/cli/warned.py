"""Warnings of fedpub's own loggers as lines of a verb: those of the gate tell what sites and strangers do.

Without a handler, logging would print them as they are, also between JSON objects and as often as a site likes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fedpub.cli.lines import LONGEST, Lines
from fedpub.core.printable import printable

LOGGER = "fedpub"
SECONDS = 60.0  # in which a kind of warning is shown once
WORDS = 7  # that make a kind: they name what happened, and the site; sizes and reasons follow
KINDS = 100  # in that time; what else there is can only be someone's invention


class Seldom(logging.Filter):
    """Lets a kind of warning pass once a minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now, self._shown = now, dict[tuple[str, ...], float]()

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        self._shown = {kind: at for kind, at in self._shown.items() if now - at < SECONDS}
        kind = (record.name, *record.getMessage()[:LONGEST].split(maxsplit=WORDS)[:WORDS])
        if kind in self._shown or len(self._shown) >= KINDS:
            return False
        self._shown[kind] = now
        return True


class _Shown(logging.Handler):
    def __init__(self, tell: Lines) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self.addFilter(Seldom())

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # no one reads the lines any more
            self._tell(printable(record.getMessage(), LONGEST), "warning", logger=record.name)


@contextmanager
def warnings_told(tell: Lines) -> Iterator[None]:
    """While the block runs, warnings are lines, and nothing else prints them."""
    logger, handler = logging.getLogger(LOGGER), _Shown(tell)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
