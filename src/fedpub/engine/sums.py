"""Numbers as words of fixed length, which add up exactly: what a client sends where the server gets sums only.

A value x within ± b becomes the word q = round(S x / b), taken modulo 2^bits. Sums of words do not depend on their
order. They cannot overflow: of M clients |Σ q| ≤ M S < 2^(bits - 1), with M all clients of the run, whoever takes part.
Where clients multiply their steps by shares that add up to one, |Σ q| ≤ S + M suffices. So

    steps     16 bits for up to 63 clients, 24 for up to 16,383, then 32; longer steps are cut to b, see `reach`
    counts    8 bits, or 16 from 256 clients on; exact
    numbers   64 bits; exact to double precision

The words of a client have the same length in every round of the same kind, whatever its data.

Axes: K clients, W words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.protocol import Notes
from fedpub.algorithms.sums import LARGEST, Hidden, Summed, Sums, reach, sums_of
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree
from fedpub.engine.size import message_bytes
from fedpub.tasks import is_amount
from fedpub.tasks.base import Task

LEVELS = 2**9  # steps on either side of zero that a client has at least
REPORT = "report"  # numbers that every client adds besides those of its method


@dataclass(frozen=True)
class Block:
    """The words of one tensor."""

    part: str
    name: str
    shape: tuple[int, ...]  # of one client
    bits: int
    scale: float  # words per unit
    bound: float
    dtype: torch.dtype

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * self.bits // 8

    def words(self, leaf: Tensor) -> Tensor:
        """[K, ...] as words, [K, W]: whole numbers modulo 2^bits."""
        value = leaf.double().clamp(-self.bound, self.bound) * self.scale
        return self.modulo(value.round().to(torch.int64).reshape(len(leaf), -1))

    def modulo(self, words: Tensor) -> Tensor:
        return words if self.bits == 64 else words & (2**self.bits - 1)

    def value(self, total: Tensor) -> Tensor:
        """What the sum of the words of some clients, [W], stands for."""
        half = 2 ** (self.bits - 1)
        signed = total if self.bits == 64 or self.part == "counts" else ((total + half) & (2 * half - 1)) - half
        return (signed.double() / self.scale).view(self.shape).to(self.dtype)


Format = tuple[Block, ...]
Words = list[Tensor]  # of every block, [K, W] or, summed, [W]


def format_of(hidden: Hidden, ctx: Context, clients: int, shared_out: bool) -> Format:
    """The form of such numbers in a run of that many clients."""
    found = []
    for part, leaves in hidden.parts().items():
        for name, leaf in sorted(leaves.items()):
            bits, scale, bound = _coding(part, reach(ctx), clients, shared_out)
            found.append(Block(part, name, tuple(leaf.shape[1:]), bits, scale, bound, leaf.dtype))
    return tuple(found)


def _coding(part: str, reach: float, clients: int, shared_out: bool) -> tuple[int, float, float]:
    """Bits, words per unit, and the largest value."""
    if part == "counts":
        return (8 if clients < 2**8 else 16), 1.0, 1.0
    if part == "numbers":
        return 64, 2.0 ** math.floor(math.log2(2**61 / clients)), 1.0
    for bits in (16, 24, 32):
        most = 2 ** (bits - 1) - 1
        levels = most - clients if shared_out else most // clients
        if levels >= (LEVELS * clients if shared_out else LEVELS):
            break
    return bits, levels / reach, reach


def words_of(form: Format, hidden: Hidden) -> Words:
    parts = hidden.parts()
    return [block.words(parts[block.part][block.name]) for block in form]


def added(form: Format, words: Words) -> Words:
    """The sum over clients, [W]."""
    return [block.modulo(part.sum(0)) for block, part in zip(form, words, strict=True)]


def decoded(form: Format, total: Sequence[Tensor]) -> Hidden:
    """The numbers that a sum stands for."""
    found = Hidden()
    for block, part in zip(form, total, strict=True):
        found.parts()[block.part][block.name] = block.value(part)
    return found


def reported(values: Mapping[str, Tensor]) -> Tree:
    """Losses and metrics of clients, [K] each, as numbers within ±1, and whether they are known, [K, 2]."""
    found: Tree = {}
    for name, value_K in values.items():
        known_K = ~value_K.isnan()
        scaled_K = value_K.double().nan_to_num() / (LARGEST if is_amount(name) or name == "loss" else 1)
        found[f"{REPORT} {name}"] = torch.stack([known_K.double(), scaled_K.clamp(-1, 1)], 1)
    return found


def means_of(numbers: Sequence[Tree]) -> dict[str, float]:
    """The means of what the clients of all groups have reported, over those that know it; NaN if none does."""
    found = {}
    for key in {key: None for one in numbers for key in one if key.startswith(REPORT)}:
        name = key.removeprefix(f"{REPORT} ")
        known, total = sum(one[key] for one in numbers if key in one).tolist()  # type: ignore[union-attr]
        scale = LARGEST if is_amount(name) or name == "loss" else 1
        found[name] = scale * total / known if known else math.nan
    return found


def report_bytes(task: Task) -> int:
    """What the losses and metrics that a client reports take in a sum."""
    return 2 * 8 * len((*task.metrics, "loss", "sparsity"))


def summed_round(
    method: Sums, ctx: Context, server: State, ids: Tensor, up: Message, clients: int, examples: int
) -> tuple[State, Notes, list[Summed], Tensor]:
    """The server step of a round in which the server gets sums; the sums; and the bytes that each client sent, [K]."""
    sizes: list[int] = []

    def total(hidden: Hidden) -> Hidden:
        form = format_of(hidden, ctx, clients, method.shared_out)
        sizes.append(sum(block.bytes for block in form) + report_bytes(ctx.task))
        return decoded(form, added(form, words_of(form, hidden)))

    found = sums_of(method, ctx, server, ids, up, ctx.min_group, examples, total)
    clear = method.clear(up)
    some = next(iter(next(iter(up.trees.values())).values()))
    bytes_K = message_bytes(clear, len(ids), some.device).cpu()
    for one, size in zip(found, sizes, strict=True):
        bytes_K[torch.isin(ids, one.ids)] += size
    server, notes = method.summed(ctx, server, ids, found, clear)
    return server, notes, found, bytes_K
