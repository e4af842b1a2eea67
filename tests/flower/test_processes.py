"""Processes of a local federation end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys, time
from pathlib import Path
from fedpub.flower.processes import start
print(start([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def computes(process: int) -> bool:
    """Whether a process has not ended; one that has may wait for someone to ask for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a signal")
def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    try:
        assert computes(child)
        parent.kill()
        parent.wait()
        until = time.monotonic() + 20
        while computes(child):
            assert time.monotonic() < until, "it is still there"
            time.sleep(0.01)
    finally:
        parent.kill()
        if computes(child):
            os.kill(child, signal.SIGKILL)
        parent.stdout.close()
