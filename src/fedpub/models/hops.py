"""A model that never propagates: one dense layer on the features of a node and of its neighbourhoods.

    H = ReLU(norm(Σ_r Â^r X W_r + b)), r = 0 .. hops      logits = H W + c

With a second dense layer, H ← ReLU(norm(H W2 + b2)) + H. The products Â^r X are data: computed once at the client,
after which every node is an example of its own. Batches of nodes are exact, evaluation can go in parts, and a round
costs what its training nodes cost. With several relations (directions and kinds of edges) each has products and
matrices of its own. `norm` is layer normalisation without parameters.

Axes: K clients, N nodes, P proxy nodes, H hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.segments import rows_matmul, segment_add, segment_matmul
from fedpub.core.sparse import propagate
from fedpub.core.tree import Tree, sum_of
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.models.base import Dropout, Model, glorot, layer_norm, numbered, output_layer
from fedpub.models.pairs import classifier
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class Hops(Model):
    hidden: int = 64
    hops: int = 2
    layers: int = 1
    relations: int = 1

    propagation: ClassVar[Propagation] = "symmetric"
    independent: ClassVar[bool] = True
    relational: ClassVar[bool] = True

    @property
    def steps(self) -> int:
        return self.hops

    def related(self, relations: int) -> Model:
        return replace(self, relations=relations)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Of X, then of Â^r X in the order of the data: all steps of the first relation first."""
        walked = (numbered(f"hop{r}", relation) for relation in range(self.relations) for r in range(1, self.hops + 1))
        return tuple(f"{name}.weight" for name in ("hop0", *walked))

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return dict(zip(self.inputs, (data.seen_x_KF, *data.seen_walks[: len(self.inputs) - 1]), strict=True))

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        hidden = self.hidden
        w = {name: glorot(num_features, hidden, stream) for name in self.inputs}
        w["hop.bias"] = torch.zeros(hidden, dtype=torch.float64)
        if self.layers == 2:
            w["dense.weight"] = glorot(hidden, hidden, stream)
            w["dense.bias"] = torch.zeros(hidden, dtype=torch.float64)
        w["classifier.weight"] = glorot(hidden, num_classes, stream)
        w["classifier.bias"] = torch.zeros(num_classes, dtype=torch.float64)
        return w

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        own = data.segments
        h_NH = torch.relu(layer_norm(segment_add(self._reached(w, data), w["hop.bias"], own)))
        if dropout:
            h_NH = dropout(h_NH, 1, data.ids_K, own)
        if self.layers == 2:
            further_NH = segment_add(segment_matmul(h_NH, w["dense.weight"], own), w["dense.bias"], own)
            h_NH = torch.relu(layer_norm(further_NH)) + h_NH
            if dropout:
                h_NH = dropout(h_NH, 2, data.ids_K, own)
        return classifier(w, h_NH, data)

    def _reached(self, w: Tree, data: Clients) -> Tensor:
        """Σ_r Â^r X W_r of every node."""
        first, *others = (w[name] for name in self.inputs)
        sums = [rows_matmul(data.x, first, data.segments)]
        if data.walks[0] is not None:
            sums += [
                rows_matmul(walk, v, data.segments)
                for walk, v in zip(data.walks, others, strict=True)
                if walk is not None
            ]
            return sum_of(sums)
        for relation, adjacency in enumerate(data.adjacencies):  # Â(X W_1 + Â(X W_2 + ...)): narrower than Â^r X
            steps = others[relation * self.hops : (relation + 1) * self.hops]
            h_NH = rows_matmul(data.x, steps[-1], data.segments)
            for v in reversed(steps[:-1]):
                h_NH = rows_matmul(data.x, v, data.segments) + propagate(adjacency, h_NH)
            sums.append(propagate(adjacency, h_NH))
        return sum_of(sums)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        """The mean of H over the proxy graph's nodes."""
        return self._hidden(w, proxy).mean(1)

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        return output_layer(w, self._hidden(w, proxy))

    def _hidden(self, w: Tree, proxy: Proxy) -> Tensor:
        """H of the proxy graph's nodes, [K, P, H]; all relations have the proxy graph's edges."""
        h_KPH = w["hop.bias"].unsqueeze(1)
        for r in range(self.hops + 1):
            names = (
                [f"hop{r}.weight"] if r == 0 else [numbered(f"hop{r}", i) + ".weight" for i in range(self.relations)]
            )
            h_KPH = h_KPH + torch.matmul(proxy.walk(r), proxy.rows(sum_of(w[name] for name in names)))
        h_KPH = torch.relu(layer_norm(h_KPH))
        if self.layers == 2:
            further_KPH = torch.baddbmm(w["dense.bias"].unsqueeze(1), h_KPH, w["dense.weight"])
            h_KPH = torch.relu(layer_norm(further_KPH)) + h_KPH
        return h_KPH
