"""The model protocol, and code common to the models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fedpub.core.rng import client_keys, derive, dropout_mask
from fedpub.core.segments import Segments
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.errors import FedpubError
from fedpub.models.proxy import Proxy

OUTPUT = "classifier"  # prefix of the names of the output layer's parameters, in every model


class Model(Protocol):
    """A frozen dataclass that inherits from this class: its fields are its sizes.

    Other packages may rely on this and nothing else: parameters are a tree whose leaves have the client axis K in
    front; matrices are [K, in, out]; the names of parameters are up to the model, except for `inputs` and the output
    layer, whose names begin with `OUTPUT`.
    """

    @property
    def propagation(self) -> Propagation:
        """The adjacency that the model uses."""

    @property
    def steps(self) -> int:
        """How many steps along the edges the input features are propagated before the first weights: these products are
        data, computed once."""
        return 1

    @property
    def independent(self) -> bool:
        """Whether a node's output in training depends on its own rows of the data alone: batches of nodes are exact."""
        return False

    @property
    def propagates(self) -> bool:
        """Whether the model needs the edges, beyond what the data holds."""
        return not self.independent

    @property
    def relational(self) -> bool:
        """Whether the model has weights for each direction and kind of edges; others treat all edges alike."""
        return False

    def related(self, relations: int) -> Model:
        """The model for graphs with this many relations."""
        return self

    @property
    def steady(self) -> bool:
        """Whether it reads no values of tensors, so that rounds can be recorded on a GPU."""
        return True

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the weight matrices on the input features, [K, F, H]."""

    def seen(self, data: Clients) -> dict[str, Tensor]:
        """For every matrix of `inputs`, [K, F]: which of its rows a client's data can reach."""

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        """The initial parameters, without a client axis."""

    def num_inputs(self, w: Tree) -> int:
        """The number of features that a model with these weights expects."""
        return w[self.inputs[0]].shape[-2]

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        """Logits of every node, [N, C]; in training, which is what `dropout` tells, with its random numbers."""

    def last_hidden(self, w: Tree, data: Clients) -> Tensor:
        """The input of the output layer for every node, [N, H]: the logits, if that layer were the identity."""
        kernel_KHC, bias_KC = (w[f"{OUTPUT}.{name}"] for name in ("weight", "bias"))
        clients, hidden, _ = kernel_KHC.shape
        same_KHH = torch.eye(hidden).to(kernel_KHC).expand(clients, -1, -1)
        own = {f"{OUTPUT}.weight": same_KHH, f"{OUTPUT}.bias": bias_KC.new_zeros(clients, hidden)}
        return self.apply(w | own, data)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        """The functional embedding: the mean output of the second convolution on a proxy graph, [K, H]."""

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        """The output for every node of a proxy graph, [K, P, C]."""
        name = type(self).__name__
        raise FedpubError(f"the model {name} does not say what it responds to a proxy graph: define `respond`")

    def with_task(self, w: Tree, own: Tree) -> Tree:
        """The initial parameters of the model and of the task, such as a decoder's, as one tree."""
        return w | own

    def federated(self, w: Tree) -> Tree:
        """The parameters that a federation trains: all but those of a fallback."""
        return w


@dataclass(frozen=True)
class Around(Model):
    """A model around another one, to which it delegates everything that it does not override."""

    model: Model

    @property
    def propagation(self) -> Propagation:
        return self.model.propagation

    @property
    def steps(self) -> int:
        return self.model.steps

    @property
    def independent(self) -> bool:
        return self.model.independent

    @property
    def propagates(self) -> bool:
        return self.model.propagates

    @property
    def relational(self) -> bool:
        return self.model.relational

    def related(self, relations: int) -> Model:
        return replace(self, model=self.model.related(relations))

    @property
    def steady(self) -> bool:
        return self.model.steady

    def num_inputs(self, w: Tree) -> int:
        return self.model.num_inputs(w)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.model.inputs

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return self.model.seen(data)

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        return self.model.init(num_features, num_classes, stream)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        return self.model.embed(w, proxy)

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        return self.model.respond(w, proxy)


@dataclass(frozen=True)
class Dropout:
    """Dropout in training, false if none is asked for; a model's own random numbers come from its streams, too.

    Streams are keyed by seed, client, round and epoch, then by layer, with inputs as 0.
    """

    p: float
    seeds: Sequence[int] | Tensor  # of the layers

    def __bool__(self) -> bool:
        return self.p > 0

    def __call__(self, h_NH: Tensor, layer: int, ids_K: Tensor, segments: Segments) -> Tensor:
        key_K = client_keys(ids_K, self.seeds[layer])
        kept = dropout_mask(key_K, segments.owner_N, segments.row_N, h_NH.shape[1], self.p, h_NH.dtype)
        return h_NH * kept


def dropout_seeds(seed: int, number: int, epoch: int, batch: int = 0) -> list[int]:
    """The dropout seeds of a batch in an epoch of a round, layer by layer."""
    which = (batch,) if batch else ()
    return [derive(seed, "dropout", number, epoch, layer, *which) for layer in (0, 1, 2)]


def output_layer(w: Tree, h_KPH: Tensor) -> Tensor:
    """The outputs of all clients for the nodes of one graph, [K, P, C]."""
    return torch.baddbmm(w[f"{OUTPUT}.bias"].unsqueeze(1), h_KPH, w[f"{OUTPUT}.weight"])


def layer_norm(h: Tensor) -> Tensor:
    """Layer normalisation without parameters: nothing more to send."""
    return torch.nn.functional.layer_norm(h, h.shape[-1:])


def numbered(name: str, relation: int) -> str:
    """The name of a relation's weights: those of the first have no number."""
    return name if relation == 0 else f"{name}{relation + 1}"


def glorot(rows: int, columns: int, stream: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns)); drawn in double precision, so that all dtypes start alike."""
    bound = math.sqrt(6 / (rows + columns))
    return (torch.rand(rows, columns, generator=stream, dtype=torch.float64) * 2 - 1) * bound
