"""Letters by Flower's messages.

A site's process may die with a message in its hands: then no answer ever comes, and no error either. So a letter is
sent again from time to time until the deadline; sites answer the same letter the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

AGAIN = 20.0  # seconds before a letter is sent again
POLL = 0.2
LETTER = "letter"


class FlowerExchange:
    """Carries letters over a grid; `nodes` tells which of Flower's nodes each site is just now."""

    def __init__(self, grid: Any, nodes: Callable[[], Mapping[int, int]], again: float = AGAIN) -> None:
        self._grid, self._nodes, self._again = grid, nodes, again

    def __call__(self, letters: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        until = time.monotonic() + deadline
        pending: dict[str, int] = {}  # messages on their way, and to whom
        sent: dict[int, float] = {}
        found: dict[int, bytes] = {}
        while len(found) < len(letters) and (now := time.monotonic()) < until:
            there = self._nodes()
            for client, letter in letters.items():
                due = client not in sent or now - sent[client] > self._again
                if client not in found and client in there and due:
                    message = Message(packed(letter), there[client], "query", ttl=until - now + 60)
                    for number in self._grid.push_messages([message]):
                        pending[number] = client
                    sent[client] = now
            for reply in self._grid.pull_messages(list(pending)) if pending else ():
                # An error comes from the link, not from the site: only what it replies to tells whose it is.
                client = pending.pop(reply.metadata.reply_to_message_id, -1)
                if client in found or client < 0:
                    continue
                if reply.has_error():
                    sent[client] = time.monotonic() - self._again + 2  # again, but not at once
                elif (answer := unpacked(reply.content)) is not None:
                    found[client] = answer
            time.sleep(POLL)
        return found


def packed(letter: bytes) -> RecordDict:
    array = np.frombuffer(letter, dtype=np.uint8)
    return RecordDict({LETTER: ArrayRecord({LETTER: Array(array)}), "about": ConfigRecord({"size": len(letter)})})


def unpacked(content: RecordDict) -> bytes | None:
    """The letter of a message; None where it is none of ours."""
    record = content.get(LETTER)
    if not isinstance(record, ArrayRecord) or LETTER not in record:
        return None
    try:
        array = record[LETTER].numpy()
    except (ValueError, TypeError, OSError):
        return None
    return bytes(array.tobytes()) if array.dtype == np.uint8 and array.ndim == 1 else None
