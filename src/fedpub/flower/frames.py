"""What the coordinator and its gate's process tell each other: JSON and bytes, over a pipe."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

LENGTHS = struct.Struct("<IQ")  # of the JSON, and of the bytes


class Writer:
    """Writes whole frames from any thread."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._lock = file, threading.Lock()

    def write(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        text = json.dumps(head).encode()
        with self._lock:
            self._file.write(LENGTHS.pack(len(text), len(body)) + text)
            self._file.write(body)
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def frames(file: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The frames until the other side closes the pipe."""
    while len(lengths := file.read(LENGTHS.size)) == LENGTHS.size:
        head, body = LENGTHS.unpack(lengths)
        text, content = file.read(head), file.read(body)
        if len(text) < head or len(content) < body:
            return
        yield json.loads(text), content
