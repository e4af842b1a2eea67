"""Sweeps: typed values, the points of each search, a choice that sees validation only, and runs not made twice."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedpub.runs.simulated
from fedpub.algorithms import FedPub
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.spec import Request
from fedpub.runs.space import Range, Space, axes
from fedpub.runs.sweep import SWEEP, Point, Sweep, Trial, standings, sweep


@pytest.fixture
def tiny(graph_file: str) -> Experiment:
    return Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=2)


def requests(base: Experiment, *methods: str) -> dict[str, Request]:
    return {method: Request(replace(base, method=method)) for method in methods}


def of(space: Space, *methods: str, **how: Any) -> Sweep:
    return Sweep.of(requests(Experiment(), *(methods or ("fedpub",))), space, **how)


def values(asked: Sweep, method: str = "fedpub") -> list[tuple[Any, ...]]:
    return [tuple(value for _, value in point.values) for point in asked.points(method)]


# Values and their types.


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("lr", "0.01, 3e-3,1", (0.01, 0.003, 1.0)),
        ("lr", [1, 0.5], (1.0, 0.5)),
        ("epochs", "1,none", (1, None)),
        ("model", "gcn,none,twin", ("gcn", None, "twin")),
        ("defence", "none,clip", ("none", "clip")),
        ("fedpub.official", "true,False", (True, False)),
        ("fedpub.tau", "5", (5.0,)),
    ],
)
def test_values_have_the_type_of_their_setting(name, given, expected):
    (axis,) = axes({name: given}, requests(Experiment(), "fedpub"))["fedpub"]
    assert axis.values == expected
    assert [type(value) for value in axis.values] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "nothing to sweep"),
        ({"lrr": "1"}, "unknown setting 'lrr': did you mean lr"),
        ({"lambda1": "1"}, "as fedpub.lambda1"),
        ({"lr": "fast"}, "lr cannot be 'fast': its values are numbers"),
        ({"lr": "nan"}, "lr cannot be 'nan'"),
        ({"lr": [True]}, "lr cannot be True"),
        ({"epochs": "1.5"}, "epochs cannot be '1.5': its values are whole numbers or none"),
        ({"defence": "walls"}, "defence cannot be 'walls'"),
        ({"lr": ""}, "lr has no values"),
        ({"lr": []}, "lr has no values"),
        ({"lr": "0.1,"}, "lr cannot be ''"),
        ({"lr": "0.1,0.10"}, "lr has the value 0.1 twice"),
        ({"lr": "0.1..0.2"}, "a range, of which a grid has no points"),
        ({"model": "gcn..sage"}, "model cannot have the range gcn..sage: it is not a number"),
        ({"fedpub.official": "0..1"}, "it is not a number"),
        ({"lr": "0.2..0.1"}, "its first end must be the lower one"),
        ({"lr": "0..1:log"}, "a logarithm needs ends above 0"),
        ({"lr": "1..2..3"}, "low..high:log"),
        ({"lr": "1..2:cubic"}, "low..high:log"),
        ({"fedavg.share": "1"}, "fedavg is not among the methods"),
        ({"fedpub.lamda1": "1"}, "unknown option of fedpub 'lamda1': did you mean lambda1"),
        ({"fedpbu.lambda1": "1"}, "did you mean fedpub"),
        ({"seed": "1,2"}, "seed cannot be swept: each point is repeated on seeds"),
        ({"data_seed": "1,2"}, "data_seed cannot be swept"),
        ({"ratios": "1"}, "ratios cannot be swept"),
        ({"metric": "accuracy,macro-f1"}, "metric cannot be swept"),
        ({"dataset": "cora"}, "dataset cannot be swept"),
        ({"method": "fedavg"}, "method cannot be swept: give several methods"),
        ({"rounds": "0"}, "rounds=0"),
        ({"model": "gnc"}, "did you mean gcn"),
    ],
)
def test_a_space_that_is_not_possible_is_said(space, said):
    with pytest.raises(FedpubError) as error:
        of(space)
    assert said in str(error.value)
    assert "`" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"seeds": 0}, "seeds=0"),
        ({"report_seeds": -1}, "report_seeds=-1"),
        ({"trials": 3}, "trials=3 has no effect on a grid"),
        ({"search": "random"}, "search=random needs trials to be 1 or more"),
        ({"search": "random", "trials": 0}, "search=random needs trials=0 to be 1 or more"),
        ({"search": "gird"}, "did you mean grid"),
    ],
)
def test_a_search_that_is_not_possible_is_said(how, said):
    with pytest.raises(FedpubError) as error:
        of({"lr": "0.1"}, **how)
    assert said in str(error.value)


def test_a_fixed_split_has_no_fresh_ones():
    with pytest.raises(FedpubError, match="data_seed=4"):
        Sweep.of(requests(Experiment(data_seed=4), "fedpub"), {"lr": "0.1"}, report_seeds=1)
    with pytest.raises(FedpubError, match="split=own"):
        Sweep.of(requests(Experiment(split="own"), "fedpub"), {"lr": "0.1"}, report_seeds=1)


def test_a_range_is_checked_at_both_ends():
    with pytest.raises(FedpubError, match="dropout"):
        of({"dropout": "0.1..1.5"}, search="random", trials=1)
    with pytest.raises(FedpubError, match="dropout"):
        of({"dropout": "0.1..1.5"}, search="optuna", trials=1)


# Points.


def test_a_grid_has_every_combination_and_the_last_setting_changes_first():
    asked = of({"lr": "0.1,0.2", "fedpub.lambda1": "0,1", "hidden": "8,16"}, "fedpub", "fedavg", seeds=2)
    assert values(asked) == [
        (0.1, 0.0, 8),
        (0.1, 0.0, 16),
        (0.1, 1.0, 8),
        (0.1, 1.0, 16),
        (0.2, 0.0, 8),
        (0.2, 0.0, 16),
        (0.2, 1.0, 8),
        (0.2, 1.0, 16),
    ]
    assert values(asked, "fedavg") == [(0.1, 8), (0.1, 16), (0.2, 8), (0.2, 16)], "lambda1 is fedpub's own"
    assert asked.num_runs == 2 * (8 + 4)


def test_the_settings_of_a_point_reach_its_experiment():
    asked = of({"lr": "0.5", "fedpub.lambda1": "0.25"}, "fedpub", "fedavg")
    ((point,), (other,)) = (asked.points(method) for method in ("fedpub", "fedavg"))
    made = asked.plan(point, 7)
    assert (made.lr, made.experiment.options["lambda1"], made.seed, made.data_seed) == (0.5, 0.25, 7, 7)
    assert point.label == "fedpub (lr=0.5, lambda1=0.25)"
    assert asked.plan(other, 7).experiment.options == {}


def test_a_method_that_is_an_object_gets_its_options():
    class Mine(FedPub):
        pass

    asked = {"mine": Request(Experiment(method="python:Mine"), Mine(tau=3.0))}
    swept = Sweep.of(asked, {"mine.lambda1": [0.25]})
    made = swept.plan(swept.points("mine")[0], 0)
    assert (made.algorithm.lambda1, made.algorithm.tau) == (0.25, 3.0)


def test_random_points_are_drawn_again_and_other_settings_do_not_change_them():
    space: dict[str, Any] = {"lr": "0.001..0.1:log", "hidden": "8..64", "dropout": "0,0.5"}
    drawn = values(of(space, search="random", trials=20))
    assert drawn == values(of(space, search="random", trials=20))
    assert drawn[:5] == values(of(space, search="random", trials=5)), "more trials add points"
    assert [one[0] for one in drawn] == [one[0] for one in values(of({"lr": space["lr"]}, search="random", trials=20))]
    other = Sweep.of(requests(Experiment(seed=1), "fedpub"), space, search="random", trials=20)
    assert drawn != values(other)
    assert all(0.001 <= lr <= 0.1 and 8 <= hidden <= 64 and dropout in (0, 0.5) for lr, hidden, dropout in drawn)
    assert {type(hidden) for _, hidden, _ in drawn} == {int}
    assert len({lr for lr, _, _ in drawn}) == 20
    assert {dropout for _, _, dropout in drawn} == {0, 0.5}


def test_ranges_by_hand():
    assert [Range(1.0, 100.0, True, False).at(share) for share in (0, 0.5, 1)] == [1, 10, 100]
    assert [Range(1.0, 3.0, False, False).at(share) for share in (0, 0.5, 1)] == [1, 2, 3]
    # Every whole number has a third of the way.
    assert [Range(1, 3, False, True).at(share) for share in (0, 0.32, 0.34, 0.66, 0.67, 1)] == [1, 1, 2, 2, 3, 3]
    assert Range(0.0, 1.0, False, False).at(1 / 3) == 0.3333


def test_points_that_are_drawn_twice_are_run_once():
    assert len(values(of({"dropout": "0,0.5"}, search="random", trials=20))) == 2


# The choice.


def trial(lr: float, seed: int, val: float, test: float, *, fresh: bool = False, **other: Any) -> Trial:
    summary = {"val": val, "val_loss": 1.0, "test": test, "seconds": 2.0, "bytes_up": 3_000_000} | other
    return Trial(Point("fedpub", (("lr", lr),)), seed, fresh, summary)


def chosen(trials: list[Trial]) -> Any:
    (one,) = (one for one in standings(trials) if one.chosen)
    return one


def test_validation_chooses_where_test_would_choose_otherwise():
    trials = [trial(0.1, 0, 0.5, 0.9), trial(0.2, 0, 0.7, 0.1), trial(0.1, 1, 0.6, 0.9), trial(0.2, 1, 0.5, 0.2)]
    first, second = standings(trials)
    assert (first.chosen, second.chosen) == (False, True)
    assert (first.val, second.val) == pytest.approx((55, 60))
    assert second.val_deviation == pytest.approx(20 / 2**0.5)
    assert (second.test, second.test_deviation) == pytest.approx((15, 10 / 2**0.5))
    assert (first.test, first.test_deviation, first.test_seeds) == (None, None, []), "only the chosen point is tested"
    assert (second.seconds, second.megabytes_up) == (2.0, 3.0)


def test_a_tie_goes_to_the_lower_loss_and_then_to_the_earlier_point():
    assert chosen([trial(0.1, 0, 0.5, 0.1), trial(0.2, 0, 0.5, 0.1, val_loss=0.9)]).settings == {"lr": 0.2}
    assert chosen([trial(0.1, 0, 0.5, 0.1), trial(0.2, 0, 0.5, 0.9)]).settings == {"lr": 0.1}


def test_fresh_splits_report_but_do_not_choose():
    trials = [trial(0.1, 0, 0.6, 0.3), trial(0.2, 0, 0.5, 0.9), trial(0.1, 1, 0.1, 0.4, fresh=True)]
    one = chosen(trials)
    assert (one.settings, one.val, one.seeds) == ({"lr": 0.1}, pytest.approx(60), [0])
    assert (one.test, one.test_seeds) == (pytest.approx(40), [1])


# Runs.


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """The seed and learning rate of every run that is computed."""
    made: list[tuple[int, float]] = []
    simulate = fedpub.runs.simulated.simulate

    def count(algorithm: Any, context: Any, *rest: Any) -> Any:
        made.append((context.seed, context.lr))
        return simulate(algorithm, context, *rest)

    monkeypatch.setattr(fedpub.runs.simulated, "simulate", count)
    return made


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}


def test_a_sweep_runs_every_point_then_reports_the_chosen_one_and_repeats_nothing(tiny, tmp_path, monkeypatch):
    made = counted(monkeypatch)
    asked = Sweep.of(requests(tiny, "fedavg"), {"lr": "0.0001,0.05"}, seeds=2, report_seeds=1)
    done = list(sweep(asked, tmp_path / "runs"))
    best = chosen(done).settings["lr"]
    assert made == [(0, 0.0001), (0, 0.05), (1, 0.0001), (1, 0.05), (2, best)]
    assert len(made) == asked.num_runs
    assert [(one.seed, one.fresh) for one in done[-2:]] == [(1, False), (2, True)]
    before, content = times(tmp_path / "runs"), (tmp_path / "runs" / SWEEP).read_text()
    assert len(before) == 5
    assert json.loads(content)["complete"]

    made.clear()
    again = list(sweep(asked, tmp_path / "runs"))
    assert (made, times(tmp_path / "runs"), (tmp_path / "runs" / SWEEP).read_text()) == ([], before, content)
    assert again == done

    more = Sweep.of(requests(tiny, "fedavg"), {"lr": "0.0001,0.05,0.01"}, seeds=2)
    list(sweep(more, tmp_path / "runs"))
    assert made == [(0, 0.01), (1, 0.01)], "another value needs its own runs only"


def test_an_interrupted_sweep_says_so_and_goes_on(tiny, tmp_path):
    asked = Sweep.of(requests(tiny, "fedavg"), {"lr": "0.01,0.05"}, seeds=1)
    runs = sweep(asked, tmp_path / "runs")
    next(runs)
    runs.close()
    content = json.loads((tmp_path / "runs" / SWEEP).read_text())
    assert (content["complete"], len(content["points"])) == (False, 1)
    assert len(list(sweep(asked, tmp_path / "runs"))) == 2


def test_a_point_finds_what_a_single_run_finds(tiny):
    """Also where models of different kinds need their data in different forms."""
    asked = Sweep.of(requests(tiny, "fedavg"), {"model": "gcn,sage", "lr": "0.01,0.05"}, seeds=1)
    for one in sweep(asked):
        alone = fedpub.runs.simulated.run(replace(tiny, method="fedavg", **one.point.settings)).summary
        assert one.summary | {"seconds": 0} == alone | {"seconds": 0}


def test_without_validation_there_is_no_choice(tiny):
    asked = Sweep.of(requests(replace(tiny, ratios=(0.5, 0.0, 0.5)), "fedavg"), {"lr": "0.01"}, seeds=1)
    with pytest.raises(FedpubError, match="no client has validation data"):
        list(sweep(asked))


# Optuna.


def test_optuna_suggests_as_many_points_and_the_same_again(tiny, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    made = counted(monkeypatch)
    space: dict[str, Any] = {"lr": "0.001..0.1:log", "hidden": "4..8", "model": "gcn,sage"}
    asked = Sweep.of(requests(tiny, "fedavg"), space, seeds=2, search="optuna", trials=4)
    done = list(sweep(asked, tmp_path / "runs"))
    points = list(dict.fromkeys(one.point for one in done))
    assert (len(points), len(done), asked.num_runs) == (4, 8, 8)
    assert [one.seed for one in done] == [0, 1] * 4, "Optuna needs all seeds of a point before the next"
    for point in points:
        lr, hidden, model = (point.settings[name] for name in ("lr", "hidden", "model"))
        assert 0.001 <= lr <= 0.1
        assert type(hidden) is int
        assert 4 <= hidden <= 8
        assert model in ("gcn", "sage")
    made.clear()
    assert list(sweep(asked, tmp_path / "runs")) == done
    assert made == []


def test_optuna_is_told_validation_and_not_test(monkeypatch):
    optuna = pytest.importorskip("optuna")
    told: list[float] = []
    tell = optuna.study.Study.tell
    monkeypatch.setattr(
        optuna.study.Study, "tell", lambda self, one, value: (told.append(value), tell(self, one, value))[1]
    )
    from fedpub.runs.sweep import _order

    asked = of({"lr": "0.001..0.1:log"}, seeds=2, search="optuna", trials=3)
    done: list[Trial] = []
    for number, (point, seed) in enumerate(_order(asked, done)):
        done.append(replace(trial(0, seed, 0.1 * number, 0.9), point=point))
    assert told == pytest.approx([0.05, 0.25, 0.45])


def test_without_optuna_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FedpubError, match=r"pip install 'fedpub\[search\]'"):
        of({"lr": "0.1"}, search="optuna", trials=2)
