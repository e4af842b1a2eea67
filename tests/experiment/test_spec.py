"""What an experiment leaves open follows the paper; the rest is checked, written down and read back."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpub.algorithms import METHODS, FedPub
from fedpub.cli import main
from fedpub.data.datasets import names
from fedpub.data.synthetic import SYNTHETIC
from fedpub.engine.simulate import first_weights
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.runs.simulated import run

# The paper's appendix: rounds and local epochs.
PAPER = {
    "cora": (100, 1),
    "citeseer": (100, 1),
    "pubmed": (100, 1),
    "computers": (200, 3),
    "photo": (200, 2),
    "ogbn-arxiv": (200, 2),
}


@pytest.mark.parametrize("dataset", [*PAPER, "twitch", "communities"])
def test_rounds_and_epochs_follow_the_paper(dataset):
    found = Experiment(dataset=dataset, clients=10, scenario="disjoint").resolve()
    assert (found.rounds, found.epochs) == PAPER.get(dataset, (100, 1))
    chosen = Experiment(dataset=dataset, clients=10, rounds=7, epochs=5).resolve()
    assert (chosen.rounds, chosen.epochs) == (7, 5)


@pytest.mark.parametrize("dataset", names())
def test_ratios_follow_the_paper(dataset):
    expected = (0.05, 0.475, 0.475) if dataset == "ogbn-arxiv" else (0.2, 0.4, 0.4)
    assert Experiment(dataset=dataset, clients=10).resolve().ratios == expected
    assert Experiment(dataset=dataset, clients=10, ratios=(0.6, 0.2, 0.2)).resolve().ratios == (0.6, 0.2, 0.2)


@pytest.mark.parametrize("dataset", names())
@pytest.mark.parametrize("scenario", ["disjoint", "overlapping", "louvain"])
def test_tau_follows_the_paper(dataset, scenario):
    expected = 10 if dataset in SYNTHETIC else {"overlapping": 5}.get(scenario, 3)
    found = Experiment(dataset=dataset, scenario=scenario, clients=10).resolve()
    assert found.experiment.options["tau"] == expected
    assert found.algorithm.tau == expected
    assert replace(found.experiment, options={"tau": 0.5}).resolve().experiment.options["tau"] == 0.5


def test_the_scenario_is_natural_where_the_data_came_with_clients():
    assert Experiment(dataset="communities").resolve().scenario == "natural"
    assert Experiment(dataset="twitch").resolve().scenario == "natural"
    assert Experiment(dataset="communities", clients=4).resolve().scenario == "disjoint"
    assert Experiment(dataset="cora", clients=4).resolve().scenario == "disjoint"


def test_a_resolved_experiment_has_nothing_open_and_stays_as_it_is():
    for method in METHODS:
        found = Experiment(dataset="photo", clients=5, method=method, seed=4).resolve().experiment
        open_ = [one.name for one in dataclasses.fields(found) if getattr(found, one.name) is None]
        assert open_ == []
        assert found.data_seed == 4
        assert found.resolve().experiment == found
        assert set(found.options) == {one.name for one in dataclasses.fields(METHODS[method])}


@pytest.mark.parametrize("method", METHODS)
def test_json_round_trip(method):
    found = Experiment(
        dataset="ogbn-arxiv", scenario="overlapping", clients=10, method=method, seed=3, lr=0.1 + 0.2
    ).resolve()
    text = found.experiment.to_json()
    assert Experiment.from_json(text, Path("config.json")) == found.experiment
    assert Experiment.from_json(text, Path("config.json")).resolve() == found
    assert json.loads(text)["ratios"] == [0.05, 0.475, 0.475]


def test_what_a_configuration_leaves_out_has_its_default():
    assert Experiment.from_json('{"rounds": 3}', Path("c.json")) == Experiment(rounds=3)


def data_of(experiment: Experiment) -> tuple[list[list[int]], list[list[bool]]]:
    found = prepare(experiment.resolve())
    sets = [part.tolist() for own in found.federation.subgraphs for part in (own.train, own.val, own.test)]
    return [own.tolist() for own in found.partition.nodes], sets


def test_data_seed_keeps_split_and_partition_while_seed_changes(graph_file):
    first = Experiment(dataset=graph_file, scenario="random", clients=4, hidden=4, seed=0)
    nodes, sets = data_of(first)
    kept = replace(first, seed=1, data_seed=0)
    assert data_of(kept) == (nodes, sets)
    other_nodes, other_sets = data_of(replace(first, seed=1))
    assert other_nodes != nodes
    assert other_sets != sets
    weights = [
        first_weights(prepare(one).federation, one.context)["conv1.weight"] for one in (first.resolve(), kept.resolve())
    ]
    assert not torch.equal(*weights)


def test_the_same_seed_gives_the_same_result_and_another_seed_another(graph_file):
    one = Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=3)
    losses = [[row.clients["loss"] for row in run(replace(one, seed=seed)).record.rows] for seed in (0, 0, 1)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "fedavgg"}, "unknown method 'fedavgg': did you mean fedavg"),
        ({"model": "gnc"}, "unknown model 'gnc': did you mean gcn"),
        ({"task": "node-clasification"}, "did you mean node-classification"),
        ({"device": "gpu"}, "unknown device 'gpu': did you mean cpu"),
        ({"rounds": 0}, "rounds=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"hidden": -3}, "hidden=-3"),
        ({"lr": 0.0}, "lr=0.0"),
        ({"fraction": 1.5}, "fraction=1.5"),
        ({"fraction": float("nan")}, "fraction=nan"),
        ({"failures": -0.1}, "failures=-0.1"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"options": {"lamda1": 1.0}}, "unknown option of fedpub 'lamda1': did you mean lambda1"),
        ({"method": "local", "options": {"mu": 1.0}}, "mu is an option of fedprox, not of local"),
    ],
)
def test_what_is_not_possible_is_said(changes: dict[str, Any], said: str):
    with pytest.raises(FedpubError, match=re.escape(said)):
        Experiment(**changes).resolve()


@pytest.mark.parametrize(
    "options", [{"measure": "lable"}, {"proxy": "smb"}, {"communities": "explict"}, {"lambda1": "x"}, {"masks": "no"}]
)
def test_a_value_that_an_option_cannot_have_is_said(options):
    """From a config.json or `compare --set`; `fedpub run` has it checked by its flags."""
    with pytest.raises(FedpubError, match=next(iter(options))):
        Experiment(options=options).resolve()


@pytest.mark.parametrize("method", METHODS)
def test_every_option_of_a_method_is_a_flag(method, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--method", method, "--help"])
    assert caught.value.code == 0
    flags = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    for one in (*dataclasses.fields(METHODS[method]), *dataclasses.fields(Experiment)):
        if one.name != "options":
            assert f"--{one.name.replace('_', '-')}" in flags
    foreign = {one.name for kind in METHODS.values() for one in dataclasses.fields(kind)}
    foreign -= {one.name for kind in (METHODS[method], Experiment) for one in dataclasses.fields(kind)}
    assert not flags & {f"--{name.replace('_', '-')}" for name in foreign}


def test_parts_of_fed_pub_can_be_left_out(graph_file, tmp_path, capsys):
    words = ["run", "--quiet", "--dataset", graph_file, "--scenario", "natural", "--hidden", "8", "--rounds", "3"]
    losses = {}
    for name, flags in {
        "whole": [],
        "masks": ["--no-masks"],
        "similarity": ["--no-similarity"],
        "both": ["--no-masks", "--no-similarity"],
    }.items():
        assert main([*words, *flags, "--out", str(tmp_path / name)]) == 0
        options = json.loads((tmp_path / name / "config.json").read_text())["options"]
        assert options["masks"] == (name not in ("masks", "both"))
        assert options["similarity"] == (name not in ("similarity", "both"))
        losses[name] = (tmp_path / name / "rounds.csv").read_text().splitlines()[-1].split(",")[2]
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert (summary["sparsity"] == 0) == (not options["masks"])
    assert len(set(losses.values())) == 4


def test_without_masks_and_similarity_fed_pub_is_an_unweighted_fed_avg(graph_file):
    one = Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=3, dtype="float64")
    bare = replace(one, method="fedpub", options={"masks": False, "similarity": False, "lambda2": 0.0})
    last = [run(experiment).record.rows[-1].clients for experiment in (bare, replace(one, method="fedavg"))]
    assert isinstance(bare.resolve().algorithm, FedPub)
    assert last[0]["loss"] == pytest.approx(last[1]["loss"], rel=0.05)
    assert last[0]["loss"] != last[1]["loss"]  # the clients have not the same number of training nodes


def test_fed_pub_beats_fed_avg_on_cora(real_data):
    one = Experiment(dataset="cora", scenario="disjoint", clients=10, rounds=30, seed=0)
    test = {method: run(replace(one, method=method)).summary["test"] for method in ("fedavg", "fedpub")}
    assert test["fedpub"] > test["fedavg"] + 0.01
    assert test["fedavg"] > 0.5


def test_prepared_clients_see_all_that_their_own_nodes_have():
    ready = prepare(Experiment(dataset="communities", method="fedpub").resolve())
    (data,) = ready.federation.chunks(list(range(ready.federation.num_clients)))
    assert bool((data.seen_walks[0] | ~data.seen_x_KF).all())
    assert not bool(data.seen_x_KF.all())


def test_memory_is_planned_on_a_cpu_only(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(FedpubError, match=r"max_memory=4\.0 is for device=cpu, not cuda"):
        run(Experiment(dataset="communities", device="cuda"), max_memory=4.0)
