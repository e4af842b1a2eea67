"""What a method is. Its defaults are the simplest federation: one model, sent to everybody, trained by everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedpub.algorithms.context import Context as Context
from fedpub.algorithms.context import Defence as Defence
from fedpub.algorithms.training import adopt, optimiser_of, start, train
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, broadcast, stacked, tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.models.base import Model
from fedpub.tasks.base import Task

# What a server step reports: [K] values or [K, K] relations of the clients that took part.
Notes = dict[str, Tensor]


class Algorithm(Protocol):
    """A frozen dataclass that inherits from this class: its fields are its hyper-parameters.

    Nothing hides in `self`; K is any number of clients. `client` may write into the state it is given: the engine
    gives it away and continues with the returned one. A method that looks at the values of tensors (to branch on them)
    says so by a property `looks_at_values`; all others can be recorded on a GPU.
    """

    @property
    def uploads(self) -> frozenset[str]:
        """All that may ever leave a client; the engines enforce it."""

    @property
    def notes(self) -> Mapping[str, int]:
        """What the server step reports, with the number of client axes of each."""
        return {}

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        """An upload of one client with its names, shapes and types, whatever its values: others are refused."""
        own = tree(self.init_client(w0, 1)["weights"])
        known: State = {"weights": own, "size": torch.zeros(1, dtype=torch.int64)}
        return Message({name: known[name] for name in self.uploads if name in known})

    def init_server(self, w0: Tree, num_clients: int) -> State:
        return {"weights": stacked(w0, 1)}

    def init_client(self, w0: Tree, num_clients: int) -> State:
        return start(w0, num_clients)

    def send(self, server: State, ids: Tensor) -> Message:
        return Message({"weights": broadcast(tree(server["weights"]), len(ids))})

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        """Local training: the new state, the upload, and the last training loss of every client [K]."""
        weights = adopt(own, msg.tree("weights"))
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own))
        return {"weights": weights, **optimiser}, Message({"weights": weights, "size": data.num_train_K}), loss_K

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        """Aggregation: the new state, and what it reports of the clients `ids` that took part."""

    def personal(self, own: State) -> Tree:
        """The weights that are evaluated and that the client keeps."""
        return tree(own["weights"])

    def fingerprint(self, up: Message) -> Tensor | None:
        """What an upload says of what its clients are like, [K, ...], so that later ones can be compared with them."""
        return None

    def shares(self, newcomer: Tensor, members_K: Tensor) -> Tensor:
        """The members' shares in the first model of a client with this fingerprint, [1, K]."""
        return torch.full((1, len(members_K)), 1 / len(members_K), dtype=torch.float64)

    # What an experiment asks of a method before anything is computed.

    undivided: ClassVar[bool] = False  # whether it trains on the whole graph in one place, which no federation has

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Settings of the experiment for which it has defaults of its own."""
        return {}

    def adapted(self, dataset: str, scenario: str) -> Algorithm:
        """Itself with every hyper-parameter that was left open, for a data set and a scenario."""
        return self

    def net(self, chosen: Model, task: Task) -> Model:
        """The model that it trains if this one was chosen."""
        return chosen


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
class Starts(Protocol):
    """A method that sends every client an average of its own, of which it makes a model of its own."""

    def starts(self, own: State) -> Tree:
        """The model that a client with these weights trains on."""
