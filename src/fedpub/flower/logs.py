"""Logs of what other machines say: in files of bounded size, with nothing that is not printable."""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from fedpub.core.printable import printable

BYTES = 2**20


class _Shown(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {record.levelname} {printable(record.getMessage(), 1000)}"


def log_to(path: Path, name: str = "flwr") -> None:
    """Send a log to a file and nowhere else; by default Flower's, since it quotes what other machines send."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(_Shown())
    logger = logging.getLogger(name)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
