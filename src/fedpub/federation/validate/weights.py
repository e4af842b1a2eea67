"""Whether weights can be the result of the agreed training: an average at a site, an upload at the coordinator.

A coordinator may send weights of its own making and read a site's data from the answer: a model that always predicts
one class, a unit that is active for a single node. An average of honest models has properties that such weights lack.
With w the first weights, θ the site's own after round b, and r the requested round:

1. In round 1, before anything is averaged, it is w exactly.
2. No step of Adam moves an entry by more than η (1 − β1) / √(1 − β2), and an average is no farther from w than the
   farthest model: |θ̄ − w| ≤ 3.17 η E (r − 1) in every entry. The coordinator applies the same rule to uploads, so that
   a hostile site cannot make the others refuse.
3. Sites learn at similar speeds: max |θ̄ − θ| ≤ FAR (max |θ − w| + η E (r − b)) in every leaf.
4. Matrices are not mostly zeros and, without weight decay, do not vanish, nor does a row or a column.

Measured once in honest runs (every method on the built-in graph, six on Cora; with pruning, rounding and absent sites),
1 nearly suffices instead of 3.17 (1.11 with int8), 1.6 instead of FAR, and the smallest norm of a row or a column is
0.2 of the usual one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context
from fedpub.core.message import Message
from fedpub.core.optim import BETA1, BETA2
from fedpub.core.tree import Tree

STEP = (1 - BETA1) / math.sqrt(1 - BETA2)  # of Adam, in learning rates, at most
ROUNDING = 0.01  # of the largest entry: what int8 and float16 may add to an average
FAR = 4.0
SMALL = 0.02  # of the usual norm of a row, a column or a matrix
LONG = 5  # entries of a row or a column that are not all small by chance
ZEROS = 0.5  # share of a matrix


def implausible(ctx: Context, message: Message, first: Message, own: Tree, base: int) -> str | None:
    """Why a message of round `ctx.round` is not an average of honest models; None if it may be one.

    `first` is the message of the first round, `own` the site's weights after round `base`.
    """
    for part, content in message.trees.items():
        for name, leaf in content.items():
            wrong = _wrong(ctx, leaf, first.tree(part)[name], own.get(name), base)
            if wrong:
                return f"{name} {wrong}"
    return None


def _wrong(ctx: Context, leaf: Tensor, first: Tensor, own: Tensor | None, base: int) -> str | None:
    if ctx.round == 1:
        return None if torch.equal(leaf, first) else "differs from the first weights, although it is the first round"
    if wrong := beyond(ctx, leaf, first, ctx.round - 1):
        return wrong
    if own is not None:
        apart = _furthest(leaf, own)
        most = FAR * (_furthest(own, first) + ctx.lr * ctx.epochs * (ctx.round - base)) + _slack(leaf)
        if not apart <= most:
            return "is farther from this site's own weights than honest training gets"  # without telling how far
    return _odd_matrix(leaf[0].double(), first[0].double(), ctx.weight_decay) if leaf.dim() == 3 else None


def beyond(ctx: Context, leaf: Tensor, first: Tensor, rounds: int, sent: Tensor | None = None) -> str | None:
    """Why a leaf is too far from its start after that many rounds; None if it is not. Only sent entries count."""
    moved = _furthest(leaf, first if sent is None else torch.where(sent, first, leaf))
    most = STEP * ctx.lr * ctx.epochs * rounds + _slack(leaf)
    if moved <= most:
        return None
    return f"is {moved:.3g} from where it started; no training of {rounds} rounds goes beyond {most:.3g}"


def _slack(leaf: Tensor) -> float:
    return ROUNDING * float(leaf.abs().max()) if leaf.numel() else 0.0


def _furthest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.numel() else 0.0


def _odd_matrix(leaf: Tensor, first: Tensor, weight_decay: float) -> str | None:
    if not bool(first.any()):
        return None
    if float(((leaf == 0) & (first != 0)).double().mean()) > ZEROS:
        return "is mostly zeros"
    if weight_decay:  # which turns unused rows into zeros
        return None
    if float(leaf.norm()) < SMALL * float(first.norm()):
        return "is almost zero"
    for axis, word in ((0, "column"), (1, "row")):
        usual = first.norm(dim=axis).median()
        if leaf.shape[axis] >= LONG and bool((leaf.norm(dim=axis) < SMALL * usual).any()):
            return f"has a {word} that is almost zero"
    return None
