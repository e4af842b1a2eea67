"""How alike two clients are, without a look at their data.

The same proxy graph goes through every client's model; the mean output of the second convolution is the model's
functional embedding (FED-PUB, section 4.1 and appendix B.3). Other similarities serve as comparisons.

Axes: K clients, P proxy nodes, F features, H hidden, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from fedpub.blocks import PaddedRows, SparseRows
from fedpub.data.clients import Clients
from fedpub.data.graph import csr, undirected
from fedpub.data.subgraph import Propagation, normalised_adjacency
from fedpub.rng import numpy_stream

ProxyKind = Literal["sbm", "er", "one", "feature"]
BLOCKS, BLOCK_NODES = 5, 100
P_IN, P_OUT = 0.1, 0.01


@dataclass(frozen=True, eq=False)
class Proxy:
    """A graph that every model sees: [P, F], or [K, P, F] where each client brings features of its own."""

    x: Tensor
    propagated: Tensor
    mean_propagation_P: Tensor  # column means of the normalised adjacency: the mean over nodes of one propagation
    columns_KM: Tensor | None = None  # the features that are there, where some are left out

    def rows(self, w_KFH: Tensor) -> Tensor:
        """The rows of a weight matrix on the inputs that belong to the features that are there."""
        if self.columns_KM is None:
            return w_KFH
        k, m = self.columns_KM.shape
        place = (torch.arange(k, device=w_KFH.device).unsqueeze(1) * w_KFH.shape[1] + self.columns_KM).flatten()
        return w_KFH.flatten(0, 1).index_select(0, place).view(k, m, w_KFH.shape[2])


@lru_cache(maxsize=8)
def proxy_structure(kind: ProxyKind, seed: int, propagation: Propagation, p_out: float) -> np.ndarray:
    """The normalised adjacency of a proxy graph, [P, P]; a few hundred nodes, so dense."""
    stream = numpy_stream(seed, "proxy", "edges", kind)
    nodes = 1 if kind == "one" else BLOCKS * BLOCK_NODES
    block = np.arange(nodes) // BLOCK_NODES
    p_PP = np.where(block[:, None] == block, P_IN, p_out)
    if kind == "er":  # as many edges as the block model has, without its blocks
        p_PP = np.full_like(p_PP, (P_IN + (BLOCKS - 1) * p_out) / BLOCKS)
    u, v = np.nonzero(np.triu(stream.random((nodes, nodes)) < p_PP, k=1))
    edges = undirected(torch.from_numpy(np.stack([u, v])), nodes)
    dense: np.ndarray = normalised_adjacency(edges, nodes, propagation).toarray()
    return dense


@lru_cache(maxsize=8)
def random_proxy(
    kind: ProxyKind,
    seed: int,
    num_features: int,
    propagation: Propagation,
    p_out: float,
    device: torch.device,
    dtype: torch.dtype,
) -> Proxy:
    """The proxy graph of a federation, made from its seed: standard normal features on random edges."""
    a_PP = proxy_structure(kind, seed, propagation, p_out)
    x_PF = numpy_stream(seed, "proxy", "features").standard_normal((len(a_PP), num_features))
    x, propagated, mean = (torch.from_numpy(part).to(device, dtype) for part in (x_PF, a_PP @ x_PF, a_PP.mean(0)))
    return Proxy(x, propagated, mean)


def feature_proxy(seed: int, data: Clients, propagation: Propagation, p_out: float) -> Proxy:
    """The block model's edges with features drawn from the client's own nodes; they never leave it."""
    a_PP = torch.from_numpy(proxy_structure("sbm", seed, propagation, p_out)).to(data.device, data.dtype)
    parts = []
    for position, (client, size) in enumerate(zip(data.ids_K.tolist(), data.segments.sizes, strict=True)):
        drawn = numpy_stream(seed, "proxy", "features", client).integers(size, size=len(a_PP))
        parts.append(_client_rows(data, position)[torch.from_numpy(drawn).to(data.device)])
    x_KPF = torch.stack(parts)
    return Proxy(x_KPF, a_PP @ x_KPF, a_PP.mean(0))


def narrowed(proxy: Proxy, seen_KF: Tensor, data: Clients) -> Proxy:
    """A proxy graph without the features whose weights are zero at each client, for those who know that they are.

    Every client keeps as many as the one that keeps most: its own, and others, which do no harm. It is kept as long as
    the clients are, and made only where it saves a third and fits.
    """
    made = _NARROWED.get(data)
    if made is None or made[0] is not proxy:
        made = _NARROWED[data] = (proxy, _narrow(proxy, seen_KF))
    return made[1]


_NARROWED: WeakKeyDictionary[Clients, tuple[Proxy, Proxy]] = WeakKeyDictionary()
NARROW_BELOW, NARROW_BYTES = 2 / 3, 2**29


def _narrow(proxy: Proxy, seen_KF: Tensor) -> Proxy:
    (k, f), most = seen_KF.shape, int(seen_KF.sum(1).max())
    size = 2 * k * len(proxy.x) * most * proxy.x.element_size()
    if proxy.x.dim() != 2 or most > NARROW_BELOW * f or size > NARROW_BYTES:
        return proxy
    columns_KM = torch.argsort(seen_KF.to(torch.uint8), dim=1, descending=True, stable=True)[:, :most].sort(1).values
    x, propagated = (part.T[columns_KM].transpose(1, 2) for part in (proxy.x, proxy.propagated))
    return Proxy(x.contiguous(), propagated.contiguous(), proxy.mean_propagation_P, columns_KM)


def _client_rows(data: Clients, position: int) -> Tensor:
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


def cosine(h_KH: Tensor) -> Tensor:
    """S(i, j) = h_i · h_j / (|h_i| |h_j|), [K, K]."""
    unit_KH = torch.nn.functional.normalize(h_KH, dim=1)
    return unit_KH @ unit_KH.T


def nearest(h_KH: Tensor, tau: float, count: int) -> tuple[Tensor, Tensor]:
    """The attention of every client to its `count` most similar ones, itself among them, as a CSR matrix [K, K] whose
    rows sum to one; and what all the others would have had of it, [K]. No K by K matrix is made."""
    unit_KH, k = torch.nn.functional.normalize(h_KH, dim=1), len(h_KH)
    columns, values, left_out = [], [], []
    for start in range(0, k, NEAREST_BLOCK):
        score = tau * (unit_KH[start : start + NEAREST_BLOCK] @ unit_KH.T)
        own = torch.arange(len(score), device=score.device)
        ranked = score.clone()
        ranked[own, own + start] = float("inf")  # whoever is as similar: oneself counts
        place = ranked.topk(count, dim=1).indices.sort(1).values
        kept = score.gather(1, place)
        columns.append(place)
        values.append(torch.softmax(kept, dim=1))
        left_out.append(1 - (kept.logsumexp(1) - score.logsumexp(1)).exp())
    pointer = torch.arange(0, k * count + 1, count, device=h_KH.device)
    alpha = csr(pointer, torch.cat(columns).flatten(), torch.cat(values).flatten(), (k, k))
    return alpha, torch.cat(left_out).clamp(min=0)


NEAREST_BLOCK = 1024  # rows of similarities at a time


def label_similarity(counts_KC: Tensor) -> Tensor:
    """One minus the Jensen-Shannon distance of the label distributions, scaled to 0..1."""
    p_KC = counts_KC / counts_KC.sum(1, keepdim=True).clamp(min=1)
    mean_KKC = (p_KC[:, None] + p_KC[None]) / 2

    def divergence(p: Tensor) -> Tensor:
        return torch.where(p > 0, p * (p / mean_KKC.clamp(min=1e-30)).log(), 0.0).sum(2)

    js_KK = (divergence(p_KC[:, None].expand_as(mean_KKC)) + divergence(p_KC[None].expand_as(mean_KKC))) / 2
    return 1 - (js_KK.clamp(min=0) / math.log(2)).sqrt()


def attention(similarity_KK: Tensor, tau: float, threshold: float | None = None) -> Tensor:
    """α_ij = exp(τ S(i, j)) / Σ_k exp(τ S(i, k)); with a threshold only over the clients at least that similar."""
    score_KK = tau * similarity_KK
    if threshold is not None:
        near_KK = (similarity_KK >= threshold) | torch.eye(len(score_KK), dtype=torch.bool, device=score_KK.device)
        score_KK = score_KK.masked_fill(~near_KK, float("-inf"))
    return torch.softmax(score_KK, dim=1)
