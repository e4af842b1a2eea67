"""Whether a node was among a client's training nodes, from how sure a model is of its class.

With p the probability of the node's true class, a model is surer of what it was trained on. The log-odds log p/(1 − p)
are compared

- between nodes (Yeom et al., 2018): no other model is needed; or
- with those of models that were trained without the node, of which μ and σ are mean and deviation (LiRA offline;
  Carlini et al., 2022): z = (log-odds − μ) / σ. Such shadow models are those of runs in which random halves of the
  candidates are the training nodes. σ is one for all nodes: they are few.

Axes: M candidates, S shadow models, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_odds(logits_MC: Tensor, y_M: Tensor) -> Tensor:
    """Of the true class, [M]."""
    logits_MC, true = logits_MC.double(), y_M.unsqueeze(1)
    others_MC = logits_MC.scatter(1, true, float("-inf"))
    return logits_MC.gather(1, true)[:, 0] - others_MC.logsumexp(1)


def lira(odds_M: Tensor, shadow_SM: Tensor, trained_SM: Tensor) -> Tensor:
    """z of every candidate, [M]; `trained_SM` says which shadow models had it as a training node."""
    without_SM = (~trained_SM).double()
    count_M = without_SM.sum(0)
    mean_M = (shadow_SM * without_SM).sum(0) / count_M.clamp(min=1)
    square = ((shadow_SM - mean_M).square() * without_SM).sum() / without_SM.sum().clamp(min=1)
    overall = (shadow_SM * without_SM).sum() / without_SM.sum().clamp(min=1)
    mean_M = torch.where(count_M > 0, mean_M, overall)  # a node that every shadow model was trained on
    return (odds_M - mean_M) / square.sqrt().clamp(min=1e-12)
