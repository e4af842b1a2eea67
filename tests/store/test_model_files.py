"""Personal models as files: what comes back, how large they are, and what is said of damaged ones."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpub import __version__
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import Tree
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows
from fedpub.store.model_card import FORMAT, ModelCard
from fedpub.store.model_files import load_model, save_model
from fedpub.store.run_models import model_of_run, open_model
from small import assert_trees_equal

CARD = ModelCard(
    model="gcn",
    hidden=4,
    task="node-classification",
    decoder="dot",
    num_features=6,
    classes=("a", "b", "c"),
    method="fedpub",
    site="Charité",
    round=7,
    seed=-1,
    dtype="float64",
    val=0.5,
    meta={"encoding": '{"columns": []}'},
)


def weights_of(card: ModelCard, zeros: float = 0.0, seed: int = 0) -> Tree:
    """Random weights as the card says, a share of their entries zero."""
    stream = torch.Generator().manual_seed(seed)
    leaves = {}
    for name, shape in card.shapes().items():
        leaf = torch.randn(shape, generator=stream, dtype=getattr(torch, card.dtype))
        leaves[name] = leaf.masked_fill(torch.rand(shape, generator=stream) < zeros, 0.0)
    return leaves


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", weights_of(CARD), CARD)
    return tmp_path / "model"


def stored_as(folder: Path) -> dict[str, list[str]]:
    """Under which endings each leaf is in the file."""
    found: dict[str, list[str]] = {}
    for name in read_tensors(folder / "model.safetensors")[0]:
        leaf, _, part = name.partition("/")
        found.setdefault(leaf, []).append(part)
    return found


def test_a_model_comes_back_with_its_card(saved):
    weights, card = load_model(saved)
    assert_trees_equal(weights, weights_of(CARD))
    assert card == CARD
    assert card.fedpub == __version__
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((saved / "config.json").read_text())["classes"] == ["a", "b", "c"]
    assert "Charité" in (saved / "config.json").read_text()


@pytest.mark.parametrize("changes", [{"model": "sage"}, {"task": "link-prediction"}, {"dtype": "float32"}])
@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_every_kind_of_model(changes, decoder, tmp_path):
    card = replace(CARD, decoder=decoder, **changes)
    save_model(tmp_path, weights_of(card, 0.6), card)
    weights, found = load_model(tmp_path)
    assert_trees_equal(weights, weights_of(card, 0.6))
    assert found == card


def test_link_prediction_needs_no_classes(tmp_path):
    card = replace(CARD, task="link-prediction", classes=())
    save_model(tmp_path, weights_of(card), card)
    assert load_model(tmp_path)[1].classes == ()


def test_the_smallest_way_by_hand(tmp_path):
    """A matrix of 100 rows of 8 doubles takes 6400 bytes as it is, and an entry in the header about 80."""
    card = replace(CARD, num_features=100, hidden=8)
    cases = {
        "": slice(None),  # all 800: 6400 + 80
        "bits": slice(0, None, 2),  # 400 entries: 3200 + 100 bytes of bits + 160
        "index": slice(0, None, 100),  # 8 entries: 64 + 32 + 160, where bits take 64 + 100 + 160
        "rows": slice(160, 560),  # 50 whole rows: 3200 + 13 + 160
    }
    for way, entries in cases.items():
        weights = weights_of(card)
        flat = torch.zeros(800, dtype=torch.float64)
        flat[entries] = weights["conv1.weight"].flatten()[entries]
        weights["conv1.weight"] = flat.view(1, 100, 8)
        save_model(tmp_path / way, weights, card)
        assert sorted(stored_as(tmp_path / way)["conv1.weight"]) == ([way, "values"] if way else [""])
        assert_trees_equal(load_model(tmp_path / way)[0], weights)


def test_positions_by_hand(tmp_path):
    weights = {name: torch.zeros_like(leaf) for name, leaf in weights_of(CARD).items()}
    weights["conv2.weight"][0, 2, 1:] = torch.tensor([1.5, -2.0, 3.0])  # entries 9, 10 and 11 of 16
    save_model(tmp_path, weights, CARD)
    stored, _ = read_tensors(tmp_path / "model.safetensors")
    assert stored["conv2.weight/values"].tolist() == [1.5, -2.0, 3.0]
    assert stored["conv2.weight/bits"].tolist() == [0, 0b01110000]
    assert stored["classifier.bias"].tolist() == [[0, 0, 0]]  # so few are not worth a second tensor
    assert_trees_equal(load_model(tmp_path)[0], weights)


@settings(max_examples=60, deadline=None)
@given(
    features=st.integers(1, 40),
    hidden=st.integers(1, 20),
    zeros=st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]),
    empty_rows=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 2**31),
)
def test_sparse_storage_loses_nothing(tmp_path_factory, features, hidden, zeros, empty_rows, dtype, seed):
    card = replace(CARD, num_features=features, hidden=hidden, dtype=dtype)
    weights = weights_of(card, zeros, seed)
    if empty_rows:
        weights["conv1.weight"][:, ::2] = 0
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, weights, card)
    assert_trees_equal(load_model(folder)[0], weights)


def test_what_is_not_a_number_stays_and_zeros_lose_their_sign(tmp_path):
    weights = weights_of(CARD, 1.0)
    weights["conv1.weight"][0, 0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
    wide = replace(CARD, num_features=600)
    weights["conv1.weight"] = torch.cat([weights["conv1.weight"]] * 100, dim=1)
    save_model(tmp_path, weights, wide)
    found = load_model(tmp_path)[0]["conv1.weight"]
    torch.testing.assert_close(found, weights["conv1.weight"], rtol=0, atol=0, equal_nan=True)
    assert not torch.signbit(found).any()


def test_a_pruned_model_is_a_quarter_of_the_file(tmp_path):
    card = replace(CARD, num_features=1433, hidden=128, classes=tuple("1234567"), dtype="float32")
    weights = weights_of(card)
    save_model(tmp_path / "dense", weights, card)
    dense = (tmp_path / "dense" / "model.safetensors").stat().st_size
    assert dense == pytest.approx(4 * sum(leaf.numel() for leaf in weights.values()), rel=0.01)
    # Entries without any pattern; whole rows and then entries; nearly everything.
    pruned = {name: torch.nn.functional.dropout(leaf, 0.75) for name, leaf in weights.items()}
    rows = weights | {"conv1.weight": weights["conv1.weight"] * (torch.arange(1433) % 4 == 0)[:, None]}
    few = {name: leaf * (torch.arange(leaf.shape[-1]) == 0) for name, leaf in weights.items()}
    for name, share, sparse in (("pruned", 0.30, pruned), ("rows", 0.33, rows), ("few", 0.02, few)):
        save_model(tmp_path / name, sparse, card)
        assert (tmp_path / name / "model.safetensors").stat().st_size <= share * dense, name
        assert_trees_equal(load_model(tmp_path / name)[0], sparse)


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        save_model(tmp_path / name, dict(reversed(weights_of(CARD, 0.9).items())) | weights_of(CARD, 0.9), CARD)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_leaves_that_share_memory_are_saved(tmp_path):
    weights = weights_of(CARD)
    whole = torch.randn(4, 4, dtype=torch.float64)
    weights |= {"conv2.weight": whole.view(1, 4, 4), "conv1.bias": whole[:1], "conv2.bias": whole[:, 1].unsqueeze(0)}
    save_model(tmp_path, weights, CARD)
    assert_trees_equal(load_model(tmp_path)[0], weights)


def test_a_new_model_replaces_the_old_one(saved):
    card = replace(CARD, round=8, hidden=5)
    save_model(saved, weights_of(card), card)
    assert load_model(saved)[1].round == 8


def test_a_kill_leaves_no_new_weights_beside_an_old_card(saved, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedpub.store.model_files.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        save_model(saved, weights_of(CARD, 0.5), CARD)
    with pytest.raises(FedpubError, match=r"config\.json: the model is not complete; save it again"):
        load_model(saved)


def test_nothing_is_saved_that_does_not_fit_its_card(tmp_path):
    weights = weights_of(CARD)
    wrong = [
        (
            {name: leaf for name, leaf in weights.items() if name != "conv1.bias"},
            CARD,
            "lacks the weights 'conv1.bias'",
        ),
        (weights | {"more": torch.zeros(1, 1)}, CARD, "has the weights 'more', which its card does not know"),
        (weights, replace(CARD, hidden=5), r"of shape \[1, 4, 3\], but its card needs \[1, 5, 3\]"),
        (weights, replace(CARD, dtype="float32"), "of type float64, but its card says float32"),
        (weights, replace(CARD, model="gat"), "unknown model 'gat'"),
        (weights, replace(CARD, num_features=0), "num_features cannot be 0"),
        (weights, replace(CARD, classes=("a",)), "classes cannot be"),
    ]
    for leaves, card, said in wrong:
        with pytest.raises(FedpubError, match=said):
            save_model(tmp_path / "model", leaves, card)
    assert not (tmp_path / "model").exists()


def rewritten(folder: Path, leave_out: tuple[str, ...] = (), **tensors: torch.Tensor) -> None:
    """The weights' file with other tensors in it."""
    stored, header = read_tensors(folder / "model.safetensors")
    changed = {name: leaf for name, leaf in stored.items() if name not in leave_out}
    write_tensors(folder / "model.safetensors", changed | {k.replace("__", "."): v for k, v in tensors.items()}, header)


BITS = torch.tensor([0b11000000, 0], dtype=torch.uint8)
ONES = torch.ones(2, dtype=torch.float64)
DAMAGE = {
    "missing": ({}, "it has no weights 'conv2.weight'"),
    "positions missing": ({"conv2__weight/values": ONES}, "it has no weights 'conv2.weight'"),
    "too few values": (
        {"conv2__weight/values": ONES[:1], "conv2__weight/bits": BITS},
        "'conv2.weight' has 1 values at 2 positions",
    ),
    "bits outside": (
        {"conv2__weight/values": ONES, "conv2__weight/bits": torch.cat([BITS * 0, BITS])},
        "a position of 'conv2.weight' is out of range",
    ),
    "rows outside": (
        {"conv2__weight/values": torch.ones(4).double(), "conv2__weight/rows": torch.tensor([8], dtype=torch.uint8)},
        "a position of 'conv2.weight' is out of range",
    ),
    "index outside": (
        {
            "conv2__weight/values": ONES,
            "conv2__weight/index": torch.from_numpy(np.array([3, 16], dtype=np.uint32)),
        },
        "a position of 'conv2.weight' is out of range",
    ),
    "index repeated": (
        {
            "conv2__weight/values": ONES,
            "conv2__weight/index": torch.from_numpy(np.array([3, 3], dtype=np.uint32)),
        },
        "out of order",
    ),
    "another kind": (
        {"conv2__weight/values": ONES, "conv2__weight/index": torch.tensor([1, 2])},
        "the positions of 'conv2.weight' are of the wrong type",
    ),
    "another precision": (
        {"conv2__weight/values": ONES.to(torch.bfloat16), "conv2__weight/bits": BITS},
        "the positions of 'conv2.weight' are of the wrong type",
    ),
    "dense of another shape": (
        {"conv2__weight": torch.zeros(1, 4, 5).double()},
        r"'conv2.weight' of shape [1, 4, 5], but its card needs [1, 4, 4]",
    ),
}


@pytest.mark.parametrize(("tensors", "said"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_weights_are_one_sentence(tensors, said, saved):
    rewritten(saved, ("conv2.weight",), **tensors)
    with pytest.raises(FedpubError) as caught:
        load_model(saved)
    assert said in str(caught.value)
    assert str(saved / "model.safetensors") in str(caught.value)


def changed_card(folder: Path, text: str | None = None, **changes: object) -> None:
    content = {"format": FORMAT, **asdict(CARD)} | changes
    kept = {name: value for name, value in content.items() if value is not ...}
    (folder / "config.json").write_text(text if text is not None else json.dumps(kept))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": "{"}, "cannot be read"),
        ({"text": "[]"}, "describes no model of fedpub (its format is None"),
        ({"format": "fedpub-model-9"}, "its format is 'fedpub-model-9', not 'fedpub-model-1'"),
        ({"text": '{"model_type": "bert"}'}, "describes no model of fedpub"),
        ({"hidden": ...}, "lacks 'hidden'"),
        ({"width": 3}, "has the unknown entry 'width'"),
        ({"hidden": "4"}, "hidden cannot be '4': it must be of type int"),
        ({"hidden": -4}, "hidden cannot be -4"),
        ({"hidden": 10**6}, "but its card needs [1, 1000000, 3]"),
        ({"hidden": 10**30}, "hidden cannot be 1000000"),
        ({"num_features": 7}, "of shape [1, 6, 4], but its card needs [1, 7, 4]"),
        ({"classes": ["a", "b"]}, "but its card needs [1, 2]"),
        ({"classes": ["a", "b", 3]}, "may hold only text"),
        ({"classes": "abc"}, "classes cannot be 'abc'"),
        ({"model": "gat"}, "unknown model 'gat'"),
        ({"model": "sage"}, "lacks the weights 'conv1.neighbour'"),
        ({"task": "clustering"}, "unknown task 'clustering'"),
        ({"dtype": "float16"}, "dtype cannot be 'float16'"),
        ({"dtype": "float32"}, "of type float64, but its card says float32"),
        ({"val": float("nan")}, "val=nan is not possible"),
    ],
)
def test_a_damaged_card_is_one_sentence(change, said, saved):
    changed_card(saved, **change)
    with pytest.raises(FedpubError) as caught:
        load_model(saved)
    assert said in str(caught.value)
    assert str(saved) in str(caught.value)


def test_foreign_weights_are_one_sentence(saved):
    stored, header = read_tensors(saved / "model.safetensors")
    for changed, said in (
        ({"format": "other"}, "its format is 'other'"),
        ({"shapes": "7"}, "does not name the weights"),
    ):
        write_tensors(saved / "model.safetensors", stored, header | changed)
        with pytest.raises(FedpubError, match=said):
            load_model(saved)
    (saved / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(FedpubError, match="cannot be read"):
        load_model(saved)
    (saved / "model.safetensors").unlink()
    with pytest.raises(FedpubError, match="there is no file"):
        load_model(saved)


@pytest.fixture
def done(graph_file: str, tmp_path: Path) -> Path:
    """A run of a moment with five clients."""
    graph = Graph.load(Path(graph_file))
    replace(graph, classes=("red", "green", "blue"), meta={"made": "here"}).save(Path(graph_file))
    experiment = Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=3, method="fedper", seed=5)
    run(experiment, tmp_path / "done")
    return tmp_path / "done"


def test_the_model_of_a_client_of_a_run(done, graph_file, tmp_path):
    summary = json.loads((done / "summary.json").read_text())
    models, _ = read_tensors(done / "models.safetensors")
    best = read_rows(done)[summary["best_round"] - 1]
    for client in range(5):
        weights, card = model_of_run(done, client)
        assert_trees_equal(weights, {name: leaf[client : client + 1] for name, leaf in models.items()})
        assert (card.method, card.site, card.seed, card.hidden) == ("fedper", str(client), 5, 8)
        assert (card.num_features, card.classes, card.meta) == (30, ("red", "green", "blue"), {"made": "here"})
        assert (card.round, card.test) == (summary["best_round"], summary["per_client_test"][client])
        assert card.val == best.clients["val"][client]
    save_model(tmp_path / "model", weights, card)
    assert_trees_equal(load_model(tmp_path / "model")[0], weights)
    assert load_model(tmp_path / "model")[1] == card


def test_classes_are_numbers_where_the_graph_is_gone_or_another(done, graph_file):
    graph = Graph.load(Path(graph_file))
    replace(graph, y=graph.y.roll(1), classes=("x", "y", "z")).save(Path(graph_file))
    assert model_of_run(done, 0)[1].classes == ("0", "1", "2")
    Path(graph_file).unlink()
    card = model_of_run(done, 0)[1]
    assert (card.classes, card.meta, card.num_features) == (("0", "1", "2"), {}, 30)


@pytest.mark.parametrize("task", ["node-classification", "link-prediction"])
def test_the_oracle_has_one_model_for_all(task, graph_file, tmp_path):
    experiment = Experiment(
        dataset=graph_file, scenario="natural", hidden=8, rounds=1, epochs=1, method="oracle", task=task
    )
    found = run(experiment, tmp_path / "out")
    (one, first), (other, last) = model_of_run(tmp_path / "out", 0), model_of_run(tmp_path / "out", 4)
    assert_trees_equal(one, other)
    assert [first.test, last.test] == [found.summary["per_client_test"][client] for client in (0, 4)]
    Path(graph_file).unlink()
    assert model_of_run(tmp_path / "out", 4)[1].classes == (("0", "1", "2") if task == "node-classification" else ())


def test_a_client_without_validation_nodes_has_no_value_for_them(graph_file, tmp_path):
    experiment = Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=1, ratios=(0.5, 0.0, 0.5))
    run(experiment, tmp_path / "out")
    card = model_of_run(tmp_path / "out", 1)[1]
    assert card.val is None
    assert card.test is not None


def test_what_is_said_of_runs_without_models(done, tmp_path):
    for client in (-1, 5):
        with pytest.raises(FedpubError, match=rf"client={client} is not one of the clients of .*; give 0 to 4"):
            model_of_run(done, client)
    with pytest.raises(FedpubError, match="is a run of 5 clients; choose one of them by client, 0 to 4"):
        open_model(done)
    with pytest.raises(FedpubError, match="holds neither a model nor a run"):
        open_model(tmp_path, 0)
    (done / "models.safetensors").unlink()
    with pytest.raises(FedpubError, match="kept no models; run it again with fedpub run --config"):
        open_model(done, 0)
    (done / "summary.json").unlink()
    with pytest.raises(FedpubError, match="has no models before it is finished; resume it with fedpub run --resume"):
        open_model(done)
    write_tensors(done / "models.safetensors", {}, {})
    with pytest.raises(FedpubError, match="it holds no models"):
        model_of_run(done, 0)


def test_what_is_said_of_a_damaged_run(done):
    config = json.loads((done / "config.json").read_text())
    (done / "config.json").write_text(json.dumps(config | {"hidden": 9}))
    with pytest.raises(FedpubError, match=r"models.safetensors has weights .* but its card needs"):
        model_of_run(done, 0)
    (done / "config.json").write_text(json.dumps(config | {"hidden": "9"}))
    with pytest.raises(FedpubError, match=r"is damaged .*hidden cannot be '9'"):
        model_of_run(done, 0)
    (done / "config.json").write_text(json.dumps(config))
    models, _ = read_tensors(done / "models.safetensors")
    write_tensors(done / "models.safetensors", models, {})
    with pytest.raises(FedpubError, match=r"is damaged .*round"):
        model_of_run(done, 0)


def test_one_model_has_no_clients(saved):
    assert open_model(saved)[1] == CARD
    with pytest.raises(FedpubError, match="holds one model, so client=2 has no effect; leave it out"):
        open_model(saved, 2)
