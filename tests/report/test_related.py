"""What the page is told of the relations between clients: weights, communities, models used; and how much of it."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_report import CORA, make_run

from fedpub.algorithms.fedpub_plus.standing import MODELS
from fedpub.core.tensor_files import write_tensors
from fedpub.experiment import Experiment
from fedpub.report import payload, related
from fedpub.report.load import load

PLUS = Experiment(dataset="communities", method="fedpub-plus", rounds=3)
BLOCKS = np.kron(np.eye(4), np.ones((5, 5)))


def plus_run(path: Path) -> Path:
    """Alone and unknown in the first round, then with everyone, then in four communities of five."""
    used = [[-1] * 20, [1] * 20, [0, 3, *[2] * 18]]
    community = [[-1] * 20, [0] * 20, np.repeat(range(4), 5).tolist()]
    similarity = np.stack([np.zeros((20, 20)), BLOCKS, BLOCKS])
    alpha = np.stack([np.eye(20), np.full((20, 20), 1 / 20), BLOCKS / 5])
    notes = {"community": community, "used": used}
    return make_run(path, PLUS, [[0.5] * 20] * 3, similarity=similarity, alpha=alpha, notes=notes)


def shown(path: Path) -> dict[str, Any]:
    runs, complaints = load([path])
    assert complaints == []
    [cell] = payload.payload(runs, [])["cells"]
    [found] = cell["relations"]
    return found


def unpacked(matrix: dict[str, Any], clients: int) -> np.ndarray:
    steps = np.frombuffer(base64.b64decode(matrix["values"]), "<u2").reshape(-1, clients, clients)
    return np.where(steps == related.MISSING, np.nan, matrix["low"] + steps / 65534 * (matrix["high"] - matrix["low"]))


def test_packed_matrices_come_back():
    values = np.array([[[1.0, -0.2], [np.nan, 0.5]]])
    np.testing.assert_allclose(unpacked(related.packed(values), 2), values, atol=2e-5)


def test_a_run_shows_its_weights_communities_and_models(tmp_path):
    found = shown(plus_run(tmp_path / "run"))
    assert found["rounds"] == [1, 2, 3]
    assert [one["name"] for one in found["matrices"]] == ["similarity", "alpha"], "similarities come first"
    np.testing.assert_allclose(unpacked(found["matrices"][1], 20)[2], BLOCKS / 5, atol=2e-5)
    assert [own[7] for own in found["contributors"]] == [1, 20, 5]
    assert found["rule"] == "community"
    assert [own[7] for own in found["communities"]] == [-1, 0, 1]
    assert found["true"] == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert found["index"] == [None, 0, 1]
    assert [own[:3] for own in found["used"]] == [[-1] * 3, [1] * 3, [0, 3, 2]]
    history = found["history"]
    assert history["rounds"] == [1, 2, 3]
    assert history["contributors"] == [[1, 1, 1], [20, 20, 20], [5, 5, 5]]
    assert history["index"] == [None, 0, 1]
    assert history["used"] == [[0, 0, 0, 0], [0, 20, 0, 0], [1, 0, 18, 1]]


def test_clients_that_were_not_compared_yet_have_no_similarity(tmp_path):
    similarity = unpacked(shown(plus_run(tmp_path / "run"))["matrices"][0], 20)
    assert np.isnan(similarity[0]).all()
    assert not np.isnan(similarity[1]).any()


def test_communities_follow_from_similarities_if_the_method_has_none(tmp_path):
    alike = np.kron(np.eye(2), np.ones((3, 3)))[:5, :5]
    similarity = np.stack([np.eye(5), 0.6 * alike + 0.4 * np.eye(5)])
    make_run(tmp_path / "run", replace(CORA, clients=5), [[0.5] * 5] * 2, similarity=similarity)
    found = shown(tmp_path)
    assert found["rule"] == "linkage"
    assert found["communities"] == [[0] * 5, [0, 0, 0, 1, 1]]
    assert [found[name] for name in ("true", "index", "contributors", "used")] == [None] * 4
    assert [one["name"] for one in found["matrices"]] == ["similarity"]


def test_clusters_are_communities(tmp_path):
    cluster = [[5, 5, 5], [9, 5, -1]]
    make_run(tmp_path / "run", replace(CORA, method="gcfl", clients=3), [[0.5] * 3] * 2, cluster=cluster)
    found = shown(tmp_path)
    assert (found["rule"], found["communities"]) == ("cluster", [[0, 0, 0], [0, 1, -1]])
    assert [one["name"] for one in found["matrices"]] == ["same cluster"]


def test_the_smallest_mean_and_largest_are_over_the_clients_that_took_part(tmp_path):
    alpha = np.array([[[1, 0, np.nan], [0.5, 0.5, np.nan], [np.nan] * 3], [[np.nan] * 3] * 3])
    make_run(tmp_path / "run", replace(CORA, clients=3), [[0.5] * 3] * 2, alpha=alpha)
    found = shown(tmp_path)
    assert found["contributors"] == [[1, 2, None], [None] * 3]
    assert found["history"]["contributors"] == [[1, 1.5, 2], None]


def test_a_relation_that_lacks_rounds_is_left_out(tmp_path):
    """A run that was resumed with a version that records more."""
    path = make_run(tmp_path / "run", CORA, [[0.5, 0.7]] * 3)
    tensors = {"similarity": torch.eye(2).repeat(3, 1, 1), "alpha": torch.eye(2).repeat(2, 1, 1)}
    write_tensors(path / "relations.safetensors", tensors, {})
    assert [one["name"] for one in shown(tmp_path)["matrices"]] == ["similarity"]


def test_weights_count_towards_the_size_of_the_page(tmp_path, monkeypatch):
    similarity = np.random.default_rng(0).uniform(0, 1, (30, 20, 20))
    alpha = similarity / similarity.sum(2, keepdims=True)
    plain = make_run(tmp_path / "plain", replace(CORA, clients=20), [[0.5] * 20] * 30, similarity=similarity)
    both = replace(CORA, clients=20)
    weighted = make_run(tmp_path / "both", both, [[0.5] * 20] * 30, similarity=similarity, alpha=alpha)
    monkeypatch.setattr(payload, "MAX_VALUES", 10 * (20 * 20 + 3 * 20))
    found = shown(plain)
    assert len(found["rounds"]) == 10
    found = shown(weighted)
    assert len(found["rounds"]) == 5
    assert found["rounds"][-1] == 30
    assert all(len(found[name]) == 5 for name in ("communities", "contributors"))
    assert len(found["history"]["contributors"]) == 30, "a curve is small"


def test_of_very_many_clients_only_the_numbers_are_shown(tmp_path):
    notes = {"used": [[0] * 200 + [2] * 100], "community": [[0] * 300]}
    make_run(tmp_path / "run", replace(PLUS, dataset="cora", clients=300), [[0.5] * 300], notes=notes)
    found = shown(tmp_path)
    assert found["rounds"] == found["matrices"] == []
    assert found["history"]["used"] == [[200, 0, 100, 0]]


def test_every_model_has_a_name_for_people():
    assert related.OWNERS.keys() == {*MODELS}


def test_a_client_that_is_away_is_where_it_was(tmp_path):
    path = plus_run(tmp_path / "run")
    header, *lines = (path / "clients.csv").read_text().splitlines()
    columns = header.split(",")
    for at, line in enumerate(lines):
        cells = dict(zip(columns, line.split(","), strict=True))
        if (cells["round"], cells["client"]) == ("3", "7"):
            lines[at] = ",".join((cells | {"took_part": "0", "community": "-1", "used": "-1"}).values())
    (path / "clients.csv").write_text("\n".join([header, *lines]) + "\n")
    found = shown(tmp_path)
    assert [own[7] for own in found["communities"]] == [-1, 0, 0]
    assert [own[7] for own in found["used"]] == [-1, 1, 1]
    assert [sum(own) for own in found["history"]["used"]] == [0, 20, 20]


@pytest.mark.parametrize("name", ["community", "used"])
def test_notes_of_rounds_that_were_lost_are_unknown(tmp_path, name):
    path = plus_run(tmp_path / "run")
    text = (path / "clients.csv").read_text().splitlines(keepends=True)
    (path / "clients.csv").write_text("".join(text[: 1 + 2 * 20]))
    runs, complaints = load([tmp_path])
    assert len(complaints) == 1
    [found] = payload.payload(runs, [])["cells"][0]["relations"]
    key = {"community": "communities", "used": "used"}[name]
    assert found[key][2] == [-1] * 20
