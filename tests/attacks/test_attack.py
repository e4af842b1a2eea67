"""fedpub attack on runs of the simulator: each attack beats a guess by a safe margin, and bad input is one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpub.attacks.directory import attack_directory
from fedpub.attacks.replay import play, replayed
from fedpub.cli import main
from fedpub.core.message import Message
from fedpub.data.synthetic import Communities, communities_graph
from fedpub.engine import simulate as engine
from fedpub.engine.observed import Observed
from fedpub.experiment import Experiment
from fedpub.runs.simulated import run
from small import refused

# Six clients of 60 nodes; of 200 words a node has ten.
WORDY = Communities((2, 2, 2), 60, 0.08, 0.005, 0.0, 4, 200, 0.6, 10, 0.1, 0.5)
USUAL: dict[str, Any] = {"scenario": "natural", "hidden": 64, "model": "gcn", "seed": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three methods on one graph."""
    base = tmp_path_factory.mktemp("attacked")
    graph = base / "wordy.graph"
    communities_graph("wordy", WORDY).save(graph)
    for method, rounds in (("fedavg", 3), ("fedpub", 3), ("fedpub-plus", 7)):
        own = USUAL | ({"model": "hops"} if method == "fedpub-plus" else {})
        run(Experiment(dataset=str(graph), method=method, rounds=rounds, **own), base / method)
    return base


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The findings by method and attack."""
    done = {method: attack_directory(folder / method, shadows=3) for method in ("fedavg", "fedpub", "fedpub-plus")}
    return {method: {one["attack"]: one for one in every["findings"]} for method, every in done.items()}


METHODS = ("fedavg", "fedpub", "fedpub-plus")


@pytest.mark.parametrize("method", METHODS)
def test_classes_are_learnt_from_uploads(found, method):
    one = found[method]["classes, from uploads"]
    assert one["score"] > one["guess"] + 0.1
    assert one["more"]["correlation"] > 0.8


@pytest.mark.parametrize("method", ["fedpub", "fedpub-plus"])
def test_classes_are_learnt_from_the_embedding_alone(found, method):
    one = found[method]["classes, from the embedding"]
    assert one["score"] > one["guess"] + 0.05


@pytest.mark.parametrize("method", METHODS)
def test_words_are_learnt_from_the_rows_sent(found, method):
    one = found[method]["words, from the rows sent"]
    assert one["score"] > one["guess"] + 0.05
    assert one["more"]["precision"] == 1


@pytest.mark.parametrize("method", ["fedavg", "fedpub"])
def test_a_word_profile_is_learnt_by_inversion(found, method):
    one = found[method]["word profile, by inversion"]
    assert one["score"] > one["guess"] + 0.02
    assert one["more"]["how"] == "from the gradient of 6 of 6 clients"


@pytest.mark.parametrize("method", METHODS)
def test_membership_is_learnt_from_the_first_step(found, method):
    one = found[method]["a node's membership, from a step"]
    assert one["score"] > 0.65
    assert one["worst"] >= one["score"]
    assert len(one["clients"]) == 6


def test_membership_is_learnt_from_models(found):
    plus = found["fedpub-plus"]
    assert plus["a node's membership, from confidence"]["score"] > 0.55
    assert plus["a node's membership, LiRA"]["score"] > 0.6
    kept = plus["a node's membership, LiRA (of kept models)"]
    assert kept["score"] > 0.55
    assert not kept["by_coordinator"]


def test_a_method_without_an_embedding_tells_nothing_by_it(found):
    one = found["fedavg"]["classes, from the embedding"]
    assert one["score"] is None
    assert one["sentence"] == "It does not apply: no embedding is sent."


def test_counts_of_classes_that_are_sent_tell_all(folder, tmp_path):
    how = USUAL | {"options": {"measure": "label"}}
    run(Experiment(dataset=str(folder / "wordy.graph"), method="fedpub", rounds=1, **how), tmp_path / "run")
    found = attack_directory(tmp_path / "run", shadows=0)["findings"]
    (one,) = (one for one in found if one["attack"] == "classes, from the embedding")
    assert one["score"] == pytest.approx(1)


@pytest.mark.parametrize("method", ["fedper", "gcfl", "fedgnn", "fedprox"])
def test_every_method_that_sends_something_can_be_attacked(folder, tmp_path, method):
    run(Experiment(dataset=str(folder / "wordy.graph"), method=method, rounds=2, **USUAL), tmp_path / "run")
    found = {one["attack"]: one for one in attack_directory(tmp_path / "run", shadows=0)["findings"]}
    assert found["words, from the rows sent"]["score"] > found["words, from the rows sent"]["guess"]
    if method == "fedper":  # its classifier stays at the client
        assert found["classes, from uploads"]["sentence"] == "It does not apply: no output layer was seen."


def test_tasks_without_classes_are_said_to_have_none(folder, tmp_path):
    task = {"task": "link-prediction", "method": "fedavg", "rounds": 1}
    run(Experiment(dataset=str(folder / "wordy.graph"), **task, **USUAL), tmp_path / "run")
    found = {one["attack"]: one for one in attack_directory(tmp_path / "run")["findings"]}
    assert "the task has no classes" in found["classes, from uploads"]["sentence"]
    assert "not node classification" in found["a node's membership, from a step"]["sentence"]


def test_a_group_s_mean_tells_less_than_its_members_uploads(folder, monkeypatch):
    """As a secure run would show it: all clients get the mean of all."""
    alone = attack_directory(folder / "fedavg", shadows=0, target="uploaded")
    playing = engine.simulate

    def averaged(*how: Any, observe: Any, **rest: Any) -> Any:
        def mixed(seen: Observed) -> None:
            assert seen.clear is not None
            mean = {
                name: leaf.mean(0, keepdim=True).expand_as(leaf) for name, leaf in seen.clear.tree("weights").items()
            }
            observe(replace(seen, clear=Message({"weights": mean})))

        return playing(*how, observe=mixed, **rest)

    monkeypatch.setattr("fedpub.attacks.replay.simulate", averaged)
    mixed = attack_directory(folder / "fedavg", shadows=0, target="uploaded")
    before, after = ({one["attack"]: one for one in every["findings"]} for every in (alone, mixed))
    for attack in ("classes, from uploads", "a node's membership, from a step"):
        assert after[attack]["score"] < before[attack]["score"] - 0.1


def test_the_coordinator_is_shown_what_is_uploaded_and_the_result_is_the_same(folder):
    case, _ = replayed(folder / "fedavg", 2)
    again = play(case.plan, replace(case.federation), 2)
    for client, own in case.notebook.last.items():
        assert own.round == 2
        assert all(torch.equal(leaf, again.notebook.last[client].known[name]) for name, leaf in own.known.items())
    seen: list[Observed] = []
    how = (case.plan.algorithm, case.plan.context, case.federation, 2)
    *_, watched = engine.simulate(*how, observe=seen.append)
    *_, plain = engine.simulate(*how)
    assert [one.round for one in seen] == [1, 2]
    assert seen[0].clear is not None
    assert seen[0].clear.names == {"weights", "size"}
    for name, leaf in case.plan.algorithm.personal(plain.snapshot.clients).items():
        assert torch.equal(leaf, case.plan.algorithm.personal(watched.snapshot.clients)[name])


def test_shadow_runs_train_on_half_of_the_candidates(folder):
    from fedpub.attacks.nodes import _shadows, candidates

    case, _ = replayed(folder / "fedavg", 1)
    assert case.federation is not None
    wanted = [candidates(own, 0) for own in case.federation.subgraphs]
    assert all(int(one.member_M.sum()) * 2 == len(one.nodes_M) for one in wanted)
    played = []
    for (held, trained), (_, again) in zip(
        _shadows(case, case.federation, wanted, lambda other: other, 2),
        _shadows(case, case.federation, wanted, lambda other: other, 2),
        strict=True,
    ):
        assert all(one.equal(other) for one, other in zip(trained, again, strict=True))
        for own, half, one in zip(held.subgraphs, trained, wanted, strict=True):
            assert torch.nonzero(own.train).flatten().equal(one.nodes_M[half])
            assert 2 * int(half.sum()) == len(half)
        played.append(trained)
    assert not all(one.equal(other) for one, other in zip(*played, strict=True))


# The verb


def test_the_verb_writes_what_it_shows(folder, capsys):
    assert main(["attack", str(folder / "fedavg"), "--shadows", "0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((folder / "fedavg" / "attack.json").read_text(encoding="utf-8"))
    assert shown["secure"] is False
    assert shown["rounds"] == 3
    assert not any("LiRA" in one["attack"] for one in shown["findings"])
    assert main(["attack", str(folder / "fedavg"), "--shadows", "0", "--rounds", "1", "--target", "uploaded"]) == 0
    said = capsys.readouterr().out
    assert "classes, from uploads" in said
    assert "kept model" not in said


def test_bad_input_is_one_sentence(folder, tmp_path, capsys):
    here = str(folder / "fedavg")
    assert "give 1 or more" in refused(["attack", here, "--rounds", "0"], capsys)
    assert "give 0 for no shadow models" in refused(["attack", here, "--shadows", "-1"], capsys)
    assert "leave it out" in refused(["attack", here, "--pieces", str(tmp_path)], capsys)
    assert "is not a run directory" in refused(["attack", str(tmp_path)], capsys)
    alone = tmp_path / "alone"
    run(Experiment(dataset=str(folder / "wordy.graph"), method="local", rounds=1, **USUAL), alone)
    assert "sends nothing" in refused(["attack", str(alone)], capsys)
    config = json.loads((alone / "config.json").read_text(encoding="utf-8"))
    (alone / "config.json").write_text(json.dumps(config | {"method": "oracle", "options": {}}), encoding="utf-8")
    assert "all data in one place" in refused(["attack", str(alone)], capsys)
    (alone / "config.json").write_text(json.dumps(config | {"dataset": "sites"}), encoding="utf-8")
    assert "--keep-uploads" in refused(["attack", str(alone)], capsys)


def test_a_run_of_other_data_is_refused(folder, tmp_path, capsys):
    other = tmp_path / "run"
    run(Experiment(dataset=str(folder / "wordy.graph"), method="fedavg", rounds=1, **USUAL), other)
    held = json.loads((other / "env.json").read_text(encoding="utf-8"))
    (other / "env.json").write_text(json.dumps(held | {"graph": "0" * 64}), encoding="utf-8")
    assert "has changed" in refused(["attack", str(other)], capsys)
