"""What attacks are given: what was seen, how was trained, and the truth if it is known.

Axes: K clients, C classes, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context
from fedpub.attacks.first_step import is_first_step
from fedpub.attacks.notebook import Notebook, Own
from fedpub.core.tree import Tree
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.simulate import Federation
from fedpub.experiment import Plan
from fedpub.models.fallback import WithFallback

SPARSE = 0.5  # the share of features that a node has, above which features are not like words


@dataclass(frozen=True, eq=False)
class Truth:
    """What the clients hold, for scores."""

    held: list[Subgraph]
    num_classes: int

    @cached_property
    def shares(self) -> Tensor:
        """Of the classes among each client's training nodes, [K, C]; NaN for a client without any."""
        rows = [torch.bincount(own.y[own.train & (own.y >= 0)], minlength=self.num_classes) for own in self.held]
        count_KC = torch.stack(rows).double()
        return count_KC / count_KC.sum(1, keepdim=True)

    @cached_property
    def has(self) -> Tensor:
        """Which features any node of a client has, bool [K, F]."""
        return torch.stack([torch.from_numpy(np.asarray(_dense_mean(own) != 0)) for own in self.held])

    @cached_property
    def profiles(self) -> Tensor:
        """The mean of each client's features, [K, F]."""
        return torch.stack([torch.from_numpy(_dense_mean(own)) for own in self.held]).double()

    @property
    def overall(self) -> Tensor:
        """The mean of all nodes' features, [F]."""
        size_K = torch.tensor([own.num_nodes for own in self.held], dtype=torch.float64)
        return size_K @ self.profiles / size_K.sum()

    @property
    def of_words(self) -> bool:
        """Whether features are like words: none is negative, and a node has few of them."""
        entries = sum(own.x.shape[0] * own.x.shape[1] for own in self.held)
        parts = [own.x.data if sp.issparse(own.x) else np.asarray(own.x) for own in self.held]
        filled = sum(int(np.count_nonzero(part)) for part in parts)
        return filled < SPARSE * entries and all(part.size == 0 or part.min() >= 0 for part in parts)


def _dense_mean(own: Subgraph) -> np.ndarray:
    found: np.ndarray = np.asarray(own.x.mean(0), dtype=np.float64).ravel()
    return found


@dataclass(frozen=True, eq=False)
class Case:
    plan: Plan
    notebook: Notebook
    names: list[str]  # of the clients
    num_classes: int
    truth: Truth | None = None
    federation: Federation | None = None  # for attacks that know candidate nodes
    personal: Tree | None = None  # the models that clients keep, [K, ...]

    @cached_property
    def context(self) -> Context:
        """With the model whose weights are uploaded."""
        ctx = self.plan.context
        return replace(ctx, model=ctx.model.model) if isinstance(ctx.model, WithFallback) else ctx

    @property
    def clients(self) -> list[int]:
        """Those of which a round of training was seen."""
        return sorted(self.notebook.first)

    def is_first_step(self, own: Own) -> bool:
        return is_first_step(own.change, self.plan.lr, self.context.model.inputs)

    @property
    def secure(self) -> bool:
        return self.plan.secure
