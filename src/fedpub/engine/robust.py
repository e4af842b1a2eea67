"""Bounds on what a single site can do to an average."""

from __future__ import annotations

import torch

from fedpub.tree import Message, Tree, for_each, tree

DEVIATIONS = 3.0  # how far from the median an entry may be, in median absolute deviations


def clipped(up: Message, sent: Message, limit: float) -> Message:
    """Uploads [K, ...] whose distance from what was sent is at most `limit`: longer steps are shortened."""
    done = dict(up)
    for name, part in sent.items():
        if not isinstance(part, dict) or not isinstance(up.get(name), dict):
            continue
        step = {leaf: tree(up[name])[leaf] - value for leaf, value in part.items()}
        length_K = torch.stack([change.flatten(1).square().sum(1) for change in step.values()]).sum(0).sqrt()
        share_K = (limit / length_K.clamp(min=1e-30)).clamp(max=1)
        done[name] = {leaf: part[leaf] + for_each(share_K, change) * change for leaf, change in step.items()}
    return done


def bounded(up: Message) -> Message:
    """Uploads [K, ...] with every entry at most three median absolute deviations from the median of those who sent it.

    A mean of these, weighted in whatever way, moves little however far a minority goes.
    """
    done = dict(up)
    active = tree(up.get("active", {}))
    for name, part in up.items():
        if name != "active" and isinstance(part, dict):
            done[name] = _bounded(part, active)
    return done


def _bounded(part: Tree, active: Tree) -> Tree:
    found = {}
    for leaf, value in part.items():
        if not value.is_floating_point() or len(value) < 3:  # of two nobody is the odd one
            found[leaf] = value
            continue
        known = value if leaf not in active else value.masked_fill(~active[leaf], float("nan"))
        middle = known.nanmedian(0, keepdim=True).values
        spread = (known - middle).abs().nanmedian(0, keepdim=True).values
        low, high = middle - DEVIATIONS * spread, middle + DEVIATIONS * spread
        inside = torch.where(torch.isnan(middle), value, torch.minimum(torch.maximum(value, low), high))
        found[leaf] = inside
    return found
