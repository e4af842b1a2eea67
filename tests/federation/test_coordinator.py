"""What a coordinator asks, waits for and remembers: three made-up sites, in numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation import coordinator as federate
from fedpub.federation.coordinator import Coordinator, _first, _measured
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.known import FINGERPRINT, Known
from fedpub.federation.requests import Terms
from fedpub.federation.validate.upload import wrong_values
from fedpub.federation.wire import Envelope, decode, encode

RUN = "0123456789abcdef"
NAMES = ("a", "b", "c")
EXPERIMENT = Experiment(dataset="communities", method="fedavg", rounds=9, dtype="float64")
Answer = Callable[[int, Envelope], Envelope | None]


class Sites:
    """Answers by a function of site and message, and remembers what was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, []

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        assert deadline == 5
        read = {client: decode(envelope) for client, envelope in messages.items()}
        self.asked.append(read)
        answers = {client: self.answer(client, envelope) for client, envelope in read.items()}
        return {client: encode(one) for client, one in answers.items() if one is not None}

    def fields(self, kind: str, name: str) -> list[Any]:
        """A field of every message of a kind, in their order."""
        return [one.fields[name] for asked in self.asked for one in asked.values() if one.kind == kind]


def leader(folder: Path, sites: Sites, events: list | None = None, **terms: Any) -> Coordinator:
    said = events if events is not None else []
    patience = Terms(deadline=5, patience=10, **terms)
    return Coordinator(EXPERIMENT, RUN, NAMES, sites, folder, patience, lambda *event: said.append(event))


def numbers(value: float) -> dict[str, float]:
    """What a site measures: the same for everything."""
    names = (*EXPERIMENT.resolve().context.task.metrics, "sparsity")
    return dict.fromkeys(names, value)


def answered(value: float, loss: float = 1.0, **message: torch.Tensor) -> Envelope:
    upload = {"weights": {"w": torch.tensor([[1.0]])}, "size": torch.tensor([3])} | message
    return Envelope("round", {"round": 3, "loss": loss, "metrics": numbers(value)}, Message.of(upload))


def known() -> Known:
    return Known(NAMES, 5, ("x", "y"), (5, 6, 7), (), tuple(numbers(0.1) for _ in NAMES))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Round 3 with everybody, where every answer to it is good."""
    monkeypatch.setattr(federate, "PAUSE", 0.0)
    monkeypatch.setattr(
        Coordinator, "_wrong_answer", lambda self, client, answer, *_: None if answer.kind == "round" else "no answer"
    )

    def played(coordinator: Coordinator, clients: dict, chosen: tuple[int, ...] = (0, 1, 2)) -> tuple:
        server = coordinator.algorithm.init_server({"w": torch.tensor([1.0])}, 3)
        return coordinator._play(replace(coordinator.ctx, round=3), list(chosen), server, clients, known(), None)

    return played


@pytest.mark.parametrize(
    ("min_sites", "times"), [(0, 2), (1, 1), (2, 2), (3, 3), (7, 3)], ids=["half", "one", "two", "all", "more"]
)
def test_a_round_waits_for_half_of_its_sites_or_as_many_as_are_asked_for(min_sites, times, play, tmp_path):
    """Site a answers at once, b the second time and c the third; half of three are two."""
    sites = Sites(lambda client, _: answered(0.5) if len(sites.asked) > client else None)
    _, answers, _ = play(leader(tmp_path, sites, min_sites=min_sites), _first(known()))
    assert (len(sites.asked), len(answers)) == (times, times)


def test_who_was_not_chosen_is_not_asked(play, tmp_path):
    sites = Sites(lambda client, _: answered(0.5))
    _, answers, sizes = play(leader(tmp_path, sites), _first(known()), (0, 2))
    assert list(answers) == list(sizes) == [0, 2]
    assert list(sites.asked[0]) == [0, 2]


def test_bytes_are_counted_of_what_was_sent_and_answered(play, tmp_path):
    """Also down to a site that never answers."""
    sites = Sites(lambda client, _: answered(0.5) if client else None)
    events: list = []
    coordinator = leader(tmp_path, sites, events)
    _, answers, sizes = play(coordinator, _first(known()))
    down = [len(encode(envelope)) for envelope in sites.asked[0].values()]
    up = len(encode(answered(0.5)))
    assert sizes == {0: (0, down[0]), 1: (up, down[1]), 2: (up, down[2])}
    assert [(event[0], event[1]) for event in events] == [(0, "left out")]
    ids = torch.tensor([1, 2])
    clients = _measured(_first(known()), answers, 3)
    done = coordinator._round(3, {}, clients, answers, sizes, ids, {})
    assert done.bytes_up_R.tolist() == [0, up, up]
    assert done.bytes_down_R.tolist() == down
    assert done.took_part_R.tolist() == [False, True, True]
    assert done.metrics["test"].tolist() == [0.1, 0.5, 0.5]
    assert done.sparsity_R.tolist() == [0.1, 0.5, 0.5]


def test_losses_are_those_of_the_sites(tmp_path):
    answers = {0: answered(0.5, loss=2.0), 2: answered(0.5, loss=4.0)}
    clients = _measured(_first(known()), answers, 3)
    done = leader(tmp_path, Sites(lambda *_: None))._round(3, {}, clients, answers, {}, torch.tensor([0, 2]), {})
    assert done.loss_R[[0, 2]].tolist() == [2, 4]
    assert bool(done.loss_R[1].isnan())


def test_every_site_is_asked_from_its_own_last_round(play, tmp_path):
    """Sites a and c took part in round 2, b only in round 1; the best round so far is the second."""
    sites = Sites(lambda client, _: answered(0.5))
    clients = _measured(_first(known()), dict.fromkeys((0, 1, 2), answered(0.5)), 1)
    clients = _measured(clients, dict.fromkeys((0, 2), answered(0.6)), 2)
    assert clients["base"].tolist() == [2, 1, 2]
    play(leader(tmp_path, sites), clients)
    assert sites.fields("round", "base") == [2, 1, 2]
    assert sites.fields("round", "best") == [2, 2, 2]
    done = Sites(lambda client, _: Envelope("finished", {}))
    leader(tmp_path, done).finish(clients)
    assert (done.fields("finish", "base"), done.fields("finish", "best")) == ([2, 1, 2], [2, 2, 2])


def test_a_site_that_lost_its_state_begins_anew_and_is_asked_from_the_start(play, tmp_path):
    def answer(client: int, envelope: Envelope) -> Envelope:
        if envelope.kind == "begin":
            return Envelope("begun", {})
        lost = client == 1 and envelope.fields["base"] > 0
        return Envelope("lost", {"reason": "a new disk"}) if lost else answered(0.5)

    sites, events = Sites(answer), []
    clients = _measured(_first(known()), dict.fromkeys((0, 1, 2), answered(0.5)), 2)
    play(leader(tmp_path, sites, events, min_sites=3), clients)
    assert [event[:3] for event in events] == [(1, "began anew", 3), (1, "left out", 3)]
    assert sites.fields("begin", "attempt") == [3], "later than the first beginning, which was 0"
    assert sites.fields("begin", "client") == [1]
    assert sites.fields("round", "base") == [2, 2, 2, 2, 0, 2]


def test_the_last_fingerprint_of_every_site_is_remembered(tmp_path):
    def up(one: float) -> federate.Answer:
        return federate.Answer({}, torch.tensor([[one, 1.0]]))

    similar = replace(EXPERIMENT, method="fedpub")
    remembered = Coordinator(similar, RUN, NAMES, Sites(lambda *_: None), tmp_path)._fingerprints
    first = remembered({}, {0: up(1), 1: up(2)})
    assert first[FINGERPRINT].tolist() == [[1, 1], [2, 1], [0, 0]]
    second = remembered(first, {1: up(3), 2: up(4)})
    assert second[FINGERPRINT].tolist() == [[1, 1], [3, 1], [4, 1]]
    assert remembered(second, {})[FINGERPRINT].tolist() == second[FINGERPRINT].tolist()


def test_the_classes_of_a_run_are_those_of_all_sites(tmp_path):
    """In the order in which sites name them; the first metrics and sizes are kept, and asked for only once."""
    names = {0: ["x", "y"], 1: ["z", "x"], 2: ["y"]}

    def answer(client: int, envelope: Envelope) -> Envelope:
        if envelope.kind == "hello":
            return Envelope("hello", {"site": NAMES[client], "features": 5, "classes": names[client], "relations": 1})
        return Envelope("begun", {"metrics": numbers(client / 4), "test_size": 5 + client, "idle": client == 1})

    sites = Sites(answer)
    found = leader(tmp_path, sites).prepare()
    assert (found.sites, found.features, found.classes) == (NAMES, 5, ("x", "y", "z"))
    assert (found.test_sizes, found.idle) == ((5, 6, 7), (1,))
    assert [one["val"] for one in found.metrics] == [0, 0.25, 0.5]
    assert sites.fields("begin", "classes") == [["x", "y", "z"]] * 3
    assert sites.fields("begin", "client") == [0, 1, 2]
    assert sites.fields("begin", "attempt") == [0, 0, 0]
    assert leader(tmp_path, Sites(lambda *_: pytest.fail("asked again"))).prepare() == found


def test_who_is_missing_at_the_beginning_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(federate, "PAUSE", 0.0)
    hello = Envelope("hello", {"site": "a", "features": 5, "classes": ["x"], "relations": 1})
    sites = Sites(lambda client, _: hello if client == 1 else None)
    coordinator = Coordinator(EXPERIMENT, RUN, NAMES, sites, tmp_path, Terms(deadline=5, patience=0.01))
    with pytest.raises(FedpubError, match=r"no answer \(hello\) from a, c within 0.01 s"):
        coordinator.prepare()
    assert set(sites.asked[-1]) == {0, 2} or len(sites.asked) == 1, "who has answered is not asked again"


def test_set_up_counts_the_messages_of_both_directions(tmp_path):
    experiment = Experiment(dataset="communities", clients=4, scenario="disjoint", method="fedgnn", rounds=1, hidden=4)
    sites, counted = InProcessSites(tmp_path, experiment), {"up": 0, "down": 0}

    def exchange(messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        answers = sites(messages, deadline)
        if all(decode(envelope).kind == "setup" for envelope in messages.values()):
            counted["down"] += sum(map(len, messages.values()))
            counted["up"] += sum(map(len, answers.values()))
        return answers

    found = Coordinator(experiment, RUN, sites.names, exchange, tmp_path, Terms(deadline=60)).prepare()
    assert found.setup is not None
    assert (found.setup["setup_bytes_up"], found.setup["setup_bytes_down"]) == (counted["up"], counted["down"])
    assert min(counted.values()) > 0


def test_what_a_site_sends_before_the_rounds_is_looked_at(tmp_path):
    """By what may be sent at all, by its values, and by the method itself."""
    experiment = Experiment(dataset="communities", method="fedgnn", rounds=1, dtype="float64")
    coordinator = Coordinator(experiment, RUN, NAMES, Sites(lambda *_: None), tmp_path, Terms(deadline=5))
    whole = {
        "pointer": torch.tensor([[0, 1]], dtype=torch.int32),
        "columns": torch.tensor([[4]], dtype=torch.int32),
        "values": torch.tensor([[0.5]]).double(),
    }

    def wrong(**changes: Any) -> str | None:
        upload = Message({"features": {**whole, **changes.pop("features", {})}, **changes})
        return coordinator.preparation.problem(known(), 0, coordinator.algorithm.setup().init_server(3), 1, upload)

    assert wrong() is None
    assert "['labels'], which the method does not declare" in str(wrong(labels=torch.ones(1, 3)))
    assert "values has values that are not finite" in str(wrong(features={"values": whole["values"] / 0}))
    assert "a column outside" in str(wrong(features={"columns": whole["columns"] + 1}))


@pytest.mark.parametrize(("size", "good"), [(0, True), (7, True), (-1, False), (8, False)])
def test_a_site_has_no_fewer_examples_than_none_and_no_more_than_it_can_have(size, good):
    assert (wrong_values(Message({"size": torch.tensor([size])}), 7) is None) == good
