"""Letters between two processes of one machine, over a socket in a folder that only its owner may enter."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

LENGTH = struct.Struct("<Q")
LIMIT = 2**34
ENDING = 5.0  # seconds that a letter under way is waited for at the end


def ask(line: socket.socket, letter: bytes) -> bytes:
    write(line, letter)
    return read(line)


def write(line: socket.socket, data: bytes) -> None:
    line.sendall(LENGTH.pack(len(data)))
    line.sendall(data)


def read(line: socket.socket) -> bytes:
    size = LENGTH.unpack(_exactly(line, LENGTH.size))[0]
    if size > LIMIT:
        raise ConnectionError(f"a letter of {size} bytes is more than the relay takes")
    return _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = line.recv(min(left, 2**20))
        if not part:
            raise ConnectionError("the other end of the relay went away")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[Path]:
    """While the block runs, letters to the socket at the path are answered, one after the other."""
    with tempfile.TemporaryDirectory(prefix="fedpub-") as folder:  # short: a socket's path may have 107 bytes
        path = Path(folder) / "site"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(str(path))
            door.listen(16)
            thread = threading.Thread(target=_serve, args=(door, answer), daemon=True)
            thread.start()
            try:
                yield path
            finally:
                with contextlib.suppress(OSError):
                    door.shutdown(socket.SHUT_RDWR)
                # A thread that computed with torch must not end together with the process: that can abort it.
                thread.join(ENDING)


def _serve(door: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    while True:
        try:
            line, _ = door.accept()
        except OSError:  # closed
            return
        with line, contextlib.suppress(OSError):  # who asked may have gone: the answer is kept
            write(line, answer(read(line)))
