"""Sweeps in a program: frames, the chosen points, and objects in place of names."""

from __future__ import annotations

from typing import Any

import pytest

import fedpub
from fedpub.algorithms import FedPub
from fedpub.data.synthetic import communities_graph
from small import TINY

HOW: dict[str, Any] = {"scenario": "natural", "hidden": 8, "rounds": 2, "seeds": 2, "progress": False}


@pytest.fixture(scope="module")
def swept() -> fedpub.Sweep:
    graph = communities_graph("tiny", TINY)
    space: dict[str, Any] = {"lr": [0.001, 0.05], "fedpub.lambda1": "0.001"}
    return fedpub.sweep(space, graph, ["fedpub", "local"], report_seeds=1, **HOW)


def test_a_frame_has_a_row_per_run(swept):
    frame = swept.frame
    assert len(frame) == 2 * 2 * 2 + 2
    assert set(frame.columns) >= {"method", "lr", "fedpub.lambda1", "seed", "fresh", "val", "val_loss", "test"}
    assert set(frame.columns) >= {"best_round", "seconds", "bytes_up", "bytes_down"}
    assert frame.fresh.sum() == 2
    assert set(frame[frame.fresh].seed) == {2}
    assert frame[frame.method == "local"]["fedpub.lambda1"].isna().all()


def test_the_chosen_point_has_the_highest_mean_validation(swept):
    seen = swept.frame[~swept.frame.fresh]
    for row in swept.chosen.itertuples():
        means = seen[seen.method == row.method].groupby("lr").val.mean()
        assert row.lr == means.idxmax()
        assert row.val == pytest.approx(100 * means.max())
        fresh = swept.frame[swept.frame.fresh & (swept.frame.method == row.method)]
        assert row.test == pytest.approx(100 * fresh.test.mean())


def test_the_best_settings_are_keywords_of_a_run(swept):
    best = swept.best("fedpub")
    assert best.keys() == {"lr", "lambda1"}
    graph = communities_graph("tiny", TINY)
    single = {name: value for name, value in HOW.items() if name != "seeds"}
    again = fedpub.run(graph, method="fedpub", seed=2, **single, **best)
    frame = swept.frame
    assert again.test == frame[frame.fresh & (frame.method == "fedpub")].test.item()
    with pytest.raises(fedpub.FedpubError, match="unknown method of this sweep 'gcfl'"):
        swept.best("gcfl")


def test_it_is_shown_with_test_values_of_chosen_points_only(swept):
    title, headings, *rows = repr(swept).splitlines()
    assert "Chosen by validation on seeds 0 and 1; tested on seed 2" in title
    assert headings.split() == ["method", "lr", "fedpub.lambda1", "validation", "test"]
    assert len(rows) == 4
    assert swept._repr_html_().count("font-weight: bold") == 2 * 5
    assert sum(one.test is not None for one in swept.points) == 2


def test_an_object_has_a_label_and_its_options():
    graph = communities_graph("tiny", TINY)
    found = fedpub.sweep({"mine.lambda1": [0.5]}, graph, {"mine": FedPub(tau=3.0)}, **HOW | {"seeds": 1})
    assert found.best("mine") == {"lambda1": 0.5}


def test_mistakes_are_said_before_the_graph_is_written(tmp_path):
    graph = communities_graph("tiny", TINY)
    for how, said in (
        ({"space": {"lr": "fast"}}, "lr cannot be 'fast'"),
        ({"space": {"lr": [1]}, "lambda1": 0.1}, "{'fedpub.lambda1': \\[0.1\\]}"),
        ({"space": {"lr": [1]}, "trails": 3}, "did you mean trials"),
    ):
        with pytest.raises(fedpub.FedpubError, match=said):
            fedpub.sweep(dataset=graph, out=tmp_path / "runs", progress=False, **how)
    assert not (tmp_path / "runs").exists()
