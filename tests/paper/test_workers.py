"""A command that computes in several processes is killed: nothing of it is left but the runs so far."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys
from pathlib import Path
from fedpub.experiment import Experiment
from fedpub.paper.store import Job, compute

if __name__ == "__main__":
    long = {"dataset": sys.argv[1], "method": "fedavg", "rounds": 100_000, "hidden": 4}
    jobs = [Job(Experiment(seed=seed, **long).resolve().experiment) for seed in range(2)]
    list(compute(jobs, Path(sys.argv[2]), None, 2))
"""
ENOUGH = 60.0  # seconds, for a busy machine


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_of_a_killed_command_end_and_leave_no_temporary_folder(number, graph_file, tmp_path):
    temporary, runs, script = tmp_path / "temporary", tmp_path / "runs", tmp_path / "script.py"
    temporary.mkdir()
    script.write_text(SCRIPT, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), graph_file, str(runs)],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        until = time.monotonic() + ENOUGH
        while len(list(runs.glob("*/clients.csv"))) < 2:  # both workers compute
            assert parent.poll() is None
            assert time.monotonic() < until, "no run has begun"
            time.sleep(0.02)
        parent.send_signal(number)
        parent.communicate(timeout=ENOUGH / 2)  # until the last process that has its output has ended
        assert list(temporary.iterdir()) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
