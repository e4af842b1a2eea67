"""A plan: nothing left open, everything built once, and what config.json holds."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
import torch

import fedpub
from fedpub.algorithms import METHODS, FedAvg, FedPub, protocol
from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan, plan, spec
from fedpub.experiment.checks import check_ranges
from fedpub.experiment.defaults import defaults
from fedpub.experiment.plan import OBJECT, algorithm_of
from fedpub.experiment.prepare import prepare
from fedpub.models import GCN
from fedpub.runs.simulated import run
from fedpub.tasks import TASKS, LinkPrediction, NodeClassification

SMALL = {"hidden": 8, "rounds": 2}


@dataclass(frozen=True)
class Mine(FedAvg):
    steps: tuple[int, ...] = (1, 2)

    @property
    def defaults(self) -> dict[str, Any]:
        return {"hidden": 24}


@dataclass(frozen=True)
class Deep(GCN):
    pass


def kinds() -> dict[str, Any]:
    names = {**vars(plan), **vars(spec), **vars(protocol)}
    return get_type_hints(Plan, names)


def test_a_plan_has_no_optional_fields():
    assert [name for name, kind in kinds().items() if NoneType in get_args(kind)] == []


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_a_plan_says_what_its_experiment_says(method, task):
    asked = Experiment("photo", "overlapping", 10, method, task=task, seed=3, dtype="float64")
    made = asked.resolve()
    assert all(value is not None for value in vars(made).values())
    for one in dataclasses.fields(Experiment):
        said = getattr(made.experiment, one.name)
        fixed = one.name == "metric" and not TASKS[task].metric_choices  # which is no setting then
        assert said is not None or fixed
        if getattr(asked, one.name) not in (None, {}):
            assert said == getattr(asked, one.name)
        if one.name in vars(made) and one.name not in ("model", "task", "device", "dtype"):
            assert getattr(made, one.name) == said
    assert (made.device, made.dtype) == (torch.device("cpu"), torch.float64)
    assert made.experiment.options == dataclasses.asdict(made.algorithm)
    assert made.resolve() is made
    assert made.experiment.resolve() == made


def test_everything_is_built_once():
    made = Experiment("cora", "disjoint", 5, task="link-prediction", decoder="mlp", hidden=16).resolve()
    assert made.task == LinkPrediction(16, "mlp")
    ctx = made.context
    assert ctx is made.context
    assert ctx.model is made.model
    assert ctx.task is made.task
    assert (ctx.epochs, ctx.lr, ctx.weight_decay, ctx.dropout, ctx.seed) == (20, 0.01, 0.0, 0.5, 0)
    assert isinstance(Experiment().resolve().task, NodeClassification)


@pytest.mark.parametrize("verb", ["run", "resume", "compare", "api"])
def test_a_run_resolves_once(verb, graph_file, tmp_path, monkeypatch):
    """A resumed one also resolves what its directory holds, to compare it."""
    words = ["--dataset", graph_file, "--method", "fedavg", "--hidden", "4", "--rounds", "1", "--quiet"]
    out = ["--out", str(tmp_path / "run")]
    if verb == "resume":
        assert main(["run", *words, *out]) == 0
    built, original = [], Plan.of
    monkeypatch.setattr(Plan, "of", staticmethod(lambda *asked: built.append(asked) or original(*asked)))
    if verb == "run":
        assert main(["run", *words, *out]) == 0
    elif verb == "resume":
        assert main(["run", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    elif verb == "compare":
        assert main(["compare", "--methods", "fedavg", "--seeds", "1", "--dataset", graph_file, *words[4:], *out]) == 0
    else:
        fedpub.run(graph_file, method="fedavg", hidden=4, rounds=1, progress=False)
    assert len(built) == (2 if verb == "resume" else 1)


def test_config_json_is_the_experiment_of_the_plan(graph_file, tmp_path):
    made = Experiment(graph_file, **SMALL).resolve()
    run(made, tmp_path / "plan")
    run(Experiment(graph_file, **SMALL), tmp_path / "experiment")
    texts = {(tmp_path / name / "config.json").read_text() for name in ("plan", "experiment")}
    assert texts == {made.experiment.to_json()}
    (text,) = texts
    assert list(json.loads(text)) == [one.name for one in dataclasses.fields(Experiment)]
    assert Experiment.from_json(text, Path("config.json")) == made.experiment


def test_objects_stand_in_for_names(graph_file, tmp_path):
    asked = Experiment(graph_file, method="fedavg", rounds=1)
    made = Plan.of(asked, Mine(), Deep(8))
    assert (made.algorithm, made.model, made.hidden) == (Mine(), Deep(8), 24)
    assert (made.experiment.method, made.experiment.model) == (f"{OBJECT}Mine", f"{OBJECT}Deep")
    assert made.experiment.options == {"steps": [1, 2]}  # as config.json has it
    assert replace(asked, hidden=5).resolve().hidden == 5
    run(made, tmp_path / "run")
    assert run(made, tmp_path / "run", resume=True).summary["rounds"] == 1
    with pytest.raises(FedpubError, match="the method 'Mine' is an object of the program that made this run"):
        made.experiment.resolve()
    with pytest.raises(FedpubError, match="the model 'Deep' is an object of the program that made this run"):
        replace(made.experiment, method="fedavg", options={}).resolve()
    with pytest.raises(FedpubError, match=r"its options is \{'steps': \[1, 2\]\}, not \{'steps': \[3\]\}"):
        run(Plan.of(asked, Mine((3,)), Deep(8)), tmp_path / "run", resume=True)


def test_an_object_s_own_defaults_follow_the_data(graph_file):
    @dataclass(frozen=True)
    class Masked(FedPub):
        pass

    assert Plan.of(Experiment("cora", "overlapping", 5), Masked()).algorithm == Masked(tau=5.0)
    assert Plan.of(Experiment("cora", "disjoint", 5), Masked(tau=1.0)).algorithm == Masked(tau=1.0)
    assert Plan.of(Experiment("cora", "disjoint", 5), Masked(official=True)).weight_decay == 1e-6


def test_defaults_cover_every_optional_setting_but_the_clients():
    optional = {one.name for one in dataclasses.fields(Experiment) if one.default is None}
    assert set(defaults("cora", 5, 0, NodeClassification)) == optional - {"clients"}
    assert all({*METHODS[name]().defaults} <= optional for name in ("fedpub", "fedpub-plus"))


def test_ranges_are_checked_after_defaults():
    made = Experiment().resolve()
    check_ranges(made)
    for name, value in {"rounds": 0, "fraction": 0.0, "dropout": 1.0, "weight_decay": -1.0, "lr": 0.0}.items():
        with pytest.raises(FedpubError, match=f"{name}={value}"):
            check_ranges(replace(made, **{name: value}))


def test_only_a_method_that_says_so_gets_the_whole_graph(graph_file):
    for method in METHODS:
        made = Experiment(graph_file, method=method, **SMALL).resolve()
        assert made.algorithm.undivided == (method == "oracle")
    assert len(prepare(Experiment(graph_file, method="oracle").resolve()).federation.subgraphs) == 1


def test_a_method_can_be_read_where_its_device_is_missing():
    """As a report does of a run that was made elsewhere."""
    assert algorithm_of(Experiment("cora", "disjoint", 5, options={"tau": 2.0}, device="cuda")) == FedPub(tau=2.0)
