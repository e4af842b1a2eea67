"""What a method is, and the local training that all methods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedpub.core.tree import Message, State, Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.models.base import Model
from fedpub.tasks.base import Task

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
class Adapts(Protocol):
    """A method some of whose hyper-parameters, where they are left open, depend on the data."""

    def adapted(self, dataset: str, scenario: str) -> Algorithm:
        """Itself with nothing left open, for a data set and a scenario."""


@runtime_checkable
class Starts(Protocol):
    """A method that sends every client an average of its own, of which it makes a model of its own."""

    def starts(self, own: State) -> Tree:
        """The model that a client with these weights trains on."""
