"""Recorded rounds without a GPU: whose tensors are written, and what is carried from call to call.

The recording itself is replaced: what a graph would replay is done again by hand, on the same tensors.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from fedpub.algorithms import FedAvg
from fedpub.engine.cuda_graph import Recorded, _copied, _write, seeded
from fedpub.models.base import dropout_seeds
from small import context, random_tree, small_clients


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A state that grows by what it is given, and ten times what it was."""

    def function(state: dict, by: torch.Tensor) -> tuple:
        return {"x": state["x"] + by}, 10 * state["x"]

    made = Recorded(function, carried=1)

    class Graph:
        def replay(self) -> None:
            state, number = function(*made._inputs)
            made._outputs[1].copy_(number)
            made._inputs[0]["x"].copy_(state["x"])

    class Stream:
        def wait_stream(self, other: object) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda _: nullcontext())
    return made


def test_what_is_carried_goes_on_and_what_is_given_is_taken(recorded: Recorded) -> None:
    """1, then 1 + 2 and 3 + 5: ten times what each call began with is 10, 30 and 80."""
    first, by = {"x": torch.tensor([1.0])}, torch.tensor([2.0])
    state, number = recorded(first, by)
    assert (state["x"].item(), number.item()) == (3, 10)
    assert (first["x"].item(), by.item()) == (1, 2), "warming up and recording touch nothing of the caller's"
    again, number = recorded(state, torch.tensor([5.0]))
    assert again["x"] is state["x"], "given back, it costs nothing"
    assert (again["x"].item(), number.item()) == (8, 30)
    state, number = recorded({"x": torch.tensor([100.0])}, torch.tensor([1.0]))
    assert (state["x"].item(), number.item()) == (101, 1000), "another state is taken, too"


def test_copies_and_writes_reach_every_tensor() -> None:
    part = ({"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T, "b": (torch.tensor(5),)}, torch.tensor([6]))
    copy = _copied(part)
    assert copy[0]["a"].is_contiguous()
    assert torch.equal(copy[0]["a"], part[0]["a"])
    part[0]["a"].zero_()
    assert copy[0]["a"].sum() == 10
    _write(part, copy)
    assert part[0]["a"].tolist() == [[1, 3], [2, 4]]
    _write(copy, ({"a": torch.zeros(2, 2), "b": (torch.tensor(7),)}, torch.tensor([8])))
    assert (copy[0]["a"].sum(), copy[0]["b"][0], copy[1]) == (0, 7, 8)


def test_seeds_in_a_tensor_draw_what_the_round_s_number_would() -> None:
    """A recorded round is given its seeds; what it drops must not depend on that."""
    ctx = replace(context(dropout=0.5, epochs=2), round=3)
    seeds = torch.tensor([dropout_seeds(ctx.seed, 3, epoch) for epoch in range(2)])
    data, method = small_clients(), FedAvg()
    w0 = random_tree(ctx.model)
    found = [
        method.client(one, method.init_client(w0, 3), method.send(method.init_server(w0, 3), data.ids_K), data)
        for one in (ctx, seeded(replace(ctx, round=9), seeds), replace(ctx, round=9))
    ]
    same, given, other = (up.tree("weights") for _, up, _ in found)
    for name, leaf in same.items():
        assert torch.equal(leaf, given[name])
    assert not torch.equal(same["conv2.weight"], other["conv2.weight"])
