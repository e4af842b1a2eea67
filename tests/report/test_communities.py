"""Communities, the Rand index and effective contributors, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedpub.data.synthetic import SYNTHETIC, communities_graph
from fedpub.report.communities import contributors, linked, numbered, rand_index, silhouette, true_communities


def blocks(*sizes: int, inside: float = 0.9, between: float = 0.1) -> np.ndarray:
    own = np.repeat(range(len(sizes)), sizes)
    similarity = np.where(own[:, None] == own, inside, between)
    np.fill_diagonal(similarity, 1)
    return similarity


def test_blocks_are_found():
    assert linked(blocks(2, 3)) == [0, 0, 1, 1, 1]
    shuffled = [3, 0, 4, 1, 2]
    assert linked(blocks(2, 3)[np.ix_(shuffled, shuffled)]) == [0, 1, 0, 1, 0]


def test_one_similar_pair_does_not_join_two_groups():
    """As connected components they would be one."""
    bridged = blocks(3, 3)
    bridged[2, 3] = bridged[3, 2] = 0.9
    assert linked(bridged) == [0, 0, 0, 1, 1, 1]


def test_large_communities_are_found():
    """The similarity inside is below the mean of all pairs plus one deviation: 0.58 + 0.39."""
    similarity = blocks(5, 15)
    pairs = similarity[np.triu_indices(20, 1)]
    assert pairs.mean() + pairs.std() > 0.9
    assert linked(similarity) == [0] * 5 + [1] * 15


def test_communities_inside_of_a_group_that_is_alike_are_found():
    """Three blocks of which two are near each other: to divide once is not enough."""
    nested = blocks(5, 5, 5, inside=0.99, between=0.7)
    nested[10:, :10] = nested[:10, 10:] = 0.2
    assert linked(nested) == [0] * 5 + [1] * 5 + [2] * 5


def test_there_are_no_communities_in_noise():
    directions = np.random.default_rng(0).normal(size=(20, 1000))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert linked(directions @ directions.T) == [0] * 20
    assert linked(np.eye(4)) == [0] * 4
    assert linked(np.ones((4, 4))) == [0] * 4


def test_a_client_without_similarities_has_no_community():
    similarity = blocks(2, 3)
    similarity[0] = similarity[:, 0] = np.nan
    assert linked(similarity) == [-1, 0, 1, 1, 1]
    assert linked(np.full((3, 3), np.nan)) == [-1, -1, -1]
    similarity = blocks(3, 3)
    similarity[0, 4] = np.nan  # a part of them will not do
    assert linked(similarity) == [-1, 0, 0, 1, 1, 1]


def test_silhouette():
    """Distances 1, 4 and 3; groups {0, 1} and {2}: (4 − 1) / 4, (3 − 1) / 3, and 0 for the client alone."""
    sums = np.array([[1, np.inf, 4], [1, np.inf, 3], [7, np.inf, 0]])
    assert silhouette(np.array([0, 0, 2]), sums, np.array([2, 1, 1])) == pytest.approx((3 / 4 + 2 / 3) / 3)


def test_communities_are_numbered_by_their_first_members():
    assert numbered([7, 2, -1, 7, 0]) == [0, 1, -1, 0, 2]


def test_rand_index():
    # Pairs together in both: 2; in found: 3; in true: 6; of 15. By chance 3 · 6 / 15 = 1.2; (2 − 1.2) / (4.5 − 1.2).
    assert rand_index([0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1]) == pytest.approx(0.8 / 3.3)
    # 1 of 6 pairs in both, 2 and 3 in each: as many as by chance.
    assert rand_index([0, 0, 1, 1], [0, 0, 0, 1]) == 0
    assert rand_index([0, 1, 0, 1], [0, 0, 1, 1]) == pytest.approx(-0.5)


def test_rand_index_of_the_same_communities_is_one():
    assert rand_index([4, 4, 0, 0, 2], [0, 0, 1, 1, 2]) == 1
    assert rand_index([0, 0, 0], [0, 0, 0]) == 1
    assert rand_index([0, 1, 2], [0, 1, 2]) == 1


def test_rand_index_is_over_the_clients_that_have_a_community():
    assert rand_index([0, 0, 1, 1, -1], [0, 0, 1, 1, 1]) == 1
    assert rand_index([-1, -1, 3], [0, 0, 1]) is None


def test_effective_contributors():
    alpha = np.array([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0.7, 0.1, 0.1, 0.1]])
    np.testing.assert_allclose(contributors(alpha), [1, 4, 2, 1 / 0.52])
    absent = np.array([[0.5, np.nan, 0.5], [np.nan] * 3, [0, np.nan, 1]])
    np.testing.assert_allclose(contributors(absent), [2, np.nan, 1])


@pytest.mark.parametrize("name", SYNTHETIC)
def test_true_communities_are_those_in_the_names_of_the_clients(name):
    names = communities_graph(name, SYNTHETIC[name]).client_names
    true = true_communities(name, "natural", len(names))
    assert true is not None
    assert [one.partition("-")[0] for one in names] == [f"community{number}" for number in true]


def test_true_communities_are_known_of_natural_clients_only():
    assert true_communities("communities", "disjoint", 20) is None
    assert true_communities("communities", "natural", 19) is None
    assert true_communities("cora", "natural", 20) is None
