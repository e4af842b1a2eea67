"""GraphSAGE (Hamilton et al., 2017) with the mean aggregator, and a linear classifier.

    H1 = ReLU(X S1 + M X N1 + b1)      H2 = H1 S2 + M H1 N2 + b2      logits = ReLU(H2) W3 + b3

M is the mean over neighbours; M X never changes, so layer one does not propagate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.models.base import Dropout, output_layer
from fedpub.models.pairs import Pairs, classifier, first_layer, mean_output, proxy_layer, proxy_outputs, second_layer
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class GraphSAGE(Pairs):
    hidden: int = 128

    propagation: ClassVar[Propagation] = "mean"

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        h_NH = torch.relu(first_layer(w, data))
        if dropout:
            h_NH = dropout(h_NH, 1, data.ids_K, data.segments)
        h_NH = torch.relu(second_layer(w, h_NH, data))
        if dropout:
            h_NH = dropout(h_NH, 2, data.ids_K, data.segments)
        return classifier(w, h_NH, data)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        return mean_output(w, torch.relu(proxy_layer(w, proxy)), proxy)

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        return output_layer(w, torch.relu(proxy_outputs(w, torch.relu(proxy_layer(w, proxy)), proxy)))
