"""Which words a client has, from the rows of the first layer that it sends or changes.

The loss of a client cannot depend on the weights of a feature that none of its nodes has. FED-PUB does not send such
rows (μ = 0), and without weight decay they do not change under any method: either way, the others are its words.

Axes: F features, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedpub.core.tree import Tree


def words(touched: Tree, inputs: Sequence[str]) -> Tensor:
    """Features with a touched entry in any matrix of the first layer, bool [F]; leaves are [1, F, H]."""
    return torch.stack([touched[name][0].any(1) for name in inputs if name in touched]).any(0)


def common(has_KF: Tensor) -> Tensor:
    """The guess: words that more than half of the clients have, bool [F]."""
    return has_KF.double().mean(0) > 0.5
