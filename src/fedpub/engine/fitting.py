"""How many clients to compute at a time, and where to keep the others, within a given amount of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import scipy.sparse as sp

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup, Place
from fedpub.core.tree import State, Tree, pack
from fedpub.data.clients.stack import SPARSE_BELOW
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.memory import available, resident
from fedpub.engine.simulate import Federation, first_weights
from fedpub.errors import FedpubError

# Copies of a client's weights that are alive at a time: while it trains (gradients, products, what is sent), and for
# as long as the round lasts (what was sent, the same with steps shortened, what is averaged of it).
WHILE_TRAINING, ALL_ROUND = 8, 5
KEPT, WRITTEN = 3, 2  # those that a checkpoint has beside the states, and copies of it while it is written
# How much larger a client's graph may become by set-up, and copies of what set-up trains at a client.
LARGER, TRAINED = 3, 8
# Values of every node that are alive while a model trains, per matrix of weights: 4 to 6.5 were measured. Per pair of
# nodes where links are learnt: 1.1.
PER_MATRIX, PER_PAIR = 7, 1.5
INDEX, DOUBLE = 8, 8  # bytes of an index and of a number where matrices are prepared
MARGIN = 1.03  # what a process takes differs a little from one start to the next
FEW, AT_MOST = 16, 128  # clients at a time: with fewer, files are better; more are no faster


@dataclass(frozen=True)
class Demand:
    """What a run takes, in bytes; an upper bound."""

    taken: int  # before it: Python, libraries, and graphs as they were loaded and divided
    stacked: int  # all clients' graphs as they are computed with
    again: int  # what was computed on the way there and is kept for another time
    all_round: int  # of all clients' weights, however many are computed at a time
    states: int  # of all clients
    working: tuple[int, ...]  # of each client, while it is computed

    def total(self, chunk: int | None, lean: bool = False, on_disk: bool = False) -> int:
        """With so many clients at a time, without what can be computed `again`, and with states in files."""
        size = min(chunk or len(self.working), len(self.working))
        ends = [0]
        for own in self.working:
            ends.append(ends[-1] + own)
        busiest = max(end - start for start, end in zip(ends, ends[size:], strict=False))
        states = math.ceil(self.states * size / len(self.working)) if on_disk else self.states
        again = math.ceil(self.again * size / len(self.working)) if lean else self.again
        return self.taken + self.stacked + again + self.all_round + states + busiest


def demand(
    algorithm: Algorithm, ctx: Context, federation: Federation, kept: bool = False, taken: int | None = None
) -> Demand:
    """What a run of this federation would take on a CPU; if it is `kept`, with what is written to its directory."""
    w0 = first_weights(federation, ctx)
    weights, state = _bytes(dict(w0)), _bytes(algorithm.init_client(w0, 1))
    clients = federation.num_clients
    sizes = [_graph_bytes(own, federation) for own in federation.subgraphs]
    values = [_values(own, w0, federation) for own in federation.subgraphs]
    larger, trained = 1, 0
    if isinstance(algorithm, NeedsSetup):
        larger, trained = LARGER, _set_up_bytes(algorithm, ctx, federation, w0)
    written = WRITTEN * clients * (state + KEPT * weights) if kept else 0
    return Demand(
        taken=resident() if taken is None else taken,
        stacked=larger * sum(stacked for stacked, _ in sizes),
        again=larger * sum(again for _, again in sizes),
        all_round=ALL_ROUND * clients * weights + clients * trained + written,
        states=clients * state,
        working=tuple(WHILE_TRAINING * weights + TRAINED * trained + state + larger * own for own in values),
    )


def within(
    algorithm: Algorithm,
    ctx: Context,
    federation: Federation,
    max_bytes: float,
    kept: bool = False,
    taken: int | None = None,
    loading: int = 0,
) -> Federation:
    """The same federation, with clients in chunks and their states on disk where they would not fit.

    `kept` is whether the run has a directory, `taken` what the process takes already, where that is not to be measured,
    and `loading` what it took on the way.
    """
    needed, clients = demand(algorithm, ctx, federation, kept, taken), federation.num_clients
    if max(loading, needed.total(federation.chunk)) <= max_bytes:
        return federation
    most = min(federation.chunk or clients, clients)
    fewer = range(min(most, AT_MOST), 0, -1)
    plans = [(most, False), *((size, False) for size in fewer if size >= FEW), *((size, True) for size in fewer)]
    for size, on_disk in plans:
        if max(loading, needed.total(size, lean=True, on_disk=on_disk)) <= max_bytes:
            return replace(federation, chunk=size, lean=True, on_disk=on_disk)
    smallest = max(loading, needed.total(1, lean=True, on_disk=True))
    raise FedpubError(
        f"`max_memory={max_bytes / 2**30:.3g}` is too little for {clients} clients of this model; give "
        f"{_gib(MARGIN * smallest)} GiB or more, fewer clients, or a smaller `hidden`"
    )


def check_room(algorithm: Algorithm, ctx: Context, federation: Federation, kept: bool) -> None:
    """That a run fits into the memory that is free, before it is begun."""
    free = available()
    if free is None or federation.device.type != "cpu":
        return
    needed = demand(algorithm, ctx, federation, kept)
    total = needed.total(federation.chunk)
    if total - needed.taken > free:
        room = math.floor(10 * (needed.taken + free) / 2**30) / 10
        raise FedpubError(
            f"this run may take up to {_gib(total)} GiB, and {room} are there; give `max_memory={room}`, with which "
            "clients are computed in chunks with the same result, or a smaller `hidden`"
        )


def _gib(count: float) -> float:
    return math.ceil(100 * count / 2**30) / 100


def _bytes(state: State) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in pack(state).values())


def _graph_bytes(own: Subgraph, federation: Federation) -> tuple[int, int]:
    """A client's graph, stacked, and what it is made of: features and what they become along the edges, and the
    adjacency in both directions."""
    nodes, features = own.x.shape
    entry, entries = federation.dtype.itemsize, nodes * features
    hops = 2 * own.edges.shape[1] + nodes
    adjacency = 2 * hops * (entry + INDEX)
    if not sp.issparse(own.x):
        return adjacency + 2 * entries * entry, hops * (DOUBLE + INDEX) + entries * DOUBLE
    before = own.x.nnz
    after = min(entries, math.ceil(before * hops / max(nodes, 1)))
    rows = [
        2 * nnz * (entry + INDEX) if nnz < SPARSE_BELOW[federation.dtype] * entries else entries * entry
        for nnz in (before, after)
    ]
    return adjacency + sum(rows), (hops + after) * (DOUBLE + INDEX)


def _set_up_bytes(algorithm: NeedsSetup, ctx: Context, federation: Federation, w0: Tree) -> int:
    """What a client has of its own while it takes part in set-up: as large for the smallest as for any other."""
    smallest = min(federation.subgraphs, key=lambda own: own.num_nodes)
    setup, place = algorithm.setup(), Place(federation.num_classes, federation.device, federation.dtype)
    return sum(_bytes(own) for own in setup.init_clients(ctx, w0, setup.workspace(ctx, [smallest], place)))


def _values(own: Subgraph, w0: Tree, federation: Federation) -> int:
    """What a model computes of a client's nodes and pairs while it trains."""
    matrices = [leaf for leaf in w0.values() if leaf.dim() >= 2]
    width = max(leaf.shape[-1] for leaf in matrices)
    pairs = 0 if own.links is None else 2 * own.links.train.shape[1]
    values = PER_MATRIX * len(matrices) * own.num_nodes + PER_PAIR * pairs
    return math.ceil(values * width * federation.dtype.itemsize)
