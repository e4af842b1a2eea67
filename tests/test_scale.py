"""Many clients: chunks, states in files, averages over the most similar ones, and a plan within a given memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedpub.algorithms import METHODS, FedPub
from fedpub.bench.scale import CLASSES, random_clients
from fedpub.cli import main
from fedpub.data.clients import stack
from fedpub.engine.plan import within
from fedpub.engine.shelf import Shelf
from fedpub.engine.simulate import Federation, Round, Snapshot, simulate
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.models import GCN, GraphSAGE
from fedpub.similarity import attention, cosine, narrowed, nearest, random_proxy
from fedpub.tree import mix, not_zero, pack, put, select, state_map

CLIENTS = 7
TRAINED = [name for name in METHODS if name not in ("oracle", "fedgnn", "fedsage")]


def federation(**changes: object) -> Federation:
    return Federation(random_clients(CLIENTS, 12, 6), CLASSES, torch.device("cpu"), torch.float64, **changes)


def played(method: str, own: Federation, rounds: int = 3, fraction: float = 1.0, **options: object) -> list[Round]:
    experiment = Experiment(method=method, options=options, rounds=rounds, hidden=4, dtype="float64").resolved()
    found = []
    for measured in simulate(experiment.algorithm(), experiment.context(), own, rounds, fraction):
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
    experiment = Experiment(method="fedpub", rounds=4, hidden=4, dtype="float64").resolved()
    start = played("fedpub", federation(), rounds=2)[-1].snapshot
    own = federation(chunk=2, on_disk=True)
    *_, last = simulate(experiment.algorithm(), experiment.context(), own, 4, start=start)
    assert_alike([last], played("fedpub", federation(), rounds=4)[-1:])


def test_a_shelf_holds_what_was_put_there(tmp_path):
    shelf = Shelf(tmp_path, 3)
    tree = {"w": torch.arange(6.0).view(3, 2), "b": torch.arange(3.0)}
    shelf.put(torch.tensor([0, 1, 2]), {"weights": tree, "step": torch.tensor([1, 2, 3]), "masks": {}})
    shelf.put(torch.tensor([2, 0]), {"weights": {"w": torch.ones(2, 2), "b": torch.tensor([7.0, 8.0])},
                                     "step": torch.tensor([9, 8]), "masks": {}})  # fmt: skip
    assert shelf.state["weights"]["w"].tolist() == [[1, 1], [2, 3], [1, 1]]
    assert shelf.state["weights"]["b"].tolist() == [8, 1, 7]
    assert shelf.state["step"].tolist() == [8, 2, 9]
    assert shelf.state["masks"] == {}
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
    monkeypatch.setattr("fedpub.similarity.NEAREST_BLOCK", block)
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
    monkeypatch.setattr("fedpub.tree.CACHED", cached)
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
    narrow = narrowed(proxy, seen, data)
    assert narrow.x.shape == (3, 500, 4)
    assert narrowed(proxy, seen, data) is narrow, "made once"
    torch.testing.assert_close(model.embed(weights, narrow), model.embed(weights, proxy))


def test_a_plan_keeps_what_fits_and_says_what_would():
    experiment = Experiment(method="fedpub", rounds=1, hidden=64).resolved()
    own = Federation(random_clients(40, 20, 50), CLASSES, torch.device("cpu"))
    how = (experiment.algorithm(), experiment.context(), own)
    assert within(*how, 2**40) is own
    plans = [within(*how, kib * 2**10) for kib in range(640 * 2**10, 606 * 2**10, -256)]
    kinds = ["whole" if plan is own else "on disk" if plan.on_disk else "chunks" for plan in plans]
    assert list(dict.fromkeys(kinds)) == ["whole", "chunks", "on disk"], "the less there is, the more is done about it"
    assert kinds == sorted(kinds, key=["whole", "chunks", "on disk"].index)
    for kind in ("chunks", "on disk"):
        sizes = [plan.chunk for plan, one in zip(plans, kinds, strict=True) if one == kind]
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes) >= 1
    with pytest.raises(FedpubError, match=r"max_memory=0\.5 is too little for 40 clients of this model; give 0\.6"):
        within(*how, 2**29)


def test_the_verb_within_a_given_memory(tmp_path, capsys):
    for name, more in (("one", []), ("other", ["--max-memory", "0.63"])):
        words = ["run", "--dataset", "communities", "--rounds", "2", "--quiet", "--out", str(tmp_path / name), *more]
        assert main(words) == 0
    one, other = ((tmp_path / name / "rounds.csv").read_text().splitlines() for name in ("one", "other"))
    assert [line.split(",")[2:4] for line in one] == [line.split(",")[2:4] for line in other]
    capsys.readouterr()
    for value, sentence in (("0.1", "is too little for 20 clients"), ("-1", "--max-memory -1.0 is not possible")):
        assert main(["run", "--rounds", "2", "--quiet", "--max-memory", value]) == 2
        assert sentence in capsys.readouterr().err
