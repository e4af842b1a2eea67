"""The same rounds in ordinary PyG code: one module, optimiser and data object per client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedpub.algorithms.similarity import attention, cosine
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.simulate import Federation
from fedpub.experiment import Plan
from fedpub.models.proxy import proxy_structure, random_proxy


def pyg_loop(plan: Plan, federation: Federation) -> Iterator[float]:
    """One round per step, with one module, optimiser and data object per client."""
    fedpub = plan.experiment.method == "fedpub"
    device = federation.device
    norms: dict[int, Tensor] = {}
    data = [pyg_data(own, norms, device) for own in federation.subgraphs]
    sizes = (federation.num_features, plan.hidden, federation.num_classes)
    models = [pyg_model(*sizes, norms, with_masks=fedpub).to(device) for _ in data]
    optimisers = [torch.optim.Adam(model.parameters(), lr=plan.lr) for model in models]
    proxy = random_proxy("sbm", 0, federation.num_features, "symmetric", 0.01, device, torch.float32)
    dense = torch.from_numpy(proxy_structure("sbm", 0, "symmetric", 0.01)).float().to(device)
    proxy_edges = dense.nonzero().T.contiguous()
    norms[id(proxy_edges)] = dense[proxy_edges[0], proxy_edges[1]]
    shared = [name for name, _ in models[0].named_parameters() if not name.startswith("masks")]
    while True:
        embeddings = []
        for model, optimiser, (x, edges, y, train, _, _) in zip(models, optimisers, data, strict=True):
            model.train()
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x, edges)[train], y[train])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            model.eval()
            if fedpub:
                with torch.no_grad():
                    embeddings.append(model(proxy.x, proxy_edges, embed=True))
        total = 0.0
        with torch.no_grad():
            for model, (x, edges, y, _, val, test) in zip(models, data, strict=True):
                right = model(x, edges).argmax(1) == y
                total += float(right[val].float().mean()) + float(right[test].float().mean())
            size = torch.tensor([float(own[3].sum()) for own in data])
            share = (
                attention(cosine(torch.stack(embeddings)), 5.0) if fedpub else (size / size.sum()).expand(len(data), -1)
            )
            for name in shared:
                stacked = torch.stack([dict(model.named_parameters())[name] for model in models])
                mean = (share.to(device) @ stacked.flatten(1)).view_as(stacked)
                for model, own in zip(models, mean, strict=True):
                    dict(model.named_parameters())[name].copy_(own)
        yield total


def pyg_model(features: int, hidden: int, classes: int, norms: dict[int, Tensor], with_masks: bool) -> Any:
    """The paper's network in ordinary PyG code; `norms` maps the id of an edge index to its edge weights."""
    from torch_geometric.nn import GCNConv

    class MaskedGCN(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = GCNConv(features, hidden, cached=True)
            self.conv2 = GCNConv(hidden, hidden, cached=True)
            self.classifier = torch.nn.Linear(hidden, classes)
            self.masks = torch.nn.ParameterDict()
            if with_masks:
                for layer in ("conv1", "conv2"):
                    weight = getattr(self, layer).lin.weight
                    self.masks[layer] = torch.nn.Parameter(torch.ones_like(weight))
                self.masks["classifier"] = torch.nn.Parameter(torch.ones_like(self.classifier.weight))

        def weight(self, layer: str, own: Tensor) -> Tensor:
            return own * self.masks[layer] if layer in self.masks else own

        def convolve(self, layer: str, x: Tensor, edge_index: Tensor) -> Tensor:
            conv = getattr(self, layer)
            x = torch.nn.functional.linear(x, self.weight(layer, conv.lin.weight))
            h: Tensor = conv.propagate(edge_index, x=x, edge_weight=norms[id(edge_index)])
            out: Tensor = h + conv.bias
            return out

        def forward(self, x: Tensor, edge_index: Tensor, embed: bool = False) -> Tensor:
            h = torch.nn.functional.dropout(torch.relu(self.convolve("conv1", x, edge_index)), 0.5, self.training)
            h = self.convolve("conv2", h, edge_index)
            if embed:
                return h.mean(0)
            h = torch.nn.functional.dropout(torch.relu(h), 0.5, self.training)
            return torch.nn.functional.linear(
                h, self.weight("classifier", self.classifier.weight), self.classifier.bias
            )

    return MaskedGCN()


def pyg_data(own: Subgraph, norms: dict[int, Tensor], device: torch.device) -> tuple[Tensor, ...]:
    """One client's features, normalised edges, labels and masks."""
    coo = own.adjacency.tocoo()
    edge_index = torch.stack([torch.from_numpy(coo.row), torch.from_numpy(coo.col)]).long().to(device)
    norms[id(edge_index)] = torch.from_numpy(coo.data).float().to(device)
    x = torch.from_numpy(own.x.toarray()).float().to(device)
    rest = (part.to(device) for part in (own.y, own.train, own.val, own.test))
    return (x, edge_index, *rest)
