"""GCFL (Xie et al., 2021): clients in clusters that split when their updates disagree.

Every cluster has a model, the mean of its members weighted by training examples. With ΔW_i the update of client i,
a cluster of more than two splits when its members have no common direction and still move:

    ‖mean_i ΔW_i‖ < ε1   and   max_i ‖ΔW_i‖ > ε2

along the minimum cut (Stoer and Wagner) of the cosine similarities of the ΔW_i. Norms are per square root of the
number of parameters, so that ε1 and ε2 do not depend on the model's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.similarity import cosine
from fedpub.algorithms.training import weighted_mean
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, broadcast, flatten, select, stacked, tensor, tree, update


@dataclass(frozen=True)
class GCFL(Algorithm):
    title: ClassVar[str] = "GCFL"

    eps1: float = 0.002
    """Norm of a cluster's mean update below which it may split."""
    eps2: float = 0.004
    """Norm of a cluster's largest update above which it may split."""
    warm_up: int = 20
    """Rounds before the first split."""

    looks_at_values: ClassVar[bool] = True

    @property
    def notes(self) -> Mapping[str, int]:
        return {"cluster": 1}

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"weights", "size"})

    def init_server(self, w0: Tree, num_clients: int) -> State:
        device = next(iter(w0.values())).device
        cluster = torch.zeros(num_clients, dtype=torch.int64, device=device)
        return {"weights": stacked(w0, num_clients), "cluster": cluster}

    def send(self, server: State, ids: Tensor) -> Message:
        return Message(select({"weights": server["weights"]}, ids))

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        sent = select({"weights": server["weights"]}, ids)
        delta_KP = flatten(up.tree("weights")) - flatten(tree(sent["weights"]))
        cluster = tensor(server["cluster"]).clone()
        ids = ids.to(cluster.device)
        if ctx.round > self.warm_up:
            for number in torch.unique(cluster[ids]).tolist():
                members = torch.nonzero(cluster[ids] == number).flatten()
                if self.splits(delta_KP[members]):
                    away = members[minimum_cut(cosine(delta_KP[members]))]
                    cluster[ids[away]] = int(cluster.max()) + 1
        weights: State = {"weights": server["weights"]}
        for number in torch.unique(cluster[ids]).tolist():
            members = torch.nonzero(cluster[ids] == number).flatten()
            mean = weighted_mean(up.select(members))
            everyone = torch.nonzero(cluster == number).flatten()  # including members that did not take part
            weights = update(weights, everyone, {"weights": broadcast(mean, len(everyone))})
        return {**weights, "cluster": cluster}, {"cluster": cluster[ids]}

    def splits(self, delta_KP: Tensor) -> bool:
        """Whether a cluster with these updates splits."""
        scale = delta_KP.shape[1] ** -0.5
        mean = float(delta_KP.mean(0).norm()) * scale
        largest = float(delta_KP.norm(dim=1).max()) * scale
        return len(delta_KP) > 2 and mean < self.eps1 and largest > self.eps2


def minimum_cut(similarity_KK: Tensor) -> Tensor:
    """The positions on the side of the minimum cut without position 0; negative similarities count as zero.

    Stoer and Wagner (1997): grow a set by its most similar node; the last node's similarities are a cut; merge the
    last two nodes and repeat.
    """
    bond = similarity_KK.double().clamp(min=0).cpu().numpy().copy()
    np.fill_diagonal(bond, 0)
    alive = list(range(len(bond)))
    merged = [[node] for node in alive]
    lightest, side = float("inf"), merged[-1]
    while len(alive) > 1:
        rest, weight = alive[1:], bond[alive[0], alive[1:]].copy()
        last = before = alive[0]
        while rest:
            nearest = int(weight.argmax())
            before, last, cut = last, rest.pop(nearest), float(weight[nearest])
            weight = np.delete(weight, nearest) + bond[last, rest]
        if cut < lightest:
            lightest, side = cut, list(merged[last])
        merged[before] += merged[last]
        bond[before] += bond[last]
        bond[:, before] += bond[:, last]
        alive.remove(last)
    away = sorted(side if 0 not in side else set(range(len(bond))) - set(side))
    return torch.tensor(away, device=similarity_KK.device)
