"""The gradient behind Adam's first step.

From moments of zero, Adam (Kingma and Ba, 2015) moves a weight by

    Δ = −η g / (|g| + ε),        so that        |g| = ε |Δ| / (η − |Δ|):

almost η whatever the gradient is, but the missing ε/|g| is in the digits of the upload. Single precision has enough of
them for gradients up to about a fortieth. So one local epoch in full batch, which looks like a sign, is the gradient.
"""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import Tensor

from fedpub.core.optim import EPSILON
from fedpub.core.tree import Tree

NEAR = 0.9  # of η: the median first step is above
BETWEEN = 0.1  # the share of steps of other lengths, which means of several clients' steps have
BEYOND = 1e-5  # of η: what rounding may add
DIGITS = 4  # roundings of 1 by which a step must differ from η to tell the gradient


def is_first_step(change: Tree, lr: float, inputs: Container[str] = ()) -> bool:
    """Whether a change of weights is Adam's first step, and no other step and no mean of several clients' steps.

    In the matrices of the inputs rare words have gradients that are as small as ε: those do not decide it.
    """
    most = max((float(leaf.abs().max()) for leaf in change.values() if leaf.numel()), default=0.0)
    ratio = torch.cat([leaf.flatten() for name, leaf in change.items() if name not in inputs] or [torch.zeros(0)])
    ratio = ratio.abs()[ratio != 0] / lr
    if not len(ratio) or most > lr * (1 + BEYOND):
        return False
    between = (ratio > 0.2) & (ratio < 0.8)
    return float(ratio.median()) >= NEAR and float(between.double().mean()) <= BETWEEN


def gradient(change: Tensor, lr: float, precision: float = torch.finfo(torch.float32).eps) -> tuple[Tensor, Tensor]:
    """The gradient of a first step, and of which entries it is known; the others have the right sign."""
    size = change.abs()
    missing = lr - size
    found = -change.sign() * EPSILON * size / missing.clamp(min=lr * precision / 2)
    return found, missing >= DIGITS * precision * lr
