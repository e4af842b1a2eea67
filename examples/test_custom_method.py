"""The simulator, with all clients stacked, and sites that exchange encoded messages give the same numbers."""

from __future__ import annotations

import pytest
import torch
from custom_method import Halfway

from fedpub.experiment import Experiment
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows

NAMES = ("simulated", "deployed")


def test_sites_give_the_simulators_numbers(tmp_path):
    experiment = Experiment(method="halfway", clients=4, rounds=3, hidden=8, dtype="float64")
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(Coordinator(experiment, "0" * 16, sites.names, sites, tmp_path / "sites"), tmp_path / "deployed")
    pairs = list(zip(read_rows(tmp_path / "simulated"), read_rows(tmp_path / "deployed"), strict=True))
    assert len(pairs) == 3
    for simulated, deployed in pairs:  # sites tell their losses with four digits
        for column, digits in (("loss", 1e-3), ("val", 1e-9), ("test", 1e-3)):
            assert deployed.clients[column] == pytest.approx(simulated.clients[column], abs=digits)
    simulated, deployed = (RunDirectory(tmp_path / name).restore(torch.device("cpu"))[0] for name in NAMES)
    torch.testing.assert_close(deployed.server, simulated.server, rtol=0, atol=1e-9)


def test_with_a_share_of_one_it_is_fedavg():
    changed, plain = (
        run(Experiment(method=method, options=options, clients=4, rounds=3, hidden=8, dtype="float64")).summary
        for method, options in (("halfway", {"share": 1.0}), ("fedavg", {}))
    )
    assert changed["per_client_test"] == plain["per_client_test"]
    assert Halfway(share=1.0).uploads == {"weights", "size"}
