"""Separate weights for a node and for its neighbours, normalised units, and a skip connection around layer two.

    H1 = ReLU(norm(X S1 + ÂX N1 + b1))
    H2 = ReLU(norm(H1 S2 + ÂH1 N2 + b2)) + H1
    logits = H2 W3 + b3

A GCN has one matrix for both, and a node that differs from its neighbours is lost in their mean. At half the width,
layer one has as many weights as a GCN's. `norm` is layer normalisation without parameters: nothing more to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.models.base import Dropout, layer_norm, output_layer
from fedpub.models.pairs import Pairs, classifier, first_layer, mean_output, proxy_layer, proxy_outputs, second_layer
from fedpub.models.proxy import Proxy


@dataclass(frozen=True)
class Twin(Pairs):
    hidden: int = 64

    propagation: ClassVar[Propagation] = "symmetric"

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        h_NH = torch.relu(layer_norm(first_layer(w, data)))
        if dropout:
            h_NH = dropout(h_NH, 1, data.ids_K, data.segments)
        h_NH = torch.relu(layer_norm(second_layer(w, h_NH, data))) + h_NH
        if dropout:
            h_NH = dropout(h_NH, 2, data.ids_K, data.segments)
        return classifier(w, h_NH, data)

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        return mean_output(w, torch.relu(layer_norm(proxy_layer(w, proxy))), proxy)

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        h_KPH = torch.relu(layer_norm(proxy_layer(w, proxy)))
        return output_layer(w, torch.relu(layer_norm(proxy_outputs(w, h_KPH, proxy))) + h_KPH)
