"""fedpub attack on a coordinator's folder: only if it has kept what it saw, with scores only if the data is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedpub.attacks.directory import attack_directory
from fedpub.attacks.seen import Seen
from fedpub.cli import main
from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.engine.observed import Observed, Sum
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.recording import Recorder, recorded
from fedpub.federation.requests import Terms
from fedpub.flower import coordinator
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import admit, make_site_key
from fedpub.flower.server import play_rounds
from fedpub.runs.simulated import run
from small import refused

EXPERIMENT = Experiment(dataset="communities", clients=4, method="fedavg", rounds=3, hidden=16)


def deployed(folder: Path, keep_uploads: bool) -> None:
    """A coordinator's folder after a run whose sites are in this process."""
    config = CoordinatorConfig.new("127.0.0.1", 9443, EXPERIMENT, Terms(deadline=60))
    config.save(folder)
    sites = InProcessSites(folder / "sites", EXPERIMENT)
    for name in sites.names:
        admit(CoordinatorFolder(folder).admitted, name, make_site_key(folder / f"{name}.key"))
    play_rounds(CoordinatorFolder(folder), config, sites, keep_uploads=keep_uploads)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coordinator")
    deployed(folder, keep_uploads=True)
    return folder


def by_attack(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["attack"]: one for one in found["findings"]}


def test_a_recorded_federation_tells_what_a_simulated_one_tells(kept, tmp_path):
    run(EXPERIMENT, tmp_path / "run")
    simulated = by_attack(attack_directory(tmp_path / "run", shadows=2, target="uploaded"))
    found = by_attack(attack_directory(kept, shadows=2, target="uploaded", pieces=kept / "sites"))
    for attack in ("classes, from uploads", "a node's membership, from a step", "a node's membership, LiRA"):
        assert found[attack]["score"] == pytest.approx(simulated[attack]["score"], abs=0.02)
    assert found["classes, from uploads"]["score"] > found["classes, from uploads"]["guess"] + 0.05


def test_without_the_sites_data_it_says_what_the_coordinator_would_believe(kept, capsys):
    assert main(["attack", str(kept), "--rounds", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    one = by_attack(shown)["classes, from uploads"]
    assert one["score"] is None
    assert set(one["more"]["estimates"]) == {"site-0", "site-1", "site-2", "site-3"}
    assert all(sum(shares) == pytest.approx(1) for shares in one["more"]["estimates"].values())
    assert shown["rounds"] == 2
    assert "--pieces" in by_attack(shown)["a node's membership, from a step"]["sentence"]


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path, capsys):
    deployed(tmp_path, keep_uploads=False)
    assert not (tmp_path / "observed").exists()
    assert "--keep-uploads" in refused(["attack", str(tmp_path)], capsys)


def test_the_flag_reaches_the_rounds(kept, monkeypatch, capsys):
    asked: list[Any] = []
    monkeypatch.setattr("fedpub.flower.server.play_rounds", lambda *how: asked.append(how[-1]) or {})
    for keep_uploads in (False, True):
        running = coordinator.Running(kept, resume=True, keep_uploads=keep_uploads)
        monkeypatch.setattr(running, "_exchange", lambda sites: None)
        running._admission = SimpleNamespace(now=dict)
        running.wait()
    assert asked == [False, True]

    def refuse(*how: Any) -> None:
        raise FedpubError(f"asked for {how}")

    monkeypatch.setattr(coordinator, "Running", refuse)
    assert "True)" in refused(["coordinator", "start", "--folder", str(kept), "--keep-uploads"], capsys)
    assert "False)" in refused(["coordinator", "start", "--folder", str(kept)], capsys)


def test_missing_pieces_are_named(kept, tmp_path, capsys):
    said = refused(["attack", str(kept), "--pieces", str(tmp_path)], capsys)
    assert "no data of the site 'site-0'" in said
    assert "site-0.graph" in said


def secure() -> Observed:
    """A round of a group of two, as a secure run shows it."""
    sent = Message({"weights": {"w": torch.ones(2, 2)}})
    counts, numbers = {"w": torch.tensor([2, 0])}, {"share": torch.tensor(0.5, dtype=torch.float64)}
    parts = {"steps": {"w": torch.tensor([4.0, 0.0])}, "counts": counts, "numbers": numbers}
    return Observed(
        3, torch.tensor([0, 2]), sent, Message({"embedding": torch.ones(2, 3)}), (Sum(torch.tensor([0, 2]), parts),)
    )


def test_a_secure_round_is_read_as_it_was_written(tmp_path):
    Recorder(tmp_path / "observed", ["a", "b", "c"])(secure())
    ((found, sites),) = recorded(tmp_path / "observed")
    assert sites == ["a", "b", "c"]
    assert found.round == 3
    one, other = Seen.of(found), Seen.of(secure())
    assert one.known["w"].equal(other.known["w"])
    assert one.touched["w"].equal(other.touched["w"])
    assert one.told.keys() == other.told.keys() == {"embedding"}
    assert not one.single


def test_a_damaged_or_foreign_file_is_one_sentence(kept, tmp_path):
    write_tensors(tmp_path / "000001-00000.safetensors", {"ids": torch.tensor([0])}, {"format": "other"})
    with pytest.raises(FedpubError, match="is not what a coordinator has seen"):
        list(recorded(tmp_path))
    some = min((kept / "observed").glob("*.safetensors"))
    tensors, header = read_tensors(some)
    del header["sums"]
    write_tensors(tmp_path / "000001-00000.safetensors", tensors, header)
    with pytest.raises(FedpubError, match="is damaged"):
        list(recorded(tmp_path))


def test_what_other_sites_were_seen_to_send_is_refused(kept, tmp_path):
    for name in ("coordinator.json", "sites.json"):
        if (kept / name).is_file():
            (tmp_path / name).write_text((kept / name).read_text(encoding="utf-8"), encoding="utf-8")
    Recorder(tmp_path / "observed", ["a", "b", "c"])(secure())
    with pytest.raises(FedpubError, match="is of another run"):
        attack_directory(tmp_path)
