"""Every test has a cache of its own and no network; the datasets are used where they are at hand."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import hypothesis
import pytest

# What CI tries is the same every time; at home every run tries something new. A busy machine fails no example.
hypothesis.settings.register_profile("home", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "home")

# Two test processes share two cores: one thread each, set before torch starts its pool.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from fedpub.data.synthetic import communities_graph  # noqa: E402
from small import TINY  # noqa: E402

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "datasets"
DATA = Path(os.environ.get("FEDPUB_DATA") or BESIDE)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDPUB_DATA", raising=False)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only loopback can be reached, on every machine."""
    resolve = socket.getaddrinfo

    def loopback_only(host, *args, **kwargs):
        if host not in ("localhost", "127.0.0.1", "::1", None):
            raise socket.gaierror(f"the tests have no network: {host}")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", loopback_only)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of a process that only read the real datasets."""
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture
def real_data(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (DATA / "planetoid").is_dir():
        pytest.skip("the datasets are not at hand: set FEDPUB_DATA to a folder that has them")
    monkeypatch.setenv("FEDPUB_CACHE", str(shared_cache))
    monkeypatch.setenv("FEDPUB_DATA", str(DATA))
    return DATA


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    """A graph of 100 nodes in a file, with five natural clients in two communities."""
    path = tmp_path / "tiny.graph"
    communities_graph("tiny", TINY).save(path)
    return str(path)
