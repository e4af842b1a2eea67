"""Graphs that need no download: communities of subgraphs, generated from a seed.

Every subgraph is a natural client. Subgraphs of one community share their label distribution and the features of each
class; another community may contradict them, so that one averaged model fits no client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedpub.core.rng import numpy_stream
from fedpub.data.graph import Graph, undirected

TOPIC_SPREAD = 0.05  # small: a topic has few words


@dataclass(frozen=True)
class Communities:
    """A stochastic block model over subgraphs that belong to communities."""

    subgraphs: tuple[int, ...]  # number of subgraphs in each community
    nodes: int  # per subgraph
    p_subgraph: float  # probability of an edge inside a subgraph,
    p_community: float  # between two subgraphs of one community,
    p_between: float  # between communities
    classes: int
    features: int
    purity: float  # share of a community's nodes that have its main label
    words: int  # drawn per node: its features are their frequencies
    noise: float  # share of words drawn uniformly
    shift: float  # share of a class's words that this community takes from another class
    homophily: float = 0.0  # share of the edges between different labels that are dropped


def communities_graph(name: str, spec: Communities, seed: int = 0) -> Graph:
    """The graph of a specification; the same seed gives the same graph."""
    rng = numpy_stream(seed, "communities", name)
    community_S = np.repeat(np.arange(len(spec.subgraphs)), spec.subgraphs)  # of each subgraph
    client_N = np.repeat(np.arange(len(community_S)), spec.nodes)
    community_N = community_S[client_N]
    # A community's main label, else any label, uniformly.
    main = rng.random(len(client_N)) < spec.purity
    y_N = np.where(main, community_N % spec.classes, rng.integers(spec.classes, size=len(client_N)))

    # A class is a topic: a distribution over words. In another community it may have another class's topic.
    topic_CF = rng.dirichlet(np.full(spec.features, TOPIC_SPREAD), size=spec.classes)
    own_MCF = np.stack([rng.permutation(topic_CF) for _ in spec.subgraphs])
    word_MCF = (1 - spec.noise) * ((1 - spec.shift) * topic_CF + spec.shift * own_MCF) + spec.noise / spec.features
    count_NF = np.stack([rng.multinomial(spec.words, p) for p in word_MCF[community_N, y_N]])
    x_NF = count_NF / spec.words

    u, v = np.triu_indices(len(client_N), k=1)
    p = np.where(community_N[u] == community_N[v], spec.p_community, spec.p_between)
    p = np.where(client_N[u] == client_N[v], spec.p_subgraph, p)
    p = np.where(y_N[u] == y_N[v], p, p * (1 - spec.homophily))
    kept = rng.random(len(p)) < p
    edges = torch.from_numpy(np.stack([u[kept], v[kept]]))
    return Graph(
        x=torch.from_numpy(x_NF.astype(np.float32)),
        y=torch.from_numpy(y_N.astype(np.int64)),
        edges=undirected(edges, len(client_N)),
        classes=tuple(str(label) for label in range(spec.classes)),
        name=name,
        client=torch.from_numpy(client_N.astype(np.int64)),
        client_names=tuple(f"community{m}-{i}" for m, i in _numbered(community_S)),
    )


def _numbered(community_S: np.ndarray) -> list[tuple[int, int]]:
    seen: dict[int, int] = {}
    pairs = []
    for m in community_S.tolist():
        pairs.append((m, seen.get(m, 0)))
        seen[m] = seen.get(m, 0) + 1
    return pairs


SYNTHETIC: dict[str, Communities] = {
    # The built-in default: four communities of five clients, few labels each. Chosen among several so that the methods
    # differ and an averaged model fails: a demonstration, not evidence for a method.
    "communities": Communities(
        subgraphs=(5, 5, 5, 5),
        nodes=100,
        p_subgraph=0.06,
        p_community=0.004,
        p_between=0.0005,
        classes=5,
        features=500,
        purity=0.4,
        words=15,
        noise=0.5,
        shift=1.0,
        homophily=0.7,
    ),
    # The paper's figure on knowledge collapse: edges with probability 0.5 inside a community, 0.1 outside, and labels
    # that differ. Features and homophily are ours, chosen so that the small communities lose in an average; with that
    # homophily, 5/6 and 1/4 between equal labels are 0.5 and 0.1 over all pairs.
    "communities-5-5-40": Communities(
        subgraphs=(5, 5, 40),
        nodes=30,
        p_subgraph=5 / 6,
        p_community=5 / 6,
        p_between=1 / 4,
        classes=3,
        features=100,
        purity=0.5,
        words=10,
        noise=0.5,
        shift=1.0,
        homophily=0.8,
    ),
    # The paper's figure on similarity measures: 0.7 inside a community, 0.01 outside.
    "communities-5-15": Communities(
        subgraphs=(5, 15),
        nodes=30,
        p_subgraph=0.7,
        p_community=0.7,
        p_between=0.01,
        classes=2,
        features=100,
        purity=0.8,
        words=10,
        noise=0.5,
        shift=0.5,
    ),
}


def drawn(number: int) -> Communities:
    """A specification drawn at random from a seed. One has a client per community, another is a single community."""
    rng = numpy_stream(number, "drawn communities")
    sizes = tuple(int(size) for size in rng.integers(3, 11, size=rng.integers(2, 9)))
    if number == ONE_EACH:
        sizes = (1,) * len(sizes)
    if number == ALL_IN_ONE:
        sizes = (sum(sizes),)
    return Communities(
        subgraphs=sizes,
        nodes=int(rng.integers(40, 121)),
        p_subgraph=float(rng.uniform(0.04, 0.15)),
        p_community=float(rng.uniform(0.001, 0.006)),
        p_between=float(rng.uniform(0.0002, 0.001)),
        classes=int(rng.integers(3, 7)),
        features=int(rng.choice([100, 200, 300, 500])),
        purity=float(rng.uniform(0.2, 0.8)),
        words=int(rng.integers(8, 21)),
        noise=float(rng.uniform(0.3, 0.6)),
        shift=float(rng.uniform(0, 1)),
        homophily=float(rng.uniform(0.4, 0.8)),
    )


ONE_EACH, ALL_IN_ONE = 9, 10
DRAWN = tuple(f"communities-drawn-{number}" for number in range(1, 11))  # not chosen: whatever the seeds gave
SYNTHETIC |= {name: drawn(number) for number, name in enumerate(DRAWN, 1)}
