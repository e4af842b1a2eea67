"""Proxy graphs have the structure they claim; similarities and attention by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from fedpub.algorithms.similarity import attention, cosine, label_similarity, nearest
from fedpub.core.sparse import SparseRows
from fedpub.core.tree import flatten
from fedpub.data.clients import stack as clients_file
from fedpub.data.clients.stack import stack
from fedpub.models.proxy import P_OUT, ProxyKind, feature_proxy, proxy_structure, random_proxy
from small import NODES, small_clients, small_graph, subgraphs

CPU = torch.device("cpu")
SAME_BLOCK = np.arange(500)[:, None] // 100 == np.arange(500) // 100
ABOVE = np.triu(np.ones((500, 500), dtype=bool), k=1)
INSIDE, BETWEEN = SAME_BLOCK & ABOVE, ~SAME_BLOCK & ABOVE


def doubles(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def edges(kind: ProxyKind, seed: int = 0, p_out: float = P_OUT) -> np.ndarray:
    """Who is joined to whom; the mean over neighbours has no loops of its own."""
    return proxy_structure(kind, seed, "mean", p_out) > 0


def assert_density(joined: np.ndarray, among: np.ndarray, p: float) -> None:
    share = joined[among].mean()
    assert abs(share - p) < 4.5 * (p * (1 - p) / among.sum()) ** 0.5


# Proxy graphs


@pytest.mark.parametrize("seed", [0, 1])
def test_sbm_has_five_blocks(seed: int) -> None:
    joined = edges("sbm", seed)
    assert joined.shape == (500, 500)
    assert np.array_equal(joined, joined.T)
    assert not joined.diagonal().any()
    assert_density(joined, INSIDE, 0.1)
    assert_density(joined, BETWEEN, 0.01)


def test_er_has_as_many_edges_and_no_blocks() -> None:
    joined, blocks = edges("er"), edges("sbm")
    assert joined.shape == (500, 500)
    assert_density(joined, INSIDE, 0.028)  # (0.1 + 4 · 0.01) / 5
    assert_density(joined, BETWEEN, 0.028)
    assert abs(joined[ABOVE].sum() - blocks[ABOVE].sum()) < 0.08 * blocks[ABOVE].sum()


def test_the_published_code_joins_no_blocks() -> None:
    joined = edges("sbm", p_out=0.0)
    assert_density(joined, INSIDE, 0.1)
    assert not joined[BETWEEN].any()


def test_one_is_a_single_node() -> None:
    assert proxy_structure("one", 0, "symmetric", P_OUT).tolist() == [[1]]
    assert proxy_structure("one", 0, "mean", P_OUT).tolist() == [[0]]
    proxy = random_proxy("one", 0, 7, "symmetric", P_OUT, CPU, torch.float64)
    assert proxy.x.shape == (1, 7)
    assert torch.equal(proxy.propagated, proxy.x)


@pytest.mark.parametrize("kind", ["sbm", "er", "one"])
def test_a_proxy_is_made_from_the_seed_alone(kind: ProxyKind) -> None:
    first = random_proxy(kind, 0, 7, "symmetric", P_OUT, CPU, torch.float64)
    again = random_proxy(kind, 0, 7, "symmetric", P_OUT, CPU, torch.float64)
    other = random_proxy(kind, 1, 7, "symmetric", P_OUT, CPU, torch.float64)
    assert again is not first
    assert torch.equal(again.propagated, first.propagated)
    assert not torch.equal(other.x, first.x)
    if kind != "one":
        assert not torch.equal(other.mean_propagation_P, first.mean_propagation_P), "other edges too"


def test_proxy_features_are_standard_normal() -> None:
    x = random_proxy("sbm", 0, 100, "symmetric", P_OUT, CPU, torch.float64).x
    assert x.shape == (500, 100)
    n = x.numel()
    assert abs(float(x.mean())) < 4.5 * n**-0.5
    assert abs(float(x.var()) - 1) < 4.5 * (2 / n) ** 0.5
    assert abs(float((x.abs() < 1).double().mean()) - 0.6827) < 4.5 * (0.6827 * 0.3173 / n) ** 0.5


def test_propagation_on_the_proxy() -> None:
    """Both derived tensors against the matrix they stand for."""
    a = torch.from_numpy(proxy_structure("sbm", 3, "symmetric", P_OUT))
    degree = torch.from_numpy(edges("sbm", 3).sum(1) + 1).double()
    u, v = (int(end[0]) for end in np.nonzero(edges("sbm", 3)))
    close(a[u, v], (degree[u] * degree[v]) ** -0.5)
    close(a.diagonal(), 1 / degree)
    proxy = random_proxy("sbm", 3, 4, "symmetric", P_OUT, CPU, torch.float64)
    close(proxy.propagated[0], (a[0].unsqueeze(1) * proxy.x).sum(0))
    close(proxy.mean_propagation_P[7], a[:, 7].sum() / 500)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_feature_proxy_draws_a_clients_own_rows(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_file, "SPARSE_BELOW", {torch.float64: 2.0 if layout == "sparse" else 0.0})
    data = small_clients()
    assert isinstance(data.x, SparseRows) == (layout == "sparse")
    proxy = feature_proxy(0, data, proxy_structure("sbm", 0, "symmetric", P_OUT))
    assert proxy.x.shape == (3, 500, 5)
    for client, own in enumerate(NODES):
        rows = {tuple(row) for row in small_graph().x[list(own)].tolist()}
        assert {tuple(row) for row in proxy.x[client].tolist()} == rows, "all of its rows and no others"
    a = torch.from_numpy(proxy_structure("sbm", 0, "symmetric", P_OUT))
    close(proxy.propagated[1], a @ proxy.x[1])


def test_feature_proxy_does_not_depend_on_who_is_beside_a_client() -> None:
    together = feature_proxy(0, small_clients(2, 0), proxy_structure("sbm", 0, "symmetric", P_OUT))
    alone = feature_proxy(0, small_clients(2), proxy_structure("sbm", 0, "symmetric", P_OUT))
    assert torch.equal(together.x[0], alone.x[0])
    other = feature_proxy(1, small_clients(2), proxy_structure("sbm", 1, "symmetric", P_OUT))
    assert not torch.equal(other.x, alone.x)


def test_every_client_draws_for_itself() -> None:
    """Two clients with the same nodes: as much of each node, but not the same one at every place."""
    own = subgraphs()[1]
    x_KPF = feature_proxy(
        0, stack([own, replace(own, id=2)], 3, dtype=torch.float64), proxy_structure("sbm", 0, "symmetric", P_OUT)
    ).x
    alike = float((x_KPF[0] == x_KPF[1]).all(1).double().mean())
    assert abs(alike - 0.25) < 4.5 * (0.25 * 0.75 / 500) ** 0.5, "one place in four, as of four nodes"


# Similarities


def test_cosine_by_hand() -> None:
    h = doubles([[3, 4], [4, 3], [-6, -8], [0, 0]])
    close(cosine(h), doubles([[1, 0.96, -1, 0], [0.96, 1, -0.96, 0], [-1, -0.96, 1, 0], [0, 0, 0, 0]]))


def test_parameter_similarity_is_over_all_leaves() -> None:
    """(1, 0, 0, 2, 2) and (0, 2, 0, 1, 2): 6 / (3 · 3)."""
    w = {"matrix": doubles([[[1], [0], [0]], [[0], [2], [0]]]), "bias": doubles([[2, 2], [1, 2]])}
    close(cosine(flatten(w)), doubles([[1, 2 / 3], [2 / 3, 1]]))


def test_label_similarity_equals_scipy() -> None:
    counts = doubles([[3, 1, 0], [1, 1, 2], [0, 0, 5], [30, 10, 0], [1, 0, 0]])
    found = label_similarity(counts)
    for i, j in np.ndindex(5, 5):
        expected = 1 - np.nan_to_num(jensenshannon(counts[i], counts[j], base=2))
        assert float(found[i, j]) == pytest.approx(expected, abs=1e-7)
    assert float(found[0, 3]) == pytest.approx(1, abs=1e-7), "the same distribution, ten times as many nodes"
    assert float(found[2, 4]) == pytest.approx(0, abs=1e-12), "nothing in common"


def test_a_client_without_labels_is_no_nan() -> None:
    found = label_similarity(doubles([[0, 0], [1, 3]]))
    assert bool(found.isfinite().all())
    assert float(found[0, 0]) == 1


# Attention

LN3 = math.log(3)


def test_attention_by_hand() -> None:
    """exp(ln 3 · 1) = 3 against exp(0) = 1."""
    close(attention(doubles([[1, 0], [0, 1]]), LN3), doubles([[0.75, 0.25], [0.25, 0.75]]))
    # twice tau squares the odds; half the similarity takes their root
    close(attention(doubles([[1, 0], [0.5, 1]]), 2 * LN3), doubles([[0.9, 0.1], [0.25, 0.75]]))


def test_attention_of_three_by_hand() -> None:
    s = doubles([[1, 0, -1], [0, 1, 1], [-1, 1, 1]])
    close(
        attention(s, LN3),
        doubles([[9 / 13, 3 / 13, 1 / 13], [1 / 7, 3 / 7, 3 / 7], [1 / 19, 9 / 19, 9 / 19]]),
    )


def test_without_tau_everybody_counts_alike() -> None:
    close(attention(doubles([[1, -1], [0.3, 1]]), 0.0), doubles([[0.5, 0.5], [0.5, 0.5]]))


def test_a_threshold_leaves_only_the_near_and_oneself() -> None:
    """0.5 is near enough, 0.49 is not; client 2 is near nobody; client 3's embedding was zero, like its S(3, 3)."""
    s = doubles([[1, 0.5, 0.49, 0], [0.5, 1, -1, 0], [0.49, -1, 1, 0], [0, 0, 0, 0]])
    alpha = attention(s, 2 * LN3, 0.5)
    close(alpha, doubles([[0.75, 0.25, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
    assert alpha[0, 2] == 0, "exactly"


def test_in_every_block_of_rows_a_client_is_its_own_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients with the same embedding, two at a time, and one neighbour each: oneself."""
    monkeypatch.setattr("fedpub.algorithms.similarity.NEAREST_BLOCK", 2)
    alpha, left_out = nearest(doubles([[1, 2]] * 4), LN3, 1)
    close(alpha.to_dense(), torch.eye(4, dtype=torch.float64))
    close(left_out, doubles([0.75] * 4))
