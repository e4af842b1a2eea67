"""Comparisons: the scores by hand, and runs that are kept and not made twice."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedpub.runs.simulated
from fedpub.algorithms import METHODS, title_of
from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.comparison import Cell, Run, compare, plan, scores
from fedpub.runs.significance import _holm, deviation, p_values, paired_p
from fedpub.store.record import Row
from small import instead


@pytest.fixture
def tiny(graph_file: str) -> Experiment:
    return Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=3)


@pytest.fixture
def words(graph_file: str) -> list[str]:
    plain = ["compare", "--quiet", "--dataset", graph_file, "--scenario", "natural", "--hidden", "8", "--rounds", "3"]
    return [*plain, "--seeds", "2"]


# The scores, by hand.

CORA, PHOTO = Cell("cora", "disjoint", 2), Cell("photo", "disjoint", 2)


def found(cell: Cell, method: str, seed: int, test: float, clients: list[float | None], **changes: Any) -> Run:
    plain = {"test": test, "per_client_test": clients, "worst_client_test": 0.5, "weighted_test": 0.25}
    plain |= {"test_f1": 0.125, "sparsity": 0.75, "bytes_up": 3_000_000, "seconds": 2.0}
    return Run(cell, method, seed, plain | changes)


def hand_made() -> list[Run]:
    return [
        found(CORA, "local", 0, 0.50, [0.4, 0.6]),
        found(CORA, "fedpub", 0, 0.60, [0.5, 0.6], bytes_up=1_000_000, sparsity=0.25),
        found(CORA, "local", 1, 0.54, [0.5, None]),
        found(CORA, "fedpub", 1, 0.66, [0.6, 0.9], bytes_up=2_000_000, sparsity=0.75),
        found(PHOTO, "local", 0, 0.80, [0.8, 0.8], worst_client_test=None),
        found(PHOTO, "fedpub", 0, 0.82, [0.9, 0.7], bytes_up=3_000_000, sparsity=0.5),
        found(PHOTO, "local", 1, 0.90, [0.9, 0.9], worst_client_test=0.8),
        found(PHOTO, "fedpub", 1, 0.86, [0.8, 0.9], bytes_up=6_000_000, sparsity=0.5),
    ]


def test_scores_by_hand():
    local, fedpub = scores(hand_made())
    assert (local.method, fedpub.method) == ("local", "fedpub")
    # The sample deviation of two values is their difference over the square root of two.
    assert local.cells == (pytest.approx((52, 4 / 2**0.5)), pytest.approx((85, 10 / 2**0.5)))
    assert fedpub.cells == (pytest.approx((63, 6 / 2**0.5)), pytest.approx((84, 4 / 2**0.5)))
    assert local.average == pytest.approx(68.5)
    assert fedpub.average == pytest.approx(73.5)
    assert local.p_value is None
    assert fedpub.p_value == pytest.approx(stats.ttest_rel([63, 84], [52, 85]).pvalue)  # a pair for each cell
    # Above local: 0.5 > 0.4, 0.6 > 0.5, 0.9 > 0.8; not: 0.6 = 0.6, 0.7 < 0.8, 0.8 < 0.9, 0.9 = 0.9; one has no value.
    assert fedpub.better_than_local == pytest.approx(3 / 7)
    assert local.better_than_local is None
    assert fedpub.megabytes_up == pytest.approx(3.0)
    assert fedpub.sparsity == pytest.approx(50)
    assert local.worst_client == pytest.approx(60)  # 0.5, 0.5, 0.8; one has none
    assert (fedpub.weighted, fedpub.second, fedpub.seconds) == pytest.approx((25, 12.5, 2.0))


def test_cells_of_unequal_numbers_of_seeds_count_alike_in_the_average():
    (local,) = scores([one for one in hand_made() if one.method == "local"][:3])
    assert local.average == pytest.approx((52 + 80) / 2)
    assert local.cells[1] == (pytest.approx(80), None), "one seed has no deviation"


def test_the_order_of_the_runs_does_not_matter():
    shuffled = [hand_made()[index] for index in (0, 6, 4, 2, 7, 1, 5, 3)]
    assert [line.method for line in scores(shuffled)] == ["local", "fedpub"]
    assert scores(shuffled)[1].p_value == pytest.approx(scores(hand_made())[1].p_value)
    assert scores(shuffled)[1].better_than_local == pytest.approx(3 / 7)


def test_without_local_nobody_is_better_than_it():
    (fedpub,) = scores([one for one in hand_made() if one.method == "fedpub"])
    assert fedpub.better_than_local is None
    assert fedpub.p_value is None


def test_a_paired_test_needs_two_pairs_that_differ_differently():
    assert paired_p(np.array([1.0]), np.array([2.0])) is None
    assert paired_p(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert paired_p(np.array([1.0, 2.0]), np.array([0.5, 1.0])) == pytest.approx(
        stats.ttest_rel([1.0, 2.0], [0.5, 1.0]).pvalue
    )


def test_where_there_is_one_cell_its_seeds_are_paired():
    """By seed, in whatever order they come: the differences are 1, 2 and 6."""
    one, other = {(0, 2): 16.0, (0, 0): 11.0, (0, 1): 22.0}, {(0, 0): 10.0, (0, 1): 20.0, (0, 2): 10.0}
    found = p_values({"reference": other, "method": one}, "reference")
    mean, off = 3.0, math.sqrt(7.0)  # of 1, 2 and 6
    expected = 2 * stats.t.sf(mean / (off / math.sqrt(3)), 2)
    assert found == {"reference": None, "method": pytest.approx(expected)}


def test_a_pair_is_of_what_both_have():
    one, other = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): 9.0}, {(0, 0): 0.0, (0, 1): 1.0, (0, 7): 5.0}
    assert p_values({"a": other, "b": one}, "a")["b"] == pytest.approx(stats.ttest_rel([1, 3], [0, 1]).pvalue)


def test_seeds_of_a_cell_are_no_observations_of_their_own():
    """Three cells in which the method is ahead by 1, 1 and 1.3 in every one of ten seeds: three pairs, not thirty."""
    stream = np.random.default_rng(0)
    other = {(cell, seed): float(stream.normal()) for cell in range(3) for seed in range(10)}
    one = {(cell, seed): value + (1, 1, 1.3)[cell] for (cell, seed), value in other.items()}
    expected = stats.ttest_rel([1, 1, 1.3], [0, 0, 0]).pvalue
    assert p_values({"a": other, "b": one}, "a")["b"] == pytest.approx(expected)


def test_p_values_are_corrected_by_holm():
    """0.01, 0.04 and 0.03 of three: 0.03, then 2 · 0.03 = 0.06, and not below that 0.04."""
    assert _holm({"r": None, "a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"r": None, "a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert _holm({"a": 0.7, "b": 0.9}) == pytest.approx({"a": 1.0, "b": 1.0})


def test_a_deviation_takes_one_degree_of_freedom():
    assert deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert deviation([1.0]) is None


# Runs.


def test_a_plan_has_every_method_on_the_same_data(tiny):
    planned = plan(tiny, ["fedpub", "local"], [], [], 2, {"fedpub": {"lambda1": 0.5}})
    assert [(method, one.seed, one.data_seed) for _, method, one in planned] == [
        ("fedpub", 0, 0),
        ("local", 0, 0),
        ("fedpub", 1, 1),
        ("local", 1, 1),
    ]
    assert planned[0][2].experiment.options["lambda1"] == 0.5
    assert planned[1][2].experiment.options == {}
    sizes = plan(replace(tiny, scenario="disjoint"), ["local"], [], [2, 4], 1)
    assert [cell.clients for cell, _, _ in sizes] == [2, 4]


@pytest.mark.parametrize(
    ("methods", "seeds", "options", "said"),
    [
        (["fedavgg"], 1, {}, "did you mean fedavg"),
        ([], 1, {}, "with methods"),
        (["local"], 0, {}, "seeds=0"),
        (["local"], 1, {"fedavgg": {}}, "did you mean fedavg"),
        (["local", "fedpub"], 1, {"fedpub": {"lamda1": 1}}, "did you mean lambda1"),
    ],
)
def test_a_plan_that_is_not_possible_is_said(methods, seeds, options, said, tiny):
    with pytest.raises(FedpubError, match=said):
        plan(tiny, methods, [], [], seeds, options)


def test_all_methods_stand_in_one_table(words, tmp_path, capsys, monkeypatch):
    """Also where the output is a file or a pipe: no number is cut, however long the graph file's name."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([*words, "--methods", *METHODS, "--out", str(tmp_path / "runs")]) == 0
    table = capsys.readouterr().out
    assert "2 seeds" in table
    for method in METHODS:
        summaries = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob(f"{method}-seed*/summary.json")]
        mean = 100 * np.mean([summary["test"] for summary in summaries])
        worst = 100 * np.mean([summary["worst_client_test"] for summary in summaries])
        (line,) = (line for line in table.splitlines() if line.split()[1:2] == [title_of(method)])
        assert f"{mean:.2f} ± " in line
        assert f" {worst:.1f} " in line
    assert "…" not in table


def test_a_comparison_finds_what_single_runs_find(tiny):
    planned = plan(tiny, ["oracle", "fedavg", "oracle", "fedpub"], [], [], 2)
    for (_, method, experiment), one in zip(planned, compare(planned), strict=True):
        alone = fedpub.runs.simulated.run(experiment).summary
        assert one.method == method
        assert one.summary | {"seconds": 0} == alone | {"seconds": 0}


def test_json_holds_every_run(words, tmp_path, graph_file):
    out, file = tmp_path / "runs", tmp_path / "found.json"
    assert main([*words, "--methods", "local", "fedavg", "--out", str(out), "--json", str(file)]) == 0
    content = json.loads(file.read_text())
    assert [(one["method"], one["seed"]) for one in content] == [
        ("local", 0),
        ("fedavg", 0),
        ("local", 1),
        ("fedavg", 1),
    ]
    directories = {path.parent.name: path.parent for path in out.rglob("summary.json")}
    assert sorted(directories) == ["fedavg-seed0", "fedavg-seed1", "local-seed0", "local-seed1"]
    for one in content:
        kept = json.loads((directories[f"{one['method']}-seed{one['seed']}"] / "summary.json").read_text())
        assert (one["dataset"], one["scenario"], one["clients"]) == (graph_file, "natural", None)
        assert kept.items() <= one.items()


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_what_is_complete_is_not_run_again(words, tmp_path, capsys, monkeypatch):
    words = [*words, "--methods", "local", "fedavg", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    table, before = capsys.readouterr().out, times(tmp_path / "runs")

    def refuse(*_: Any) -> None:
        raise AssertionError("a complete run is run again")

    monkeypatch.setattr(fedpub.runs.simulated, "simulate", refuse)
    assert main(words) == 0
    assert capsys.readouterr().out == table
    assert times(tmp_path / "runs") == before


def test_a_comparison_goes_on_where_it_was_interrupted(tiny, tmp_path):
    planned = plan(tiny, ["local", "fedpub"], [], [], 2)
    expected = [one.summary | {"seconds": 0} for one in compare(planned)]
    rounds: list[int] = []

    def interrupt(row: Row, _: int) -> None:
        rounds.append(row.round)
        if len(rounds) == 5:  # the second round of the second run
            raise KeyboardInterrupt

    runs = compare(planned, tmp_path / "runs", on_round=interrupt)
    next(runs)
    before = times(tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        next(runs)
    again = [one.summary | {"seconds": 0} for one in compare(planned, tmp_path / "runs")]
    assert again == expected
    assert {path: time for path, time in times(tmp_path / "runs").items() if path in before} == before


def test_more_methods_and_seeds_can_be_added_later(words, tmp_path, capsys):
    out = tmp_path / "runs"
    assert main([*words, "--methods", "local", "--out", str(out)]) == 0
    before = times(out)
    assert main(instead(words, "--methods", "local", "fedavg", "--seeds", "3", "--out", str(out))) == 0
    after = times(out)
    assert {path: after[path] for path in before} == before
    assert len(list(out.rglob("summary.json"))) == 6


def test_other_settings_in_the_same_folder_are_refused(words, tmp_path, capsys):
    words = [*words, "--methods", "local", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    before = times(tmp_path / "runs")
    capsys.readouterr()
    assert main([*words, "--lr", "0.5"]) == 2
    said = capsys.readouterr().err
    assert "belongs to another experiment: its lr is 0.01, not 0.5" in said
    assert said.count("\n") == 1
    assert times(tmp_path / "runs") == before


# --set


def options_of(out: Path, method: str) -> dict[str, Any]:
    (config,) = out.rglob(f"{method}-seed0/config.json")
    content: dict[str, Any] = json.loads(config.read_text())["options"]
    return content


def test_set_gives_a_method_its_hyper_parameters(words, tmp_path):
    settings = ["fedpub.lambda1=0.5", "fedpub.masks=false", "gcfl.warm_up=7", "fedprox.mu=1e-2"]
    methods = ["local", "fedpub", "gcfl", "fedprox"]
    assert (
        main(instead(words, "--seeds", "1", "--methods", *methods, "--set", *settings, "--out", str(tmp_path / "o")))
        == 0
    )
    fedpub_ = options_of(tmp_path / "o", "fedpub")
    assert fedpub_["lambda1"] == 0.5
    assert fedpub_["masks"] is False
    assert fedpub_["lambda2"] == 0.001
    assert options_of(tmp_path / "o", "gcfl")["warm_up"] == 7
    assert options_of(tmp_path / "o", "fedprox") == {"mu": 0.01}
    assert options_of(tmp_path / "o", "local") == {}


def test_set_takes_words_as_values(words, tmp_path):
    settings = ["fedpub.measure=label", "fedpub.proxy=er"]
    assert (
        main(instead(words, "--seeds", "1", "--methods", "fedpub", "--set", *settings, "--out", str(tmp_path / "o")))
        == 0
    )
    assert options_of(tmp_path / "o", "fedpub")["measure"] == "label"
    assert options_of(tmp_path / "o", "fedpub")["proxy"] == "er"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fedpub.lamda1=3", "unknown option of fedpub 'lamda1': did you mean lambda1"),
        ("fedpup.lambda1=3", "unknown method 'fedpup': did you mean"),
        ("local.mu=3", "mu is an option of fedprox, not of local"),
        ("lambda1=3", "method.name=value"),
        ("fedpub.lambda1", "method.name=value"),
        ("fedpub.lambda1=much", "lambda1"),
        ("fedpub.measure=lable", "measure"),
        ("fedpub.masks=False", "masks"),  # Python's spelling is a word, which would count as true
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(setting, said, words, tmp_path, capsys):
    out = tmp_path / "runs"
    status = main(instead(words, "--seeds", "1", "--methods", "local", "fedpub", "--set", setting, "--out", str(out)))
    error = capsys.readouterr().err
    assert status == 2
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_bad_input_leaves_nothing(words, tmp_path, capsys):
    out = tmp_path / "runs"
    assert main(instead(words, "--methods", "local", "--dataset", "communitis", "--out", str(out))) == 2
    assert "did you mean communities" in capsys.readouterr().err
    assert not out.exists()
