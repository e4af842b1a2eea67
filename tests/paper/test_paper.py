"""Every recipe in small; stored runs; tables worked out by hand."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedpub.cli import main
from fedpub.data.clients.partition import Partition
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.paper import beyond, looks, pareto
from fedpub.paper.main import paper as paper_value
from fedpub.paper.recipe import Artefact, Entry, Grid, Settings
from fedpub.paper.recipes import RECIPES
from fedpub.paper.store import Job, Outcomes, compute, is_done, key
from fedpub.paper.structure import correlation
from fedpub.paper.write import EARLIEST, Listed, markdown, read_csv, shown, write, write_csv, write_runs
from fedpub.report.published import published, statistics, tables
from small import small_graph

SMALL = Settings(seeds=1, rounds=2, quick=True)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the runs of all recipes, which share many."""
    return tmp_path_factory.mktemp("reproduction")


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_makes_its_table_and_figure(real_data, kept, name):
    recipe = RECIPES[name]
    jobs = recipe.jobs(SMALL)
    done = list(compute(jobs, kept / "runs", None, 1))
    assert len(done) <= len(jobs)
    assert list(compute(jobs, kept / "runs", None, 1)) == [], "nothing is computed again"
    made = recipe.make(SMALL, Outcomes(kept / "runs"))
    files = write(made, name, recipe.title, "fedpub reproduce", kept)
    assert all(path.stat().st_size > 0 for path in files)
    assert {path.suffix for path in files} == {
        ".gz" if made.packed else ".csv",
        ".md",
        *((".svg", ".pdf") if made.draw else ()),
    }
    data = files[0].read_bytes()
    header, *rows = csv.reader((gzip.decompress(data) if made.packed else data).decode().splitlines())
    assert header == made.header
    assert rows
    assert all(len(row) == len(header) for row in rows)
    numbers = [value for row in made.rows for value in row if isinstance(value, float)]
    assert numbers
    assert not any(math.isinf(value) for value in numbers)
    assert (name.startswith("figure-") or name in ("more-pareto", "more-noise")) == (made.draw is not None)


def test_clients_beside_local_by_hand():
    """Gains of −0.5, +2 and −3 points, and one client without test nodes; the mean is over cells, not over runs."""

    def cell(*clients: float | None, sent: int = 0) -> dict:
        known = [one for one in clients if one is not None]
        return {"test": sum(known) / len(known), "per_client_test": list(clients), "bytes_up": sent, "rounds": 10}

    local = {"a": [cell(0.505, 0.58, None)], "b": [cell(0.5)]}
    ours = {"a": [cell(0.5, 0.6, None, sent=90_000)], "b": [cell(0.47, sent=10_000)]}
    header, lines = beyond._table("both", {"Local": local, "ours": ours})
    assert header[0] == "both"
    assert lines[0][2:] == ["", "", "", 0.0]
    assert lines[1] == ["ours", pytest.approx(51.0), "33.3%", "66.7%", "-3.0", pytest.approx(2.0)]


def test_points_of_accuracy_and_bytes_by_hand():
    """A point is the mean over cells of its accuracy and of its bytes as a share of FED-PUB's there."""
    found = {"fedpub": (0.8, 1000), "fedavg": (0.6, 2000)}

    class Found:
        def __getitem__(self, job: Job) -> SimpleNamespace:
            test, sent = found.get(job.experiment.method, (0.9, 500))
            summary = {"test": test, "bytes_up": sent, "sparsity": 0.25}
            rounded = summary | {"bytes_up": sent / 4}
            return SimpleNamespace(summary=summary, seen=rounded)

    made = pareto.Pareto().make(Settings(seeds=1), Found())
    rows = {row[0]: row[-3:] for row in made.rows}
    assert rows["FED-PUB"] == pytest.approx([80, 25, 100])
    assert rows["FedAvg"] == pytest.approx([60, 25, 200])
    assert rows["FED-PUB-plus, int8"] == pytest.approx([90, 25, 12.5])


def small_run(**changes) -> Experiment:
    return Experiment(method="fedavg", rounds=2, hidden=4, **changes).resolve().experiment


def test_a_run_is_known_by_all_its_result_depends_on_and_not_by_where_it_was_computed(graph_file):
    one = small_run(dataset=graph_file)
    assert key(one) == key(replace(one, device="cuda"))
    assert len({key(one), key(replace(one, seed=1)), key(replace(one, lr=0.02)), key(replace(one, options={}))}) == 3
    assert Job(one).name != Job(one, "clients").name


def test_a_job_is_computed_once_and_leaves_what_was_measured_but_no_models(graph_file, tmp_path):
    jobs = [
        Job(small_run(dataset=graph_file)),
        Job(small_run(dataset=graph_file)),
        Job(small_run(dataset=graph_file, seed=1)),
    ]
    assert [job.experiment.seed for job in compute(jobs, tmp_path, None, 1)] == [0, 1]
    assert all(is_done(job, tmp_path) for job in jobs)
    path = Outcomes(tmp_path)[jobs[0]].path
    assert {file.name for file in path.iterdir()} == {
        "config.json",
        "env.json",
        "rounds.csv",
        "clients.csv",
        "summary.json",
    }
    assert Outcomes(tmp_path)[jobs[0]].summary["rounds"] == 2
    assert len(Outcomes(tmp_path)[jobs[0]].rows) == 2


def test_a_method_with_set_up_leaves_no_set_up_behind(graph_file, tmp_path):
    job = Job(replace(small_run(dataset=graph_file), method="fedgnn", options={}).resolve().experiment)
    assert len(list(compute([job], tmp_path, None, 1))) == 1
    assert not (Outcomes(tmp_path)[job].path / "setup.safetensors").exists()


def test_an_interrupted_run_goes_on(graph_file, tmp_path):
    """A run that was killed after its configuration was written."""
    job = Job(small_run(dataset=graph_file))
    whole = Outcomes(tmp_path / "whole")[job]
    list(compute([job], tmp_path / "whole", None, 1))
    begun = Outcomes(tmp_path / "begun")[job]
    begun.path.mkdir(parents=True)
    (begun.path / "config.json").write_text((whole.path / "config.json").read_text())
    assert not is_done(job, tmp_path / "begun")
    list(compute([job], tmp_path / "begun", None, 1))
    times = ("seconds",)
    one, other = ({k: v for k, v in run.summary.items() if k not in times} for run in (whole, begun))
    assert one == other


def test_several_processes_compute_the_same(graph_file, tmp_path):
    jobs = [Job(small_run(dataset=graph_file, seed=seed)) for seed in range(3)]
    assert {job.name for job in compute(jobs, tmp_path / "two", None, 2)} == {job.name for job in jobs}
    list(compute(jobs, tmp_path / "one", None, 1))
    for job in jobs:
        two, one = (Outcomes(tmp_path / folder)[job].summary["per_client_test"] for folder in ("two", "one"))
        assert two == one


def test_a_failure_in_another_process_is_one_sentence(tmp_path, graph_file):
    lost = [Job(replace(small_run(dataset=graph_file, seed=seed), dataset="nowhere.graph")) for seed in (0, 1)]
    with pytest.raises(FedpubError, match=r"nowhere\.graph"):
        list(compute(lost, tmp_path, None, 2))


def test_a_grid_by_hand(graph_file, tmp_path):
    """Two methods by two cells, two seeds: means, deviations, the paper's, differences, averages and a paired test."""
    cells = {"one": {"dataset": graph_file}, "other": {"dataset": graph_file, "lr": 0.02}}
    rows = {"A": {"method": "local"}, "B": {"method": "fedavg"}}
    grid = Grid("by hand", rows, lambda settings: cells, lambda row, column: 50.0 if row["method"] == "local" else None)
    settings = Settings(seeds=2, rounds=1)
    tests = iter((0.5, 0.7, 0.6, 0.4, 0.9, 0.9, 0.8, 0.6))
    values = {}
    for cell in cells.values():
        for row in rows.values():
            for job in settings.repeated(**cell, **row):
                values[job.name] = next(tests)
                path = Outcomes(tmp_path)[job].path
                path.mkdir(parents=True)
                (path / "summary.json").write_text(json.dumps({"test": values[job.name]}))
    made = grid.make(settings, Outcomes(tmp_path))
    assert made.header == ["cell", "method", "mean", "deviation", "seeds", "paper", "difference", "ours ≥ paper"]
    # A: 0.5, 0.7 and 0.9, 0.9; B: 0.6, 0.4 and 0.8, 0.6.
    spread = pytest.approx(math.sqrt(200))
    assert made.rows == [
        ["one", "A", pytest.approx(60), spread, 2, 50.0, pytest.approx(10), "yes"],
        ["one", "B", pytest.approx(50), spread, 2, None, None, None],
        ["other", "A", pytest.approx(90), 0, 2, 50.0, pytest.approx(40), "yes"],
        ["other", "B", pytest.approx(70), spread, 2, None, None, None],
    ]
    table, over_all = made.read
    assert table == (
        ["", "one", "paper", "other", "paper"],
        [
            ["A", "**60.00 ± 14.14**", "50.00", "**90.00 ± 0.00**", "50.00"],
            ["B", "50.00 ± 14.14", "", "70.00 ± 14.14", ""],
        ],
    )
    assert over_all[0] == ["", "average", "paper's average", "cells with ours ≥ paper", "p against B"]
    # Differences A − B of 10 and 20 points in the cells: mean 15, deviation 7.07, t = 3 with one degree of freedom.
    assert over_all[1] == [
        ["A", "**75.00**", 50, "2 of 2", "0.205"],
        ["B", "60.00", None, "", None],
    ]


def test_a_table_is_made_again_of_listed_runs(graph_file, tmp_path):
    """From runs.csv.gz alone: the same table, with a sentence above it if the number of level rounds is missing."""
    cells = {"one": {"dataset": graph_file}, "other": {"dataset": graph_file, "epochs": 2}}
    grid = Grid("by hand", {"A": {"method": "local"}, "B": {"method": "fedavg"}}, lambda settings: cells)
    settings, found = Settings(seeds=2, rounds=1), Outcomes(tmp_path)
    for place, job in enumerate(grid.jobs(settings)):
        found[job].path.mkdir(parents=True)
        summary = {"test": 0.5 + place / 50, "level_rounds": 1}
        (found[job].path / "summary.json").write_text(json.dumps(summary))
    listed = Listed(write_runs(grid.jobs(settings), found, tmp_path))
    made = grid.make(settings, listed)
    assert (made.rows, made.read) == (grid.make(settings, found).rows, grid.make(settings, found).read)
    for summaries, said in (([{"level_rounds": 1}], False), ([{"level_rounds": 1}, {}], True)):
        write(made, "name", "A title", "command", tmp_path, summaries)
        assert ("Measured with version 0.1.0" in (tmp_path / "name.md").read_text()) is said
    with pytest.raises(FedpubError, match="has 0 runs of"):
        grid.make(Settings(seeds=3, rounds=1), listed)


def test_the_verdict_is_to_the_paper_s_two_decimals():
    assert Entry(79.596, 0.1, 79.60).verdict == "yes"
    assert Entry(79.594, 0.1, 79.60).verdict == "no"
    assert Entry(79.594, 0.1, None).verdict is None
    assert Entry(None, None, 79.60).texts(True) == ("", "79.60")
    assert Entry(79.6, 0.12, 79.60).texts(True, is_best=True) == ("**79.60 ± 0.12**", "79.60")
    assert Entry(79.6, 0.12, None).texts(False) == ("79.60 ± 0.12",)


def test_a_wide_grid_is_read_by_dataset(graph_file, tmp_path):
    cells = {f"{name} {seed}": {"dataset": graph_file, "data_seed": seed} for name in ("x",) for seed in range(7)}
    grid = Grid("wide", {"A": {"method": "local"}}, lambda settings: cells)
    settings = Settings(seeds=1, rounds=1)
    for job in grid.jobs(settings):
        path = Outcomes(tmp_path)[job].path
        path.mkdir(parents=True)
        (path / "summary.json").write_text(json.dumps({"test": 0.5}))
    made = grid.make(settings, Outcomes(tmp_path))
    assert len(made.read) == 2  # one dataset, and all cells
    text = markdown(made, "name", "A title", "fedpub reproduce name")
    assert "| A | 50.00 |" in text
    assert "7 values: [name.csv](name.csv)" in text


def test_a_table_as_text():
    made = Artefact(["method", "value"], [["A", 12.345], ["B", None], ["C", 0.1234]], "A note.")
    text = markdown(made, "name", "A title", "fedpub reproduce name")
    assert "| A | 12.35 |" in text or "| A | 12.34 |" in text
    assert "| B |  |" in text
    assert "| C | 0.123 |" in text
    assert text.endswith("A note.\n")
    assert [shown(value) for value in (3, "x", None, -5.678)] == ["3", "x", "", "-5.68"]


def test_much_data_is_compressed(tmp_path):
    """Seven digits, integers unchanged; the same numbers give the same bytes."""
    header, rows = ["name", "value", "bytes"], [["a", 1 / 3, 123456789], ["b, c", None, 0]]
    for name in ("one.csv.gz", "two.csv.gz", "three.csv"):
        write_csv(tmp_path / name, header, rows)
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()
    packed, plain = (read_csv(tmp_path / name) for name in ("one.csv.gz", "three.csv"))
    assert [row["value"] for row in packed] == ["0.3333333", ""]
    assert [row["value"] for row in plain] == [str(1 / 3), ""]
    assert [(row["name"], row["bytes"]) for row in packed] == [("a", "123456789"), ("b, c", "0")]
    (tmp_path / "one.csv.gz").write_bytes((tmp_path / "one.csv.gz").read_bytes()[:-9])
    with pytest.raises(FedpubError, match=r"cannot be read .* give a runs.csv.gz"):
        Listed(tmp_path / "one.csv.gz")[Job(small_run())]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    made = Artefact(["a"], [[1]], draw=lambda figure: figure.subplots().plot([1, 2, 3]) and None)
    first, second = (
        [path.read_bytes() for path in write(made, "f", "t", "c", tmp_path / folder)] for folder in ("one", "two")
    )
    assert first == second


def test_the_published_numbers():
    assert published("fedpub", "cora", "overlapping", 10).mean == 79.60
    assert published("fedsage", "cora", "overlapping", 50).deviation == 11.5
    assert published("fedpub", "ogbn-arxiv", "disjoint", 5, "link-prediction").mean == 91.76
    assert published("fedpub", "cora", "overlapping", 10, "link-prediction") is None
    assert published("fedpub", "cora", "natural", None) is None
    assert paper_value({"method": "gcfl"}, {"dataset": "citeseer", "scenario": "random", "clients": 10}) == 53.15
    main_cells = [place for place in tables() if place[0] == "main"]
    assert len(main_cells) == 8 * 36
    assert len(statistics()) == 36


def test_edges_between_clients_by_hand():
    """0 - 1 - 2, the star of 3, and 7 - 8: with 1, 2 and 3, 4, 7 elsewhere, 0 - 1, 3 - 5, 3 - 6 and 7 - 8 are cut."""
    parts = (torch.tensor([0, 5, 6, 8, 9]), torch.tensor([1, 2]), torch.tensor([3, 4, 7]))
    found = looks.missing_between(small_graph(), Partition(parts, "by hand", 0, "small", ""))
    assert found.tolist() == [[0, 1, 3], [1, 0, 0], [3, 0, 0]]


def test_a_correlation_by_hand(tmp_path):
    class Found:
        seen = {"label_similarity": [[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, 1]]}  # noqa: RUF012

        def relation(self, name: str) -> torch.Tensor:
            return torch.tensor([[[0.0] * 3] * 3, [[9, 0.3, 0.5], [0.3, 9, 0.7], [0.5, 0.7, 9]]])

    class All:
        def __getitem__(self, job: object) -> Found:
            return Found()

    assert correlation(All(), None) == pytest.approx(1.0)


def test_the_verb(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in RECIPES)
    assert main(["reproduce", "figure-collapse", "--quick", "--out", "made"]) == 0
    assert "3 runs, 3 of them to be computed" in capsys.readouterr().out
    assert main(["reproduce", "figure-collapse", "--quick", "--out", "made"]) == 0
    assert "3 runs, 0 of them to be computed" in capsys.readouterr().out
    assert "--quick" in (tmp_path / "made" / "figure-collapse.md").read_text()
    runs = read_csv(tmp_path / "made" / "runs.csv.gz")
    assert [(run["method"], run["options"], run["rounds"]) for run in runs] == [
        ("fedavg", "{}", "5"),
        ("fedpub", "{}", "5"),
        ("local", "{}", "5"),
    ]
    assert all(0 < float(run["test"]) <= 1 for run in runs)
    for words, sentence in (
        (["reproduce"], "nothing to reproduce"),
        (["reproduce", "figure-colapse"], "figure-collapse"),
        (["reproduce", "all", "--jobs", "0"], "--jobs 0"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err


def test_each_file_of_a_finished_run_is_read_once(tmp_path, monkeypatch, capsys):
    """Two tables that share runs, and the line of every run."""
    settings = Settings(seeds=1, rounds=5, quick=True)
    names = ("table-disjoint", "table-efficiency")
    paths = {Outcomes(tmp_path / "runs")[job].path for name in names for job in RECIPES[name].jobs(settings)}
    for path in paths:
        path.mkdir(parents=True)
        summary = {"test": 0.5, "sparsity": 0.5, "bytes_up": 1, "bytes_down": 1, "level_rounds": 1}
        (path / "summary.json").write_text(json.dumps(summary))
    opened, usual = [], io.open

    def counted(file, *how, **named):
        opened.append(str(file))
        return usual(file, *how, **named)

    monkeypatch.setattr(io, "open", counted)
    assert main(["reproduce", *names, "--quick", "--out", str(tmp_path)]) == 0
    read = [name for name in opened if name.startswith(str(tmp_path / "runs"))]
    assert sorted(read) == sorted(str(path / "summary.json") for path in paths)


def test_the_options_of_a_run_are_listed_where_they_are_not_the_usual_ones(graph_file, tmp_path):
    one = Job(
        Experiment(dataset=graph_file, method="fedpub", rounds=1, hidden=4, options={"tau": 7.0}).resolve().experiment
    )
    list(compute([one], tmp_path, None, 1))
    (line,) = read_csv(write_runs([one, one], Outcomes(tmp_path), tmp_path))
    assert (line["options"], line["dataset"], line["key"]) == ('{"tau": 7.0}', str(graph_file), key(one.experiment))


def test_mask_overlap_and_neighbours_are_shares(graph_file):
    experiment = Experiment(
        dataset=graph_file, scenario="random", clients=3, method="fedpub", rounds=2, hidden=4
    ).resolve()

    ready = prepare(experiment)
    found = looks.masks(experiment, ready) | looks.neighbours(experiment, ready)
    assert set(found) == {"similar", "dissimilar", "own", "neighbour"}
    assert all(0 <= value <= 1 for value in found.values())
    assert len(set(looks.communities(np.ones((3, 3)) - np.eye(3), ready))) == 1


RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_committed_results_are_light():
    """A figure has at most 60 KiB, any other file at most 128: larger data is compressed."""
    heavy = [
        path.name
        for path in RESULTS.rglob("*")
        if path.is_file() and path.stat().st_size > (60 if path.suffix == ".svg" else 128) * 1024
    ]
    assert heavy == []


@pytest.mark.parametrize("name", ["table-random", "table-links", "figure-epochs"])
def test_committed_tables_are_those_of_the_committed_runs(name):
    recipe, found, settings = RECIPES[name], Listed(RESULTS / "paper" / "runs.csv.gz"), Settings()
    made = replace(recipe.make(settings, found), above=EARLIEST)
    text = markdown(made, name, recipe.title, f"fedpub reproduce {name} --seeds 3")
    assert text == (RESULTS / "paper" / f"{name}.md").read_text(encoding="utf-8")
