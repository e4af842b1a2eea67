"""FedSage+'s generator of missing neighbours (Zhang et al., 2021): how many a node lacks, and what they look like.

    z = encoder(G)    count = softplus(z · c + b)    x̂_1 .. x̂_P = ReLU((z + ε) A + a) B + b    ε ~ N(0, 1) in training

The published count is a ReLU. If most nodes lack nothing, it soon is zero for all of them, and then has no gradient.

Axes: K clients, N nodes, M chosen nodes, L latent, P generated neighbours of a node, T true ones, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpub.core.segments import Segments, segment_add, segment_matmul
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Model, glorot

LATENT, HEAD = 64, 64  # widths
ENCODER = "encoder."
FEATURE_HEAD = "head"  # prefix of the names of the feature head's parameters


@dataclass(frozen=True)
class Generator:
    encoder: Model
    neighbours: int = 5  # P, the maximum per node

    def init(self, num_features: int, stream: torch.Generator) -> Tree:
        """The initial parameters, without a client axis."""
        encoder = self.encoder.init(num_features, LATENT, stream)
        out = self.neighbours * num_features
        return {ENCODER + name: leaf for name, leaf in encoder.items()} | {
            "count.weight": glorot(LATENT, 1, stream),
            "count.bias": torch.zeros(1, dtype=torch.float64),
            "head1.weight": glorot(LATENT, HEAD, stream),
            "head1.bias": torch.zeros(HEAD, dtype=torch.float64),
            "head2.weight": glorot(HEAD, out, stream),
            "head2.bias": torch.zeros(out, dtype=torch.float64),
        }

    def encode(self, w: Tree, data: Clients) -> Tensor:
        """The latent of every node, [N, L]."""
        own = {name.removeprefix(ENCODER): leaf for name, leaf in w.items() if name.startswith(ENCODER)}
        return self.encoder.apply(own, data)

    def counts(self, w: Tree, z_NL: Tensor, segments: Segments) -> Tensor:
        """The number of neighbours that every node lacks, [N]."""
        product = segment_matmul(z_NL, w["count.weight"], segments)
        return torch.nn.functional.softplus(segment_add(product, w["count.bias"], segments)).squeeze(1)

    def features(self, w: Tree, z_ML: Tensor, segments: Segments) -> Tensor:
        """The neighbours of chosen nodes, [M, P, F]; `segments` assigns the nodes to clients."""
        h = torch.relu(segment_add(segment_matmul(z_ML, w["head1.weight"], segments), w["head1.bias"], segments))
        flat = segment_add(segment_matmul(h, w["head2.weight"], segments), w["head2.bias"], segments)
        return flat.view(len(z_ML), self.neighbours, flat.shape[1] // self.neighbours)


def greedy_loss(generated_MPF: Tensor, true_MTF: Tensor, known_MT: Tensor) -> Tensor:
    """Each generated neighbour against the nearest true one: the mean squared error, averaged over the P, [M].

    `known_MT` marks which of the T places hold a true neighbour; a node has at least one.
    """
    with torch.no_grad():
        square = (generated_MPF**2).sum(2, keepdim=True) + (true_MTF**2).sum(2).unsqueeze(1)
        distance_MPT = square - 2 * generated_MPF @ true_MTF.mT
        nearest_MP = distance_MPT.masked_fill(~known_MT.unsqueeze(1), float("inf")).argmin(2)
        index = nearest_MP.unsqueeze(2).expand(-1, -1, true_MTF.shape[2])
        target_MPF = true_MTF.gather(1, index)
    return ((generated_MPF - target_MPF) ** 2).mean((1, 2))


def feature_head(parameters: Tree) -> Tree:
    return {name: leaf for name, leaf in parameters.items() if name.startswith(FEATURE_HEAD)}


def generate(generator: Generator, w: Tree, z_NL: Tensor, count_N: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Generated neighbours [G, F] and the row of the node each belongs to, [G], ascending; `count_N` per node."""
    rows = torch.nonzero(count_N).flatten()
    sizes = torch.bincount(segments.owner_N[rows], minlength=len(segments.sizes)).tolist()
    own = Segments.of(sizes, z_NL.dtype, z_NL.device)
    generated = generator.features(w, z_NL[rows], own)
    wanted = torch.arange(generator.neighbours, device=rows.device) < count_N[rows].unsqueeze(1)
    return generated[wanted], torch.repeat_interleave(rows, count_N[rows])


def mean_by_client(value_M: Tensor, segments: Segments) -> Tensor:
    """The mean over the rows of each client, [K]; zero without any."""
    total_K = value_M.new_zeros(len(segments.sizes)).index_add(0, segments.owner_N, value_M)
    return total_K / torch.tensor(segments.sizes, device=value_M.device).clamp(min=1)
