"""Graphs given by a caller: by name, as a file, or as an object of this package or of PyG."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpub.core.files import file_name
from fedpub.data import datasets
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError

Place = str | os.PathLike[str]


def load_graph(name: Place, data_root: Place | None = None, labelled: bool = True) -> Graph:
    """Load a graph by name or from a file; a graph that is only used for prediction need not be `labelled`."""
    return datasets.load(str(Path(name).expanduser()), path_of(data_root), labelled=labelled)


def graph_from_pyg(data: Any, name: str | None = None, labelled: bool = True, directed: bool = False) -> Graph:
    """A graph from a PyG `Data` with x, y and edge_index; y < 0 means no label.

    `client` (a number per node) gives natural clients. Names are read from the attributes that `fedpub.Graph.to_pyg`
    writes. `edge_weight` (or an `edge_attr` with one column), `edge_type` and the masks `train_mask`, `val_mask` and
    `test_mask` are used where they are given; a warning lists attributes that are not. An edge that is given in both
    directions is one edge, unless edges are `directed`.
    """
    from torch_geometric.data import Data

    from fedpub.data.tables import from_pyg
    from fedpub.data.tables.objects import ALWAYS_POSSIBLE

    if not isinstance(data, Data):
        raise FedpubError(f"a graph cannot be made of a {type(data).__name__}; give a PyG Data, such as dataset[0]")
    called = name or (data.get("name") if isinstance(data.get("name"), str) else None) or "graph"
    if labelled:
        graph = from_pyg(data, called, directed)
    else:  # the converter needs labels: any will do
        some = data.clone()
        some.y = torch.arange(int(data.num_nodes or 0) if data.get("x") is None else np.shape(data.x)[0]) % 2
        graph = replace(from_pyg(some, called, directed), classes=(), y=torch.full((len(some.y),), -1))
    further: dict[str, Any] = {}
    if labelled and (classes := _texts(data.get("classes"))) and len(classes) >= graph.num_classes:
        further["classes"] = classes
    if len(node_ids := _texts(data.get("node_ids"))) == graph.num_nodes:
        further["node_ids"] = node_ids
    if (client := data.get("client")) is not None:
        number_N = torch.as_tensor(client).detach().cpu()
        if number_N.shape != (graph.num_nodes,) or number_N.is_floating_point() or int(number_N.min()) < 0:
            raise FedpubError(
                f"the PyG Data has client of shape {list(number_N.shape)} and type {number_N.dtype}; give each of the "
                f"{graph.num_nodes} nodes the number of its client, 0 or more, or leave it out"
            )
        count = int(number_N.max()) + 1
        if count > max(ALWAYS_POSSIBLE, graph.num_nodes):
            raise FedpubError(
                f"the PyG Data has the client {count - 1}, so {count:,} clients of {graph.num_nodes:,} nodes; "
                "number them from 0, for example with torch.unique(client, return_inverse=True)[1]"
            )
        client_names = _texts(data.get("client_names"))
        fitting = client_names if len(client_names) >= count else tuple(map(str, range(count)))
        further |= {"client": number_N.to(torch.int64), "client_names": fitting}
    return replace(graph, **further).validate(labelled)


def given_graph(dataset: Any, labelled: bool = True) -> str | Graph:
    """The name of a graph, or the graph itself if it is given as an object."""
    if isinstance(dataset, Graph):
        return dataset.validate(labelled)
    if isinstance(dataset, str | os.PathLike):
        return str(Path(dataset).expanduser())
    from torch_geometric.data import Data

    if not isinstance(dataset, Data):
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}".removeprefix("builtins.")
        raise FedpubError(
            f"an object of the type {kind} cannot be used as a graph; give a name, a graph file, a fedpub.Graph or a "
            "PyG Data (fedpub.data.tables.from_networkx makes a fedpub.Graph of a NetworkX graph)"
        )
    unlabelled = not labelled and (dataset.get("y") is None or bool((torch.as_tensor(dataset.y) < 0).all()))
    return graph_from_pyg(dataset, labelled=not unlabelled)


def kept_graph(dataset: Any, folder: Path) -> str:
    """The name of a graph, or the file in the folder to which its object was saved."""
    graph = given_graph(dataset)
    if isinstance(graph, str):
        return graph
    file = folder / graph_file(graph)
    if not file.is_file():
        graph.save(file)
    elif Graph.load(file).digest() != graph.digest():
        raise FedpubError(f"{file} is another graph of that name; rename this graph, or choose another out=")
    return str(file)


def graph_file(graph: Graph) -> str:
    return f"{file_name(graph.name)}.graph"


def node_pairs(pairs: Any, graph: Graph) -> torch.Tensor:
    """Node pairs of shape [P, 2] as [2, P]."""
    ends = torch.as_tensor(pairs)
    if ends.dim() != 2 or ends.shape[1] != 2 or ends.is_floating_point():
        raise FedpubError(f"pairs have the shape {list(ends.shape)}; give two node numbers in each, [P, 2]")
    if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < graph.num_nodes:
        raise FedpubError(f"a pair names a node outside 0 to {graph.num_nodes - 1}, those of graph {graph.name!r}")
    return ends.to(torch.int64).T


def _texts(value: Any) -> tuple[str, ...]:
    """The strings of a list; empty if the value is not a list of strings."""
    fine = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return tuple(value) if fine else ()


def path_of(place: Place | None) -> Path | None:
    return None if place is None else Path(place).expanduser()
