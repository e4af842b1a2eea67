"""All clients in this process, stacked.

Every round: choose the clients that take part, send, train locally, aggregate, evaluate all clients. An engine is a
generator; its consumer decides what to do with a round.

Axes: K clients, R reported clients.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup, Notes
from fedpub.algorithms.sums import Sums
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, put, select, state_map, tensor, tree_map
from fedpub.data.clients.stack import Clients, Report, stack
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.cuda_graph import Recorded, looks_at_values, round_seeds, seeded
from fedpub.engine.guard import guarded
from fedpub.engine.memory import keep_buffers
from fedpub.engine.observed import Observe, Observed, Sum
from fedpub.engine.robust import defended
from fedpub.engine.rounds import Round, Snapshot, check_declared, drawn_weights, measure, participants
from fedpub.engine.size import message_bytes
from fedpub.engine.spill import Spill
from fedpub.engine.sums import summed_round
from fedpub.errors import FedpubError
from fedpub.tasks.base import Task


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of an experiment and how they compute."""

    subgraphs: list[Subgraph]
    num_classes: int
    device: torch.device
    dtype: torch.dtype = torch.float32
    chunk: int | None = None  # clients stacked at a time: affects memory, never results
    report: Report | None = None  # None: every client is evaluated on its own nodes
    set_up: bool = False  # whether the exchanges before the rounds are done
    on_disk: bool = False  # whether the states of clients outside the current chunk are in files
    lean: bool = False  # memory is scarce: intermediate results are recomputed, not kept
    inputs: Path | None = None  # folder for features in files, which are read where they are needed
    stacks: dict[Hashable, list[Clients]] = field(default_factory=dict, init=False)  # by `everyone`

    @property
    def num_clients(self) -> int:
        return len(self.subgraphs)

    @property
    def num_features(self) -> int:
        return int(self.subgraphs[0].x.shape[1])

    @property
    def num_relations(self) -> int:
        return self.subgraphs[0].num_relations

    def everyone(self, ctx: Context) -> list[Clients]:
        """All clients in stacks, which are made once."""
        if ctx.needs not in self.stacks:
            self.stacks[ctx.needs] = self.chunks(list(range(self.num_clients)), ctx)
        return self.stacks[ctx.needs]

    def chunks(self, ids: list[int], ctx: Context | None = None) -> list[Clients]:
        """The clients in stacks, with what the context's model computes with."""
        size = self.chunk or len(ids)
        return [self._stacked(ids[at : at + size], ctx) for at in range(0, len(ids), size)]

    def _stacked(self, ids: list[int], ctx: Context | None) -> Clients:
        chosen = [self.subgraphs[i] for i in ids]
        needs = ctx.needs if ctx else (1, True, False)
        made = stack(chosen, self.num_classes, self.device, self.dtype, self.report, *needs, self.lean, self.inputs)
        if self.lean:
            for own in chosen:
                own.forget()
        return made


def first_weights(federation: Federation, ctx: Context) -> Tree:
    """The weights from which all clients start, without a client axis."""
    w0 = drawn_weights(ctx, federation.num_features, federation.num_classes)
    return tree_map(lambda leaf: leaf.to(federation.device, federation.dtype), w0)


def simulate(
    algorithm: Algorithm,
    ctx: Context,
    federation: Federation,
    rounds: int,
    fraction: float = 1.0,
    failures: float = 0.0,
    start: Snapshot | None = None,
    observe: Observe | None = None,
) -> Iterator[Round]:
    """Rounds 1 to `rounds`, or those after `start`. `ctx.round` is ignored.

    `observe` is called in every round with what the coordinator sees, before its server step.
    """
    if isinstance(algorithm, NeedsSetup) and not federation.set_up:
        raise ValueError(f"{type(algorithm).__name__} needs a federation extended by fedpub.engine.setup.set_up")
    if federation.device.type == "cpu":
        keep_buffers()
    check_numbers(federation)
    everyone = list(range(federation.num_clients))
    all_chunks = federation.everyone(ctx)
    spill = Spill(Path(tempfile.gettempdir()), len(everyone)) if federation.on_disk else None
    if start is None:
        w0 = first_weights(federation, ctx)
        start = Snapshot(0, algorithm.init_server(w0, len(everyone)), _first_states(algorithm, w0, all_chunks, spill))
    elif spill:
        spill.put(torch.arange(len(everyone)), start.clients)
    server, clients = start.server, spill.state if spill else start.clients
    model_R = all_chunks[0].report.model_R.cpu() if federation.report else torch.arange(len(everyone))
    recorded: Recorded | None = None
    if observe is None and fraction == 1 and not failures and can_record(algorithm, ctx, federation, clients):
        base = ctx
        recorded = Recorded(
            lambda server, clients, seeds: _play(
                algorithm, seeded(base, seeds), server, clients, torch.tensor(everyone), all_chunks
            ),
            carried=2,
        )
        seeds = round_seeds(ctx, start.round + 2, federation.device)
    for number in range(start.round + 1, rounds + 1):
        ctx = replace(ctx, round=number)
        chosen = participants(ctx.seed, number, len(everyone), fraction, failures)
        ids = torch.tensor(chosen, dtype=torch.int64)
        if recorded and number > start.round + 1:  # the first is not replayed: some work happens only once
            played = recorded(server, clients, seeds)
            seeds = round_seeds(ctx, number + 1, federation.device)  # prepared while the GPU computes
        else:
            some = federation.chunks(chosen, ctx) if 0 < len(chosen) < len(everyone) else None
            played = _play(algorithm, ctx, server, clients, ids, all_chunks, some, spill, observe)
        server, clients, notes, numbers = played
        found = _split(numbers.cpu(), len(everyone), len(model_R), ctx.task)
        _check_finite("loss", found["loss"][ids], ids, number)
        _check_finite("sum of all weights", found["total"], torch.arange(len(everyone)), number)
        loss_R = found["loss"][model_R]
        yield Round(
            snapshot=Snapshot(number, server, clients),
            took_part_R=~torch.isnan(loss_R),
            metrics={name: found[name] for name in ctx.task.metrics},
            loss_R=loss_R,
            sparsity_R=found["sparsity"],
            bytes_up_R=found["bytes_up"].long()[model_R],
            bytes_down_R=found["bytes_down"].long()[model_R],
            ids=ids,
            notes={name: note.cpu() for name, note in notes.items()},
        )


def check_numbers(federation: Federation) -> None:
    if [own.id for own in federation.subgraphs] != list(range(federation.num_clients)):
        raise ValueError("the clients of a federation must be numbered 0, 1, 2, ... in this order")


# Measured for every client that takes part; the task's metrics and the sparsity, for every reported client.
OF_CLIENTS = ("loss", "bytes_up", "bytes_down", "total")


def _play(
    algorithm: Algorithm,
    ctx: Context,
    server: State,
    clients: State,
    ids: Tensor,
    everyone: list[Clients],
    chosen: list[Clients] | None = None,
    spill: Spill | None = None,
    observe: Observe | None = None,
) -> tuple[State, State, Notes, Tensor]:
    """A round: the new states, the server's notes, and all measurements in one tensor.

    `chosen` are the chunks of the clients that take part, if those are not all.
    """
    count, device, dtype = sum(data.num_clients for data in everyone), everyone[0].device, everyone[0].dtype
    loss_K = torch.full((count,), float("nan"), dtype=dtype, device=device)
    up_K, down_K = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2))
    # An empty round reports no values, but its notes have the same names and dimensions as those of other rounds.
    notes: Notes = {name: torch.empty([0] * axes, dtype=torch.int64) for name, axes in algorithm.notes.items()}
    uploads: State = {}
    measured = []
    whole, numbers = len(ids) == count, torch.arange(count)
    for place, data in _placed(everyone if whole else chosen or []):
        chunk = ids[place]
        own, message = select(clients, chunk), algorithm.send(server, chunk)
        used = guarded(algorithm, ctx, own, message, data)
        own, up, loss_K[data.ids_K] = algorithm.client(ctx, own, used, data)
        check_declared(algorithm, up)
        up_K[data.ids_K] = message_bytes(up, data.num_clients, device)
        down_K[data.ids_K] = message_bytes(message, data.num_clients, device)
        uploads = _joined(uploads, up.flat(), place, len(ids))
        if whole:  # measured now, while the state is in memory
            measured.append(measure(algorithm, ctx, own, data))
        if len(chunk) == count:
            clients = own
        else:
            put(clients, chunk, own)
        if spill:
            spill.rest()
        data.rest()
    if uploads:
        up = Message.of(uploads)
        if ctx.secure:
            assert isinstance(algorithm, Sums)
            examples = sum(int(data.num_train_K.sum()) for data in everyone)
            after, notes, found, bytes_K = summed_round(algorithm, ctx, server, ids, up, count, examples)
            up_K[ids.to(device)] = bytes_K.to(device)
            if observe:
                sums = tuple(Sum(one.ids, {**one.sums.parts()}) for one in found)
                observe(Observed(ctx.round, ids, algorithm.send(server, ids), algorithm.clear(up), sums))
            server = after
        else:
            if observe:
                observe(Observed(ctx.round, ids, algorithm.send(server, ids), up))
            server, notes = algorithm.server(ctx, server, ids, defended(ctx, up, algorithm.send(server, ids)))
    if not whole:
        for place, data in _placed(everyone):
            measured.append(measure(algorithm, ctx, select(clients, numbers[place]), data))
            data.rest()
    names = (*ctx.task.metrics, "sparsity")
    of_clients = [loss_K, up_K, down_K, torch.cat([total_K for _, total_K in measured])]
    of_reported = [torch.cat([metrics[name] for metrics, _ in measured]) for name in names]
    return server, clients, notes, torch.cat([value.double() for value in (*of_clients, *of_reported)])


def _joined(all_of_them: State, part: State, place: slice, count: int) -> State:
    """The uploads of different clients as one; a part can be freed once it is copied."""
    if place == slice(0, count):
        return part
    whole = all_of_them or state_map(lambda leaf: leaf.new_empty(count, *leaf.shape[1:]), part)
    put(whole, torch.arange(count)[place], part)
    return whole


def _placed(chunks: list[Clients]) -> Iterator[tuple[slice, Clients]]:
    """Every chunk with its slice of all their clients."""
    done = 0
    for data in chunks:
        yield slice(done, done + data.num_clients), data
        done += data.num_clients


def _first_states(algorithm: Algorithm, w0: Tree, chunks: list[Clients], spill: Spill | None) -> State:
    if spill is None:
        return algorithm.init_client(w0, sum(data.num_clients for data in chunks))
    numbers = torch.arange(sum(data.num_clients for data in chunks))
    for place, data in _placed(chunks):
        spill.put(numbers[place], algorithm.init_client(w0, data.num_clients))
    return spill.state


def _split(numbers: Tensor, clients: int, reported: int, task: Task) -> dict[str, Tensor]:
    """The measurements of a round by name."""
    sizes = dict.fromkeys(OF_CLIENTS, clients) | dict.fromkeys((*task.metrics, "sparsity"), reported)
    return dict(zip(sizes, torch.split(numbers, list(sizes.values())), strict=True))


def can_record(algorithm: Algorithm, ctx: Context, federation: Federation, clients: State) -> bool:
    """Whether rounds are alike, so that one can be recorded: on a GPU, all clients at once and at the same step."""
    if federation.device.type != "cuda" or looks_at_values(algorithm) or ctx.batch_size:
        return False
    if ctx.secure or ctx.embedding_noise:
        return False
    if not ctx.task.steady or not ctx.model.steady:
        return False
    if federation.chunk is not None and federation.chunk < federation.num_clients:
        return False
    step_K = tensor(clients["step"])
    return bool((step_K == step_K[0]).all())


def _check_finite(what: str, value_K: Tensor, ids: Tensor, number: int) -> None:
    finite_K = torch.isfinite(value_K)
    if not finite_K.all():
        wrong = torch.nonzero(~finite_K).flatten()
        client, value = int(ids[wrong[0]]), float(value_K[wrong[0]])
        raise FedpubError(
            f"the {what} of client {client} is {value} in round {number}: training diverged; lower `lr`, or check "
            "that client's features; saved results are kept"
        )
