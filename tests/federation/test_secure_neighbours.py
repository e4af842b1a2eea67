"""Who is whose neighbour in a large group: the graph, its degree, and what it survives."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import networkx as nx
import pytest
from scipy.stats import hypergeom
from secure_groups import attempt_of

from fedpub.federation.secure.neighbours import COMPLETE, RARE, degree, lacking, neighbours, risks, threshold


def graph_of(count: int, attempt: int = 0) -> nx.Graph:
    keys = tuple(one.to_bytes(32, "little") for one in range(1, count + 1))
    around = neighbours(attempt_of(range(count), attempt=attempt, keys=keys))
    assert sorted(around) == list(range(count))
    made = nx.Graph((one, other) for one, others in around.items() for other in others)
    assert {one: tuple(sorted(made[one])) for one in made} == around, "each is a neighbour of its neighbours, in order"
    return made


@pytest.mark.parametrize("count", [3, 4, 10, COMPLETE])
def test_in_a_group_that_is_not_large_all_are_neighbours(count):
    assert nx.density(graph_of(count)) == 1


@pytest.mark.parametrize(("count", "k"), [(101, 56), (150, 60), (500, 106), (1000, 124)])
def test_a_large_group_has_the_smallest_degree_whose_risks_are_small(count, k):
    assert degree(count) == k
    assert max(risks(count, k)) < RARE <= min(max(risks(count, less)) for less in range(2, k, 2))


@pytest.mark.parametrize("count", [150, 500])
def test_a_large_group_stays_connected_when_a_fifth_drops_out(count):
    """And when another fifth colludes; enough neighbours stay for every secret."""
    made, k, draw = graph_of(count), degree(count), random.Random(1)
    assert {number for _, number in made.degree} == {k}
    for _ in range(30):
        gone = draw.sample(range(count), count // 5)
        left = made.subgraph(set(made) - set(gone))
        assert nx.is_connected(left)
        assert all(len(set(made[one]) - set(gone)) >= threshold(k) for one in made)
        assert nx.is_connected(left.subgraph(draw.sample(sorted(left), count - 2 * (count // 5))))


def test_the_order_on_the_circle_is_another_in_every_attempt():
    first, second = graph_of(150), graph_of(150, attempt=1)
    common = sum(second.has_edge(*edge) for edge in first.edges)
    assert common / first.number_of_edges() == pytest.approx(60 / 149, abs=0.05)
    assert set(graph_of(150).edges) == set(first.edges)


def test_risks_by_hand():
    """Six members, two neighbours each, so two shares are needed; two (0.2 · 6, rounded up) collude, two drop out."""
    read, cut, lost = risks(6, 2)
    assert read == Fraction(6 * 1, math.comb(5, 2))  # both neighbours among the two of five who collude
    assert cut == Fraction(6 * 4, 6)  # one place of six, and four of six are missing
    # One missing neighbour is too many: not both among the three of five who stay.
    assert lost == 6 * (1 - Fraction(3, math.comb(5, 2)))


@pytest.mark.parametrize(("count", "k"), [(150, 60), (500, 100)])
def test_risks_are_tails_of_the_hypergeometric_distribution(count, k):
    fifth, read, cut, lost = count // 5, *map(float, risks(count, k))
    assert read == pytest.approx(count * hypergeom.sf(k // 2, count - 1, fifth, k), abs=1e-25)
    assert cut == pytest.approx(count * hypergeom.pmf(k // 2, count, 2 * fifth, k // 2))
    assert lost == pytest.approx(count * hypergeom.sf(k // 2 - 1, count - 1, fifth, k))


@pytest.mark.parametrize(("holders", "needed"), [(2, 2), (3, 2), (4, 3), (5, 3), (60, 31)])
def test_the_threshold_is_more_than_half(holders, needed):
    assert threshold(holders) == needed
    assert 2 * needed > holders >= 2 * needed - 2


def test_who_is_left_must_be_enough():
    complete, large = attempt_of(range(10)), attempt_of(range(12))
    everyone, six = [*range(1, 10)], [1, 2, 3, 9, 10, 11]  # the neighbours of number 0
    assert lacking(complete, 3, range(6), everyone) is None
    assert lacking(complete, 3, range(5), everyone) == "5 of 10 members are left, and 6 are needed"
    assert lacking(complete, 7, range(6), everyone) == "6 of 10 members are left, and 7 are needed"
    # Four of six neighbours are the threshold; the shares of the other two may be out, and three more must remain.
    assert lacking(large, 4, range(8), six) == "3 of 6 neighbours of a member are left, and 5 are needed"
    assert lacking(large, 4, range(11), six) is None
    assert lacking(large, 5, range(11), six) == "5 of 6 neighbours of a member are left, and 6 are needed"
    assert (
        lacking(large, 3, [0, *range(4, 9), *six[:3]], six)
        == "3 of 6 neighbours of a member are left, and 4 are needed"
    )
