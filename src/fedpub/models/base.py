"""What a model is, and what the models share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedpub.blocks import Segments
from fedpub.data.clients import Clients
from fedpub.data.subgraph import Propagation
from fedpub.rng import client_keys, derive, dropout_mask
from fedpub.similarity import Proxy
from fedpub.tree import Tree


class Model(Protocol):
    """A frozen dataclass: its fields are its sizes. Parameters have the client axis K in front."""

    propagation: ClassVar[Propagation]  # the adjacency it works on

    def seen(self, data: Clients) -> dict[str, Tensor]:
        """For every weight matrix on the inputs, [K, F]: which of its rows a client's data can reach."""

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        """The first parameters, without a client axis."""

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        """Logits of every node, [N, C]."""

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        """The functional embedding: the mean output of the second convolution on a proxy graph, [K, H]."""


@dataclass(frozen=True)
class Dropout:
    """Drops entries of hidden layers; the stream is named by seed, client, round and epoch, then by layer."""

    p: float
    seeds: Sequence[int] | Tensor  # of the layers

    def __call__(self, h_NH: Tensor, layer: int, ids_K: Tensor, segments: Segments) -> Tensor:
        key_K = client_keys(ids_K, self.seeds[layer - 1])
        kept = dropout_mask(key_K, segments.owner_N, segments.row_N, h_NH.shape[1], self.p, h_NH.dtype)
        return h_NH * kept


def dropout_seeds(seed: int, number: int, epoch: int) -> list[int]:
    """The seeds of a round's and epoch's dropout, layer by layer."""
    return [derive(seed, "dropout", number, epoch, layer) for layer in (1, 2)]


def glorot(rows: int, columns: int, stream: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns)); drawn in double precision, so that every dtype starts alike."""
    bound = math.sqrt(6 / (rows + columns))
    return (torch.rand(rows, columns, generator=stream, dtype=torch.float64) * 2 - 1) * bound
