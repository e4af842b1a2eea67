"""The mean word profile of a client, from the gradient of its first layer.

With z the values of the first layer before its activation, the gradient of its weights is (ÂX)ᵀ ∂L/∂z: every row is a
mixture of the directions of the nodes near which the word occurs. Summed without signs over the hidden units,

    Σ_h |G_fh| = Σ_h |Σ_i (ÂX)_if (∂L/∂z)_ih|,

it grows with how often word f occurs, more than with anything else, since directions have similar lengths (Geiping et
al., 2020, invert gradients by optimisation; here one line does). The gradient is known after the first step only
(`first_step.py`); of later steps the sizes are lost, and with them the profile.

Axes: F features, H hidden.
"""

from __future__ import annotations

from torch import Tensor


def profile(gradient_FH: Tensor) -> Tensor:
    """Relative frequencies of the words, [F], with a sum of one."""
    size_F = gradient_FH.abs().sum(1)
    found: Tensor = size_F / size_F.sum().clamp(min=1e-30)
    return found
