"""Nodes that a client hides, so that a generator learns what missing neighbours look like (FedSage+).

Axes: N nodes, M nodes that lost neighbours, B sampled nodes, F features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpub.core.rng import numpy_stream
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.graph import adjacency_of

HELD_OUT, HIDDEN = 0.4, 0.5  # share of the nodes, none of them for training, and the hidden share of these
AT_ONCE = 1024  # nodes of a client for which one step generates neighbours: bounds the memory
SAMPLED = 64  # nodes on which another client's generator is scored


def hidden_rows(graph: Subgraph, seed: int) -> Tensor:
    """Which nodes of a client are hidden in phase one, [N] bool; never a training node of the classifier."""
    free = torch.arange(graph.num_nodes) if graph.links else torch.nonzero(~graph.train).flatten()
    order = numpy_stream(seed, "fedsage", "hidden", graph.id).permutation(len(free))
    held_out = order[: round(HELD_OUT * graph.num_nodes)]
    hidden = torch.zeros(graph.num_nodes, dtype=torch.bool)
    hidden[free[torch.from_numpy(held_out[: round(HIDDEN * len(held_out))])]] = True
    return hidden


def mended_rows(graph: Subgraph, seed: int) -> Tensor:
    """Which nodes get generated neighbours in phase one, [N] bool: all, or a sample of a large client's."""
    stream = numpy_stream(seed, "fedsage", "mended", graph.id)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
    chosen[torch.from_numpy(sample(np.arange(graph.num_nodes), stream))] = True
    return chosen


def lost_neighbours(graph: Subgraph, hidden: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For the visible nodes: the number of hidden neighbours, which nodes have any, and the features of up to `most`.

    [N], [M], [M, most, F], and a mask of the filled places, [M, most]. If M would exceed AT_ONCE, it is a sample.
    """
    a = adjacency_of(graph.edges, graph.num_nodes)[(~hidden).numpy()][:, hidden.numpy()].tocsr()
    lost = np.diff(a.indptr)
    rows = np.flatnonzero(lost)
    rows = sample(rows, numpy_stream(seed, "fedsage", "matched", graph.id))
    true, known = neighbours_of(a[rows], graph.x[hidden.numpy()], most)
    return torch.from_numpy(lost), torch.from_numpy(rows), true, known


def sample(rows: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """At most AT_ONCE of the rows, in the same order."""
    return rows if len(rows) <= AT_ONCE else np.sort(stream.choice(rows, size=AT_ONCE, replace=False))


def sampled_neighbours(graph: Subgraph, seed: int, number: int, most: int) -> tuple[Tensor, Tensor]:
    """Neighbours of the nodes on which a client scores another's generator, [B, most, F], and their mask [B, most]."""
    a = adjacency_of(graph.edges, graph.num_nodes)
    candidates = np.flatnonzero(np.diff(a.indptr))
    candidates = candidates if len(candidates) else np.arange(graph.num_nodes)
    stream = numpy_stream(seed, "fedsage", "scored", graph.id, number)
    return neighbours_of(a[stream.choice(candidates, size=SAMPLED)], graph.x, most)


def neighbours_of(a: Any, x: Any, most: int) -> tuple[Tensor, Tensor]:
    """The features of the first neighbours in every row of an adjacency, padded with zeros, and their mask."""
    count = np.minimum(np.diff(a.indptr), most)
    known = np.arange(most) < count[:, None]
    place = a.indptr[:-1, None] + np.arange(most)
    true = np.zeros((*known.shape, x.shape[1]), dtype=x.dtype)
    true[known] = x[a.indices[place[known]]].toarray()
    return torch.from_numpy(true), torch.from_numpy(known)
