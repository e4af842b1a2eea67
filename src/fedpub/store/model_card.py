"""The description that a model needs to be used away from its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch

from fedpub.core.checks import check_types
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT
from fedpub.models import MODELS, Model, model_of
from fedpub.models.module import object_name
from fedpub.tasks import TASKS, Task, task_of
from fedpub.tasks.link_prediction import Decoder
from fedpub.version import __version__

FORMAT = "fedpub-model-1"
WIDEST = 2**28  # no model is wider
DETAILS = ("threshold", "confusion")  # what a task finds out about a kept model, if anything


@dataclass(frozen=True)
class ModelCard:
    """Everything needed to use a model away from the run that trained it."""

    model: str
    hidden: int
    task: str
    decoder: Decoder
    num_features: int
    classes: tuple[str, ...]
    method: str
    site: str  # owner of the model: a site's name, or a client's number in a simulation
    round: int  # the round after which it was kept
    seed: int
    dtype: Literal["float32", "float64"]
    val: float | None = None  # at that round, by the task's metric; None: unknown
    test: float | None = None
    hops: int = 2
    layers: int = 1
    threshold: float | None = None  # between two classes, chosen on validation nodes
    confusion: list[list[int]] | None = None  # of the test nodes with it: rows are true classes, columns predicted ones
    relations: int = 1  # directions and kinds of edges in the graph it learnt from
    meta: Mapping[str, str] = field(default_factory=dict)  # of the graph it learnt from: how columns became features
    fedpub: str = __version__

    @staticmethod
    def of(experiment: Experiment, **known: Any) -> ModelCard:
        """The card of a model that came from a resolved experiment."""
        same = ("model", "hidden", "hops", "layers", "task", "decoder", "method", "seed", "dtype")
        return ModelCard(**{name: getattr(experiment, name) for name in same}, **known)

    def net(self, own: Model | None = None) -> Model:
        """The model; `own` if the card is of an object, which it cannot describe."""
        if not self.of_object:
            return model_of(self.model, self)
        if own is None:
            raise FedpubError(
                f"the model {self.model.removeprefix(OBJECT)!r} is an object of the program that trained it; in "
                "Python, give that object to fedpub.load or fedpub.predict as model="
            )
        if OBJECT + object_name(own) != self.model:
            raise FedpubError(
                f"the object {object_name(own)!r} is not the model that was trained, "
                f"{self.model.removeprefix(OBJECT)!r}; give that one as model="
            )
        return own

    @property
    def of_object(self) -> bool:
        return self.model.startswith(OBJECT)

    def learns(self) -> Task:
        return task_of(self.task, self)

    def shapes(self, own: Model | None = None) -> dict[str, list[int]]:
        """The shape of every weight, with the client axis first."""
        with torch.device("meta"):  # takes no memory, however large the numbers in a damaged card
            stream, task = torch.Generator(), self.learns()
            leaves = self.net(own).init(self.num_features, task.outputs(len(self.classes)), stream) | task.init(stream)
        return {name: [1, *leaf.shape] for name, leaf in leaves.items()}

    def check(self) -> ModelCard:
        """The card itself; raises an error unless every value is possible."""
        check_types(self, "")
        for name, known in (("model", MODELS), ("task", TASKS)):
            if getattr(self, name) not in known and not (name == "model" and self.of_object):
                raise unknown(name, getattr(self, name), known)
        for name in ("hidden", "num_features"):
            if not 1 <= getattr(self, name) <= WIDEST:
                raise FedpubError(f"{name} cannot be {getattr(self, name)}: it is 1 to {WIDEST}")
        if TASKS[self.task].of_classes and len(self.classes) < 2:
            raise FedpubError(f"classes cannot be {list(self.classes)}: two or more are needed")
        if not all(isinstance(text, str) for text in (*self.classes, *self.meta, *self.meta.values())):
            raise FedpubError("classes and meta may hold only text")
        return self

    def to_json(self) -> str:
        content = {"format": FORMAT, **asdict(self), "meta": dict(self.meta)}
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @staticmethod
    def read(path: Path) -> ModelCard:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise FedpubError(f"there is no file {path}: the model is not complete; save it again") from error
        except (OSError, ValueError) as error:
            raise FedpubError(f"{path} cannot be read ({error}); save the model again") from error
        found = content.pop("format", None) if isinstance(content, dict) else None
        if found != FORMAT:
            raise FedpubError(
                f"{path} describes no model of fedpub (its format is {found!r}, not {FORMAT!r}); give another folder"
            )
        known = {one.name for one in fields(ModelCard)}
        earlier = {"hops": 2, "layers": 1, "relations": 1} | dict.fromkeys(DETAILS)  # versions did not write these
        content = earlier | content
        if different := sorted(known ^ content.keys()):
            what = "lacks" if different[0] in known else "has the unknown entry"
            raise FedpubError(f"{path} {what} {different[0]!r}; save the model again")
        if isinstance(content["classes"], list):
            content["classes"] = tuple(content["classes"])
        try:
            return ModelCard(**content).check()
        except FedpubError as error:
            raise FedpubError(f"{path} is damaged: {error}; save the model again") from error
