"""Data that some recipes need in addition to a run's rows: clients, their masks, their neighbours' models.

Axes: K clients.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fedpub.algorithms import FedPub
from fedpub.algorithms.communities import communities as grouped
from fedpub.algorithms.fedpub_plus.standing import FUNCTION, ROUNDS_ALONE
from fedpub.algorithms.similarity import label_similarity
from fedpub.attacks.battery import class_shares_by_embedding
from fedpub.attacks.directory import all_findings
from fedpub.attacks.replay import played
from fedpub.attacks.scores import adjusted_rand
from fedpub.core.best import Best
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, select, state_map, tree, tree_map
from fedpub.data.clients.partition import Partition
from fedpub.data.clients.statistics import label_counts
from fedpub.data.graph import Graph
from fedpub.data.synthetic import SYNTHETIC
from fedpub.engine.setup import set_up
from fedpub.engine.simulate import Federation, simulate
from fedpub.experiment import Plan
from fedpub.experiment.prepare import Prepared
from fedpub.federation.in_process import run_in_process
from fedpub.federation.wire_header import Precision
from fedpub.store.record import Row

SHADOWS = 8  # runs with other training nodes, for LiRA
REPEATS = 5  # timings, of which the median is taken


def clients(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """Label similarity of clients, edges missing between each pair, and the community of each client."""
    missing_KK = missing_between(ready.graph, ready.partition)
    counts_KC = torch.from_numpy(label_counts(ready.graph, ready.partition)).double()
    return {
        "label_similarity": label_similarity(counts_KC).tolist(),
        "missing": missing_KK.tolist(),
        "community": communities(missing_KK, ready),
    }


def missing_between(graph: Graph, partition: Partition) -> np.ndarray:
    """Edges between a node of one client and a node of another, [K, K]; zero on the diagonal."""
    owner = np.repeat(np.arange(partition.num_clients), [len(own) for own in partition.nodes])
    nodes = torch.cat(partition.nodes).numpy()
    holds_NK = sp.csr_matrix((np.ones(len(nodes)), (nodes, owner)), shape=(graph.num_nodes, partition.num_clients))
    between: np.ndarray = (holds_NK.T @ graph.adjacency() @ holds_NK).toarray()
    np.fill_diagonal(between, 0)
    return between


def communities(missing_KK: np.ndarray, ready: Prepared) -> list[int]:
    """Overlapping clients come from a community in groups of five; others are grouped by the edges between them."""
    if ready.partition.scenario == "overlapping":
        from fedpub.data.clients.partition import SAMPLES

        return [client // SAMPLES for client in range(len(missing_KK))]
    import igraph

    graph = igraph.Graph.Weighted_Adjacency(missing_KK.tolist(), mode="max")
    found: list[int] = graph.community_multilevel(weights="weight").membership
    return found


def rounded(plan: Plan, ready: Prepared, precision: Precision) -> dict[str, Any]:
    """The summary of the same run with rounded uploads."""
    return run_in_process(plan, precision, ready=ready)[0]


def masks(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """Share of the weights used by either of two clients that both use, for the most and the least similar pair."""
    *_, last = simulate(plan.algorithm, plan.context, ready.federation, plan.rounds)
    similarity_KK = last.notes["similarity"].clone().fill_diagonal_(float("nan")).numpy()
    weights = plan.algorithm.personal(last.snapshot.clients)
    active = torch.cat([leaf.flatten(1) != 0 for leaf in weights.values() if leaf.dim() >= 3], dim=1)
    found = {}
    for name, place in (("similar", np.nanargmax(similarity_KK)), ("dissimilar", np.nanargmin(similarity_KK))):
        i, j = np.unravel_index(place, similarity_KK.shape)
        found[name] = float((active[i] & active[j]).sum() / (active[i] | active[j]).sum())
    return found


def neighbours(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """Test accuracy of every client's own model, and of the model of the client to which it misses most edges."""
    algorithm, ctx = plan.algorithm, plan.context
    made = set_up(algorithm, ctx, ready.federation)
    federation = made.extend(ready.federation) if made else ready.federation
    best, kept = Best(), Tree()
    for measured in simulate(algorithm, ctx, federation, plan.rounds):
        row = Row.of(measured, 0.0)
        if best.update(row.round, *row.standing):
            kept = tree_map(torch.clone, algorithm.personal(measured.snapshot.clients))
    nearest = torch.from_numpy(missing_between(ready.graph, ready.partition).argmax(1)).to(federation.device)
    (data,) = federation.chunks(list(range(federation.num_clients)), ctx)
    own = ctx.task.evaluate(ctx.model, kept, data)["test"]
    other = ctx.task.evaluate(ctx.model, tree_map(lambda leaf: leaf[nearest], kept), data)["test"]
    return {"own": float(own.nanmean()), "neighbour": float(other.nanmean())}


def seconds(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """Time to compare all clients once, including the computation of functional embeddings if they are used."""
    algorithm, ctx = plan.algorithm, plan.context
    assert isinstance(algorithm, FedPub)
    server, up, own = _first_round(algorithm, plan, ready.federation)
    (data,) = ready.federation.chunks(list(range(ready.federation.num_clients)), ctx)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        algorithm.compared.upload(ctx, algorithm.personal(own), data)
        algorithm.compared.similarity(ctx, up, tree(server["weights"]))
        taken.append(time.perf_counter() - start)
    compared = algorithm.compared.fingerprint(up)
    parts = up.tree("weights").values() if compared is None else [compared]
    values = sum(leaf[0].numel() for leaf in parts)
    return {"seconds": statistics.median(taken), "values": values}


def _first_round(algorithm: FedPub, plan: Plan, federation: Federation) -> tuple[State, Message, State]:
    """Messages of a first round in both directions, and the clients after it."""
    ctx = plan.context
    (data,) = federation.chunks(list(range(federation.num_clients)), ctx)
    measured = next(simulate(algorithm, ctx, federation, 1))
    own = state_map(torch.clone, measured.snapshot.clients)
    message = algorithm.send(measured.snapshot.server, data.ids_K)
    own, up, _ = algorithm.client(ctx, own, message, data)
    return select({"weights": measured.snapshot.server["weights"]}, data.ids_K), up, own


def leaked(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """What functional embeddings tell of the clients' classes, and which communities they show to the server."""
    case, _ = played(plan, ready, min(plan.rounds, ROUNDS_ALONE + 1))
    (finding,) = class_shares_by_embedding(case)
    told_KD = torch.stack([tree(told[-1][1][FUNCTION])["change"][0] for _, told in sorted(case.notebook.told.items())])
    found_K = grouped(told_KD, plan.min_group)
    true = [number for number, size in enumerate(sizes_of(plan.dataset)) for _ in range(size)]
    assert case.truth is not None
    true_K = torch.tensor(true) if true else case.truth.shares.nan_to_num(0).argmax(1)
    return {"score": finding.score, "guess": finding.guess, "groups": adjusted_rand(found_K, true_K)}


def sizes_of(dataset: str) -> tuple[int, ...]:
    """Of the true communities of a built-in graph, in clients."""
    return tuple(SYNTHETIC[dataset].subgraphs) if dataset in SYNTHETIC else ()


def attacked(plan: Plan, ready: Prepared) -> dict[str, Any]:
    """What a curious coordinator learns, by every attack."""
    case, shadow = played(plan, ready, plan.rounds)
    return {"findings": all_findings(case, shadow, SHADOWS)}


LOOKS: dict[str, Callable[[Plan, Prepared], dict[str, Any]]] = {
    "attacked": attacked,
    "leaked": leaked,
    "clients": clients,
    "float16": partial(rounded, precision="float16"),
    "int8": partial(rounded, precision="int8"),
    "masks": masks,
    "neighbours": neighbours,
    "seconds": seconds,
}
