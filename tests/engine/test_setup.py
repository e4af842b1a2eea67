"""Exchanges before the rounds: who hears what, what it costs, what is kept of it, and what an interruption leaves."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedpub.algorithms import METHODS, Algorithm, FedAvg, FedGNN, FedSage, Local
from fedpub.algorithms.protocol import NeedsSetup
from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import State, apart, pack, together
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.data.synthetic import Communities, communities_graph
from fedpub.engine import setup as engine
from fedpub.engine import simulate as rounds_engine
from fedpub.engine.setup import SetUp, set_up
from fedpub.engine.simulate import Federation, simulate
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.runs import simulated as running
from fedpub.runs.simulated import run
from fedpub.store.record import NO_SETUP, Row
from fedpub.tasks import LinkPrediction
from fedpub.tasks.link_prediction import LINK_RATIOS
from small import context, subgraphs

CPU = torch.device("cpu")
WITH_SETUP: dict[str, Algorithm] = {
    "similarity": FedGNN(relation="similarity"),
    "neighbourhood": FedGNN(relation="neighbourhood"),
    "fedsage": FedSage(generator_epochs=3, generator_rounds=2, generated=2),
}
EACH = pytest.mark.parametrize("method", WITH_SETUP.values(), ids=WITH_SETUP)


def federation(data: list[Subgraph] | None = None, **changes: Any) -> Federation:
    return Federation(data or subgraphs(), 3, CPU, **({"dtype": torch.float64} | changes))


# The engine, with a set-up of a moment


class Ring:
    """Every client tells its number, and hears that of the next one."""

    steps = ("telling", "hearing")

    def init_server(self, num_clients: int) -> State:
        return {}

    def workspace(self, ctx, data, place):
        return data

    def init_clients(self, ctx, w0, work) -> list[State]:
        return [{} for _ in work]

    def send(self, server: State, step: int, client: int) -> Message:
        return Message({"number": server["number"].roll(-1, 0)[client : client + 1]} if step else {})

    def clients(self, ctx, step, own, received, work) -> tuple[list[State], list[Message]]:
        if step:
            return [dict(message) for message in received], [Message() for _ in received]
        return own, [Message({"number": torch.tensor([[float(one.id), 0.0, 0.0]])}) for one in work]

    def server(self, ctx, step, server, up) -> State:
        return {} if step else {"number": torch.cat([message["number"] for message in up])}

    def added(self, ctx, own, work) -> list[Added]:
        return [
            Added(sp.csr_matrix(np.full((1, 5), 1 + state["number"][0, 0])), torch.tensor([0]), torch.tensor([0]))
            for state in own
        ]


class Leaky(Ring):
    """In the given step, a client's labels go with the rest."""

    def __init__(self, at: int) -> None:
        self.at = at

    def clients(self, ctx, step, own, received, work) -> tuple[list[State], list[Message]]:
        own, up = super().clients(ctx, step, own, received, work)
        if step == self.at:
            up[-1] = up[-1] | {"labels": work[-1].y.unsqueeze(0)}
        return own, up


@dataclass(frozen=True)
class Telling(FedAvg):
    how: Callable[[], Ring] = Ring

    @property
    def uploads(self) -> frozenset[str]:
        return super().uploads | {"number"}

    def setup(self) -> Ring:
        return self.how()


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_every_client_hears_what_is_for_it_whoever_it_is_stacked_with(chunk):
    made = set_up(Telling(), context(), federation(chunk=chunk))
    assert made is not None
    assert [one.x[0, 0] for one in made.added] == [1 + 1, 1 + 2, 1 + 0]
    assert made.bytes_up_K.tolist() == made.bytes_down_K.tolist() == [12, 12, 12]  # three single-precision numbers
    assert made.cost() == {"setup_bytes_up": 36, "setup_bytes_down": 36, "setup_seconds": made.seconds}
    assert made.seconds > 0


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("at", [0, 1])
def test_what_is_not_declared_is_not_sent_in_any_step(at, chunk):
    done: list[str] = []
    with pytest.raises(AssertionError, match=r"Telling tried to send \['labels'\]"):
        set_up(Telling(lambda: Leaky(at)), context(), federation(chunk=chunk), lambda name, *_: done.append(name))
    assert done == ["telling"][:at]  # nobody has heard of it


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize(("name", "steps"), [("similarity", 2), ("neighbourhood", 3), ("fedsage", 3 + 2 * 2 + 1)])
def test_each_step_is_told_once_in_its_order(name, steps, chunk):
    told: list[tuple[str, int, int]] = []
    set_up(WITH_SETUP[name], context(), federation(chunk=chunk), lambda *step: told.append(step))
    assert [step[1:] for step in told] == [(done, steps) for done in range(1, steps + 1)]
    assert [step[0] for step in told] == list(WITH_SETUP[name].setup().steps)
    assert len({step[0] for step in told}) > 1


@pytest.mark.parametrize("name", METHODS)
def test_who_needs_set_up(name):
    method = Experiment(method=name).resolve().algorithm
    needs = name in ("fedgnn", "fedsage")
    assert isinstance(method, NeedsSetup) == needs
    assert (set_up(method, context(), federation()) is not None) == needs


@EACH
def test_rounds_are_refused_before_set_up(method):
    ctx, own = context(), federation()
    with pytest.raises(ValueError, match=rf"{type(method).__name__} needs a federation extended by .*set_up"):
        next(simulate(method, ctx, own, 1))
    made = set_up(method, ctx, own)
    assert made is not None
    extended = made.extend(own)
    assert next(simulate(method, ctx, extended, 1)).snapshot.round == 1
    assert not own.set_up
    assert next(simulate(Local(), ctx, own, 1)).snapshot.round == 1


def test_extending_adds_to_each_client_its_own_nodes_and_leaves_the_federation_as_it_was():
    own = federation(chunk=2)
    made = set_up(Telling(), context(), own)
    assert made is not None
    extended = made.extend(own)
    assert [one.num_nodes for one in own.subgraphs] == [3, 4, 3]
    assert [one.num_nodes for one in extended.subgraphs] == [4, 5, 4]
    assert [one.x[-1, 0] for one in extended.subgraphs] == [2, 3, 1]
    assert extended.chunk == 2
    assert extended.set_up


@EACH
def test_a_method_sends_all_that_it_declares_and_nothing_else(method, monkeypatch):
    sent: set[str] = set()
    for module in (engine, rounds_engine):
        check = module.check_declared

        def record(algorithm, up, check=check):
            sent.update(up)
            check(algorithm, up)

        monkeypatch.setattr(module, "check_declared", record)
    ctx, own = context(), federation()
    made = set_up(method, ctx, own)
    assert made is not None
    next(simulate(method, ctx, made.extend(own), 1))
    assert sent == method.uploads


# Bytes by hand


def pair(x: Any, number: int, nodes: tuple[int, int]) -> Subgraph:
    """Two nodes and an edge between them."""
    own = subgraphs()[0]
    first = torch.tensor([True, False])
    return replace(
        own,
        id=number,
        nodes=torch.tensor(nodes),
        x=sp.csr_matrix(np.asarray(x, dtype=np.float64)),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1]),
        train=first,
        val=~first,
        test=~first,
    )


def bytes_of(made: SetUp | None) -> tuple[list[int], list[int]]:
    assert made is not None
    return made.bytes_up_K.tolist(), made.bytes_down_K.tolist()


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize(
    ("limit", "dtype", "up", "down"),
    [
        # Rows cost values, 4-byte columns and 4-byte pointers: 2 · 12 + 3 · 4 = 36 and 4 · 12 + 3 · 4 = 60. A related
        # pair costs two 8-byte numbers: all four pairs are similar, of which a limit of one leaves two.
        (10, torch.float64, [36, 60], [60 + 4 * 16, 36 + 4 * 16]),
        (1, torch.float64, [36, 60], [60 + 2 * 16, 36 + 2 * 16]),
        (10, torch.float32, [28, 44], [44 + 4 * 16, 28 + 4 * 16]),
    ],
)
def test_bytes_of_similar_nodes_by_hand(limit, dtype, up, down, chunk):
    data = [pair([(1, 0), (0, 1)], 0, (0, 1)), pair([(3, 4), (4, 3)], 1, (2, 3))]
    method = FedGNN(relation="similarity", limit=limit)
    assert bytes_of(set_up(method, context(), federation(data, dtype=dtype, chunk=chunk))) == (up, down)


def test_bytes_of_the_same_neighbourhood_by_hand():
    """0 - 1 and 0 - 2: nodes 1 and 2 have both 0 beside them.

    Up: two 8-byte hashes for each of two nodes, and the row of the node that matches, 2 · 12 + 2 · 4. Down: the 8-byte
    number of the row that is wanted; the other's row and what relates it, 2 · 8.
    """
    data = [pair([(1, 2), (3, 4)], 0, (0, 1)), pair([(1, 2), (5, 6)], 1, (0, 2))]
    made = set_up(WITH_SETUP["neighbourhood"], context(), federation(data))
    assert bytes_of(made) == ([32 + 32] * 2, [8 + 32 + 16] * 2)


@pytest.mark.parametrize("chunk", [None, 1, 2])
@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.float64, 8)])
def test_bytes_of_generators_by_hand(dtype, width, chunk):
    """5 features and 2 generated neighbours: the head has 64 · 64 + 64 and 64 · 10 + 10 entries, the latents 64 · 64.

    In each of two rounds everybody sends a head, latents and a gradient, and receives as much.
    """
    each = 2 * width * (4810 + 64 * 64 + 4810)
    made = set_up(WITH_SETUP["fedsage"], context(), federation(dtype=dtype, chunk=chunk))
    assert bytes_of(made) == ([each] * 3, [each] * 3)


# What is kept


def by_hand() -> SetUp:
    return SetUp(
        added=[
            Added(sp.csr_matrix([[0.1, 0, 1 / 3], [0, 0, 0]]), torch.tensor([4, 0, 4]), torch.tensor([0, 1, 1])),
            Added(sp.csr_matrix((0, 3)), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)),
            Added(sp.csr_matrix(np.float32([[0.1, -2, 0]])), torch.tensor([7]), torch.tensor([0])),
            Added(np.float32([[0.1, 0, 3], [1e-30, -0.0, 2]]), torch.tensor([2, 1]), torch.tensor([0, 1])),
            Added(np.empty((0, 3)), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)),
        ],
        bytes_up_K=torch.tensor([1, 2**40, 3, 4, 5]),
        bytes_down_K=torch.tensor([0, 5, 6, 7, 8]),
        seconds=0.1 + 0.2,
    )


def assert_same(one: SetUp, other: SetUp) -> None:
    """Equal to the last bit, times aside."""
    assert len(one.added) == len(other.added)
    for mine, theirs in zip(one.added, other.added, strict=True):
        assert mine.x.shape == theirs.x.shape
        assert mine.x.dtype == theirs.x.dtype
        assert sp.issparse(mine.x) == sp.issparse(theirs.x)
        a, b = (one.x.toarray() if sp.issparse(one.x) else one.x for one in (mine, theirs))
        assert a.tobytes() == b.tobytes()
        assert torch.equal(mine.anchor, theirs.anchor)
        assert torch.equal(mine.node, theirs.node)
    assert torch.equal(one.bytes_up_K, other.bytes_up_K)
    assert torch.equal(one.bytes_down_K, other.bytes_down_K)


def test_what_set_up_left_comes_back_from_its_file_as_it_was(tmp_path):
    by_hand().save(tmp_path / "one")
    back = SetUp.load(tmp_path / "one")
    assert_same(back, by_hand())
    assert back.seconds == 0.1 + 0.2
    back.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounds_after_a_file_are_the_same_to_the_last_bit(method, dtype, tmp_path):
    ctx, own = context(lr=0.05), federation(dtype=dtype)
    made = set_up(method, ctx, own)
    assert made is not None
    made.save(tmp_path / "file")
    back = SetUp.load(tmp_path / "file")
    assert_same(back, made)
    first, second = ([*simulate(method, ctx, one.extend(own), 2)][-1] for one in (made, back))
    one, other = pack(first.snapshot.clients), pack(second.snapshot.clients)
    assert all(torch.equal(one[name], other[name]) for name in one)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def rewritten(change: Callable[[dict, dict], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        tensors, header = read_tensors(path)
        change(tensors, header)
        write_tensors(path, tensors, header)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut short": cut,
    "empty": lambda path: path.write_bytes(b""),
    "something else": lambda path: path.write_text("not tensors"),
    "gone": lambda path: path.unlink(),
    "no features": rewritten(lambda tensors, header: tensors.pop("3/x")),
    "no anchors": rewritten(lambda tensors, header: tensors.pop("2/anchor")),
    "no bytes": rewritten(lambda tensors, header: tensors.pop("bytes_down")),
    "no header": rewritten(lambda tensors, header: header.clear()),
    "a client too many": rewritten(lambda tensors, header: header.update(clients="6")),
    "no number of clients": rewritten(lambda tensors, header: header.update(clients="three")),
    "rows that do not fit": rewritten(lambda tensors, header: tensors.update({"0/indptr": torch.tensor([0, 9, 9])})),
    "columns that do not fit": rewritten(lambda tensors, header: tensors.update({"2/indices": torch.tensor([0, 3])})),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_one_sentence(name, tmp_path):
    path = tmp_path / "setup.safetensors"
    by_hand().save(path)
    DAMAGES[name](path)
    with pytest.raises(FedpubError, match=r"setup\.safetensors"):
        SetUp.load(path)


# Runs


OPTIONS = {"generator_epochs": 10, "generator_rounds": 2}
RUNS: dict[str, dict[str, Any]] = {
    "fedgnn": {"method": "fedgnn"},
    "fedgnn, overlapping": {"method": "fedgnn", "scenario": "overlapping", "clients": 5},
    "fedsage": {"method": "fedsage", "options": OPTIONS},
    "fedsage for links": {"method": "fedsage", "options": OPTIONS, "task": "link-prediction"},
}


@pytest.fixture
def tiny(graph_file: str) -> Experiment:
    return Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=4, lr=0.05)


def without_times(path: Path) -> dict[str, Any]:
    """What a run left, less what tells the time or the machine."""
    summary = json.loads((path / "summary.json").read_text())
    found: dict[str, Any] = {"summary": summary | {"seconds": 0, "setup_seconds": 0}}
    for name in ("rounds.csv", "clients.csv"):
        with (path / name).open(newline="") as lines:
            found[name] = [line[:1] + line[2:] for line in csv.reader(lines)]
    for name in ("config.json", "models.safetensors", "checkpoint/state.safetensors"):
        found[name] = (path / name).read_bytes()
    tensors, _ = read_tensors(path / "setup.safetensors")
    found["setup"] = {name: tensor.tolist() for name, tensor in tensors.items()}
    return found


@pytest.mark.parametrize("name", RUNS)
def test_a_run_keeps_its_set_up_and_counts_its_cost(name, tiny, tmp_path):
    experiment = replace(tiny, **RUNS[name])
    told: list[int] = []
    found = run(experiment, tmp_path / "out", on_step=lambda name, done, total: told.append(done), keep_checkpoint=True)
    assert told == list(range(1, len(experiment.resolve().algorithm.setup().steps) + 1))
    kept = SetUp.load(tmp_path / "out" / "setup.safetensors")
    ready = prepare(experiment.resolve())
    expected = set_up(experiment.resolve().algorithm, experiment.resolve().context, ready.federation)
    assert expected is not None
    assert_same(kept, expected)
    assert sum(len(one.anchor) for one in kept.added) > 0
    summary = found.summary
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {name: summary[name] for name in NO_SETUP} == kept.cost()
    assert summary["setup_bytes_up"] == int(expected.bytes_up_K.sum()) > 0
    assert summary["setup_bytes_down"] == int(expected.bytes_down_K.sum()) > 0
    assert summary["setup_seconds"] > 0
    for column in ("bytes_up", "bytes_down"):
        rounds = sum(sum(row.clients[column]) for row in found.record.rows)
        assert rounds > 0
        assert summary[column] == rounds + summary[f"setup_{column}"]
    assert summary["seconds"] == sum(row.seconds for row in found.record.rows) + summary["setup_seconds"]
    assert run(experiment).summary | {"seconds": 0, "setup_seconds": 0} == without_times(tmp_path / "out")["summary"]


@pytest.mark.parametrize("name", RUNS)
def test_the_rounds_of_a_run_are_those_of_the_extended_federation(name, tiny):
    experiment = replace(tiny, **RUNS[name], rounds=1).resolve()
    method, ctx, own = experiment.algorithm, experiment.context, prepare(experiment).federation
    made = set_up(method, ctx, own)
    assert made is not None
    found = run(experiment).record.rows[0].clients["loss"]
    assert found == next(simulate(method, ctx, made.extend(own), 1)).loss_R.tolist()
    assert found != next(simulate(method, ctx, replace(own, set_up=True), 1)).loss_R.tolist()


def test_a_run_without_set_up_has_no_file_of_it_and_no_cost(tiny, tmp_path):
    summary = run(replace(tiny, method="fedavg"), tmp_path / "out", on_step=lambda *_: pytest.fail("a step")).summary
    assert {name: summary[name] for name in NO_SETUP} == NO_SETUP
    assert not (tmp_path / "out" / "setup.safetensors").exists()


class Killed(Exception):  # noqa: N818
    """Stands in for a kill."""


def killed_in(number: int) -> Callable[[Row, int], None]:
    def stop(row: Row, rounds: int) -> None:
        if row.round == number:
            raise Killed

    return stop


def never(*arguments: Any) -> None:
    raise AssertionError("set-up is done again")


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["with checkpoint", "without"])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_in_its_rounds_does_not_do_its_set_up_again(name, seconds, tiny, tmp_path, monkeypatch):
    experiment, whole, parts = replace(tiny, **RUNS[name]), tmp_path / "whole", tmp_path / "parts"
    run(experiment, whole, keep_checkpoint=True)
    with pytest.raises(Killed):
        run(experiment, parts, on_round=killed_in(3), checkpoint_seconds=seconds)
    assert (parts / "checkpoint").exists() == (seconds == 0)
    spent = SetUp.load(parts / "setup.safetensors").seconds
    monkeypatch.setattr(running, "set_up", never)
    summary = run(experiment, parts, resume=True, on_step=never, keep_checkpoint=True).summary
    assert without_times(parts) == without_times(whole)
    assert summary["setup_seconds"] == spent  # what it took then counts


@pytest.mark.parametrize("name", RUNS)
def test_a_run_interrupted_in_its_set_up_starts_it_again(name, tiny, tmp_path):
    experiment, whole, parts = replace(tiny, **RUNS[name]), tmp_path / "whole", tmp_path / "parts"
    run(experiment, whole, keep_checkpoint=True)

    def stop(name: str, done: int, total: int) -> None:
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, parts, on_step=stop)
    assert not (parts / "setup.safetensors").exists()
    told: list[int] = []
    run(
        experiment,
        parts,
        resume=True,
        on_step=lambda name, done, total: told.append(done),
        keep_checkpoint=True,
    )
    assert told[0] == 1
    assert without_times(parts) == without_times(whole)


def test_ctrl_c_ends_set_up_after_its_step(tiny, tmp_path):
    told: list[int] = []

    def interrupt(name: str, done: int, total: int) -> None:
        told.append(done)
        if done == 2:
            signal.raise_signal(signal.SIGINT)
            told.append(-1)  # it waits for a good moment

    with pytest.raises(KeyboardInterrupt):
        run(replace(tiny, **RUNS["fedsage"]), tmp_path / "out", on_step=interrupt)
    assert told == [1, 2, -1]
    assert run(replace(tiny, **RUNS["fedsage"]), tmp_path / "out", resume=True).summary["rounds"] == 4


def test_a_run_is_not_resumed_with_a_damaged_set_up(tiny, tmp_path):
    experiment, out = replace(tiny, **RUNS["fedgnn"]), tmp_path / "out"
    with pytest.raises(Killed):
        run(experiment, out, on_round=killed_in(2))
    cut(out / "setup.safetensors")
    with pytest.raises(FedpubError, match=r"setup\.safetensors"):
        run(experiment, out, resume=True)
    (out / "setup.safetensors").unlink()
    assert run(experiment, out, resume=True).summary["rounds"] == 4


# Nobody learns anything on nodes that were added


def test_where_links_are_learnt_an_added_node_is_no_example():
    spec = Communities((1, 1), 20, 0.25, 0.05, 0.01, 3, 30, 0.6, 5, 0.3, 0.5)
    graph = communities_graph("tiny", spec)
    data = LinkPrediction(8).divide(graph, (torch.arange(20), torch.arange(20, 40)), 0, LINK_RATIOS, "symmetric")
    new = Added(sp.csr_matrix(np.ones((20, 30))), torch.arange(20), torch.arange(20))
    stacked = federation([own.extended(new) for own in data]).chunks([0, 1])[0]
    assert stacked.segments.sizes == (40, 40)
    links = stacked.links
    assert links is not None
    for epoch in range(3):
        pairs = links.negatives.draw(0, stacked.ids_K, links.train_owner_E, links.train_row_E, 1, epoch)
        assert (stacked.segments.row_N[pairs] < 20).all()


# Clients apart and together


def state(clients: int = 3) -> State:
    stream = torch.Generator().manual_seed(0)
    return {
        "weights": {
            "w": torch.randn(clients, 2, 3, generator=stream),
            "b": torch.randn(clients, 4, generator=stream),
        },
        "step": torch.arange(clients),
    }


@pytest.mark.parametrize("clients", [1, 3])
def test_clients_that_were_taken_apart_are_the_whole_again(clients):
    whole = state(clients)
    parts = apart(whole, clients)
    assert [leaf.shape for leaf in pack(parts[0]).values()] == [(1, 2, 3), (1, 4), (1,)]
    again = together(parts)
    for name, leaf in pack(again).items():
        assert leaf is pack(whole)[name]  # no copy
    # What is written into a part is in the whole.
    parts[-1]["weights"]["w"].fill_(7)
    assert (whole["weights"]["w"][-1] == 7).all()
    assert (whole["weights"]["w"][:-1] != 7).all()


def test_parts_in_another_order_or_number_are_a_copy():
    whole = state()
    parts = apart(whole, 3)
    for order in ([2, 0, 1], [1, 0, 2], [0, 1], [2], [0, 1, 1], [0, 1, 2, 0]):
        found = pack(together([parts[client] for client in order]))
        assert found.keys() == pack(whole).keys()
        for name, leaf in found.items():
            assert torch.equal(leaf, pack(whole)[name][order]), (name, order)


def test_parts_of_different_wholes_are_a_copy():
    one, other = state(), state()
    other["step"] += 10
    first, second = apart(one, 3), apart(other, 3)
    found = together([first[0], second[1], first[2]])
    assert found["step"].tolist() == [0, 11, 2]
    assert torch.equal(found["weights"]["w"], one["weights"]["w"])
    found["weights"]["w"].zero_()
    assert one["weights"]["w"].any()


def test_nothing_together_is_nothing():
    assert together([{}, {}]) == {}
    assert apart({}, 2) == [{}, {}]


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda leaf: leaf.view(3, 2, 2), id="another shape"),
        pytest.param(lambda leaf: leaf[:, :2], id="some columns"),
    ],
)
def test_parts_of_a_view_are_that_view_again(view):
    whole = view(torch.arange(12.0).reshape(3, 4).clone())
    assert torch.equal(together(apart({"a": whole}, 3))["a"], whole)
