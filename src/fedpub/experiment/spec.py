"""The specification of an experiment: the user's settings, to and from JSON.

Where a setting belongs:

- a field of `Experiment`: what a result depends on, whatever the method. It is in config.json, a flag of `fedpub run`
  and a keyword of `fedpub.run`. A new one needs a default with which old config.json files mean what they meant.
- a field of the method's dataclass (`algorithms/`): a hyper-parameter of that method only; `options` holds it here. The
  method also says which defaults suit a data set (`adapted`) and which of the settings here it wants otherwise
  (`defaults`).
- a field of the task's dataclass (`tasks/`): what only that task knows, such as `decoder`. The task gets it from the
  field of the same name here, and claims it in `settings`.
- `federation.requests.Terms`: how a coordinator deals with sites; sites need not agree on it.
- a flag of a verb or an argument of a function: where and how it is computed (`out`, `chunk`, `max_memory`), which
  changes no result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from fedpub.algorithms.protocol import Algorithm, Defence
from fedpub.data.clients.split import Origin
from fedpub.errors import FedpubError
from fedpub.experiment.plan import Plan
from fedpub.models import Model
from fedpub.tasks.link_prediction import Decoder
from fedpub.tasks.metrics import Metric
from fedpub.tasks.node_classification import ClassWeights


@dataclass(frozen=True)
class Experiment:
    """Everything a result depends on. Settings that are None follow the paper and are filled in by `resolve`."""

    dataset: str = "communities"
    """Graph: a name from `fedpub data list`, or a graph file."""
    scenario: str | None = None
    """Division of the graph among clients. (default: disjoint; natural without a number of clients)"""
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
    metric: Metric | None = None
    """Metric that decides the best round and is reported. (default: accuracy; roc-auc for link prediction,
    average-precision for several labels, R² for numbers)"""
    class_weights: ClassWeights = "none"
    """Weights of classes in the loss: none, or balanced for equal shares of a client's classes."""
    model: str | None = None
    """Graph neural network."""
    hidden: int | None = None
    """Width of the hidden layers."""
    hops: int = 2
    """Steps along the edges in the model hops."""
    layers: int = 1
    """Dense layers before the classifier in the model hops: 1 or 2."""
    dropout: float | None = None
    """Share of hidden values dropped in training."""
    rounds: int | None = None
    """Communication rounds."""
    epochs: int | None = None
    """Local epochs per round."""
    batch_size: int = 0
    """Training nodes per step, for models whose nodes are independent (hops); 0 for all at once."""
    lr: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float | None = None
    """L2 weight decay of Adam. (default: 0; 1e-6 for FED-PUB as published)"""
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
    split: Origin = "default"
    """Sets of nodes: random, the graph's own, or the paper's (published); default is own if the graph has sets."""
    alpha: float = 0.5
    """Concentration of the dirichlet scenario: the smaller, the stronger the label skew."""
    secure: bool = False
    """Secure aggregation: the server gets sums over groups of clients, never one client's upload."""
    min_group: int = 3
    """Minimum number of clients in a community, in an average and in a secure sum."""
    embedding_noise: float = 0.0
    """Standard deviation of the noise on functional embeddings, in their own."""
    defence: Defence = "default"
    """Defence against hostile clients; default is clip, or guard for methods with personal averages."""
    device: str = "cpu"
    """Compute device."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point precision."""

    def resolve(self) -> Plan:
        """The plan, with every setting filled in and everything built."""
        return Plan.of(self)

    def to_json(self) -> str:
        return json.dumps({one.name: getattr(self, one.name) for one in fields(Experiment)}, indent=2) + "\n"

    @staticmethod
    def read(path: Path) -> Experiment:
        """The experiment in a config.json for a site, checked and filled in; the device is up to the site."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FedpubError(f"cannot read {path} ({error}); give the config.json of a run") from error
        return replace(Experiment.from_json(text, path), device="cpu").resolve().experiment

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
        if known - content.keys() <= YOUNGER.keys():  # a run from before some settings; else written by hand
            content = {**YOUNGER, **content}
        return Experiment(**content)


YOUNGER: Mapping[str, Any] = {
    "defence": "none",
    "hops": 2,
    "layers": 1,
    "batch_size": 0,
    "metric": None,
    "class_weights": "none",
    "split": "default",
    "secure": False,
    "min_group": 3,
    "embedding_noise": 0.0,
}
"""Settings that came after runs had been stored, each with the value under which those were computed."""


@dataclass(frozen=True)
class Request:
    """An experiment to run, with an object in place of a method or model that has no name."""

    experiment: Experiment
    algorithm: Algorithm | None = None
    model: Model | None = None

    def resolve(self, **changes: Any) -> Plan:
        """The plan with some settings changed."""
        return Plan.of(replace(self.experiment, **changes), self.algorithm, self.model)
