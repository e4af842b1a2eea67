"""Any PyTorch module as a model: `forward(x, edge_index)`, with `edge_weight` as a third argument if it takes one.

Modules cannot be stacked, so that every step is a loop over the clients. The parameters are those of the module, under
their names there: with the prefix `OUTPUT` those of the output layer, which is the layer that is called last, and with
the prefix `NET` all others. Layers are the outermost modules with parameters of their own, and PyG's convolutions.

Axes: K clients, N nodes, F features, C outputs, H hidden, E edges.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from fedpub.core.rng import client_keys
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.data.clients.subgraph import Propagation
from fedpub.errors import FedpubError
from fedpub.models.base import OUTPUT, Dropout, Model
from fedpub.models.proxy import Proxy, client_rows

NET = "net"  # prefix of the names of all parameters but the output layer's


class Piece(NamedTuple):
    """What a module is given of one client."""

    x_NF: Tensor
    edge_index: Tensor  # [2, E], both directions of every edge
    weight_E: Tensor | None  # None: every edge weighs one


class Traced(NamedTuple):
    """A module's output, the layer that was called last, and what that was given: the output, if it is the only one."""

    output_NC: Tensor
    layer: str
    hidden_NH: Tensor


@dataclass(frozen=True, eq=False)
class Module(Model):
    module: torch.nn.Module

    propagation: ClassVar[Propagation] = "plain"
    steps: ClassVar[int] = 0
    steady: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def of(module: torch.nn.Module) -> Module:
        """The model of a copy of the module; raises an error if it cannot be federated."""
        name = type(module).__name__
        if any(torch.nn.parameter.is_lazy(one) for one in module.parameters()):
            raise FedpubError(f"the model {name} has layers of unknown size; give their sizes, or apply it to a graph")
        if not any(one.requires_grad for one in module.parameters()):
            raise FedpubError(f"the model {name} has no parameters to train; give a module with layers")
        if cached := next((type(one).__name__ for one in module.modules() if getattr(one, "cached", False)), None):
            raise FedpubError(
                f"the {cached} of the model {name} keeps the edges of the first graph that it sees, and every client "
                "has another; leave out cached=True"
            )
        return Module(copy.deepcopy(module))

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def seen(self, data: Clients) -> dict[str, Tensor]:
        return {}

    def init(self, num_features: int, num_classes: int, stream: torch.Generator) -> Tree:
        """The parameters of the module as it was given."""
        own = {name: leaf.detach() for name, leaf in self.module.named_parameters() if leaf.requires_grad}
        with torch.device("cpu"), torch.no_grad():
            last = self._tried(own, num_features, num_classes)
        prefix = {name: OUTPUT if name.startswith(f"{last}.") else NET for name in own}
        return {f"{prefix[name]}.{name}": leaf.double() for name, leaf in own.items()}

    def _tried(self, own: Tree, num_features: int, num_classes: int) -> str:
        """The name of the output layer, found on a graph of three nodes; an error unless the outputs are as needed."""
        some = next(iter(own.values()))
        path = Piece(some.new_ones(3, num_features), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), None)
        before = {name: leaf.clone() for name, leaf in self.module.named_buffers()}
        try:
            output, last, _ = self._traced(own, path)
            self._run(own, path, key=0)
        except Exception as error:
            raise FedpubError(
                f"the model {self.name} cannot be applied to a graph with {num_features} features "
                f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); its forward takes x, "
                f"[N, {num_features}], and edge_index, [2, E]"
            ) from error
        if not isinstance(output, Tensor) or output.shape != (3, num_classes):
            shape = f"of shape {list(output.shape)[1:]}" if isinstance(output, Tensor) else type(output).__name__
            raise FedpubError(
                f"the model {self.name} has outputs {shape} for each node, but this run needs [{num_classes}]: one for "
                "each class, or `hidden` of them to predict links; change its last layer"
            )
        for name, leaf in self.module.named_buffers():
            if not torch.equal(leaf, before[name]):
                raise FedpubError(
                    f"the model {self.name} changes {name!r} in training, which is no parameter and could not be "
                    "averaged; replace BatchNorm by LayerNorm or GraphNorm"
                )
        return last

    def num_inputs(self, w: Tree) -> int:
        sizes = [getattr(one, name, 0) for one in self.module.modules() for name in ("in_channels", "in_features")]
        if (first := next((one for one in sizes if isinstance(one, int) and one > 0), 0)) == 0:
            raise FedpubError(
                f"no layer of the model {self.name} has in_channels or in_features, so that the number of its inputs "
                "is unknown; set in_channels on the module"
            )
        return first

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        pieces = data.once("pieces", lambda: self._pieces(data))
        # Not the truth of `dropout`: the module's own layers say how much is dropped.
        keys = client_keys(data.ids_K, dropout.seeds[1]).tolist() if dropout is not None else [None] * len(pieces)
        every = zip(module_parameters(w), pieces, keys, strict=True)
        return torch.cat([self._run(own, piece, key) for own, piece, key in every])

    def last_hidden(self, w: Tree, data: Clients) -> Tensor:
        pieces = data.once("pieces", lambda: self._pieces(data))
        return torch.cat([self._traced(*one).hidden_NH for one in zip(module_parameters(w), pieces, strict=True)])

    def embed(self, w: Tree, proxy: Proxy) -> Tensor:
        """The mean input of the output layer."""
        return torch.stack([traced.hidden_NH.mean(0) for traced in self._on_proxy(w, proxy)])

    def respond(self, w: Tree, proxy: Proxy) -> Tensor:
        return torch.stack([traced.output_NC for traced in self._on_proxy(w, proxy)])

    def _on_proxy(self, w: Tree, proxy: Proxy) -> list[Traced]:
        clients = module_parameters(w)
        x_KPF = proxy.x.expand(len(clients), *proxy.x.shape[-2:])
        return [self._traced(own, Piece(x, proxy.edge_index, None)) for own, x in zip(clients, x_KPF, strict=True)]

    def _pieces(self, data: Clients) -> list[Piece]:
        """The clients one by one, and a warning of what that costs and of what is left out."""
        if data.num_clients > 1:
            warnings.warn(
                f"the model {self.name} is a module, so that every step is a loop over {data.num_clients} clients; "
                "models by name compute them all at once",
                stacklevel=2,
            )
        edges = data.adjacency.forward  # A_vu is the weight of the edge from u to v
        pointer, value_E = edges.crow_indices(), edges.values()
        target_E = torch.repeat_interleave(torch.arange(len(pointer) - 1, device=data.device), pointer.diff())
        edge_index = torch.stack([edges.col_indices().long(), target_E])
        weighted = bool((value_E != 1).any())
        if weighted and not self._takes_weights:
            warnings.warn(f"the model {self.name} takes no edge_weight: weights of edges are not used", stacklevel=2)
        pieces = []
        for position, (start, end) in enumerate(data.segments.spans):
            own = slice(int(pointer[start]), int(pointer[end]))
            weight_E = value_E[own] if weighted and self._takes_weights else None
            pieces.append(Piece(client_rows(data, position), edge_index[:, own] - start, weight_E))
        return pieces

    @property
    def _takes_weights(self) -> bool:
        named = "edge_weight" in inspect.signature(self.module.forward).parameters
        return named and getattr(self.module, "supports_edge_weight", True)  # PyG's own models say

    def _run(self, own: Mapping[str, Tensor], piece: Piece, key: int | None = None) -> Tensor:
        """The output for one client; with the key of a random stream in training mode."""
        some = next(iter(own.values()))
        fixed = {
            name: leaf.to(some.device, some.dtype if leaf.is_floating_point() else leaf.dtype)
            for name, leaf in (*self.module.named_parameters(), *self.module.named_buffers())
            if name not in own
        }
        self.module.train(key is not None)
        weights = {} if piece.weight_E is None else {"edge_weight": piece.weight_E}
        with _stream(key, some.device):
            output: Tensor = functional_call(self.module, {**own, **fixed}, (piece.x_NF, piece.edge_index), weights)
        return output

    def _traced(self, own: Mapping[str, Tensor], piece: Piece) -> Traced:
        calls: list[tuple[str, list[Any]]] = []

        def noted(name: str) -> Any:
            return lambda layer, args, kwargs: calls.append((name, [*args, *kwargs.values()]))

        hooks = [layer.register_forward_pre_hook(noted(name), with_kwargs=True) for name, layer in layers(self.module)]
        try:
            output = self._run(own, piece)
        finally:
            for hook in hooks:
                hook.remove()
        name, given = calls[-1] if calls else ("", [])
        rows = (one for one in given if isinstance(one, Tensor) and one.dim() == 2 and len(one) == len(piece.x_NF))
        hidden_NH = next(rows, output) if len(calls) > 1 else output  # the input of an only layer tells nothing of it
        return Traced(output, name, hidden_NH)


def layers(module: torch.nn.Module, above: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """The outermost modules with parameters of their own, and PyG's convolutions, by their names."""
    from torch_geometric.nn import MessagePassing  # takes a second to import

    for name, child in module.named_children():
        if isinstance(child, MessagePassing) or next(child.parameters(recurse=False), None) is not None:
            yield above + name, child
        else:
            yield from layers(child, f"{above}{name}.")


def object_name(model: Model) -> str:
    """The name of a model object: of its class, or of its module's."""
    return model.name if isinstance(model, Module) else type(model).__name__


def module_parameters(w: Tree) -> list[Tree]:
    """The module's parameters of each client, under their names in the module."""
    names = [name for name in w if name.split(".")[0] in (NET, OUTPUT)]
    columns = [w[name].unbind() for name in names]  # one backward for all clients, unlike an index for each
    own = [name.partition(".")[2] for name in names]
    return [dict(zip(own, leaves, strict=True)) for leaves in zip(*columns, strict=True)]


@contextmanager
def _stream(key: int | None, device: torch.device) -> Iterator[None]:
    """torch's own random numbers from a stream of that key; they are as before afterwards."""
    if key is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key)
        yield
