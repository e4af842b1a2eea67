"""Similarity of clients, without access to their data, and the attention that follows from it.

Axes: K clients, H hidden, C classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedpub.core.sparse import csr


def cosine(h_KH: Tensor) -> Tensor:
    """S(i, j) = h_i · h_j / (|h_i| |h_j|), [K, K]."""
    unit_KH = torch.nn.functional.normalize(h_KH, dim=1)
    return unit_KH @ unit_KH.T


def nearest(h_KH: Tensor, tau: float, count: int) -> tuple[Tensor, Tensor]:
    """The attention of every client to its `count` most similar ones, including itself, as a CSR matrix [K, K] whose
    rows sum to one; and the share that all others would have had, [K]. No dense K by K matrix is made."""
    unit_KH, k = torch.nn.functional.normalize(h_KH, dim=1), len(h_KH)
    count = min(count, k)
    columns, values, left_out = [], [], []
    for start in range(0, k, NEAREST_BLOCK):
        score = tau * (unit_KH[start : start + NEAREST_BLOCK] @ unit_KH.T)
        own = torch.arange(len(score), device=score.device)
        ranked = score.clone()
        ranked[own, own + start] = float("inf")  # the client itself comes first, whatever the ties
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
    """α_ij = exp(τ S(i, j)) / Σ_k exp(τ S(i, k)); with a threshold, only over clients at least that similar."""
    score_KK = tau * similarity_KK
    if threshold is not None:
        near_KK = (similarity_KK >= threshold) | torch.eye(len(score_KK), dtype=torch.bool, device=score_KK.device)
        score_KK = score_KK.masked_fill(~near_KK, float("-inf"))
    return torch.softmax(score_KK, dim=1)
