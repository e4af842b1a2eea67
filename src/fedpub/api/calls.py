"""The functions for programs and notebooks: run, compare, load and predict, with names or with the caller's objects."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedpub.algorithms import METHODS, Algorithm, check_owned
from fedpub.api.bars import progress as bar_of
from fedpub.api.frames import pandas
from fedpub.api.graphs import (
    Place,
    given_graph,
    graph_file,
    graph_from_pyg,
    kept_graph,
    load_graph,
    node_pairs,
    path_of,
)
from fedpub.api.requests import (
    SETTINGS,
    check_keywords,
    hyper_parameters,
    labelled_methods,
    method_of,
    model_object,
    request,
)
from fedpub.api.results import Comparison, Run
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT
from fedpub.models import Model
from fedpub.runs import simulated as running
from fedpub.runs.comparison import compare as compare_runs
from fedpub.runs.comparison import plan_all
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Record
from fedpub.store.run_models import model_of_run, open_model

if TYPE_CHECKING:
    from pandas import DataFrame

RUNNING = ("out", "resume", "progress", "data_root", "chunk", "max_memory", "keep_checkpoint")
COMPARED = (
    "datasets",
    "methods",
    "clients",
    "seeds",
    "model",
    *(name for name in RUNNING if name not in ("resume", "chunk")),
)


def run(
    dataset: Place | Graph | Any = "communities",
    scenario: str | None = None,
    clients: int | None = None,
    method: str | Algorithm = "fedpub",
    *,
    model: str | Model | torch.nn.Module | None = None,
    task: str = "node-classification",
    rounds: int | None = None,
    seed: int = 0,
    out: Place | None = None,
    resume: bool = False,
    progress: bool = True,
    data_root: Place | None = None,
    chunk: int | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
    **settings: Any,
) -> Run:
    """Train one method on the clients of one graph.

    `settings` are the further fields of `fedpub.Experiment` and the hyper-parameters of the method, such as `tau=5.0`.
    Settings that are None follow the paper; without `clients`, the graph's natural clients are used.

    `dataset` is a name, a graph file, a `fedpub.Graph` or a PyG `Data`; the last two have the default settings of a
    graph file, even if they were made from a named graph. `method` and `model` are names, or objects with the protocols
    `fedpub.algorithms.Algorithm` and `fedpub.models.Model`. `model` may also be a PyTorch module whose `forward`
    takes x and edge_index, as those of PyG do: it is copied, and every client starts from its weights.

    With `out` the run is kept in that directory, and `resume` continues an interrupted run there. A run with a method
    or model object can only be resumed by a program that passes the same object: its name and fields are compared, but
    its code cannot be. Without `out` the directory is temporary and lasts as long as the result. A finished run drops
    its checkpoint unless `keep_checkpoint`.
    """
    if out is None and resume:
        raise FedpubError("resume=True needs the directory of the run to resume; give it as out=")
    chosen = {"scenario": scenario, "clients": clients, "task": task, "rounds": rounds, "seed": seed, **settings}
    known = [*SETTINGS, *hyper_parameters(method), *RUNNING]
    check_owned((name for name in settings if name not in known), method_of(method)[0].removeprefix(OBJECT))
    check_keywords("fedpub.run", settings, known)
    asked = request(method, model, chosen)
    graph = given_graph(dataset)
    if isinstance(graph, Graph) and graph.client is None and clients is None and scenario in (None, "natural"):
        raise FedpubError(f"graph {graph.name!r} has no natural clients; give a number, such as clients=5")
    root = path_of(data_root)
    with ExitStack() as unless_done:
        place = path_of(out)
        if place is None:
            folder = Path(tempfile.mkdtemp(prefix="fedpub-"))
            unless_done.callback(shutil.rmtree, folder, ignore_errors=True)
            place = folder / "run"
        name = str(place.resolve() / graph_file(graph)) if isinstance(graph, Graph) else graph
        with bar_of(progress) as bar:
            found = running.run(
                asked.resolve(dataset=name),
                place,
                resume=resume and (place / "config.json").is_file(),
                root=root,
                chunk=chunk,
                max_memory=max_memory,
                checkpoint_seconds=60.0 if out is not None else float("inf"),
                on_round=bar.on_round,
                on_step=bar.on_step,
                on_prepare=bar.on_prepare,
                keep_checkpoint=keep_checkpoint,
                graph=graph if isinstance(graph, Graph) else None,
            )
        unless_done.pop_all()
    for client in found.idle:
        warnings.warn(f"client {client} has nothing to train on and only receives", stacklevel=2)
    held = Experiment.from_json(RunDirectory.config(place), place / "config.json")
    own = asked.model
    made = Run(held, found.summary, found.record, place, temporary=out is None, data_root=root, own=own)
    if out is None:
        weakref.finalize(made, shutil.rmtree, place.parent, ignore_errors=True)
    return made


def compare(
    datasets: Place | Graph | Any | Sequence[Any] = "communities",
    methods: Sequence[str | Algorithm] | Mapping[str, str | Algorithm] = ("fedpub", "fedavg", "local"),
    *,
    clients: int | Sequence[int] | None = None,
    seeds: int = 3,
    model: str | Model | torch.nn.Module | None = None,
    out: Place | None = None,
    progress: bool = True,
    data_root: Place | None = None,
    max_memory: float | None = None,
    keep_checkpoint: bool = False,
    **settings: Any,
) -> Comparison:
    """Several methods on the same data and seeds; the others are tested against the first.

    `methods` are names or objects such as `FedPub(tau=5.0)`; a mapping gives them labels. `settings` are the fields of
    `fedpub.Experiment` that all methods share. With `out` every run has a directory there, and complete runs are not
    repeated. `max_memory` is the memory limit of a run in GiB, and `keep_checkpoint` keeps checkpoints, as in
    `fedpub.run`.
    """
    labelled = labelled_methods(methods)
    for name, value in settings.items():
        if owner := next((kind.__name__ for one, kind in METHODS.items() if name in hyper_parameters(one)), None):
            raise FedpubError(
                f"{name} belongs to a method, and there are several; give that method as an object from "
                f"fedpub.algorithms, such as methods=[{owner}({name}={value!r}), ...]"
            )
    shared = [name for name in SETTINGS if name not in ("dataset", "clients", "method", "options", "model")]
    check_keywords("fedpub.compare", settings, [*shared, *COMPARED])
    counts = () if clients is None else (clients,) if isinstance(clients, int) else tuple(clients)
    given = list(datasets) if isinstance(datasets, list | tuple) else [datasets]
    with ExitStack() as until_done:
        folder = path_of(out)
        files = folder or Path(until_done.enter_context(tempfile.TemporaryDirectory(prefix="fedpub-")))
        planned = []
        for dataset in given:
            asked = {label: request(method, model, settings) for label, method in labelled.items()}
            planned += plan_all(asked, [kept_graph(dataset, files)], counts, seeds)
        with bar_of(progress, len(planned)) as bar:
            how = (bar.on_round, bar.on_step, max_memory, keep_checkpoint)
            runs = list(compare_runs(planned, folder, path_of(data_root), *how))
    return Comparison(tuple(runs))


def load(path: Place, model: Model | torch.nn.Module | None = None) -> Run:
    """A finished run from its directory; `model` is its model if that was an object."""
    place = Path(path).expanduser()
    experiment = Experiment.from_json(RunDirectory.config(place), place / "config.json")
    store = RunDirectory(place)
    if not store.finished:
        raise FedpubError(
            f"{place} is not finished: resume it with fedpub.run(..., out={str(place)!r}, resume=True), or look at it "
            f"with fedpub report {place}"
        )
    summary, rows = store.summary(), read_rows(place)
    needed = {"metric", "test", "val", "best_round", "rounds", "per_client_test", "sparsity", "bytes_up", "seconds"}
    if missing := sorted(needed - summary.keys()):
        raise FedpubError(f"{place / 'summary.json'} lacks {missing[0]!r}; start the run again in another directory")
    if len(rows) < summary["rounds"]:
        raise FedpubError(
            f"{place / 'clients.csv'} has {len(rows)} of the run's {summary['rounds']} rounds; start the run again in "
            "another directory"
        )
    return Run(experiment, summary, Record(rows), place, own=None if model is None else model_object(model))


def predict(
    run: Run | Place,
    graph: Place | Graph | Any,
    client: int | str | None = None,
    *,
    model: Model | torch.nn.Module | None = None,
    pairs: Any = None,
    data_root: Place | None = None,
) -> DataFrame:
    """Predict classes of a graph's nodes with a personal model, with their probabilities, or links between pairs.

    `run` is a run, its directory or a model's folder; `client` is the number or name of the client whose model in a run
    is used, and `model` that model if it was an object and `run` is not a run of this program. The graph needs no
    labels. `pairs` are node numbers, [P, 2], for a model that predicts links.
    """
    import fedpub.runs.prediction as predicting

    pandas()
    root, own = path_of(data_root), None if model is None else model_object(model)
    if isinstance(run, Run):
        if client is None:
            count = len(run.summary["per_client_test"])
            raise FedpubError(f"a run has a model for each of its {count} clients; choose one, such as client=0")
        own = own or run.own
        weights, card = model_of_run(run.path, client, run.data_root, own)
    else:
        weights, card = open_model(Path(run).expanduser(), client, root, own)
    given = given_graph(graph, labelled=False)
    known = given if isinstance(given, Graph) else load_graph(given, root, labelled=False)
    answer = predicting.predict(weights, card, known, None if pairs is None else node_pairs(pairs, known), own)
    for note in predicting.notes(card, known):
        warnings.warn(note, stacklevel=2)
    found: DataFrame = predicting.table_of(answer).to_pandas()
    return found


__all__ = ["compare", "graph_from_pyg", "load", "load_graph", "predict", "run"]
