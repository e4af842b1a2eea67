"""How many clients to compute at a time, and where to keep the others, within a given amount of memory."""

from __future__ import annotations

import math
from dataclasses import replace

from fedpub.algorithms.base import Algorithm, Context
from fedpub.engine.simulate import Federation, first_weights
from fedpub.errors import FedpubError
from fedpub.tree import State, pack

# Copies of a client's weights that are alive at a time: while it trains (gradients, products, what is sent), and for
# as long as the round lasts (what was sent, what is averaged of it).
WHILE_TRAINING, ALL_ROUND = 8, 4
LAYERS = 6  # hidden layers and their gradients, of every node
BASE = 600 * 2**20  # what Python, torch and the libraries take
FEW, AT_MOST = 16, 128  # clients at a time: with fewer, files are better; more are no faster


def within(algorithm: Algorithm, ctx: Context, federation: Federation, max_bytes: float) -> Federation:
    """The same federation, with clients in chunks and their states on disk where they would not fit."""
    w0 = first_weights(federation, ctx)
    weights = _bytes(dict(w0))
    state = _bytes(algorithm.init_client(w0, 1))
    width, clients = max(leaf.shape[-1] for leaf in w0.values()), federation.num_clients
    entry = federation.dtype.itemsize
    nodes = max(len(own.y) for own in federation.subgraphs)
    sizes = [(len(own.y), own.edges.shape[1]) for own in federation.subgraphs]
    graphs = sum(_graph_bytes(nodes, edges, federation.num_features, entry) for nodes, edges in sizes)
    working = WHILE_TRAINING * weights + LAYERS * nodes * width * entry + state
    fixed = BASE + graphs + ALL_ROUND * clients * weights
    if fixed + clients * (working + state) <= max_bytes:
        return federation
    for on_disk, least in ((False, min(FEW, clients)), (True, 1)):
        left = max_bytes - fixed - (0 if on_disk else clients * state)
        chunk = min(int(left // working), AT_MOST, clients)
        if chunk >= least:
            return replace(federation, chunk=min(chunk, federation.chunk or chunk), on_disk=on_disk)
    needed = math.ceil(100 * (fixed + working) / 2**30) / 100
    raise FedpubError(
        f"`max_memory={max_bytes / 2**30:.3g}` is too little for {clients} clients of this model; give {needed} "
        "GiB or more, fewer clients, or a smaller `hidden`"
    )


def _bytes(state: State) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in pack(state).values())


def _graph_bytes(nodes: int, edges: int, features: int, entry: int) -> int:
    """Features and what they become along the edges, and the adjacency in both directions; an upper bound."""
    return 2 * nodes * features * entry + 2 * (2 * edges + nodes) * (entry + 8)
