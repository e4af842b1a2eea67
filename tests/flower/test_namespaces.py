"""Hosts of their own: a coordinator and four sites, each in a network namespace with its address, over a bridge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_deployment import processes_in, wait_for
from test_federation import assert_told, simulate_without

from fedpub.data.clients.subgraph_files import write_subgraph
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import admit, make_authority, make_certificate, make_site_key
from fedpub.flower.processes import start, stop
from fedpub.flower.sites import AUTHORITY, PIECE, SiteConfig
from fedpub.store.directory import read_rows

PREFIX = f"fp{os.getpid() % 100000}"
NAMES = ("hub", "c", "s0", "s1", "s2", "s3")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def inside(name: str, *words: str) -> None:
    ip("netns", "exec", f"{PREFIX}{name}", "ip", *words)


@pytest.fixture
def hosts() -> Iterator[None]:
    """The namespaces and their links, where the kernel allows them."""
    made = []
    try:
        for name in NAMES:
            ip("netns", "add", f"{PREFIX}{name}")
            made.append(name)
            inside(name, "link", "set", "lo", "up")
        inside("hub", "link", "add", "bridge", "type", "bridge")
        inside("hub", "link", "set", "bridge", "up")
        for number, name in enumerate(NAMES[1:], start=1):
            host, hub = f"{PREFIX}{name}", f"{PREFIX}hub"
            ip("link", "add", host, "netns", host, "type", "veth", "peer", "name", f"to-{name}", "netns", hub)
            inside("hub", "link", "set", f"to-{name}", "master", "bridge")
            inside("hub", "link", "set", f"to-{name}", "up")
            inside(name, "addr", "add", f"10.77.0.{number}/24", "dev", f"{PREFIX}{name}")
            inside(name, "link", "set", f"{PREFIX}{name}", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        for name in made:
            subprocess.run(["ip", "netns", "del", f"{PREFIX}{name}"], check=False, capture_output=True)
        pytest.skip(f"no network namespaces here: {error}")
    yield
    for name in NAMES:
        ip("netns", "del", f"{PREFIX}{name}")


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_site_is_cut_off_for_a_while(hosts, tmp_path):
    """The others go on without it; it comes back with its state, and the numbers are those of such a simulation."""
    experiment = Experiment(clients=4, rounds=5, hidden=8, dtype="float64").resolve()
    ready, coordinator = prepare(experiment), tmp_path / "coordinator"
    make_authority(coordinator)
    make_certificate(coordinator, ["10.77.0.1"])
    config = CoordinatorConfig.new("10.77.0.1", 9443, experiment, Terms(deadline=25), "run")
    config.save(coordinator)
    out = CoordinatorFolder(coordinator).out(config)
    fedpub = (sys.executable, "-m", "fedpub")
    running = []
    for own in ready.federation.subgraphs:
        folder = tmp_path / f"site-{own.id}"
        held = SiteConfig(folder.name, "10.77.0.1:9443", "")
        held.save(folder)
        admit(CoordinatorFolder(coordinator).admitted, folder.name, make_site_key(held.key(folder)))
        shutil.copy(coordinator / "ca.pem", folder / AUTHORITY)
        write_subgraph(folder / PIECE, own, ready.graph.classes)
        words = ["ip", "netns", "exec", f"{PREFIX}s{own.id}", *fedpub, "site", "start", "--folder", str(folder)]
        running.append(start(words, folder / "log", {"OMP_NUM_THREADS": "1"}))
    words = [
        "ip",
        "netns",
        "exec",
        f"{PREFIX}c",
        *fedpub,
        "coordinator",
        "start",
        "--folder",
        str(coordinator),
        "--quiet",
    ]
    running.append(start(words, coordinator / "log"))

    def counted(client: int) -> list[int]:
        return [row.clients["took_part"][client] for row in read_rows(out)]

    try:
        wait_for(lambda: len(read_rows(out)) >= 1)
        inside("hub", "link", "set", "to-s2", "down")
        wait_for(lambda: 0 in counted(2))
        inside("hub", "link", "set", "to-s2", "up")
        wait_for(lambda: running[-1].poll() is not None)
        assert running[-1].returncode == 0, (coordinator / "log").read_text()
    finally:
        stop(running)
    rows = read_rows(out)
    assert [row.clients["took_part"][:2] for row in rows] == [[1, 1]] * 5, "nobody waited for the lost one"
    present = {row.round: [k for k in range(4) if row.clients["took_part"][k]] for row in rows}
    for row, expected in zip(rows, simulate_without(experiment, present), strict=True):
        for name in ("val", "test", "loss", "sparsity"):
            assert_told(row.clients[name], expected[name], 1e-9, f"{name} {row.round}")
    wait_for(lambda: not processes_in(tmp_path), 30)
