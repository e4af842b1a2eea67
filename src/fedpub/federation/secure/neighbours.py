"""Who shares masks and secrets with whom in a group, and how many must be there at every step.

In a group of at most COMPLETE members everyone is everyone else's neighbour. In a larger one the members stand in a
circle in random order, and the neighbours of each are the same number to its left and to its right (a Harary graph):
the work of a member then hardly grows with the group. docs/secure-aggregation.md has the bounds and their proofs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
from scipy.stats import hypergeom

from fedpub.federation.secure.attempt import Attempt

COMPLETE = 100
COLLUDING, DROPPING = 0.2, 0.2  # shares of a group, for which the number of neighbours is chosen
RARE = 2.0**-40

Graph = dict[int, tuple[int, ...]]
"""Every member's neighbours, ascending."""


def neighbours(attempt: Attempt) -> Graph:
    """The same for all who agree on the attempt: the order on the circle is by a hash of its context."""
    members = attempt.members
    k = degree(len(members))
    if k == len(members) - 1:
        return {one: tuple(other for other in members if other != one) for one in members}
    circle = sorted(members, key=lambda one: hashlib.sha256(attempt.context + one.to_bytes(4, "little")).digest())
    steps = [step for step in range(-k // 2, k // 2 + 1) if step]
    return {
        one: tuple(sorted(circle[(place + step) % len(circle)] for step in steps)) for place, one in enumerate(circle)
    }


def degree(count: int) -> int:
    """How many neighbours each has in a group of so many."""
    if count <= COMPLETE:
        return count - 1
    for k in range(2, count - 1, 2):
        if max(risks(count, k)) < RARE:
            return k
    return count - 1


def risks(count: int, k: int) -> tuple[float, float, float]:
    """Bounds on the probabilities that some member has as many colluding neighbours as the threshold, that the honest
    members who stay are not connected, and that some secret cannot be recovered. Sums over all members (union bound).
    """
    colluding, dropping = int(np.ceil(COLLUDING * count)), int(np.ceil(DROPPING * count))
    needed = threshold(k)
    read = count * hypergeom.sf(needed - 1, count - 1, colluding, k)
    # A circle of k / 2 neighbours on either side falls apart only where k / 2 in a row are missing, at two places.
    cut = count * hypergeom.pmf(k // 2, count, colluding + dropping, k // 2)
    lost = count * hypergeom.sf(k - needed, count - 1, dropping, k)
    return float(read), float(cut), float(lost)


def threshold(holders: int) -> int:
    """How many shares give a secret: more than half, so that no two halves learn one secret each."""
    return holders // 2 + 1


def lacking(attempt: Attempt, least: int, present: Collection[int], around: Collection[int]) -> str | None:
    """Why those who are present are too few for a member with these neighbours; None if they are enough.

    More than half of all, so that there are no two such lists without a common member. In a large group also so many
    neighbours that, of those whose shares can be out for another list, a whole small group remains.
    """
    count = len(attempt.members)
    wanted = max(least, count // 2 + 1)
    if len(present) < wanted:
        return f"{len(present)} of {count} members are left, and {wanted} are needed"
    if len(around) < count - 1:
        near, wanted = len(set(around) & set(present)), len(around) - threshold(len(around)) + least - 1
        if near < wanted:
            return f"{near} of {len(around)} neighbours of a member are left, and {wanted} are needed"
    return None
