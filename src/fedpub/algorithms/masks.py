"""Masks μ on weights θ: the model computes with θ ⊙ μ, and both are trained.

Among trained parameters a mask has the name of its weight with the prefix `MASK`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.core.recording import recording
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Model

MASK = "mask."


def is_matrix(leaf: Tensor) -> bool:
    """Whether a parameter [K, ...] is a weight matrix: only those have masks."""
    return leaf.dim() >= 3


def first_masks(weights: Tree) -> Tree:
    """A mask of ones on every weight matrix."""
    return {name: torch.ones_like(leaf) for name, leaf in weights.items() if is_matrix(leaf)}


def with_masks(weights: Tree, masks: Tree) -> Tree:
    """Weights and masks as one tree of trained parameters."""
    return weights | {MASK + name: mask for name, mask in masks.items()}


def masked(parameters: Tree) -> Tree:
    """θ ⊙ μ for weights with a mask, θ for others."""
    return {
        name: leaf * parameters[MASK + name] if MASK + name in parameters else leaf
        for name, leaf in parameters.items()
        if not name.startswith(MASK)
    }


def chain_rule(parameters: Tree, gradients: Tree) -> Tree:
    """The gradients of θ and μ, from those of θ ⊙ μ."""
    found: Tree = {}
    for name, gradient in gradients.items():
        if MASK + name in parameters:
            found[MASK + name] = gradient * parameters[name]
            found[name] = gradient * parameters[MASK + name]
        else:
            found[name] = gradient
    return found


def forget_unseen(masks: Tree, step_K: Tensor, model: Model, data: Clients) -> None:
    """Before a client's first step: μ = 0 on inputs that no node of the client has, since the loss cannot depend on it.

    The rows stay zero: they have no gradient. A recorded round is never a client's first.
    """
    if not recording(step_K) and bool((step_K == 0).any()):
        for name, seen_KF in model.seen(data).items():
            masks[name].mul_(seen_KF.unsqueeze(2))
