"""Secure aggregation between real processes, over TLS and with keys."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_deployment import processes_in, wait_for
from test_secure_rounds import assert_same_server

from fedpub.cli import main
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.policy import Policy
from fedpub.federation.requests import Terms
from fedpub.flower.folder import CoordinatorFolder
from fedpub.flower.local import lay_out, start_site
from fedpub.flower.processes import start, stop
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]

# A site that is not as the others: what it does instead when it is asked for something in the second round.
STRANGE = """
import os, sys
from fedpub.cli import main
from fedpub.federation.secure import at_site
from fedpub.federation.secure.party import Party
from dataclasses import replace

usual, revealed = at_site.Sharing.answer, Party.revealed

def killed(self, asked):
    if asked.kind == "confirm" and asked.fields["round"] == 2:
        os._exit(9)
    return usual(self, asked)

def lies(self, survivors, confirmations):
    found = revealed(self, survivors, confirmations)
    return replace(found, shares={one: bytes(32) for one in found.shares})

if sys.argv[1] == "killed":
    at_site.Sharing.answer = killed
else:
    Party.revealed = lies
sys.exit(main(["site", "start", "--folder", sys.argv[2]]))
"""


def test_one_is_killed_after_masking_and_one_lies_about_its_shares(tmp_path):
    """The sum is right, bit for bit, and the liar is named."""
    experiment = Experiment(clients=4, rounds=2, hidden=16, method="fedavg", secure=True).resolve()
    run(experiment, tmp_path / "simulated", chunk=1, keep_checkpoint=True)
    out, base = tmp_path / "deployed", tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(experiment), experiment, Terms(deadline=20), out)
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", str(coordinator), "--quiet"]
    running = [start_site(site) for site in sites[:2]]
    for what, site in zip(("killed", "lies"), sites[2:], strict=True):
        log = site / "logs" / "site.log"
        running.append(start([sys.executable, "-c", STRANGE, what, str(site)], log, {"OMP_NUM_THREADS": "1"}))
    leader = start(words, base / "coordinator.log", {"OMP_NUM_THREADS": "1"})
    try:
        wait_for(lambda: leader.poll() is not None)
        assert leader.returncode == 0, (base / "coordinator.log").read_text()
    finally:
        stop([leader, *running])
    assert running[2].returncode == 9
    assert_same_server(out, tmp_path / "simulated")
    events = CoordinatorFolder(coordinator).read_events()
    assert {event["site"] for event in events if event["event"] == "refused"} == {"site-3"}
    assert RunDirectory(out).summary()["per_client_test"] == []
    wait_for(lambda: not processes_in(tmp_path), 30)


def test_one_command_makes_a_secure_federation_of_sites_that_trust_each_other(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["deploy", "local", "--secure", "--method", "fedpub-plus", "--sites", "3", "--rounds", "2", "--hidden", "8"]
    assert main([*words, "--out", str(out), "--quiet"]) == 0
    assert "nothing is known but their sums" in capsys.readouterr().out
    assert main(["status", "--folder", str(out / "deployment" / "coordinator"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [site["rounds"] for site in status["sites"]] == [2, 2, 2]
    assert [site["val"] for site in status["sites"]] == [None] * 3
    assert main(["audit", "verify", str(out / "deployment" / "coordinator")]) == 0
    wait_for(lambda: not processes_in(tmp_path), 30)


def test_a_site_whose_policy_demands_secure_runs_refuses_a_plain_one(tmp_path):
    experiment = Experiment(clients=3, rounds=1, hidden=8, method="fedavg").resolve()
    out, base = tmp_path / "deployed", tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(experiment), experiment, Terms(deadline=20), out)
    Policy(secure=True).save(sites[1])
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", str(coordinator), "--quiet"]
    running = [start_site(site) for site in sites]
    leader = start(words, base / "coordinator.log")
    try:
        wait_for(lambda: leader.poll() is not None)
    finally:
        stop([leader, *running])
    assert leader.returncode == 2
    assert "outside this site's policy (secure" in Path(base / "coordinator.log").read_text()
