"""A hostile client in secure sums that adds any words it likes, not only those of numbers within their bounds.

It knows what the others add, as if it worked together with the server. Words are added modulo 2^bits, so it makes of
each sum whatever the words can hold:

    far sum            all entries of the weights at the end of the words, against the others' sum
    vanishing divisor  the same, with counts of one, and all numbers at the smallest that is above zero
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.sums import Hidden, Summed
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tree_map
from fedpub.engine.sums import Block, format_of

FAR_SUM, VANISHING = "far sum", "vanishing divisor"
SUM_ATTACKS = (FAR_SUM, VANISHING)


def with_any_words(algorithm: Algorithm, attack: str, hostile: int, clients: int) -> Algorithm:
    """A method with a hostile client in all sums in which it takes part; `clients` are all of the run."""
    kind: Any = type(algorithm)

    class Hostile(kind):  # type: ignore[misc]
        def summed(
            self, ctx: Context, server: State, ids: Tensor, found: Sequence[Summed], clear: Message
        ) -> tuple[State, Notes]:
            changed = [
                replace(one, sums=chosen(one.sums, attack, ctx, clients, self.shared_out))
                if hostile in one.ids.tolist()
                else one
                for one in found
            ]
            done: tuple[State, Notes] = super().summed(ctx, server, ids, changed, clear)
            return done

    made: Algorithm = Hostile(**{one.name: getattr(algorithm, one.name) for one in fields(kind)})
    return made


def chosen(sums: Hidden, attack: str, ctx: Context, clients: int, shared_out: bool) -> Hidden:
    """The sums of a group, [...], as the hostile client makes them."""
    of_one = Hidden(**{name: tree_map(lambda leaf: leaf.unsqueeze(0), part) for name, part in sums.parts().items()})
    found: dict[str, Tree] = {name: dict(part) for name, part in sums.parts().items()}
    for block in format_of(of_one, ctx, clients, shared_out):
        leaf = found[block.part][block.name]
        if block.part == "steps":
            found[block.part][block.name] = torch.where(leaf > 0, -_end(block), _end(block)).to(leaf)
        elif attack == VANISHING:
            found[block.part][block.name] = torch.full_like(leaf, 1 / block.scale)
    return Hidden(**found)


def _end(block: Block) -> float:
    """The largest number that the words of a sum can hold."""
    return float(2 ** (block.bits - 1) - 1) / block.scale
