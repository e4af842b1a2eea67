"""A federation of real processes over loopback, with TLS and keys."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from fedpub.cli import main
from fedpub.engine.federate import Terms
from fedpub.engine.flower.local import lay_out, start_site
from fedpub.engine.flower.processes import start, stop
from fedpub.experiment import Experiment, prepare, run
from fedpub.results import RunDirectory, read_rows
from test_federate import assert_same_rows

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]
SECONDS = 300.0


def wait_for(what, seconds: float = SECONDS) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def processes_in(folder: Path) -> list[str]:
    """The processes that have the folder in their command line or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if entry.name != str(os.getpid()) and str(folder).encode() in told:
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def test_sites_and_coordinator_may_be_killed(tmp_path):
    """Four sites; one is killed in a round and comes back, then the coordinator is, and goes on: as if nothing was."""
    experiment = Experiment(clients=4, rounds=4, hidden=16, dtype="float64", options={"lambda1": 0.3, "mask_lr": 10.0})
    experiment = experiment.resolved()
    run(experiment, tmp_path / "simulated")
    out, base = tmp_path / "deployed", tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(experiment), experiment, Terms(deadline=200), out)
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", str(coordinator), "--quiet"]
    running = {site: start_site(site) for site in sites}
    leader = start(words, base / "coordinator.log")
    try:
        wait_for(lambda: len(read_rows(out)) >= 1)
        os.killpg(running[sites[2]].pid, signal.SIGKILL)  # with Flower's node
        running[sites[2]].wait()
        time.sleep(1)
        running[sites[2]] = start_site(sites[2])
        wait_for(lambda: len(read_rows(out)) >= 2)
        leader.kill()  # only the one: what it started must notice
        leader.wait()
        leader = start([*words, "--resume"], base / "coordinator.log")
        wait_for(lambda: leader.poll() is not None)
        assert leader.returncode == 0, (base / "coordinator.log").read_text()
    finally:
        stop([leader, *running.values()])
    assert_same_rows(out, tmp_path / "simulated")
    expected, found = (RunDirectory(path).summary() for path in (tmp_path / "simulated", out))
    assert found["best_round"] == expected["best_round"]
    assert found["test"] == pytest.approx(expected["test"], abs=1e-9)
    assert all((site / "model" / "model.safetensors").is_file() for site in sites)
    wait_for(lambda: not processes_in(tmp_path), 30)


def test_one_command_is_a_federation_that_leaves_nothing_behind(tmp_path, capsys):
    out = tmp_path / "run"
    assert (
        main(["deploy", "local", "--sites", "2", "--rounds", "1", "--hidden", "8", "--out", str(out), "--quiet"]) == 0
    )
    assert "test accuracy" in capsys.readouterr().out
    expected = run(Experiment(clients=2, rounds=1, hidden=8), tmp_path / "simulated")
    names = {path.name for path in (tmp_path / "simulated").iterdir()}
    assert names <= {path.name for path in out.iterdir()}
    assert RunDirectory(out).summary()["test"] == pytest.approx(expected.summary["test"], abs=1e-6)
    wait_for(lambda: not processes_in(tmp_path), 30)
    folder = str(out / "deployment" / "coordinator")
    assert main(["status", "--folder", folder, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["round"], [site["rounds"] for site in status["sites"]]) == ("finished", 1, [1, 1])
    assert main(["site", "audit", "--folder", str(out / "deployment" / "sites" / "site-0")]) == 0
    told = capsys.readouterr().out
    assert "weights/conv1.weight" in told
    assert "masks/conv1.weight" in told.split("stays here")[1]
    assert main(["coordinator", "start", "--folder", folder]) == 2
    assert "holds a run that has begun" in capsys.readouterr().err
