"""Proxy graphs: every client's model is evaluated on the same random graph, and the mean output of the second
convolution is its functional embedding (FED-PUB, section 4.1 and appendix B.3).

Axes: K clients, P proxy nodes, F features, H hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedpub.core.rng import numpy_stream
from fedpub.core.segments import PaddedRows
from fedpub.core.sparse import SparseRows
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation, normalised_adjacency
from fedpub.data.graph import undirected

ProxyKind = Literal["sbm", "er", "one", "feature"]
BLOCKS, BLOCK_NODES = 5, 100
P_IN, P_OUT = 0.1, 0.01


@dataclass(frozen=True, eq=False)
class Proxy:
    """A graph for every model: features [P, F], or [K, P, F] if each client has its own."""

    x: Tensor
    walks: tuple[Tensor, ...]  # the features after 1, 2, ... steps along the edges
    adjacency_PP: Tensor  # normalised
    mean_propagation_P: Tensor  # its column means: the mean over nodes of one propagation
    edge_index: Tensor  # [2, E], both directions of every edge
    columns_KM: Tensor | None = None  # the features present, if some are left out

    @property
    def propagated(self) -> Tensor:
        return self.walks[0]

    def walk(self, steps: int) -> Tensor:
        """The features after so many steps along the edges."""
        return self.walks[steps - 1] if steps else self.x

    def rows(self, w_KFH: Tensor) -> Tensor:
        """The rows of a weight matrix on the inputs that belong to the features present."""
        if self.columns_KM is None:
            return w_KFH
        k, m = self.columns_KM.shape
        place = (torch.arange(k, device=w_KFH.device).unsqueeze(1) * w_KFH.shape[1] + self.columns_KM).flatten()
        return w_KFH.flatten(0, 1).index_select(0, place).view(k, m, w_KFH.shape[2])


def proxy_structure(kind: ProxyKind, seed: int, propagation: Propagation, p_out: float) -> np.ndarray:
    """The normalised adjacency of a proxy graph, [P, P]; a few hundred nodes, so dense."""
    stream = numpy_stream(seed, "proxy", "edges", kind)
    nodes = 1 if kind == "one" else BLOCKS * BLOCK_NODES
    block = np.arange(nodes) // BLOCK_NODES
    p_PP = np.where(block[:, None] == block, P_IN, p_out)
    if kind == "er":  # the expected edge count of the block model, without its blocks
        p_PP = np.full_like(p_PP, (P_IN + (BLOCKS - 1) * p_out) / BLOCKS)
    u, v = np.nonzero(np.triu(stream.random((nodes, nodes)) < p_PP, k=1))
    edges = undirected(torch.from_numpy(np.stack([u, v])), nodes)
    dense: np.ndarray = normalised_adjacency(edges, nodes, propagation).toarray()
    return dense


def random_proxy(
    kind: ProxyKind,
    seed: int,
    num_features: int,
    propagation: Propagation,
    p_out: float,
    device: torch.device,
    dtype: torch.dtype,
    steps: int = 1,
) -> Proxy:
    """The proxy graph of a federation, made from its seed: standard normal features on random edges."""
    a_PP = proxy_structure(kind, seed, propagation, p_out)
    x_PF = numpy_stream(seed, "proxy", "features").standard_normal((len(a_PP), num_features))
    walks = [x_PF]
    for _ in range(steps):
        walks.append(a_PP @ walks[-1])
    x, *further, whole, mean = (torch.from_numpy(part).to(device, dtype) for part in (*walks, a_PP, a_PP.mean(0)))
    return Proxy(x, tuple(further), whole, mean, _edge_index(torch.from_numpy(a_PP)).to(device))


def feature_proxy(seed: int, data: Clients, structure: np.ndarray, steps: int = 1) -> Proxy:
    """A proxy graph's edges with features drawn from the client's own nodes; they never leave it."""
    a_PP = torch.from_numpy(structure).to(data.device, data.dtype)
    parts = []
    for position, (client, size) in enumerate(zip(data.ids_K.tolist(), data.segments.sizes, strict=True)):
        drawn = numpy_stream(seed, "proxy", "features", client).integers(size, size=len(a_PP))
        parts.append(client_rows(data, position)[torch.from_numpy(drawn).to(data.device)])
    x_KPF = torch.stack(parts)
    walks = [x_KPF]
    for _ in range(steps):
        walks.append(a_PP @ walks[-1])
    return Proxy(x_KPF, tuple(walks[1:]), a_PP, a_PP.mean(0), _edge_index(a_PP))


NARROW_BELOW, NARROW_BYTES = 2 / 3, 2**29


def narrowed(proxy: Proxy, seen_KF: Tensor) -> Proxy:
    """A proxy graph without the features whose weights are zero at each client.

    Every client keeps as many features as the client that keeps most: its own, and others, which do no harm. The graph
    itself if this would not save a third, or would not fit.
    """
    (k, f), most = seen_KF.shape, int(seen_KF.sum(1).max())
    size = (1 + len(proxy.walks)) * k * len(proxy.x) * most * proxy.x.element_size()
    if proxy.x.dim() != 2 or most > NARROW_BELOW * f or size > NARROW_BYTES:
        return proxy
    columns_KM = torch.argsort(seen_KF.to(torch.uint8), dim=1, descending=True, stable=True)[:, :most].sort(1).values
    x, *walks = (part.T[columns_KM].transpose(1, 2).contiguous() for part in (proxy.x, *proxy.walks))
    return replace(proxy, x=x, walks=tuple(walks), columns_KM=columns_KM)


def _edge_index(a_PP: Tensor) -> Tensor:
    """The edges of an adjacency matrix, whether or not it has self-loops."""
    return a_PP.clone().fill_diagonal_(0).nonzero().T


def client_rows(data: Clients, position: int) -> Tensor:
    """The features of one client, dense."""
    start, end = data.segments.spans[position]
    if isinstance(data.x, PaddedRows):
        return data.x.x_KMF[position, : end - start]
    if not isinstance(data.x, SparseRows):
        return data.x[start:end]
    pointer, f = data.x.forward.crow_indices(), data.num_features
    first, last = int(pointer[start]), int(pointer[end])
    rows = torch.repeat_interleave(torch.arange(end - start), pointer[start : end + 1].diff())
    dense = torch.zeros(end - start, f, dtype=data.dtype)
    columns = data.x.forward.col_indices()[first:last] - position * f
    dense[rows, columns] = data.x.forward.values()[first:last]
    return dense
