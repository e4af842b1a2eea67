"""How many nodes of each class a client trains on, from the output layer of its upload.

With h the hidden values, p the predictions and y the classes of its n training nodes, the gradient of the output
layer's weights and bias is

    G_hc = 1/n Σ_i h_ih (p_ic − y_ic),        b_c = 1/n Σ_i (p_ic − y_ic) = p̄_c − π_c,

where π are the shares of the classes (Zhao et al., 2020, iDLG, for one example; Wainakh et al., 2022, for a batch).
Since h ≥ 0, all weights of an absent class fall. Two estimates follow, neither of which needs other data:

- the gradient itself is known (`first_step.py`): the first predictions are almost uniform and h depends little on the
  class, so that Σ_h G_hc = η (1/C − π_c), with one scale η for all clients;
- only steps are known: the share of the weights of a class that rise, relative to those of the other classes.

Axes: K clients, H hidden, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def by_gradient(weight_KHC: Tensor, bias_KC: Tensor) -> Tensor:
    """π from gradients, [K, C]. If there are more than two classes, each client lacks one: its Σ_h G is η/C. Of two
    classes clients have both, and the bias tells the scale."""
    sum_KC = weight_KHC.sum(1)
    classes = sum_KC.shape[1]
    if classes == 2:
        scale = (sum_KC.abs().sum(1) / bias_KC.abs().sum(1).clamp(min=1e-30)).median()
    else:
        scale = (sum_KC.amax(1) * classes).median()
    return _normalised(1 / classes - sum_KC / scale.clamp(min=1e-30))


def by_steps(steps: Sequence[Tensor]) -> Tensor:
    """π of one client from the changes of its output layer's weights, [H, C], in one or more rounds: [C]."""
    risen_C = torch.stack([1 + step.sign().mean(0) for step in steps]).mean(0)
    return _normalised(risen_C.unsqueeze(0))[0]


def _normalised(share_KC: Tensor) -> Tensor:
    share_KC = share_KC.clamp(min=0)
    total_K = share_KC.sum(1, keepdim=True)
    return torch.where(total_K > 0, share_KC / total_K.clamp(min=1e-30), 1 / share_KC.shape[1])
