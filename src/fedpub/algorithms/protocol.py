"""The protocol of a method. Its defaults are the simplest federation: one model, sent to and trained by all clients."""

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
from fedpub.errors import FedpubError
from fedpub.models.base import Model
from fedpub.tasks.base import Task

# Reports of a server step: [K] values or [K, K] relations of the clients that took part.
Notes = dict[str, Tensor]


class Algorithm(Protocol):
    """A frozen dataclass that inherits from this class: its fields are its hyper-parameters.

    Nothing hides in `self`; K is any number of clients. `client` may write into the state it is given: the engine
    gives it away and continues with the returned one. A method that reads the values of tensors (to branch on them)
    declares it by a property `looks_at_values`; all others can be recorded on a GPU.
    """

    @property
    def uploads(self) -> frozenset[str]:
        """Names of everything that may leave a client; the engines enforce it."""

    @property
    def notes(self) -> Mapping[str, int]:
        """Names of the server step's reports, with the number of client axes of each."""
        return {}

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        """An example upload of one client: uploads with other names, shapes or types are refused."""
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
        """Aggregation: the new state, and reports on the clients `ids` that took part."""

    def without(self, server: State, ids: Tensor) -> State:
        """The server's state without what it keeps of the clients `ids`, who have left for good."""
        return server

    def personal(self, own: State) -> Tree:
        """The weights that are evaluated and kept by the client."""
        return tree(own["weights"])

    def since(self, own: State, base: int) -> int:
        """The last round in which a client on its own trained `own["weights"]`, which are those after round `base`."""
        return base

    def fingerprint(self, up: Message) -> Tensor | None:
        """The part of an upload that characterises its clients, [K, ...], to compare later ones with them."""
        return None

    def introduction(self, server: State) -> Message | None:
        """What a newcomer is sent first, to know what characterises it; None: the mean of what the members are sent."""
        return None

    def shares(self, server: State, newcomer: Tensor, members_K: Tensor) -> Tensor:
        """The members' shares in the first model of a client with this fingerprint, [1, K]."""
        return torch.full((1, len(members_K)), 1 / len(members_K), dtype=torch.float64)

    # Needed by an experiment before anything is computed.

    undivided: ClassVar[bool] = False  # whether it trains on the whole graph in one place, as no federation can

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The method's own defaults for settings of the experiment."""
        return {}

    def adapted(self, dataset: str, scenario: str) -> Algorithm:
        """The method with unset hyper-parameters filled in for a data set and a scenario."""
        return self

    def secured(self) -> Algorithm:
        """The method as it is where its server gets sums over groups only; see `algorithms.sums`."""
        raise FedpubError(
            f"{getattr(self, 'title', type(self).__name__)} needs the upload of every single client; leave `secure` "
            "out, or use fedavg, fedprox, fedper, fedpub with `communities=explicit`, or fedpub-plus"
        )

    def net(self, chosen: Model, task: Task, batches: bool = False) -> Model:
        """The model that the method trains if this one is chosen; all parts of it allow `batches` if asked to."""
        return chosen


class Setup(Protocol):
    """Exchanges before the rounds, after which every client's graph has more nodes.

    As in a round, the server sends, the clients compute and answer, the server computes; but clients are given as
    lists, since their states and messages differ in size. Leaves of a client's state and messages are [1, ...].
    """

    @property
    def steps(self) -> Sequence[str]:
        """A short description of each exchange."""

    def init_server(self, num_clients: int) -> State: ...

    def init_clients(self, ctx: Context, w0: Tree, work: Any) -> list[State]: ...

    def workspace(self, ctx: Context, data: list[Subgraph], place: Place) -> Any:
        """The data of these clients for the whole set-up; nothing in it has to persist."""

    def send(self, server: State, step: int, client: int) -> Message: ...

    def clients(
        self, ctx: Context, step: int, own: list[State], received: list[Message], work: Any
    ) -> tuple[list[State], list[Message]]: ...

    def server(self, ctx: Context, step: int, server: State, up: list[Message]) -> State: ...

    def added(self, ctx: Context, own: list[State], work: Any) -> list[Added]:
        """The additions to the clients' graphs."""


@runtime_checkable
class ChecksUploads(Protocol):
    """A set-up that knows the form of its clients' uploads, and can reject those of an untrusted client."""

    def problem(
        self, ctx: Context, step: int, server: State, client: int, up: Message, features: int, place: Place
    ) -> str | None:
        """Why an upload cannot be used in this step, in a few words; None if it can."""


@dataclass(frozen=True)
class Place:
    """Device and precision of the computation, and the number of classes."""

    num_classes: int
    device: torch.device
    dtype: torch.dtype


@runtime_checkable
class NeedsSetup(Protocol):
    """A method whose clients exchange something before the rounds."""

    def setup(self) -> Setup: ...


@runtime_checkable
class Averages(Protocol):
    """A method whose server step is one mean, weighted by `size`, so that uploads can be added one by one."""

    @property
    def averaged(self) -> str:
        """The name of the tree, in the upload and in the server's state, which holds nothing else."""


@runtime_checkable
class Starts(Protocol):
    """A method that sends every client a personal average, from which the client builds its model."""

    def starts(self, own: State) -> Tree:
        """The model from which a client with these weights starts training."""
