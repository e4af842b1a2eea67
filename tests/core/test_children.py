"""Processes end with their parent: real ones, whose parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, multiprocessing, sys, time
from fedpub.core.children import end_with_parent

def compute(how):
    if how == "elsewhere":
        sys.platform = "elsewhere"
    end_with_parent()
    sys.setswitchinterval(600)  # no other thread gets between the next two lines
    print("ready", flush=True)
    if how == "held":
        ctypes.PyDLL(None).sleep(600)  # keeps the interpreter to itself, as a long computation in C does
    time.sleep(600)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=compute, args=sys.argv[1:])
    child.start()
    child.join()
"""
ENOUGH = 30.0  # seconds, for a busy machine


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("held", marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a signal")),
        "elsewhere",
    ],
)
def test_a_child_ends_with_its_parent(how: str, number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), how], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(number)
        assert parent.communicate(timeout=ENOUGH)[0] == "", "its output ends when the last process that has it does"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
