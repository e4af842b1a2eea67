"""Communities of clients, from what each of them has learnt alone.

A client is described by the change of its model's function since the common start. Changes that have nothing to do with
each other have a cosine of zero, whatever the sizes of the communities; those of clients that learn the same do not.

Axes: K clients, D numbers that describe a client, M those of which the communities are made.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedpub.algorithms.similarity import cosine

RELATED = 0.1  # mean cosine from which two groups are one community; noise has a deviation of 0.03 to 0.05
AT_ONCE = 2000  # clients that are compared with each other; further ones join the community that is nearest to them


def communities(change_KD: Tensor, least: int, related: float = RELATED) -> Tensor:
    """The community of every client, [K], numbered by their first members; each has at least `least` members.

    The two most similar groups become one, by the mean over their pairs, until none are related. Groups that are too
    small then join the ones that they are most similar to, the most similar pair first.
    """
    unit_KD = torch.nn.functional.normalize(change_KD.double().cpu(), dim=1)
    first_MD = unit_KD[:AT_ONCE]
    found_K = _joined(_linked(cosine(first_MD).numpy(), related), first_MD, least)
    if len(unit_KD) > AT_ONCE:
        near_KG = unit_KD[AT_ONCE:] @ _means(first_MD, found_K).T
        found_K = torch.cat([found_K, near_KG.argmax(1)])
    return found_K.to(change_KD.device)


def _linked(similarity_KK: np.ndarray, related: float) -> Tensor:
    """Average linkage, stopped where the mean similarity is below `related`."""
    if len(similarity_KK) < 2:
        return torch.zeros(len(similarity_KK), dtype=torch.int64)
    distance_KK = np.maximum(1 - (similarity_KK + similarity_KK.T) / 2, 0)
    np.fill_diagonal(distance_KK, 0)
    tree = linkage(squareform(distance_KK, checks=False), "average")
    return torch.from_numpy(fcluster(tree, 1 - related, "distance").astype(np.int64))


def _joined(found_K: Tensor, unit_KD: Tensor, least: int) -> Tensor:
    """No community is smaller than `least`, unless it is the only one."""
    found_K = numbered(found_K)
    sum_GD = _members(found_K).to(unit_KD) @ unit_KD
    sum_GG, size_G = sum_GD @ sum_GD.T, torch.bincount(found_K)  # over all pairs of members
    while int((size_G > 0).sum()) > 1 and bool(((size_G > 0) & (size_G < least)).any()):
        near_GG = (sum_GG / (size_G.unsqueeze(1) * size_G)).fill_diagonal_(float("-inf"))
        near_GG[(size_G >= least) | (size_G == 0)] = near_GG[:, size_G == 0] = float("-inf")
        small, nearest = divmod(int(near_GG.argmax()), len(near_GG))
        for part in (sum_GG, sum_GG.T, size_G):
            part[nearest] += part[small]
            part[small] = 0
        found_K[found_K == small] = nearest
    return numbered(found_K)


def _means(unit_KD: Tensor, found_K: Tensor) -> Tensor:
    member_GK = _members(found_K).to(unit_KD)
    return member_GK @ unit_KD / member_GK.sum(1, keepdim=True)


def _members(found_K: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(found_K).T


def numbered(found_K: Tensor) -> Tensor:
    """The same communities, in the order of their first members."""
    seen: dict[int, int] = {}
    return torch.tensor([seen.setdefault(one, len(seen)) for one in found_K.tolist()], dtype=torch.int64)
