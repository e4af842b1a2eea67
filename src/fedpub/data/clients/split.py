"""Training, validation and test nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpub.core.rng import numpy_stream
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError

Ratios = tuple[float, float, float]

DEFAULT: Ratios = (0.2, 0.4, 0.4)  # as the published code splits; the paper's text says 20/35/35
LARGE: Ratios = (0.05, 0.475, 0.475)  # ogbn-arxiv


class Split(NamedTuple):
    """One boolean per node and set; a node without a label is in no set."""

    train: Tensor  # [N]
    val: Tensor
    test: Tensor


def split(graph: Graph, seed: int, ratios: Ratios = DEFAULT) -> Split:
    """Assign labelled nodes to three sets at random.

    Drawn on the whole graph, before it is partitioned: a node has the same role at every client that holds it.
    """
    check_ratios(ratios, "0.2 0.4 0.4")
    labelled = torch.nonzero(graph.y >= 0).flatten().numpy()
    order = numpy_stream(seed, "split").permutation(labelled)
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


def check_ratios(ratios: Ratios, example: str) -> None:
    if not (min(ratios) >= 0 and ratios[0] > 0 and abs(sum(ratios) - 1) <= 1e-6):  # also refuses NaN
        raise FedpubError(
            f"the split ratios {' '.join(map(str, ratios))} must sum to 1 with a positive first one, as in {example}"
        )


def without_training(nodes: tuple[Tensor, ...], chosen: Split) -> list[int]:
    """The clients that hold no training node."""
    return [client for client, own in enumerate(nodes) if not bool(chosen.train[own].any())]
