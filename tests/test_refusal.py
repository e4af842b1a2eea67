"""Sites that are broken or hostile: what they send is refused, said, and never reaches the aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedpub.engine.deployed import play
from fedpub.engine.federate import Terms
from fedpub.engine.robust import bounded, clipped
from fedpub.engine.table import Table
from fedpub.engine.wire import Letter, decode, encode
from fedpub.errors import FedpubError
from fedpub.results import read_rows
from fedpub.running import run
from test_federate import TERMS, assert_same_rows, coordinator, number_of, small

Change = Callable[[Letter], Letter | bytes]


def with_weights(change) -> Change:
    def changed(letter: Letter) -> Letter:
        return replace(letter, message={**letter.message, "weights": change(dict(letter.message["weights"]))})

    return changed


def with_fields(**fields) -> Change:
    return lambda letter: replace(letter, fields={**letter.fields, **fields})


def with_metrics(**metrics) -> Change:
    return lambda letter: replace(letter, fields={**letter.fields, "metrics": {**letter.fields["metrics"], **metrics}})


def without_active(leaf):
    return torch.full_like(leaf, float("nan"))


BAD: dict[str, tuple[Change, str]] = {
    "not a letter": (lambda _: b"garbage", "message"),
    "another name": (with_weights(lambda w: {**w, "conv9.weight": w["conv2.weight"]}), "weights has"),
    "a name missing": (with_weights(lambda w: {n: v for n, v in w.items() if n != "conv1.bias"}), "weights has"),
    "an undeclared tree": (lambda one: replace(one, message={**one.message, "masks": {}}), "it has ['active'"),
    "another shape": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"][:, :-1]}), "conv1.bias is [1, 7]"),
    "another type": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"].float()}), "torch.float32, not"),
    "two clients": (with_weights(lambda w: {**w, "conv1.bias": w["conv1.bias"].repeat(2, 1)}), "conv1.bias is [2, 8]"),
    "NaN": (with_weights(lambda w: {**w, "conv1.bias": without_active(w["conv1.bias"])}), "conv1.bias has values"),
    "an infinity": (
        lambda one: replace(one, message={**one.message, "embedding": torch.full((1, 8), float("inf")).double()}),
        "embedding has values",
    ),
    "an absurd norm": (with_weights(lambda w: {**w, "conv2.bias": w["conv2.bias"] + 1e6}), "away from what was sent"),
    "another round": (with_fields(round=7), "it is of round 7, not 2"),
    "a loss that is none": (with_fields(loss=float("nan")), "its loss is nan"),
    "a loss in words": (with_fields(loss="small"), "its loss is 'small'"),
    "an accuracy above one": (with_metrics(val=1.5), "its val is 1.5"),
    "an unknown metric": (with_metrics(fame=0.5), "its metrics are not"),
    "another kind": (lambda one: Letter("refused", {"reason": "I would rather not"}, {}), "I would rather not"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_refused_and_said(name, tmp_path):
    """Site 1 misbehaves in round 2: the others' round is as if it had not been there."""
    change, reason = BAD[name]
    experiment = small("fedpub", rounds=2)
    table, events = Table(tmp_path / "sites", experiment), []

    def bad(letters, deadline):
        answers = table(letters, deadline)
        if 2 in number_of(letters):
            made = change(decode(answers[1]))
            answers[1] = made if isinstance(made, bytes) else encode(made)
        return answers

    play(coordinator(table, experiment, exchange=bad, events=events), tmp_path / "deployed")
    assert events[0][:3] == (1, "refused", 2)
    assert reason in events[0][3], events
    absent, other = Table(tmp_path / "absent", experiment), []

    def away(letters, deadline):
        answers = absent(letters, deadline)
        return {client: data for client, data in answers.items() if client != 1 or 2 not in number_of(letters)}

    play(coordinator(absent, experiment, exchange=away, events=other), tmp_path / "without")
    assert_same_rows(tmp_path / "deployed", tmp_path / "without", 0.0)
    assert read_rows(tmp_path / "deployed")[1].clients["took_part"] == [1, 0, 1, 1]


def test_an_answer_above_the_limit_is_refused(tmp_path):
    experiment = small("fedavg", rounds=1, hidden=400)
    table, events = Table(tmp_path / "sites", experiment), []
    tight = Terms(deadline=5, patience=0.1, max_message=1)
    with pytest.raises(FedpubError, match="round 1 has the answers of 0 sites and needs 2"):
        play(coordinator(table, experiment, tight, events=events), tmp_path / "deployed")
    assert {event[1] for event in events} == {"refused", "left out"}


def test_a_method_that_needs_all_data_cannot_be_deployed(tmp_path):
    with pytest.raises(FedpubError, match="oracle needs all data in one place"):
        coordinator(Table(tmp_path, small("fedavg")), small("oracle"))


def test_sites_with_other_columns_are_told(tmp_path):
    table = Table(tmp_path / "sites", small("fedavg"))
    other = Table(tmp_path / "other", small("fedavg", dataset="communities-5-15", clients=20))
    (tmp_path / "sites" / "site-2" / "piece.safetensors").write_bytes(
        (tmp_path / "other" / other.names[2] / "piece.safetensors").read_bytes()
    )
    with pytest.raises(FedpubError, match=r"site 'site-2' has \d+ features and 'site-0'"):
        play(coordinator(table, small("fedavg"), TERMS), tmp_path / "deployed")


def test_long_steps_are_shortened():
    """Sent (0, 0); uploads (3, 4) and (0, 1); at most 2 away: the first becomes (1.2, 1.6)."""
    up = {"weights": {"w": torch.tensor([[3.0, 4.0], [0.0, 1.0]])}, "size": torch.tensor([1, 1])}
    found = clipped(up, {"weights": {"w": torch.zeros(2, 2)}}, 2.0)
    torch.testing.assert_close(found["weights"]["w"], torch.tensor([[1.2, 1.6], [0.0, 1.0]]))
    assert found["size"] is up["size"]


def test_entries_far_from_the_median_are_brought_near():
    """1, 2, 3, 4, 100: median 3, deviations 2, 1, 0, 1, 97 with the median 1, so 100 becomes 6."""
    up = {"weights": {"w": torch.tensor([[1.0], [2.0], [3.0], [4.0], [100.0]])}}
    assert bounded(up)["weights"]["w"].flatten().tolist() == [1, 2, 3, 4, 6]


def test_the_median_is_of_those_who_sent():
    """Of 1, 2, 3 and 100, where the client with 2 pruned the entry: median 3, deviations 2, 0 and 97."""
    active = {"w": torch.tensor([[True], [False], [True], [True]])}
    up = {"weights": {"w": torch.tensor([[1.0], [2.0], [3.0], [100.0]])}, "active": active}
    found = bounded(up)["weights"]["w"].flatten().tolist()
    assert [found[0], found[2], found[3]] == [1, 3, 9]


@pytest.mark.parametrize("terms", [Terms(deadline=5, clip=0.5), Terms(deadline=5, aggregate="median")])
def test_a_hostile_site_does_little_with_bounds(terms, tmp_path):
    """Site 3 sends weights that are far off but not absurd; with a bound the others lose less than without."""
    experiment = small("fedavg", rounds=4, epochs=3, scenario="disjoint", clients=5)

    def hostile(table: Table):
        def exchange(letters, deadline):
            answers = table(letters, deadline)
            if number_of(letters):
                spoil = with_weights(lambda w: {name: leaf + 5 for name, leaf in w.items()})
                answers[3] = encode(spoil(decode(answers[3])))
            return answers

        return exchange

    losses = {}
    for name, kind in (("without", Terms(deadline=5)), ("with", terms)):
        table = Table(tmp_path / name / "sites", experiment)
        play(coordinator(table, experiment, kind, hostile(table)), tmp_path / name / "deployed")
        losses[name] = read_rows(tmp_path / name / "deployed")[-1].clients["loss"][0]
    honest = run(experiment).record.rows[-1].clients["loss"][0]
    assert losses["with"] < losses["without"]
    assert losses["with"] < 2 * honest


@pytest.mark.parametrize("answer", [None, b"garbage", encode(Letter("refused", {"reason": "never"}, {}))])
def test_a_site_that_says_it_lost_everything_holds_nobody_up(answer, tmp_path):
    """Told to begin anew, it is silent, talks nonsense or refuses: the others' rounds go on."""
    experiment, events = small("fedpub", rounds=3), []
    table = Table(tmp_path / "sites", experiment)

    def spoils(letters, deadline):
        if list(letters) == [1]:
            return {} if answer is None else {1: answer}
        answers = table(letters, deadline)
        if number_of(letters) - {1}:
            answers[1] = encode(Letter("lost", {"reason": "all is gone"}, {}))
        return answers

    play(coordinator(table, experiment, exchange=spoils, events=events), tmp_path / "deployed")
    assert [row.clients["took_part"] for row in read_rows(tmp_path / "deployed")][1:] == [[1, 0, 1, 1]] * 2
    assert any("did not begin anew" in event[3] for event in events)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("hello", {"features": "many"}),
        ("hello", {"classes": [1, 2]}),
        ("begun", {"metrics": {}}),
        ("begun", {"test_size": -1}),
        ("begun", {"idle": "no"}),
    ],
)
def test_a_site_that_talks_nonsense_at_the_beginning_is_named(kind, changed, tmp_path):
    experiment = small("fedavg")
    table = Table(tmp_path / "sites", experiment)

    def nonsense(letters, deadline):
        answers = table(letters, deadline)
        letter = decode(answers[2])
        if letter.kind == kind:
            answers[2] = encode(replace(letter, fields={**letter.fields, **changed}))
        return answers

    with pytest.raises(FedpubError, match="site 'site-2' cannot take part"):
        play(coordinator(table, experiment, exchange=nonsense), tmp_path / "deployed")


def test_a_set_up_that_sends_more_than_is_declared_is_refused(tmp_path):
    experiment = small("fedgnn")
    table = Table(tmp_path / "sites", experiment)

    def more(letters, deadline):
        answers = table(letters, deadline)
        letter = decode(answers[0])
        if letter.kind == "setup":
            answers[0] = encode(replace(letter, message={**letter.message, "masks": {}}))
        return answers

    with pytest.raises(FedpubError, match=r"site 'site-0' cannot take part: it sent \['masks'\]"):
        play(coordinator(table, experiment, exchange=more), tmp_path / "deployed")
