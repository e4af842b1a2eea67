"""Models as PyTorch modules of PyG's layers, with one client's weights: the same outputs without this package.

Every class has its parameters by their names here and, in `names`, by their names in the model; matrices there are
[in, out], and [out, in] here.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import GCNConv, SAGEConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import scatter

from fedpub.core.tree import Tree
from fedpub.errors import FedpubError
from fedpub.models.base import Model, layer_norm
from fedpub.models.gcn import GCN
from fedpub.models.hops import Hops
from fedpub.models.module import Module, module_parameters, object_name
from fedpub.models.sage import GraphSAGE
from fedpub.models.twin import Twin

OUTPUT_NAMES = {"classifier.weight": "classifier.weight", "classifier.bias": "classifier.bias"}


def pyg_module(model: Model, w: Tree) -> torch.nn.Module:
    """The model with the weights of one client, leaves [1, ...], as a module; parameters of a decoder are left out."""
    if isinstance(model, Module):
        return _filled(copy.deepcopy(model.module), module_parameters(w)[0])
    if getattr(model, "relations", 1) > 1:
        raise FedpubError(
            f"the model {type(model).__name__} has weights for each direction and kind of edges, for which PyG has no "
            "layer; read them from Run.model"
        )
    leaves = {name: leaf[0] for name, leaf in w.items()}
    for kind, made in MADE.items():
        if type(model) is kind:
            shell = made(model, *leaves["classifier.weight"].shape, leaves[model.inputs[0]].shape[0])
            own = {here: leaves[there] for here, there in shell.names.items()}
            return _filled(shell, {name: leaf.T if leaf.dim() == 2 else leaf for name, leaf in own.items()})
    raise FedpubError(f"the model {object_name(model)} has no PyG layers; read its weights from Run.model")


def _filled(shell: torch.nn.Module, own: Tree) -> torch.nn.Module:
    shell.to(next(iter(own.values())).dtype)
    shell.load_state_dict(shell.state_dict() | own)
    return shell.eval()


class GCNLayers(torch.nn.Module):
    """`fedpub.models.GCN`."""

    names: ClassVar[dict[str, str]] = OUTPUT_NAMES | {
        "conv1.lin.weight": "conv1.weight",
        "conv1.bias": "conv1.bias",
        "conv2.lin.weight": "conv2.weight",
        "conv2.bias": "conv2.bias",
    }

    def __init__(self, model: Model, hidden: int, outputs: int, features: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(features, hidden), GCNConv(hidden, hidden)
        self.classifier = Linear(hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = torch.relu(self.conv1(x, edge_index, edge_weight))
        h = torch.relu(self.conv2(h, edge_index, edge_weight))
        return torch.as_tensor(self.classifier(h))


class SAGELayers(torch.nn.Module):
    """`fedpub.models.GraphSAGE`."""

    names: ClassVar[dict[str, str]] = OUTPUT_NAMES | {
        "conv1.lin_l.weight": "conv1.neighbour",
        "conv1.lin_l.bias": "conv1.bias",
        "conv1.lin_r.weight": "conv1.self",
        "conv2.lin_l.weight": "conv2.neighbour",
        "conv2.lin_l.bias": "conv2.bias",
        "conv2.lin_r.weight": "conv2.self",
    }

    def __init__(self, model: Model, hidden: int, outputs: int, features: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(features, hidden), SAGEConv(hidden, hidden)
        self.classifier = Linear(hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = torch.relu(_weighted_mean(self.conv1, x, edge_index, edge_weight))
        h = torch.relu(_weighted_mean(self.conv2, h, edge_index, edge_weight))
        return torch.as_tensor(self.classifier(h))


def _weighted_mean(conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """SAGEConv, which takes no weights, with a weighted mean."""
    if edge_weight is None:
        return torch.as_tensor(conv(x, edge_index))
    source, target = edge_index
    total = scatter(edge_weight, target, dim_size=len(x))
    share = edge_weight / torch.where(total > 0, total, 1)[target]
    mean = scatter(x[source] * share.unsqueeze(1), target, dim_size=len(x))
    return torch.as_tensor(conv.lin_l(mean) + conv.lin_r(x))


class TwinLayers(torch.nn.Module):
    """`fedpub.models.Twin`."""

    names: ClassVar[dict[str, str]] = OUTPUT_NAMES | {
        "own1.weight": "conv1.self",
        "conv1.lin.weight": "conv1.neighbour",
        "conv1.bias": "conv1.bias",
        "own2.weight": "conv2.self",
        "conv2.lin.weight": "conv2.neighbour",
        "conv2.bias": "conv2.bias",
    }

    def __init__(self, model: Model, hidden: int, outputs: int, features: int) -> None:
        super().__init__()
        self.own1, self.conv1 = Linear(features, hidden, bias=False), GCNConv(features, hidden)
        self.own2, self.conv2 = Linear(hidden, hidden, bias=False), GCNConv(hidden, hidden)
        self.classifier = Linear(hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = torch.relu(layer_norm(self.own1(x) + self.conv1(x, edge_index, edge_weight)))
        h = torch.relu(layer_norm(self.own2(h) + self.conv2(h, edge_index, edge_weight))) + h
        return torch.as_tensor(self.classifier(h))


class HopsLayers(torch.nn.Module):
    """`fedpub.models.Hops`."""

    def __init__(self, model: Hops, hidden: int, outputs: int, features: int) -> None:
        super().__init__()
        self.hop = TAGConv(features, hidden, K=model.hops, normalize=False)
        self.dense = Linear(hidden, hidden) if model.layers == 2 else None
        self.classifier = Linear(hidden, outputs)
        self.names = OUTPUT_NAMES | {"hop.bias": "hop.bias"}
        self.names |= {f"hop.lins.{r}.weight": f"hop{r}.weight" for r in range(model.hops + 1)}
        self.names |= {} if self.dense is None else {"dense.weight": "dense.weight", "dense.bias": "dense.bias"}

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        normalised = gcn_norm(edge_index, edge_weight, len(x), dtype=x.dtype)  # with self-loops, unlike TAGConv's own
        h = torch.relu(layer_norm(self.hop(x, *normalised)))
        if self.dense is not None:
            h = torch.relu(layer_norm(self.dense(h))) + h
        return torch.as_tensor(self.classifier(h))


MADE = {GCN: GCNLayers, GraphSAGE: SAGELayers, Twin: TwinLayers, Hops: HopsLayers}
