"""Communities of clients: found in similarities, compared with the true ones; and how many clients an average is of.

A community is a number per client; `NOBODY` stands for a client that has none. Axes: K clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from fedpub.data.synthetic import SYNTHETIC

NOBODY = -1
CLEAR = 0.1  # least mean silhouette of communities; unrelated directions in hundreds of dimensions stay below it


def linked(similarity_KK: np.ndarray) -> list[int]:
    """Communities by average linkage: the two groups with the highest mean similarity become one, again and again.

    Of all stages the one with the best mean silhouette is taken, or one community if none is clear. A limit on the
    similarity would not do: the mean of all pairs plus one deviation, say, is above every similarity if there are two
    large communities, and no two clients would be joined. A client whose similarities are NaN has no community.
    """
    itself_K = np.isfinite(similarity_KK.diagonal())
    known_K = itself_K & np.isfinite(similarity_KK[:, itself_K]).all(1)
    found_K = np.full(len(similarity_KK), NOBODY)
    own_KK = similarity_KK[np.ix_(known_K, known_K)]
    distance_KK = np.maximum(1 - (own_KK + own_KK.T) / 2, 0)  # rounding: 1 − 1.0000001
    np.fill_diagonal(distance_KK, 0)
    found_K[known_K] = _clearest(distance_KK)
    return numbered(found_K.tolist())


def _clearest(distance_KK: np.ndarray) -> np.ndarray:
    """The best stage of the linkage; a group has the number of one of its members."""
    count = len(distance_KK)
    best, found_K = CLEAR, np.zeros(count, dtype=int)
    if count < 3:
        return found_K  # nobody to compare a pair with
    group_K, sums_KK, size_K = np.arange(count), distance_KK.copy(), np.ones(count)
    column = list(range(count))  # of every group that linkage has numbered
    for first, second, *_ in linkage(squareform(distance_KK, checks=False), "average")[:-1]:
        kept, gone = column[int(first)], column[int(second)]
        column.append(kept)
        group_K[group_K == gone] = kept
        sums_KK[:, kept] += sums_KK[:, gone]
        sums_KK[:, gone] = np.inf  # no group any more
        size_K[kept] += size_K[gone]
        clear = silhouette(group_K, sums_KK, size_K)
        if clear > best:
            best, found_K = clear, group_K.copy()
    return found_K


def silhouette(group_K: np.ndarray, sums_KK: np.ndarray, size_K: np.ndarray) -> float:
    """Mean over clients of how much nearer their own group is than the next one, from −1 to 1; 0 for a client alone.

    `sums_KK` has the sum of every client's distances to the members of every group, `size_K` their numbers.
    """
    everyone = np.arange(len(group_K))
    mean_KK = sums_KK / size_K
    mean_KK[everyone, group_K] = np.inf
    next_K = mean_KK.min(1)
    own_K = sums_KK[everyone, group_K] / np.maximum(size_K[group_K] - 1, 1)
    larger_K = np.maximum(own_K, next_K)
    nearer_K = np.divide(next_K - own_K, larger_K, out=np.zeros(len(group_K)), where=larger_K > 0)
    return float(np.where(size_K[group_K] > 1, nearer_K, 0).mean())


def numbered(found: Sequence[float]) -> list[int]:
    """The same communities, numbered from zero in the order of their first members."""
    seen: dict[float, int] = {}
    return [NOBODY if one < 0 else seen.setdefault(one, len(seen)) for one in found]


def true_communities(dataset: str, scenario: str, clients: int) -> list[int] | None:
    """The community that a generated graph gave each client, where that is known."""
    if dataset not in SYNTHETIC or scenario != "natural":
        return None
    true = [community for community, size in enumerate(SYNTHETIC[dataset].subgraphs) for _ in range(size)]
    return true if len(true) == clients else None


def rand_index(found: Sequence[int], true: Sequence[int]) -> float | None:
    """Adjusted Rand index (Hubert and Arabie, 1985): 1 if both divide the clients alike, about 0 by chance.

    Clients without a community do not count; None if fewer than two are left.
    """
    pairs = np.array([pair for pair in zip(found, true, strict=True) if NOBODY not in pair])
    if len(pairs) < 2:
        return None
    table = np.zeros(pairs.max(0) + 1)
    np.add.at(table, tuple(pairs.T), 1)
    together, in_found, in_true = (_pairs(counts) for counts in (table, table.sum(1), table.sum(0)))
    by_chance, most = in_found * in_true / _pairs(table.sum()), (in_found + in_true) / 2
    return 1.0 if most == by_chance else float((together - by_chance) / (most - by_chance))


def _pairs(counts: np.ndarray) -> float:
    return float((counts * (counts - 1) / 2).sum())


def contributors(alpha_KK: np.ndarray) -> np.ndarray:
    """Effective number of clients in every client's average, 1 / Σ_j α_ij²: n if n clients weigh the same."""
    squares_K = np.nansum(alpha_KK**2, axis=1)
    return 1 / np.where(squares_K > 0, squares_K, np.nan)
