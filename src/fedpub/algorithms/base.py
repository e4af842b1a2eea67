"""What a method is, and the local training that all methods share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedpub.data.clients import Clients
from fedpub.data.subgraph import Added, Subgraph
from fedpub.models.base import Model
from fedpub.optim import adam_init, adam_step
from fedpub.tasks.base import Step, Task
from fedpub.tree import Message, State, Tree, mix, stacked, tensor, tree, tree_map

# What guards a federation against a hostile member; `default` is what runs use by themselves.
Defence = Literal["default", "none", "clip", "median", "guard"]

# What a server step wants to tell: [K] values or [K, K] relations of the clients that took part.
Notes = dict[str, Tensor]


@dataclass(frozen=True)
class Context:
    """What a method may know beside its state: the model, the task and the round."""

    model: Model
    task: Task
    seed: int
    round: int  # the first is 1
    epochs: int
    lr: float
    weight_decay: float
    dropout: float
    defence: Defence = "none"
    # For a round that is recorded once and replayed with other numbers, where nobody may look at a tensor's values:
    together: bool = False  # the clients here are known to have taken equally many steps, and at least one
    dropout_seeds: Tensor | None = None  # of the round's epochs and layers, instead of the round's number


class Algorithm(Protocol):
    """A frozen dataclass: its fields are its hyper-parameters. Nothing hides in `self`; K is any number of clients.

    `client` may write into the state it is given: the engine gives it away and goes on with the returned one.
    """

    @property
    def notes(self) -> Mapping[str, int]:
        """What its server step tells, with the number of client axes of each."""

    @property
    def steady(self) -> bool:
        """Whether every round does the same and looks at no tensor's values: a GPU then records one and replays it."""

    @property
    def uploads(self) -> frozenset[str]:
        """All that may ever leave a client; the engines enforce it."""

    def init_server(self, w0: Tree, num_clients: int) -> State: ...

    def init_client(self, w0: Tree, num_clients: int) -> State: ...

    def send(self, server: State, ids: Tensor) -> Message: ...

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        """Local training: the new state, the upload, and the last training loss of every client [K]."""

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]: ...

    def personal(self, own: State) -> Tree:
        """The weights that are evaluated and that the client keeps."""


class Setup(Protocol):
    """Exchanges before the rounds, after which every client's graph has more nodes.

    As in a round the server sends, the clients compute and answer, the server computes; but clients are given as lists,
    since what they hold and send here differs in size. Leaves of a client's state and messages are [1, ...].
    """

    @property
    def steps(self) -> Sequence[str]:
        """What happens in each exchange, in a few words."""

    def init_server(self, num_clients: int) -> State: ...

    def init_clients(self, ctx: Context, w0: Tree, work: Any) -> list[State]: ...

    def workspace(self, ctx: Context, data: list[Subgraph], place: Place) -> Any:
        """What these clients compute on, all through the set-up; nothing that has to last."""

    def send(self, server: State, step: int, client: int) -> Message: ...

    def clients(
        self, ctx: Context, step: int, own: list[State], received: list[Message], work: Any
    ) -> tuple[list[State], list[Message]]: ...

    def server(self, ctx: Context, step: int, server: State, up: list[Message]) -> State: ...

    def added(self, ctx: Context, own: list[State], work: Any) -> list[Added]:
        """What the clients' graphs get."""


@runtime_checkable
class ChecksUploads(Protocol):
    """A set-up that knows what its clients' uploads look like, and so whether a stranger's may be used."""

    def problem(
        self, ctx: Context, step: int, server: State, client: int, up: Message, features: int, place: Place
    ) -> str | None:
        """Why an upload cannot be used in this step, in a few words; None where it can."""


@dataclass(frozen=True)
class Place:
    """Where and how precisely to compute, and the classes there are."""

    num_classes: int
    device: torch.device
    dtype: torch.dtype


@runtime_checkable
class NeedsSetup(Protocol):
    """A method whose clients exchange something before the rounds."""

    def setup(self) -> Setup: ...


@runtime_checkable
class MakesNet(Protocol):
    """A method that makes its own of the model that was asked for."""

    def net(self, chosen: Model, task: Task) -> Model: ...


@runtime_checkable
class Starts(Protocol):
    """A method that sends every client an average of its own, of which it makes a model of its own."""

    def starts(self, own: State) -> Tree:
        """The model that a client with these weights trains on."""


MASK = "mask."  # a mask's name among the trained parameters is this and the name of its weight


def train(
    ctx: Context,
    data: Clients,
    weights: Tree,
    optimiser: State,
    masks: Tree | None = None,
    lr: Mapping[str, float | Tensor] = MappingProxyType({}),
    proximal: tuple[float, Tree] | None = None,
    after_step: Callable[[Tree, slice], None] | None = None,
) -> tuple[State, Tensor]:
    """E epochs of Adam on every client's own loss, in place: the optimiser's new state and the last task loss [K].

    The sum of K independent losses gives every client its exact own gradient in one backward pass.
    With `masks` μ the model's weights are θ ⊙ μ, and both are trained; `lr` holds learning rates that differ from the
    context's, for all clients or for each, [K]; `proximal` = (λ, θ̄) adds λ‖θ − θ̄‖² for the weights θ that are named in
    θ̄; `after_step` follows each step of some clients, with where these are among all.
    """
    parameters = weights | {MASK + name: mask for name, mask in (masks or {}).items()}
    rates = {name: lr.get(name, ctx.lr) for name in parameters}
    first, second, step_K = tree(optimiser["first"]), tree(optimiser["second"]), tensor(optimiser["step"])
    for epoch in range(ctx.epochs):
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in masked(parameters).items()}
        seeds = None if ctx.dropout_seeds is None else ctx.dropout_seeds[epoch]
        loss_K = ctx.task.loss(ctx.model, leaves, data, Step(ctx.seed, ctx.round, epoch, ctx.dropout, seeds))
        gradients = dict(zip(leaves, torch.autograd.grad(loss_K.sum(), list(leaves.values())), strict=True))
        for part in _parts_in_cache(weights, masks):
            own = _cut(parameters, part)
            state: State = {"first": _cut(first, part), "second": _cut(second, part), "step": step_K[part]}
            by_name = _chain_rule(own, _cut(gradients, part))
            if proximal and epoch:  # in the first epoch θ is θ̄
                strength, anchor = proximal
                pull = tree_map(torch.sub, {name: own[name] for name in anchor}, _cut(anchor, part))
                by_name |= {name: by_name[name].add(pull[name], alpha=2 * strength) for name in anchor}
            own_rates = {name: of_part(rate, part) for name, rate in rates.items()}
            adam_step(own, by_name, state, own_rates, ctx.weight_decay, ctx.together)
            if after_step:
                with torch.no_grad():
                    after_step(own, part)
        step_K = step_K + 1
    return {"first": first, "second": second, "step": step_K}, loss_K.detach()


def masked(parameters: Tree) -> Tree:
    """θ ⊙ μ where there is a mask, θ elsewhere."""
    return {
        name: leaf * parameters[MASK + name] if MASK + name in parameters else leaf
        for name, leaf in parameters.items()
        if not name.startswith(MASK)
    }


def _chain_rule(parameters: Tree, gradients: Tree) -> Tree:
    """The gradients of θ and μ, of those of θ ⊙ μ."""
    found: Tree = {}
    for name, gradient in gradients.items():
        if MASK + name in parameters:
            found[MASK + name] = gradient * parameters[name]
            found[name] = gradient * parameters[MASK + name]
        else:
            found[name] = gradient
    return found


def _parts_in_cache(weights: Tree, masks: Tree | None) -> list[slice]:
    """A few clients at a time where there are masks, so that what is computed of gradients stays in a CPU's cache."""
    some = next(iter(weights.values()))
    if not masks or some.device.type != "cpu":
        return [slice(None)]
    size = max(1, PART_ENTRIES // max(leaf[0].numel() for leaf in weights.values()))
    return [slice(start, start + size) for start in range(0, len(some), size)]


PART_ENTRIES = 2**20  # of the largest leaf


def of_part(value_K: float | Tensor, part: slice) -> float | Tensor:
    """What some clients have of a value that is one for all, or one for each."""
    return value_K[part] if isinstance(value_K, Tensor) else value_K


def _cut(leaves: Tree, part: slice) -> Tree:
    return {name: leaf[part] for name, leaf in leaves.items()}


def adopt(own: State, received: Tree | Tensor) -> Tree:
    """A client's weights with those that it received written over its last ones."""
    weights = tree(own["weights"])
    for name, leaf in tree(received).items():
        weights[name].copy_(leaf)
    return weights


def start(w0: Tree, num_clients: int) -> State:
    """Every client's weights at the beginning, with a fresh optimiser."""
    weights = stacked(w0, num_clients)
    return {"weights": weights, **adam_init(weights)}


def optimiser_of(own: State) -> State:
    return {name: own[name] for name in ("first", "second", "step")}


def weighted_mean(up: Message, name: str = "weights") -> Tree:
    """Σ_k n_k w_k / Σ_k n_k over the clients of a message, leaves [1, ...]; equal shares where nobody has examples."""
    size_K = tensor(up["size"]).double()
    size_K = torch.where(size_K.sum() > 0, size_K, 1.0)
    return mix((size_K / size_K.sum()).unsqueeze(0), tree(up[name]))
