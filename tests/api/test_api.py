"""What a notebook calls: the same numbers as everywhere else, objects in the place of names, and what it shows."""

from __future__ import annotations

import gc
import inspect
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch_geometric.data import Data

import fedpub
from fedpub.algorithms import METHODS, Algorithm, FedAvg, FedPub
from fedpub.cli import main
from fedpub.data.clients.split import split
from fedpub.data.download import cache_folder
from fedpub.data.graph import Graph, undirected
from fedpub.data.synthetic import communities_graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.models import GCN, Model
from fedpub.runs.comparison import compare as compare_runs
from fedpub.runs.comparison import plan
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows
from fedpub.store.model_files import save_model
from fedpub.store.run_models import model_of_run
from small import TINY, assert_trees_equal

QUICK: dict[str, Any] = {"hidden": 8, "rounds": 3}
HEAVY = (
    "torch_geometric",
    "pyarrow",
    "matplotlib",
    "rich",
    "igraph",
    "pymetis",
    "scipy.stats",
    "flwr",
    "pandas",
    "tyro",
)


@pytest.fixture
def graph() -> Graph:
    return communities_graph("tiny", TINY)


@dataclass(frozen=True)
class Averaging(Algorithm):
    """FedAvg by hand, for those who do not trust a name."""

    of: FedAvg = field(default_factory=FedAvg)
    strength: float = 1.0

    uploads: ClassVar[frozenset[str]] = frozenset({"weights", "size"})

    def init_server(self, w0, num_clients):
        return self.of.init_server(w0, num_clients)

    def init_client(self, w0, num_clients):
        return self.of.init_client(w0, num_clients)

    def send(self, server, ids):
        return self.of.send(server, ids)

    def client(self, ctx, own, msg, data):
        return self.of.client(ctx, own, msg, data)

    def server(self, ctx, server, ids, up):
        if ctx.round in ARMED:
            ARMED.remove(ctx.round)
            raise RuntimeError("the power is gone")
        return self.of.server(ctx, server, ids, up)

    def personal(self, own):
        return self.of.personal(own)


ARMED: list[int] = []  # rounds in which it fails, once each


@dataclass(frozen=True)
class Wrapped(Model):
    """A model that is a GCN under another name."""

    net: GCN = field(default_factory=lambda: GCN(8))
    propagation: ClassVar[str] = "symmetric"
    inputs: ClassVar[tuple[str, ...]] = ("conv1.weight",)

    def seen(self, data):
        return self.net.seen(data)

    def init(self, num_features, num_classes, stream):
        return self.net.init(num_features, num_classes, stream)

    def apply(self, w, data, dropout=None):
        return self.net.apply(w, data, dropout)

    def embed(self, w, proxy):
        return self.net.embed(w, proxy)


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if "seconds" not in name}


def measured(rows: list[Any]) -> list[Any]:
    """What does not depend on the clock; NaN is equal to itself in text."""
    return [(row.round, repr(row.clients)) for row in rows]


def assert_same(found: fedpub.Run, expected: Any) -> None:
    assert timeless(found.summary) == timeless(expected.summary)
    assert measured(found.record.rows) == measured(expected.record.rows)


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_imports_nothing_else():
    loaded = in_a_new_process("import sys, fedpub; print(fedpub.__version__, 'torch' in sys.modules)")
    assert loaded.split() == [fedpub.__version__, "False"]
    loaded = in_a_new_process("import sys, fedpub; print(*[n for n in sys.modules if n.startswith('fedpub')])")
    assert sorted(loaded.split()) == ["fedpub", "fedpub.core", "fedpub.core.lazy", "fedpub.version"]


def test_the_functions_need_nothing_heavy_beyond_torch():
    code = "import sys, fedpub; fedpub.run, fedpub.load, fedpub.Graph, fedpub.Comparison; print(*sys.modules)"
    loaded = set(in_a_new_process(code).split())
    assert "torch" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_every_name_is_there_and_no_other():
    for name in fedpub.__all__:
        assert getattr(fedpub, name) is not None
        assert name in dir(fedpub)
    with pytest.raises(AttributeError, match="no attribute 'running'"):
        fedpub.running  # noqa: B018
    names = in_a_new_process("from fedpub import *; print(*sorted(n for n in dir() if n[0] != '_'))").split()
    assert names == sorted(name for name in fedpub.__all__ if not name.startswith("_"))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_has_the_numbers_of_an_experiment(method, graph_file, tmp_path):
    found = fedpub.run(graph_file, method=method, seed=3, out=tmp_path / "one", progress=False, **QUICK)
    other = run(Experiment(dataset=graph_file, method=method, seed=3, **QUICK), tmp_path / "other")
    assert_same(found, other)
    texts = [(tmp_path / which / "config.json").read_text() for which in ("one", "other")]
    assert texts[0] == texts[1]
    assert_same(fedpub.run(graph_file, method=method, seed=3, **QUICK), other)  # without a directory
    assert found.test == other.summary["test"]
    if method != "oracle":  # it has one model
        assert_trees_equal(found.model(2)[0], model_of_run(tmp_path / "other", 2)[0])
    assert found.model(2)[1] == model_of_run(tmp_path / "other", 2)[1]


def test_settings_and_hyper_parameters_are_keywords(graph_file):
    found = fedpub.run(graph_file, "random", 4, "fedpub", task="link-prediction", tau=5.0, masks=False, lr=0.1, **QUICK)
    options = {"tau": 5.0, "masks": False}
    described = Experiment(graph_file, "random", 4, "fedpub", options, task="link-prediction", lr=0.1, **QUICK)
    assert_same(found, run(described))
    assert found.experiment == described.resolve().experiment


def test_an_object_of_a_known_method_or_model_is_its_name(graph_file):
    found = fedpub.run(graph_file, method=FedPub(tau=5.0), model=GCN(8), rounds=2)
    assert found.experiment == Experiment(graph_file, options={"tau": 5.0}, hidden=8, rounds=2).resolve().experiment
    again = fedpub.run(graph_file, method=FedPub(tau=5.0), lambda1=0.5, model=GCN(8), rounds=2)
    assert (again.experiment.options["tau"], again.experiment.options["lambda1"]) == (5.0, 0.5)


def test_a_graph_or_data_is_as_good_as_its_file(graph, graph_file, tmp_path):
    expected = run(Experiment(graph_file, **QUICK))
    assert_same(fedpub.run(graph, **QUICK), expected)
    assert_same(fedpub.run(graph.to_pyg(), **QUICK), expected)
    assert_same(fedpub.run(Path(graph_file), **QUICK), expected)
    kept = fedpub.run(graph, out=tmp_path / "kept", **QUICK)
    assert kept.experiment.dataset == str(tmp_path / "kept" / "tiny.graph")
    # The run directory has all that it needs: the command line can use it.
    assert main(["run", "--config", str(tmp_path / "kept" / "config.json"), "--quiet"]) == 0
    assert_same(fedpub.run(graph, out=tmp_path / "kept", resume=True, **QUICK), expected)
    with pytest.raises(FedpubError, match=r"the graph of .* has changed"):
        fedpub.run(replace(graph, y=graph.y.flip(0)), out=tmp_path / "kept", resume=True, **QUICK)


def test_whatever_graphs_and_methods_are_called_their_files_stay_in_the_folder(graph, tmp_path):
    names = ("../../escaped", "long" * 60, "a/b", "a-b")
    graphs = [replace(graph, name=name) for name in names]
    methods = {"../up": "fedavg", "x" * 300: "local"}
    out = tmp_path / "one" / "two" / "out"
    before = set(tmp_path.rglob("*"))
    fedpub.compare(graphs, methods, seeds=1, out=out, progress=False, hidden=4, rounds=1)
    fedpub.run(graphs[0], out=out / "run", progress=False, hidden=4, rounds=1)
    kept = cache_folder() / "partitions"
    places = {*out.rglob("*"), *kept.glob("*"), out, kept, *out.parents, *kept.parents}
    assert places >= set(tmp_path.rglob("*")) - before
    assert len(list(out.glob("*.graph"))) == 4
    assert len(list(out.glob("*/*/summary.json"))) == 8


def test_an_object_that_does_as_fedavg_has_its_numbers(graph_file, tmp_path):
    expected = run(Experiment(graph_file, method="fedavg", **QUICK))
    assert_same(fedpub.run(graph_file, method=Averaging(), **QUICK), expected)
    found = fedpub.run(graph_file, method=Averaging(), model=Wrapped(), out=tmp_path / "run", **QUICK)
    assert_same(found, expected)
    assert repr(found).startswith("Run of Averaging on tiny")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"], config["model"]) == ("python:Averaging", "python:Wrapped")
    assert config["options"] == {"of": {}, "strength": 1.0}


def test_an_object_that_extends_fedpub_has_the_papers_tau(graph_file):
    @dataclass(frozen=True)
    class Extended(FedPub):
        more: int = 1

    expected = run(Experiment(graph_file, scenario="overlapping", clients=5, **QUICK))
    found = fedpub.run(graph_file, "overlapping", 5, Extended(), **QUICK)
    assert_same(found, expected)
    assert found.experiment.options == {**expected_options(graph_file), "more": 1}
    assert found.relations["similarity"].shape == (3, 5, 5)


def expected_options(graph_file: str) -> dict[str, Any]:
    return dict(Experiment(graph_file, scenario="overlapping", clients=5).resolve().experiment.options)


def test_a_run_with_an_object_goes_on_with_the_same_object_only(graph_file, tmp_path, capsys):
    out = tmp_path / "run"
    expected = run(Experiment(graph_file, method="fedavg", **QUICK))
    ARMED[:] = [2]
    with pytest.raises(RuntimeError, match="the power is gone"):
        fedpub.run(graph_file, method=Averaging(), out=out, **QUICK)
    assert len(read_rows(out)) == 1
    with pytest.raises(FedpubError, match=r"is not finished: resume it with fedpub.run\(..., out="):
        fedpub.load(out)
    with pytest.raises(FedpubError, match=r"belongs to another experiment: its options is .*'strength': 1.0"):
        fedpub.run(graph_file, method=Averaging(strength=2.0), out=out, resume=True, **QUICK)
    with pytest.raises(FedpubError, match="its method is 'python:Averaging', not 'fedavg'"):
        fedpub.run(graph_file, method="fedavg", out=out, resume=True, **QUICK)
    assert main(["run", "--resume", str(out)]) == 2
    assert "'Averaging' is an object of the program that made this run" in capsys.readouterr().err
    assert_same(fedpub.run(graph_file, method=Averaging(), out=out, resume=True, **QUICK), expected)
    assert_same(fedpub.load(out), expected)
    weights, card = fedpub.load(out).model(0)  # a model that has a name can be used everywhere
    assert (card.method, card.model) == ("python:Averaging", "gcn")
    save_model(tmp_path / "model", weights, card)
    frame = fedpub.predict(tmp_path / "model", graph_file)
    pd.testing.assert_frame_equal(frame, fedpub.predict(out, graph_file, client=0))


def test_an_own_model_is_used_again_with_its_object_only(graph_file, tmp_path, capsys):
    out = tmp_path / "run"
    found = fedpub.run(graph_file, model=Wrapped(), out=out, **QUICK)
    assert_same(found, run(Experiment(graph_file, **QUICK)))
    assert found.model(0)[1].model == "python:Wrapped"
    expected = fedpub.predict(found, graph_file, client=0)
    for again in (fedpub.load(out, model=Wrapped()), out):
        pd.testing.assert_frame_equal(fedpub.predict(again, graph_file, client=0, model=Wrapped()), expected)
    with pytest.raises(FedpubError, match=r"'Wrapped' is an object of the program .* fedpub\.predict as model="):
        fedpub.load(out).model(0)
    with pytest.raises(FedpubError, match="the object 'GCN' is not the model that was trained, 'Wrapped'"):
        fedpub.load(out, model=GCN(8)).model(0)
    words = ["predict", "--model", str(out), "--client", "0", "--graph", graph_file]
    assert main([*words, "--out", str(tmp_path / "answers.csv")]) == 2
    assert "'Wrapped' is an object of the program that trained it" in capsys.readouterr().err


def test_a_directory_that_was_not_asked_for_goes_with_the_run(graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    found = fedpub.run(graph_file, **QUICK)
    assert found.path.is_relative_to(tmp_path)
    assert not (found.path / "checkpoint").exists()
    assert found.model(0)[1].site == "0"
    del found
    gc.collect()
    ARMED[:] = [1]
    with pytest.raises(RuntimeError, match="the power is gone"):
        fedpub.run(graph_file, method=Averaging(), **QUICK)
    fedpub.compare(communities_graph("tiny", TINY), ["local"], seeds=1, **QUICK)
    assert set(tmp_path.iterdir()) - {tmp_path / "cache"} == before


def test_a_checkpoint_is_kept_where_it_is_asked_for(graph_file, tmp_path):
    small = {"hidden": 4, "rounds": 1, "progress": False}
    for keep in (False, True):
        out = tmp_path / str(keep)
        fedpub.run(graph_file, out=out / "run", keep_checkpoint=keep, **small)
        fedpub.compare(graph_file, ["local"], seeds=1, out=out / "runs", keep_checkpoint=keep, **small)
        assert [len(list((out / name).rglob("state.safetensors"))) for name in ("run", "runs")] == [keep, keep]


def test_load_has_what_was_run(graph_file, tmp_path):
    made = fedpub.run(graph_file, out=tmp_path / "run", **QUICK)
    found = fedpub.load(str(tmp_path / "run"))
    assert found.summary == made.summary
    assert measured(found.record.rows) == measured(made.record.rows)
    assert repr(found) == repr(made)
    assert str(tmp_path / "run") in repr(found)
    again = fedpub.run(graph_file, out=tmp_path / "run", resume=True, **QUICK)  # a cell that is run again
    assert again.summary == made.summary


def test_load_says_what_is_wrong_with_a_directory(graph_file, tmp_path):
    with pytest.raises(FedpubError, match="is not a run directory"):
        fedpub.load(tmp_path)
    out = fedpub.run(graph_file, out=tmp_path / "run", **QUICK).path
    rows, summary = (out / "clients.csv").read_text(), json.loads((out / "summary.json").read_text())
    (out / "clients.csv").write_text(rows[: len(rows) // 2])
    with pytest.raises(FedpubError, match=r"clients.csv has 1 of the run's 3 rounds"):
        fedpub.load(out)
    (out / "clients.csv").write_text(rows)
    (out / "summary.json").write_text(json.dumps({name: value for name, value in summary.items() if name != "val"}))
    with pytest.raises(FedpubError, match="lacks 'val'"):
        fedpub.load(out)


def test_the_frames_are_the_files(graph_file, tmp_path):
    found = fedpub.run(graph_file, method="gcfl", fraction=0.5, out=tmp_path / "run", **QUICK)
    pd.testing.assert_frame_equal(found.rounds, pd.read_csv(tmp_path / "run" / "rounds.csv"))
    clients = pd.read_csv(tmp_path / "run" / "clients.csv").drop(columns="seconds")
    pd.testing.assert_frame_equal(found.clients, clients)
    best = found.rounds.set_index("round").loc[found.summary["best_round"]]
    assert best["test"] == found.test


def test_relations_are_those_of_every_round(graph_file):
    found = fedpub.run(graph_file, fraction=0.6, **QUICK)
    similarity = found.relations["similarity"]
    assert similarity.shape == (3, 5, 5)
    took_part = found.clients.pivot(index="round", columns="client", values="took_part").to_numpy(dtype=bool)
    assert np.array_equal(~np.isnan(similarity), took_part[:, :, None] & took_part[:, None])
    assert fedpub.run(graph_file, method="fedavg", **QUICK).relations == {}


def test_plots_are_figures_that_pyplot_does_not_show_again(graph_file):
    found = fedpub.run(graph_file, **QUICK)
    for kind in ("convergence", "clients", "similarity", "alpha"):
        figure = found.plot(kind)
        assert isinstance(figure, Figure)
        figure.canvas.draw()
    assert pyplot.get_fignums() == []
    line = found.plot().axes[0].lines[1]
    assert line.get_ydata().tolist() == (100 * found.rounds["test"]).tolist()
    heights = [bar.get_height() for bar in found.plot("clients").axes[0].patches]
    assert heights == [100 * value for value in found.summary["per_client_test"]]
    shown = found.plot("similarity").axes[0].images[0].get_array()
    assert np.array_equal(shown, found.relations["similarity"][-1])
    assert np.array_equal(found.plot("alpha").axes[0].images[0].get_array(), found.relations["alpha"][-1])
    clusters = fedpub.run(graph_file, method="gcfl", **QUICK).plot("similarity")
    assert clusters.axes[1].get_ylabel() == "same cluster"
    with pytest.raises(FedpubError, match="unknown kind of plot 'cleints': did you mean clients"):
        found.plot("cleints")
    with pytest.raises(FedpubError, match="run of local kept no relations between clients"):
        fedpub.run(graph_file, method="local", **QUICK).plot("similarity")
    with pytest.raises(FedpubError, match="to draw; fedpub and fedpub-plus do, with"):
        fedpub.run(graph_file, method="gcfl", **QUICK).plot("alpha")


def test_what_is_shown_is_text_and_never_markup(graph):
    evil = replace(graph, name="<script>alert(1)</script>")
    found = fedpub.run(replace(evil, client_names=("<b>",) * 5), **QUICK)
    assert "<script" not in found._repr_html_()
    risky = replace(found, experiment=replace(found.experiment, dataset="<img src=x onerror=alert(1)>", method="<b>&"))
    shown = risky._repr_html_()
    assert "<img" not in shown
    assert "<b>" not in shown
    assert "&lt;b&gt;&amp;" in shown
    assert "http" not in shown
    compared = fedpub.compare(evil, {"<b>one": "local", "two $x$": Averaging()}, seeds=2, **QUICK)
    shown = compared._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;one" in shown
    assert "<script" not in shown
    compared.plot().canvas.draw()
    for thing in (found, compared):
        assert thing._repr_html_().count("<table>") == 1
        assert thing._repr_html_().count("<tr>") == thing._repr_html_().count("</tr>")


def test_a_run_in_a_sentence(graph_file):
    said = repr(fedpub.run(graph_file, **QUICK))
    assert "\n" not in said
    assert said.startswith("Run of FED-PUB on tiny, natural, 5 clients: test accuracy ")
    assert "kept in" not in said


def test_a_comparison_is_that_of_the_package(graph_file):
    found = fedpub.compare(graph_file, ["fedpub", "local"], seeds=2, seed=1, **QUICK)
    planned = plan(Experiment(seed=1, **QUICK), ["fedpub", "local"], [graph_file], [], 2)
    expected = list(compare_runs(planned))
    assert [(one.cell, one.method, one.seed) for one in found.runs] == [
        (one.cell, one.method, one.seed) for one in expected
    ]
    assert [timeless(one.summary) for one in found.runs] == [timeless(one.summary) for one in expected]
    table = found.table
    assert table["method"].tolist() == ["fedpub", "local"]
    assert table["clients"].tolist() == [5, 5]
    values = [100 * one.summary["test"] for one in found.runs if one.method == "fedpub"]
    assert table["test"][0] == pytest.approx(np.mean(values), abs=1e-12)
    assert table["deviation"][0] == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    title, headings, *lines = repr(found).splitlines()
    assert title == "Comparison: test accuracy in percent, mean and deviation over 2 seeds"
    assert headings.split() == ["method", "tiny,", "natural"]
    assert [line.split()[0] for line in lines] == ["FED-PUB", "Local", "majority"]


def test_a_comparison_of_objects_over_several_cells(graph, tmp_path):
    methods = {"ours": FedPub(tau=5.0), "theirs": "fedavg", "by hand": Averaging()}
    other = replace(graph, name="other", y=graph.y.flip(0))
    wanted: dict[str, Any] = {"datasets": [graph, other], "clients": [2, 3], "scenario": "random", "seeds": 1}
    found = fedpub.compare(methods=methods, out=tmp_path / "runs", **wanted, **QUICK)
    table = found.table.set_index(["clients", "method"])
    assert len(table) == 2 * 2 * 3
    assert table["deviation"].isna().all()
    one = {label: [timeless(run.summary) for run in found.runs if run.method == label] for label in methods}
    assert one["theirs"] == one["by hand"]
    assert one["theirs"] != one["ours"]
    kept = fedpub.load(tmp_path / "runs" / "tiny-random-2" / "ours-seed0")
    assert kept.experiment.options["tau"] == 5.0
    times = [run.summary["seconds"] for run in found.runs]
    again = fedpub.compare(methods=methods, out=tmp_path / "runs", **wanted, **QUICK)  # nothing is run again
    assert [run.summary["seconds"] for run in again.runs] == times
    figure = found.plot()
    assert len(figure.axes) == len(found._scores())
    with pytest.raises(FedpubError, match=r"tiny.graph is another graph of that name"):
        fedpub.compare(replace(other, name="tiny"), ["local"], out=tmp_path / "runs", **QUICK)


@st.composite
def graphs(draw) -> Graph:
    nodes = draw(st.integers(2, 7))
    pairs = [(u, v) for u in range(nodes) for v in range(u + 1, nodes)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    labels = [0, 1, *draw(st.lists(st.integers(-1, 2), min_size=nodes - 2, max_size=nodes - 2))]
    numbers = st.floats(-2, 2, width=32)
    x = draw(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=nodes, max_size=nodes))
    client = draw(st.none() | st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    made = torch.tensor(x)
    return Graph(
        x=made.to_sparse_csr() if draw(st.booleans()) else made,
        y=torch.tensor(draw(st.permutations(labels))),
        edges=undirected(torch.tensor(chosen).T, nodes),
        classes=("a", "b", "c"),
        name=draw(st.text("ab/ <", min_size=1)),
        client=None if client is None else torch.tensor(client),
        client_names=() if client is None else ("x", "y", "z"),
        node_ids=tuple(f"n{number}" for number in range(nodes)) if draw(st.booleans()) else (),
    ).validate()


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_a_graph_comes_back_from_pyg(graph):
    data = graph.to_pyg()
    assert data.validate()
    assert data.is_undirected()
    assert data.num_edges == 2 * graph.edges.shape[1]
    found = fedpub.graph_from_pyg(data)
    assert found.digest() == graph.digest()
    names = ("name", "classes", "client_names", "node_ids")
    assert [getattr(found, name) for name in names] == [getattr(graph, name) for name in names]


def test_data_of_others_has_no_names():
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 2]])
    data = Data(x=torch.eye(3), y=torch.tensor([0, 1, 1]), edge_index=edge_index, client=torch.tensor([1, 0, 1]))
    data.train_mask = torch.tensor([True, False, False])
    found = fedpub.graph_from_pyg(data, "mine")
    assert (found.name, found.classes, found.client_names, found.node_ids) == ("mine", ("0", "1"), ("0", "1"), ())
    assert found.client.tolist() == [1, 0, 1]
    data.name, data.classes, data.node_ids, data.client_names = 7, ["one"], ["a"], "xy"  # others' attributes
    assert fedpub.graph_from_pyg(data).digest() == found.digest()
    assert fedpub.graph_from_pyg(data).classes == ("0", "1")
    for wrong in (torch.tensor([0, 1]), torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0, -1, 0])):
        data.client = wrong
        with pytest.raises(FedpubError, match="give each of the 3 nodes the number of its client"):
            fedpub.graph_from_pyg(data)
    with pytest.raises(FedpubError, match="cannot be made of a dict"):
        fedpub.graph_from_pyg({})


def test_predictions_are_those_of_the_command_line(graph, graph_file, tmp_path):
    found = fedpub.run(graph_file, out=tmp_path / "run", **QUICK)
    words = ["predict", "--model", str(found.path), "--client", "1", "--graph", graph_file]
    assert main([*words, "--out", str(tmp_path / "table.parquet"), "--quiet"]) == 0
    expected = pd.read_parquet(tmp_path / "table.parquet")
    unlabelled = graph.to_pyg()
    unlabelled.y = None
    for given_graph in (graph_file, Path(graph_file), graph, graph.to_pyg(), unlabelled):
        pd.testing.assert_frame_equal(fedpub.predict(found, given_graph, client=1), expected)
    with pytest.raises(FedpubError, match="a model for each of its 5 clients; choose one, such as client=0"):
        fedpub.predict(found, graph)
    with pytest.raises(FedpubError, match="give 0 to 4"):
        fedpub.predict(found, graph, client=9)


def test_links_are_predicted_for_pairs(graph_file):
    found = fedpub.run(graph_file, task="link-prediction", epochs=2, **QUICK)
    frame = fedpub.predict(found, graph_file, 0, pairs=[(0, 1), (5, 2)])
    assert frame[["source", "target"]].to_numpy().tolist() == [[0, 1], [5, 2]]
    assert frame["probability"].between(0, 1).all()
    for wrong, said in (
        ([0, 1], r"the shape \[2\]"),
        ([(0, 100)], "outside 0 to 99"),
        ([(0.5, 1)], "two node numbers"),
    ):
        with pytest.raises(FedpubError, match=said):
            fedpub.predict(found, graph_file, 0, pairs=wrong)
    assert "train_mask" not in found.to_pyg()


@pytest.mark.parametrize("scenario", ["random", "overlapping"])
def test_a_run_as_data_has_the_masks_that_were_learnt_by(scenario, graph, graph_file):
    found = fedpub.run(graph_file, scenario, 5, Averaging(), seed=2, **QUICK)
    data = found.to_pyg()
    ready = prepare(Experiment(graph_file, scenario, 5, "local", seed=2).resolve())
    chosen = split(graph, 2)
    assert torch.equal(torch.stack([data.train_mask, data.val_mask, data.test_mask]), torch.stack(chosen))
    assert ("client" in data) == (scenario == "random")
    for own in ready.federation.subgraphs:
        part = found.to_pyg(own.id)
        assert torch.equal(part.y, own.y)
        assert torch.equal(part.train_mask, own.train)
        assert torch.equal(part.test_mask, own.test)
        assert torch.equal(undirected(part.edge_index, own.num_nodes), own.edges)
        if scenario == "random":
            assert set(part.client.tolist()) == {own.id}
    with pytest.raises(FedpubError, match="client 5 is not one of the 5 clients of this run; give 0 to 4"):
        found.to_pyg(5)


def test_clients_with_nothing_to_train_on_are_named(graph):
    few = replace(graph, y=torch.where(graph.client == 0, -1, graph.y))
    with pytest.warns(UserWarning, match="client 0 has nothing to train on"):
        fedpub.run(few, method="local", **QUICK)


class Plain:
    def __getattr__(self, name: str) -> Any:
        return getattr(FedAvg(), name)


@dataclass(frozen=True)
class Halfway:
    notes: ClassVar[dict[str, int]] = {}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fedpub.run(taau=1), "unknown keyword of fedpub.run 'taau': did you mean tau"),
        (lambda: fedpub.run(method="fedavg", tau=1), "tau is an option of fedpub, not of fedavg"),
        (lambda: fedpub.run(round=1), "unknown keyword of fedpub.run 'round': did you mean rounds"),
        (lambda: fedpub.run(outt="x"), "unknown keyword of fedpub.run 'outt': did you mean out"),
        (lambda: fedpub.run(method="fedpup"), "unknown method 'fedpup': did you mean fedpub"),
        (lambda: fedpub.run(model="gnc"), "unknown model 'gnc': did you mean gcn"),
        (lambda: fedpub.run(task="links"), "unknown task 'links'"),
        (lambda: fedpub.run(rounds="3"), "rounds cannot be '3'"),
        (lambda: fedpub.run("comunities"), "unknown dataset 'comunities': did you mean communities"),
        (lambda: fedpub.run(3), "an object of the type int cannot be used as a graph; give a name"),
        (
            lambda: fedpub.run(networkx.Graph()),
            r"the type networkx\.classes\.graph\.Graph cannot .*from_networkx makes",
        ),
        (lambda: fedpub.run(method=FedAvg), r"the method FedAvg is a class; give an instance, such as FedAvg\(\)"),
        (lambda: fedpub.run(method=Halfway()), "the method Halfway lacks 'uploads'"),
        (lambda: fedpub.run(method=Plain()), "the method Plain is not a dataclass"),
        (lambda: fedpub.run(model=Halfway()), "the model Halfway lacks 'propagation'"),
        (lambda: fedpub.run(method=Averaging(), options={"a": 1}), "have no effect on the object Averaging"),
        (lambda: fedpub.run(method=Averaging(), strength=1.0), "unknown keyword of fedpub.run 'strength'"),
        (lambda: fedpub.run(model=GCN(8), hidden=16), "hidden=16 contradicts the model, which has 8"),
        (lambda: fedpub.run(resume=True), "resume=True needs the directory"),
        (lambda: fedpub.compare(dataset="cora"), "unknown keyword of fedpub.compare 'dataset': did you mean datasets"),
        (lambda: fedpub.compare(tau=5.0), r"tau belongs to a method, .*methods=\[FedPub\(tau=5.0\), ...\]"),
        (lambda: fedpub.compare(methods=[]), "there is nothing to compare"),
        (lambda: fedpub.compare(methods=[FedPub(), FedPub(tau=1.0)]), "two methods are called 'fedpub'"),
        (lambda: fedpub.compare(seeds=0), "seeds=0 is not possible"),
        (lambda: fedpub.load_graph("corra"), "unknown dataset 'corra': did you mean cora"),
        (lambda: fedpub.load("nowhere"), "nowhere is not a run directory"),
        (lambda: fedpub.predict("nowhere", "communities"), "nowhere holds neither a model nor a run"),
    ],
)
def test_what_is_wrong_is_said(call, said):
    with pytest.raises(FedpubError, match=said):
        call()


def test_an_own_graph_needs_a_number_of_clients(graph):
    lonely = replace(graph, client=None, client_names=())
    with pytest.raises(FedpubError, match="graph 'tiny' has no natural clients; give a number, such as clients=5"):
        fedpub.run(lonely)
    assert len(fedpub.run(lonely, clients=2, **QUICK).summary["per_client_test"]) == 2


def test_frames_need_pandas(graph_file, monkeypatch):
    found = fedpub.run(graph_file, **QUICK)
    compared = fedpub.compare(graph_file, ["local"], seeds=1, **QUICK)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (lambda: found.rounds, lambda: compared.table, lambda: fedpub.predict(found, graph_file, 0)):
        with pytest.raises(FedpubError, match=r"pip install 'fedpub\[notebook\]'"):
            call()
    assert "Run of FED-PUB" in repr(found)  # everything else needs none


def test_the_signature_names_the_common_settings():
    parameters = inspect.signature(fedpub.run).parameters
    assert list(parameters)[:4] == ["dataset", "scenario", "clients", "method"]
    for name in ("model", "task", "rounds", "seed", "dataset", "scenario", "clients", "method"):
        assert parameters[name].default == getattr(Experiment(), name)


def test_a_paper_dataset_by_its_name(real_data):
    found = fedpub.run("cora", "disjoint", 10, rounds=2, hidden=8)
    assert_same(found, run(Experiment("cora", "disjoint", 10, rounds=2, hidden=8)))
    graph = fedpub.load_graph("cora")
    assert graph.num_nodes == 2485
    assert fedpub.graph_from_pyg(graph.to_pyg()).digest() == graph.digest()


def test_errors_name_settings_in_python_and_flags_on_the_command_line():
    with pytest.raises(FedpubError, match=r"^tau is an option of fedpub, not of fedavg"):
        fedpub.run("communities", method="fedavg", tau=5.0)
    with pytest.raises(FedpubError, match=r"^tau is an option of fedpub, not of fedavg"):
        fedpub.Experiment(method="fedavg", options={"tau": 5.0}).resolve()
    with pytest.raises(FedpubError, match=r"^weight_decay=-1\.0 is not possible") as caught:
        fedpub.run("communities", weight_decay=-1.0)
    assert caught.value.with_flags().startswith("--weight-decay -1.0 is not possible")
    nobody = FedpubError("`similarity=False`, `masks=True` and `max_memory` of `fedpub run`")
    assert str(nobody) == "similarity=False, masks=True and max_memory of `fedpub run`"
    assert nobody.with_flags() == "--no-similarity, --masks and --max-memory of `fedpub run`"


def test_fedsage_plus_is_known_by_its_name():
    assert fedpub.Experiment(method="fedsage+").resolve().experiment.method == "fedsage"
    with pytest.raises(FedpubError, match="generated=0 leaves nothing"):
        fedpub.run("communities", method="fedsage+", generated=0)
    planned = plan(fedpub.Experiment(), ["fedsage+", "fedsage"], ["communities"], (), 1, {"fedsage+": {"generated": 2}})
    assert [(label, one.experiment.options["generated"]) for _, label, one in planned] == [("fedsage", 2)]
