"""Many clients: chunks, states in files, averages over the most similar ones, and a plan within a given memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedpub
from fedpub.algorithms import METHODS, FedPub
from fedpub.algorithms.similarity import attention, cosine, nearest
from fedpub.bench.scale import CLASSES, random_clients
from fedpub.cli import main
from fedpub.core.kernels import not_zero
from fedpub.core.tree import mix, pack, put, select, state_map
from fedpub.data.clients.stack import stack
from fedpub.data.graph import Graph, undirected
from fedpub.engine import memory
from fedpub.engine.fitting import Demand, demand, within
from fedpub.engine.rounds import Round, Snapshot
from fedpub.engine.simulate import Federation, simulate
from fedpub.engine.spill import Spill
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.models import GCN, GraphSAGE
from fedpub.models.proxy import narrowed, random_proxy
from fedpub.runs.simulated import run
from small import context

CLIENTS = 7
TRAINED = [name for name in METHODS if name not in ("oracle", "fedgnn", "fedsage")]


def federation(**changes: object) -> Federation:
    return Federation(random_clients(CLIENTS, 12, 6), CLASSES, torch.device("cpu"), torch.float64, **changes)


def played(method: str, own: Federation, rounds: int = 3, fraction: float = 1.0, **options: object) -> list[Round]:
    experiment = Experiment(method=method, options=options, rounds=rounds, hidden=4, dtype="float64").resolve()
    found = []
    for measured in simulate(experiment.algorithm, experiment.context, own, rounds, fraction):
        last = measured.snapshot
        kept = Snapshot(last.round, state_map(torch.clone, last.server), state_map(torch.clone, last.clients))
        found.append(replace(measured, snapshot=kept))
    return found


def assert_alike(one: list[Round], other: list[Round]) -> None:
    for a, b in zip(one, other, strict=True):
        for name in ("loss_R", "sparsity_R", "bytes_up_R", "bytes_down_R"):
            torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=0, atol=1e-9, equal_nan=True)
        for part in ("server", "clients"):
            left, right = pack(getattr(a.snapshot, part)), pack(getattr(b.snapshot, part))
            assert left.keys() == right.keys()
            for name, leaf in left.items():
                torch.testing.assert_close(leaf, right[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("method", TRAINED)
def test_chunks_and_files_change_nothing(method, fraction):
    whole = played(method, federation(), fraction=fraction)
    assert_alike(played(method, federation(chunk=3), fraction=fraction), whole)
    assert_alike(played(method, federation(chunk=3, on_disk=True), fraction=fraction), whole)


def test_a_federation_on_disk_goes_on_from_a_snapshot():
    experiment = Experiment(method="fedpub", rounds=4, hidden=4, dtype="float64").resolve()
    start = played("fedpub", federation(), rounds=2)[-1].snapshot
    own = federation(chunk=2, on_disk=True)
    *_, last = simulate(experiment.algorithm, experiment.context, own, 4, start=start)
    assert_alike([last], played("fedpub", federation(), rounds=4)[-1:])


def test_a_spill_holds_what_was_put_there(tmp_path):
    spill = Spill(tmp_path, 3)
    tree = {"w": torch.arange(6.0).view(3, 2), "b": torch.arange(3.0)}
    spill.put(torch.tensor([0, 1, 2]), {"weights": tree, "step": torch.tensor([1, 2, 3]), "masks": {}})
    spill.put(torch.tensor([2, 0]), {"weights": {"w": torch.ones(2, 2), "b": torch.tensor([7.0, 8.0])},
                                     "step": torch.tensor([9, 8]), "masks": {}})  # fmt: skip
    assert spill.state["weights"]["w"].tolist() == [[1, 1], [2, 3], [1, 1]]
    assert spill.state["weights"]["b"].tolist() == [8, 1, 7]
    assert spill.state["step"].tolist() == [8, 2, 9]
    assert spill.state["masks"] == {}
    assert list(tmp_path.iterdir()) == [], "the files have no names, so that nothing is left behind"


def test_views_and_copies_of_a_state():
    state = {"a": torch.arange(5.0)}
    view, copy = select(state, torch.tensor([1, 2])), select(state, torch.tensor([3, 1]))
    view["a"] += 10
    assert state["a"].tolist() == [0, 11, 12, 3, 4]
    assert copy["a"].tolist() == [3, 1]
    put(state, torch.tensor([1, 2]), view)  # there already
    put(state, torch.tensor([4, 0]), {"a": torch.tensor([40.0, 50.0])})
    assert state["a"].tolist() == [50, 11, 12, 3, 40]


def test_the_most_similar_clients_by_hand():
    """Directions at 0, 0, 90 and 180 degrees, τ = 1: of two each keeps itself and the one that is nearest."""
    h = torch.tensor([[1.0, 0], [2, 0], [0, 3], [-1, 0]], dtype=torch.float64)
    alpha, left_out = nearest(h, 1.0, 2)
    dense, e = alpha.to_dense(), torch.tensor(1.0).exp().item()
    assert dense[0].tolist() == pytest.approx([0.5, 0.5, 0, 0])
    assert dense[2, 2].item() == pytest.approx(e / (e + 1))
    assert dense.sum(1).tolist() == pytest.approx([1] * 4)
    total = 2 * e + 1 + 1 / e
    assert left_out[0].item() == pytest.approx((1 + 1 / e) / total)


@pytest.mark.parametrize("block", [1, 3, 1024])
def test_all_clients_as_neighbours_are_the_exact_attention(monkeypatch, block):
    monkeypatch.setattr("fedpub.algorithms.similarity.NEAREST_BLOCK", block)
    h = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alpha, left_out = nearest(h, 3.0, 8)
    torch.testing.assert_close(alpha.to_dense(), attention(cosine(h), 3.0))
    assert left_out.abs().max() < 1e-12


def test_fed_pub_with_all_neighbours_is_fed_pub():
    assert_alike(played("fedpub", federation(), neighbours=CLIENTS), played("fedpub", federation()))
    few = played("fedpub", federation(), neighbours=2)
    assert set(few[0].notes) == {"left_out"}
    assert bool((few[0].notes["left_out"] > 0).all())


def test_a_client_counts_itself_whoever_is_as_similar():
    alpha, _ = nearest(torch.ones(6, 3, dtype=torch.float64), 5.0, 1)
    assert torch.equal(alpha.to_dense(), torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("options", [{"measure": "parameter"}, {"similarity": False}, {"communities": "explicit"}])
def test_neighbours_need_functional_embeddings(options):
    with pytest.raises(FedpubError, match="neighbours=3 needs functional embeddings"):
        FedPub(neighbours=3, **options)


def test_sums_over_clients_are_the_same_sparse_and_dense():
    stream = torch.Generator().manual_seed(1)
    share = torch.rand(5, 5, generator=stream, dtype=torch.float64) * (torch.rand(5, 5, generator=stream) > 0.5)
    tree = {
        "w": torch.randn(5, 3, 4, generator=stream, dtype=torch.float64),
        "b": torch.ones(5, 2, dtype=torch.float64),
    }
    dense, sparse = mix(share, tree), mix(share.to_sparse_csr(), tree)
    by_hand = torch.einsum("mk,kfh->mfh", share, tree["w"])
    for name in tree:
        torch.testing.assert_close(dense[name], sparse[name])
    torch.testing.assert_close(dense["w"], by_hand)


@pytest.mark.parametrize("cached", [1, 10, 2**18])
def test_entries_that_are_not_zero(monkeypatch, cached):
    monkeypatch.setattr("fedpub.core.tree.CACHED", cached)
    leaf = torch.tensor([[[0.0, 1, -2], [0, 0, 0]], [[3, 0, 0], [float("nan"), 1, 1]]])
    assert not_zero(leaf).tolist() == [[2, 0], [1, 3]]
    assert not_zero(leaf.transpose(0, 1)).tolist() == [[2, 1], [0, 3]]


@pytest.mark.parametrize("model", [GCN(4), GraphSAGE(4)])
def test_a_narrow_proxy_graph_gives_the_same_embedding(model):
    """Weights on inputs that a client does not see are zero: they may be left out, or others stand in their place."""
    data = stack(random_clients(3, 5, 9), CLASSES, dtype=torch.float64)
    seen = torch.zeros(3, 9, dtype=torch.bool)
    seen[0, :2] = seen[1, 4:8] = seen[2, 8] = True
    proxy = random_proxy("sbm", 0, 9, model.propagation, 0.01, data.device, data.dtype)
    stream = torch.Generator().manual_seed(2)
    weights = {
        name: torch.randn(3, *leaf.shape, generator=stream, dtype=torch.float64)
        for name, leaf in model.init(9, CLASSES, stream).items()
    }
    for name in model.seen(data):
        weights[name] *= seen.unsqueeze(2)
    narrow = narrowed(proxy, seen)
    assert narrow.x.shape == (3, 500, 4)
    torch.testing.assert_close(model.embed(weights, narrow), model.embed(weights, proxy))


def test_a_narrow_proxy_graph_is_made_once_for_the_same_clients():
    """Other clients may see other features."""
    own = random_clients(3, 5, 9)
    own = [replace(one, x=one.x * (np.arange(9) < 3)) for one in own]
    ctx, method = context(), FedPub(tau=3.0)
    data, others = (stack(own, CLASSES, dtype=torch.float64) for _ in range(2))
    made = method.compared.graph(ctx, data)
    assert made.x.shape == (3, 500, 3)
    assert method.compared.graph(ctx, data) is made
    assert method.compared.graph(ctx, others) is not made
    again = method.compared.graph(context(seed=9), data)
    assert not torch.equal(again.x, made.x), "another run with the same clients has another graph"


def planned_runs(clients: int = 40, **settings: object) -> tuple[object, object, Federation]:
    experiment = Experiment(**{"method": "fedpub", "rounds": 1, "hidden": 64, **settings}).resolve()
    own = Federation(random_clients(clients, 20, 50), CLASSES, torch.device("cpu"))
    return experiment.algorithm, experiment.context, own


def test_a_plan_keeps_what_fits_and_says_what_would():
    how = planned_runs()
    own = how[2]
    assert within(*how, 2**40) is own
    plans = [within(*how, kib * 2**10, taken=0) for kib in range(40 * 2**10, 8 * 2**10, -256)]
    kinds = ["whole" if plan is own else "on disk" if plan.on_disk else "chunks" for plan in plans]
    assert list(dict.fromkeys(kinds)) == ["whole", "chunks", "on disk"], "the less there is, the more is done about it"
    assert kinds == sorted(kinds, key=["whole", "chunks", "on disk"].index)
    for kind in ("chunks", "on disk"):
        sizes = [plan.chunk for plan, one in zip(plans, kinds, strict=True) if one == kind]
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes) >= 1
    assert all(plan.lean for plan in plans if plan is not own)
    with pytest.raises(FedpubError, match=r"max_memory=0\.5 is too little for 40 clients of this model; give 0\.6"):
        within(*how, 2**29, taken=600 * 2**20)
    with pytest.raises(FedpubError, match=r"max_memory=0\.5 is too little .*; give 2\.06 GiB"):
        within(*how, 2**29, taken=0, loading=2**31)


@pytest.mark.parametrize("batch_size", [0, 3])
def test_features_in_files_give_the_same_numbers(batch_size, monkeypatch, tmp_path):
    monkeypatch.setattr("fedpub.tasks.base.AT_A_TIME", 16)
    plan = Experiment(model="hops", batch_size=batch_size, rounds=2, hidden=4, dtype="float64").resolve()

    def played_with(own: Federation) -> list[Round]:
        return list(simulate(plan.algorithm, plan.context, own, 2))

    plain, mapped = federation(), federation(inputs=tmp_path, lean=True, chunk=2)
    assert_alike(played_with(mapped)[-1:], played_with(plain)[-1:])
    stacks = mapped.everyone(plan.context)
    assert all(len(data.maps) == 1 + plan.model.steps for data in stacks)
    assert not any(data.maps for data in plain.everyone(plan.context))
    assert list(tmp_path.iterdir()) == [], "files vanish with the process"


def test_features_go_to_files_where_they_do_not_fit():
    plan = Experiment(model="hops", batch_size=10, rounds=2, hidden=4).resolve()
    own = Federation(random_clients(3, 3000, 200), CLASSES, torch.device("cpu"))
    how = (plan.algorithm, plan.context, own)
    needed = demand(*how, taken=0)
    limit = needed.total(1, lean=True, on_disk=True, inputs=True)
    assert needed.total(1, lean=True, on_disk=True) > limit + needed.inputs / 2
    assert within(*how, 1.01 * limit, taken=0).inputs is not None
    assert within(*how, 1.01 * needed.total(None), taken=0).inputs is None


def test_what_a_run_takes_by_hand():
    """Two clients of three and one node, 100 and 10 bytes while they are computed."""
    needed = Demand(taken=1000, stacked=30, inputs=10, again=20, briefly=20, all_round=8, states=6, working=(100, 10))
    assert needed.total(None) == needed.total(2) == needed.total(7) == 1000 + 40 + 20 + 8 + 6 + 110
    assert needed.total(1) == 1000 + 40 + 20 + 8 + 6 + 100, "the larger client decides"
    assert needed.total(1, lean=True) == 1000 + 40 + 10 + 8 + 6 + 100
    assert needed.total(1, lean=True, on_disk=True) == 1000 + 40 + 10 + 8 + 3 + 100
    assert needed.total(1, lean=True, on_disk=True, inputs=True) == 1000 + 35 + 10 + 8 + 3 + 100
    small, large = (demand(*planned_runs(), taken=0), demand(*planned_runs(), kept=True, taken=0))
    assert large.total(None) > small.total(None), "a directory is written to"
    wide = demand(*planned_runs(hidden=128), taken=0)
    assert wide.working[0] > small.working[0]


def test_a_run_that_does_not_fit_is_refused_before_it_starts(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("fedpub.engine.fitting.available", lambda: 10 * 2**20)
    assert main(["run", "--rounds", "2", "--quiet", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    needed = r"this run may take up to [\d.]+ GiB, but [\d.]+ are available; give --max-memory [\d.]+, which computes"
    assert re.search(needed, said)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr("fedpub.engine.fitting.available", lambda: None)
    assert main(["run", "--rounds", "1", "--quiet"]) == 0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried to"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_an_allocation_that_fails_is_a_sentence(error, monkeypatch, capsys):
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("fedpub.runs.simulated.simulate", fails)
    assert main(["run", "--rounds", "1", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedpub: there is not enough memory for this run; give --max-memory the GiB")
    assert "--chunk" in said
    assert said.count("\n") == 1


def test_other_errors_stay_what_they_are(monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("fedpub.runs.simulated.simulate", fails)
    with pytest.raises(RuntimeError, match="shapes"):
        run(Experiment(dataset="communities", rounds=1))


LIMITED = """
import re, sys
from pathlib import Path
from fedpub.cli import main

def peak():  # of this program: getrusage also counts what its parent had when it was started
    status = Path("/proc/self/status").read_text()
    print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 2**20)

words = ["run", "--quiet", "--rounds", "1", "--hidden", "64", "--dataset", sys.argv[1], "--max-memory"]
assert main([*words, "0.1"]) == 2
peak()
assert main([*words, sys.argv[2]]) == 0
peak()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read as Linux has it")
def test_a_process_stays_within_its_memory(tmp_path):
    """A graph whose values would take twice as much if all clients were computed at a time."""
    graph_file = tmp_path / "large.graph"
    large_graph(nodes=60_000, edges=120_000, features=4, clients=10).save(graph_file)
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    limit = 0.45
    command = [sys.executable, "-c", LIMITED, str(graph_file), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    loaded, most = map(float, re.findall(r"peak ([\d.]+)", done.stdout))
    assert loaded < most <= 1.05 * limit
    assert re.search(r"--max-memory 0\.1 is too little for 10 clients of this model; give 0\.\d+ GiB", done.stderr)


def large_graph(nodes: int, edges: int, features: int, clients: int) -> Graph:
    stream = torch.Generator().manual_seed(0)
    each = nodes // clients
    start = torch.randint(nodes, (edges,), generator=stream)
    end = start // each * each + torch.randint(each, (edges,), generator=stream)
    return Graph(
        x=torch.randn(nodes, features, generator=stream),
        y=torch.randint(3, (nodes,), generator=stream),
        edges=undirected(torch.stack([start, end]), nodes),
        classes=("a", "b", "c"),
        client=torch.arange(nodes) // each,
        client_names=tuple(map(str, range(clients))),
    ).validate()


def test_memory_of_a_container(tmp_path, monkeypatch):
    """The tightest of all limits around the process; files that it has read can be dropped."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")
    assert memory.whole() == memory._physical(), "where the system says nothing"
    files = {
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 700 kB\n",
        "proc/self/cgroup": "4:memory:/outer/inner\n0::/slice/job\n",
        "cgroup/memory.max": "max\n",
        "cgroup/memory.current": "9\n",
        "cgroup/memory.stat": "anon 5\ninactive_file 4\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert (memory.whole(), memory.available()) == (1000 * 1024, 700 * 1024)
    for folder, limit, used, stat in (
        ("cgroup/slice/job", "memory.max", "memory.current", "inactive_file"),
        ("cgroup/memory/outer", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / limit).write_text("600000\n")
        (place / used).write_text("500000\n")
        (place / "memory.stat").write_text(f"{stat} 200000\n")
        assert (memory.whole(), memory.available()) == (600_000, 300_000)
        (place / used).write_text("900000\n")
        assert memory.available() == 0
        (place / limit).unlink()
    monkeypatch.setattr(memory, "most_resident", lambda: 5)
    assert memory.resident() == 5


def test_comparisons_within_a_given_memory(capsys):
    words = ["compare", "--methods", "local", "--seeds", "1", "--rounds", "1", "--quiet"]
    assert main([*words, "--max-memory", "64"]) == 0
    capsys.readouterr()
    assert main([*words, "--max-memory", "0.01"]) == 2
    assert "--max-memory 0.01 is too little for 20 clients" in capsys.readouterr().err
    with pytest.raises(FedpubError, match=r"max_memory=0\.01 is too little for 20 clients"):
        fedpub.compare("communities", ["local"], seeds=1, rounds=1, progress=False, max_memory=0.01)


def test_the_verb_within_a_given_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedpub.runs.simulated.most_resident", lambda: 0)
    monkeypatch.setattr("fedpub.engine.fitting.resident", lambda: 0)
    for name, more in (("one", []), ("other", ["--max-memory", "0.18"])):
        words = ["run", "--dataset", "communities", "--rounds", "2", "--quiet", "--out", str(tmp_path / name), *more]
        assert main(words) == 0
    one, other = ((tmp_path / name / "rounds.csv").read_text().splitlines() for name in ("one", "other"))
    assert [line.split(",")[2:4] for line in one] == [line.split(",")[2:4] for line in other]
    capsys.readouterr()
    for value, sentence in (("0.01", "is too little for 20 clients"), ("-1", "--max-memory -1.0 is not possible")):
        assert main(["run", "--rounds", "2", "--quiet", "--max-memory", value]) == 2
        assert sentence in capsys.readouterr().err
