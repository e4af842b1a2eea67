"""The verb sweep: a table, JSON, and one sentence for every mistake before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpub.cli import main


@pytest.fixture
def words(graph_file: str) -> list[str]:
    plain = ["sweep", "--quiet", "--dataset", graph_file, "--scenario", "natural", "--hidden", "8", "--rounds", "2"]
    return [*plain, "--seeds", "1", "--methods", "fedpub", "fedavg"]


SPACE = ["--set", "lr=0.01,0.05", "--set", "fedpub.lambda1=0.001"]


def test_a_table_has_test_values_of_chosen_points_only(words, tmp_path, capsys):
    assert main([*words, *SPACE, "--out", str(tmp_path / "runs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert [row[:3] for row in rows] == [
        ["FED-PUB", "0.01", "0.001"],
        ["FED-PUB", "0.05", "0.001"],
        ["FedAvg", "0.01", ""],
        ["FedAvg", "0.05", ""],
    ]
    for pair in (rows[:2], rows[2:]):
        assert sum(bool(row[4]) for row in pair) == 1, "one chosen point for each method"
        tested = next(row for row in pair if row[4])
        assert float(tested[3]) == max(float(row[3]) for row in pair)
    assert any("--report-seeds 3" in line for line in lines), "that the splits are the same is said, with a way out"


def test_json_has_points_and_runs(words, capsys):
    assert main([*words, *SPACE, "--report-seeds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["settings"] for point in found["points"]] == [
        {"lr": 0.01, "fedpub.lambda1": 0.001},
        {"lr": 0.05, "fedpub.lambda1": 0.001},
        {"lr": 0.01},
        {"lr": 0.05},
    ]
    assert [(run["method"], run["seed"], run["fresh"]) for run in found["runs"]] == [
        ("fedpub", 0, False),
        ("fedpub", 0, False),
        ("fedavg", 0, False),
        ("fedavg", 0, False),
        ("fedpub", 1, True),
        ("fedavg", 1, True),
    ]


def test_settings_may_follow_one_flag_or_have_one_each(words, capsys):
    def said(*space: str) -> str:
        assert main([*words, *space, "--json"]) == 0
        return json.dumps([point["label"] for point in json.loads(capsys.readouterr().out)["points"]])

    assert said(*SPACE) == said("--set", "lr=0.01,0.05", "fedpub.lambda1=0.001")
    assert said(*SPACE) == said("--set=lr=0.01,0.05", "--set", "fedpub.lambda1=0.001")


def test_the_folder_of_a_sweep_has_a_report(words, tmp_path):
    assert main([*words, *SPACE, "--out", str(tmp_path / "runs")]) == 0
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert "fedpub (lr=0.05, lambda1=0.001)" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ([], "nothing to sweep"),
        (["--set", "lr"], "--set lr is not of the form name=values"),
        (["--set", "lr=0.1", "--set", "lr=0.2"], "--set lr is given twice"),
        (["--set", "lr="], "lr has no values"),
        (["--set", "lr=quick"], "lr cannot be 'quick'"),
        (["--set", "lrr=1"], "did you mean lr"),
        (["--set", "seed=1,2"], "each point is repeated on --seeds"),
        (["--set", "gcfl.eps1=1"], "gcfl is not among the methods; add it to --methods"),
        (["--set", "lr=0.1..0.2"], "add --search random"),
        (["--set", "lr=0.1..0.2", "--search", "random"], "--search random needs --trials"),
        (["--set", "lr=0.1", "--trials", "2"], "--trials 2 has no effect on a grid"),
    ],
)
def test_mistakes_are_said_before_anything_is_computed(space, said, words, tmp_path: Path, capsys):
    out = tmp_path / "runs"
    assert main([*words, *space, "--out", str(out)]) == 2
    found = capsys.readouterr()
    assert said in found.err.replace("\n", " ")
    assert (found.out, out.exists()) == ("", False)
