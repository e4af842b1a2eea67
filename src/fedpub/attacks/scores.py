"""How good an estimate is. All scores are 1 at best; what a guess reaches is said beside each.

Axes: K clients, C classes, F features, M candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

RATE = 0.01  # of false alarms at which the share of members found is stated
ENOUGH = 100  # non-members from which on it can be


def overlap(estimate_KC: Tensor, truth_KC: Tensor) -> Tensor:
    """1 − total variation distance: the part of the nodes whose class the estimate has right, [K]."""
    return 1 - (estimate_KC - truth_KC).abs().sum(1) / 2


def correlation(estimate_KC: Tensor, truth_KC: Tensor) -> Tensor:
    """Pearson's over the classes, [K]; NaN for an estimate or truth that is the same for all of them."""
    one, other = (value - value.mean(1, keepdim=True) for value in (estimate_KC, truth_KC))
    size_K = one.norm(dim=1) * other.norm(dim=1)
    return torch.where(size_K > 1e-9, (one * other).sum(1) / size_K.clamp(min=1e-30), float("nan"))


def f1(found_KF: Tensor, truth_KF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Harmonic mean of precision and recall, precision, recall: [K] each."""
    right_K = (found_KF & truth_KF).double().sum(1)
    precision_K = right_K / found_KF.double().sum(1).clamp(min=1)
    recall_K = right_K / truth_KF.double().sum(1).clamp(min=1)
    return 2 * precision_K * recall_K / (precision_K + recall_K).clamp(min=1e-30), precision_K, recall_K


def cosine(estimate_KF: Tensor, truth_KF: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(estimate_KF, truth_KF, dim=1)


def auc(score_M: Tensor, member_M: Tensor) -> float:
    """The probability that a member scores higher than a non-member; 0.5 for a guess. NaN without either."""
    inside, outside = score_M[member_M], score_M[~member_M]
    if not len(inside) or not len(outside):
        return float("nan")
    pairs = inside.unsqueeze(1) - outside
    return float(((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean())


def found_at(score_M: Tensor, member_M: Tensor, rate: float = RATE) -> float | None:
    """The share of members found if that share of non-members is taken for members; None with too few of them."""
    outside = score_M[~member_M].sort(descending=True).values
    if len(outside) < ENOUGH or not bool(member_M.any()):
        return None
    return float((score_M[member_M] > outside[int(rate * len(outside))]).double().mean())


def adjusted_rand(one_K: Tensor, other_K: Tensor) -> float:
    """How far two groupings agree (Hubert and Arabie, 1985): 1 if they are the same, 0 for chance."""
    both = torch.nn.functional.one_hot(one_K).T.double() @ torch.nn.functional.one_hot(other_K).double()

    def pairs(count: Tensor) -> float:
        return float((count * (count - 1) / 2).sum())

    rows, columns, total = pairs(both.sum(1)), pairs(both.sum(0)), pairs(both.sum())
    chance = rows * columns / max(total, 1.0)
    most = (rows + columns) / 2
    return 1.0 if most == chance else (pairs(both) - chance) / (most - chance)
