"""Uploads that are added one by one give what they give together."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_federation import assert_same_rows, coordinator

from fedpub.algorithms import FedAvg, FedPer, FedProx, FedPub
from fedpub.algorithms.protocol import Averages
from fedpub.core.message import Message
from fedpub.experiment import Experiment
from fedpub.federation import gathering as gathered
from fedpub.federation import requests
from fedpub.federation.deployed import play
from fedpub.federation.gathering import OneByOne, Together, gathering
from fedpub.federation.in_process import InProcessSites
from fedpub.federation.wire import Envelope, encode
from fedpub.runs.simulated import run
from small import context

NUMBERS = st.floats(-100, 100, width=32)


def upload(values: list[float], size: int, name: str = "weights") -> Message:
    weights = {"w": torch.tensor([values], dtype=torch.float64), "b": torch.tensor([[values[0]]], dtype=torch.float64)}
    return Message({name: weights, "size": torch.tensor([size])})


def sent(client: int) -> Message:
    return Message({"weights": upload([0.5, float(client)], 1)["weights"]})


def both(uploads: Mapping[int, Message], defence: str) -> Iterator[dict]:
    ctx = replace(context(), defence=defence)
    ids = torch.tensor(sorted(uploads))
    for made in (Together(FedAvg(), ctx, sent), OneByOne("weights", ctx, sent, Path(tempfile.gettempdir()))):
        for client, up in uploads.items():
            made.add(client, up, encode(Envelope("round", {}, up)))
        server, notes = made.server({}, ids)
        assert notes == {}
        yield server


def test_one_long_step_among_three_by_hand(tmp_path):
    """From zero: steps of 1, 1 and 8, of which two count; sizes of 1, 1 and 100 count 1, 1 and 3."""
    own = {
        client: Message({"weights": {"w": torch.tensor([[step]], dtype=torch.float64)}, "size": torch.tensor([size])})
        for client, (step, size) in enumerate([(1.0, 1), (1.0, 1), (8.0, 100)])
    }
    ctx = replace(context(), defence="clip")
    made = OneByOne(
        "weights", ctx, lambda _: Message({"weights": {"w": torch.zeros(1, 1, dtype=torch.float64)}}), tmp_path
    )
    for client in (2, 0, 1):
        made.add(client, own[client], encode(Envelope("round", {}, own[client])))
    server, _ = made.server({}, torch.tensor([0, 1, 2]))
    assert server["weights"]["w"].tolist() == [[pytest.approx((1 + 1 + 3 * 2) / 5)]]


@pytest.mark.parametrize("defence", ["none", "guard", "clip", "default"])
@given(
    values=st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 50)), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_one_by_one_is_as_together(defence, values, order):
    uploads = {client: upload([a, b], size) for client, (a, b, size) in enumerate(values)}
    came = list(uploads)
    order.shuffle(came)
    one, two = both({client: uploads[client] for client in came}, defence)
    for leaf, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][leaf], value, rtol=1e-12, atol=1e-12)


def test_the_order_in_which_uploads_come_changes_no_bit():
    uploads = {client: upload([10.0**client / 3, 0.1**client / 7], client + 1) for client in range(5)}
    ways = [{client: uploads[client] for client in order} for order in ((0, 1, 2, 3, 4), (3, 1, 4, 0, 2))]
    (_, first), (_, second) = (both(way, "clip") for way in ways)
    assert all(torch.equal(first["weights"][leaf], second["weights"][leaf]) for leaf in ("w", "b"))


@pytest.mark.parametrize(
    ("algorithm", "defence", "kind"),
    [
        (FedAvg(), "clip", OneByOne),
        (FedProx(), "none", OneByOne),
        (FedPer(), "clip", OneByOne),
        (FedAvg(), "median", Together),
        (FedPub(), "clip", Together),
    ],
)
def test_which_methods_allow_it(algorithm, defence, kind, tmp_path):
    assert isinstance(gathering(algorithm, replace(context(), defence=defence), sent, tmp_path), kind)
    assert isinstance(algorithm, Averages) == (not isinstance(algorithm, FedPub))


def test_a_federation_holds_one_upload_at_a_time(tmp_path, monkeypatch):
    """Of six sites that answer one after the other; and its numbers are those of the simulation."""
    experiment = Experiment(clients=6, rounds=2, method="fedavg", hidden=4, dtype="float64").resolve()
    run(experiment, tmp_path / "simulated", keep_checkpoint=True)
    seen, most, decode = [], [0], requests.decode

    def watched(*about):
        envelope = decode(*about)
        if envelope.kind == "round":
            seen.append(weakref.ref(envelope.message))
            gc.collect()
            most[0] = max(most[0], sum(one() is not None for one in seen))
        return envelope

    for module in (requests, gathered):
        monkeypatch.setattr(module, "decode", watched)
    sites = InProcessSites(tmp_path / "sites", experiment)
    play(coordinator(sites, experiment), tmp_path / "deployed")
    assert_same_rows(tmp_path / "deployed", tmp_path / "simulated")
    assert most[0] <= 2, "the last one, and the one that replaces it"
