"""Bounds on what a single site can do to an average.

Both engines apply them to the uploads of a round, [K, ...], before a method's server step. Sites are compared with each
other, and only in the entries they sent: a pruned entry is not a step of its site. Of two sites neither is the outlier:
steps are bounded from three sites on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context
from fedpub.core.message import Message
from fedpub.core.recording import any_of
from fedpub.core.tree import CACHED, State, Tree, for_each

STEPS = 2.0  # maximum length of a step, in steps of the median site
ENTRIES = 3.0  # maximum change of an entry sent by fewer than three sites, in changes at the median site
DEVIATIONS = 3.0  # maximum distance from the median of an entry sent by three or more, in median absolute deviations
COUNTS = 3.0  # maximum number of examples that count, in examples of the median site


def defended(ctx: Context, up: Message, sent: Message) -> Message:
    """The uploads of a round as they reach the server step; `sent` is what these clients had received, [K, ...]."""
    if ctx.defence in ("none", "guard"):
        return up
    return capped(bounded(up, sent) if ctx.defence == "median" else clipped(up, sent))


def clipped(up: Message, sent: Message) -> Message:
    """Uploads with their steps from the sent weights shortened to at most twice the length of the median site's.

    Nothing is copied if no step is too long.
    """
    return shortened(up, sent, shares(lengths(up, sent)))


def lengths(up: Message, sent: Message) -> dict[str, Tensor]:
    """The length of every site's step in every tree that was sent and returned, [K]."""
    found = {}
    for name, (part, before, active) in _both_ways(up, sent).items():
        # In the order of names, as in a file: a resumed run must sum in the same order.
        squares = [_square(part[leaf], before[leaf], active.get(leaf)) for leaf in sorted(part)]
        found[name] = torch.stack(squares).sum(0).sqrt()
    return found


def shares(length_K: dict[str, Tensor]) -> dict[str, Tensor]:
    """The share of every site's step that is kept, [K], by tree; trees of fewer than three sites stay as they are."""
    return {
        name: STEPS * _median(own_K) / own_K.clamp(min=1e-30) for name, own_K in length_K.items() if len(own_K) >= 3
    }


def shortened(up: Message, sent: Message, share_K: dict[str, Tensor]) -> Message:
    """Uploads with that share of their steps where it is below one."""
    done: State = {}
    for name, own_K in share_K.items():
        if any_of(own_K < 1):
            before = sent.tree(name)
            done[name] = {leaf: _shortened(value, before[leaf], own_K) for leaf, value in up.tree(name).items()}
    return up | done


def _square(value: Tensor, before: Tensor, active: Tensor | None) -> Tensor:
    """The squared length of every site's step in the entries it sent, [K]."""
    squares = []
    for own in _parts(value):
        step = value[own] - before[own]
        squares.append(_sum_of_squares(step if active is None else step * active[own]))
    return torch.cat(squares)


def _sum_of_squares(step: Tensor) -> Tensor:
    """The sum of squares of every client, [K]; in the same order whatever the memory layout."""
    return step.contiguous().flatten(1).square().sum(1)


def _parts(leaf: Tensor) -> list[slice]:
    """Slices of a few clients on a CPU, so that thousands need little memory."""
    size = max(1, CACHED // leaf[0].numel()) if leaf.device.type == "cpu" else len(leaf)
    return [slice(start, start + size) for start in range(0, len(leaf), size)]


def _shortened(value: Tensor, before: Tensor, share_K: Tensor) -> Tensor:
    share = for_each(share_K, value)
    # Steps that are short enough stay exactly as they are.
    return torch.where(share < 1, before + share * (value - before), value).contiguous()


def _median(value_K: Tensor) -> Tensor:
    """The lower median of the values above zero, since idle sites carry no information; infinite if there are none."""
    ascending_K = torch.where(value_K > 0, value_K, float("inf")).sort().values
    middle = ((value_K > 0).sum() - 1).div(2, rounding_mode="floor").clamp(min=0)
    return ascending_K.index_select(0, middle.view(1))[0]


def bounded(up: Message, sent: Message) -> Message:
    """Uploads with every entry bounded by those of other sites.

    An entry sent by three or more sites is at most three median absolute deviations from their median. If fewer sent
    it, no outlier can be identified: it changes by at most three times as much as entries do at the median site. A
    mean of these, however weighted, moves little however far a minority deviates.
    """
    done: State = {}
    for name, (part, before, active) in _both_ways(up, sent).items():
        if len(next(iter(part.values()))) < 3:
            continue
        done[name] = {leaf: _bounded(value, before[leaf], active.get(leaf)) for leaf, value in part.items()}
    return up | done


def _bounded(value: Tensor, before: Tensor, active: Tensor | None) -> Tensor:
    step = value - before if active is None else (value - before) * active
    moved_K = (step != 0).flatten(1).sum(1).clamp(min=1)
    limit = ENTRIES * _median((_sum_of_squares(step) / moved_K).sqrt())
    near = torch.where(step.abs() > limit, before + step.sign() * limit, value)
    known = value if active is None else value.masked_fill(~active, float("nan"))
    middle = known.nanmedian(0, keepdim=True).values
    spread = DEVIATIONS * (known - middle).abs().nanmedian(0, keepdim=True).values
    inside = torch.minimum(torch.maximum(value, middle - spread), middle + spread)
    return torch.where((~known.isnan()).sum(0, keepdim=True) < 3, near, inside).contiguous()


def capped(up: Message) -> Message:
    """Uploads in which no site counts more than three times the examples of the median site, of those that have some.

    The number of examples is a site's weight in an average, and a claim that cannot be checked.
    """
    if "size" not in up:
        return up
    size_K = up.tensor("size")
    most = COUNTS * _median(size_K.double())
    return up | {"size": torch.where(size_K > most, most.nan_to_num(posinf=0).to(size_K.dtype), size_K)}


def _both_ways(up: Message, sent: Message) -> dict[str, tuple[Tree, Tree, Tree]]:
    """Trees that were sent and returned: returned values, sent values, returned entries."""
    names = [name for name in sent.trees if name in up.trees]
    return {name: (up.tree(name), sent.tree(name), up.sent) for name in names}
