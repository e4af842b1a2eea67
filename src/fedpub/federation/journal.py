"""The audit log of one end: a file of JSON lines to which lines are only ever added, each chained to the one before.

The last key of a line is `hash`, the SHA-256 of the line without it; `previous` is the hash of the line before. So no
line can be changed, removed or moved without changing all lines after it, and what the other end has logged shows
that (`journal_check.py`).

A line is on the disk before its message leaves. If a kill or a full disk cuts a line short, its message has not left:
the next writer cuts the rest of that line off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpub.errors import FedpubError

FILE = "audit.jsonl"
START = "0" * 64  # what the first line is chained to
MARK = b',"hash":"'
END = b'"}\n'
BLOCK = 2**16  # bytes that are read at once from the end of the file

FORM: dict[str, Any] = {
    **dict.fromkeys(("time", "at", "site", "direction", "kind", "digest", "previous"), str),
    **dict.fromkeys(("run", "question"), str | None),
    **dict.fromkeys(("line", "bytes"), int),
    "round": int | None,
    "tensors": list,
}  # of a line

Entry = Mapping[str, Any]


class BrokenError(FedpubError):
    """A line that is not as it was written."""


@dataclass(frozen=True)
class Line:
    """A line of the log whose hash is that of its content."""

    number: int
    entry: dict[str, Any]
    hash: str


class Journal:
    """The log at `path`; several processes may write to it, one at a time. Only the last hash is kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None  # the file, and its length after the last line that is known here
        self._count, self._head = 0, START
        if path.is_file():
            with self._opened() as file:
                self._catch_up(file)

    def write(self, entries: Sequence[Entry], durable: bool = True) -> str:
        """Add a line for each entry, and return the hash of the last one; `durable`: all lines are on the disk now."""
        with self._opened() as file:
            end = self._catch_up(file)
            count, head, text = self._count, self._head, bytearray()
            for entry in entries:
                count += 1
                line, head = chained(count, entry, head)
                text += line
            try:
                _write_all(file, text)
                if durable:
                    os.fsync(file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, end)
                self._seen = None
                raise
            self._count, self._head, self._seen = count, head, (os.fstat(file).st_ino, end + len(text))
        return head

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                _lock(file)
                yield file
            finally:
                os.close(file)  # releases the lock, too
        except OSError as error:
            raise FedpubError(
                f"cannot write {self.path} ({error.strerror}), and no message leaves without its line there; free "
                "some space, or make the file writable"
            ) from error

    def _catch_up(self, file: int) -> int:
        """Read the last line if this is not where the last writing here ended; the length of the file."""
        known = os.fstat(file)
        if (known.st_ino, known.st_size) == self._seen:
            return known.st_size
        tail, end = _tail(file, known.st_size)
        if end < known.st_size:
            os.ftruncate(file, end)
        try:
            last = parsed(tail) if tail else None
        except BrokenError as error:
            raise FedpubError(
                f"the last line of {self.path} was changed ({error}); see fedpub audit verify, and move the file away "
                "to begin a new log"
            ) from error
        self._count, self._head = (last.number, last.hash) if last else (0, START)
        self._seen = (known.st_ino, end)
        return end


def chained(number: int, entry: Entry, previous: str) -> tuple[bytes, str]:
    """A line with its number and both hashes; its own hash."""
    whole = {"line": number, **entry, "previous": previous}
    body = json.dumps(whole, separators=(",", ":")).encode()
    own = hashlib.sha256(body).hexdigest()
    return body[:-1] + MARK + own.encode() + END, own


def parsed(line: bytes) -> Line:
    """A line that is as it was written; a BrokenError otherwise."""
    body, mark, rest = line.rpartition(MARK)
    own = hashlib.sha256(body + b"}").hexdigest()
    if not mark or rest != own.encode() + END:
        raise BrokenError("its hash is not that of its content")
    try:
        entry = json.loads(body + b"}")
        whole = all(isinstance(entry[name], kinds) for name, kinds in FORM.items())
    except (ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise BrokenError("it is no line of an audit log")
    return Line(entry["line"], entry, own)


def lines(path: Path) -> Iterator[Line]:
    """All lines in their order, each checked against the one before; a BrokenError names the first that is wrong.

    A last line that was cut short is left out.
    """
    previous = START
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    return
                line = _checked(number, text, previous)
                yield line
                previous = line.hash
    except OSError as error:
        raise FedpubError(f"there is no audit log to read at {path} ({error.strerror})") from error


def is_torn(path: Path) -> bool:
    """Whether the last line was cut short."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() not in (b"", b"\n")


def _checked(number: int, text: bytes, previous: str) -> Line:
    try:
        line = parsed(text)
    except BrokenError as error:
        raise BrokenError(f"line {number} was changed: {error}") from None
    if line.number != number:
        raise BrokenError(
            f"line {number} was written as line {line.number}: lines are missing before it, or out of order"
        )
    if line.entry["previous"] != previous:
        where = f"line {number - 1}" if number > 1 else "the beginning of the log"
        raise BrokenError(f"line {number} does not follow {where}: one of the two was replaced")
    return line


def _tail(file: int, size: int) -> tuple[bytes, int]:
    """The last whole line, and where it ends; a line that was cut short comes after that."""
    found, start, end = b"", size, size
    while start > 0:
        step = min(max(BLOCK, len(found)), start)  # twice as much each time: lines may be long
        start -= step
        found = os.pread(file, step, start) + found
        end = start + found.rfind(b"\n") + 1
        if end > start and (before := found.rfind(b"\n", 0, end - start - 1)) >= 0:
            return found[before + 1 : end - start], end
    return found[: end - start], end


def _write_all(file: int, text: bytes | bytearray) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        return
    fcntl.flock(file, fcntl.LOCK_EX)
