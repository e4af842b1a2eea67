"""SIGTERM: real processes end cleanly, with status 0 and one sentence, whenever it arrives."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_deployment import processes_in, wait_for

from fedpub.cli.ending import Terminated, terminable
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation.requests import Terms
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import make_site_key, private_key
from fedpub.flower.local import lay_out
from fedpub.flower.node import LEAVE, Node, NodeNumber
from fedpub.flower.processes import start, stop
from fedpub.store.directory import RunDirectory, read_rows

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]
FEDPUB = [sys.executable, "-m", "fedpub"]


@pytest.fixture
def laid(tmp_path: Path) -> tuple[Path, list[Path], Path]:
    experiment = Experiment(clients=2, rounds=1000, hidden=4).resolve()
    out = tmp_path / "out"
    coordinator, sites = lay_out(tmp_path / "all", prepare(experiment), experiment, Terms(deadline=100), out)
    return coordinator, sites, out


@pytest.fixture
def running() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    found: dict[str, subprocess.Popen[bytes]] = {}
    yield found
    stop([*found.values()])


def measured(log: Path) -> dict[str, float]:
    """The metrics of the process that writes this log."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (place,) = [line["message"].partition(": ")[2] for line in lines if line["event"] == "monitor"]
    text = httpx.get(place, trust_env=False).text
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    }


def left(folder: Path) -> list[Path]:
    """Temporary files: those that `core/files.py` makes begin with a point."""
    return [path for path in folder.rglob(".*") if path.is_file()]


def test_it_ends_in_the_middle_of_rounds_and_resumes(laid, tmp_path, running):
    coordinator, sites, out = laid
    words = ["--log-json", "--monitor", "0"]
    log = tmp_path / "log"
    running["site-1"] = start([*FEDPUB, "site", "start", "--folder", sites[1], *words], tmp_path / "site-1.log")
    running["leader"] = start([*FEDPUB, "coordinator", "start", "--folder", coordinator, *words], log)
    wait_for(lambda: log.is_file() and "serving on" in log.read_text())
    running["leader"].send_signal(signal.SIGTERM)  # while it waits for a site
    assert running["leader"].wait(60) == 0, log.read_text()
    assert not CoordinatorFolder(coordinator).is_in_use()
    running["site-0"] = start([*FEDPUB, "site", "start", "--folder", sites[0], *words], tmp_path / "site-0.log")
    log = tmp_path / "again.log"
    running["leader"] = start([*FEDPUB, "coordinator", "start", "--folder", coordinator, *words, "--resume"], log)
    wait_for(lambda: len(read_rows(out)) >= 2)
    leader, site = measured(log), measured(tmp_path / "site-1.log")
    assert leader["fedpub_round"] >= 1
    assert (leader['fedpub_sites{state="present"}'], leader['fedpub_sites{state="admitted"}']) == (2, 2)
    assert leader['fedpub_bytes_total{direction="up"}'] > 0
    assert site['fedpub_messages_total{kind="round",result="answered"}'] >= 1
    assert (site["fedpub_connected"], site["fedpub_up"]) == (1, 1)
    for process in running.values():  # in the middle of a round
        process.send_signal(signal.SIGTERM)
    for name, process in running.items():
        assert process.wait(60) == 0, (tmp_path / f"{name}.log").read_text()
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["event"] == "ended"
    assert "every finished round is saved" in last["message"]
    assert "Traceback" not in log.read_text()
    for site in ("site-0", "site-1"):
        lines = [json.loads(line) for line in (tmp_path / f"{site}.log").read_text().splitlines()]
        assert [line["event"] for line in lines].count("ended") == 1
        assert {line["site"] for line in lines} == {site}
    assert left(tmp_path) == []
    assert processes_in(tmp_path) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", CoordinatorConfig.load(coordinator).port))
    done = len(read_rows(out))
    start_, _ = RunDirectory(out).restore(torch.device("cpu"))
    assert start_ is not None
    assert done - 1 <= start_.round <= done, "the last finished round is saved"


@pytest.mark.parametrize("verb", ["coordinator", "site"])
def test_it_ends_during_start_up(verb, laid, tmp_path):
    """The signal arrives while libraries are imported: nothing has been opened."""
    coordinator, sites, _ = laid
    code = (
        "import sys, os, signal, fedpub.cli as cli\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "raise SystemExit(cli.main())\n"
    )
    folder = coordinator if verb == "coordinator" else sites[0]
    words = [sys.executable, "-c", code, verb, "start", "--folder", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "fedpub: ended by SIGTERM\n")
    assert not CoordinatorFolder(coordinator).is_in_use()


def test_a_local_federation_leaves_nothing_behind(tmp_path):
    words = ["deploy", "local", "--sites", "2", "--rounds", "1000", "--hidden", "4", "--verbose"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([*FEDPUB, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as one:
        assert one.stderr
        wait_for(lambda: "round 1/1000" in one.stderr.readline())
        one.send_signal(signal.SIGTERM)
        _, said = one.communicate(timeout=100)
    assert one.returncode == 130, "it has no result"
    assert said.splitlines()[-1] == "fedpub: ended by SIGTERM"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("fedpub-")] == []
    assert processes_in(tmp_path) == []


def test_a_site_that_ends_waits_for_no_coordinator(tmp_path):
    make_site_key(tmp_path / "key")
    seen: list[float | None] = []
    node = Node("localhost:1", ssl.create_default_context(), private_key(tmp_path / "key"))
    with node:
        node._number = NodeNumber(node_id=1)
        node._fleet.DeactivateNode = lambda _: seen.append(node._line.http.timeout.read)
    assert seen == [LEAVE]
    assert LEAVE < 10, "seconds that docker stop waits before it kills"


def broken_import() -> None:
    """Some libraries turn any exception in an import into an ImportError."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)
    except KeyboardInterrupt:
        raise ImportError("numpy could not be imported") from None


def test_an_error_that_the_signal_causes_is_an_end():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminable():
        broken_import()
    with pytest.raises(ImportError), terminable():
        raise ImportError("it is really missing")
    assert signal.getsignal(signal.SIGTERM) is before
