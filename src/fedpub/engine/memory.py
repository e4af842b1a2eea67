"""How much memory there is, and buffers that are reused instead of freed.

A round allocates the same large buffers as the round before it. glibc returns each of them to the system when it is
freed and gets fresh, zeroed pages for the next, which costs half of a round's time on a CPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpub.errors import FedpubError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # numbers of glibc's malloc.h
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
# A container's limit, its usage, and the part of that in droppable file caches: cgroup versions 2 and 1.
LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# Texts in torch's out-of-memory errors, on a CPU and on a GPU.
NO_MEMORY = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator", "out of memory")


def keep_buffers() -> None:
    """Ask the allocator to keep freed buffers for this process; no effect without glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def resident() -> int:
    """The resident memory of this process in bytes; its peak if the system does not report the current value."""
    try:
        return int((PROC / "self" / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return most_resident()


def most_resident() -> int:
    """The peak resident memory of this process in bytes."""
    try:
        lines = (PROC / "self" / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # not Linux
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def whole() -> int | None:
    """All memory of this machine or container, in bytes; None if unknown."""
    total = _meminfo("MemTotal") or _physical()
    return None if total is None else min([total, *(limit for limit, _ in _limits())])


def available() -> int | None:
    """The bytes that can still be allocated; None if unknown."""
    free = _meminfo("MemAvailable") or whole()
    return None if free is None else max(0, min([free, *(limit - used for limit, used in _limits())]))


def _limits() -> Iterator[tuple[int, int]]:
    """The limit and the usage of every container around this process."""
    for controller, limit_file, used_file, cached in LIMITS:
        for folder in _folders(controller):
            try:
                limit, used = ((folder / name).read_text().strip() for name in (limit_file, used_file))
                stat = (folder / "memory.stat").read_text().split()
            except OSError:
                continue
            if limit.isdigit():  # else "max"
                files = int(stat[stat.index(cached) + 1]) if cached in stat else 0
                yield int(limit), max(0, int(used) - files)


def _folders(controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of its parents."""
    yield CGROUP / controller
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part]
        if controller in names.split(","):
            yield from (CGROUP.joinpath(controller, *parts[:end]) for end in range(1, len(parts) + 1))


def _meminfo(name: str) -> int | None:
    """An entry of Linux's /proc/meminfo, in bytes."""
    try:
        lines = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines() if ":" in line)
    except OSError:
        return None
    return int(lines[name].split()[0]) * 1024 if name in lines else None


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return None


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn a failed allocation in the block into an error of one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(said in str(error) for said in NO_MEMORY):
            raise
        raise FedpubError(
            "there is not enough memory for this run; give `max_memory` the GiB that it may take, or on a GPU a "
            "`chunk` of clients to compute at a time, or a smaller `hidden`; saved results are kept"
        ) from error
