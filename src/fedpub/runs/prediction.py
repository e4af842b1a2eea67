"""What a personal model says of a graph: the classes of its nodes, or which pairs of them are linked.

Axes: N nodes, C classes, P pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fedpub.algorithms import METHODS
from fedpub.algorithms.protocol import NeedsSetup
from fedpub.core.files import atomic
from fedpub.core.sparse import to_scipy
from fedpub.core.tree import Tree
from fedpub.data.clients.links import pair_number
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.graph import Graph
from fedpub.data.tables.encoding import META_KEY, Encoding, some
from fedpub.data.tables.files import SUFFIXES, first_row, read_edges
from fedpub.errors import FedpubError
from fedpub.store.model_files import ModelCard
from fedpub.tasks import LinkPrediction, NodeClassification


@dataclass(frozen=True, eq=False)
class Prediction:
    """The class of every node, by its number among the model's, and how likely each class is."""

    class_N: Tensor
    probability_NC: Tensor

    @property
    def confidence(self) -> Tensor:
        """The probability of the predicted class, [N]."""
        return self.probability_NC.gather(1, self.class_N.unsqueeze(1)).squeeze(1)


@torch.no_grad()
def predict(weights: Tree, card: ModelCard, graph: Graph) -> Prediction:
    """The classes of all nodes; the graph needs no labels."""
    if not isinstance(card.learns(), NodeClassification):
        raise FedpubError(f"the model of {card.site!r} predicts links, not classes; name pairs of nodes with `pairs`")
    logits_NC = card.net().apply(weights, _alone(card, graph))
    return Prediction(logits_NC.argmax(1), torch.softmax(logits_NC, 1))


@torch.no_grad()
def predict_links(weights: Tree, card: ModelCard, graph: Graph, pairs: Tensor) -> Tensor:
    """The logit that the nodes of each pair [2, P] are linked, [P]; messages pass along all edges of the graph."""
    task = card.learns()
    if not isinstance(task, LinkPrediction):
        raise FedpubError(f"the model of {card.site!r} predicts classes, not links; leave `pairs` out")
    z_NH = card.net().apply(weights, _alone(card, graph))
    return task.score(weights, z_NH, pairs, torch.zeros(pairs.shape[1], dtype=torch.int64))


def _alone(card: ModelCard, graph: Graph) -> Clients:
    """The graph as the only client, with nothing to train on or to be judged by."""
    check_fits(card, graph)
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
        propagation=card.net().propagation,
    )
    return stack([own], len(card.classes), dtype=getattr(torch, card.dtype))


def check_fits(card: ModelCard, graph: Graph) -> None:
    """That the graph's features, and its labels where it has any, mean what they meant in training."""
    here, model = f"graph {graph.name!r}", f"the model of {card.site!r}"
    learnt, given = _encoding(card.meta, model), _encoding(graph.meta, here)
    if learnt and given and learnt.columns != given.columns:
        mend = "import its tables with --like and the graph that the model learnt from"
        raise FedpubError(f"{here} {_difference(learnt, given)} {model} learnt from; {mend}")
    if graph.num_features != card.num_features:
        raise FedpubError(
            f"{here} has {graph.num_features:,} features, where {model} expects {card.num_features:,}; "
            "make its features as those of the graph that the model learnt from"
        )
    if isinstance(card.learns(), NodeClassification):
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
    """The first one between two encodings, as the beginning of a sentence."""
    before, now = ({column.name: column for column in one.columns} for one in (learnt, given))
    for name in before | now:
        if name not in now:
            return f"has no column {name!r}, which"
        if name not in before:
            return f"has a column {name!r} beyond those that"
        if before[name] != now[name]:
            return f"encodes the column {name!r} otherwise than the graph that"
    return "has the columns in another order than the graph that"


def notes(card: ModelCard, graph: Graph) -> list[str]:
    """What a reader of the predictions should know, a sentence each."""
    said = []
    if (META_KEY in card.meta) != (META_KEY in graph.meta):
        which = "model" if META_KEY in graph.meta else "graph"
        said.append(f"the {which} does not say how its features were made: only their number could be checked")
    if card.method in METHODS and isinstance(METHODS[card.method](), NeedsSetup):
        said.append(f"{card.method} learnt on a graph with further neighbours; here the graph is taken as it is")
    return said


def accuracy(found: Prediction, card: ModelCard, graph: Graph) -> tuple[float, int] | None:
    """The share of labelled nodes that are predicted right, and how many are labelled; None where none is."""
    number = {name: at for at, name in enumerate(card.classes)}
    by_graph_C = torch.tensor([number.get(name, -1) for name in graph.classes], dtype=torch.int64)
    rows = torch.nonzero(graph.y >= 0).flatten()
    if not len(rows):
        return None
    return float((found.class_N[rows] == by_graph_C[graph.y[rows]]).double().mean()), len(rows)


def read_pairs(path: Path, graph: Graph) -> Tensor:
    """The nodes of every row of a table with two columns of node ids, [2, P]."""
    table = read_edges([path], None, None)
    if not len(table):
        raise FedpubError(f"{path} has no rows; give a pair of node ids in each")
    names = pa.array(list(map(str, _node_ids(graph))), pa.large_string())
    ends = []
    for end in ("source", "target"):
        texts = table.text(end)
        position = pc.index_in(texts, value_set=names)
        row = first_row(position, None)
        if row >= 0:
            value = texts[row].as_py()
            problem = "a node id is empty" if value is None else f"{value!r} is not the id of a node"
            raise FedpubError(f"{table.place(row)}: {problem} of graph {graph.name!r}; correct it or remove the row")
        ends.append(torch.from_numpy(position.to_numpy().astype(np.int64)))
    return torch.stack(ends)


def class_table(found: Prediction, card: ModelCard, graph: Graph) -> pa.Table:
    """A row per node: its id, the predicted class, the probability of that, and of every class."""
    names = np.asarray(card.classes, dtype=object)
    columns = {"node": pa.array(_node_ids(graph)), "prediction": pa.array(names[found.class_N.numpy()], pa.string())}
    columns["confidence"] = pa.array(found.confidence.numpy())
    columns |= {f"p:{name}": pa.array(p_N.numpy()) for name, p_N in zip(names, found.probability_NC.T, strict=True)}
    return pa.table(columns)


def link_table(score_P: Tensor, pairs: Tensor, graph: Graph) -> pa.Table:
    """A row per pair: the ids of its nodes, the score and, of that, the probability of a link."""
    ids = pa.array(_node_ids(graph))
    columns = {name: ids.take(pa.array(end.numpy())) for name, end in zip(("source", "target"), pairs, strict=True)}
    columns |= {"score": pa.array(score_P.numpy()), "probability": pa.array(torch.sigmoid(score_P).numpy())}
    return pa.table(columns)


def class_summary(found: Prediction, card: ModelCard, graph: Graph) -> dict[str, str]:
    """What was predicted in a few lines, by their headings."""
    count_C = torch.bincount(found.class_N, minlength=len(card.classes)).tolist()
    rows = {"nodes": f"{graph.num_nodes:,}"}
    rows |= {f"of class {name}": f"{count:,}" for name, count in zip(card.classes, count_C, strict=True)}
    rows["mean confidence"] = f"{100 * float(found.confidence.double().mean()):.2f} %"
    if judged := accuracy(found, card, graph):
        right, labelled = judged
        rows[f"accuracy on {labelled:,} labelled nodes, training nodes included"] = f"{100 * right:.2f} %"
    return rows


def link_summary(score_P: Tensor, pairs: Tensor, graph: Graph) -> dict[str, str]:
    """What was predicted in a few lines, by their headings."""
    edges = torch.isin(pair_number(pairs), pair_number(graph.edges))
    return {
        "pairs": f"{len(score_P):,}",
        "edges of the graph": f"{int(edges.sum()):,}",
        "more likely linked than not": f"{int((score_P > 0).sum()):,}",
        "mean probability": f"{100 * float(torch.sigmoid(score_P.double()).mean()):.2f} %",
    }


def _node_ids(graph: Graph) -> Sequence[str] | Sequence[int]:
    return graph.node_ids or range(graph.num_nodes)


def check_out(out: Path, inputs: Collection[Path]) -> None:
    """Refuse, before any work is done, what cannot be written or would overwrite what is read."""
    if out.suffix.lower() not in SUFFIXES:
        raise FedpubError(
            f"`out={out}` has the suffix {out.suffix!r}; give a name that ends in {' or '.join(SUFFIXES)}"
        )
    if out.is_dir():
        raise FedpubError(f"`out={out}` is a folder; write to another name")
    if out.resolve() in {path.resolve() for path in inputs}:
        raise FedpubError(f"`out={out}` is a file to read; write to another name")


def write_table(path: Path, table: pa.Table) -> None:
    """As CSV or Parquet, by the ending of the name."""
    write = pq.write_table if path.suffix.lower() == ".parquet" else pyarrow.csv.write_csv
    try:
        with atomic(path) as temporary:
            write(table, str(temporary))
    except (OSError, pa.ArrowException) as error:
        raise FedpubError(f"cannot write {path} ({error}); make room there or choose another place") from error
