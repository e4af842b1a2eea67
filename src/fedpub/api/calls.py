"""What a program or a notebook calls: run, compare, load, predict, with names or with objects of its own."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpub.algorithms import METHODS, Algorithm, check_owned, method_called, options_of
from fedpub.api.results import Comparison, Run, pandas
from fedpub.api.results import progress as bar_of
from fedpub.core.files import file_name
from fedpub.data import datasets as known_graphs
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT
from fedpub.experiment.spec import Request
from fedpub.models import MODELS, Model
from fedpub.runs import simulated as running
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Record

if TYPE_CHECKING:
    from pandas import DataFrame

Place = str | os.PathLike[str]
SETTINGS = tuple(one.name for one in fields(Experiment))
RUNNING = ("out", "resume", "progress", "data_root", "chunk", "max_memory")
COMPARED = ("datasets", "methods", "clients", "seeds", "model", "out", "progress", "data_root", "max_memory")


def run(
    dataset: Place | Graph | Any = "communities",
    scenario: str | None = None,
    clients: int | None = None,
    method: str | Algorithm = "fedpub",
    *,
    model: str | Model | None = None,
    task: str = "node-classification",
    rounds: int | None = None,
    seed: int = 0,
    out: Place | None = None,
    resume: bool = False,
    progress: bool = True,
    data_root: Place | None = None,
    chunk: int | None = None,
    max_memory: float | None = None,
    **settings: Any,
) -> Run:
    """Train one method on the clients of one graph.

    `settings` are the further fields of `fedpub.Experiment` and the hyper-parameters of the method, such as `tau=5.0`.
    What is None follows the paper, and without `clients` they are those that the graph came with.

    `dataset` is a name, a graph file, a `fedpub.Graph` or a PyG `Data`; the last two have the settings of a file, even
    where they were made of a named graph. `method` and `model` are names, or objects with the protocols
    `fedpub.algorithms.Algorithm` and `fedpub.models.Model`.

    With `out` the run is kept in that directory, and with `resume` it goes on where one was interrupted there. A run
    with a method or model object is only resumed from a program that gives the same object: its name and fields are
    compared, its code cannot be. Without `out` the directory is a temporary one that lasts as long as the result.
    """
    if out is None and resume:
        raise FedpubError("resume=True needs the directory of the run that is to go on; give it as out=")
    chosen = {"scenario": scenario, "clients": clients, "task": task, "rounds": rounds, "seed": seed, **settings}
    known = [*SETTINGS, *_hyper_parameters(method), *RUNNING]
    check_owned((name for name in settings if name not in known), _method(method)[0].removeprefix(OBJECT))
    _check_keywords("fedpub.run", settings, known)
    asked = _request(method, model, chosen)
    graph = _graph(dataset)
    if isinstance(graph, Graph) and graph.client is None and clients is None and scenario in (None, "natural"):
        raise FedpubError(f"graph {graph.name!r} came without clients; give their number, as clients=5")
    root = _path(data_root)
    with ExitStack() as unless_done:
        place = _path(out)
        if place is None:
            folder = Path(tempfile.mkdtemp(prefix="fedpub-"))
            unless_done.callback(shutil.rmtree, folder, ignore_errors=True)
            place = folder / "run"
        name = str(place.resolve() / _file_name(graph)) if isinstance(graph, Graph) else graph
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
                graph=graph if isinstance(graph, Graph) else None,
            )
        unless_done.pop_all()
    for client in found.idle:
        warnings.warn(f"client {client} has nothing to train on: it only received", stacklevel=2)
    held = Experiment.from_json(RunDirectory.config(place), place / "config.json")
    made = Run(held, found.summary, found.record, place, temporary=out is None, data_root=root)
    if out is None:
        weakref.finalize(made, shutil.rmtree, place.parent, ignore_errors=True)
    return made


def compare(
    datasets: Place | Graph | Any | Sequence[Any] = "communities",
    methods: Sequence[str | Algorithm] | Mapping[str, str | Algorithm] = ("fedpub", "fedavg", "local"),
    *,
    clients: int | Sequence[int] | None = None,
    seeds: int = 3,
    model: str | Model | None = None,
    out: Place | None = None,
    progress: bool = True,
    data_root: Place | None = None,
    max_memory: float | None = None,
    **settings: Any,
) -> Comparison:
    """Several methods on the same data and seeds; the others are tested against the first.

    `methods` are names or objects, as `FedPub(tau=5.0)`; a mapping gives them names of one's own. `settings` are the
    fields of `fedpub.Experiment` that all share. With `out` every run has its directory there: what is complete is not
    run again. `max_memory` is the GiB that a run may take, as in `fedpub.run`.
    """
    from fedpub.runs.comparison import compare as compare_runs
    from fedpub.runs.comparison import plan_all

    labelled = _labelled(methods)
    for name, value in settings.items():
        if owner := next((kind.__name__ for one, kind in METHODS.items() if name in _hyper_parameters(one)), None):
            raise FedpubError(
                f"{name} belongs to a method, and here are several; give one with it, as methods=[{owner}({name}="
                f"{value!r}), ...], from fedpub.algorithms"
            )
    shared = [name for name in SETTINGS if name not in ("dataset", "clients", "method", "options", "model")]
    _check_keywords("fedpub.compare", settings, [*shared, *COMPARED])
    counts = () if clients is None else (clients,) if isinstance(clients, int) else tuple(clients)
    given = list(datasets) if isinstance(datasets, list | tuple) else [datasets]
    with ExitStack() as until_done:
        folder = _path(out)
        files = folder or Path(until_done.enter_context(tempfile.TemporaryDirectory(prefix="fedpub-")))
        planned = []
        for dataset in given:
            asked = {label: _request(method, model, settings) for label, method in labelled.items()}
            planned += plan_all(asked, [_named_graph(dataset, files)], counts, seeds)
        with bar_of(progress, len(planned)) as bar:
            runs = list(compare_runs(planned, folder, _path(data_root), bar.on_round, bar.on_step, max_memory))
    return Comparison(tuple(runs))


def load(path: Place) -> Run:
    """A finished run from its directory."""
    place = Path(path).expanduser()
    experiment = Experiment.from_json(RunDirectory.config(place), place / "config.json")
    store = RunDirectory(place)
    if not store.finished:
        raise FedpubError(
            f"{place} is not finished: go on with fedpub.run(..., out={str(place)!r}, resume=True), or look at it with "
            f"fedpub report {place}"
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
    return Run(experiment, summary, Record(rows), place)


def load_graph(name: Place, data_root: Place | None = None, labelled: bool = True) -> Graph:
    """A graph by its name or from a file; one that is only to be predicted on need not be `labelled`."""
    return known_graphs.load(str(Path(name).expanduser()), _path(data_root), labelled=labelled)


def graph_from_pyg(data: Any, name: str | None = None, labelled: bool = True) -> Graph:
    """A graph from a PyG `Data` with x, y and edge_index; y < 0 means no label.

    `client` (a number per node) gives natural clients. Names are taken where `fedpub.Graph.to_pyg` put them. A warning
    names what is not used, as masks (fedpub splits each client's nodes itself) and edge weights.
    """
    from torch_geometric.data import Data

    from fedpub.data.tables import from_pyg
    from fedpub.data.tables.objects import ALWAYS_POSSIBLE

    if not isinstance(data, Data):
        raise FedpubError(f"a graph cannot be made of a {type(data).__name__}; give a PyG Data, of a dataset its [0]")
    called = name or (data.get("name") if isinstance(data.get("name"), str) else None) or "graph"
    if labelled:
        graph = from_pyg(data, called)
    else:  # the converter is for graphs to learn from: any labels will do
        some = data.clone()
        some.y = torch.arange(int(data.num_nodes or 0) if data.get("x") is None else np.shape(data.x)[0]) % 2
        graph = replace(from_pyg(some, called), classes=(), y=torch.full((len(some.y),), -1))
    further: dict[str, Any] = {}
    if labelled and (classes := _texts(data.get("classes"))) and len(classes) >= graph.num_classes:
        further["classes"] = classes
    if len(node_ids := _texts(data.get("node_ids"))) == graph.num_nodes:
        further["node_ids"] = node_ids
    if (client := data.get("client")) is not None:
        number_N = torch.as_tensor(client).detach().cpu()
        if number_N.shape != (graph.num_nodes,) or number_N.is_floating_point() or int(number_N.min()) < 0:
            raise FedpubError(
                f"the PyG Data has client of shape {list(number_N.shape)} and type {number_N.dtype}; give each of the "
                f"{graph.num_nodes} nodes the number of its client, 0 or more, or leave it out"
            )
        count = int(number_N.max()) + 1
        if count > max(ALWAYS_POSSIBLE, graph.num_nodes):
            raise FedpubError(
                f"the PyG Data has the client {count - 1}, so {count:,} clients of {graph.num_nodes:,} nodes; "
                "number them from 0, as torch.unique(client, return_inverse=True)[1] does"
            )
        client_names = _texts(data.get("client_names"))
        fitting = client_names if len(client_names) >= count else tuple(map(str, range(count)))
        further |= {"client": number_N.to(torch.int64), "client_names": fitting}
    return replace(graph, **further).validate(labelled)


def predict(
    model: Run | Place,
    graph: Place | Graph | Any,
    client: int | str | None = None,
    *,
    pairs: Any = None,
    data_root: Place | None = None,
) -> DataFrame:
    """The classes of a graph's nodes by a personal model, with their probabilities; or the links between pairs.

    `model` is a run, its directory or a model's folder, and `client` says whose model of a run, by number or name. The
    graph needs no labels. `pairs` are numbers of nodes, [P, 2], for a model that predicts links.
    """
    import fedpub.runs.prediction as predicting
    from fedpub.store.model_files import open_model

    pandas()
    root = _path(data_root)
    if isinstance(model, Run):
        if client is None:
            count = len(model.summary["per_client_test"])
            raise FedpubError(f"a run has a model of each of its {count} clients; choose one of them, as client=0")
        weights, card = model.model(client)
    else:
        weights, card = open_model(Path(model).expanduser(), client, root)
    given = _graph(graph, labelled=False)
    known = given if isinstance(given, Graph) else load_graph(given, root, labelled=False)
    answer = predicting.predict(weights, card, known, None if pairs is None else _pairs(pairs, known))
    for note in predicting.notes(card, known):
        warnings.warn(note, stacklevel=2)
    found: DataFrame = predicting.table_of(answer).to_pandas()
    return found


def _graph(dataset: Any, labelled: bool = True) -> str | Graph:
    """The name of a graph, or the graph itself where it is given as an object."""
    if isinstance(dataset, Graph):
        return dataset.validate(labelled)
    if isinstance(dataset, str | os.PathLike):
        return str(Path(dataset).expanduser())
    from torch_geometric.data import Data

    if not isinstance(dataset, Data):
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}".removeprefix("builtins.")
        raise FedpubError(
            f"an object of the type {kind} cannot be used as a graph; give a name, a graph file, a fedpub.Graph or a "
            "PyG Data (fedpub.data.tables.from_networkx makes a fedpub.Graph of a NetworkX graph)"
        )
    unlabelled = not labelled and (dataset.get("y") is None or bool((torch.as_tensor(dataset.y) < 0).all()))
    return graph_from_pyg(dataset, labelled=not unlabelled)


def _named_graph(dataset: Any, folder: Path) -> str:
    """The name of a graph, or the file in the folder that it is now kept in."""
    graph = _graph(dataset)
    if isinstance(graph, str):
        return graph
    file = folder / _file_name(graph)
    if not file.is_file():
        graph.save(file)
    elif Graph.load(file).digest() != graph.digest():
        raise FedpubError(f"{file} is another graph of that name; name this one otherwise, or choose another out=")
    return str(file)


def _file_name(graph: Graph) -> str:
    return f"{file_name(graph.name)}.graph"


def _check_keywords(function: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(f"keyword of {function}", name, known)


def _hyper_parameters(method: Any) -> list[str]:
    """Those that can be keywords: an object of one's own has its own already."""
    name, _, own = _method(method)
    return [] if own is not None else options_of(name)


def _request(method: Any, model: Any, settings: Mapping[str, Any]) -> Request:
    """The experiment of keywords: its own settings, and hyper-parameters of the method."""
    name, options, own_method = _method(method)
    chosen = {keyword: value for keyword, value in settings.items() if keyword in SETTINGS}
    options |= chosen.pop("options", {})
    options |= {keyword: value for keyword, value in settings.items() if keyword not in SETTINGS}
    if own_method is not None and options:
        raise FedpubError(f"options={options} have no effect on the object {type(method).__name__}; make it with them")
    chosen["model"], hidden, own_model = _model(model)
    if hidden is not None and chosen.setdefault("hidden", hidden) != hidden:
        raise FedpubError(f"hidden={chosen['hidden']} contradicts the model, which has {hidden}; leave one of them out")
    chosen |= {"method": name, "options": options}
    return Request(Experiment(**chosen), own_method, own_model)


def _method(method: Any) -> tuple[str, dict[str, Any], Any]:
    """Its name, its options, and the object itself where the package has no such method."""
    if isinstance(method, str):
        return method_called(method), {}, None
    _check_object("method", method, Algorithm)
    for name, kind in METHODS.items():
        if type(method) is kind:
            return name, dataclasses.asdict(method), None  # type: ignore[call-overload]
    if not dataclasses.is_dataclass(method):
        raise FedpubError(
            f"the method {type(method).__name__} is no dataclass; put @dataclass(frozen=True) above it, so that its "
            "fields are its hyper-parameters"
        )
    return OBJECT + type(method).__name__, {}, method


def _model(model: Any) -> tuple[str | None, int | None, Any]:
    """Its name, its width, and the object itself where the package has no such model."""
    if model is None or isinstance(model, str):
        return model, None, None
    _check_object("model", model, Model)
    for name, kind in MODELS.items():
        if type(model) is kind:
            return name, model.hidden, None
    return OBJECT + type(model).__name__, None, model


def _check_object(kind: str, thing: Any, protocol: Any) -> None:
    """That an object has what its protocol names."""
    if isinstance(thing, type):
        raise FedpubError(f"the {kind} {thing.__name__} is a class; give an object of it, as {thing.__name__}()")
    for name in (*vars(protocol), *protocol.__annotations__):
        if not name.startswith("_") and not hasattr(thing, name):
            raise FedpubError(
                f"the {kind} {type(thing).__name__} lacks {name!r}; give a name, or an object with all that "
                f"{protocol.__module__}.{protocol.__name__} has"
            )


def _labelled(methods: Any) -> dict[str, Any]:
    """The methods by the names that a table has for them."""
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        named = [(one if isinstance(one, str) else _method(one)[0].removeprefix(OBJECT), one) for one in methods]
        methods = dict(named)
        if len(methods) < len(named):
            names = [name for name, _ in named]
            twice = next(name for name in names if names.count(name) > 1)
            raise FedpubError(f"two methods are called {twice!r}; name them, as methods={{'mine': ..., 'other': ...}}")
    if not methods:
        raise FedpubError("there is nothing to compare; name one method or more, as methods=['fedpub', 'local']")
    return dict(methods)


def _pairs(pairs: Any, graph: Graph) -> torch.Tensor:
    """[2, P] of what has the shape [P, 2]."""
    ends = torch.as_tensor(pairs)
    if ends.dim() != 2 or ends.shape[1] != 2 or ends.is_floating_point():
        raise FedpubError(f"pairs have the shape {list(ends.shape)}; give two numbers of nodes in each, [P, 2]")
    if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < graph.num_nodes:
        raise FedpubError(f"a pair names a node outside 0 to {graph.num_nodes - 1}, those of graph {graph.name!r}")
    return ends.to(torch.int64).T


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts, where it is one."""
    fine = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return tuple(value) if fine else ()


def _path(place: Place | None) -> Path | None:
    return None if place is None else Path(place).expanduser()
