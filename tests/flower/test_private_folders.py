"""The folders of a coordinator and of its sites are for their owner alone, whatever the umask."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_deployment import wait_for

from fedpub.cli import main
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower import app
from fedpub.flower.exchange import packed
from fedpub.flower.local import lay_out
from fedpub.flower.processes import start, stop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")


def open_to_others(folder: Path) -> list[str]:
    """The folder, and what is in it, that others than its owner have rights to."""
    return [str(path) for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.fixture(autouse=True)
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_the_verbs_of_coordinators_and_sites_make_is_private(tmp_path, graph_file):
    fed, site = tmp_path / "fed", tmp_path / "a"
    fed.mkdir()  # it may be there, if it is empty
    own, here = ["--folder", str(fed)], ["--folder", str(site)]

    def call(*words: str) -> None:
        assert main([*words]) == 0
        assert not open_to_others(fed), words
        assert not site.exists() or not open_to_others(site), words

    call("coordinator", "init", *own)
    ca = shutil.copyfile(fed / "ca.pem", tmp_path / "ca.pem")
    data = ["--graph", graph_file, "--ca", str(ca)]
    call("site", "init", "--id", "a", "--coordinator", "localhost:9443", *data, *here)
    call("coordinator", "admit", str(site / "a.pub"), *own)
    call("site", "rotate", *here)
    call("coordinator", "rotate", "a", str(site / "a.pub"), *own)
    call("coordinator", "remove", "a", *own)
    call("coordinator", "renew", *own)


def test_start_tightens_the_folders_of_older_versions_and_says_so(tmp_path):
    plan = Experiment(clients=2, rounds=1, hidden=4).resolve()
    base = tmp_path / "federation"
    coordinator, sites = lay_out(base, prepare(plan), plan, Terms(deadline=60), base / "coordinator" / "run")
    assert all(open_to_others(folder) for folder in (coordinator, *sites))
    fedpub, logs = [sys.executable, "-m", "fedpub"], tmp_path / "logs"
    running = [start([*fedpub, "site", "start", "--folder", one, "--once"], logs / one.name) for one in sites]
    running.append(start([*fedpub, "coordinator", "start", "--folder", coordinator], logs / coordinator.name))
    try:
        wait_for(lambda: all(one.poll() is not None for one in running), 120)
    finally:
        stop(running)
    for folder in (coordinator, *sites):
        said = (logs / folder.name).read_text()
        assert f"{folder} was readable by other users of this machine; now only its owner can read it" in said
        assert open_to_others(folder) == []
    assert (coordinator / "run" / "clients.csv").is_file()
    assert (sites[0] / "model").is_dir()


def test_a_federation_on_this_machine_is_private_and_data_is_not(tmp_path, monkeypatch):
    out = tmp_path / "run"
    seen = []
    monkeypatch.setattr("fedpub.flower.local.prepare", lambda *words: seen.append(mask()) or prepare(*words))
    assert (
        main(["deploy", "local", "--sites", "2", "--rounds", "1", "--hidden", "4", "--out", str(out), "--quiet"]) == 0
    )
    assert open_to_others(out) == []
    assert [*seen, mask()] == [0, 0], "datasets, and what comes later, have the user's own umask"


def test_apps_in_a_flower_federation_write_for_their_owner(tmp_path, monkeypatch):
    seen = []
    answering = SimpleNamespace(name="a", answer=lambda data: seen.append(mask()) or b"")
    monkeypatch.setattr("fedpub.flower.server.coordinate", lambda grid, folder: seen.append(mask()))
    monkeypatch.setattr("fedpub.flower.sites.open_site", lambda folder: answering)
    app.coordinate(None, SimpleNamespace(run_config={"folder": "fed"}))
    monkeypatch.setattr(app, "Message", lambda content, reply_to: content)
    app.answer(SimpleNamespace(content=packed(b"")), SimpleNamespace(node_config={"folder": str(tmp_path)}))
    assert [*seen, mask()] == [0o077, 0o077, 0]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def mask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before
