"""What a round is, whichever engine plays it: who takes part, what is measured, and what is left of it."""

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
    """All that a federation needs to go on after a round.

    The engine goes on with the same tensors: a snapshot is good until the next round is asked for, or a copy is made.
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
    ids: Tensor  # who took part
    notes: Notes  # of the server step


def drawn_weights(ctx: Context, num_features: int, num_classes: int) -> Tree:
    """The first parameters of the model and of the task, in double precision."""
    stream = torch_stream(ctx.seed, "init")
    w0 = ctx.model.init(num_features, ctx.task.outputs(num_classes), stream)
    return ctx.model.with_task(w0, ctx.task.init(stream))


def check_version(start: Snapshot, server: State, clients: State) -> None:
    """That a checkpoint has all that a first state has."""
    if lacking := (server.keys() - start.server.keys()) | (clients.keys() - start.clients.keys()):
        raise FedpubError(
            f"the checkpoint is of an earlier version, which did not keep {', '.join(sorted(lacking))}: resume the run "
            "with that version, or start it again in another directory"
        )


def participants(seed: int, number: int, clients: int, fraction: float, failures: float) -> list[int]:
    """Who takes part in a round, ascending: a share of the clients, less those that fail."""
    stream = numpy_stream(seed, "participants", number)
    count = max(1, round(fraction * clients))
    chosen = sorted(stream.permutation(clients)[:count].tolist()) if count < clients else list(range(clients))
    if not failures:
        return chosen
    lost = numpy_stream(seed, "failures", number).random(clients) < failures
    return [client for client in chosen if not lost[client]]


def check_declared(algorithm: Algorithm, up: Message) -> None:
    """That nothing leaves a client but what its method declares."""
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
