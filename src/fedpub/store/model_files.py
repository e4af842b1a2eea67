"""A personal model as two files, to be used without the run that made it.

model.safetensors   the weights; where many of them are zero, only the others and where they are
config.json         the card: what the weights are for, and what they expect of a graph
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedpub.core.checks import check_types
from fedpub.core.files import read_tensors, write_tensors, write_text
from fedpub.core.tree import Tree, tree_map
from fedpub.data import datasets
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment, Plan
from fedpub.models import MODELS, Model
from fedpub.models.base import OUTPUT
from fedpub.models.fallback import apart, chosen, together
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.tasks import TASKS, Task, task_of
from fedpub.tasks.link_prediction import Decoder
from fedpub.version import __version__

FORMAT = "fedpub-model-1"
WEIGHTS, CARD = "model.safetensors", "config.json"
WIDEST = 2**28  # what no model is wider than
ENTRY = 80  # bytes, about, that a tensor takes in the header of a file


@dataclass(frozen=True)
class ModelCard:
    """What has to be known to use a model where it was not trained."""

    model: str
    hidden: int
    task: str
    decoder: Decoder
    num_features: int
    classes: tuple[str, ...]
    method: str
    site: str  # whose model it is: a site's name, or a client's number in a simulation
    round: int  # the one after which it was kept
    seed: int
    dtype: Literal["float32", "float64"]
    val: float | None = None  # at that round, by the task's metric; None: not known
    test: float | None = None
    meta: Mapping[str, str] = field(default_factory=dict)  # of the graph it learnt from: how columns became features
    fedpub: str = __version__

    @staticmethod
    def of(experiment: Experiment, **known: Any) -> ModelCard:
        """The card of a model that came from a resolved experiment."""
        same = ("model", "hidden", "task", "decoder", "method", "seed", "dtype")
        return ModelCard(**{name: getattr(experiment, name) for name in same}, **known)

    def net(self) -> Model:
        return MODELS[self.model](self.hidden)

    def learns(self) -> Task:
        return task_of(self.task, self)

    def shapes(self) -> dict[str, list[int]]:
        """Of every weight, with the client axis in front."""
        with torch.device("meta"):  # without memory, however large the numbers in a damaged card
            stream, task = torch.Generator(), self.learns()
            leaves = self.net().init(self.num_features, task.outputs(len(self.classes)), stream) | task.init(stream)
        return {name: [1, *leaf.shape] for name, leaf in leaves.items()}

    def check(self) -> ModelCard:
        """The card itself, with every value possible."""
        check_types(self, "")
        for name, known in (("model", MODELS), ("task", TASKS)):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name in ("hidden", "num_features"):
            if not 1 <= getattr(self, name) <= WIDEST:
                raise FedpubError(f"{name} cannot be {getattr(self, name)}: it is 1 to {WIDEST}")
        if TASKS[self.task].of_classes and len(self.classes) < 2:
            raise FedpubError(f"classes cannot be {list(self.classes)}: nodes are told apart by two or more")
        if not all(isinstance(text, str) for text in (*self.classes, *self.meta, *self.meta.values())):
            raise FedpubError("classes and meta hold something else than text")
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
        if different := sorted(known ^ content.keys()):
            what = "lacks" if different[0] in known else "has the unknown entry"
            raise FedpubError(f"{path} {what} {different[0]!r}; save the model again")
        if isinstance(content["classes"], list):
            content["classes"] = tuple(content["classes"])
        try:
            return ModelCard(**content).check()
        except FedpubError as error:
            raise FedpubError(f"{path} is damaged: {error}; save the model again") from error


def save_model(folder: Path, weights: Tree, card: ModelCard) -> None:
    """One client's weights, leaves [1, ...], and their card; a model that is there already is replaced.

    What is zero comes back as zero, but without its sign.
    """
    weights, card = settled(weights, card)
    _check_weights(weights, card.check(), str(folder))
    stored: Tree = {}
    for name, leaf in weights.items():
        stored |= {name + part: tensor for part, tensor in _stored(leaf).items()}
    text, shapes = card.to_json(), {name: list(leaf.shape) for name, leaf in weights.items()}
    # Without its card a model cannot be used: so nobody finds new weights beside an old card after a kill.
    (folder / CARD).unlink(missing_ok=True)
    write_tensors(folder / WEIGHTS, stored, {"format": FORMAT, "shapes": json.dumps(shapes, sort_keys=True)})
    write_text(folder / CARD, text)


def load_model(folder: Path) -> tuple[Tree, ModelCard]:
    """What `save_model` wrote: dense leaves [1, ...] and the card."""
    path = folder / WEIGHTS
    stored, header = read_tensors(path)
    if header.get("format") != FORMAT:
        raise FedpubError(
            f"{path} holds no model of fedpub (its format is {header.get('format')!r}, not {FORMAT!r}); "
            "give another folder"
        )
    card = ModelCard.read(folder / CARD)
    try:
        shapes: dict[str, list[int]] = dict(json.loads(header["shapes"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, "its header does not name the weights") from error
    _check_shapes(shapes, card, str(path))
    weights = {name: _dense(stored, name, shape, path) for name, shape in shapes.items()}
    _check_weights(weights, card, str(path))
    return weights, card


def model_of_run(run: Path, client: int | str, root: Path | None = None) -> tuple[Tree, ModelCard]:
    """The personal model of a client, by its number or its name, at the best round of a simulation's run directory.

    The names of the classes are those of its graph where that is still at hand (`root` is the folder of raw files),
    else their numbers.
    """
    experiment = Experiment.from_json(RunDirectory.config(run), run / "config.json")
    models, header = _models(run)
    summary = RunDirectory(run).summary()
    held, count = len(next(iter(models.values()))), _clients(run, models)
    graph = _graph_of(experiment, run, root)
    client = _number(client, count, graph.client_names if graph and experiment.scenario == "natural" else (), run)
    row = client if held > 1 else 0  # the oracle has one model for all
    weights = tree_map(lambda leaf: leaf[row : row + 1].clone(), models)
    best = [measured for measured in read_rows(run) if measured.round == summary.get("best_round")]
    try:
        card = ModelCard.of(
            experiment,
            num_features=_input(weights),
            classes=graph.classes if graph else _numbers(experiment, weights),
            site=str(client),
            round=int(header["round"]),
            val=_known(best[0].clients["val"][client]) if best else None,
            test=_known(best[0].clients["test"][client]) if best else None,
            meta=dict(graph.meta) if graph else {},
        ).check()
    except (KeyError, IndexError, TypeError, ValueError, FedpubError) as error:
        raise FedpubError(f"{run} is damaged ({error}); start the run again in another directory") from error
    weights, card = settled(weights, card)
    _check_weights(weights, card, str(run / "models.safetensors"))
    return weights, card


def settled(weights: Tree, card: ModelCard) -> tuple[Tree, ModelCard]:
    """Where a client could choose between two models, the one that it uses."""
    fallback = chosen(weights)
    if fallback is None:
        return weights, card
    first, second = apart(weights)
    if not fallback.any():
        return first, card
    shapes = {name: list(leaf.shape) for name, leaf in second.items()}
    widths = {name: second[kind.inputs[0]].shape[-1] for name, kind in MODELS.items() if kind.inputs[0] in second}
    cards = [card, *(replace(card, model=name, hidden=width) for name, width in widths.items())]
    return second, next((one for one in cards if one.shapes() == shapes), card)


def unsettled(models: Sequence[tuple[Tree, ModelCard]], plan: Plan) -> Tree:
    """The models of all clients as a run keeps them, [K, ...]; of two to choose from, the unused one is zero."""
    asked = replace(models[0][1], model=str(plan.experiment.model), hidden=plan.hidden)
    others = [card for _, card in models if (card.model, card.hidden) != (asked.model, asked.hidden)]

    def both(weights: Tree, alone: bool) -> Tree:
        unused = asked if alone else others[0]
        some = next(iter(weights.values()))
        blank = {name: some.new_zeros(shape) for name, shape in unused.shapes().items()}
        return together(*((blank, weights) if alone else (weights, blank)), torch.tensor([alone]))

    trees = [both(weights, card in others) if others else weights for weights, card in models]
    return {name: torch.cat([one[name] for one in trees]) for name in trees[0]}


def open_model(folder: Path, client: int | str | None = None, root: Path | None = None) -> tuple[Tree, ModelCard]:
    """The model in a folder, or that of one client of a run directory."""
    if (folder / WEIGHTS).is_file():
        if client is not None:
            raise FedpubError(f"{folder} holds one model, so `client={client}` has no meaning there; leave it out")
        return load_model(folder)
    if not (folder / CARD).is_file():
        raise FedpubError(f"{folder} holds neither a model nor a run; give the folder of one as `model`")
    if client is None:
        count = _clients(folder, _models(folder)[0])
        raise FedpubError(f"{folder} is a run of {count} clients; choose one of them by `client`, 0 to {count - 1}")
    return model_of_run(folder, client, root)


def _models(run: Path) -> tuple[Tree, dict[str, str]]:
    """The stacked models of a run, [K, ...], and the header of their file."""
    path = run / "models.safetensors"
    if not path.is_file():
        if RunDirectory(run).finished:
            raise FedpubError(
                f"{run} kept no models; run it again with fedpub run --config {run / 'config.json'} --out OUT"
            )
        raise FedpubError(f"{run} has no models before its end; go on with fedpub run --resume {run}")
    models, header = read_tensors(path)
    if not models or any(not leaf.dim() or not len(leaf) for leaf in models.values()):
        raise _damaged(path, "it holds no models")
    return models, header


def _clients(run: Path, models: Tree) -> int:
    """The clients that a run reports on: those with a model, or all that share the oracle's."""
    return max(len(next(iter(models.values()))), len(RunDirectory(run).summary().get("per_client_test", [])))


def _number(client: int | str, count: int, names: Sequence[str], run: Path) -> int:
    """A client's number in a run; by its name where that is no number."""
    number = int(client) if str(client).lstrip("-").isdecimal() else -1
    if not 0 <= number < count and client in names:
        number = names.index(str(client))
    if not 0 <= number < count:
        known = f", or a name, as {names[0]}" if names else ""
        raise FedpubError(f"`client={client}` is not one of the clients of {run}; give 0 to {count - 1}{known}")
    return number


def _graph_of(experiment: Experiment, run: Path, root: Path | None) -> Graph | None:
    """The graph that a run learnt from, where it can be had unchanged."""
    try:
        graph = datasets.load(experiment.dataset, root)
        RunDirectory(run).check_data(graph.digest())
    except (FedpubError, ImportError):
        return None
    return graph


def _input(weights: Tree) -> int:
    """The features that a model expects."""
    inputs = {name for kind in MODELS.values() for name in kind.inputs}
    return max(leaf.shape[-2] for name, leaf in weights.items() if name in inputs)


def _numbers(experiment: Experiment, weights: Tree) -> tuple[str, ...]:
    """Numbers for names of classes, where those are what the model's outputs are."""
    outputs = weights[f"{OUTPUT}.bias"].shape[-1] if TASKS[experiment.task].of_classes else 0
    return tuple(str(number) for number in range(outputs))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _check_shapes(shapes: Mapping[str, Any], card: ModelCard, place: str) -> None:
    wanted = card.shapes()
    for name in sorted(wanted.keys() | shapes.keys()):
        if name not in shapes:
            raise FedpubError(f"{place} lacks the weights {name!r}, which its card needs; save the model again")
        if name not in wanted:
            raise FedpubError(f"{place} has the weights {name!r}, which its card does not know; save the model again")
        if shapes[name] != wanted[name]:
            raise FedpubError(
                f"{place} has weights {name!r} of shape {shapes[name]}, where its card needs {wanted[name]}; "
                "save the model again"
            )


def _check_weights(weights: Tree, card: ModelCard, place: str) -> None:
    """That the weights are those the card speaks of."""
    _check_shapes({name: list(leaf.shape) for name, leaf in weights.items()}, card, place)
    for name, leaf in weights.items():
        if leaf.dtype != getattr(torch, card.dtype):
            kind = str(leaf.dtype).removeprefix("torch.")
            raise FedpubError(
                f"{place} has weights {name!r} of type {kind}, where its card says {card.dtype}; save the model again"
            )


def _stored(leaf: Tensor) -> Tree:
    """A leaf as it is, or what is not zero with its positions (bits or numbers), or the rows that are not zero.

    Whichever takes the fewest bytes.
    """
    rows_RH = leaf.detach().cpu().numpy().reshape(-1, leaf.shape[-1])
    kept_RH = rows_RH != 0
    kept_R = kept_RH.any(1)
    some, index = rows_RH[kept_RH], np.flatnonzero(kept_RH)
    ways = [
        {"": rows_RH.reshape(leaf.shape).copy()},  # a copy: safetensors refuses views of the same memory
        {"/values": some, "/bits": np.packbits(kept_RH)},
        {"/values": rows_RH[kept_R].ravel(), "/rows": np.packbits(kept_R)},
    ]
    if kept_RH.size <= 2**32:
        ways.append({"/values": some, "/index": index.astype(np.uint32)})
    smallest = min(ways, key=lambda way: sum(part.nbytes + ENTRY for part in way.values()))
    return {name: torch.from_numpy(part) for name, part in smallest.items()}


def _dense(stored: Tree, name: str, shape: list[int], path: Path) -> Tensor:
    """What `_stored` stored."""
    if name in stored:
        return stored[name]
    values, width = stored.get(f"{name}/values"), shape[-1]
    how = next((how for how in ("bits", "rows", "index") if f"{name}/{how}" in stored), None)
    if values is None or how is None:
        raise _damaged(path, f"it has no weights {name!r}")
    where = stored[f"{name}/{how}"]
    kinds = (torch.uint32 if how == "index" else torch.uint8, True, 1, 1)
    if (where.dtype, values.dtype in (torch.float32, torch.float64), where.dim(), values.dim()) != kinds:
        raise _damaged(path, f"the positions of {name!r} are of another kind")
    at = where.numpy().astype(np.int64) if how == "index" else np.flatnonzero(np.unpackbits(where.numpy()))
    if how == "rows":
        at = (at[:, None] * width + np.arange(width)).ravel()
    if len(at) != len(values):
        raise _damaged(path, f"{name!r} has {len(values):,} values at {len(at):,} positions")
    dense = np.zeros(math.prod(shape), dtype=values.numpy().dtype)
    if len(at) and (at[-1] >= len(dense) or (np.diff(at) <= 0).any()):
        raise _damaged(path, f"a position of {name!r} is outside of it or out of order")
    dense[at] = values.numpy()
    return torch.from_numpy(dense).view(shape)


def _damaged(path: Path, reason: str) -> FedpubError:
    return FedpubError(f"{path} is damaged: {reason}; save the model again")
