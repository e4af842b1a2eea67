"""How many clients to compute at a time, and where to keep the others, within a given amount of memory."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import scipy.sparse as sp

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup, Place
from fedpub.core.tree import State, Tree, pack
from fedpub.data.clients.stack import SPARSE_BELOW
from fedpub.data.clients.subgraph import FULL, Subgraph
from fedpub.engine.memory import available, resident
from fedpub.engine.simulate import Federation, first_weights
from fedpub.errors import FedpubError
from fedpub.tasks.base import AT_A_TIME

# Copies of a client's weights that are alive at a time: while it trains (gradients, products, the upload), and for the
# whole round (the upload, the upload with its step shortened, averages).
WHILE_TRAINING, ALL_ROUND = 8, 5
KEPT, WRITTEN = 3, 2  # copies of the weights in a checkpoint in addition to the states, and copies of it during writing
# Factor by which set-up may enlarge a client's graph, and copies of the parameters that set-up trains at a client.
LARGER, TRAINED = 3, 8
# Values of every node that are alive while a model trains, per matrix of weights: 4 to 6.5 were measured. Per pair of
# nodes in link prediction: 1.1.
PER_MATRIX, PER_PAIR = 7, 1.5
PER_OUTPUT = 24  # and per output of a node, while all are judged
INDEX, DOUBLE = 8, 8  # bytes of an index and of a number while matrices are prepared
LARGE = 4 * 2**30  # a run above this says its size before it begins
MARGIN = 1.03  # the memory of a process differs a little between starts
FEW, AT_MOST = 16, 128  # clients at a time: rather than fewer, states go to files; more are no faster


@dataclass(frozen=True)
class Demand:
    """An upper bound on the memory of a run, in bytes."""

    taken: int  # before the run: Python, libraries, and graphs as loaded and divided
    stacked: int  # stacked graphs of all clients, less
    inputs: int  # their dense features, which can be in files
    again: int  # intermediate results of stacking, kept for reuse
    briefly: int  # those that are alive at a time if they are not kept
    all_round: int  # weights of all clients, however many are computed at a time
    states: int  # states of all clients
    working: tuple[int, ...]  # working memory of each client while it is computed

    def total(self, chunk: int | None, lean: bool = False, on_disk: bool = False, inputs: bool = False) -> int:
        """The total with `chunk` clients at a time, `again` recomputed (`lean`), and states (`on_disk`) and dense
        features (`inputs`) in files."""
        size = min(chunk or len(self.working), len(self.working))

        def part(whole: int) -> int:
            return math.ceil(whole * size / len(self.working))

        ends = [0]
        for own in self.working:
            ends.append(ends[-1] + own)
        busiest = max(end - start for start, end in zip(ends, ends[size:], strict=False))
        states = part(self.states) if on_disk else self.states
        rows = part(self.inputs) if inputs else self.inputs
        again = part(self.briefly) if lean else self.again
        return self.taken + self.stacked + rows + again + self.all_round + states + busiest


def demand(
    algorithm: Algorithm, ctx: Context, federation: Federation, kept: bool = False, taken: int | None = None
) -> Demand:
    """The memory of a run of this federation on a CPU; if it is `kept`, including writes to its directory."""
    w0 = first_weights(federation, ctx)
    weights, state = _bytes(dict(w0)), _bytes(algorithm.init_client(w0, 1))
    clients = federation.num_clients
    sizes = [_graph_bytes(own, ctx, federation) for own in federation.subgraphs]
    values = [_values(own, w0, ctx, federation) for own in federation.subgraphs]
    larger, trained = 1, 0
    if isinstance(algorithm, NeedsSetup):
        larger, trained = LARGER, _set_up_bytes(algorithm, ctx, federation, w0)
    written = WRITTEN * clients * (state + KEPT * weights) if kept else 0
    return Demand(
        taken=resident() if taken is None else taken,
        **{name: larger * sum(own[name] for own in sizes) for name in ("stacked", "inputs", "again", "briefly")},
        all_round=ALL_ROUND * clients * weights + clients * trained + written + _judged(w0, ctx, federation),
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
    """The same federation, with clients in chunks and their states on disk if they would not fit otherwise.

    `kept` is whether the run has a directory, `taken` the memory already in use (measured if None), and `loading` the
    peak while data were loaded.
    """
    needed, clients = demand(algorithm, ctx, federation, kept, taken), federation.num_clients
    if max(loading, needed.total(federation.chunk)) <= max_bytes:
        return federation
    most = min(federation.chunk or clients, clients)
    fewer = range(min(most, AT_MOST), 0, -1)
    plans = [(most, False), *((size, False) for size in fewer if size >= FEW), *((size, True) for size in fewer)]
    for inputs, (size, on_disk) in product((False, True) if needed.inputs else (False,), plans):
        if max(loading, needed.total(size, True, on_disk, inputs)) <= max_bytes:
            folder = Path(tempfile.gettempdir()) if inputs else None
            return replace(federation, chunk=size, lean=True, on_disk=on_disk, inputs=folder)
    smallest = max(loading, needed.total(1, lean=True, on_disk=True, inputs=True))
    raise FedpubError(
        f"`max_memory={max_bytes / 2**30:.3g}` is too little for {clients} clients of this model; give "
        f"{_gib(MARGIN * smallest)} GiB or more, fewer clients, or a smaller `hidden`"
    )


def check_room(algorithm: Algorithm, ctx: Context, federation: Federation, kept: bool) -> str | None:
    """Raise an error unless the run fits into the free memory; a sentence about its size if it is large."""
    free = available()
    if free is None or federation.device.type != "cpu":
        return None
    needed = demand(algorithm, ctx, federation, kept)
    total = needed.total(federation.chunk)
    if total - needed.taken > free:
        room = math.floor(10 * (needed.taken + free) / 2**30) / 10
        raise FedpubError(
            f"this run may take up to {_gib(total)} GiB, but {room} are available; give `max_memory={room}`, which "
            "computes clients in chunks with the same result, or a smaller `hidden`"
        )
    return f"this run may take up to {_gib(total)} GiB of memory" if total > LARGE else None


def _gib(count: float) -> float:
    return math.ceil(100 * count / 2**30) / 100


def _bytes(state: State) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in pack(state).values())


def _graph_bytes(own: Subgraph, ctx: Context, federation: Federation) -> dict[str, int]:
    """Bytes of a client's stacked graph (features before and after propagation, adjacencies in both directions), and
    of the intermediate results, by the names in `Demand`."""
    nodes, features = own.x.shape
    steps, propagates, apart = ctx.needs
    entry, entries, sparse = federation.dtype.itemsize, nodes * features, sp.issparse(own.x)
    links = 2 * own.edges.shape[1] + own.num_relations * nodes
    before = own.x.nnz if sparse else entries
    denser = links / max(own.num_relations * nodes, 1)  # entries of a row, for each before a step along the edges
    filled = [min(entries, math.ceil(before * denser**step)) for step in range(steps + 1)]
    walked = [nnz for nnz in filled[1:] for _ in range(own.num_relations)]
    thin = [nnz for nnz in (before, *walked) if sparse and nnz < SPARSE_BELOW[federation.dtype] * entries]
    adjacency = 2 * links * (entry + INDEX) if propagates or not apart else 0
    each = [nnz * (DOUBLE + INDEX if sparse and before < FULL * entries else DOUBLE) for nnz in walked]
    return {
        "stacked": adjacency + 2 * sum(thin) * (entry + INDEX),
        "inputs": (1 + len(walked) - len(thin)) * entries * entry,
        "again": links * (DOUBLE + INDEX) + sum(each),
        "briefly": links * (DOUBLE + INDEX) + min(sum(each), 3 * max(each, default=0)),
    }


def _set_up_bytes(algorithm: NeedsSetup, ctx: Context, federation: Federation, w0: Tree) -> int:
    """Bytes of a client's state during set-up: the same for the smallest client as for any other."""
    smallest = min(federation.subgraphs, key=lambda own: own.num_nodes)
    setup, place = algorithm.setup(), Place(federation.num_classes, federation.device, federation.dtype)
    return sum(_bytes(own) for own in setup.init_clients(ctx, w0, setup.workspace(ctx, [smallest], place)))


def _values(own: Subgraph, w0: Tree, ctx: Context, federation: Federation) -> int:
    """Bytes of a model's values for a client's nodes and pairs during training, and of copies of features."""
    matrices = [leaf for leaf in w0.values() if leaf.dim() >= 2]
    width = max(leaf.shape[-1] for leaf in matrices)
    pairs = 0 if own.links is None else 2 * own.links.train.shape[1]
    nodes = min(ctx.batch_size or own.num_train, own.num_train) if ctx.needs[2] else own.num_nodes
    values = (PER_MATRIX * len(matrices) * nodes + PER_PAIR * pairs) * width
    if ctx.needs[2]:  # rows of the features are copied, for a batch or once
        values += nodes * own.x.shape[1] * _products(own, ctx)
    return math.ceil(values * federation.dtype.itemsize)


def _judged(w0: Tree, ctx: Context, federation: Federation) -> int:
    """Bytes of a model's values while the nodes of all clients are judged in parts, if they can be."""
    if not ctx.needs[2]:
        return 0
    total = sum(own.num_nodes for own in federation.subgraphs)
    matrices = [leaf for leaf in w0.values() if leaf.dim() >= 2]
    own = max(federation.subgraphs, key=lambda own: own.num_nodes)
    copied, computed = own.x.shape[1] * _products(own, ctx), len(matrices) * max(leaf.shape[-1] for leaf in matrices)
    values = min(total, AT_A_TIME) * (copied + computed) + total * PER_OUTPUT * federation.num_classes
    return int(values * federation.dtype.itemsize)


def _products(own: Subgraph, ctx: Context) -> int:
    """The matrices of features that the model multiplies."""
    return 1 + ctx.needs[0] * own.num_relations
