"""A round in either engine: its participants, its measurements and its snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.core.kernels import not_zero
from fedpub.core.message import Message
from fedpub.core.rng import numpy_stream, torch_stream
from fedpub.core.tree import State, Tree
from fedpub.data.clients.stack import Clients
from fedpub.errors import FedpubError


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that a federation needs to continue after a round.

    The engine continues with the same tensors: without a copy, a snapshot is valid until the next round is requested.
    """

    round: int  # the last one that is complete
    server: State
    clients: State


@dataclass(frozen=True, eq=False)
class Round:
    """A complete round: its state and what was measured after local training."""

    snapshot: Snapshot
    took_part_R: Tensor
    metrics: dict[str, Tensor]  # of the task, each [R]
    loss_R: Tensor  # NaN for a client that did not take part
    sparsity_R: Tensor  # share of exact zeros among the entries of the personal weight matrices
    bytes_up_R: Tensor
    bytes_down_R: Tensor
    ids: Tensor  # clients that took part
    notes: Notes  # of the server step


def drawn_weights(ctx: Context, num_features: int, num_classes: int) -> Tree:
    """The initial parameters of the model and of the task, in double precision."""
    stream = torch_stream(ctx.seed, "init")
    w0 = ctx.model.init(num_features, ctx.task.outputs(num_classes), stream)
    return ctx.model.with_task(w0, ctx.task.init(stream))


def check_version(start: Snapshot, server: State, clients: State) -> None:
    """Raise an error unless a checkpoint has every part of an initial state."""
    if lacking := (server.keys() - start.server.keys()) | (clients.keys() - start.clients.keys()):
        raise FedpubError(
            f"the checkpoint is of an earlier version, which did not keep {', '.join(sorted(lacking))}: resume the run "
            "with that version, or start it again in another directory"
        )


def participants(seed: int, number: int, clients: int, fraction: float, failures: float) -> list[int]:
    """The clients that take part in a round, ascending: a share of all, less those that fail."""
    stream = numpy_stream(seed, "participants", number)
    count = max(1, round(fraction * clients))
    chosen = sorted(stream.permutation(clients)[:count].tolist()) if count < clients else list(range(clients))
    if not failures:
        return chosen
    lost = numpy_stream(seed, "failures", number).random(clients) < failures
    return [client for client in chosen if not lost[client]]


def check_declared(algorithm: Algorithm, up: Message) -> None:
    """Raise an error if an upload has a part that its method does not declare."""
    if extra := up.names - algorithm.uploads:
        raise AssertionError(f"{type(algorithm).__name__} tried to send {sorted(extra)}, which it does not declare")


@torch.no_grad()
def measure(algorithm: Algorithm, ctx: Context, own: State, data: Clients) -> tuple[dict[str, Tensor], Tensor]:
    """The task's metrics and the sparsity of every reported client, and the sum of every client's weights."""
    weights = algorithm.personal(own)
    total_K = torch.stack([leaf.flatten(1).sum(1) for leaf in weights.values()]).sum(0)
    metrics = ctx.task.evaluate(ctx.model, weights, data)
    return metrics | {"sparsity": sparsity(ctx.model.federated(weights))[data.report.model_R]}, total_K


def sparsity(weights: Tree) -> Tensor:
    """The share of exact zeros among the entries of a client's weight matrices, [K]."""
    matrices = [leaf for leaf in weights.values() if leaf.dim() >= 3]
    kept_K = torch.stack([not_zero(leaf).flatten(1).sum(1) for leaf in matrices]).sum(0)
    return 1 - kept_K / sum(leaf[0].numel() for leaf in matrices)
