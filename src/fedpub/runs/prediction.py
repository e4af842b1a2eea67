"""Predictions of a personal model for a graph.

Axes: P pairs of nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fedpub.algorithms import METHODS
from fedpub.algorithms.protocol import NeedsSetup
from fedpub.core.files import atomic
from fedpub.core.sparse import to_scipy
from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.graph import Graph, alike
from fedpub.data.tables.encoding import META_KEY, Encoding, some
from fedpub.data.tables.files import SUFFIXES
from fedpub.data.tables.ids import Ids
from fedpub.data.tables.links import pairs_of
from fedpub.errors import FedpubError
from fedpub.models import Model
from fedpub.store.model_card import ModelCard
from fedpub.tasks.base import Predicted, node_ids


@torch.no_grad()
def predict(
    weights: Tree, card: ModelCard, graph: Graph, pairs: Tensor | None = None, own: Model | None = None
) -> Predicted:
    """Predictions of a model for all nodes, which need no labels, or for pairs of nodes, [2, P].

    `own` is the model if the card is of an object.
    """
    task = card.learns()
    if task.of_pairs and pairs is None:
        raise FedpubError(
            f"the model of {card.site!r} predicts {task.predicts}, not classes; name pairs of nodes with `pairs`"
        )
    if pairs is not None and not task.of_pairs:
        raise FedpubError(f"the model of {card.site!r} predicts {task.predicts}, not links; leave `pairs` out")
    net = card.net(own)
    return task.predict(net, weights, _alone(card, net, graph), graph, card.classes, pairs)


@torch.no_grad()
def embeddings(weights: Tree, card: ModelCard, graph: Graph, own: Model | None = None) -> Tensor:
    """What a model knows of every node, [N, H]: its hidden values before the output layer, or the outputs themselves if
    pairs of them are scored."""
    net = card.net(own)
    data = _alone(card, net, graph)
    return net.apply(weights, data) if card.learns().of_pairs else net.last_hidden(weights, data)


def _alone(card: ModelCard, net: Model, graph: Graph) -> Clients:
    """The graph as the only client, with no nodes for training, validation or test."""
    check_fits(card, graph)
    if net.relational and not card.learns().of_pairs and graph.num_relations != card.relations:
        raise FedpubError(
            f"graph {graph.name!r} has {edges_of(graph.num_relations)}, but the model of {card.site!r} learnt from "
            f"{edges_of(card.relations)}; import both with the same `directed` and `edge_type`"
        )
    if not net.relational or card.learns().of_pairs:
        graph = alike(graph, f"the model of {card.site!r}", weighted=not card.learns().of_pairs)
    nobody = torch.zeros(graph.num_nodes, dtype=torch.bool)
    own = Subgraph(
        id=0,
        nodes=torch.arange(graph.num_nodes),
        x=to_scipy(graph.x).astype(np.float64),
        edges=graph.edges,
        y=graph.y,
        train=nobody,
        val=nobody,
        test=nobody,
        propagation=net.propagation,
        weight=graph.weight,
        directed=graph.directed,
        kind=graph.kind,
        num_kinds=max(1, len(graph.kinds)),
    )
    return stack([own], len(card.classes), dtype=getattr(torch, card.dtype), steps=net.steps, propagates=net.propagates)


def edges_of(relations: int) -> str:
    return "edges of one kind and no direction" if relations == 1 else f"edges of {relations} kinds and directions"


def check_fits(card: ModelCard, graph: Graph) -> None:
    """Raise an error unless the graph's features and any labels have the same meaning as in training."""
    here, model = f"graph {graph.name!r}", f"the model of {card.site!r}"
    learnt, given = _encoding(card.meta, model), _encoding(graph.meta, here)
    if learnt and given and learnt.columns != given.columns:
        mend = "import its tables with `like` and the graph that the model learnt from"
        raise FedpubError(f"{here} {_difference(learnt, given)} {model} learnt from; {mend}")
    if graph.num_features != card.num_features:
        raise FedpubError(
            f"{here} has {graph.num_features:,} features, but {model} expects {card.num_features:,}; "
            "make its features in the same way as those of the graph that the model learnt from"
        )
    if card.learns().of_targets and graph.target is not None and (new := sorted({*graph.classes} - {*card.classes})):
        raise FedpubError(
            f"{here} has the target {new[0]!r}, but those of {model} are {some(card.classes)}; rename or drop it"
        )
    if card.learns().of_classes:
        labels = {graph.classes[label] for label in torch.unique(graph.y).tolist() if label >= 0}
        if foreign := sorted(labels - set(card.classes)):
            raise FedpubError(
                f"{here} has nodes of the class {foreign[0]!r}, but those of {model} are {some(card.classes)}; "
                "rename its labels, or leave them empty"
            )


def _encoding(meta: Mapping[str, str], whose: str) -> Encoding | None:
    try:
        return Encoding.from_json(meta[META_KEY]) if META_KEY in meta else None
    except (ValueError, KeyError, TypeError) as error:
        raise FedpubError(f"the encoding of columns in {whose} is damaged ({error}); make it again") from error


def _difference(learnt: Encoding, given: Encoding) -> str:
    """The first difference between two encodings, as the beginning of a sentence."""
    before, now = ({column.name: column for column in one.columns} for one in (learnt, given))
    for name in before | now:
        if name not in now:
            return f"has no column {name!r}, which"
        if name not in before:
            return f"has a column {name!r} in addition to those that"
        if before[name] != now[name]:
            return f"encodes the column {name!r} differently from the graph that"
    return "has the columns in a different order from the graph that"


def notes(card: ModelCard, graph: Graph) -> list[str]:
    """Caveats for a reader of the predictions, one sentence each."""
    said = []
    if (META_KEY in card.meta) != (META_KEY in graph.meta):
        which = "model" if META_KEY in graph.meta else "graph"
        said.append(f"the {which} does not say how its features were made: only their number could be checked")
    if card.method in METHODS and isinstance(METHODS[card.method](), NeedsSetup):
        said.append(f"{card.method} learnt on a graph with further neighbours; here the graph is taken as it is")
    return said


def read_pairs(path: Path, graph: Graph) -> Tensor:
    """Pairs of nodes, [2, P], from the rows of a table with two columns of node ids."""
    ids = Ids(pa.array(list(map(str, node_ids(graph))), pa.large_string()))
    pairs = pairs_of(path, ids, f"graph {graph.name!r}")
    if not pairs.shape[1]:
        raise FedpubError(f"{path} has no rows; give a pair of node ids in each")
    return pairs


def check_out(out: Path, inputs: Collection[Path]) -> None:
    """Raise an error, before any work is done, if `out` cannot be written or would overwrite an input."""
    if out.suffix.lower() not in SUFFIXES:
        raise FedpubError(
            f"`out={out}` has the suffix {out.suffix!r}; give a name that ends in {' or '.join(SUFFIXES)}"
        )
    if out.is_dir():
        raise FedpubError(f"`out={out}` is a folder; write to another name")
    if out.resolve() in {path.resolve() for path in inputs}:
        raise FedpubError(f"`out={out}` is an input file; write to another name")


def table_of(found: Predicted) -> pa.Table:
    columns = found.table().items()
    return pa.table({name: pa.array(one, pa.string() if one.dtype == object else None) for name, one in columns})


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as CSV or Parquet, depending on the suffix."""
    write = pq.write_table if path.suffix.lower() == ".parquet" else pyarrow.csv.write_csv
    try:
        with atomic(path) as temporary:
            write(table, str(temporary))
    except (OSError, pa.ArrowException) as error:
        raise FedpubError(f"cannot write {path} ({error}); free some space or choose another place") from error
