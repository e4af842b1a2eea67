"""What to run: a frozen description, JSON in and out, and the federation that it describes."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from fedpub.algorithms import METHODS, Algorithm, Context, FedGNN, FedPub, Oracle
from fedpub.algorithms.base import MakesNet
from fedpub.checks import check_types
from fedpub.data import datasets
from fedpub.data.graph import Graph
from fedpub.data.links import LINK_RATIOS
from fedpub.data.partition import Partition, cached_partition, default_scenario
from fedpub.data.synthetic import SYNTHETIC
from fedpub.engine.plan import within
from fedpub.engine.setup import OnStep, SetUp, set_up
from fedpub.engine.simulate import Federation, first_weights, simulate
from fedpub.errors import FedpubError, unknown
from fedpub.interrupt import interruptible
from fedpub.models import MODELS, Model
from fedpub.results import NO_SETUP, Record, Row, RunDirectory, read_rows
from fedpub.tasks import TASKS, LinkPrediction, NodeClassification, Task
from fedpub.tasks.link_prediction import Decoder
from fedpub.tree import tree_map

OnRound = Callable[[Row, int], None]

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
    """A name from `fedpub data list` or a graph file."""
    scenario: str | None = None
    """disjoint, overlapping, imbalanced, louvain, leiden, random, dirichlet or natural."""
    clients: int | None = None
    """Number of clients; none for natural clients."""
    method: str = "fedpub"
    """local, fedavg, fedprox, fedper, fedgnn, fedsage, gcfl, oracle, fedpub or fedpub-plus."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters of the method."""
    task: str = "node-classification"
    """node-classification or link-prediction."""
    decoder: Decoder = "dot"
    """How link prediction scores two nodes: the product of their embeddings, or a small network on it (mlp)."""
    model: str | None = None
    """gcn, sage or twin. None: the method's usual one, gcn but for fedpub-plus."""
    hidden: int | None = None
    """Width of the hidden layers. None: the method's usual one, 128 but for fedpub-plus."""
    dropout: float | None = None
    """Share of hidden values that is dropped in training. None: the method's usual one, 0.5 but for fedpub-plus."""
    rounds: int | None = None
    """Rounds of communication."""
    epochs: int | None = None
    """Local epochs in a round."""
    lr: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float | None = None
    """L2 weight decay of Adam. None: 0, or 1e-6 where FED-PUB does as the published code."""
    fraction: float = 1.0
    """Share of the clients that take part in a round."""
    failures: float = 0.0
    """Chance that a chosen client fails in a round."""
    seed: int = 0
    """Of everything that is random."""
    data_seed: int | None = None
    """Of split and partition, where these are to stay while `seed` changes."""
    ratios: tuple[float, float, float] | None = None
    """Shares for training, validation and test: of the nodes, or for link prediction of every client's edges."""
    alpha: float = 0.5
    """Label skew of the dirichlet scenario: small is strong."""
    device: str = "cpu"
    """cpu or cuda."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision."""

    def resolved(self) -> Experiment:
        """Checked, with nothing left open."""
        check_types(self, "")
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
        return OFFICIAL_WEIGHT_DECAY if self.method == "fedpub" and self.options.get("official") else 0.0

    def _check(self) -> None:
        for name in ("rounds", "epochs", "hidden"):
            if getattr(self, name) < 1:
                raise FedpubError(f"--{name} {getattr(self, name)} is not possible; give 1 or more")
        if not 0 < self.fraction <= 1:
            raise FedpubError(f"--fraction {self.fraction} is not possible; give a share above 0, up to 1")
        for name, low, high in (("dropout", 0, 0.99), ("failures", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise FedpubError(f"--{name} {getattr(self, name)} is outside {low} to {high}")
        if self.weight_decay is not None and self.weight_decay < 0:
            raise FedpubError(f"--weight-decay {self.weight_decay} is not possible; give 0 or more")
        if self.decoder != "dot" and not self._links:
            raise FedpubError(f"--decoder {self.decoder} has no effect on {self.task}; add --task link-prediction")
        if self.lr <= 0:
            raise FedpubError(f"--lr {self.lr} is not possible; give a positive number, as 0.01")
        try:
            device = torch.device(self.device).type
        except RuntimeError:
            device = ""
        if device not in ("cpu", "cuda"):
            raise unknown("device", self.device, ("cpu", "cuda"))
        if device == "cuda" and not torch.cuda.is_available():
            raise FedpubError("--device cuda is not available: this torch sees no GPU; use --device cpu")

    def algorithm(self) -> Algorithm:
        """The method with its hyper-parameters."""
        kind: Any = _named("method", self.method, METHODS)
        known = {one.name for one in fields(kind)}
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


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data of an experiment, divided among its clients."""

    graph: Graph
    partition: Partition
    federation: Federation

    @property
    def idle(self) -> tuple[int, ...]:
        """The clients that have nothing to train on."""
        return tuple(own.id for own in self.federation.subgraphs if not own.num_train)


def prepare(
    experiment: Experiment, root: Path | None = None, chunk: int | None = None, graph: Graph | None = None
) -> Prepared:
    """Load, split and divide the graph of a resolved experiment; `graph` is it where it need not be loaded."""
    assert experiment.scenario is not None
    assert experiment.data_seed is not None
    assert experiment.ratios is not None
    graph = datasets.load(experiment.dataset, root) if graph is None else graph
    if not graph.num_features:
        raise FedpubError(
            f"graph {graph.name!r} has no features to learn from; give its nodes some, such as their degree"
        )
    parts = cached_partition(graph, experiment.scenario, experiment.clients, experiment.data_seed, experiment.alpha)
    kind, task = experiment.net().propagation, experiment.learns()
    how = (graph, parts.nodes, experiment.data_seed, experiment.ratios, kind)
    report = None
    if isinstance(experiment.algorithm(), Oracle):
        everything, report = task.undivided(*how)
        subgraphs = [everything]
    else:
        subgraphs = task.divide(*how)
    dtype = getattr(torch, experiment.dtype)
    federation = Federation(subgraphs, graph.num_classes, torch.device(experiment.device), dtype, chunk, report)
    return Prepared(graph, parts, federation)


@dataclass(frozen=True, eq=False)
class Result:
    """What a run found."""

    summary: dict[str, Any]
    record: Record
    path: Path | None  # its run directory, where it has one
    idle: tuple[int, ...] = ()  # clients that have nothing to train on


def run(
    experiment: Experiment,
    out: Path | None = None,
    *,
    resume: bool = False,
    root: Path | None = None,
    chunk: int | None = None,
    max_memory: float | None = None,
    checkpoint_seconds: float = 60.0,
    on_round: OnRound | None = None,
    on_step: OnStep | None = None,
    prepared: Prepared | None = None,
    keep_state: bool = True,
    graph: Graph | None = None,
) -> Result:
    """Run an experiment; with `out` it is kept in a run directory and can be resumed after any kill.

    `chunk` clients are computed at a time, or as many as fit into `max_memory` GiB; results do not depend on it.
    `on_round` is told each row and the number of rounds, `on_step` what set-up does before them; `prepared` saves
    loading the same data again; without `keep_state` a finished run leaves what was measured, but no models. `graph` is
    one that no file holds yet: a new run saves it to the file that the experiment names as its dataset.
    """
    experiment = experiment.resolved()
    if chunk is not None and chunk < 1:
        raise FedpubError(f"--chunk {chunk} is not possible; give 1 or more")
    if max_memory is not None and not max_memory > 0:
        raise FedpubError(f"--max-memory {max_memory} is not possible; give the GiB that the run may take, such as 4")
    if max_memory is not None and experiment.device != "cpu":
        raise FedpubError(f"--max-memory {max_memory} is for --device cpu, not {experiment.device}; give --chunk there")
    store = None
    if out is not None and resume:
        store = _reopen(experiment, out)
    elif out is not None:
        RunDirectory.check_free(out)
    ready = prepared or prepare(experiment, root, chunk, graph)
    if max_memory is not None:
        fitting = within(experiment.algorithm(), experiment.context(), ready.federation, max_memory * 2**30)
        ready = replace(ready, federation=fitting)
    if store:
        store.check_graph(ready.graph.digest())
        if store.finished:
            return Result(store.summary(), Record(read_rows(store.path)), out, ready.idle)
    elif out is not None:  # nothing is written before data and method are known to be good
        experiment.algorithm().init_server(first_weights(ready.federation, experiment.context()), 1)
        store = RunDirectory.create(out, experiment.to_json(), ready.graph.digest())
        if graph is not None:
            graph.save(Path(experiment.dataset))
    if store is None:
        return _run(experiment, ready, None, checkpoint_seconds, on_round, on_step, keep_state)
    with store.locked(), interruptible() as stop:
        return _run(experiment, ready, store, checkpoint_seconds, on_round, on_step, keep_state, stop)


def _run(
    experiment: Experiment,
    ready: Prepared,
    store: RunDirectory | None,
    checkpoint_seconds: float,
    on_round: OnRound | None,
    on_step: OnStep | None,
    keep_state: bool,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    assert experiment.rounds is not None
    record = store.record if store else Record()
    start, best = store.restore(ready.federation.device) if store else (None, {})
    algorithm, ctx = experiment.algorithm(), experiment.context()
    setup = _set_up(experiment, ready, store, on_step, stop)
    federation = setup.extend(ready.federation) if setup else ready.federation
    best_val = max((row.mean("val") for row in record.rows), default=float("-inf"))
    last_saved = clock = time.monotonic()
    rounds = simulate(algorithm, ctx, federation, experiment.rounds, experiment.fraction, experiment.failures, start)
    for measured in rounds:
        now = time.monotonic()
        if store:
            row = store.append(measured, now - clock)
        else:
            row = Row.of(measured, now - clock)
            record.rows.append(row)
        clock = now
        if on_round:
            on_round(row, experiment.rounds)
        if store and keep_state and not row.mean("val") <= best_val:  # also where nobody has a validation set: the last
            best_val = row.mean("val")
            weights = algorithm.personal(measured.snapshot.clients)
            best = tree_map(lambda leaf: leaf.detach().cpu().clone(), weights)
        due = now - last_saved >= checkpoint_seconds or (keep_state and row.round == experiment.rounds)
        if store and (due or stop()):
            store.checkpoint(measured.snapshot, best)
            last_saved = time.monotonic()
            if stop():
                raise KeyboardInterrupt
    everyone = ready.federation.chunks(list(range(ready.federation.num_clients)))
    sizes = torch.cat([ctx.task.sizes(data) for data in everyone]).tolist()
    summary = record.summary(ctx.task.metric, sizes, setup.cost() if setup else NO_SETUP)
    if store:
        store.finish(summary, best, keep_state)
    return Result(summary, record, store.path if store else None, ready.idle)


def _set_up(
    experiment: Experiment,
    ready: Prepared,
    store: RunDirectory | None,
    on_step: OnStep | None,
    stop: Callable[[], bool],
) -> SetUp | None:
    """What a method exchanges before its rounds; what an interrupted run has of it is not done again."""
    if store and store.setup_file.is_file():
        return SetUp.load(store.setup_file)

    def stepped(name: str, done: int, total: int) -> None:
        if on_step:
            on_step(name, done, total)
        if stop():
            raise KeyboardInterrupt

    made = set_up(experiment.algorithm(), experiment.context(), ready.federation, stepped)
    if made and store:
        made.save(store.setup_file)
    return made


def _reopen(experiment: Experiment, out: Path) -> RunDirectory:
    """The directory of an earlier run of the same experiment."""
    held = Experiment.from_json(RunDirectory.config(out), out / "config.json")
    if not any(str(name).startswith(OBJECT) for name in (held.method, held.model)):  # else only its program can
        held = held.resolved()
    different = [one.name for one in fields(Experiment) if getattr(held, one.name) != getattr(experiment, one.name)]
    if different:
        name = different[0]
        raise FedpubError(
            f"{out} belongs to another experiment: its {name} is {getattr(held, name)!r}, not "
            f"{getattr(experiment, name)!r}; resume it without other flags, or choose another directory"
        )
    return RunDirectory(out)
