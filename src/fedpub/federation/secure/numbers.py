"""What a site adds to a sum, and what the sum says: the method's part of a round, and losses and metrics.

Both ends make the form of it by themselves, from what the method declares: the same for all sites of a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.sums import Hidden, Sums
from fedpub.core.message import Message
from fedpub.core.tree import Tree
from fedpub.engine.sums import Format, decoded, format_of, reported, words_of
from fedpub.federation.secure.attempt import STORED, Vector
from fedpub.federation.validate.fields import MOST_EXAMPLES
from fedpub.federation.wire import Envelope, encode

SIZES = "sizes"  # training and test examples, and whether there are none to train on, before the first round


@dataclass(frozen=True, eq=False)
class Numbers:
    """The form of the vectors of a sum."""

    form: Format

    @property
    def layout(self) -> tuple[tuple[int, int], ...]:
        return tuple((block.bits, block.count) for block in self.form)

    def vector(self, hidden: Hidden) -> Vector:
        """What one site adds, leaves [1, ...]."""
        words = [part[0].cpu().numpy() for part in words_of(self.form, hidden)]
        return [part.astype(STORED[bits]) for (bits, _), part in zip(self.layout, words, strict=True)]

    def sums(self, total: Vector) -> Hidden:
        """What a sum of vectors says."""
        return decoded(self.form, [torch.from_numpy(part.astype(np.int64)) for part in total])


def of_round(
    method: Sums, ctx: Context, sites: int, sent: Message, up: Message, examples: int, values: Mapping[str, Tensor]
) -> tuple[Numbers, Hidden]:
    """What a site adds in a round: its upload, and losses and metrics by name."""
    hidden = method.hidden(ctx, sent, up, examples)
    hidden = replace(hidden, numbers=hidden.numbers | reported(values))
    return Numbers(format_of(hidden, ctx, sites, method.shared_out)), hidden


def of_first(ctx: Context, sites: int, values: Mapping[str, Tensor], sizes: Sequence[int]) -> tuple[Numbers, Hidden]:
    """What a site adds before the first round: metrics without training, and numbers of examples."""
    told = torch.tensor([sizes], dtype=torch.float64) / MOST_EXAMPLES
    hidden = Hidden(numbers={SIZES: told, **reported(values)})
    return Numbers(format_of(hidden, ctx, sites, False)), hidden


def sizes_of(numbers: Tree) -> list[int]:
    """The sizes in the sum of all sites before the first round."""
    return [round(float(one)) for one in numbers[SIZES] * MOST_EXAMPLES]


def unknown(names: Sequence[str]) -> dict[str, Tensor]:
    """Values of one site of which only the names matter."""
    return {name: torch.full((1,), float("nan"), dtype=torch.float64) for name in names}


def told_digest(number: int, examples: int, message: Message) -> str:
    """Of what every member of a group is sent in a round: who was sent something else, adds noise."""
    fields: dict[str, Any] = {"round": number, "examples": examples}
    return hashlib.sha256(encode(Envelope("round", fields, message))).hexdigest()
