"""Processes from outside: the rounds that one has recorded, and what it holds where the system tells (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path


def resident(pid: int) -> int:
    """Bytes in memory; 0 where it is not known."""
    return _status(pid, "VmRSS:")


def peak(pid: int) -> int:
    """The most bytes that were ever in memory; 0 where it is not known."""
    return _status(pid, "VmHWM:")


def open_files(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    """The processes that any of its threads has started."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, file.read_text(encoding="ascii").split())
    return found


def rounds_in(out: Path) -> int:
    """How many rounds are in the record: its lines but the first."""
    path = out / "rounds.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0


def _status(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
