"""All clients in this process, stacked.

Every round: choose who takes part, send, train locally, aggregate, evaluate everybody. An engine is a generator; what
happens with a round is its consumer's business.

Axes: K clients, R reported clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.base import Algorithm, Context, NeedsSetup, Notes
from fedpub.data.clients import Clients, Report, stack
from fedpub.data.subgraph import Subgraph
from fedpub.engine.memory import keep_buffers
from fedpub.engine.recorded import Recorded
from fedpub.engine.size import message_bytes
from fedpub.errors import FedpubError
from fedpub.models.base import dropout_seeds
from fedpub.rng import numpy_stream, torch_stream
from fedpub.tasks.node_classification import NodeClassification
from fedpub.tree import Message, State, Tree, concatenate, not_zero, select, tensor, tree_map, update


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


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of an experiment and how they compute."""

    subgraphs: list[Subgraph]
    num_classes: int
    device: torch.device
    dtype: torch.dtype = torch.float32
    chunk: int | None = None  # clients that are stacked at a time: a matter of memory, never of results
    report: Report | None = None  # where it is not every client on its own nodes
    set_up: bool = False  # whether the exchanges that a method needs before the rounds have been made

    @property
    def num_clients(self) -> int:
        return len(self.subgraphs)

    @property
    def num_features(self) -> int:
        return int(self.subgraphs[0].x.shape[1])

    def chunks(self, ids: list[int]) -> list[Clients]:
        size = self.chunk or len(ids)
        return [
            stack(
                [self.subgraphs[i] for i in ids[at : at + size]], self.num_classes, self.device, self.dtype, self.report
            )
            for at in range(0, len(ids), size)
        ]


def first_weights(federation: Federation, ctx: Context) -> Tree:
    """The weights that everybody starts from, without a client axis."""
    stream = torch_stream(ctx.seed, "init")
    w0 = ctx.model.init(federation.num_features, ctx.task.outputs(federation.num_classes), stream)
    w0 |= ctx.task.init(stream)
    return tree_map(lambda leaf: leaf.to(federation.device, federation.dtype), w0)


def simulate(
    algorithm: Algorithm,
    ctx: Context,
    federation: Federation,
    rounds: int,
    fraction: float = 1.0,
    failures: float = 0.0,
    start: Snapshot | None = None,
) -> Iterator[Round]:
    """Rounds 1 to `rounds`, or those after `start`. `ctx.round` is ignored."""
    if isinstance(algorithm, NeedsSetup) and not federation.set_up:
        raise ValueError(f"{type(algorithm).__name__} needs what fedpub.engine.setup.set_up makes of a federation")
    if federation.device.type == "cpu":
        keep_buffers()
    check_numbers(federation)
    everyone = list(range(federation.num_clients))
    all_chunks = federation.chunks(everyone)
    if start is None:
        w0 = first_weights(federation, ctx)
        server = algorithm.init_server(w0, len(everyone))
        start = Snapshot(0, server, algorithm.init_client(w0, len(everyone)))
    server, clients = start.server, start.clients
    model_R = all_chunks[0].report.model_R.cpu() if federation.report else torch.arange(len(everyone))
    always = fraction == 1 and not failures
    work = (_RecordedWork if always and can_record(ctx, federation, clients) else _Work)(algorithm, federation)
    for number in range(start.round + 1, rounds + 1):
        ctx = replace(ctx, round=number)
        chosen = participants(ctx.seed, number, len(everyone), fraction, failures)
        ids = torch.tensor(chosen, dtype=torch.int64)
        traffic = _Traffic.none(len(everyone), federation)
        # Nobody there has nothing to tell, but the notes of all rounds are alike.
        notes: Notes = {name: torch.empty([0] * axes, dtype=torch.int64) for name, axes in algorithm.notes.items()}
        if chosen:
            chunks = all_chunks if chosen == everyone else federation.chunks(chosen)
            clients, up = _train(work, ctx, server, clients, ids, chunks, traffic)
            server, notes = algorithm.server(ctx, server, ids, up)
        metrics, total_K = _evaluate(work, ctx, clients, all_chunks)
        loss_K = traffic.loss_K.cpu()
        _check_finite("loss", loss_K[ids], ids, number)
        _check_finite("sum of all weights", total_K, torch.arange(len(everyone)), number)
        loss_R = loss_K[model_R]
        sparsity_R = metrics.pop("sparsity")
        yield Round(
            snapshot=Snapshot(number, server, clients),
            took_part_R=~torch.isnan(loss_R),
            metrics=metrics,
            loss_R=loss_R,
            sparsity_R=sparsity_R,
            bytes_up_R=traffic.up_K.cpu()[model_R],
            bytes_down_R=traffic.down_K.cpu()[model_R],
            ids=ids,
            notes={name: note.cpu() for name, note in notes.items()},
        )


def check_numbers(federation: Federation) -> None:
    if [own.id for own in federation.subgraphs] != list(range(federation.num_clients)):
        raise ValueError("the clients of a federation are numbered 0, 1, 2, ... in their order")


def participants(seed: int, number: int, clients: int, fraction: float, failures: float) -> list[int]:
    """Who takes part in a round, ascending: a share of the clients, less those that fail."""
    stream = numpy_stream(seed, "participants", number)
    count = max(1, round(fraction * clients))
    chosen = sorted(stream.permutation(clients)[:count].tolist()) if count < clients else list(range(clients))
    if not failures:
        return chosen
    lost = numpy_stream(seed, "failures", number).random(clients) < failures
    return [client for client in chosen if not lost[client]]


@dataclass(eq=False)
class _Traffic:
    """What the clients of a round reported, by client; NaN and zero for those that took no part."""

    loss_K: Tensor
    up_K: Tensor
    down_K: Tensor

    @staticmethod
    def none(clients: int, federation: Federation) -> _Traffic:
        loss = torch.full((clients,), float("nan"), dtype=federation.dtype, device=federation.device)
        count = torch.zeros(clients, dtype=torch.int64, device=federation.device)
        return _Traffic(loss, count, count.clone())


class _Work:
    """What clients do in a round: local training, and being measured."""

    def __init__(self, algorithm: Algorithm, federation: Federation) -> None:
        self.algorithm = algorithm
        self.federation = federation

    def local(
        self, ctx: Context, own: State, message: Message, data: Clients
    ) -> tuple[State, Message, Tensor, Tensor, Tensor]:
        """State, upload, loss, and the bytes of both messages."""
        own, up, loss_K = self.algorithm.client(ctx, own, message, data)
        check_declared(self.algorithm, up)
        up_K, down_K = (message_bytes(one, data.num_clients, data.device) for one in (up, message))
        return own, up, loss_K, up_K, down_K

    @torch.no_grad()
    def measured(self, ctx: Context, own: State, data: Clients) -> tuple[dict[str, Tensor], Tensor]:
        """The task's metrics and the sparsity of every reported client, and the sum of every client's weights."""
        weights = self.algorithm.personal(own)
        total_K = torch.stack([leaf.flatten(1).sum(1) for leaf in weights.values()]).sum(0)
        metrics = ctx.task.evaluate(ctx.model, weights, data)
        return metrics | {"sparsity": sparsity(weights)[data.report.model_R]}, total_K


class _RecordedWork(_Work):
    """The same on a GPU, recorded in the first round; all clients are one chunk, and all take part."""

    def __init__(self, algorithm: Algorithm, federation: Federation) -> None:
        super().__init__(algorithm, federation)
        self._local: Recorded | None = None
        self._measured: Recorded | None = None

    def local(
        self, ctx: Context, own: State, message: Message, data: Clients
    ) -> tuple[State, Message, Tensor, Tensor, Tensor]:
        derived = [dropout_seeds(ctx.seed, ctx.round, epoch) for epoch in range(ctx.epochs)]
        seeds = torch.tensor(derived, dtype=torch.int64).pin_memory().to(data.device, non_blocking=True)
        if self._local is None:
            train = super().local

            def local(own: State, message: Message, seeds: Tensor) -> Any:
                return train(replace(ctx, together=True, dropout_seeds=seeds), own, message, data)

            self._local = Recorded(local)
        found: tuple[State, Message, Tensor, Tensor, Tensor] = self._local(own, message, seeds)
        return found

    def measured(self, ctx: Context, own: State, data: Clients) -> tuple[dict[str, Tensor], Tensor]:
        if self._measured is None:
            measure = super().measured
            self._measured = Recorded(lambda own: measure(ctx, own, data))
        found: tuple[dict[str, Tensor], Tensor] = self._measured(own)
        return found


def can_record(ctx: Context, federation: Federation, clients: State) -> bool:
    """Whether rounds are alike, so that one can be recorded: on a GPU, all clients at once and equally far."""
    if federation.device.type != "cuda" or not isinstance(ctx.task, NodeClassification):
        return False
    if federation.chunk is not None and federation.chunk < federation.num_clients:
        return False
    step_K = tensor(clients["step"]) if "step" in clients else torch.zeros(1)
    return bool((step_K == step_K[0]).all())


def _train(
    work: _Work,
    ctx: Context,
    server: State,
    clients: State,
    ids: Tensor,
    chunks: list[Clients],
    traffic: _Traffic,
) -> tuple[State, Message]:
    """Local training of the chosen clients: all clients' states and the uploads of the chosen ones."""
    whole = len(ids) == len(traffic.loss_K)
    states, uploads, done = [], [], 0
    for data in chunks:
        chunk = ids[done : done + data.num_clients]
        done += data.num_clients
        message = work.algorithm.send(server, chunk)
        alone = whole and len(chunks) == 1
        own, up, loss_K, up_K, down_K = work.local(ctx, clients if alone else select(clients, chunk), message, data)
        traffic.loss_K[data.ids_K] = loss_K
        traffic.up_K[data.ids_K] = up_K
        traffic.down_K[data.ids_K] = down_K
        states.append(own)
        uploads.append(up)
    new = states[0] if len(states) == 1 else concatenate(states)
    return new if whole else update(clients, ids, new), uploads[0] if len(uploads) == 1 else concatenate(uploads)


def check_declared(algorithm: Algorithm, up: Message) -> None:
    """That nothing leaves a client but what its method declares."""
    if extra := set(up) - algorithm.uploads:
        raise AssertionError(f"{type(algorithm).__name__} tried to send {sorted(extra)}, which it does not declare")


def _check_finite(what: str, value_K: Tensor, ids: Tensor, number: int) -> None:
    wrong = torch.nonzero(~torch.isfinite(value_K)).flatten()
    if len(wrong):
        client, value = int(ids[wrong[0]]), float(value_K[wrong[0]])
        raise FedpubError(
            f"the {what} of client {client} is {value} in round {number}: training diverged; lower --lr, or look at "
            "that client's features; what was saved before stays"
        )


def _evaluate(work: _Work, ctx: Context, clients: State, chunks: list[Clients]) -> tuple[dict[str, Tensor], Tensor]:
    """The metrics of every reported client and the sum of every client's weights."""
    found, totals, done = [], [], 0
    for data in chunks:
        own = clients if len(chunks) == 1 else select(clients, torch.arange(done, done + data.num_clients))
        done += data.num_clients
        metrics, total_K = work.measured(ctx, own, data)
        found.append(metrics)
        totals.append(total_K)
    return {name: torch.cat([part[name] for part in found]).cpu() for name in found[0]}, torch.cat(totals).cpu()


def sparsity(weights: Tree) -> Tensor:
    """The share of exact zeros among the entries of a client's weight matrices, [K]."""
    matrices = [leaf for leaf in weights.values() if leaf.dim() >= 3]
    kept_K = torch.stack([not_zero(leaf).flatten(1).sum(1) for leaf in matrices]).sum(0)
    return 1 - kept_K / sum(leaf[0].numel() for leaf in matrices)
