"""Splits that are not drawn: the owner's own, by words, masks or dates, and the paper's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedpub
from fedpub.cli import main
from fedpub.data.clients.split import check_learnable, published_sets, split, with_split
from fedpub.data.graph import NO_SET, TEST, TRAIN, VALIDATION, Graph
from fedpub.data.tables import from_tables
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.federation.part import OwnGraph
from fedpub.runs.comparison import Cell, run_all
from small import refused, small_graph

RATIOS = (0.2, 0.4, 0.4)
# Of the nodes of `small_graph`; node 6 is in no set. Its classes are 0 1 0 2 1 2 0 1 0 2.
SMALL = torch.tensor([0, 0, 1, 0, 2, 1, -1, 2, 2, 1], dtype=torch.int8)


def owned(sets: Tensor = SMALL) -> Graph:
    return replace(small_graph(), split=sets)


@pytest.fixture
def graph(graph_file: str) -> Graph:
    return Graph.load(graph_file)


@pytest.fixture
def own(graph: Graph) -> Graph:
    """Of the graph's nodes every third is for training, and every tenth is in no set."""
    sets = (torch.arange(graph.num_nodes) % 3).to(torch.int8)
    sets[::10] = NO_SET
    return replace(graph, split=sets).validate()


@pytest.fixture
def own_file(own: Graph, tmp_path: Path) -> str:
    own.save(tmp_path / "own.graph")
    return str(tmp_path / "own.graph")


def sets_of(ready: Prepared) -> Tensor:
    """The set of every node, as the clients have it."""
    found = torch.full((ready.graph.num_nodes,), NO_SET, dtype=torch.int8)
    for held in ready.federation.subgraphs:
        for code, part in ((TRAIN, held.train), (VALIDATION, held.val), (TEST, held.test)):
            found[held.nodes[part]] = code
    return found


def test_an_own_split_by_hand():
    """Node 1 has no label, so it is in no set, either."""
    graph = owned()
    graph = replace(graph, y=graph.y.where(torch.arange(10) != 1, -1))
    chosen = split(graph, seed=3, ratios=(0.5, 0.25, 0.25))
    assert [torch.nonzero(part).flatten().tolist() for part in chosen] == [[0, 3], [2, 5, 9], [4, 7, 8]]


def test_which_split_is_used():
    plain, graph = small_graph(), owned()
    assert with_split(graph, "default", None).split is SMALL
    assert with_split(graph, "own", None).split is SMALL
    assert with_split(graph, "random", None).split is None
    assert with_split(plain, "default", None, RATIOS).split is None
    assert with_split(graph, "random", None, RATIOS).split is None
    assert torch.equal(with_split(graph, "published", RATIOS).split, published_sets(10, RATIOS))


@pytest.mark.parametrize(
    ("graph", "asked", "said"),
    [
        (small_graph(), ("own", None), "graph 'small' has no split of its own"),
        (small_graph(), ("published", None), "for the paper's data sets only, not for 'small'; use split=random"),
        (owned(), ("default", None, RATIOS), "ratios=0.2 0.4 0.4 has no effect on the split that graph 'small' has"),
        (small_graph(), ("published", RATIOS, RATIOS), "ratios=0.2 0.4 0.4 has no effect on the published split"),
    ],
)
def test_a_split_that_is_not_possible_is_said(graph, asked, said):
    with pytest.raises(FedpubError) as error:
        with_split(graph, *asked)
    assert said in str(error.value)


def test_an_own_split_needs_a_labelled_training_node():
    for sets in (SMALL.where(SMALL != TRAIN, NO_SET), torch.full_like(SMALL, TEST)):
        with pytest.raises(FedpubError, match="without a labelled training node"):
            split(owned(sets), 0)


def test_a_class_that_nothing_teaches_is_said():
    """Class b is at the nodes 1, 4 and 7: for training, testing and testing."""
    check_learnable(owned())
    check_learnable(small_graph())
    moved = SMALL.clone()
    moved[1] = VALIDATION
    with pytest.raises(FedpubError, match=r"class 'b' has 1 validation and 2 test nodes in .* but no training node"):
        check_learnable(owned(moved))
    moved[[1, 4, 7]] = NO_SET  # nobody asks for it
    check_learnable(owned(moved))


def test_the_published_draw_of_cora():
    """The first numbers after torch.manual_seed(1234): training nodes, then from position 497 on the test nodes."""
    sets = published_sets(2485, RATIOS)
    assert [int((sets == part).sum()) for part in (TRAIN, TEST, VALIDATION)] == [497, 994, 994]
    assert set(sets[[178, 1672, 7, 1699, 910, 813, 1060, 1005, 1589, 2391]].tolist()) == {TRAIN}
    assert set(sets[[489, 1892, 1274, 812, 1256, 1206, 1365, 766, 805, 2135]].tolist()) == {TEST}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1234)
        _, order = torch.randperm(2485), torch.randperm(2485)
    assert torch.equal(torch.sort(order[:497]).values, torch.nonzero(sets == TRAIN).flatten())
    assert torch.equal(torch.sort(order[1491:]).values, torch.nonzero(sets == VALIDATION).flatten())


def test_the_published_split_of_cora_is_used(real_data):
    for seed in (0, 1):
        ready = prepare(Experiment("cora", clients=5, split="published", seed=seed).resolve())
        assert torch.equal(sets_of(ready), published_sets(2485, RATIOS))
    assert ready.graph.split is None


@pytest.mark.parametrize("method", ["local", "oracle"])
def test_a_graph_with_a_split_is_used_as_it_is(method, own, own_file):
    for changes in ({}, {"split": "own"}, {"seed": 5}):
        ready = prepare(Experiment(own_file, method=method, **changes).resolve())
        assert torch.equal(sets_of(ready), own.split)
        assert ready.graph.digest() == own.digest()
    drawn = split(replace(own, split=None), 5)
    ready = prepare(Experiment(own_file, method=method, split="random", seed=5).resolve())
    assert torch.equal(sets_of(ready) == TRAIN, drawn.train)
    assert ready.graph.digest() == own.digest()


def test_a_site_uses_its_own_split(own, own_file):
    source = OwnGraph(Path(own_file))
    plan = Experiment(own_file, method="local", ratios=(0.5, 0.25, 0.25), seed=1).resolve()  # others may draw theirs
    classes = ("another", *reversed(own.classes))
    held = source.piece(plan, 2, classes)
    assert torch.equal(torch.stack([held.train, held.val, held.test]), torch.stack(split(own, 0)))
    held = source.piece(replace(plan.experiment, split="random").resolve(), 2, classes)
    assert torch.equal(held.train, split(replace(own, split=None), 1, (0.5, 0.25, 0.25)).train)
    with pytest.raises(FedpubError, match="the paper's data sets only"):
        source.piece(Experiment("cora", clients=2, split="published").resolve(), 2, classes)


def test_only_a_drawn_split_bounds_the_examples_of_a_site():
    def draws(**changes):
        return Experiment("cora", clients=2, **changes).resolve().draws

    assert [draws(split=one) for one in ("default", "own", "random", "published")] == [False, False, True, True]
    assert draws(task="link-prediction")


def test_links_are_drawn_whatever_the_nodes_sets_are(own, own_file):
    plan = Experiment(own_file, task="link-prediction", ratios=(0.6, 0.2, 0.2)).resolve()
    assert all(held.links is not None for held in prepare(plan).federation.subgraphs)


def test_runs_with_different_splits_do_not_share_their_data(own_file):
    plans = [Experiment(own_file, method="local", rounds=1, hidden=4, split=one).resolve() for one in ("own", "random")]
    cell = Cell(own_file, "natural", None)
    found = run_all([(cell, "local", plan) for plan in plans], None, None, None, None, None, False)
    own, drawn = (one.summary["per_client_test"] for one in found)
    assert own != drawn


def test_masks_of_pyg_are_the_split(own, graph):
    data = own.to_pyg()
    assert torch.equal(data.val_mask, own.split == VALIDATION)
    again = fedpub.graph_from_pyg(data)
    assert torch.equal(again.split, own.split)
    assert again.digest() == own.digest()
    found = fedpub.run(data, method="local", rounds=1, hidden=4)
    told = found.to_pyg()
    assert all(torch.equal(told[name], data[name]) for name in ("train_mask", "val_mask", "test_mask"))
    drawn = fedpub.run(data, method="local", rounds=1, hidden=4, split="random").to_pyg()
    assert torch.equal(drawn.train_mask, split(graph, 0).train)
    assert "train_mask" not in fedpub.run(data, method="local", rounds=1, hidden=4, task="link-prediction").to_pyg()


def imported(folder: Path, **columns: Any) -> str:
    """Twelve nodes on a path, one a month. October's has no word."""
    words = ["train"] * 6 + ["val"] * 2 + ["Test", "", "test", "test"]
    rows = [f"n{i},{i},{'ab'[i % 2]},2024-{i + 1:02}-15,{words[i]}" for i in range(12)]
    (folder / "nodes.csv").write_text("\n".join(["id,size,label,day,set", *rows]) + "\n")
    ends = [f"n{i},n{i + 1}" for i in range(11)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")
    tables = ([folder / "nodes.csv"], [folder / "edges.csv"])
    from_tables(*tables, id_column="id", label_column="label", **columns).graph.save(folder / "made.graph")
    return str(folder / "made.graph")


@pytest.mark.parametrize(
    ("columns", "sets"),
    [
        (
            {"time_column": "day", "validation_from": "2024-07-15", "test_from": "2024-09-01", "drop": ["set"]},
            [0] * 6 + [1] * 2 + [2] * 4,
        ),
        ({"split_column": "set", "drop": ["day"]}, [0] * 6 + [1] * 2 + [2, -1, 2, 2]),
    ],
)
def test_dates_and_words_of_a_table_decide_the_sets(columns, sets, tmp_path, capsys):
    made = imported(tmp_path, **columns)
    assert sets_of(prepare(Experiment(made, "random", 1, "local").resolve())).tolist() == sets
    for verb in ("stats", "partition"):
        words = ["data", verb, "--dataset", made, "--scenario", "random", "--clients", "1", "--json"]
        for further, count in (([], 6), (["--split", "own"], 6), (["--split", "random"], 2)):
            capsys.readouterr()
            assert main([*words, *further]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found[0] if verb == "stats" else found)["training_nodes"] == [count]
        said = refused([*words, "--ratios", "0.2", "0.4", "0.4"], capsys)
        assert "--ratios 0.2 0.4 0.4 has no effect on the split that graph" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--ratios", "0.5", "0.25", "0.25"], "--ratios 0.5 0.25 0.25 has no effect on the split that graph"),
        (["--split", "own", "--ratios", "0.5", "0.25", "0.25"], "--ratios 0.5 0.25 0.25 has no effect on --split own"),
        (["--split", "published"], "--split published exists for the paper's data sets only"),
        (["--split", "own", "--task", "link-prediction"], "--split own has no effect on link-prediction"),
        (["--split", "own", "--dataset", "communities"], "has no split of its own"),
    ],
)
def test_a_bad_split_is_one_sentence_and_leaves_nothing(flags, said, own_file, tmp_path, capsys):
    dataset = [] if "--dataset" in flags else ["--dataset", own_file]
    assert said in refused(["run", *dataset, *flags, "--out", str(tmp_path / "new")], capsys)
    assert not (tmp_path / "new").exists()


def test_a_run_with_a_class_that_nothing_teaches_is_refused(own, tmp_path, capsys):
    untaught = torch.where((own.y == 1) & (own.split == TRAIN), TEST, own.split.long()).to(torch.int8)
    replace(own, split=untaught).save(tmp_path / "bad.graph")
    words = ["run", "--dataset", str(tmp_path / "bad.graph"), "--rounds", "1", "--out", str(tmp_path / "new")]
    said = refused(words, capsys)
    assert "no training node; move some of them to training, or draw the sets with --split random" in said
    assert not (tmp_path / "new").exists()
    assert main([*words, "--split", "random", "--quiet"]) == 0
