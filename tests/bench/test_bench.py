"""Benchmarks in small sizes, and a check with wide margins that the stacked engine has not become slow."""

from __future__ import annotations

import json

import pytest
import torch

from fedpub.bench import flower
from fedpub.bench.engine import bench_engine
from fedpub.bench.roofline import Machine, Work, measure, round_work
from fedpub.bench.scale import CLASSES, random_clients
from fedpub.cli import main
from fedpub.data.clients.stack import stack
from fedpub.experiment import Experiment

SMALL = {
    "engine": ["--dataset", "communities", "--scenario", "natural", "--clients", "20", "--repeats", "1"],
    "methods": ["--scenario", "natural", "--clients", "20", "--repeats", "1", "--methods", "local"],
    "aggregate": ["--clients", "20", "--neighbours", "4", "--repeats", "1"],
    "partition": ["--nodes", "2000", "--edges", "8000", "--clients", "5"],
    "sparse": ["--nodes", "20", "--features", "30", "--densities", "0.1", "--repeats", "1"],
    "scale": ["--clients", "5", "20", "--nodes", "20", "--rounds", "1"],
}


@pytest.mark.parametrize("verb", list(SMALL))
def test_every_measurement_is_shown_and_written(verb, tmp_path, capsys):
    assert main(["bench", verb, *SMALL[verb], "--json", str(tmp_path / "found.json")]) == 0
    assert "s / round" in capsys.readouterr().out.replace("\n", " ")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found
    for one in found:
        assert {"name", "clients", "seconds_per_round", "ratio", "versus", "roofline", "peak_bytes"} <= one.keys()
        assert one["seconds_per_round"] > 0
        assert (one["ratio"] is None) == (one["versus"] is None)
    if verb in ("engine", "aggregate", "scale", "sparse"):
        assert any(one["ratio"] for one in found)


def test_the_work_of_a_round_by_hand():
    """Three clients of five nodes, nine dense inputs, eight hidden and five classes."""
    data = stack(random_clients(3, 5, 9), CLASSES)
    edges = data.adjacency.forward._nnz()
    experiment = Experiment(method="fedavg", hidden=8).resolve()
    n, f, h, c = 15, 9, 8, 5
    forward = 2 * n * f * h + 2 * n * h * h + 2 * edges * h + 2 * n * h * c
    backward = 2 * n * f * h + 4 * n * h * h + 4 * n * h * c + 2 * edges * h
    found = round_work(experiment, data)
    assert found.flops == 2 * forward + backward
    assert found.bytes == 13 * 4 * 3 * (f * h + h * h + h * c)
    assert Work(100, 30).seconds(Machine(50, 10)) == 5


def test_the_machine_is_measured():
    machine = measure(torch.device("cpu"), torch.float32)
    assert machine.flops > 1e9
    assert machine.bandwidth > 1e8


def test_the_stacked_engine_is_faster_than_a_loop_over_clients():
    """A guard against slowdowns: the ratio was measured at 4 to 6, so half of that is missed only if something broke.

    Other load lowers a ratio now and then, a slow engine lowers it every time: the best of three counts.
    """
    least = {"fedpub, stacked": 1.5, "fedavg, stacked": 2.0}
    best = dict.fromkeys(least, 0.0)
    for _ in range(3):
        for one in bench_engine("communities", "natural", 20, ("fedpub", "fedavg"), 7, "cpu", None):
            if one.name in least:
                best[one.name] = max(best[one.name], one.ratio)
        if all(best[name] > limit for name, limit in least.items()):
            return
    raise AssertionError(f"{best} is not above {least}")


def test_bad_flags(capsys):
    assert main(["bench", "engine", "--repeats", "0"]) == 2
    assert "--repeats 0" in capsys.readouterr().err
    assert main(["bench", "engine", "--methods", "local"]) == 2
    assert "fedpub" in capsys.readouterr().err


@pytest.mark.skipif(not flower.is_installed(), reason="Flower's simulation is not installed: flwr[simulation]")
def test_a_round_through_flower():
    experiment = Experiment(dataset="communities", method="fedavg", epochs=1, hidden=8).resolve()
    assert flower.seconds_per_round(experiment, 20, None) > 0


def test_a_client_of_flower_s_trains_as_one_of_the_loop_does():
    """One step of Adam moves every weight that has a gradient by the learning rate."""
    experiment = Experiment(dataset="communities", method="fedavg", epochs=1, hidden=8).resolve()
    before = {name: leaf.clone() for name, leaf in flower._model(experiment, None).state_dict().items()}
    after = flower.train_one(experiment, 3, None, before)
    moved = (after["classifier.bias"] - before["classifier.bias"]).abs()
    assert float(moved.max()) == pytest.approx(experiment.lr, rel=1e-3)


def test_models_are_compared_with_the_first(capsys):
    words = ["bench", "models", "--clients", "3", "--hidden", "8", "--repeats", "1", "--models", "hops", "gcn"]
    assert main([*words, "--json"]) == 0
    hops, gcn = json.loads(capsys.readouterr().out)
    assert (hops["name"], hops["versus"], hops["ratio"]) == ("hops", "hops", 1)
    assert gcn["ratio"] == pytest.approx(hops["seconds_per_round"] / gcn["seconds_per_round"])
    assert main([*words[:-3], "--repeats", "0"]) == 2
