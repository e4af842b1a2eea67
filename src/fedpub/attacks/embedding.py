"""How many nodes of each class a client trains on, from what it sends for grouping alone.

A functional embedding is what a client's model says about a random graph that is the same for all (Baek et al., 2023),
and a model says more often, and more firmly, what it was trained on:

- the mean hidden values of FED-PUB go through the output layer that the coordinator has sent: logits for each class;
- the outputs of FED-PUB-plus have lost their mean, but those of classes with many examples vary more over the graph.

Axes: K clients, P proxy nodes, H hidden, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SHARPNESS = 1.2  # deviations of evidence to logits: shares of one to three classes out of ten stay between 0 and 1


def logits(embedding_KH: Tensor, weight_KHC: Tensor, bias_KC: Tensor) -> Tensor:
    """What the output layer makes of mean hidden values, [K, C]."""
    return torch.einsum("kh,khc->kc", embedding_KH.relu(), weight_KHC) + bias_KC


def variation(function_KD: Tensor, classes: int) -> Tensor:
    """The deviation of each class's output over the proxy nodes, [K, C]."""
    return function_KD.view(len(function_KD), -1, classes).std(1)


def shares(evidence: Sequence[Tensor]) -> Tensor:
    """π from evidence of several rounds, [K, C] each: standardised over the classes, then a softmax of the mean.

    Of two classes the standardised evidence has lost its size: there it is that of the last round, less its mean.
    """
    if evidence[0].shape[1] == 2:
        return torch.softmax(evidence[-1], 1)
    mean_KC = torch.stack([_standardised(one) for one in evidence]).mean(0)
    return torch.softmax(SHARPNESS * mean_KC, 1)


def _standardised(value_KC: Tensor) -> Tensor:
    centred = value_KC - value_KC.mean(1, keepdim=True)
    return centred / centred.std(1, keepdim=True).clamp(min=1e-30)
