"""Whether two nodes are linked: a score for every pair, binary cross entropy, ROC-AUC.

    z = encoder(G)      s(u, v) = z_u · z_v + c, or with `mlp`      s(u, v) = a · ReLU(W (z_u ⊙ z_v) + b) + c

The offset c is learnt: without it the products of non-edges would have to be negative. A step takes every training edge
and the same number of random non-edges. Messages pass along training edges only.

Axes: K clients, N nodes, E training edges, P evaluated pairs, R reported clients, H the encoder's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpub.core.segments import pair_product
from fedpub.core.sparse import to_scipy
from fedpub.core.tree import Tree
from fedpub.data.clients.links import LinkSplit, StackedLinks, links_of, pair_number, split_links
from fedpub.data.clients.split import Ratios
from fedpub.data.clients.stack import Clients, Report
from fedpub.data.clients.subgraph import Propagation, Subgraph
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.models.base import Model, glorot
from fedpub.tasks.base import Step, Task, node_ids
from fedpub.tasks.metrics import Metric, Metrics, column, ranking

Decoder = Literal["dot", "mlp"]
LINK_RATIOS: Ratios = (0.85, 0.05, 0.10)


@dataclass(frozen=True)
class LinkPrediction(Task):
    hidden: int = 128
    """The encoder's outputs."""
    decoder: Decoder = "dot"
    metric: Metric = "roc-auc"

    metric_choices: ClassVar[tuple[Metric, ...]] = ("roc-auc", "average-precision")
    metrics: ClassVar[tuple[str, ...]] = ("val", "val_loss", "test", "test_ap", "test_auc", "val_ap", "val_auc")
    further: ClassVar[Mapping[str, str]] = {"test_ap": "average precision", "test_auc": "ROC-AUC"}
    baseline: ClassVar[str] = "chance"
    baseline_title: ClassVar[str] = "chance"
    settings: ClassVar[tuple[str, ...]] = ("decoder",)
    # A step takes all edges at once, the paper's a batch of them: an epoch of the paper is many steps.
    rounds_and_epochs: ClassVar[tuple[int, int] | None] = (100, 20)
    ratios: ClassVar[Ratios | None] = LINK_RATIOS
    published: ClassVar[tuple[str, ...]] = ("link_prediction",)
    predicts: ClassVar[str] = "links"
    of_pairs: ClassVar[bool] = True

    def divide(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> list[Subgraph]:
        chosen = split_links(graph.edges, graph.num_nodes, nodes, seed, ratios)
        made = [_subgraph(graph, own, chosen, client, kind, {client: own}) for client, own in enumerate(nodes)]
        _check_edges(graph, made, ratios)
        return made

    def undivided(
        self, graph: Graph, nodes: tuple[Tensor, ...], seed: int, ratios: Ratios, kind: Propagation
    ) -> tuple[Subgraph, Report]:
        chosen = split_links(graph.edges, graph.num_nodes, nodes, seed, ratios)
        everything = _subgraph(graph, torch.arange(graph.num_nodes), chosen, 0, kind, dict(enumerate(nodes)))
        _check_edges(graph, [everything], ratios)
        return everything, Report.of(nodes)

    def was_split_for(self, own: Subgraph) -> bool:
        return own.links is not None

    def outputs(self, num_classes: int) -> int:
        return self.hidden

    def init(self, stream: torch.Generator) -> Tree:
        offset = {"decoder.bias": torch.zeros(1, dtype=torch.float64)}
        if self.decoder == "dot":
            return offset
        return offset | {
            "decoder1.weight": glorot(self.hidden, self.hidden, stream),
            "decoder1.bias": torch.zeros(self.hidden, dtype=torch.float64),
            "decoder2.weight": glorot(self.hidden, 1, stream),
        }

    def loss(self, model: Model, w: Tree, data: Clients, step: Step) -> Tensor:
        links, owner_E = _links(data), _links(data).train_owner_E
        z_NH = model.apply(w, data, step.dropout)
        negative = links.negatives.draw(step.seed, data.ids_K, owner_E, links.train_row_E, step.round, step.epoch)
        softplus = torch.nn.functional.softplus
        missed_E = softplus(-self.score(w, z_NH, links.train, owner_E))
        taken_E = softplus(self.score(w, z_NH, negative, owner_E))
        # A client all of whose pairs are edges has no negatives.
        has_E = (links.negatives.count_K > 0)[owner_E].to(z_NH.dtype)
        each_E = (missed_E + has_E * taken_E) / (1 + has_E)
        total_K = z_NH.new_zeros(data.num_clients).index_add(0, owner_E, each_E)
        return total_K / data.num_train_K.clamp(min=1)

    def score(self, w: Tree, z_NH: Tensor, pairs: Tensor, owner_P: Tensor) -> Tensor:
        """The logit that a pair is linked, [P]; `owner_P` is the client whose decoder is used."""
        offset_P = w["decoder.bias"].index_select(0, owner_P).squeeze(1)
        if self.decoder == "dot":
            return pair_product(z_NH, pairs) + offset_P
        # index_select has a gradient that adds rows; plain indexing sorts them first.
        product_PH = z_NH.index_select(0, pairs[0]) * z_NH.index_select(0, pairs[1])
        hidden_PH = _per_client(product_PH, w["decoder1.weight"], owner_P)
        hidden_PH = torch.relu(hidden_PH + w["decoder1.bias"].index_select(0, owner_P))
        return (hidden_PH * w["decoder2.weight"].squeeze(2).index_select(0, owner_P)).sum(1) + offset_P

    def num_val(self, data: Clients) -> Tensor:
        return torch.bincount(_links(data).val.owner, minlength=data.num_clients)

    @torch.no_grad()
    def evaluate(self, model: Model, w: Tree, data: Clients) -> dict[str, Tensor]:
        links, z_NH = _links(data), model.apply(w, data)
        clients = data.report.num_clients
        found: dict[str, Tensor] = {}
        for name, judged in (("val", links.val), ("test", links.test)):
            score_P = self.score(w, z_NH, judged.pairs, data.segments.owner_N[judged.pairs[0]])
            auc_R, precision_R = ranking(score_P, judged.true, judged.owner, clients)
            by_name: Metrics = {"roc-auc": auc_R, "average-precision": precision_R}
            found |= {name: by_name[self.metric]} | {column(one, name): value for one, value in by_name.items()}
            if name == "val":
                wrong_P = torch.nn.functional.softplus(torch.where(judged.true, -score_P, score_P)).double()
                total_R = auc_R.new_zeros(clients).index_add(0, judged.owner, wrong_P)
                pairs_R = torch.bincount(judged.owner, minlength=clients)
                found["val_loss"] = torch.where(auc_R.isnan(), auc_R, total_R / pairs_R)
        return found

    def sizes(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        return _tested(held, report)[0]

    def unlearnt(self, held: Sequence[Subgraph], report: Report | None = None) -> Tensor:
        """Random scores: a ROC-AUC of one half, an average precision of the edges' share; NaN if undefined."""
        edges_R, others_R = _tested(held, report)
        chance_R = edges_R / (edges_R + others_R).double() if self.metric == "average-precision" else 0.5
        return torch.where((edges_R > 0) & (others_R > 0), chance_R, float("nan")).double()

    def predict(
        self, model: Model, w: Tree, data: Clients, graph: Graph, classes: tuple[str, ...], pairs: Tensor | None
    ) -> LinkScores:
        """Messages pass along all edges of the graph."""
        assert pairs is not None, "links are predicted between pairs of nodes"
        owner_P = torch.zeros(pairs.shape[1], dtype=torch.int64)
        return LinkScores(self.score(w, model.apply(w, data), pairs, owner_P), pairs, graph)


@dataclass(frozen=True, eq=False)
class LinkScores:
    """The logit that the nodes of each pair are linked."""

    score_P: Tensor
    pairs: Tensor  # [2, P]
    graph: Graph

    def table(self) -> dict[str, np.ndarray]:
        """The ids of the nodes of each pair, the score, and the probability of a link that follows from it."""
        ids, (source, target) = node_ids(self.graph), self.pairs.numpy()
        ends = {"source": ids[source], "target": ids[target]}
        return ends | {"score": self.score_P.numpy(), "probability": torch.sigmoid(self.score_P).numpy()}

    def lines(self) -> dict[str, str]:
        edges, found = torch.isin(pair_number(self.pairs), pair_number(self.graph.edges)), self.numbers()
        return {
            "pairs": f"{found['pairs']:,}",
            "edges of the graph": f"{int(edges.sum()):,}",
            "more likely linked than not": f"{found['likely']:,}",
            "mean probability": f"{100 * found['mean_probability']:.2f} %",
        }

    def numbers(self) -> dict[str, Any]:
        likely, mean = int((self.score_P > 0).sum()), float(torch.sigmoid(self.score_P.double()).mean())
        return {"pairs": len(self.score_P), "likely": likely, "mean_probability": mean}


def _subgraph(
    graph: Graph, own: Tensor, chosen: LinkSplit, client: int, kind: Propagation, judged: dict[int, Tensor]
) -> Subgraph:
    edges, links = links_of(graph.edges, graph.num_nodes, own, chosen, judged)
    y, nobody = graph.y[own], torch.zeros(len(own), dtype=torch.bool)
    x = to_scipy(graph.x)[own.numpy()].astype(np.float64)
    return Subgraph(client, own, x, edges, y, y >= 0, nobody, nobody, propagation=kind, links=links)


def _check_edges(graph: Graph, made: list[Subgraph], ratios: Ratios) -> None:
    """Raise an error unless some client has training edges and, unless the test share is zero, test edges."""
    links = [own.links for own in made if own.links is not None]
    judged = not ratios[2] or any(bool(own.test.true.any()) for own in links)
    if not judged or not any(own.train.shape[1] for own in links):
        raise FedpubError(
            f"graph {graph.name!r} has too few edges for link prediction: no client holds both ends of enough of them; "
            "take fewer clients or another scenario"
        )


def _tested(held: Sequence[Subgraph], report: Report | None) -> tuple[Tensor, Tensor]:
    """The numbers of test edges and test non-edges of each reported client, [R]."""
    tests = [own.links.test for own in held if own.links is not None]
    true_P = torch.cat([test.true for test in tests])
    if report is None:
        owner_P = torch.cat([torch.full_like(test.owner, client) for client, test in enumerate(tests)])
    else:
        owner_P = torch.cat([test.owner for test in tests])
    clients = report.num_clients if report else len(held)
    edges_R, others_R = (torch.bincount(owner_P[kind], minlength=clients) for kind in (true_P, ~true_P))
    return edges_R, others_R


def _links(data: Clients) -> StackedLinks:
    assert data.links is not None, "these clients were not divided for link prediction"
    return data.links


def _per_client(x_PH: Tensor, w_KHJ: Tensor, owner_P: Tensor) -> Tensor:
    """Every row times its client's matrix, [P, J]; rows are in the order of clients."""
    count = torch.bincount(owner_P, minlength=len(w_KHJ)).tolist()
    return torch.cat([part @ w for part, w in zip(torch.split(x_PH, count), w_KHJ, strict=True)])
