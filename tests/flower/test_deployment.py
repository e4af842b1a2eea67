"""A federation of real processes over loopback, with TLS and keys."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_cli import example_of
from test_federation import assert_same_rows, assert_told, simulate_without

from fedpub.cli import main
from fedpub.data.clients.subgraph_files import write_subgraph
from fedpub.data.datasets import load
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.policy import FILE as POLICY
from fedpub.federation.policy import SETTINGS, Policy
from fedpub.federation.requests import Terms
from fedpub.flower.folder import CoordinatorConfig
from fedpub.flower.gate import Gate
from fedpub.flower.keys import admit, certified_hosts, make_authority, make_certificate, make_site_key, read_admitted
from fedpub.flower.local import lay_out, start_site
from fedpub.flower.processes import start, stop
from fedpub.flower.sites import SiteConfig
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows

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
    experiment = Experiment(clients=4, rounds=3, hidden=16, dtype="float64", options={"lambda1": 0.3, "mask_lr": 10.0})
    experiment = experiment.resolve()
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    out, base = tmp_path / "deployed", tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(experiment), experiment, Terms(deadline=200), out)
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", str(coordinator), "--quiet"]
    running = {site: start_site(site) for site in sites}
    leader = start(words, base / "coordinator.log")
    try:
        wait_for(lambda: len(read_rows(out)) >= 1)
        running[sites[2]].kill()
        running[sites[2]].wait()
        running[sites[2]] = start_site(sites[2])
        wait_for(lambda: len(read_rows(out)) >= 2)
        leader.kill()  # only the one, as above: what it started must notice
        leader.wait()
        leader = start([*words, "--resume"], base / "coordinator.log")
        wait_for(lambda: leader.poll() is not None)
        assert leader.returncode == 0, (base / "coordinator.log").read_text()
    finally:
        stop([leader, *running.values()])
    assert_same_rows(out, tmp_path / "simulated")
    expected, found = (RunDirectory(path).summary() for path in (tmp_path / "simulated", out))
    assert found["best_round"] == expected["best_round"]
    assert found["test"] == pytest.approx(expected["test"], abs=5e-5)
    assert all((site / "model" / "model.safetensors").is_file() for site in sites)
    wait_for(lambda: not processes_in(tmp_path), 30)


def test_a_site_is_stopped_past_the_deadline(tmp_path):
    """The others continue; its late answer is taken back, and the numbers are those of a simulation without it."""
    experiment = Experiment(clients=3, rounds=8, hidden=8, dtype="float64").resolve()
    out, base = tmp_path / "deployed", tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(experiment), experiment, Terms(deadline=4), out)
    words = [sys.executable, "-m", "fedpub", "coordinator", "start", "--folder", str(coordinator), "--quiet"]
    running = {site: start_site(site) for site in sites}
    leader = start(words, base / "coordinator.log")

    def counted() -> list[float]:
        return [row.clients["took_part"][2] for row in read_rows(out)]

    try:
        wait_for(lambda: len(counted()) >= 1)
        running[sites[2]].send_signal(signal.SIGSTOP)
        wait_for(lambda: 0 in counted())
        running[sites[2]].send_signal(signal.SIGCONT)
        wait_for(lambda: leader.poll() is not None)
        assert leader.returncode == 0, (base / "coordinator.log").read_text()
    finally:
        running[sites[2]].send_signal(signal.SIGCONT)
        stop([leader, *running.values()])
    rows = read_rows(out)
    assert counted()[-1] == 1, "it takes part again"
    present = {row.round: [k for k in range(3) if row.clients["took_part"][k]] for row in rows}
    for row, expected in zip(rows, simulate_without(experiment, present), strict=True):
        for name in ("val", "test", "loss", "sparsity"):
            assert_told(row.clients[name], expected[name], 1e-9, f"{name} {row.round}")
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
    assert RunDirectory(out).details() == RunDirectory(tmp_path / "simulated").details()  # confusion matrices
    assert RunDirectory(out).summary()["test"] == pytest.approx(expected.summary["test"], abs=5e-5)
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
    joins(tmp_path, Path(folder), capsys)


def joins(tmp_path: Path, coordinator: Path, capsys) -> None:
    """Somebody new with a graph of their own gets a model from the finished federation."""
    graph = load("communities")
    graph.subgraph(torch.nonzero(graph.client == 7).flatten()).save(tmp_path / "my.graph")
    address = f"127.0.0.1:{CoordinatorConfig.load(coordinator).port}"
    site, ca = tmp_path / "newcomer", str(coordinator / "ca.pem")
    words = ["--id", "newcomer", "--coordinator", address, "--graph", str(tmp_path / "my.graph"), "--ca", ca]
    assert main(["site", "init", *words, "--folder", str(site)]) == 0
    assert main(["coordinator", "admit", str(site / "newcomer.pub"), "--folder", str(coordinator)]) == 0
    assert "newcomer is admitted, SHA256:" in capsys.readouterr().out
    fedpub = [sys.executable, "-m", "fedpub"]
    serving = start([*fedpub, "coordinator", "start", "--folder", coordinator, "--joins"], tmp_path / "serving.log")
    joining = start([*fedpub, "site", "join", "--folder", site], tmp_path / "joining.log")
    try:
        wait_for(lambda: joining.poll() is not None)
        wait_for(lambda: serving.poll() is not None, 60)
    finally:
        stop([serving, joining])
    told = (tmp_path / "joining.log").read_text()
    assert (joining.returncode, serving.returncode) == (0, 0), told
    assert "gain" in told
    assert "most alike: site-" in told
    predictions = tmp_path / "predictions.csv"
    wanted = ["--model", str(site / "model"), "--graph", str(tmp_path / "my.graph"), "--out", str(predictions)]
    assert main(["predict", *wanted]) == 0
    assert len(predictions.read_text().splitlines()) == 1 + int((graph.client == 7).sum())
    wait_for(lambda: not processes_in(tmp_path), 30)


def test_the_examples_of_the_verbs(tmp_path, monkeypatch, capsys):
    """From a new federation to a look at what would leave; those that serve are started elsewhere."""
    monkeypatch.chdir(tmp_path)
    load("communities").save(tmp_path / "my.graph")
    assert main(example_of("coordinator init")) == 0
    for name in ("ca.pem", "config.json"):
        shutil.copy(tmp_path / "coordinator" / name, tmp_path)
    assert main(example_of("site init")) == 0
    shutil.copy(tmp_path / "hospital-a" / "hospital-a.pub", tmp_path)
    assert Policy.load(tmp_path / "hospital-a") == Policy()
    assert set(json.loads((tmp_path / "hospital-a" / POLICY).read_text())) == set(SETTINGS), "all that can be limited"
    for verb in ("coordinator admit", "site audit", "site policy", "status"):
        assert main(example_of(verb)) == 0, verb
    assert Policy.load(tmp_path / "hospital-a") == Policy(methods=("fedpub", "fedavg"), min_other_sites=3)
    told = capsys.readouterr().out
    assert "what hospital-a would send in the first round of fedpub" in told
    assert "not begun: round 0 of 50" in told
    assert not (tmp_path / "hospital-a" / "runs").exists(), "a look changes nothing"
    admitted = tmp_path / "coordinator" / "admitted.txt"
    old = read_admitted(admitted)["hospital-a"]
    assert main(example_of("site rotate")) == 0
    assert "fedpub coordinator rotate hospital-a hospital-a.pub" in capsys.readouterr().out
    fresh = str(tmp_path / "hospital-a" / "hospital-a.pub")
    assert main(["coordinator", "rotate", "hospital-a", fresh]) == 0
    assert "hospital-a is admitted by SHA256:" in capsys.readouterr().out
    assert read_admitted(admitted)["hospital-a"] != old
    certificate = (tmp_path / "coordinator" / "server.pem").read_text()
    assert main(example_of("coordinator renew")) == 0
    assert (tmp_path / "coordinator" / "server.pem").read_text() != certificate
    assert certified_hosts(tmp_path / "coordinator") == ["fl.example.org", "localhost", "127.0.0.1", "::1"]
    assert main(["coordinator", "remove", "hospital-b"]) == 2
    assert "unknown site 'hospital-b': did you mean hospital-a" in capsys.readouterr().err
    assert main(["coordinator", "remove", "hospital-a"]) == 0
    assert read_admitted(admitted) == {}
    capsys.readouterr()
    assert main(["site", "init", *example_of("site init")[2:]]) == 2
    assert "already exists; choose another --folder" in capsys.readouterr().err
    assert main(["site", "start", "--folder", "hospital-a", "--id", "hospital-b"]) == 2
    assert "is the folder of 'hospital-a'" in capsys.readouterr().err
    before = (tmp_path / "hospital-a" / "site.json").read_text()
    for device in ("tpu", *(["cuda"] if not torch.cuda.is_available() else [])):
        assert main(["site", "start", "--folder", "hospital-a", "--device", device, "--no-wait"]) == 2
        assert f"{device}" in capsys.readouterr().err
    assert (tmp_path / "hospital-a" / "site.json").read_text() == before
    config = SiteConfig.load(tmp_path / "hospital-a")
    replace(config, device="cuda").save(tmp_path / "hospital-a")
    assert SiteConfig.load(tmp_path / "hospital-a").device == "cuda", "until another is given"


def site_words(tmp_path: Path, capsys) -> tuple[int, str]:
    """What `fedpub site start` says of a site that cannot take part."""
    status = main(["site", "start", "--folder", str(tmp_path / "site"), "--no-wait"])
    return status, capsys.readouterr().err


@pytest.fixture
def gate(tmp_path) -> Iterator[Gate]:
    """A gate without a link behind it, and the folder of a site that it should admit."""
    coordinator, site = tmp_path / "coordinator", tmp_path / "site"
    make_authority(coordinator)
    make_certificate(coordinator, ["localhost"])
    with Gate("127.0.0.1", 0, lambda *_: pytest.fail("nothing is delivered"), coordinator) as made:
        own = prepare(Experiment(clients=2).resolve()).federation.subgraphs[0]
        write_subgraph(site / "piece.safetensors", own, tuple("01234"))
        config = SiteConfig("a", f"127.0.0.1:{made.port}", "")
        config.save(site)
        admit(coordinator / "admitted.txt", "a", make_site_key(config.key(site)))
        shutil.copy(coordinator / "ca.pem", site / "ca.pem")
        yield made


def test_a_key_that_is_not_admitted_is_told_at_the_site(gate, tmp_path, capsys):
    (tmp_path / "coordinator" / "admitted.txt").write_text("")
    status, said = site_words(tmp_path, capsys)
    assert status == 2
    assert "does not admit this site's key" in said


def test_another_authority_is_told_at_the_site(gate, tmp_path, capsys):
    make_authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.pem", tmp_path / "site" / "ca.pem")
    status, said = site_words(tmp_path, capsys)
    assert status == 2
    assert "was not signed by" in said


def test_a_name_that_is_not_the_key_s_is_told_at_the_site(gate, tmp_path, capsys):
    text = (tmp_path / "coordinator" / "admitted.txt").read_text()
    (tmp_path / "coordinator" / "admitted.txt").write_text(text.replace("a ", "b ", 1))
    status, said = site_words(tmp_path, capsys)
    assert status == 2
    assert "knows this site's key as 'b', not 'a'" in said


def test_a_coordinator_that_is_away_is_told_at_the_site(gate, tmp_path, capsys):
    gate.stop()
    status, said = site_words(tmp_path, capsys)
    assert status == 2
    assert "refuses connections" in said
