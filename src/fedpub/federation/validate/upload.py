"""Checks of an answer before it reaches the aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from fedpub.algorithms.protocol import Algorithm, Context
from fedpub.algorithms.sums import Sums
from fedpub.core.message import Message, leaves
from fedpub.core.tree import Tree
from fedpub.data.clients.split import Ratios
from fedpub.federation.validate.fields import MOST_EXAMPLES, is_metric
from fedpub.federation.validate.weights import beyond
from fedpub.federation.wire import Envelope

FAR = 100  # times as many training examples as the split and the test set say


@dataclass(frozen=True, eq=False)
class Expected:
    """The names, shapes and types of an upload, as the method declares them."""

    upload: Message
    first: Message  # what everybody starts from
    ctx: Context

    @staticmethod
    def of(algorithm: Algorithm, ctx: Context, w0: Tree, classes: int) -> Expected:
        """As the method declares it."""
        first = algorithm.send(algorithm.init_server(w0, 1), torch.tensor([0]))
        like = algorithm.upload_like(ctx, w0, classes)
        if ctx.secure and isinstance(algorithm, Sums):
            like = algorithm.clear(like)
        return Expected(like, first, ctx)

    def problem(self, answer: Envelope, number: int, examples: int = MOST_EXAMPLES) -> str | None:
        """Why an answer to round `number` is refused, in a few words; None where it is good.

        `examples` are the most that the site can have.
        """
        return (
            _wrong_numbers(answer.fields, self.ctx, number)
            or answer.message.unlike(self.upload)
            or wrong_values(answer.message, examples)
            or _too_far(self.ctx, answer.message, self.first, number)
        )


def _wrong_numbers(fields: Any, ctx: Context, number: int) -> str | None:
    if fields.get("round") != number:
        return f"it is of round {fields.get('round')!r}, not {number}"
    if ctx.secure:
        return None if set(fields) == {"round"} else "it tells numbers of its own, which belong into the sum"
    if not isinstance(fields.get("loss"), float) or not math.isfinite(fields["loss"]):
        return f"its loss is {fields.get('loss')!r}"
    found = fields.get("metrics")
    if not isinstance(found, dict) or set(found) != {*ctx.task.metrics, "sparsity"}:
        return "its metrics are not those of the task"
    for name, value in found.items():
        if not is_metric(name, value):
            return f"its {name} is {value!r}"
    return None


def most_examples(test_size: int, ratios: Ratios | None) -> int:
    """The most training examples that a site with that many test examples can have, with a wide margin.

    Without `ratios` a site may have a split of its own, of which the test examples tell nothing.
    """
    train, _, test = ratios or (0, 0, 0)
    return min(MOST_EXAMPLES, int(FAR * (test_size + FAR) * max(1, train / test))) if test else MOST_EXAMPLES


def wrong_values(found: Message, examples: int = MOST_EXAMPLES) -> str | None:
    for name, part in found.items():
        for leaf, value in leaves(name, part).items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                return f"{leaf} has values that are not finite"
            if name == "size" and bool(((value < 0) | (value > examples)).any()):
                return f"its number of examples is {value.flatten().tolist()}, outside 0 to {examples:,}"
    return None


def _too_far(ctx: Context, found: Message, first: Message, number: int) -> str | None:
    """What was not sent is nowhere."""
    for name in first.trees.keys() & found.trees.keys():
        for leaf, start in first.tree(name).items():
            own = found.tree(name).get(leaf)
            if own is not None and (wrong := beyond(ctx, own, start, number, found.sent.get(leaf))):
                return f"{leaf} {wrong}"
    return None
