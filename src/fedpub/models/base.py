"""The model protocol, and code common to the models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedpub.core.rng import client_keys, derive, dropout_mask
from fedpub.core.segments import Segments
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
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
    def inputs(self) -> tuple[str, ...]:
        """The names of the weight matrices on the input features, [K, F, H]."""

    def seen(self, data: Clients) -> dict[str, Tensor]:
        """For every matrix of `inputs`, [K, F]: which of its rows a client's data can reach."""

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        """The initial parameters, without a client axis."""

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        """Logits of every node, [N, C]."""

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        """The functional embedding: the mean output of the second convolution on a proxy graph, [K, H]."""

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
    def inputs(self) -> tuple[str, ...]:
        return self.model.inputs

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return self.model.seen(data)

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        return self.model.init(num_features, num_classes, stream)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        return self.model.embed(w, proxy)


@dataclass(frozen=True)
class Dropout:
    """Dropout in training; streams are keyed by seed, client, round and epoch, then by layer, with inputs as 0."""

    p: float
    seeds: Sequence[int] | Tensor  # of the layers

    def __call__(self, h_NH: Tensor, layer: int, ids_K: Tensor, segments: Segments) -> Tensor:
        key_K = client_keys(ids_K, self.seeds[layer])
        kept = dropout_mask(key_K, segments.owner_N, segments.row_N, h_NH.shape[1], self.p, h_NH.dtype)
        return h_NH * kept

    def columns(self, ids_K: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The factors of every client's input features, [K, width, 1]."""
        client_K = torch.arange(len(ids_K), device=ids_K.device)
        key_K = client_keys(ids_K, self.seeds[0])
        return dropout_mask(key_K, client_K, torch.zeros_like(client_K), width, self.p, dtype).unsqueeze(2)


def dropout_seeds(seed: int, number: int, epoch: int) -> list[int]:
    """The dropout seeds of an epoch in a round, layer by layer."""
    return [derive(seed, "dropout", number, epoch, layer) for layer in (0, 1, 2)]


def glorot(rows: int, columns: int, stream: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns)); drawn in double precision, so that all dtypes start alike."""
    bound = math.sqrt(6 / (rows + columns))
    return (torch.rand(rows, columns, generator=stream, dtype=torch.float64) * 2 - 1) * bound
