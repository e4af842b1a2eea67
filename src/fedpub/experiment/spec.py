"""What to run: a frozen description, JSON in and out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from fedpub.algorithms import ALSO_CALLED, METHODS, Algorithm, Context, FedGNN, FedPub, check_owned
from fedpub.algorithms.protocol import Defence, MakesNet
from fedpub.core.checks import check_types
from fedpub.data import datasets
from fedpub.data.clients.links import LINK_RATIOS
from fedpub.data.clients.partition import default_scenario
from fedpub.data.synthetic import SYNTHETIC
from fedpub.errors import FedpubError, unknown
from fedpub.models import MODELS, Model
from fedpub.tasks import TASKS, LinkPrediction, NodeClassification, Task
from fedpub.tasks.link_prediction import Decoder

# Rounds and local epochs of the paper's appendix; what it does not name has the small datasets' numbers.
ROUNDS_AND_EPOCHS = {
    "photo": (200, 2),
    "ogbn-arxiv": (200, 2),
    "computers": (200, 3),
    "communities-5-5-40": (100, 3),
    "communities-5-15": (100, 3),
}
# Link prediction steps on all edges at once, where the paper steps on batches of them: an epoch there is many steps.
LINK_ROUNDS_AND_EPOCHS = (100, 20)
OFFICIAL_WEIGHT_DECAY = 1e-6
USUAL: Mapping[str, Any] = {"model": "gcn", "hidden": 128, "dropout": 0.5}  # where a method has no `usual` of its own
TAU, TAU_OVERLAPPING, TAU_SYNTHETIC = 3.0, 5.0, 10.0
OBJECT = "python:"  # before the name of a method or a model that is an object of the program that runs it


@dataclass(frozen=True)
class Experiment:
    """Everything a result depends on. What is None follows the paper and is filled in by `resolved`."""

    dataset: str = "communities"
    """Graph: a name from `fedpub data list`, or a graph file."""
    scenario: str | None = None
    """Division of the graph among clients. (default: disjoint; natural without `clients`)"""
    clients: int | None = None
    """Number of clients; none for natural clients."""
    method: str = "fedpub"
    """Method of learning."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters of the method."""
    task: str = "node-classification"
    """Learning task."""
    decoder: Decoder = "dot"
    """Scorer of links: the product of two embeddings (dot), or a small network on it (mlp)."""
    model: str | None = None
    """Graph neural network."""
    hidden: int | None = None
    """Width of the hidden layers."""
    dropout: float | None = None
    """Share of hidden values dropped in training."""
    rounds: int | None = None
    """Communication rounds."""
    epochs: int | None = None
    """Local epochs per round."""
    lr: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float | None = None
    """L2 weight decay of Adam. (default: 0; 1e-6 with `official`)"""
    fraction: float = 1.0
    """Share of the clients that take part in each round."""
    failures: float = 0.0
    """Probability that a selected client fails in a round."""
    seed: int = 0
    """Random seed."""
    data_seed: int | None = None
    """Random seed of split and partition. (default: `seed`)"""
    ratios: tuple[float, float, float] | None = None
    """Shares for training, validation and test: of the nodes, or of each client's edges in link prediction."""
    alpha: float = 0.5
    """Concentration of the dirichlet scenario: the smaller, the stronger the label skew."""
    defence: Defence = "default"
    """Defence against hostile clients; default is clip, or guard for methods with personal averages."""
    device: str = "cpu"
    """Compute device."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point precision."""

    def resolved(self) -> Experiment:
        """Checked, with nothing left open."""
        check_types(self, "")
        if self.method in ALSO_CALLED:
            return replace(self, method=ALSO_CALLED[self.method]).resolved()
        if self.task not in TASKS:
            raise unknown("task", self.task, TASKS)
        rounds, epochs = LINK_ROUNDS_AND_EPOCHS if self._links else ROUNDS_AND_EPOCHS.get(self.dataset, (100, 1))
        usual = {**USUAL, **getattr(METHODS.get(self.method), "usual", {})}
        filled = replace(
            self,
            **{name: value for name, value in usual.items() if getattr(self, name) is None},
            dataset=datasets.absolute(self.dataset),
            scenario=self.scenario or default_scenario(self.clients),
            rounds=rounds if self.rounds is None else self.rounds,
            epochs=epochs if self.epochs is None else self.epochs,
            weight_decay=self._weight_decay(),
            data_seed=self.seed if self.data_seed is None else self.data_seed,
            ratios=self.ratios or (LINK_RATIOS if self._links else datasets.split_ratios(self.dataset)),
        )
        algorithm = filled.algorithm()
        filled.net()
        filled._check()
        return replace(filled, options=dataclasses.asdict(algorithm))  # type: ignore[call-overload]

    @property
    def _links(self) -> bool:
        return self.task == "link-prediction"

    def _weight_decay(self) -> float:
        if self.weight_decay is not None:
            return self.weight_decay
        official = issubclass(METHODS.get(self.method, object), FedPub) and self.options.get("official")
        return OFFICIAL_WEIGHT_DECAY if official else 0.0

    def _check(self) -> None:
        for name in ("rounds", "epochs", "hidden"):
            if getattr(self, name) < 1:
                raise FedpubError(f"`{name}={getattr(self, name)}` is not possible; give 1 or more")
        if not 0 < self.fraction <= 1:
            raise FedpubError(f"`fraction={self.fraction}` is not possible; give a share above 0, up to 1")
        for name, low, high in (("dropout", 0, 0.99), ("failures", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise FedpubError(f"`{name}={getattr(self, name)}` is outside {low} to {high}")
        if self.weight_decay is not None and self.weight_decay < 0:
            raise FedpubError(f"`weight_decay={self.weight_decay}` is not possible; give 0 or more")
        if self.decoder != "dot" and not self._links:
            raise FedpubError(f"`decoder={self.decoder}` has no effect on {self.task}; add `task=link-prediction`")
        if self.lr <= 0:
            raise FedpubError(f"`lr={self.lr}` is not possible; give a positive number, as 0.01")
        try:
            device = torch.device(self.device).type
        except RuntimeError:
            device = ""
        if device not in ("cpu", "cuda"):
            raise unknown("device", self.device, ("cpu", "cuda"))
        if device == "cuda" and not torch.cuda.is_available():
            raise FedpubError("`device=cuda` is not available: this torch sees no GPU; use `device=cpu`")

    def algorithm(self) -> Algorithm:
        """The method with its hyper-parameters."""
        kind: Any = _named("method", self.method, METHODS)
        known = {one.name for one in fields(kind)}
        check_owned(self.options, self.method)
        for name in self.options:
            if name not in known:
                raise unknown(f"option of {self.method}", name, sorted(known) or ["(it has none)"])
        algorithm: Algorithm = kind(**self.options)
        check_types(algorithm, f"{self.method}.")
        return self.filled(algorithm)

    def filled(self, algorithm: Algorithm) -> Algorithm:
        """The method, with what it leaves open as in the paper."""
        if isinstance(algorithm, FedPub) and algorithm.tau is None:
            tau = TAU_OVERLAPPING if self.scenario == "overlapping" else TAU
            return replace(algorithm, tau=TAU_SYNTHETIC if self.dataset in SYNTHETIC else tau)
        if isinstance(algorithm, FedGNN) and algorithm.relation is None:
            return replace(algorithm, relation="neighbourhood" if self.scenario == "overlapping" else "similarity")
        return algorithm

    @property
    def width(self) -> int:
        assert self.hidden is not None, "only a resolved experiment has a width"
        return self.hidden

    def net(self) -> Model:
        """The model with its sizes."""
        assert self.model is not None, "only a resolved experiment has a model"
        model: Model = _named("model", self.model, MODELS)(self.width)
        return self.made_of(model)

    def made_of(self, model: Model) -> Model:
        """What the method trains where this model was asked for: most methods just that."""
        algorithm = self.algorithm()
        return algorithm.net(model, self.learns()) if isinstance(algorithm, MakesNet) else model

    def learns(self) -> Task:
        """The task with its settings."""
        return LinkPrediction(self.width, self.decoder) if self._links else NodeClassification()

    def context(self) -> Context:
        assert self.epochs is not None, "only a resolved experiment has a context"
        assert self.weight_decay is not None
        assert self.dropout is not None
        return Context(
            model=self.net(),
            task=self.learns(),
            seed=self.seed,
            round=0,
            epochs=self.epochs,
            lr=self.lr,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
            defence=self.defence,
        )

    def to_json(self) -> str:
        return json.dumps({one.name: getattr(self, one.name) for one in fields(Experiment)}, indent=2) + "\n"

    @staticmethod
    def read(path: Path) -> Experiment:
        """What a config.json asks of a site, checked; on what device is the site's own affair."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FedpubError(f"cannot read {path} ({error}); give the config.json of a run") from error
        return replace(Experiment.from_json(text, path), device="cpu").resolved()

    @staticmethod
    def from_json(text: str, place: Path) -> Experiment:
        """An experiment from a config.json; `place` is for the error message."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            raise FedpubError(
                f"{place} is not a configuration of fedpub ({error}); choose a run's config.json"
            ) from error
        known = {one.name for one in fields(Experiment)}
        for name in content:
            if name not in known:
                raise FedpubError(f"{place} has the unknown setting {name!r}; it was made by another version")
        if isinstance(content.get("ratios"), list):
            content["ratios"] = tuple(content["ratios"])
        if content.keys() == known - {"defence"}:  # a run from before there was one
            content["defence"] = "none"
        return Experiment(**content)


def _named(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """What a name stands for."""
    if name.startswith(OBJECT):
        raise FedpubError(
            f"the {kind} {name.removeprefix(OBJECT)!r} is an object of the program that made this run, which no name "
            f"can stand for: run it from there, by fedpub.run with that object as its {kind}"
        )
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
