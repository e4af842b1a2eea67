"""Averages over groups of clients, row by row.

Axes: K clients, G groups.
"""

from __future__ import annotations

from torch import Tensor

from fedpub.core.kernels import average_sent
from fedpub.core.tree import Tree, mix

HELD = 3.0  # clients as which the last average counts, where few have sent a row


def averaged(member_GK: Tensor, weights: Tree, sent: Tree, last: Tree) -> Tree:
    """The mean of each row over the members that sent it; of few members it takes only a part of the step.

    With n of the N members that take part, a row goes n (N + c) / (N (n + c)) of the way from its last value, c =
    `HELD`.
    Clients send whole rows (`_changed`); of others, the first entry counts.
    """
    share_GK = member_GK.to(next(iter(weights.values())).dtype)
    mean, all_G1 = average_sent(share_GK, weights, sent, last), share_GK.sum(1, keepdim=True)
    found: Tree = {}
    for name, leaf in mean.items():
        count = mix(share_GK, {name: sent[name][..., :1].to(leaf.dtype)})[name]
        whole = all_G1.view(-1, *[1] * (leaf.dim() - 1)).clamp(min=1)
        found[name] = last[name] + count * (whole + HELD) / (whole * (count + HELD)) * (leaf - last[name])
    return found
