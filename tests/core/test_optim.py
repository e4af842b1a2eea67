"""Adam of stacked clients is each client's own Adam."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedpub.core.optim import adam_init, adam_step, soft_threshold
from fedpub.core.tree import State, Tree, select, update

RATES = {"matrix": 0.1, "bias": 0.02}


def randoms(clients: int, seed: int) -> Tree:
    stream = torch.Generator().manual_seed(seed)
    return {
        "matrix": torch.randn(clients, 3, 2, generator=stream, dtype=torch.float64),
        "bias": torch.randn(clients, 2, generator=stream, dtype=torch.float64),
    }


class Lone:
    """One client's parameters under `torch.optim.Adam`."""

    def __init__(self, start: Tree, client: int, weight_decay: float, rates: dict[str, float] = RATES) -> None:
        self.leaves = {name: leaf[client].clone().requires_grad_() for name, leaf in start.items()}
        groups = [{"params": [leaf], "lr": rates[name]} for name, leaf in self.leaves.items()]
        self.adam = torch.optim.Adam(groups, weight_decay=weight_decay)

    def step(self, gradients: Tree, client: int) -> None:
        for name, leaf in self.leaves.items():
            leaf.grad = gradients[name][client].clone()
        self.adam.step()

    def assert_equals(self, parameters: Tree, client: int) -> None:
        for name, leaf in self.leaves.items():
            torch.testing.assert_close(parameters[name][client], leaf.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clients", [1, 3])
def test_every_client_takes_the_steps_of_torch(clients: int, weight_decay: float) -> None:
    parameters = randoms(clients, 0)
    lone = [Lone(parameters, client, weight_decay) for client in range(clients)]
    state = adam_init(parameters)
    for number in range(1, 8):
        gradients = randoms(clients, number)
        state = adam_step(parameters, gradients, state, RATES, weight_decay)
        for client, own in enumerate(lone):
            own.step(gradients, client)
            own.assert_equals(parameters, client)
    assert state["step"].tolist() == [7] * clients


def test_a_client_that_sat_out_has_taken_fewer_steps() -> None:
    state: State = {"parameters": randoms(3, 0), **adam_init(randoms(3, 0))}
    lone = [Lone(state["parameters"], client, 0.0) for client in range(3)]
    for number, present in enumerate([(0, 1, 2), (0, 2), (2, 0), (0, 1, 2), (1,)], start=1):
        ids, gradients = torch.tensor(present), randoms(3, number)
        chosen = select(state, ids)
        own = chosen.pop("parameters")
        moved = adam_step(own, select({"g": gradients}, ids)["g"], chosen, RATES, 0.0)
        state = update(state, ids, {"parameters": own, **moved})
        for client in present:
            lone[client].step(gradients, client)
        for client in range(3):
            lone[client].assert_equals(state["parameters"], client)
    assert state["step"].tolist() == [4, 3, 4]


@pytest.mark.parametrize("present", [(0, 1, 2), (2, 0)], ids=["all alike", "one sat out"])
def test_a_rate_for_each_client_is_that_client_s_rate(present: tuple[int, ...]) -> None:
    rates = torch.tensor([0.3, 0.0, 0.05], dtype=torch.float64)
    state: State = {"parameters": randoms(3, 0), **adam_init(randoms(3, 0))}
    lone = [Lone(state["parameters"], client, 0.1, RATES | {"matrix": float(rates[client])}) for client in range(3)]
    for number, some in enumerate([present, (0, 1, 2), (0, 1, 2)], start=1):
        ids, gradients = torch.tensor(some), randoms(3, number)
        chosen = select(state, ids)
        own = chosen.pop("parameters")
        moved = adam_step(own, select({"g": gradients}, ids)["g"], chosen, RATES | {"matrix": rates[ids]}, 0.1)
        state = update(state, ids, {"parameters": own, **moved})
        for client in some:
            lone[client].step(gradients, client)
    for client in range(3):
        lone[client].assert_equals(state["parameters"], client)


@pytest.mark.parametrize("clients", [1, 3])
def test_the_layout_of_a_gradient_does_not_matter(clients: int) -> None:
    found = []
    gradients = randoms(clients, 1)
    strided = {"matrix": gradients["matrix"].mT.contiguous().mT, "bias": gradients["bias"].T.contiguous().T}
    for given in (gradients, strided):
        parameters = randoms(clients, 0)
        adam_step(parameters, given, adam_init(parameters), RATES, 0.0)
        found.append(parameters["matrix"])
    torch.testing.assert_close(found[0], found[1])


def test_first_step_by_hand() -> None:
    """m̂ = g and v̂ = g², so w moves by lr · g / (|g| + ε): as far for a small gradient as for a large one."""
    w = {"w": torch.tensor([[1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)}
    g = {"w": torch.tensor([[5.0, -0.001, 1e-8, 0.0]], dtype=torch.float64)}
    adam_step(w, g, adam_init(w), {"w": 0.1}, 0.0)
    by_hand = torch.tensor([0.9, 1.099999, 0.95, 1.0], dtype=torch.float64)
    torch.testing.assert_close(w["w"][0], by_hand, rtol=0, atol=1e-8)
    assert w["w"][0, 3] == 1, "no gradient, no step"


def test_weight_decay_adds_to_the_gradient_by_hand() -> None:
    """0.5 · 2 − 1 = 0: the decay cancels the gradient of client 0 and not that of client 1."""
    w = {"w": torch.tensor([[2.0], [4.0]], dtype=torch.float64)}
    g = {"w": torch.tensor([[-1.0], [-1.0]], dtype=torch.float64)}
    adam_step(w, g, adam_init(w), {"w": 0.1}, 0.5)
    torch.testing.assert_close(w["w"], torch.tensor([[2.0], [3.9]], dtype=torch.float64), rtol=0, atol=1e-8)
    assert g["w"].tolist() == [[-1], [-1]], "the gradient is read only"


def test_single_precision_is_near_double() -> None:
    """The bias corrections subtract numbers near one from one, in the parameters' precision."""
    double = randoms(1, 0)
    single = {name: leaf.float() for name, leaf in double.items()}
    states: list[State] = [adam_init(double), adam_init(single)]
    for number in range(1, 4):
        gradients = randoms(1, number)
        states[0] = adam_step(double, gradients, states[0], RATES, 0.0)
        states[1] = adam_step(single, {n: g.float() for n, g in gradients.items()}, states[1], RATES, 0.0)
    for name, leaf in double.items():
        torch.testing.assert_close(single[name].double(), leaf, rtol=0, atol=5e-6)


def test_soft_threshold_by_hand() -> None:
    mu = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.5], dtype=torch.float64)
    shrunk: Tensor = soft_threshold(mu, 1.0)
    assert shrunk.tolist() == [-2, 0, 0, 0, 0, 0, 1.5]
    assert shrunk.data_ptr() == mu.data_ptr(), "in place: the masks of a client are shrunk where they are"


def test_soft_threshold_of_each_client_by_hand() -> None:
    mu = torch.tensor([[-3.0, 0.5, 1.0], [-3.0, 0.5, 1.0], [-3.0, 0.0, 1.0]], dtype=torch.float64)
    shrunk = soft_threshold(mu, torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64))
    assert shrunk.tolist() == [[-2, 0, 0], [-2.75, 0.25, 0.75], [-3, 0, 1]]
    assert shrunk.data_ptr() == mu.data_ptr()


def test_soft_threshold_of_zero_changes_nothing() -> None:
    mu = torch.tensor([-3.0, 1e-300, 0.0, 2.5], dtype=torch.float64)
    assert soft_threshold(mu.clone(), 0.0).tolist() == mu.tolist()
