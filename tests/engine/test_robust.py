"""What a single hostile client can do to the others: bounds at the server, a guard at every client."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_federation import assert_same_rows, coordinator, small
from torch import Tensor

from fedpub.algorithms import FedAvg, FedPer, FedPub, Local
from fedpub.algorithms.fedpub_plus import FedPubPlus
from fedpub.bench.robust import ATTACKS, _played, attacked
from fedpub.cli import main
from fedpub.core.message import Message
from fedpub.core.tree import State, flatten, pack, stacked, tree_map
from fedpub.engine import guard, robust
from fedpub.engine.guard import guarded
from fedpub.engine.robust import bounded, capped, clipped
from fedpub.experiment import Experiment
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.paper.recipe import Settings
from fedpub.paper.store import key
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows
from fedpub.tasks import Task
from small import context, made_for, random_tree, refused, small_clients


def weights(w: Tensor, sent: Tensor | None = None) -> Message:
    return Message({"weights": {"w": w}}, {} if sent is None else {"w": sent})


def column(*values: float) -> Message:
    return weights(torch.tensor([[value] for value in values], dtype=torch.float64))


def entries(message) -> list[float]:
    return message["weights"]["w"].flatten().tolist()


# Clip


def test_a_step_longer_than_twice_the_median_site_s_is_shortened():
    """Sent (0, 0); steps of 1, 1 and 5, so at most 2: (3, 4) becomes (1.2, 1.6), and the others stay."""
    up = weights(torch.tensor([[3.0, 4.0], [0.0, 1.0], [1.0, 0.0]])) | {"size": torch.tensor([1, 1, 1])}
    found = clipped(up, weights(torch.zeros(3, 2)))
    torch.testing.assert_close(found["weights"]["w"], torch.tensor([[1.2, 1.6], [0.0, 1.0], [1.0, 0.0]]))
    assert found["size"] is up["size"]
    assert up["weights"]["w"][0].tolist() == [3, 4]  # what a client has is not written to


def test_what_a_site_did_not_send_is_no_step():
    """Sites send 1, 4 and 7 entries of ten and move them by 0.1 in all; the rest arrives as 0 and was 3."""
    sent = weights(torch.full((3, 10), 3.0, dtype=torch.float64))
    up = weights(torch.zeros(3, 10).double(), torch.zeros(3, 10, dtype=torch.bool))
    for site in range(3):
        count = 1 + 3 * site  # were they steps, the first site's would be three times as long as the last one's
        up["weights"]["w"][site, :count], up.sent["w"][site, :count] = 3.0 + 0.1 / count**0.5, True
    assert clipped(up, sent)["weights"]["w"] is up["weights"]["w"]
    up["weights"]["w"][1, 0] = 1e6
    found = clipped(up, sent)["weights"]["w"]
    assert float((found[1, :4] - 3).norm()) == pytest.approx(0.2)
    assert float(found[0, 0]) == pytest.approx(3.1)


def test_of_two_nobody_is_the_odd_one():
    up, sent = column(0.3, -1_000_000.0), column(0.0, 0.0)
    assert entries(clipped(up, sent)) == entries(bounded(up, sent)) == [0.3, -1_000_000]


def test_idle_sites_do_not_shorten_the_others_steps():
    up, sent = column(0.0, 0.0, 0.0, 1.0), column(0.0, 0.0, 0.0, 0.0)
    assert entries(clipped(up, sent)) == [0, 0, 0, 1]
    assert entries(clipped(column(*[0.0] * 3), column(*[0.0] * 3))) == [0, 0, 0]


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=9), st.floats(-1e6, 1e6))
@settings(max_examples=50, deadline=None)
def test_one_site_moves_a_clipped_mean_by_a_bounded_amount(honest, hostile):
    """Whatever it sends, its step is at most twice the longest honest one; and looking at values changes nothing."""
    up, sent = column(*honest, hostile), column(*[0.0] * (len(honest) + 1))
    found = clipped(up, sent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedpub.core.recording.recording", lambda _: True)
        assert entries(found) == entries(clipped(up, sent))
    assert abs(entries(found)[-1]) <= 2 * max(honest) * (1 + 1e-12)


def test_the_order_of_leaves_does_not_matter():
    """A file has them in another order than a model: a resumed run must clip by the same lengths, to the last bit."""
    stream = torch.Generator().manual_seed(0)
    size = torch.where(torch.arange(40) % 3 == 0, 9.0, 1.0).unsqueeze(1)
    part = {name: torch.randn(40, 37, generator=stream) * size for name in "lkjihgfedcba"}
    sent = Message({"weights": {name: torch.zeros_like(leaf) for name, leaf in part.items()}})
    one = clipped(Message({"weights": part}), sent)["weights"]
    other = clipped(Message({"weights": dict(sorted(part.items()))}), sent)["weights"]
    assert not torch.equal(one["a"], part["a"])
    for name, leaf in one.items():
        assert torch.equal(leaf, other[name])


# Median


def test_entries_far_from_the_median_are_brought_near():
    """1, 2, 3, 4, 100: median 3, deviations 2, 1, 0, 1, 97 with the median 1, so 100 becomes 6."""
    assert entries(bounded(column(1, 2, 3, 4, 100), column(*[0.0] * 5))) == [1, 2, 3, 4, 6]


def test_the_median_is_of_those_who_sent():
    """Of 1, 2, 3 and 100, where the client with 2 pruned the entry: median 3, deviations 2, 0 and 97."""
    sent = {"w": torch.tensor([[True], [False], [True], [True]])}
    found = entries(bounded(Message(column(1, 2, 3, 100).parts, sent), column(*[0.0] * 4)))
    assert [found[0], found[2], found[3]] == [1, 3, 9]


@pytest.mark.parametrize("senders", [1, 2])
def test_an_entry_that_few_sent_moves_no_further_than_entries_do(senders):
    """All move the first entry by 0.3. The last one and perhaps the first send the second, to 0.3 and -1,000,000."""
    moved = torch.tensor([[0.3, 0.3], [0.3, 0.0], [0.3, -1e6]], dtype=torch.float64)
    up = weights(moved, torch.tensor([[True, senders == 2], [True, False], [True, True]]))
    found = bounded(up, weights(torch.zeros(3, 2, dtype=torch.float64)))["weights"]["w"]
    assert found[:, 0].tolist() == [0.3, 0.3, 0.3]
    assert float(found[0, 1]) == 0.3
    assert float(found[2, 1]) == pytest.approx(-0.9)


# Counts


def test_claims_of_examples_are_capped():
    """The median of 10, 20, 30 and the claim is 20: three times that count; sites without examples say nothing."""
    claimed = torch.tensor([10, 0, 20, 30, 0, 2**62])
    assert capped(Message({"size": claimed}))["size"].tolist() == [10, 0, 20, 30, 0, 60]
    assert claimed[-1] == 2**62
    assert capped(Message({"size": torch.tensor([10, 2**62])}))["size"].tolist() == [10, 30]
    assert capped(Message({"size": torch.tensor([0, 0])}))["size"].tolist() == [0, 0]
    assert capped(Message({"size": torch.tensor([10, 15, 30])}))["size"].tolist() == [10, 15, 30]
    assert capped(Message()).flat() == {}


# Guard


@dataclass(frozen=True)
class Judge(Task):
    """A task in which the mean of a client's weights is its accuracy."""

    metrics: ClassVar[tuple[str, ...]] = ("val",)

    def evaluate(self, model: object, w: dict[str, Tensor], data: object) -> dict[str, Tensor]:
        return {"val": torch.cat([leaf.flatten(1) for leaf in w.values()], 1).mean(1)}


GUARD = replace(context(), task=Judge(), defence="guard")


def pair(*values: tuple[float, float]) -> State:
    return {"weights": {"a": torch.tensor(values), "b": torch.tensor(values)}}


def test_what_harms_a_client_is_not_used(monkeypatch):
    """Own accuracy 0.8; received 0.65, 0.59 and 0.61: only the second loses more than twenty points."""
    own, message = pair((0.8, 0.8), (0.8, 0.8), (0.8, 0.8)), Message(pair((0.65, 0.65), (0.59, 0.59), (0.8, 0.42)))
    for recorded in (False, True):
        monkeypatch.setattr("fedpub.core.recording.recording", lambda _, recorded=recorded: recorded)
        found = guarded(FedAvg(), GUARD, own, message, small_clients())["weights"]["b"]
        assert torch.equal(found, torch.tensor([[0.65, 0.65], [0.8, 0.8], [0.8, 0.42]]))
    for defence in ("none", "clip", "median", "default"):  # by default, one model for all is used as it is
        assert guarded(FedAvg(), replace(GUARD, defence=defence), own, message, small_clients()) is message


def test_without_validation_examples_what_comes_is_used():
    message = Message(pair((float("nan"), 0.0), (0.0, 0.0)))
    found = guarded(FedAvg(), GUARD, pair((0.9, 0.9), (0.9, 0.9)), message, small_clients(0, 1))["weights"]["a"]
    assert found[0].isnan().tolist() == [True, False]
    assert found[1].tolist() == pytest.approx([0.9, 0.9])


def test_a_personal_part_is_the_client_s_own_in_both():
    """FedPer: `b` stays at home. With it 0.6 the received 0.5 makes 0.55, against 0.8; with 0.9, 0.7 against 0.85."""
    own = {"weights": {"a": torch.tensor([[1.0], [0.8]]), "b": torch.tensor([[0.6], [0.9]])}}
    found = guarded(FedPer(), GUARD, own, Message({"base": {"a": torch.tensor([[0.5], [0.5]])}}), small_clients(0, 1))
    assert torch.equal(found["base"]["a"], torch.tensor([[1.0], [0.5]]))
    assert set(found) == {"base"}


def test_masks_are_the_client_s_own_in_both():
    """FED-PUB: an entry that is masked out cannot harm."""
    masks = {"a": torch.tensor([[[1.0, 0.0]], [[1.0, 1.0]]])}
    own = {"weights": {"a": torch.full((2, 1, 2), 0.8)}, "masks": masks}
    message = Message({"weights": {"a": torch.tensor([[[0.8, -9.0]], [[0.8, -9.0]]])}})
    for defence in ("guard", "default"):
        ctx = replace(GUARD, defence=defence)
        found = guarded(FedPub(tau=3.0), ctx, own, message, small_clients(0, 1))["weights"]["a"]
        assert found[:, 0, 1].tolist() == pytest.approx([-9.0, 0.8])


def test_a_method_that_sends_nothing_is_not_guarded():
    assert guarded(Local(), GUARD, pair((0.8, 0.8)), Message(), small_clients(0)).flat() == {}


# Both engines


@pytest.fixture
def strict(monkeypatch):
    """Bounds so tight that they matter in every round."""
    monkeypatch.setattr(robust, "STEPS", 0.5)
    monkeypatch.setattr(robust, "COUNTS", 0.5)
    monkeypatch.setattr(guard, "MARGIN", -0.02)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("method", "defence", "changes"),
    [
        ("fedpub", "default", {"fraction": 0.75}),
        ("fedpub", "default", {"options": {"lambda1": 0.5, "mask_lr": 10.0}}),
        ("fedpub", "median", {"fraction": 0.75, "options": {"lambda1": 0.5, "mask_lr": 10.0}}),
        ("fedpub-plus", "default", {"fraction": 0.75}),
        ("fedavg", "default", {"fraction": 0.75, "failures": 0.0}),
        ("fedper", "guard", {}),
        ("fedavg", "clip", {"clients": 2}),
        ("fedpub", "default", {"clients": 2}),
    ],
)
def test_sites_give_the_simulator_s_numbers_with_every_defence(method, defence, changes, tmp_path):
    experiment = small(method, **{"rounds": 5, "defence": defence, **changes})
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    plain = run(replace(experiment, defence="none"))
    play(coordinator(InProcessSites(tmp_path / "sites", experiment), experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")
    losses = [row.clients["loss"] for row in read_rows(tmp_path / "simulated")]
    if changes.get("clients") != 2 or defence == "default":  # the bounds were met
        assert losses != [row.clients["loss"] for row in plain.record.rows]


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("method", ["fedpub", "fedpub-plus", "fedavg", "gcfl"])
def test_chunks_do_not_matter_to_a_defence(method):
    experiment = small(method, rounds=4)
    whole, some = (run(experiment, chunk=chunk).record.rows for chunk in (None, 3))
    for one, other in zip(whole, some, strict=True):
        for name in ("loss", "val", "test"):
            torch.testing.assert_close(*(torch.tensor(row.clients[name]) for row in (one, other)), equal_nan=True)


@pytest.mark.usefixtures("strict")
def test_a_resumed_run_is_guarded_as_if_never_interrupted(tmp_path):
    experiment = small("fedpub", rounds=8, dtype="float32")  # in which the order of a sum shows

    def stop(row, rounds):
        if row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "one", checkpoint_seconds=0, on_round=stop)
    resumed = run(experiment, tmp_path / "one", resume=True)
    assert [row.clients["loss"] for row in resumed.record.rows] == [
        row.clients["loss"] for row in run(experiment).record.rows
    ]


@pytest.mark.parametrize(("method", "defence"), [("fedavg", "guard"), ("fedpub", "default")])
def test_of_two_clients_a_guard_knows_which_is_hostile(method, defence, monkeypatch):
    """It sends its weights with other signs, ten times as large."""
    monkeypatch.setattr(guard, "MARGIN", 0.0)  # after four rounds nobody has twenty points to lose
    experiment = small(method, rounds=4, epochs=3, scenario="disjoint", clients=2)
    played = {
        (attack, name): _played(replace(experiment, defence=name).resolve(), attack, {}, None)
        for attack, name in (("none", "none"), ("sign flip", "none"), ("sign flip", defence))
    }
    losses = {what: record.rows[-1].clients["loss"][1] for what, record in played.items()}
    assert losses["sign flip", defence] < losses["sign flip", "none"]


# Attacks


ROBUST = ["bench", "robust", "--dataset", "communities", "--clients", "4", "--rounds", "1", "--seeds", "0", "1"]


def test_the_attack_table(tmp_path, capsys):
    """Every attack with every defence, in small; each attack changes what the others get."""
    path, methods = tmp_path / "found.json", ("fedpub", "fedpub-plus", "fedavg")
    assert main([*ROBUST, "--methods", *methods, "--defences", "none", "default", "--json", str(path)]) == 0
    assert "a little is enough" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert len(found) == 3 * 2 * len(ATTACKS)
    assert {one["attack"] for one in found} == set(ATTACKS)
    assert {one["defence"] for one in found} == {"none", "default"}
    for one in found:
        assert one["accuracy"] == pytest.approx(sum(one["accuracies"]) / 2)
        assert 0 <= one["accuracy"] <= 1
    for words, said in ((["--attacks", "flood"], "flood"), (["--defences", "luck"], "luck")):
        assert said in refused([*ROBUST, *words], capsys)
    assert "--clients 1" in refused(["bench", "robust", "--clients", "1"], capsys)


def spoiled(attack: str, method: Any, number: int = 1) -> Any:
    """What the three small clients upload in a round with an attack, and what they would upload honestly."""
    ctx = replace(made_for(method, context()), round=number)
    w0 = {name: leaf[0] for name, leaf in random_tree(ctx.model, 1).items()}

    def upload(one: Any) -> Any:
        return one.client(
            ctx, one.init_client(w0, 3), one.send(one.init_server(w0, 3), torch.arange(3)), small_clients()
        )

    return upload(attacked(method, attack))[1], upload(method)[1], w0


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("method", [FedAvg(), FedPub(tau=3.0), FedPer(), FedPubPlus(grouping=False)])
def test_only_the_hostile_client_sends_something_else(attack, method):
    found, plain, _ = spoiled(attack, method)
    same = True
    for name, value in pack(found).items():
        assert torch.equal(value[1:], pack(plain)[name][1:]), name
        same &= torch.equal(value[0], pack(plain)[name][0])
    assert same == (attack == "none" or (attack == "false claims" and isinstance(method, FedPub)))


def test_attacks_by_hand():
    """Opposite: ten own steps backwards. Flip: -10 times. Claims: 2^62 examples. Adapted: as long as the limit."""
    found, plain, w0 = spoiled("opposite step", FedAvg())
    step = plain["weights"]["conv1.bias"][0] - w0["conv1.bias"]
    torch.testing.assert_close(found["weights"]["conv1.bias"][0], w0["conv1.bias"] - 10 * step)
    found, plain, _ = spoiled("sign flip", FedAvg())
    torch.testing.assert_close(found["weights"]["conv1.bias"][0], -10 * plain["weights"]["conv1.bias"][0])
    assert spoiled("false claims", FedAvg())[0]["size"].tolist() == [2**62, 3, 1]
    found, plain, w0 = spoiled("adapted", FedAvg())
    steps = flatten(tree_map(torch.sub, found["weights"], stacked(w0, 3)))
    assert float(steps[0].norm()) == pytest.approx(2 * float(steps[1:].norm(dim=1).min()))
    assert float(steps[0] @ steps[1:].sum(0)) < 0


# What is kept


def test_runs_from_before_there_was_a_defence_had_none(tmp_path):
    text = Experiment().resolve().experiment.to_json().replace('  "defence": "default",\n', "")
    assert Experiment.from_json(text, tmp_path).defence == "none"
    assert Experiment().defence == "default"


def test_published_methods_are_reproduced_without_a_defence_and_keep_their_runs():
    experiment = Settings().experiment(dataset="cora", scenario="disjoint", clients=5, method="fedpub")
    assert experiment.defence == "none"
    assert key(experiment) == "198f446790a62cf4"
    assert key(replace(experiment, defence="default")) != key(experiment)
