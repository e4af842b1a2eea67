"""What an answer must look like before it may reach the aggregate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from fedpub.algorithms.protocol import Algorithm, Context
from fedpub.core.tree import Message, Tree, leaves, tree, unlike
from fedpub.data.clients.split import Ratios
from fedpub.data.clients.stack import stack
from fedpub.data.graph import Graph
from fedpub.federation.validate.fields import MOST_EXAMPLES, is_metric
from fedpub.federation.validate.weights import beyond
from fedpub.federation.wire import Envelope

FAR = 100  # times as many training examples as the split and the test set say
NODES = 24  # of the graph that shows what an upload looks like


@dataclass(frozen=True, eq=False)
class Expected:
    """The names, shapes and types of an upload, taken from one of a made-up client."""

    upload: Message
    first: Message  # what everybody starts from
    ctx: Context

    @staticmethod
    def of(algorithm: Algorithm, ctx: Context, w0: Tree, message: Message, classes: int) -> Expected:
        """What a client uploads after a round that begins with this message [1, ...]."""
        some = next(iter(w0.values()))
        features = w0[next(name for name in w0 if name.startswith("conv1"))].shape[0]
        y = torch.arange(NODES) % classes
        edges = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
        names = tuple(str(number) for number in range(classes))
        graph = Graph(torch.ones(NODES, features, dtype=some.dtype), y, edges, names)
        nodes, ratios = (torch.arange(NODES),), (0.5, 0.25, 0.25)
        own = ctx.task.divide(graph, nodes, 0, ratios, ctx.model.propagation)
        data = stack(own, classes, "cpu", some.dtype)
        _, upload, _ = algorithm.client(ctx, algorithm.init_client(w0, 1), message, data)
        return Expected(upload, algorithm.send(algorithm.init_server(w0, 1), torch.tensor([0])), ctx)

    def problem(self, answer: Envelope, number: int, examples: int = MOST_EXAMPLES) -> str | None:
        """Why an answer to round `number` is refused, in a few words; None where it is good.

        `examples` are the most that the site can have.
        """
        return (
            _wrong_numbers(answer.fields, self.ctx.task.metrics, number)
            or unlike(answer.message, self.upload)
            or wrong_values(answer.message, examples)
            or _too_far(self.ctx, answer.message, self.first, number)
        )


def _wrong_numbers(fields: Any, metrics: tuple[str, ...], number: int) -> str | None:
    if fields.get("round") != number:
        return f"it is of round {fields.get('round')!r}, not {number}"
    if not isinstance(fields.get("loss"), float) or not math.isfinite(fields["loss"]):
        return f"its loss is {fields.get('loss')!r}"
    found = fields.get("metrics")
    if not isinstance(found, dict) or set(found) != {*metrics, "sparsity"}:
        return "its metrics are not those of the task"
    for name, value in found.items():
        if not is_metric(name, value):
            return f"its {name} is {value!r}"
    return None


def most_examples(test_size: int, ratios: Ratios) -> int:
    """How many training examples a site can have that said how many it is tested on: far more than its share."""
    train, _, test = ratios
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
    active = tree(found.get("active", {}))
    for name, part in first.items():
        if not isinstance(part, dict) or not isinstance(found.get(name), dict):
            continue
        for leaf, start in part.items():
            if leaf in found[name] and (wrong := beyond(ctx, tree(found[name])[leaf], start, number, active.get(leaf))):
                return f"{leaf} {wrong}"
    return None
