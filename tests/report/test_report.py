"""The report: loading, statistics worked out by hand, messages about damaged runs, and all its output files."""

from __future__ import annotations

import csv
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedpub.cli import VERBS, main
from fedpub.core.tensor_files import write_tensors
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.report import curves, payload, summary, tables
from fedpub.report.live import server
from fedpub.report.load import load, thinned
from fedpub.report.page import embedded, page
from fedpub.runs.simulated import run
from fedpub.store.record import NO_SETUP, Record, Row

CORA = Experiment(dataset="cora", scenario="disjoint", clients=2, rounds=3, method="fedpub")
EVIL = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>&\u2028'\""


@pytest.fixture(autouse=True)
def _verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERBS, "report", ("report:report", "one page of all runs"))
    monkeypatch.setitem(VERBS, "watch", ("report:watch", "the same, live"))


def make_run(
    path: Path,
    experiment: Experiment,
    test: Sequence[Sequence[float]],
    *,
    finished: bool = True,
    cluster: Sequence[Sequence[int]] | None = None,
    setup: dict[str, float] | None = None,
    similarity: Any = None,
    alpha: Any = None,
    notes: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
) -> Path:
    """A run directory as a run leaves it; `test` has a list of the clients' values per round, as have the notes."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(experiment.to_json())
    (path / "env.json").write_text(json.dumps({"fedpub": "0", "python": "3"}))
    rows = []
    for number, values in enumerate(test, 1):
        clients: dict[str, list[float]] = {"took_part": [1] * len(values), "loss": [0.5] * len(values)}
        clients |= {
            "val": list(values),
            "val_loss": [0.5] * len(values),
            "test": list(values),
            "sparsity": [0.25] * len(values),
        }
        clients |= {"bytes_up": [1_000_000] * len(values), "bytes_down": [2_000_000] * len(values)}
        if cluster:
            clients["cluster"] = list(cluster[number - 1])
        clients |= {name: list(values[number - 1]) for name, values in notes.items()}
        rows.append(Row(number, 0.5, clients))
    with (path / "clients.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for row in rows:
            if row.round == 1:
                writer.writerow(["round", "seconds", "client", *row.clients])
            for client in range(len(test[0])):
                writer.writerow([row.round, row.seconds, client, *(own[client] for own in row.clients.values())])
    if finished:
        found = Record(rows).summary("accuracy", [1] * len(test[0]), setup or NO_SETUP)
        (path / "summary.json").write_text(json.dumps(found))
        if similarity is None and experiment.method == "fedpub":
            similarity = np.eye(len(test[0]))[None].repeat(len(test), 0)
        related = {name: of for name, of in (("similarity", similarity), ("alpha", alpha)) if of is not None}
        stacked = {name: torch.tensor(np.asarray(of), dtype=torch.float32) for name, of in related.items()}
        if stacked:
            write_tensors(path / "relations.safetensors", stacked, {})
    return path


def example_runs(folder: Path) -> Path:
    """Two seeds of three methods on one cell; a local run to compare with; set-up, similarities and clusters."""
    for seed in (0, 1):
        here = replace(CORA, seed=seed, clients=5)
        shift = 0.01 * seed
        curve = [[0.5 + 0.02 * r + 0.03 * c + shift for c in range(5)] for r in range(3)]
        better = [[value + 0.1 - 0.04 * c for c, value in enumerate(values)] for values in curve]
        noise = np.random.default_rng(seed).uniform(0, 0.2, (3, 5, 5))
        blocks = np.kron(np.eye(2), np.ones((3, 3)))[:5, :5] * 0.5
        similar = (noise + noise.transpose(0, 2, 1)) / 2 + blocks * np.array([0.1, 0.5, 1])[:, None, None]
        similar[0, 4] = similar[0, :, 4] = np.nan
        make_run(folder / f"local-{seed}", replace(here, method="local"), curve)
        clusters = [[0] * 5, [0, 0, 0, 1, 1], [0, 0, 0, 1, -1]]
        make_run(folder / f"gcfl-{seed}", replace(here, method="gcfl"), curve, cluster=clusters)
        setup = {"setup_bytes_up": 4_000_000, "setup_bytes_down": 1_000_000, "setup_seconds": 1.0}
        make_run(folder / f"fedpub-{seed}", here, better, similarity=similar, setup=setup)
    return folder


# Loading.


def test_runs_are_found_in_and_below_folders_once(tmp_path):
    make_run(tmp_path / "b" / "deep", CORA, [[0.5, 0.7]])
    make_run(tmp_path / "a", replace(CORA, seed=1), [[0.5, 0.7]])
    runs, complaints = load([tmp_path, tmp_path / "a"])
    assert [one.path.name for one in runs] == ["a", "deep"]
    assert not complaints
    assert load([tmp_path / "a"])[0][0].label == "fedpub"


def test_settings_that_differ_name_the_method(tmp_path):
    for value in (0.1, 0.3):
        make_run(tmp_path / str(value), replace(CORA, options={"lambda1": value}), [[0.5, 0.7]])
    make_run(tmp_path / "local", replace(CORA, method="local"), [[0.5, 0.7]])
    assert {one.label for one in load([tmp_path])[0]} == {"fedpub (lambda1=0.1)", "fedpub (lambda1=0.3)", "local"}


def test_a_repeat_is_left_out_and_the_finished_one_kept(tmp_path):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]], finished=False)
    make_run(tmp_path / "b", CORA, [[0.5, 0.7]])
    runs, complaints = load([tmp_path])
    assert [one.path.name for one in runs] == ["b"]
    assert complaints == [f"{tmp_path / 'a'} is left out: {tmp_path / 'b'} has the same method, data and seeds"]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("summary.json", "{", "summary.json cannot be read"),
        ("summary.json", "[]", "it is not an object"),
        ("summary.json", '{"metric": "accuracy"}', "test is missing"),
        ("clients.csv", "round,seconds,client,val\n1,x,0,0\n", "clients.csv is damaged"),
        ("clients.csv", "round,seconds,client,a\n1,1,0,0\n", "clients.csv cannot be read"),
        ("clients.csv", "", "clients.csv has 0 of the run's 2 rounds"),
        ("clients.csv", None, "clients.csv has 0 of the run's 2 rounds"),
        ("relations.safetensors", "damaged", "relations.safetensors cannot be read"),
        ("relations.safetensors", None, "relations.safetensors is missing"),
        ("env.json", "nonsense", "env.json cannot be read"),
    ],
)
def test_damage_is_said_and_the_rest_is_shown(tmp_path, capsys, file, content, said):
    broken = make_run(tmp_path / "runs" / "broken", CORA, [[0.5, 0.7], [0.6, 0.8]])
    make_run(tmp_path / "runs" / "whole", replace(CORA, seed=1), [[0.5, 0.7]])
    if content is None:
        (broken / file).unlink()
    else:
        (broken / file).write_text(content)
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "runs"), "-o", str(out)]) == 0
    assert said in capsys.readouterr().err
    shown = data_of(out.read_text())
    assert any(said in complaint and str(broken) in complaint for complaint in shown["complaints"])
    assert len(shown["runs"]) == 2
    assert shown["tables"][0]["lines"][0]["mean"] is not None


def test_a_cut_off_clients_file_keeps_its_whole_rounds(tmp_path):
    path = make_run(tmp_path / "run", CORA, [[0.5, 0.7], [0.6, 0.8], [0.7, 0.9]])
    text = (path / "clients.csv").read_text()
    (path / "clients.csv").write_text(text[:-30])
    runs, complaints = load([tmp_path])
    assert len(runs[0].rows) == 2
    assert "clients.csv has 2 of the run's 3 rounds" in complaints[0]


def test_a_folder_without_runs_is_an_error_and_nothing_is_written(tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 2
    assert f"there is no run in {tmp_path}" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere"), "--out", str(out)]) == 2
    assert "there is no folder" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"name": "something else"}')
    assert main(["report", str(tmp_path), "--out", str(out)]) == 2
    assert "unknown setting 'name'" in capsys.readouterr().err
    assert main(["watch", str(tmp_path)]) == 2
    assert not out.exists()


def test_wrong_types_in_a_configuration_are_said(tmp_path):
    path = make_run(tmp_path / "run", CORA, [[0.5, 0.7]])
    for change in ({"clients": "two"}, {"method": "nobody"}, {"task": "other"}):
        (path / "config.json").write_text(json.dumps(json.loads(CORA.to_json()) | change))
        with pytest.raises(FedpubError, match=next(iter(change))):
            load([tmp_path])


def test_thinning_keeps_both_ends():
    assert thinned(range(1, 201), 60)[0] == 1
    assert thinned(range(1, 201), 60)[-1] == 200
    assert len(thinned(range(1, 201), 60)) == 60
    assert thinned([3, 4], 60) == [3, 4]


# Statistics, by hand.


def test_a_line_by_hand(tmp_path):
    local = {0: [0.50, 0.60], 1: [0.52, 0.70], 2: [0.5, 0.5]}
    ours = {0: [0.60, 0.50], 1: [0.62, 0.80], 2: [0.8, 0.9]}
    for seed in local:
        make_run(tmp_path / f"local{seed}", replace(CORA, method="local", seed=seed), [local[seed]])
        make_run(tmp_path / f"fedpub{seed}", replace(CORA, seed=seed), [ours[seed]])
    [table] = summary.tables(load([tmp_path])[0])
    alone, fedpub = table.lines
    assert (alone.method, fedpub.method) == ("local", "fedpub")
    values = np.array([100 * np.mean(own) for own in ours.values()])
    others = np.array([100 * np.mean(own) for own in local.values()])
    assert fedpub.mean == pytest.approx(values.mean())
    assert fedpub.deviation == pytest.approx(np.std(values, ddof=1))
    assert table.reference == "local"
    assert alone.p_value is None
    assert fedpub.p_value == pytest.approx(stats.ttest_rel(others, values).pvalue)
    assert fedpub.better_than_local == pytest.approx(5 / 6)
    assert fedpub.worst_client == pytest.approx(100 * np.mean([0.5, 0.62, 0.8]))
    assert fedpub.paper is None


def test_runs_are_paired_by_their_seeds_whatever_their_order(tmp_path):
    """Paired in the order of their folders, the differences would be wrong."""
    local, ours = {0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.51, 1: 0.62, 2: 0.76}
    for place, seed in enumerate((2, 0, 1)):
        make_run(tmp_path / f"a{place}", replace(CORA, method="local", seed=seed), [[local[seed]] * 2])
    for place, seed in enumerate((0, 1, 2)):
        make_run(tmp_path / f"b{place}", replace(CORA, seed=seed), [[ours[seed]] * 2])
    [table] = summary.tables(load([tmp_path])[0])
    expected = stats.ttest_rel(list(ours.values()), list(local.values())).pvalue
    assert table.lines[1].p_value == pytest.approx(expected)


def test_runs_of_other_splits_are_runs_of_their_own(tmp_path):
    for split, value in ((0, 0.5), (7, 0.6), (8, 0.9)):
        make_run(tmp_path / f"local{split}", replace(CORA, method="local", data_seed=split), [[value] * 2])
        make_run(tmp_path / f"fedpub{split}", replace(CORA, data_seed=split), [[value + split / 100] * 2])
    runs, complaints = load([tmp_path])
    assert complaints == []
    [table] = summary.tables(runs)
    alone, fedpub = table.lines
    assert (alone.runs, alone.mean) == (3, pytest.approx(200 / 3))
    assert fedpub.p_value == pytest.approx(stats.ttest_rel([0, 7, 8], [0, 0, 0]).pvalue)


def test_a_comparison_s_first_method_is_tested_against(tmp_path):
    for seed in (0, 1, 2):
        make_run(tmp_path / "cora" / f"local{seed}", replace(CORA, method="local", seed=seed), [[0.5 + seed / 10] * 2])
        make_run(tmp_path / "cora" / f"fedpub{seed}", replace(CORA, seed=seed), [[0.6 + seed / 20] * 2])
    (tmp_path / "comparison.json").write_text('{"reference": "fedpub"}')
    [table] = summary.tables(load([tmp_path])[0])
    assert table.reference == "fedpub"
    assert [line.p_value is None for line in table.lines] == [False, True]
    (tmp_path / "comparison.json").write_text("[]")
    assert summary.tables(load([tmp_path])[0])[0].reference == "local"


def test_averages_are_over_the_cells_that_all_methods_have(tmp_path):
    """FedAvg has no run on Photo, where every method is worse."""
    for dataset, drop in (("cora", 0.0), ("photo", 0.3)):
        for method in ("local", "fedpub", "fedavg"):
            if (dataset, method) != ("photo", "fedavg"):
                make_run(
                    tmp_path / f"{dataset}-{method}", replace(CORA, dataset=dataset, method=method), [[0.8 - drop] * 2]
                )
    [table] = summary.tables(load([tmp_path])[0])
    assert {line.method: (line.cells, round(line.mean, 9)) for line in table.averages} == dict.fromkeys(
        ("local", "fedavg", "fedpub"), (1, 80.0)
    )


def test_a_result_that_is_not_above_the_baseline_is_said(tmp_path):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]])
    made = json.loads((tmp_path / "a" / "summary.json").read_text())
    for value, said in ((0.6, "60.00 % is not above the baseline (majority class, 60.00 %)"), (0.59, "")):
        (tmp_path / "a" / "summary.json").write_text(json.dumps(made | {"baseline": "majority", "majority": value}))
        [table] = summary.tables(load([tmp_path])[0])
        assert (table.baseline, table.lines[0].baseline, table.lines[0].note) == (
            "majority class",
            pytest.approx(100 * value),
            said,
        )


def test_the_papers_value_and_the_verdict(tmp_path):
    here = replace(CORA, clients=5)  # the paper: 83.70
    make_run(tmp_path / "a", here, [[0.836996] * 5])
    make_run(tmp_path / "b", replace(here, method="local"), [[0.80] * 5])  # the paper: 81.30
    local, fedpub = summary.tables(load([tmp_path])[0])[0].lines
    assert (fedpub.paper, fedpub.reached) == (83.70, True)  # 83.6996 is 83.70 in two decimals
    assert local.reached is False
    assert local.difference == pytest.approx(-1.3)


def test_averages_are_over_the_cells_of_a_task(tmp_path):
    for dataset, ours, alone in (("cora", 0.8, 0.7), ("photo", 0.6, 0.7)):
        make_run(tmp_path / f"{dataset}1", replace(CORA, dataset=dataset, clients=5), [[ours] * 5])
        make_run(tmp_path / f"{dataset}2", replace(CORA, dataset=dataset, clients=5, method="local"), [[alone] * 5])
    make_run(tmp_path / "links", replace(CORA, task="link-prediction"), [[0.9, 0.9]])
    nodes, links = summary.tables(load([tmp_path])[0])
    assert [(line.method, line.mean) for line in nodes.averages] == [
        ("local", pytest.approx(70)),
        ("fedpub", pytest.approx(70)),
    ]
    assert nodes.averages[0].published == 2
    assert (links.task, links.metric, links.cells) == ("link-prediction", "ROC-AUC", 1)


def test_unfinished_runs_are_marked_and_count_only_alone(tmp_path):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]])
    make_run(tmp_path / "b", replace(CORA, seed=1), [[0.1, 0.1]], finished=False)
    make_run(tmp_path / "c", replace(CORA, method="local"), [[0.2, 0.4]], finished=False)
    local, fedpub = summary.tables(load([tmp_path])[0])[0].lines
    assert (fedpub.mean, fedpub.seeds, fedpub.finished) == (pytest.approx(60), (0,), True)
    assert fedpub.note == "unfinished: seed 1 at round 1 of 3"
    assert (local.mean, local.finished) == (pytest.approx(30), False)
    text = tables.markdown(summary.tables(load([tmp_path])[0]))
    assert "| FED-PUB | 1 of 2 | 60.00 |" in text
    assert "| Local | 0 of 1 | 30.00 (unfinished) |" in text
    assert "seed 1 at round 1 of 3" in text


def test_nothing_is_said_of_the_paper_before_a_run_is_finished(tmp_path):
    make_run(tmp_path / "a", replace(CORA, clients=5), [[0.1] * 5], finished=False)
    [line] = summary.tables(load([tmp_path])[0])[0].lines
    assert (line.paper, line.reached, line.difference) == (83.70, None, None)


def test_how_far_a_run_is_stands_where_it_is_not_cut_off():
    script = resources.files("fedpub.report").joinpath("page.js").read_text(encoding="utf-8")
    heads = re.findall(r'head: "([^"]+)"', script[script.index("function summary()") :])
    assert heads[:3] == ["Data", "Method", "State"]


def test_a_run_before_its_first_round_is_only_counted(tmp_path):
    path = make_run(tmp_path / "a", CORA, [[0.5, 0.7]], finished=False)
    (path / "clients.csv").unlink()
    runs, complaints = load([tmp_path])
    assert not complaints
    [line] = summary.tables(runs)[0].lines
    assert (line.mean, line.finished) == (None, False)
    assert "None" not in tables.markdown(summary.tables(runs))
    page(payload.payload(runs, complaints))


def test_curves_gains_and_costs_by_hand(tmp_path):
    runs, _ = load([example_runs(tmp_path)])
    ours = [one for one in runs if one.label == "fedpub"]
    local = [one for one in runs if one.label == "local"]
    curve = curves.curves(local)
    assert curve is not None
    assert curve["rounds"] == [1, 2, 3]
    assert curve["test"]["mean"] == pytest.approx([56.5, 58.5, 60.5])
    assert curve["test"]["deviation"] == pytest.approx([100 * np.std([0, 0.01], ddof=1)] * 3)
    first = curves.gains(ours, local)[0]
    assert first["gains"] == pytest.approx([10, 6, 2, -2, -6])
    cost = curves.costs(ours)
    assert cost["up"] == pytest.approx(3 * 5 + 4)
    assert cost["setup_down"] == pytest.approx(1)
    assert cost["sparsity"] == pytest.approx(25)


def test_what_nothing_beats_with_fewer_bytes():
    """Of equal bytes, the better method; one that is only as good for more bytes, or has no value, is left out."""
    costs = {
        "a": (5, 80.0),
        "b": (2, 70.0),
        "c": (2, 75.0),
        "d": (3, 75.0),
        "e": (9, 79.0),
        "f": (1, None),
        "g": (0, 60.0),
    }
    lines = {label: {"up": up, "test": test} for label, (up, test) in costs.items()}
    assert curves.frontier(lines) == ["g", "c", "a"]


def test_the_oracle_is_no_federation_to_be_beaten_by(tmp_path):
    make_run(tmp_path / "oracle", replace(CORA, method="oracle"), [[0.9, 0.9]])
    make_run(tmp_path / "fedpub", CORA, [[0.5, 0.7]])
    runs, _ = load([tmp_path])
    cell = payload.payload(runs, [])["cells"][0]
    assert set(cell["costs"]) == {"oracle", "fedpub"}
    assert cell["frontier"] == ["fedpub"]


def test_clusters_become_relations(tmp_path):
    runs, _ = load([example_runs(tmp_path)])
    [relation] = next(one for one in runs if one.label == "gcfl").relations
    assert relation.name == "same cluster"
    assert relation.values[1, 0].tolist() == [1, 1, 1, 0, 0]
    assert np.isnan(relation.values[2, 4]).all()


def test_many_rounds_and_clients_stay_small(tmp_path):
    many = np.random.default_rng(0).uniform(0, 1, (150, 60, 60))
    make_run(tmp_path / "run", replace(CORA, clients=60, rounds=150), [[0.5] * 60] * 150, similarity=many)
    runs, _ = load([tmp_path])
    assert len(runs[0].relations[0].rounds) == 60
    assert runs[0].relations[0].rounds[-1] == 150
    assert len(page(payload.payload(runs, []))) < 3_000_000


def test_an_unfinished_run_has_the_relations_of_its_checkpoint(tmp_path):
    path = make_run(tmp_path / "run", CORA, [[0.5, 0.7]], finished=False)
    tensors = {"relations/similarity": torch.ones(1, 2, 2), "server/weight": torch.zeros(3)}
    write_tensors(path / "checkpoint" / "state.safetensors", tensors, {"round": "1"})
    assert [one.name for one in load([tmp_path])[0][0].relations] == ["similarity"]


def test_relations_are_there_after_the_first_round(tmp_path):
    """Relations are shown long before the first checkpoint; of the two files the newer one is used."""

    def stop(row: Row, rounds: int) -> None:
        if row.round == 5:
            raise KeyboardInterrupt

    experiment = Experiment(dataset="communities", method="fedpub", hidden=4, rounds=6)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", on_round=stop)
    assert not (tmp_path / "run" / "checkpoint").exists()
    [shown] = load([tmp_path])[0]
    assert {one.name: one.rounds for one in shown.relations} == {"similarity": [1, 2, 3, 4], "alpha": [1, 2, 3, 4]}
    tensors = {"relations/similarity": torch.ones(5, 20, 20)}
    write_tensors(tmp_path / "run" / "checkpoint" / "state.safetensors", tensors, {"round": "5"})
    assert load([tmp_path])[0][0].relations[0].rounds == [1, 2, 3, 4, 5]


# What is written.


def data_of(text: str) -> dict[str, Any]:
    start = text.index('id="data">') + len('id="data">')
    found: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return found


def test_names_cannot_break_out_of_the_page(tmp_path):
    make_run(tmp_path / "run", replace(CORA, dataset=EVIL, options={"lambda1": 1}), [[0.5, 0.7]])
    runs, _ = load([tmp_path])
    text = page(payload.payload(runs, [EVIL]))
    assert EVIL not in text
    assert "<img" not in text
    assert data_of(text)["runs"][0]["config"]["dataset"] == EVIL
    assert text.count("</script>") == 2
    assert not set("<>&\u2028") & set(embedded({"a": EVIL}))


def test_the_page_needs_nothing_else(tmp_path):
    runs, complaints = load([example_runs(tmp_path)])
    text = page(payload.payload(runs, complaints))
    assert "/* page" not in text
    assert text.count("http") == text.count("http-equiv") + text.count("http://www.w3.org/2000/svg")
    assert "src=" not in text
    assert page(payload.payload(runs, complaints)) == text


def test_markdown_and_latex(tmp_path):
    runs = example_runs(tmp_path / "runs")
    make_run(runs / "other", replace(CORA, dataset="my_graph|50%$", method="local"), [[0.5, 0.7]])
    markdown, latex = tmp_path / "table.md", tmp_path / "table.tex"
    words = ["report", str(runs), "--out", str(tmp_path / "r.html"), "--markdown", str(markdown)]
    assert main([*words, "--latex", str(latex)]) == 0
    lines = markdown.read_text().splitlines()
    row = next(line for line in lines if "| FED-PUB |" in line)
    assert row.split(" | ")[:5] == ["| cora, disjoint, 5 clients", "FED-PUB", "2", "**62.50 ± 0.71**", ""]
    assert row.split(" | ")[5] == "83.70"
    assert r"my\_graph\|50%$, disjoint, 2 clients" in markdown.read_text()
    assert r"my\_graph|50\%\$, disjoint, 2 clients & Local & 1 & 60.00 &" in latex.read_text()
    assert r"\textbf{62.50 $\pm$ 0.71}" in latex.read_text()
    assert latex.read_text().count(r"\begin{tabular}") == 2


def test_figures(tmp_path):
    pytest.importorskip("matplotlib")
    runs = example_runs(tmp_path / "runs")
    folder = tmp_path / "figures"
    assert main(["report", str(runs), "--out", str(tmp_path / "r.html"), "--figures", str(folder)]) == 0
    names = sorted(path.name for path in folder.iterdir())
    stems = [f"{kind}-cora-disjoint-5-clients" for kind in ("convergence", "gain", "similarity")]
    assert names == [f"{stem}.{suffix}" for stem in stems for suffix in ("pdf", "svg")]
    for path in folder.iterdir():
        assert path.stat().st_size > 3000
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"<?xml")


def test_an_output_that_cannot_be_written_is_said(tmp_path, capsys):
    make_run(tmp_path / "run", CORA, [[0.5, 0.7]])
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert "cannot write" in capsys.readouterr().err


# Watching.


def ask(port: int, path: str, headers: dict[str, str]) -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.getheader("ETag")


def test_the_server_answers_with_what_is_there_now(tmp_path):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]])
    with server([tmp_path]) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        port = serving.server_address[1]
        status, text, _ = ask(port, "/", {})
        assert (status, data_of(text)["live"]) == (200, True)
        status, text, tag = ask(port, "/data.json", {"Host": f"localhost:{port}"})
        assert (status, len(json.loads(text)["runs"])) == (200, 1)
        assert ask(port, "/data.json", {"If-None-Match": str(tag)})[0] == 304
        make_run(tmp_path / "b", replace(CORA, seed=1), [[0.5, 0.7]], finished=False)
        status, text, _ = ask(port, "/data.json", {"If-None-Match": str(tag)})
        assert (status, len(json.loads(text)["runs"])) == (200, 2)
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "localhost@evil:1"):
            assert ask(port, "/data.json", {"Host": host})[0] == 403
        assert ask(port, "/etc/passwd", {})[0] == 404
        serving.shutdown()
        thread.join()


def test_a_port_that_is_taken_is_said(tmp_path, capsys):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]])
    with server([tmp_path]) as serving:
        assert main(["watch", str(tmp_path), "--port", str(serving.server_address[1])]) == 2
    assert "cannot be used" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "99999"]) == 2


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal for a child alone")
def test_watch_ends_with_ctrl_c(tmp_path):
    make_run(tmp_path / "a", CORA, [[0.5, 0.7]])
    code = "from fedpub.cli import VERBS, main; VERBS['watch'] = ('report:watch', ''); raise SystemExit(main())"
    command = [sys.executable, "-c", code, "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().split()[0]
        assert ask(int(address.rstrip("/").rpartition(":")[2]), "/", {})[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr
        assert process.stderr.read() == ""
