"""The personal models of a run's clients, stacked in one file of its directory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fedpub.core.tensor_files import read_tensors
from fedpub.core.tree import Tree, tree_map
from fedpub.data import datasets
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.plan import OBJECT
from fedpub.models import MODELS, Model
from fedpub.models.base import OUTPUT
from fedpub.models.fallback import together
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.model_card import ModelCard
from fedpub.store.model_files import CARD, WEIGHTS, check_weights, damaged, load_model, settled
from fedpub.store.record import of_all
from fedpub.tasks import TASKS


def open_model(
    folder: Path, client: int | str | None = None, root: Path | None = None, own: Model | None = None
) -> tuple[Tree, ModelCard]:
    """The model in a folder, or the model of one client in a run directory; `own` if it is an object."""
    if (folder / WEIGHTS).is_file():
        if client is not None:
            raise FedpubError(f"{folder} holds one model, so `client={client}` has no effect; leave it out")
        return load_model(folder, own)
    if not (folder / CARD).is_file():
        raise FedpubError(f"{folder} holds neither a model nor a run; give the folder of one as `model`")
    if client is None:
        count = _clients(folder, _models(folder)[0])
        raise FedpubError(f"{folder} is a run of {count} clients; choose one of them by `client`, 0 to {count - 1}")
    return model_of_run(folder, client, root, own)


def model_of_run(
    run: Path, client: int | str, root: Path | None = None, own: Model | None = None, graph: Graph | None = None
) -> tuple[Tree, ModelCard]:
    """The personal model of a client, by its number or its name, at the best round of a simulation's run directory.

    Classes have the names of its graph if that is still available (`root` is the folder of raw files, `graph` the graph
    if it is loaded already), else numbers. `own` is the model if that is an object.
    """
    experiment = Experiment.from_json(RunDirectory.config(run), run / "config.json")
    models, header = _models(run)
    summary, details = RunDirectory(run).summary(), RunDirectory(run).details()
    held, count = len(next(iter(models.values()))), _clients(run, models)
    graph = _graph_of(experiment, run, root) if graph is None else graph
    if graph is None and str(experiment.model).startswith(OBJECT):
        raise FedpubError(
            f"the graph {experiment.dataset} of {run} has changed or is gone, and nothing else tells the inputs and "
            "outputs of a model that is an object; restore it"
        )
    client = client_number(client, count, graph.client_names if graph and experiment.scenario == "natural" else (), run)
    row = client if held > 1 else 0  # the oracle has one model for all clients
    weights = tree_map(lambda leaf: leaf[row : row + 1].clone(), models)
    rows = read_rows(run)
    known = [] if of_all(experiment.secure, rows) else rows  # of a single client
    best = [measured for measured in known if measured.round == summary.get("best_round")]
    try:
        card = ModelCard.of(
            experiment,
            num_features=graph.num_features if graph else _input(weights),
            relations=graph.num_relations if graph and not TASKS[experiment.task].of_pairs else 1,
            classes=graph.classes if graph else _numbers(experiment, weights),
            site=str(client),
            round=int(header["round"]),
            val=_known(best[0].clients["val"][client]) if best else None,
            test=_known(best[0].clients["test"][client]) if best else None,
            meta=dict(graph.meta) if graph else {},
            **{name: found[client] for name, found in details.items()},
        ).check()
    except (KeyError, IndexError, TypeError, ValueError, FedpubError) as error:
        raise FedpubError(f"{run} is damaged ({error}); start the run again in another directory") from error
    weights, card = settled(weights, card, own)
    check_weights(weights, card, str(run / "models.safetensors"), own)
    return weights, card


def unsettled(models: Sequence[tuple[Tree, ModelCard]], plan: Plan) -> Tree:
    """The models of all clients as a run keeps them, [K, ...]; if clients chose between two, the unused one is zero."""
    asked = replace(models[0][1], model=str(plan.experiment.model), hidden=plan.hidden)
    others = [card for _, card in models if (card.model, card.hidden) != (asked.model, asked.hidden)]

    def both(weights: Tree, alone: bool) -> Tree:
        unused = asked if alone else others[0]
        some = next(iter(weights.values()))
        blank = {name: some.new_zeros(shape) for name, shape in unused.shapes().items()}
        return together(*((blank, weights) if alone else (weights, blank)), torch.tensor([alone]))

    trees = [both(weights, card in others) if others else weights for weights, card in models]
    return {name: torch.cat([one[name] for one in trees]) for name in trees[0]}


def _models(run: Path) -> tuple[Tree, dict[str, str]]:
    """The stacked models of a run, [K, ...], and the header of their file."""
    path = run / "models.safetensors"
    if not path.is_file():
        if RunDirectory(run).finished:
            raise FedpubError(
                f"{run} kept no models; run it again with fedpub run --config {run / 'config.json'} --out OUT, or take "
                "those of a federation's sites from their folders"
            )
        raise FedpubError(f"{run} has no models before it is finished; resume it with fedpub run --resume {run}")
    models, header = read_tensors(path)
    if not models or any(not leaf.dim() or not len(leaf) for leaf in models.values()):
        raise damaged(path, "it holds no models")
    return models, header


def _clients(run: Path, models: Tree) -> int:
    """The number of clients in a run: those with a model, or all that share the oracle's."""
    return max(len(next(iter(models.values()))), len(RunDirectory(run).summary().get("per_client_test", [])))


def client_number(client: int | str, count: int, names: Sequence[str], run: Path) -> int:
    """A client's number in a run, given its number or its name."""
    number = int(client) if str(client).lstrip("-").isdecimal() else -1
    if not 0 <= number < count and client in names:
        number = names.index(str(client))
    if not 0 <= number < count:
        known = f", or a name such as {names[0]}" if names else ""
        raise FedpubError(f"`client={client}` is not one of the clients of {run}; give 0 to {count - 1}{known}")
    return number


def _graph_of(experiment: Experiment, run: Path, root: Path | None) -> Graph | None:
    """The graph that a run learnt from, if it is available and unchanged."""
    try:
        graph = datasets.load(experiment.dataset, root)
        RunDirectory(run).check_data(graph.digest())
    except (FedpubError, ImportError):
        return None
    return graph


def _input(weights: Tree) -> int:
    """The number of features that a model expects."""
    inputs = {name for kind in MODELS.values() for name in kind().inputs}
    return max(leaf.shape[-2] for name, leaf in weights.items() if name in inputs)


def _numbers(experiment: Experiment, weights: Tree) -> tuple[str, ...]:
    """Numbers in place of the names of classes or targets; pairs of nodes have none."""
    outputs = weights[f"{OUTPUT}.bias"].shape[-1] if not TASKS[experiment.task].of_pairs else 0
    return tuple(str(number) for number in range(outputs))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
