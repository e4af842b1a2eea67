"""Training, validation and test nodes: drawn at random, given by the graph's owner, or those of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpub.core.rng import numpy_stream
from fedpub.data.graph import NO_SET, TEST, TRAIN, VALIDATION, Graph
from fedpub.errors import FedpubError

Ratios = tuple[float, float, float]
Origin = Literal["default", "random", "own", "published"]  # of a split; default: own if the graph has one, else random

DEFAULT: Ratios = (0.2, 0.4, 0.4)  # as the published code splits; the paper's text says 20/35/35
LARGE: Ratios = (0.05, 0.475, 0.475)  # ogbn-arxiv
PUBLISHED_SEED = 1234


class Split(NamedTuple):
    """One boolean per node and set; a node without a label is in no set."""

    train: Tensor  # [N]
    val: Tensor
    test: Tensor


def split(graph: Graph, seed: int, ratios: Ratios = DEFAULT, known_N: Tensor | None = None) -> Split:
    """The owner's split of the labelled nodes, if the graph has one; else they are assigned to three sets at random.

    `known_N` are the labelled nodes, if it is not a class that labels them. The split is made on the whole graph,
    before it is partitioned: a node has the same role at every client that holds it.
    """
    known_N = graph.y >= 0 if known_N is None else known_N
    if graph.split is not None:
        found = Split(*(known_N & (graph.split == part) for part in (TRAIN, VALIDATION, TEST)))
        if not bool(found.train.any()):
            raise FedpubError(
                f"graph {graph.name!r} has a split of its own without a labelled training node; mark some nodes for "
                "training, or draw the sets with `split=random`"
            )
        return found
    check_ratios(ratios, "0.2 0.4 0.4")
    order = numpy_stream(seed, "split").permutation(torch.nonzero(known_N).flatten().numpy())
    ends = np.cumsum([round(ratio * len(order)) for ratio in ratios[:2]])
    sets = []
    for part in np.split(order, ends):
        chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
        chosen[torch.from_numpy(part)] = True
        sets.append(chosen)
    if not bool(sets[0].any()):
        raise FedpubError(
            f"graph {graph.name!r} has {len(order)} labelled nodes, and {ratios[0]:.0%} of them rounds to none; "
            "increase the first split ratio"
        )
    return Split(*sets)


def with_split(graph: Graph, origin: Origin, published: Ratios | None, asked: Ratios | None = None) -> Graph:
    """The graph with the split that `split` shall use, or without one if it shall draw one.

    `published` are the paper's ratios for this graph, if it is one of the paper's. `asked` are ratios that were asked
    for: an error unless the sets are drawn.
    """
    if origin == "random" or (origin == "default" and graph.split is None):
        return replace(graph, split=None)
    if asked is not None:
        whose = "the published split" if origin == "published" else f"the split that graph {graph.name!r} has"
        raise FedpubError(
            f"`ratios={' '.join(map(str, asked))}` has no effect on {whose}; leave it out, or use `split=random`"
        )
    if origin == "published":
        if published is None:
            raise FedpubError(
                f"`split=published` exists for the paper's data sets only, not for {graph.name!r}; use `split=random`"
            )
        return replace(graph, split=published_sets(graph.num_nodes, published))
    if graph.split is None:
        raise FedpubError(
            f"graph {graph.name!r} has no split of its own; import one with its nodes, or use `split=random`"
        )
    return graph


def published_sets(num_nodes: int, ratios: Ratios) -> Tensor:
    """The set of every node in the published experiments, [N]: the second permutation that torch draws from their seed
    has the training nodes first, then the test nodes, then those for validation."""
    stream = torch.Generator().manual_seed(PUBLISHED_SEED)
    torch.randperm(num_nodes, generator=stream)
    order = torch.randperm(num_nodes, generator=stream)
    train, test = round(num_nodes * ratios[0]), round(num_nodes * ratios[2])
    sets = torch.full((num_nodes,), VALIDATION, dtype=torch.int8)
    sets[order[:train]] = TRAIN
    sets[order[train : train + test]] = TEST
    return sets


def check_learnable(graph: Graph) -> None:
    """Raise an error if a class is judged by the owner's split, but no node of the graph teaches it."""
    if graph.split is None:
        return
    count = torch.zeros(TEST + 1, max(1, graph.num_classes), dtype=torch.int64)
    inside = (graph.split != NO_SET) & (graph.y >= 0)
    count.index_put_((graph.split[inside].long(), graph.y[inside]), torch.tensor(1), accumulate=True)
    for label in torch.nonzero((count[TRAIN] == 0) & (count.sum(0) > 0)).flatten().tolist():
        raise FedpubError(
            f"graph {graph.name!r}: class {graph.classes[label]!r} has {count[VALIDATION, label]} validation and "
            f"{count[TEST, label]} test nodes in the graph's own split, but no training node; move some of them to "
            "training, or draw the sets with `split=random`"
        )


def check_ratios(ratios: Ratios, example: str) -> None:
    if not (min(ratios) >= 0 and ratios[0] > 0 and abs(sum(ratios) - 1) <= 1e-6):  # also refuses NaN
        raise FedpubError(
            f"the split ratios {' '.join(map(str, ratios))} must sum to 1 with a positive first one, as in {example}"
        )


def without_training(nodes: tuple[Tensor, ...], chosen: Split) -> list[int]:
    """The clients that hold no training node."""
    return [client for client, own in enumerate(nodes) if not bool(chosen.train[own].any())]
