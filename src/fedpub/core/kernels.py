"""Arithmetic on stacked weights, arranged for CPU caches and tensor strides.

The docstrings say what is computed; how it is computed matters for speed only.

Axes: K clients, F inputs, H outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.core.tree import CACHED, Tree, mix

BLOCK_ENTRIES = 2**26  # entries of a block on a GPU
PART_ENTRIES = 2**20  # entries of the largest leaf in a part, while clients train


def not_zero(leaf: Tensor) -> Tensor:
    """The number of nonzero entries in each row of a leaf [K, ..., H]: [K, ...].

    On a CPU they are counted as floats, several times faster than booleans and exact for any width that occurs, in
    pieces that stay in the cache.
    """
    if leaf.device.type != "cpu":
        counted: Tensor = torch.linalg.vector_norm(leaf, 0, dim=-1)  # in one kernel
        return counted.double()
    rows = leaf.reshape(-1, leaf.shape[-1])
    count, step = rows.new_empty(len(rows)), max(1, CACHED // max(1, rows.shape[1]))
    piece = rows.new_empty(step, rows.shape[1])
    for start in range(0, len(rows), step):
        own = rows[start : start + step]
        torch.sum(torch.ne(own, 0, out=piece[: len(own)]), 1, out=count[start : start + step])
    return count.view(leaf.shape[:-1]).double()


def sent_entries(mask: Tensor) -> Tensor:
    """The nonzero entries of a mask [K, F, H] as booleans; if no row mixes zeros and others, as when only the rows of
    inputs that a client never sees are zero, a view of one column."""
    if mask.device.type != "cpu":
        return mask != 0
    kept_KF, width = not_zero(mask), mask.shape[2]
    if bool(((kept_KF == 0) | (kept_KF == width)).all()):
        return (kept_KF > 0).unsqueeze(2).expand_as(mask)
    return mask != 0


def average_sent(alpha_KK: Tensor, weights: Tree, sent: Tree, last: Tree) -> Tree:
    """θ̄_i = Σ_j α_ij a_j θ_j / Σ_j α_ij a_j, entry by entry; the last value if no a_j is set."""
    averaged = {}
    for name, leaf in weights.items():
        if name not in sent:
            averaged[name] = mix(alpha_KK, {name: leaf})[name]
            continue
        if leaf.dim() == 2:  # as a matrix with one row
            one = {name: leaf.unsqueeze(1)}, {name: sent[name].unsqueeze(1)}, {name: last[name].unsqueeze(1)}
            averaged[name] = average_sent(alpha_KK, *one)[name].squeeze(1)
            continue
        mean = leaf.new_empty(len(alpha_KK), *leaf.shape[1:])
        # Block by block: rows fit into a CPU's cache, and thousands of clients need little memory.
        step = max(1, (CACHED if leaf.device.type == "cpu" else BLOCK_ENTRIES) // (len(leaf) * leaf.shape[2]))
        for start in range(0, leaf.shape[1], step):
            rows = (slice(None), slice(start, start + step))
            _average_entries(alpha_KK, leaf[rows], sent[name][rows], last[name][rows], mean[rows])
        averaged[name] = mean
    return averaged


def _average_entries(alpha_KK: Tensor, leaf: Tensor, sent: Tensor, last: Tensor, out: Tensor) -> None:
    share = (sent[..., :1] if sent.stride(-1) == 0 else sent).to(leaf.dtype)
    parts = mix(alpha_KK, {"total": leaf * share, "shares": share})
    if leaf.device.type == "cpu" and bool((parts["shares"] > 0).all()):
        torch.div(parts["total"], parts["shares"], out=out)
    else:
        torch.where(parts["shares"] > 0, parts["total"].div_(parts["shares"]), last, out=out)


def parts_in_cache(weights: Tree) -> list[slice]:
    """Slices of a few clients whose gradient computations fit into a CPU's cache; on a GPU, all clients at once."""
    some = next(iter(weights.values()))
    if some.device.type != "cpu":
        return [slice(None)]
    size = max(1, PART_ENTRIES // max(leaf[0].numel() for leaf in weights.values()))
    return [slice(start, start + size) for start in range(0, len(some), size)]
