"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpub.errors import FedpubError

NAME_LENGTH = 80


def slug(text: str) -> str:
    """The text with other characters than letters, digits, `.`, `-` and `_` as dashes; at most 80, ends trimmed."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[:NAME_LENGTH]


def file_name(name: str) -> str:
    """An untrusted name made safe as part of a file name: it cannot lead to another folder or be too long.

    A name that has to be changed ends in `~`, which no unchanged name contains, and a digest: names never collide.
    """
    plain = slug(name)
    if plain and plain == name:
        return name
    return f"{plain}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:10]}"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file in the folder of `path`: renamed to `path` if the block succeeds, deleted if it fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # the system applies the umask
    except OSError as error:
        raise FedpubError(f"cannot write {path}: {error.strerror}; choose a folder you may write to") from error
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    os.close(handle)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(mode)  # what wrote to it may have made a file of its own
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with writing(path), atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def append_line(path: Path, line: str) -> None:
    """Append a line, starting a new one even if a kill or a full disk truncated the last."""
    with writing(path), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())


def stamp(path: Path) -> object:
    """What differs after a file was written."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that a killed process left for these names."""
    for name in names:
        for left in folder.glob(f".{name}.*"):
            if left.is_file():
                left.unlink()


@contextmanager
def writing(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """An OSError, or one of these, as a sentence."""
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except caught as error:
        raise FedpubError(f"cannot write {path} ({error}); free some space or choose another folder") from error
