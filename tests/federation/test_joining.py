"""A site that joins a finished run, both ends in numbers worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedpub.algorithms import FedAvg
from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation import joining
from fedpub.federation.joining import EPOCHS, Finished, answer_join
from fedpub.federation.known import Known
from fedpub.federation.wire import Envelope, decode, encode
from small import context

RUN = "0123456789abcdef"


def doubles(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("method", "options", "shares", "second"),
    [
        # τ = ln 3, and the new site is like the second member: 1 : 3 : 1, of 5.
        ("fedpub", {"tau": math.log(3)}, [0.2, 0.6, 0.2], 22.0),
        ("fedavg", {}, [1 / 3, 1 / 3, 1 / 3], 70 / 3),
    ],
)
def test_what_a_new_site_gets_is_the_members_mean_by_similarity(method, options, shares, second):
    """Members' weights 10, 20 and 40: their mean first, then (10 + 3 · 20 + 40) / 5."""
    experiment = Experiment(dataset="communities", method=method, options=options, rounds=1, dtype="float64").resolve()
    weights = {"w": doubles([[[10]], [[20]], [[40]]])}
    if method == "fedavg":  # one average for everybody
        weights = {"w": doubles([[70 / 3]])}
    clients = {"fingerprint": doubles([[1, 0], [0, 2], [-3, 0]])}
    asked: list[Envelope] = []

    def exchange(messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        assert deadline == 7.0
        asked.append(decode(messages[0]))
        up = Message({"fingerprint": doubles([[0, 5]])} if len(asked) == 1 else {})
        return {0: encode(Envelope("join", {"kept": "joined"} if len(asked) == 2 else {}, up))}

    known = Known(("a", "b", "c"), 5, ("x", "y"))
    told = Finished(experiment, RUN, known, {"weights": weights}, clients).join("new", 3, exchange, 7.0)
    assert told == {"kept": "joined"}
    near, take = asked
    assert (near.fields["step"], take.fields["step"], take.fields["client"]) == ("near", "take", 3)
    assert take.fields["epochs"] == EPOCHS
    assert list(near.fields["nearest"].values()) == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert take.fields["nearest"] == pytest.approx(dict(zip("abc", shares, strict=True)), abs=1e-6)
    assert near.message["weights"]["w"].item() == pytest.approx(70 / 3)
    assert take.message["weights"]["w"].item() == pytest.approx(second)


def test_a_new_site_that_is_silent_or_refuses_is_told():
    experiment = Experiment(dataset="communities", method="fedavg", rounds=1).resolve()
    one = Finished(experiment, RUN, Known(("a",), 5, ("x",)), {"weights": {"w": doubles([[1]])}}, {})
    with pytest.raises(FedpubError, match="site 'new' did not answer within 7 s"):
        one.join("new", 1, lambda messages, deadline: {}, 7.0)
    refused = encode(Envelope("refused", {"reason": "no time"}))
    with pytest.raises(FedpubError, match="site 'new' cannot join: no time"):
        one.join("new", 1, lambda messages, deadline: {0: refused}, 7.0)


class Counting(FedAvg):
    """Every epoch adds one to the only weight; the embedding is that weight."""

    def init_client(self, w0, num_clients):
        return {}

    def client(self, ctx, own, msg, data):
        weights = {"w": msg["weights"]["w"] + ctx.epochs}
        return {"weights": weights}, Message({"weights": weights}), torch.zeros(1)

    def fingerprint(self, up):
        return up["weights"]["w"]

    def personal(self, own):
        return own["weights"]


@pytest.mark.parametrize(
    ("joined", "alone", "kept"),
    [
        ((0.7, 0.5), (0.6, 0.1), "joined"),
        ((0.5, 0.1), (0.6, 0.5), "alone"),
        ((0.6, 0.3), (0.6, 0.4), "joined"),
        ((0.6, 0.4), (0.6, 0.3), "alone"),
    ],
    ids=["better together", "better alone", "level, less loss together", "level, less loss alone"],
)
def test_a_new_site_keeps_the_better_of_two_equally_long_trainings(
    joined: tuple, alone: tuple, kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """It gets the weight 100, which after 20 epochs is 120; from its own start, 1, it goes 40 epochs to 41."""
    values = {120: (*joined, 0.8), 41: (*alone, 0.9)}

    def measured(algorithm, ctx, state, data):
        found = values[int(state["weights"]["w"])]
        return {name: doubles([value]) for name, value in zip(("val", "val_loss", "test"), found, strict=True)}, None

    monkeypatch.setattr(joining, "measure", measured)
    w0 = {"w": doubles([1])}
    part = SimpleNamespace(algorithm=Counting(), ctx=context(epochs=3), w0=w0, data=None, site="new")
    message = Message({"weights": {"w": doubles([[100]])}})
    held: list[tuple[float, float]] = []

    def asked(step: str) -> Envelope:
        fields = {"epochs": EPOCHS, "step": step, "nearest": {"a": 1.0}}
        return answer_join(
            part, Envelope("join", fields, message), tmp_path, lambda w, n: held.append((w["w"].item(), n["test"]))
        )

    near = asked("near")
    assert near.message["fingerprint"].item() == 120
    assert (near.fields, held) == ({}, [])
    told = asked("take").fields
    assert held == [(120, 0.8) if kept == "joined" else (41, 0.9)]
    assert (told["kept"], told["epochs"], told["site"], told["nearest"]) == (kept, 40, "new", {"a": 1.0})
    assert (told["joined"]["test"], told["alone"]["test"]) == (0.8, 0.9)
    assert json.loads((tmp_path / "join.json").read_text()) == told
