"""A client's choice among several models, by its own validation examples and by what is known of all clients.

With n validation examples, on which model m scores v_m, and the mean V_m of its scores over all clients, a client uses

    argmax_m  (n v_m + n₀ V_m) / (n + n₀).

A client with few examples goes by what is best for most, one with many goes by its own. It can only use a model that
exists: one that it has trained.

Axes: K clients, M models.
"""

from __future__ import annotations

import torch
from torch import Tensor

UNKNOWN = -1.0  # score of a model that is not trained yet, or that nothing was validated on
SMOOTH = 0.8  # decay of the means of scores over rounds


def no_scores(clients: int, models: int, device: torch.device) -> Tensor:
    """Double precision: rounding must not decide between models that tie."""
    return torch.full((clients, models), UNKNOWN, dtype=torch.float64, device=device)


def smoothed(score: Tensor, new: Tensor) -> Tensor:
    """A mean over rounds: SMOOTH of the old one and the rest of the new score; unknown scores change nothing."""
    mean = torch.where(score < 0, new, SMOOTH * score + (1 - SMOOTH) * new)
    return torch.where(new < 0, score, mean)


def means(score_KM: Tensor) -> Tensor:
    """The mean of each column over the clients that know it, [M]."""
    known_KM = score_KM >= 0
    total_M, count_M = torch.where(known_KM, score_KM, 0).sum(0), known_KM.sum(0)
    return torch.where(count_M > 0, total_M / count_M.clamp(min=1), UNKNOWN)


def chosen(exists_KM: Tensor, score_KM: Tensor, mean_KM: Tensor, examples_K: Tensor, evidence: float) -> Tensor:
    """The number of the model that each client uses, [K]; on a tie the first, also if nothing is known of any."""
    own_KM = torch.where(score_KM >= 0, examples_K.double().unsqueeze(1), 0)
    all_KM = torch.where(mean_KM >= 0, torch.full_like(mean_KM, evidence), 0)
    weighed_KM = (own_KM * score_KM + all_KM * mean_KM) / (own_KM + all_KM).clamp(min=1e-30)
    weighed_KM = torch.where(own_KM + all_KM > 0, weighed_KM, UNKNOWN)
    return torch.where(exists_KM, weighed_KM, 2 * UNKNOWN).argmax(1)
