"""A site that is removed while a run is in progress: from the next round on it is in no average."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpub.algorithms.fedpub_plus import FedPubPlus
from fedpub.algorithms.fedpub_plus.standing import ROUNDS_ALONE
from fedpub.core.tree import tree
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation import requests
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.known import FINGERPRINT
from fedpub.federation.requests import Terms
from fedpub.federation.wire import Envelope, decode
from fedpub.store.directory import RunDirectory, read_rows

RUN = "0123456789abcdef"
GONE = "site-1"


class Table:
    """A federation of four sites in this process, of which some are no longer members."""

    def __init__(self, folder: Path, **experiment: Any) -> None:
        usual = {"dataset": "communities", "scenario": "disjoint", "clients": 4, "hidden": 4, "dtype": "float64"}
        self.experiment = Experiment(**{**usual, "defence": "none", **experiment}).resolve()
        self.folder, self.sites = folder, InProcessSites(folder / "sites", self.experiment)
        self.gone: set[str] = set()
        self.asked: dict[int, set[int]] = {}  # by round; 0 for what is no round
        self.answers: dict[int, dict[int, Envelope]] = {}
        self.events: list[tuple] = []

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        answers = self.sites(messages, deadline)
        number = max((int(decode(data).fields.get("round", 0)) for data in messages.values()), default=0)
        self.asked[number] = {*messages}
        self.answers[number] = {client: decode(answer) for client, answer in answers.items()}
        return answers

    def play(self, removed: Mapping[int, set[str]], stop: int = 0) -> None:
        """To the end, or to a round after which the coordinator is killed; sites are removed after rounds."""

        def after(row: Any, rounds: int) -> None:
            self.gone = removed.get(row.round, self.gone)
            if row.round == stop:
                raise KeyboardInterrupt

        about = (self.experiment, RUN, self.sites.names, self, self.folder, Terms(deadline=5, patience=5))
        coordinator = Coordinator(*about, lambda *event: self.events.append(event), lambda site: site not in self.gone)
        play(coordinator, self.folder / "run", after)

    @property
    def server(self) -> dict:
        start, _ = RunDirectory(self.folder / "run").restore(torch.device("cpu"))
        assert start is not None
        return start.server

    def took_part(self, client: int) -> list[bool]:
        return [bool(row.clients["took_part"][client]) for row in read_rows(self.folder / "run")]


def test_a_removed_site_is_in_no_later_average(tmp_path):
    table = Table(tmp_path, method="fedavg", rounds=4)
    table.play({2: {GONE}})
    assert [table.asked[number] for number in (1, 2, 3, 4)] == [{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}, {0, 2, 3}]
    assert table.took_part(1) == [True, True, False, False]
    sizes = {client: float(one.message.tensor("size")) for client, one in table.answers[4].items()}
    assert sizes.keys() == {0, 2, 3}
    for name, leaf in tree(table.server["weights"]).items():
        parts = [sizes[client] * one.message.tree("weights")[name] for client, one in table.answers[4].items()]
        torch.testing.assert_close(leaf, sum(parts) / sum(sizes.values()))
    assert table.asked[0] == {0, 2, 3}, "it is not asked to keep its model either"
    assert [event[:3] for event in table.events] == [(1, "removed", 3)], "said once"


def test_its_last_values_are_in_no_later_mean(tmp_path):
    table = Table(tmp_path, method="fedavg", rounds=3)
    table.play({1: {GONE}})
    first, *later = read_rows(tmp_path / "run")
    assert not math.isnan(first.clients["val"][1])
    assert all(math.isnan(row.clients["val"][1]) for row in later)
    summary = RunDirectory(tmp_path / "run").summary()
    best = summary["best_round"]
    known = [value for value in read_rows(tmp_path / "run")[best - 1].clients["val"] if not math.isnan(value)]
    assert summary["val"] == pytest.approx(sum(known) / len(known))


def test_a_site_that_is_admitted_again_takes_part_again(tmp_path):
    table = Table(tmp_path, method="fedpub", rounds=4)
    table.play({1: {GONE}, 3: set()})
    assert table.took_part(1) == [True, False, False, True]
    assert not math.isnan(read_rows(tmp_path / "run")[-1].clients["val"][1])


def test_a_resumed_run_goes_on_without_the_site(tmp_path):
    whole, halves = (Table(tmp_path / name, method="fedpub-plus", rounds=8) for name in ("whole", "halves"))
    whole.play({6: {GONE}})
    with pytest.raises(KeyboardInterrupt):
        halves.play({6: {GONE}}, stop=6)
    halves.play({})
    assert halves.asked[8] == whole.asked[8] == {0, 2, 3}
    for name, leaf in tree(whole.server["everyone"]).items():
        assert torch.equal(leaf, tree(halves.server["everyone"])[name])


def test_nothing_is_left_of_it_for_those_who_join_later(tmp_path):
    table = Table(tmp_path, method="fedpub", rounds=3)
    table.play({2: {GONE}})
    start, _ = RunDirectory(tmp_path / "run").restore(torch.device("cpu"))
    rows = start.clients[FINGERPRINT]
    assert [bool(row.any()) for row in rows] == [True, False, True, True]


@pytest.mark.parametrize(("given", "least"), [("", 2), ("", 3), ("0,0,0,1,1,1", 3)])
def test_fedpub_plus_forgets_who_has_left(given, least):
    method, gone = FedPubPlus(given=given, min_group=least), torch.tensor([1, 4])
    begun = method.init_server({"w": torch.ones(2, 3)}, 6)
    function = torch.eye(2)[[0, 0, 0, 1, 1, 1]] if not given else begun["function"]
    known = {"scores": torch.full_like(begun["scores"], 0.5), "function": function}
    placed = {"alone": torch.zeros_like(begun["alone"]), "community": torch.tensor([0, 0, 0, 1, 1, 1])}
    placed["communities"] = {"w": torch.stack([torch.full((2, 3), value) for value in (2.0, 4.0)])}
    server = begun | known | placed
    left = method.without(server, gone)
    assert (left["scores"] < 0).all(1).tolist() == [False, True, False, False, True, False]
    assert (server["scores"] == 0.5).all(), "state in, state out"
    if given:
        assert left["community"].tolist() == [0, 0, 0, 1, 1, 1], "communities that are given stay"
        return
    two = least == 2
    assert left["community"].tolist() == ([0, -1, 0, 1, -1, 1] if two else [0, -1, 0, 0, -1, 0]), "none is too small"
    assert left["communities"]["w"][:, 0, 0].tolist() == ([2, 4] if two else [3])
    again = method.without(left, gone)
    assert again["community"].tolist() == left["community"].tolist(), "asked in every round"
    assert left["alone"].tolist() == [0, ROUNDS_ALONE, 0, 0, ROUNDS_ALONE, 0]
    assert (left["function"] == 0).all(1).tolist() == [False, True, False, False, True, False]


def test_who_is_removed_before_the_run_has_begun_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "PAUSE", 0.0)
    table = Table(tmp_path, method="fedavg", rounds=2)
    table.gone = {GONE}
    table.sites.names[1] = GONE
    table.sites.__class__ = type("Silent", (InProcessSites,), {"__call__": lambda *_: {}})
    with pytest.raises(FedpubError, match=f"site '{GONE}' was removed before the run had begun; start the coordinator"):
        table.play({})


def test_a_run_without_any_site_ends_in_a_sentence(tmp_path):
    table = Table(tmp_path, method="fedavg", rounds=3)
    with pytest.raises(FedpubError, match="no site of this run is admitted any more; admit one again"):
        table.play({1: {f"site-{client}" for client in range(4)}})


def test_if_none_of_the_chosen_is_left_the_others_are_asked(tmp_path):
    table = Table(tmp_path, method="fedavg", rounds=6, fraction=0.25)
    table.play({1: {"site-0", "site-1", "site-2"}})
    assert [table.asked[number] for number in range(2, 7)] == [{3}] * 5
