"""The gradient behind Adam's first step.

From moments of zero, Adam (Kingma and Ba, 2015) moves a weight by

    Δ = −η g / (|g| + ε),        so that        |g| = ε |Δ| / (η − |Δ|):

almost η whatever the gradient is, but the missing ε/|g| is in the digits of the upload. Single precision has enough of
them for gradients up to about a fortieth. So one local epoch in full batch, which looks like a sign, is the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.core.optim import EPSILON
from fedpub.core.tree import Tree

NEAR = 0.99  # of η: the median first step is above, unless gradients are as small as ε
BEYOND = 1e-5  # of η: what rounding may add
DIGITS = 4  # roundings of 1 by which a step must differ from η to tell the gradient


def is_first_step(change: Tree, lr: float) -> bool:
    """Whether a change of weights is Adam's first step, and no other step and no mean of several clients' steps."""
    ratio = torch.cat([leaf.flatten() for leaf in change.values()]).abs() / lr
    ratio = ratio[ratio > 0]
    return bool(len(ratio)) and float(ratio.max()) <= 1 + BEYOND and float(ratio.median()) >= NEAR


def gradient(change: Tensor, lr: float, precision: float = torch.finfo(torch.float32).eps) -> tuple[Tensor, Tensor]:
    """The gradient of a first step, and of which entries it is known; the others have the right sign."""
    size = change.abs()
    missing = lr - size
    found = -change.sign() * EPSILON * size / missing.clamp(min=lr * precision / 2)
    return found, missing >= DIGITS * precision * lr
