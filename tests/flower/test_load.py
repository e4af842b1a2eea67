"""Strangers in crowds, and long runs with faults, with real processes: `make test-slow`."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpub[deploy]'")

from test_deployment import processes_in, wait_for

from fedpub.bench.load import bench_load
from fedpub.bench.soak import bench_soak
from fedpub.store.directory import read_rows

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")]
MIB = 2**20


@pytest.mark.timeout(600)
def test_rounds_continue_while_strangers_crowd_the_port():
    before, during, after = bench_load("communities", sites=4, connections=500, seconds=30.0, rounds=60)
    assert during.seconds_per_round < 2 * max(before.seconds_per_round, after.seconds_per_round)
    assert during.gate_bytes < before.gate_bytes + 100 * MIB
    assert sum(during.refused.values()) > 500


@pytest.mark.timeout(900)
def test_a_long_run_with_faults_holds_no_more_at_its_end(tmp_path, capsys):
    """Every round is that of a federation without faults. The gate is left alone in the second half."""
    found = bench_soak(tmp_path / "run", sites=3, rounds=600, every=15, looks=6)
    bench_soak(tmp_path / "calm", sites=3, rounds=600, every=10**6, looks=1)
    middle, end = found[2], found[-1]
    for name in ("coordinator", "gate", "site"):
        assert end.bytes[name] < 1.1 * middle.bytes[name] + 32 * MIB, name
        assert end.files[name] < middle.files[name] + 10, name
    rows, calm = read_rows(tmp_path / "run"), read_rows(tmp_path / "calm")
    assert len(rows) == 600
    assert [row.clients for row in rows] == [row.clients for row in calm]
    wait_for(lambda: not processes_in(tmp_path), 30)
