"""Metrics of every client at once: from counts of right and wrong classes, and from rankings.

No shape depends on values, and no value is read: rounds on a GPU can be recorded.

Axes: R reported clients, M reported nodes, C classes, P ranked examples.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

Metric = Literal["accuracy", "balanced-accuracy", "macro-f1", "roc-auc", "average-precision"]
# The end of a column's name, such as `test_f1`, and the display name.
COLUMNS: dict[Metric, tuple[str, str]] = {
    "macro-f1": ("f1", "macro-F1"),
    "average-precision": ("ap", "average precision"),
    "accuracy": ("accuracy", "accuracy"),
    "balanced-accuracy": ("balanced_accuracy", "balanced accuracy"),
    "roc-auc": ("auc", "ROC-AUC"),
}
TITLES: dict[str, str] = {name: title for name, (_, title) in COLUMNS.items()}
EVEN = 0.5  # the threshold between two classes that is no choice
ROUNDING = 1e-12  # values that differ by less are equal
RANKINGS: tuple[Metric, ...] = ("average-precision", "roc-auc")
Metrics = dict[Metric, Tensor]


def column(metric: Metric, part: str) -> str:
    return f"{part}_{COLUMNS[metric][0]}"


def by_class(logits_MC: Tensor, y_M: Tensor, owner_M: Tensor, clients: int) -> tuple[Metrics, Tensor]:
    """Every metric of every client, [R], double, and its confusion matrix, [R, C, C]; NaN where undefined."""
    counted = confusion(owner_M, y_M, logits_MC.argmax(1), clients, logits_MC.shape[1])
    auc_R, precision_R = class_ranking(logits_MC, y_M, owner_M, clients)
    return by_count(counted) | {"roc-auc": auc_R, "average-precision": precision_R}, counted


def by_count(confusion_RCC: Tensor) -> Metrics:
    """The metrics that follow from a confusion matrix."""
    return {
        "accuracy": accuracy(confusion_RCC),
        "balanced-accuracy": balanced_accuracy(confusion_RCC),
        "macro-f1": macro_f1(confusion_RCC),
    }


def confusion(owner_M: Tensor, y_M: Tensor, predicted_M: Tensor, clients: int, classes: int) -> Tensor:
    """Counts of each client's nodes by true and predicted class, [R, C, C], double."""
    cell = (owner_M * classes + y_M) * classes + predicted_M
    # Not bincount, which reads the values to size its result.
    count = torch.zeros(clients * classes * classes, dtype=torch.float64, device=cell.device)
    return count.index_add_(0, cell, torch.ones_like(cell, dtype=torch.float64)).view(clients, classes, classes)


def accuracy(confusion_RCC: Tensor) -> Tensor:
    """0/0 is NaN: an empty set has no accuracy."""
    return confusion_RCC.diagonal(dim1=1, dim2=2).sum(1) / confusion_RCC.sum((1, 2))


def balanced_accuracy(confusion_RCC: Tensor) -> Tensor:
    """The mean recall over the classes that occur at a client; NaN without any node."""
    size_RC = confusion_RCC.sum(2)
    recall_RC = confusion_RCC.diagonal(dim1=1, dim2=2) / size_RC.clamp(min=1)
    return recall_RC.sum(1) / (size_RC > 0).sum(1)


def macro_f1(confusion_RCC: Tensor) -> Tensor:
    return mean_f1(confusion_RCC.diagonal(dim1=1, dim2=2), confusion_RCC.sum(2) + confusion_RCC.sum(1))


def mean_f1(hit_RC: Tensor, either_RC: Tensor) -> Tensor:
    """The mean F1 over the classes that occur or were predicted at a client; NaN without any. `either_RC` are the nodes
    that have a class and those predicted to have it, together."""
    f1_RC = torch.where(either_RC > 0, 2 * hit_RC / either_RC.clamp(min=1), 0.0)
    return f1_RC.sum(1) / (either_RC > 0).sum(1)


def best_threshold(share_M: Tensor, true_M: Tensor, metric: Metric) -> float:
    """The threshold above which a share, of the second of two classes, is best decided for it: by the metric, or by
    macro-F1 if that only ranks. One half if it is among the best, or if one of the classes is missing.
    """
    if not bool(true_M.any()) or bool(true_M.all()):
        return EVEN
    share_P, order = torch.sort(share_M.double(), descending=True)
    hit_P = torch.cumsum(true_M[order].double(), 0)
    last = torch.nonzero(share_P[1:] != share_P[:-1]).flatten()  # of the nodes that a threshold can put above it
    everything = [len(share_P) - 1] if share_P[-1] > 0 else []
    above = torch.cat([last.new_tensor([-1]), last, last.new_tensor(everything)])
    hit_T = torch.where(above >= 0, hit_P[above.clamp(min=0)], 0.0)
    wrong_T, all_hit, count = above + 1 - hit_T, float(hit_P[-1]), len(share_P)
    cells = (count - all_hit - wrong_T, wrong_T, all_hit - hit_T, hit_T)
    value_T = by_count(torch.stack(cells, 1).view(-1, 2, 2))[metric if metric not in RANKINGS else "macro-f1"]
    upper_T = torch.cat([share_P.new_ones(1), share_P[last], share_P[-1:]])  # no node is in lower .. upper
    lower_T = torch.cat([share_P[:1], share_P[last + 1], share_P.new_zeros(1)])
    upper_T, lower_T = upper_T[: len(above)], lower_T[: len(above)]
    threshold_T = torch.where((lower_T <= EVEN) & (upper_T > EVEN), EVEN, (lower_T + upper_T) / 2)
    best = torch.nonzero(value_T >= value_T.max() - ROUNDING).flatten()
    return float(threshold_T[best[(threshold_T[best] - EVEN).abs().argmin()]])


def class_ranking(logits_MC: Tensor, y_M: Tensor, owner_M: Tensor, clients: int) -> tuple[Tensor, Tensor]:
    """ROC-AUC and average precision, [R]: of the second of two classes, or the mean over the classes, each against all
    others, that have both kinds of nodes at a client."""
    classes = logits_MC.shape[1]
    if classes == 2:
        return ranking(logits_MC[:, 1] - logits_MC[:, 0], y_M == 1, owner_M, clients)
    class_C = torch.arange(classes, device=y_M.device)
    true_MC, place_MC = y_M.unsqueeze(1) == class_C, owner_M.unsqueeze(1) + class_C * clients
    # By columns: the nodes of one client and class stay next to each other.
    score, true, place = (part.T.flatten() for part in (log_softmax(logits_MC, 1), true_MC, place_MC))
    auc, precision = ranking(score, true, place, clients * classes)
    return auc.view(classes, clients).nanmean(0), precision.view(classes, clients).nanmean(0)


def ranking(score_P: Tensor, true_P: Tensor, owner_P: Tensor, clients: int) -> tuple[Tensor, Tensor]:
    """ROC-AUC and average precision of every client, [R], double; NaN if one kind of example is missing.

    Ties count half in the former, and share a threshold in the latter.
    """
    order = torch.argsort(score_P, descending=True, stable=True)
    order = order[torch.argsort(owner_P[order], stable=True)]  # by client, best first
    score, true, owner = score_P[order], true_P[order].double(), owner_P[order]
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = (owner[1:] != owner[:-1]) | (score[1:] != score[:-1])
    group = torch.cumsum(new, 0) - 1  # of equal scores at a client; as many are allotted as there are examples

    def summed(place: Tensor, value: Tensor, size: int) -> Tensor:
        return value.new_zeros(size).index_add(0, place, value)

    positive_G, negative_G = (summed(group, kind, len(group)) for kind in (true, 1 - true))
    owner_G = summed(group, owner * new, len(group))
    positive_R, negative_R = (summed(owner_G, kind_G, clients) for kind_G in (positive_G, negative_G))

    def before(value_G: Tensor, total_R: Tensor) -> Tensor:
        """The client's cumulative sum over its groups, each included."""
        return torch.cumsum(value_G, 0) - (torch.cumsum(total_R, 0) - total_R)[owner_G]

    found_G, wrong_G = before(positive_G, positive_R), before(negative_G, negative_R)
    # Of the negatives in a group, all positives of better groups and half of its own are ahead.
    ahead_R = summed(owner_G, negative_G * (found_G - positive_G / 2), clients)
    share_G = torch.where(positive_G > 0, found_G / (found_G + wrong_G), 0.0)
    precision_R = summed(owner_G, positive_G * share_G, clients)
    nothing = (positive_R == 0) | (negative_R == 0)
    auc_R = (ahead_R / (positive_R * negative_R)).masked_fill(nothing, float("nan"))
    return auc_R, (precision_R / positive_R).masked_fill(nothing, float("nan"))
