"""The model hops in both engines: with batches, every method, links, and edges that have directions and kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_federation import InProcessSites, assert_same_rows, coordinator, play

from fedpub.algorithms import METHODS
from fedpub.data.graph import Edges, Graph, arranged
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.known import Known
from fedpub.federation.part import OwnGraph
from fedpub.federation.site import Site
from fedpub.runs.prediction import predict
from fedpub.runs.simulated import run
from fedpub.store.model_files import load_model
from fedpub.store.run_models import model_of_run

SHORT = {"fedsage": {"generator_epochs": 2, "generator_rounds": 1}}
BATCHES = ("local", "fedavg", "fedprox", "fedper", "fedpub", "fedpub-plus")
RELATIONS = ("fedavg", "gcfl", "fedgnn", "fedsage", "fedpub", "fedpub-plus")


def with_relations(path: str) -> str:
    """The same graph, of which every third edge leads back and every second one is a transfer; some weigh more."""
    graph = Graph.load(Path(path))
    number = torch.arange(graph.edges.shape[1])
    ends = torch.where(number % 3 == 0, graph.edges.flip(0), graph.edges)
    given = Edges(ends, (1 + number % 3).double(), number % 2, directed=True)
    edges, _ = arranged(given, graph.num_nodes)
    made = replace(graph, edges=edges.ends, weight=edges.weight, kind=edges.kind, directed=True)
    made = replace(made, kinds=("card", "transfer"), name="relations").validate()
    assert made.num_relations == 4
    made.save(Path(path).with_name("relations.graph"))
    return str(Path(path).with_name("relations.graph"))


def small(dataset: str, method: str, **changes: Any) -> Experiment:
    plain = {"rounds": 3, "hidden": 4, "dtype": "float64", "dropout": 0.3, "model": "hops", "lr": 0.02}
    return Experiment(dataset, method=method, options=SHORT.get(method, {}), **(plain | changes))


def assert_both_engines_agree(experiment: Experiment, folder: Path) -> None:
    """Rows as far as sites tell them, and to 1e-9 the server's weights, every client's model and its metrics."""
    run(experiment, folder / "simulated", keep_checkpoint=True)
    sites = InProcessSites(folder / "sites", experiment)
    summary = play(coordinator(sites, experiment), folder / "deployed")
    assert_same_rows(folder / "deployed", folder / "simulated")
    for client, name in enumerate(sites.names):
        weights, card = load_model(folder / "sites" / name / "model")
        expected, theirs = model_of_run(folder / "simulated", client)
        assert (card.round, card.relations) == (summary["best_round"], theirs.relations)
        assert (card.val, card.test) == pytest.approx((theirs.val, theirs.test), abs=1e-9)
        assert weights.keys() == expected.keys()
        for leaf in expected:
            torch.testing.assert_close(weights[leaf], expected[leaf], rtol=0, atol=1e-9)


def test_every_method_of_sites_is_compared():
    assert {*BATCHES, *RELATIONS} == METHODS.keys() - {"oracle"}


@pytest.mark.parametrize("method", BATCHES)
def test_batches_are_the_same_at_sites(method, graph_file, tmp_path):
    assert_both_engines_agree(small(graph_file, method, batch_size=3, epochs=2), tmp_path)


@pytest.mark.parametrize("method", RELATIONS)
def test_directions_kinds_and_weights_of_edges_are_the_same_at_sites(method, graph_file, tmp_path):
    assert_both_engines_agree(small(with_relations(graph_file), method, rounds=2), tmp_path)


@pytest.mark.parametrize("model", ["sage", "twin"])
def test_other_models_see_relations_at_sites_too(model, graph_file, tmp_path):
    assert_both_engines_agree(small(with_relations(graph_file), "fedpub", rounds=2, model=model), tmp_path)


@pytest.mark.parametrize(
    ("method", "changes"), [("fedavg", {"hops": 3}), ("fedpub-plus", {"layers": 2, "decoder": "mlp"})]
)
def test_links_are_the_same_at_sites(method, changes, graph_file, tmp_path):
    assert_both_engines_agree(small(graph_file, method, task="link-prediction", rounds=2, **changes), tmp_path)


def test_relations_make_a_difference(graph_file, tmp_path):
    """And a model that knows none of them sees every pair once, with its weights added."""
    file = with_relations(graph_file)
    graph = Graph.load(file)
    pairs, _ = arranged(Edges(graph.edges, graph.weight), graph.num_nodes, "sum")
    alike = replace(graph, edges=pairs.ends, weight=pairs.weight, kind=None, kinds=(), directed=False)
    alike.validate().save(tmp_path / "alike.graph")
    found = {
        (model, dataset): run(small(dataset, "local", model=model)).summary["val_loss"]
        for model in ("hops", "gcn")
        for dataset in (file, str(tmp_path / "alike.graph"))
    }
    assert found["hops", file] != found["hops", str(tmp_path / "alike.graph")]
    assert found["gcn", file] == found["gcn", str(tmp_path / "alike.graph")]


@pytest.mark.parametrize("model", ["hops", "sage", "twin"])
@pytest.mark.parametrize("learnt_with", ["relations", "plain"])
def test_a_graph_with_other_relations_is_refused(learnt_with, model, graph_file, tmp_path):
    files = {"plain": graph_file, "relations": with_relations(graph_file)}
    run(small(files[learnt_with], "fedavg", model=model, rounds=1), tmp_path / "run")
    weights, card = model_of_run(tmp_path / "run", 0)
    (other,) = files.keys() - {learnt_with}
    with pytest.raises(FedpubError, match="edges"):
        predict(weights, card, Graph.load(Path(files[other])))


def test_a_gcn_does_not_ask_sites_for_the_same_directions(graph_file, tmp_path):
    """One of two sites has directed edges: a model that treats all edges alike does not mind, another one does."""
    plain = Graph.load(Path(graph_file))
    files = {}
    for client in range(2):
        own = replace(plain.subgraph(torch.nonzero(plain.client == client).flatten()), client=None, client_names=())
        files[f"site-{client}"] = tmp_path / f"{client}.graph"
        replace(own, directed=client == 1).validate().save(files[f"site-{client}"])

    def hello(model: str) -> Known:
        sites = [Site(tmp_path / model / name, name, partial(OwnGraph, file)) for name, file in files.items()]

        def asked(messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
            return {client: sites[client].answer(message) for client, message in messages.items()}

        plan = replace(small(graph_file, "local", model=model, rounds=1), clients=2, scenario="random")
        return Coordinator(plan, "0" * 16, list(files), asked, tmp_path / model).preparation.hello()

    assert hello("gcn").relations == 1
    with pytest.raises(FedpubError, match="has 2 relations and 'site-0' 1: all sites need edges of the same kinds"):
        hello("sage")


def test_links_use_no_weights_in_training_nor_in_prediction(graph_file, tmp_path):
    plain = Graph.load(Path(graph_file))
    weighted = replace(plain, weight=1.0 + torch.arange(plain.edges.shape[1], dtype=torch.float64)).validate()
    weighted.save(tmp_path / "weighted.graph")
    asked = small(str(tmp_path / "weighted.graph"), "local", model="hops", task="link-prediction", rounds=1)
    with pytest.warns(UserWarning, match="link prediction treats all edges of graph 'tiny' alike: their weights are"):
        run(asked, tmp_path / "run")
    weights, card = model_of_run(tmp_path / "run", 0)
    pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])
    with pytest.warns(UserWarning, match="their weights are not used"):
        found = predict(weights, card, weighted, pairs)
    assert found.table()["probability"].tolist() == predict(weights, card, plain, pairs).table()["probability"].tolist()
