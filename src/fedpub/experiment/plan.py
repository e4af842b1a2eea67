"""An experiment with nothing left open, and with everything that it names built once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from fedpub.algorithms import ALSO_CALLED, METHODS, Algorithm, Context, check_owned
from fedpub.algorithms.protocol import Defence
from fedpub.core.checks import check_types
from fedpub.data import datasets
from fedpub.data.clients.partition import default_scenario
from fedpub.data.clients.split import Origin, Ratios
from fedpub.errors import FedpubError, unknown
from fedpub.experiment.checks import (
    check_model_settings,
    check_ranges,
    check_secure,
    check_split,
    check_task_settings,
    checked_device,
)
from fedpub.experiment.defaults import defaults
from fedpub.models import MODELS, Model, model_of
from fedpub.models.module import object_name
from fedpub.tasks import TASKS, Task, task_of

if TYPE_CHECKING:
    from fedpub.experiment.spec import Experiment

OBJECT = "python:"  # prefix of the name of a method or model that is an object of the calling program


@dataclass(frozen=True)
class Plan:
    """A run with nothing left open. To change it, change the experiment and resolve that."""

    experiment: Experiment
    """The experiment with every setting filled in, as config.json holds it."""
    dataset: str
    scenario: str
    algorithm: Algorithm
    model: Model
    task: Task
    hidden: int
    dropout: float
    rounds: int
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    fraction: float
    failures: float
    seed: int
    data_seed: int
    ratios: Ratios
    split: Origin
    alpha: float
    secure: bool
    min_group: int
    embedding_noise: float
    defence: Defence
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(experiment: Experiment, algorithm: Algorithm | None = None, model: Model | None = None) -> Plan:
        """Check an experiment, fill in what it leaves open, and build what it names.

        A given algorithm or model replaces the named one. The experiment then only records its name: config.json shows
        what was run, but only a program that has the object can run it again.
        """
        check_types(experiment, "")
        if experiment.task not in TASKS:
            raise unknown("task", experiment.task, TASKS)
        method = ALSO_CALLED.get(experiment.method, experiment.method)
        method = method if algorithm is None else OBJECT + type(algorithm).__name__
        experiment = replace(experiment, method=method, dataset=datasets.absolute(experiment.dataset))
        if model is not None:
            experiment = replace(experiment, model=OBJECT + object_name(model))
        experiment = replace(experiment, min_group=least_group(experiment))
        algorithm = algorithm_of(experiment) if algorithm is None else _adapted(algorithm, experiment)
        if experiment.secure:
            algorithm = algorithm.secured()
        usual = defaults(experiment.dataset, experiment.clients, experiment.seed, TASKS[experiment.task])
        usual |= algorithm.defaults
        filled = replace(
            experiment,
            **{name: value for name, value in usual.items() if getattr(experiment, name) is None},
            options=_options(algorithm),
        )
        check_task_settings(filled)
        check_split(filled, usual["ratios"])
        check_model_settings(filled)
        task = task_of(filled.task, filled)
        if model is None:
            _named("model", str(filled.model), MODELS)
            model = model_of(str(filled.model), filled)
        decided: dict[str, Any] = {name: getattr(filled, name) for name in AS_SAID}
        plan = Plan(
            experiment=filled,
            algorithm=algorithm,
            model=algorithm.net(model, task, bool(filled.batch_size)),
            task=task,
            device=checked_device(filled.device),
            dtype=getattr(torch, filled.dtype),
            **decided,
        )
        check_ranges(plan)
        check_secure(plan)
        return plan

    def resolve(self) -> Plan:
        """Itself, so that a function can be given an experiment or its plan."""
        return self

    def related(self, relations: int) -> Plan:
        """The plan for graphs with this many relations: directions and kinds of edges."""
        return replace(self, model=self.model.related(relations)) if self.relational and relations > 1 else self

    @property
    def relational(self) -> bool:
        """Whether directions and kinds of edges are used; if not, `data.graph.merged` treats all edges alike."""
        return self.model.relational and not self.task.of_pairs

    @property
    def draws(self) -> bool:
        """Whether all examples are drawn by the ratios; if not, some graphs may come with sets of their own."""
        return self.task.of_pairs or self.split in ("random", "published")

    @cached_property
    def context(self) -> Context:
        """The context of the method before the first round."""
        return Context(
            model=self.model,
            task=self.task,
            seed=self.seed,
            round=0,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
            defence=self.defence,
            secure=self.secure,
            min_group=self.min_group,
            embedding_noise=self.embedding_noise,
        )


# The fields of a plan that are settings of the filled-in experiment, as they are.
AS_SAID = tuple(
    one.name for one in fields(Plan) if one.name not in ("experiment", "algorithm", "model", "task", "device", "dtype")
)


def algorithm_of(experiment: Experiment) -> Algorithm:
    """The method that an experiment names, with its hyper-parameters."""
    kind: Any = _named("method", experiment.method, METHODS)
    known = {one.name for one in fields(kind)}
    check_owned(experiment.options, experiment.method)
    for name in experiment.options:
        if name not in known:
            raise unknown(f"option of {experiment.method}", name, sorted(known) or ["(it has none)"])
    shared = {"min_group": experiment.min_group} if "min_group" in known else {}
    algorithm: Algorithm = kind(**{**experiment.options, **shared})
    check_types(algorithm, f"{experiment.method}.")
    return _adapted(algorithm, experiment)


def least_group(experiment: Experiment) -> int:
    """The setting `min_group`, which older configurations of FED-PUB-plus have among its options."""
    asked, usual = experiment.min_group, type(experiment)().min_group
    option = experiment.options.get("min_group", asked)
    if asked not in (usual, option):
        raise FedpubError(f"`min_group={asked}` contradicts {option} among the method's options; leave one of them out")
    return int(option)


def _adapted(algorithm: Algorithm, experiment: Experiment) -> Algorithm:
    """The method, with unset hyper-parameters filled in for the data."""
    return algorithm.adapted(experiment.dataset, experiment.scenario or default_scenario(experiment.clients))


def _options(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters as written to config.json, so that a resumed run can be compared."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(algorithm), default=repr))  # type: ignore[call-overload]
    return found


def _named(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """The class with this name."""
    if name.startswith(OBJECT):
        raise FedpubError(
            f"the {kind} {name.removeprefix(OBJECT)!r} is an object of the program that made this run and has no "
            f"name here; run it from that program, by fedpub.run with the object as its {kind}"
        )
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
