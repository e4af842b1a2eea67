"""Child processes that end with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedpub.core.children import signalled_with_parent
from fedpub.errors import FedpubError

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
GRACE = 15.0
CHILD_GRACE = 5.0


def require_flower() -> None:
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise FedpubError("this needs Flower, which is not installed: pip install 'fedpub[deploy]'") from error


def start(words: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process in its own group with its output in a file; it does not outlive this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET, **(env or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def child(words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process that is spoken to over its standard input and output; it ends when they are closed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # Ctrl-C is for the parent
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started by `child`."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(CHILD_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    signalled_with_parent(signal.SIGTERM)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and their children."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
