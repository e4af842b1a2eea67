"""Files and folders that only their owner can read.

What a coordinator or a site keeps, from keys to models, is for the user that it runs as. The umask says so for every
file at once, from its first byte on: also for logs and others that a library writes. A mode given to each file would
be forgotten for the next one. Windows has no such modes: there a folder's own rules decide.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedpub.core.printable import printable

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextlib.contextmanager
def owner_only() -> Iterator[None]:
    """While the block runs, this process and those that it starts write for their owner alone."""
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def tighten(folder: Path) -> str | None:
    """Take a folder and all in it from other users; what was done, or could not be, in a sentence, if anything."""
    if os.name == "nt":
        return None
    changed, problem = False, ""
    for path in (folder, *_below(folder)):
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) or not mode & OTHERS:
                continue
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
            changed = True
            if path.lstat().st_mode & OTHERS:  # some file systems keep no modes, and say nothing
                problem = f"{path}: its file system keeps no permissions, so keep the folder on another one"
        except FileNotFoundError:
            continue  # temporary
        except OSError as error:
            problem = f"{path}: {error.strerror}, so run this as the owner of the folder"
    if problem:
        return f"other users of this machine may be able to read {folder} ({printable(problem)})"
    if changed:
        return f"{folder} was readable by other users of this machine; now only its owner can read it"
    return None


def _below(folder: Path) -> Iterator[Path]:
    """Everything in a folder; not what links in it lead to."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))
