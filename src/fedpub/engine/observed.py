"""A round as the coordinator sees it: what it sent, and what came back.

Axes: K clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedpub.core.message import Message
from fedpub.core.tree import State


@dataclass(frozen=True, eq=False)
class Sum:
    """What a coordinator learns of a group of clients in a secure run: sums over them, and nothing of one alone."""

    ids: Tensor  # the clients of the group
    parts: State  # trees of sums, as `algorithms.sums.Hidden` has them: steps of weights, counts and numbers


@dataclass(frozen=True, eq=False)
class Observed:
    """A round as the coordinator sees it. Its tensors may change afterwards: to keep them, copy them."""

    round: int
    ids: Tensor  # clients that took part
    sent: Message  # to them, [K, ...]
    clear: Message | None  # from each of them, [K, ...]: whole uploads, or in a secure run what grouping needs
    sums: tuple[Sum, ...] = ()  # in a secure run


Observe = Callable[[Observed], None]
