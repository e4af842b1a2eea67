"""Training, validation and test pairs for link prediction.

A pair u < v has the number v (v − 1) / 2 + u, so that non-edges can be counted and drawn uniformly, without rejection.
An edge has the same role at every client: no client trains on what another is evaluated on. (The partition itself was
made on the whole graph, with all edges visible.)

Axes: E edges, P pairs, K clients, N nodes of all clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpub.core.rng import counter_words, numpy_stream, stream_keys
from fedpub.data.clients.split import Ratios, check_ratios

TRAIN, VAL, TEST = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Judged:
    """Edges and as many non-edges on which a model is evaluated."""

    pairs: Tensor  # [2, P]
    true: Tensor  # [P] bool: whether the pair is an edge
    owner: Tensor  # [P] the client whose result it counts towards


@dataclass(frozen=True, eq=False)
class Links:
    """The pairs of one client, as positions among its nodes."""

    train: Tensor  # [2, E]
    val: Judged
    test: Judged
    apart: Tensor  # [2, X] never drawn as negatives: edges of every role, and all pairs used for evaluation
    num_nodes: int  # the client's own, which come first; pairs with added nodes are never drawn

    def kept(self, rows: Tensor, num_nodes: int) -> Links:
        """The pairs between the given nodes, renumbered."""
        position = torch.full((num_nodes,), -1, dtype=torch.int64)
        position[rows] = torch.arange(len(rows))

        def between(judged: Judged) -> Judged:
            inside = (position[judged.pairs] >= 0).all(0)
            return Judged(position[judged.pairs[:, inside]], judged.true[inside], judged.owner[inside])

        train, apart = position[self.train], position[self.apart]
        return Links(
            train=train[:, (train >= 0).all(0)],
            val=between(self.val),
            test=between(self.test),
            apart=apart[:, (apart >= 0).all(0)],
            num_nodes=len(rows),
        )


class LinkSplit(NamedTuple):
    """The roles of a graph's edges, and non-edges for evaluation."""

    role_E: Tensor
    negatives: tuple[dict[int, Tensor], ...]  # per client: {VAL: pairs [2, P], TEST: pairs} of the whole graph


def split_links(edges: Tensor, num_nodes: int, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios) -> LinkSplit:
    """Assign every client's edges to three sets at random, with as many non-edges for evaluation.

    An edge that several clients hold keeps the role it has at the first of them; the others fill their sets from their
    remaining edges. An edge between clients, which only the oracle sees, is a training edge.
    """
    check_ratios(ratios, "0.85 0.05 0.1")
    role_E = torch.full((edges.shape[1],), -1, dtype=torch.int8)
    negatives = []
    for client, own in enumerate(nodes):
        stream = numpy_stream(seed, "links", client)
        held = torch.zeros(num_nodes, dtype=torch.bool)
        held[own] = True
        mine = torch.nonzero(held[edges[0]] & held[edges[1]]).flatten()
        free = mine[role_E[mine] < 0]
        free = free[torch.from_numpy(stream.permutation(len(free)))]
        start = 0
        for role in (VAL, TEST):
            lacking = round(ratios[role] * len(mine)) - int((role_E[mine] == role).sum())
            role_E[free[start : start + max(lacking, 0)]] = role
            start += max(lacking, 0)
        role_E[free[start:]] = TRAIN
        wanted = [int((role_E[mine] == role).sum()) for role in (VAL, TEST)]
        position = torch.full((num_nodes,), -1, dtype=torch.int64)
        position[own] = torch.arange(len(own))
        drawn = own[_non_edges(position[edges[:, mine]], len(own), sum(wanted), stream)]
        # If there are too few, both sets are smaller.
        first = round(drawn.shape[1] * wanted[0] / max(sum(wanted), 1))
        negatives.append({VAL: drawn[:, :first], TEST: drawn[:, first:]})
    role_E[role_E < 0] = TRAIN
    return LinkSplit(role_E, tuple(negatives))


def _non_edges(edges: Tensor, num_nodes: int, count: int, stream: np.random.Generator) -> Tensor:
    """Distinct pairs without an edge, [2, count]; fewer if the graph has no more."""
    taken = np.unique(pair_number(edges).numpy())
    total = num_nodes * (num_nodes - 1) // 2 - len(taken)
    rank = stream.choice(total, size=min(count, total), replace=False, shuffle=True)
    number = rank + np.searchsorted(taken - np.arange(len(taken)), rank, side="right")
    return numbered_pair(torch.from_numpy(number))


def links_of(
    edges: Tensor, num_nodes: int, own: Tensor, chosen: LinkSplit, judged: dict[int, Tensor]
) -> tuple[Tensor, Links]:
    """The edges for message passing among the nodes `own`, which are the training edges, and the links of these nodes.

    `judged` has the nodes of each client that is reported: the client itself, or all clients for the oracle.
    """
    position = torch.full((num_nodes,), -1, dtype=torch.int64)
    position[own] = torch.arange(len(own))

    def inside(pairs: Tensor) -> Tensor:
        found = position[pairs]
        found = found[:, (found >= 0).all(0)]
        return torch.stack([found.min(0).values, found.max(0).values]) if found.shape[1] else found

    train = inside(edges[:, chosen.role_E == TRAIN])
    sets = {VAL: [_NOTHING], TEST: [_NOTHING]}
    for client, nodes in judged.items():
        held = torch.zeros(num_nodes, dtype=torch.bool)
        held[nodes] = True
        mine = held[edges[0]] & held[edges[1]]
        for role, parts in sets.items():
            true, false = inside(edges[:, mine & (chosen.role_E == role)]), inside(chosen.negatives[client][role])
            pairs = torch.cat([true, false], dim=1)
            is_edge = torch.arange(pairs.shape[1]) < true.shape[1]
            parts.append(Judged(pairs, is_edge, torch.full((pairs.shape[1],), client)))
    anybody = [inside(part) for client in chosen.negatives for part in client.values()]
    apart = torch.unique(pair_number(torch.cat([inside(edges), *anybody], dim=1)))
    return train, Links(train, _joined(sets[VAL]), _joined(sets[TEST]), numbered_pair(apart), len(own))


_NOTHING = Judged(
    torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.bool), torch.empty(0, dtype=torch.int64)
)


def _joined(parts: list[Judged]) -> Judged:
    return Judged(
        torch.cat([part.pairs for part in parts], dim=1),
        torch.cat([part.true for part in parts]),
        torch.cat([part.owner for part in parts]),
    )


def pair_number(pairs: Tensor) -> Tensor:
    """v (v − 1) / 2 + u of pairs [2, P], whichever end comes first."""
    low, high = pairs.min(0).values, pairs.max(0).values
    return high * (high - 1) // 2 + low


def numbered_pair(number_P: Tensor) -> Tensor:
    """The pairs u < v with the given numbers, [2, P]."""
    v = ((1 + (1 + 8 * number_P.double()).sqrt()) / 2).long()
    v = torch.where(v * (v - 1) // 2 > number_P, v - 1, v)  # the root may be rounded up
    return torch.stack([number_P - v * (v - 1) // 2, v])


@dataclass(frozen=True, eq=False)
class StackedLinks:
    """The links of stacked clients, as positions among the N nodes."""

    train: Tensor  # [2, E]
    train_owner_E: Tensor  # which of the K clients
    train_row_E: Tensor  # the edge's number within its client
    val: Judged
    test: Judged
    negatives: NonEdges

    def to(self, device: torch.device) -> StackedLinks:
        def moved(judged: Judged) -> Judged:
            return Judged(judged.pairs.to(device), judged.true.to(device), judged.owner.to(device))

        return StackedLinks(
            train=self.train.to(device),
            train_owner_E=self.train_owner_E.to(device),
            train_row_E=self.train_row_E.to(device),
            val=moved(self.val),
            test=moved(self.test),
            negatives=self.negatives.to(device),
        )


def stack_links(parts: list[Links], sizes: list[int], reported: bool) -> StackedLinks:
    """The links of all clients in one stack; `sizes` are the clients' numbers of nodes.

    `reported`: pairs count towards their owner; else towards the client that holds them.
    """
    start = (np.cumsum([0, *sizes])[:-1]).tolist()
    count = torch.tensor([own.train.shape[1] for own in parts])
    owner_E = torch.repeat_interleave(torch.arange(len(parts)), count)
    row_E = torch.arange(len(owner_E)) - (torch.cumsum(count, 0) - count)[owner_E]

    def moved(own: Judged, client: int) -> Judged:
        owner = own.owner if reported else torch.full_like(own.owner, client)
        return replace(own, pairs=own.pairs + start[client], owner=owner)

    return StackedLinks(
        train=torch.cat([own.train + at for own, at in zip(parts, start, strict=True)], dim=1),
        train_owner_E=owner_E,
        train_row_E=row_E,
        val=_joined([moved(own.val, client) for client, own in enumerate(parts)]),
        test=_joined([moved(own.test, client) for client, own in enumerate(parts)]),
        negatives=NonEdges.of([own.apart for own in parts], [own.num_nodes for own in parts], start),
    )


@dataclass(frozen=True, eq=False)
class NonEdges:
    """The pairs that may be drawn as negatives, numbered over all clients.

    With the taken pairs' numbers t_0 < t_1 < ..., the r-th free pair has the number r + |{i : t_i − i ≤ r}|.
    """

    gap_X: Tensor  # t_i − i, of all clients
    first_K: Tensor  # the rank of each client's first free pair
    count_K: Tensor  # the number of its free pairs
    number_K: Tensor  # the number of its first pair
    start_K: Tensor  # its first node among the N

    @staticmethod
    def of(apart: list[Tensor], num_nodes: list[int], start: list[int]) -> NonEdges:
        """For clients with these numbers of nodes, starting at these rows."""
        pairs_K = torch.tensor([n * (n - 1) // 2 for n in num_nodes])
        taken_K = torch.tensor([part.shape[1] for part in apart])
        number_K = torch.cumsum(pairs_K, 0) - pairs_K
        taken = [number + pair_number(part).sort().values for number, part in zip(number_K, apart, strict=True)]
        return NonEdges(
            gap_X=torch.cat(taken) - torch.arange(int(taken_K.sum())),
            first_K=number_K - (torch.cumsum(taken_K, 0) - taken_K),
            count_K=pairs_K - taken_K,
            number_K=number_K,
            start_K=torch.tensor(start),
        )

    def draw(self, seed: int, ids_K: Tensor, owner_E: Tensor, row_E: Tensor, *step: str | int) -> Tensor:
        """A free pair for every training example, [2, E]; a node paired with itself where `count_K` is zero.

        Counter-based: a pair depends only on the client's number, the example's number and the step.
        """
        word_E = counter_words(stream_keys(seed, ids_K, "negatives", *step)[owner_E], row_E)
        rank_E = self.first_K[owner_E] + word_E % self.count_K[owner_E].clamp(min=1)
        number_E = rank_E + torch.searchsorted(self.gap_X, rank_E, right=True)
        own = numbered_pair(number_E - self.number_K[owner_E]) * (self.count_K > 0)[owner_E]
        return own + self.start_K[owner_E]

    def to(self, device: torch.device) -> NonEdges:
        fields = (self.gap_X, self.first_K, self.count_K, self.number_K, self.start_K)
        return NonEdges(*(part.to(device) for part in fields))
