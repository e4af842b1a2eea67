"""The payments of ten banks: tables, import, and what federation gains where every bank knows few cases of fraud."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedpub.cli import main
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.runs.simulated import run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "payments"))
from make_tables import BANKS, tables
from measure import MEANING

HOW = {"model": "hops", "metric": "average-precision", "class_weights": "balanced"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """100,000 accounts and a million payments."""
    folder = tmp_path_factory.mktemp("payments")
    for name, table in zip(("accounts", "payments"), tables(100_000), strict=True):
        pq.write_table(table, folder / f"{name}.parquet")
    words = ["--nodes", str(folder / "accounts.parquet"), "--edges", str(folder / "payments.parquet")]
    assert main(["data", "import", *words, *MEANING.split(), "--out", str(folder / "my.graph"), "--json"]) == 0
    return str(folder / "my.graph")


def test_tables_are_the_same_every_time():
    first, again, other = (tables(2000, seed) for seed in (0, 0, 1))
    assert all(one.equals(two) for one, two in zip(first, again, strict=True))
    assert not first[0].equals(other[0])
    accounts, payments = first
    assert (accounts.num_columns, payments.num_rows) == (35, 20_000)
    assert set(accounts["bank"].to_pylist()) == set(BANKS)
    assert accounts["income"].null_count > 0
    assert 0.002 < np.mean(np.array(tables(20_000)[0]["fraud"]) == "yes") < 0.008


def test_federation_finds_more_fraud_than_every_bank_alone(graph):
    settings = {**HOW, "batch_size": 4096, "rounds": 30, "hidden": 32}
    asked = {method: Experiment(graph, method=method, **settings) for method in ("local", "fedpub-plus")}
    ready = prepare(asked["local"].resolve())
    found = {method: run(one, prepared=ready).summary for method, one in asked.items()}
    assert found["fedpub-plus"]["metric"] == "average precision"
    assert found["fedpub-plus"]["test"] > found["local"]["test"] > 2 * found["local"]["chance"]
