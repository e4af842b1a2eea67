"""Sites that answer messages, and the coordinator that writes them: the simulator's numbers, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors
from fedpub.data.clients.subgraph_files import write_subgraph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.federation import coordinator as federate
from fedpub.federation.coordinator import Coordinator, _first, _measured
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.joining import Finished, check_joinable
from fedpub.federation.known import Known
from fedpub.federation.part import OnePiece
from fedpub.federation.policy import Policy, check_agreed
from fedpub.federation.requests import Terms
from fedpub.federation.site import Site
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.runs.simulated import run
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.model_files import load_model
from fedpub.store.run_models import model_of_run

RUN = "0123456789abcdef"
TERMS = Terms(deadline=5, patience=20)


def number_of(messages: Mapping[int, bytes]) -> set[int]:
    """The rounds that messages are of; none where they are about something else."""
    asked = [decode(envelope) for envelope in messages.values()]
    return {envelope.fields["round"] for envelope in asked if envelope.kind == "round"}


def coordinator(
    sites: InProcessSites, experiment: Experiment, terms: Terms = TERMS, exchange=None, events=None
) -> Coordinator:
    def on_event(client, what, number, reason):
        if events is not None:
            events.append((client, what, number, reason))

    return Coordinator(experiment, RUN, sites.names, exchange or sites, sites.folder, terms, on_event)


def small(method: str, **changes) -> Experiment:
    usual = {"clients": 4, "scenario": "disjoint", "rounds": 3, "hidden": 8, "dtype": "float64", "dropout": 0.3}
    return Experiment(**{"dataset": "communities", "method": method, **usual, **changes})


def assert_same_rows(one: Path, other: Path, tolerance: float = 1e-9) -> None:
    """The same weights at the server, and the same numbers of every client as far as sites tell them."""
    found, expected = read_rows(one), read_rows(other)
    assert len(found) == len(expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        for column in theirs.clients:
            if not column.startswith("bytes"):
                assert_told(mine.clients[column], theirs.clients[column], tolerance, f"{column} {mine.round}")
    states = [read_tensors(path / "checkpoint" / "state.safetensors") for path in (one, other)]
    assert states[0][1] == states[1][1]
    for name, leaf in states[1][0].items():
        if name.startswith("server/"):
            torch.testing.assert_close(states[0][0][name], leaf, rtol=0, atol=tolerance, msg=name)


def assert_told(found: list[float], expected: list[float], tolerance: float, what: str) -> None:
    """Four digits are told."""
    a, b = (torch.tensor(values, dtype=torch.float64) for values in (found, expected))
    slack = {"rtol": 5e-4, "atol": 5e-5} if tolerance else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(a, b, **slack, equal_nan=True, msg=what)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *((method, {}) for method in ("local", "fedavg", "fedprox", "fedper", "gcfl", "fedgnn", "fedsage", "fedpub")),
        ("fedpub", {"fraction": 0.5, "rounds": 5, "epochs": 2}),
        ("fedpub-plus", {"rounds": 5}),
        ("fedpub-plus", {"fraction": 0.5, "rounds": 6, "model": "sage"}),
        ("fedpub-plus", {"task": "link-prediction", "decoder": "mlp", "epochs": 2}),
        ("fedpub", {"options": {"lambda1": 0.5, "mask_lr": 10.0}}),
        ("fedpub", {"options": {"measure": "label", "proxy": "feature"}}),
        ("fedpub", {"task": "link-prediction", "model": "sage", "epochs": 2}),
        ("fedpub", {"options": {"embedding": "server", "lambda1": 0.5, "mask_lr": 10.0}}),
        ("fedgnn", {"scenario": "overlapping", "clients": 5}),
    ],
)
def test_sites_give_the_simulator_s_numbers(method, changes, tmp_path):
    experiment = small(method, **changes)
    expected = run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    summary = play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")
    for name in ("test", "val", "weighted_test", "sparsity"):
        assert summary[name] == pytest.approx(expected.summary[name], abs=5e-5)
    assert summary["best_round"] == expected.summary["best_round"]


@pytest.mark.parametrize("fraction", [1.0, 0.7])
def test_sites_find_the_simulator_s_communities(fraction, tmp_path, monkeypatch):
    """All phases of FED-PUB-plus: alone, both averages in turns, communities; the coordinator dies in the trial."""
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.method.ROUNDS_ALONE", 2)
    monkeypatch.setattr("fedpub.algorithms.fedpub_plus.standing.TRIAL", 4)
    experiment = small(
        "fedpub-plus", scenario="natural", clients=None, rounds=8 if fraction == 1 else 11, epochs=3, fraction=fraction,
        hidden=16, defence="none",
    )  # fmt: skip
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites, out = InProcessSites(tmp_path / "sites", experiment), tmp_path / "deployed"

    def dies(messages, deadline):
        if max(number_of(messages), default=0) > 4:
            raise KeyboardInterrupt
        return sites(messages, deadline)

    with pytest.raises(KeyboardInterrupt):
        play(coordinator(sites, experiment, exchange=dies), out)
    sites.restart()
    play(coordinator(sites, experiment), out)
    assert_same_rows(out, tmp_path / "simulated")
    server = RunDirectory(out).restore(torch.device("cpu"))[0].server
    assert len(server["communities"]["hop.bias"]) > 1
    assert int(server["tried"]) == 4
    assert int(server["decided"]) in (1, 2), "one of the two averages"


def test_restarts_at_both_ends_change_nothing(tmp_path):
    """After every round the coordinator and all sites die."""
    experiment = small("fedpub", rounds=4, options={"lambda1": 0.5, "mask_lr": 10.0})
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites, out = InProcessSites(tmp_path / "sites", experiment), tmp_path / "deployed"
    for _ in range(3):

        def dies(messages, deadline, last=len(read_rows(out)) + 1):  # noqa: B008
            if max(number_of(messages), default=0) > last:
                raise KeyboardInterrupt
            return sites(messages, deadline)

        with pytest.raises(KeyboardInterrupt):
            play(coordinator(sites, experiment, exchange=dies), out)
        sites.restart()
    play(coordinator(sites, experiment), out)
    assert len(read_rows(out)) == 4
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_a_coordinator_that_dies_before_it_saved_gets_the_same_answers(tmp_path):
    """The sites have trained, the coordinator has not aggregated: asked again, they do not train again."""
    experiment = small("fedpub")
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def dies_after(messages, deadline):
        answers = sites(messages, deadline)
        if number_of(messages):
            raise KeyboardInterrupt
        return answers

    with pytest.raises(KeyboardInterrupt):
        play(coordinator(sites, experiment, exchange=dies_after), tmp_path / "deployed")
    assert all((tmp_path / "sites" / name / "runs" / RUN / "round-1.safetensors").is_file() for name in sites.names)
    sites.restart()
    play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_every_message_may_come_twice(tmp_path):
    experiment = small("gcfl")
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)

    def twice(messages, deadline):
        first = sites(messages, deadline)
        assert sites(messages, deadline) == first
        return first

    play(coordinator(sites, experiment, exchange=twice), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_a_site_that_is_away_is_left_out_and_comes_back(tmp_path):
    """Site 2 answers round 2 too late: it trained, but takes that back, as a client that failed in the simulator."""
    experiment = small("fedpub", rounds=4)
    sites, events = InProcessSites(tmp_path / "sites", experiment), []

    def late(messages, deadline):
        answers = sites(messages, deadline)
        if 2 in number_of(messages):
            del answers[2]
        return answers

    play(coordinator(sites, experiment, exchange=late, events=events), tmp_path / "deployed")
    assert events == [(2, "left out", 2, "no valid answer within the deadline")]
    simulated = simulate_without(experiment, {2: [0, 1, 3]})
    for mine, theirs in zip(read_rows(tmp_path / "deployed"), simulated, strict=True):
        for name in ("val", "test", "loss", "sparsity"):
            assert_told(mine.clients[name], theirs[name], 1e-9, f"{name} {mine.round}")


def simulate_without(experiment: Experiment, present: dict[int, list[int]]) -> list[dict]:
    """The simulator's rounds with these clients in some of them."""
    from fedpub.engine import simulate as module

    plan = experiment.resolve()
    ready, original = prepare(plan), module.participants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "participants", lambda s, n, k, f, x: present.get(n) or original(s, n, k, f, x))
        rounds = module.simulate(plan.algorithm, plan.context, ready.federation, plan.rounds)
        return [
            {
                **{k: v.tolist() for k, v in one.metrics.items()},
                "loss": one.loss_R.tolist(),
                "sparsity": one.sparsity_R.tolist(),
            }
            for one in rounds
        ]


def test_a_site_that_lost_its_folder_begins_anew(tmp_path):
    experiment, events = small("fedpub", rounds=4), []
    sites = InProcessSites(tmp_path / "sites", experiment)

    def loses(messages, deadline):
        if 3 in number_of(messages) and not events:
            sites.restart()
            for file in (tmp_path / "sites" / "site-1" / "runs" / RUN).iterdir():
                file.unlink()
        return sites(messages, deadline)

    play(coordinator(sites, experiment, exchange=loses, events=events), tmp_path / "deployed")
    assert [event[:3] for event in events] == [(1, "began anew", 3), (1, "left out", 3)]
    assert [row.clients["took_part"] for row in read_rows(tmp_path / "deployed")][2:] == [[1, 0, 1, 1], [1, 1, 1, 1]]


def test_too_few_sites_are_waited_for(tmp_path, monkeypatch):
    """A round that needs three of four is played again until it has them."""
    monkeypatch.setattr(federate, "PAUSE", 0.0)
    experiment = small("fedavg")
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites, tries = InProcessSites(tmp_path / "sites", experiment), []

    def few(messages, deadline):
        answers = sites(messages, deadline)
        if 2 in number_of(messages):
            tries.append(1)
            if len(tries) < 3:
                return {client: answers[client] for client in (0, 1)}
        return answers

    play(coordinator(sites, experiment, Terms(deadline=5, patience=20, min_sites=3), few), tmp_path / "deployed")
    assert len(tries) == 3
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_other_data_than_the_run_began_with_is_refused(tmp_path):
    experiment = small("fedavg", rounds=1)
    sites, events = InProcessSites(tmp_path / "sites", experiment), []
    play(coordinator(sites, experiment), tmp_path / "deployed")
    sites.restart()
    other = prepare(small("fedavg", data_seed=5).resolve())
    write_subgraph(
        tmp_path / "sites" / "site-0" / "piece.safetensors", other.federation.subgraphs[0], other.graph.classes
    )
    (tmp_path / "deployed" / "summary.json").unlink()
    play(coordinator(sites, experiment, events=events), tmp_path / "deployed")
    assert "changed after the run began" in events[0][3]


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_rounded_uploads_are_smaller_and_as_good(precision, tmp_path):
    experiment = small("fedpub", rounds=6, dtype="float32")
    sizes, results = {}, {}
    for kind in ("exact", precision):
        sites = InProcessSites(tmp_path / kind / "sites", experiment)
        summary = play(coordinator(sites, experiment, Terms(deadline=5, precision=kind)), tmp_path / kind / "deployed")
        sizes[kind], results[kind] = summary["bytes_up"], summary["val"]
    assert sizes[precision] < {"float16": 0.62, "int8": 0.42}[precision] * sizes["exact"]
    assert results[precision] == pytest.approx(results["exact"], abs=0.05)


def test_of_rounds_that_are_level_the_coordinator_keeps_the_one_of_lower_loss():
    """Two sites, whose accuracies change places: the mean is 0.5 in every round. Test values decide nothing."""
    first = {"val": 0.1, "val_loss": 2.0, "test": 0.1, "test_f1": 0.1, "sparsity": 0.0}
    clients = _first(Known(("a", "b"), 5, ("x", "y"), (1, 1), (), (first, first)))
    found = []
    for number, (loss, test) in enumerate(((0.9, 0.9), (0.7, 0.2), (0.8, 1.0)), 1):
        metrics = [first | {"val": val, "val_loss": loss, "test": test} for val in ((0.3, 0.7), (0.7, 0.3))[number % 2]]
        answers = {client: Envelope("round", {"metrics": one}) for client, one in enumerate(metrics)}
        clients = _measured(clients, answers, number)
        found.append(int(clients["best"]))
    assert found == [1, 2, 2]


def test_every_site_keeps_the_model_of_the_best_round(tmp_path):
    experiment = small("fedpub", rounds=5, fraction=0.5, epochs=3)
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    summary = play(coordinator(sites, experiment), tmp_path / "deployed")
    for client, name in enumerate(sites.names):
        weights, card = load_model(tmp_path / "sites" / name / "model")
        expected, _ = model_of_run(tmp_path / "simulated", client)
        assert (card.site, card.round) == (name, summary["best_round"])
        for leaf in expected:
            torch.testing.assert_close(weights[leaf], expected[leaf], rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["fedpub", "fedpub-plus", "fedavg", "fedper"])
def test_a_new_site_joins_a_finished_run(method, tmp_path):
    """Client 3 of four is kept out; with FED-PUB it gets most from those whose models answer as its own does."""
    everyone = small(method, rounds=8, epochs=2)
    sites = InProcessSites(tmp_path / "sites", everyone)
    new = sites.names.pop()
    plan = everyone.resolve()
    leader = coordinator(sites, plan)
    play(leader, tmp_path / "deployed")
    start, _ = RunDirectory(tmp_path / "deployed").restore(torch.device("cpu"))
    known = Known.load(tmp_path / "sites" / "sites.json")
    place = tmp_path / "sites" / new
    site = Site(place, new, lambda: OnePiece(place / "piece.safetensors"))
    finished = Finished(plan, RUN, known, start.server, start.clients)
    told = finished.join(new, 3, lambda messages, _: {0: site.answer(messages[0])}, 5.0)
    assert site.finished
    fields = {"run": RUN, "experiment": plan.experiment.to_json(), "client": 3, "step": "near", "epochs": 99}
    fields |= {"classes": list(known.classes), "precision": "exact", "sites": 4}
    longer = Envelope("join", fields | {"nearest": {}})
    assert "20 epochs, not the 99" in decode(site.answer(encode(longer))).fields["reason"]
    assert set(told["nearest"]) == {"site-0", "site-1", "site-2"}
    assert sum(told["nearest"].values()) == pytest.approx(1, abs=1e-5)
    assert (len(set(told["nearest"].values())) > 1) == (method == "fedpub")
    joined, alone = ((told[which]["val"], -told[which]["val_loss"]) for which in ("joined", "alone"))
    assert told["kept"] == ("joined" if joined > alone else "alone")
    _, card = load_model(place / "model")
    assert card.test == pytest.approx(told[told["kept"]]["test"])
    assert json.loads((place / "join.json").read_text()) == told


class Absent:
    """An exchange in which a site does not answer in some rounds."""

    def __init__(self, sites: InProcessSites, client: int, rounds: range) -> None:
        self.sites, self.client, self.rounds = sites, client, rounds

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        away = not number_of(messages).isdisjoint(self.rounds)
        return self.sites({c: data for c, data in messages.items() if c != self.client or not away}, deadline)


def test_a_site_that_comes_late_begins_alone_and_then_takes_part(tmp_path):
    """Alone, it does not move from the first weights, while the others' average does: the site's checks know that."""
    experiment = small("fedpub-plus", rounds=16, epochs=2)
    sites = InProcessSites(tmp_path / "sites", experiment)
    events: list = []
    play(coordinator(sites, experiment, exchange=Absent(sites, 3, range(1, 9)), events=events), tmp_path / "deployed")
    assert [event for event in events if event[1] == "refused"] == []
    rows = read_rows(tmp_path / "deployed")
    assert [bool(row.clients["took_part"][3]) for row in rows] == [False] * 8 + [True] * 8
    assert [row.clients["community"][3] for row in rows[8:]] == [-1] * 4 + [0] * 4
    everyone = [row.clients["used"][3] for row in rows[8:13]]
    assert 1 not in everyone, "it has not trained the average of all yet"


@pytest.mark.parametrize("lost", [0, 3])
def test_who_joins_is_told_nothing_of_a_member_that_was_lost(lost, tmp_path):
    """A member that was lost after three rounds is still alone for the coordinator; the newcomer is not."""
    everyone = small("fedpub-plus", clients=5, rounds=8, epochs=2)
    sites = InProcessSites(tmp_path / "sites", everyone)
    new = sites.names.pop()
    leader = coordinator(sites, everyone, exchange=Absent(sites, lost, range(4, 9)))
    play(leader, tmp_path / "deployed")
    start, _ = RunDirectory(tmp_path / "deployed").restore(torch.device("cpu"))
    known = Known.load(tmp_path / "sites" / "sites.json")
    place = tmp_path / "sites" / new
    site = Site(place, new, lambda: OnePiece(place / "piece.safetensors"))
    asked: list[Envelope] = []

    def exchange(messages: Mapping[int, bytes], _: float) -> dict[int, bytes]:
        asked.append(decode(messages[0]))
        return {0: site.answer(messages[0])}

    told = Finished(everyone.resolve(), RUN, known, start.server, start.clients).join(new, 4, exchange, 5.0)
    assert told["nearest"][f"site-{lost}"] == 0
    assert sum(told["nearest"].values()) == pytest.approx(1, abs=1e-5)
    assert [one.message["phase"].item() for one in asked] == [0, 1], "alone, then with everyone"
    average = start.server["everyone"]
    for name, leaf in asked[1].message["weights"].items():
        torch.testing.assert_close(leaf, average[name])


@pytest.mark.parametrize("change", [lambda like: like * float("nan"), lambda like: like[:, :3]], ids=["nan", "short"])
def test_what_characterises_a_newcomer_is_looked_at(change):
    experiment = small("fedpub-plus", rounds=8).resolve()
    known = Known(("a", "b"), 5, ("x", "y"))
    clients = {"fingerprint": torch.ones(2, 8, dtype=torch.float64)}
    server = experiment.algorithm.init_server({"w": torch.ones(2, 3, dtype=torch.float64)}, 2)
    answer = encode(Envelope("join", {}, Message({"fingerprint": change(torch.ones(1, 8, dtype=torch.float64))})))
    finished = Finished(experiment, RUN, known, server, clients)
    with pytest.raises(FedpubError, match="'new' cannot join: what characterises it is malformed"):
        finished.join("new", 2, lambda *_: {0: answer}, 5.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"dataset": "cora"}, None),
        ({"epochs": 2}, "asks for epochs 1, but this site has agreed to 2"),
        ({"options": {"tau": 1.0}}, r"asks for tau 10.0, but this site has agreed to 1.0"),
        ({"method": "fedavg"}, "asks for method 'fedpub', but this site has agreed to 'fedavg'"),
    ],
)
def test_a_site_takes_part_in_what_it_agreed_to_and_in_nothing_else(changes, words):
    asked = small("fedpub").resolve().experiment
    agreed = replace(asked, **{"options": asked.options | changes.pop("options", {})} | changes)
    if words is None:
        check_agreed(asked, agreed)
    else:
        with pytest.raises(FedpubError, match=words):
            check_agreed(asked, agreed)
    check_agreed(asked, None)


def test_a_site_that_agreed_to_something_else_refuses_the_run(tmp_path):
    experiment = small("fedpub")
    sites = InProcessSites(tmp_path / "sites", experiment)
    other = replace(experiment.resolve().experiment, rounds=99)
    place = tmp_path / "sites" / "site-2"
    Policy(experiment=other).save(place)
    with pytest.raises(FedpubError, match=r"site-2.*rounds 3, but this site has agreed to 99"):
        play(coordinator(sites, experiment), tmp_path / "deployed")


def test_progress_is_told_as_rounds_are_written_and_no_file_is_read_for_it(tmp_path, monkeypatch):
    experiment, told, read = small("fedavg", rounds=4), [], []
    sites = InProcessSites(tmp_path / "sites", experiment)
    monkeypatch.setattr("fedpub.store.directory.read_rows", lambda path: read.append(path) or read_rows(path))
    play(coordinator(sites, experiment), tmp_path / "deployed", lambda row, rounds: told.append((row.round, rounds)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(read) == 1, "once, when the run begins or is resumed"


def test_a_site_answers_no_round_beyond_the_last_and_says_so_at_home(tmp_path):
    experiment = small("fedpub")
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "deployed")
    site = sites.site(1)
    answer = decode(site.answer(encode(Envelope("round", {"run": RUN, "round": 4, "base": 3, "best": 1}))))
    assert answer.kind == "refused"
    assert "round 4 is beyond the 3 rounds" in answer.fields["reason"]
    assert "refused what the coordinator asked for: round 4" in site.news


def test_what_was_agreed_on_says_nothing_of_the_device(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(replace(small("fedpub"), device="cuda").to_json(), encoding="utf-8")
    check_agreed(small("fedpub").resolve().experiment, Experiment.read(path))


@pytest.mark.parametrize("method", ["local", "fedsage"])
def test_nobody_can_join_what_shares_nothing_or_too_much(method):
    with pytest.raises(FedpubError, match="a new site cannot join"):
        check_joinable(small(method).resolve().algorithm)


def test_cora_at_four_sites(real_data, tmp_path):
    experiment = small("fedpub", dataset="cora", hidden=16, rounds=4, options={"lambda1": 3.0, "mask_lr": 6.0})
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")


def test_the_best_round_is_chosen_by_validation_values(tmp_path):
    """Validation values fall from round to round, test values rise: round 1 is the best."""
    experiment, seen = small("fedavg"), set()
    sites = InProcessSites(tmp_path / "sites", experiment)

    def told(messages, deadline):
        answers = sites(messages, deadline)
        seen.update(envelope.fields["best"] for envelope in map(decode, messages.values()) if "best" in envelope.fields)
        for number in number_of(messages):
            for client, answer in answers.items():
                envelope = decode(answer)
                metrics = envelope.fields["metrics"] | {"val": 0.9 - number / 10, "test": number / 10}
                answers[client] = encode(replace(envelope, fields={**envelope.fields, "metrics": metrics}))
        return answers

    summary = play(coordinator(sites, experiment, exchange=told), tmp_path / "deployed")
    assert summary["best_round"] == 1
    assert seen == {0, 1}
