"""A federation small enough to check by hand.

Client 0 is the path 0 - 1 - 2, client 1 the star of 3 with 4, 5 and 6, client 2 the pair 7 - 8 and 9 alone.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms import Algorithm, Context
from fedpub.cli import main
from fedpub.core.tree import Tree
from fedpub.data.clients.split import Split
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Propagation, Subgraph, subgraph_of
from fedpub.data.graph import Graph
from fedpub.data.synthetic import Communities
from fedpub.models import GCN, Model
from fedpub.tasks import NodeClassification

NODES = ((0, 1, 2), (3, 4, 5, 6), (7, 8, 9))
TRAIN = (0, 1, 3, 4, 5, 7)  # 2, 3 and 1 at the clients

# Client 0 has no value in features 2, 3 and 4; client 1 none in 0 and 4; client 2 none in 0 and 1. Feature 4 is only
# at node 9, which has no neighbour.
FEATURES = (
    (1.0, 2.0, 0.0, 0.0, 0.0),
    (0.5, 0.0, 0.0, 0.0, 0.0),
    (0.0, -1.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 2.0, 3.0, 0.0),
    (0.0, -2.0, 0.0, 1.0, 0.0),
    (0.0, 0.0, 0.5, 0.0, 0.0),
    (0.0, 0.0, 1.0, -1.0, 0.0),
    (0.0, 0.0, 3.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 2.0, 1.0),
)
SEEN_X = ((1, 1, 0, 0, 0), (0, 1, 1, 1, 0), (0, 0, 1, 1, 1))
LABELS = (0, 1, 0, 2, 1, 2, 0, 1, 0, 2)
EDGES = ((0, 1, 3, 3, 3, 7), (1, 2, 4, 5, 6, 8))


def small_graph() -> Graph:
    return Graph(
        x=torch.tensor(FEATURES, dtype=torch.float64),
        y=torch.tensor(LABELS),
        edges=torch.tensor(EDGES),
        classes=("a", "b", "c"),
        name="small",
    ).validate()


def small_split(train: tuple[int, ...] = TRAIN) -> Split:
    chosen = torch.zeros(len(LABELS), dtype=torch.bool)
    chosen[list(train)] = True
    return Split(chosen, ~chosen, ~chosen)


def subgraphs(kind: Propagation = "symmetric", train: tuple[int, ...] = TRAIN) -> list[Subgraph]:
    graph, chosen = small_graph(), small_split(train)
    return [subgraph_of(graph, torch.tensor(own), chosen, client, kind) for client, own in enumerate(NODES)]


def small_clients(
    *which: int, kind: Propagation = "symmetric", train: tuple[int, ...] = TRAIN, dtype: torch.dtype = torch.float64
) -> Clients:
    """The named clients side by side; all three where none is named."""
    everyone = subgraphs(kind, train)
    return stack([everyone[client] for client in which or range(3)], 3, dtype=dtype)


def context(model: Model | None = None, **changes) -> Context:
    plain = {"seed": 0, "round": 1, "epochs": 1, "lr": 0.1, "weight_decay": 0.0, "dropout": 0.0}
    return Context(model=model or GCN(4), task=NodeClassification(), **(plain | changes))


def made_for(method: Algorithm, ctx: Context) -> Context:
    """The context with what the method makes of its model, as an experiment has it."""
    return replace(ctx, model=method.net(ctx.model, ctx.task))


def random_tree(model: Model, clients: int | None = None, seed: int = 0) -> Tree:
    """Weights and biases without a zero among them, [K, ...]; without a client axis where no number is given."""
    stream = torch.Generator().manual_seed(seed)
    shapes = {name: leaf.shape for name, leaf in model.init(5, 3, stream).items()}
    lead = () if clients is None else (clients,)
    return {
        name: torch.randn(*lead, *shape, generator=stream, dtype=torch.float64) / 2 for name, shape in shapes.items()
    }


def assert_trees_equal(one: Tree, other: Tree, exact: bool = True) -> None:
    assert one.keys() == other.keys()
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-10, "atol": 1e-12}
    for name in one:
        torch.testing.assert_close(one[name], other[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def few_of_one_class(count: int = 60, rare: int = 3) -> Graph:
    """Two clients with a path each, in which one node of twenty is of the second class; features tell a little."""
    stream = torch.Generator().manual_seed(1)
    y = torch.zeros(2 * count, dtype=torch.int64)
    for start in (0, count):
        y[start + torch.randperm(count, generator=stream)[:rare]] = 1
    path = torch.arange(count)
    edges = torch.cat([torch.stack([path[:-1], path[1:]]) + start for start in (0, count)], 1)
    x = torch.rand(2 * count, 6, generator=stream, dtype=torch.float64) + 0.2 * y[:, None]
    return Graph(
        x, y, edges, ("usual", "rare"), name="few", client=torch.arange(2 * count) // count, client_names=("one", "two")
    ).validate()


# Five natural clients in two communities.
TINY = Communities(
    subgraphs=(3, 2),
    nodes=20,
    p_subgraph=0.25,
    p_community=0.05,
    p_between=0.01,
    classes=3,
    features=30,
    purity=0.6,
    words=5,
    noise=0.3,
    shift=0.5,
)


def client_by_hand(number: int, x: Any, edges: Any, nodes: Tensor, train: Tensor) -> Subgraph:
    """A client with these features; who does not train is judged."""
    return Subgraph(
        id=number,
        nodes=nodes,
        x=sp.csr_matrix(np.asarray(x, dtype=np.float64)),
        edges=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        y=torch.arange(len(x)) % 3,
        train=train,
        val=~train,
        test=~train,
        propagation="symmetric",
    )


def instead(words: list[str], *flags: str) -> list[str]:
    """A command with other values of some of its flags."""
    kept, given = [], True
    for word in words:
        given = word not in flags if word.startswith("--") else given
        if given:
            kept.append(word)
    return [*kept, *flags]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said, when it is one sentence."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedpub: ")
    assert said.err.count("\n") == 1
    return said.err


def read_terminal(leader: int) -> bytes:
    """All that a program writes to a pseudo-terminal until its end is closed."""
    got = b""
    while True:
        try:
            block = os.read(leader, 4096)
        except OSError:  # how Linux says that the other end is closed
            return got
        if not block:
            return got
        got += block
