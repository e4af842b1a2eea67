"""The edges of a graph from tables: ends, weights and kinds.

Axes: E edges as given, in any direction and perhaps repeated; B edges of one batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from fedpub.core.steps import Step, silent
from fedpub.data.graph import Duplicates, Edges, arranged
from fedpub.data.tables.aims import fit_classes
from fedpub.data.tables.cells import are_numbers, content, first_row, to_text
from fedpub.data.tables.dialect import FOUND, Dialect
from fedpub.data.tables.encoding import Encoding, some
from fedpub.data.tables.files import EdgeColumns, edge_batches, place_in, source_of
from fedpub.data.tables.ids import UNKNOWN, Ids
from fedpub.data.tables.table import Floats, Place
from fedpub.data.tables.values import Ints
from fedpub.errors import FedpubError

ENDS_ONLY = EdgeColumns()
MAX_KINDS = 100  # every kind is a matrix of its own
Outside = Literal["refuse", "drop"]


@dataclass(frozen=True)
class EdgeRules:
    """What is asked for about edges."""

    columns: EdgeColumns = ENDS_ONLY
    directed: bool = False
    duplicates: Duplicates | None = None
    outside: Outside = "refuse"

    def alike(self, like: Encoding | None) -> EdgeRules:
        """The same with the directions of an encoding; an error if it contradicts the rest."""
        if like is None:
            return self
        weighted = self.columns.weight is not None or self.duplicates == "sum"
        for setting, here, there, what in (
            ("edge_weight", weighted, like.weighted, "weights of edges"),
            ("edge_type", self.columns.kind is not None, bool(like.kinds), "kinds of edges"),
            ("directed", self.directed, self.directed and like.directed, "directions of edges"),
        ):
            if here and not there:
                raise FedpubError(
                    f"the encoding of `like` has no {what}; leave out `{setting}`, or import every site again with it"
                )
            if there and not here:
                raise FedpubError(f"the encoding of `like` has {what}; name the column here with `{setting}`")
        return EdgeRules(self.columns, like.directed, self.duplicates, self.outside)


@dataclass(frozen=True, eq=False)
class Links:
    """The edges of a graph, and what became of those that were given."""

    edges: Edges
    kinds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def linked(given: Edges, num_nodes: int, source: str, kinds: tuple[str, ...], duplicates: Duplicates | None) -> Links:
    """Edges between numbered nodes as a graph has them."""
    loops = int((given.ends[0] == given.ends[1]).sum())
    if loops == given.ends.shape[1]:
        raise FedpubError(f"{source}: no edge joins two different nodes; a graph needs at least one edge")
    edges, repeated = arranged(given, num_nodes, duplicates)
    summed = edges.weight is not None and duplicates in (None, "sum")
    either = "" if given.directed else " (in either direction)"
    notes = []
    if loops or (repeated and not summed):
        notes.append(f"edges dropped: {loops:,} self-loops, {0 if summed else repeated:,} repeated{either}")
    if repeated and summed:
        notes.append(f"{repeated:,} repeated edges{either}: their weights are added")
    return Links(edges, kinds, tuple(notes))


def read_links(
    paths: Sequence[Path],
    ids: Ids,
    rules: EdgeRules,
    like: Encoding | None = None,
    dialect: Dialect = FOUND,
    nodes: str = "the node table",
    step: Step = silent,
) -> Links:
    """The edges of files, read in batches."""
    kinds = _Kinds(like.kinds if like is not None and like.kinds else None)
    ends, weights, codes, kept, unused = [], [], [], [], []
    lengths = [0] * len(paths)
    for file, path in enumerate(paths):
        columns, others = rules.columns.of(path, dialect)
        unused += others
        for batch in edge_batches(path, columns, dialect):
            place = _behind(lengths[file], place_in([path], [sys.maxsize], dialect))
            ends_2B = np.stack(
                [_positions(batch, end, ids, rules.outside, nodes, place) for end in ("source", "target")]
            )
            inside_B = (ends_2B != UNKNOWN).all(0)
            ends.append(ends_2B[:, inside_B].astype(np.int32))
            if "weight" in columns:
                weights.append(_weights(_cells(batch, "weight"), columns["weight"], place)[inside_B])
            if "kind" in columns:
                codes.append(kinds.codes(to_text(_cells(batch, "kind")), columns["kind"], place)[inside_B])
            if rules.duplicates == "refuse":
                kept.append(np.flatnonzero(inside_B) + sum(lengths))
            lengths[file] += len(batch)
            step("edges", sum(lengths), None)
    ends_2E = np.concatenate(ends, axis=1).astype(np.int64) if ends else np.empty((2, 0), dtype=np.int64)
    del ends
    given = Edges(
        torch.from_numpy(ends_2E),
        torch.from_numpy(np.concatenate(weights)) if weights else None,
        torch.from_numpy(kinds.sorted(np.concatenate(codes))) if codes else None,
        rules.directed,
    )
    if kept:
        _refuse_repeated(given, np.concatenate(kept), ids, place_in(paths, lengths, dialect))
    made = linked(given, len(ids), source_of(paths), kinds.names if codes else (), rules.duplicates)
    notes = list(made.notes)
    if dropped := sum(lengths) - ends_2E.shape[1]:
        notes.append(f"edges dropped: {dropped:,} to nodes outside {nodes}")
    if unused:
        notes.append(f"unused edge columns: {some(list(dict.fromkeys(unused)))}")
    return Links(made.edges, made.kinds, tuple(notes))


def pairs_of(path: Path, ids: Ids, whose: str) -> Tensor:
    """The pairs of nodes in the rows of a file, [2, P]: in their order, even if repeated."""
    columns, _ = ENDS_ONLY.of(path, FOUND)
    pairs, rows = [torch.empty(2, 0, dtype=torch.int64)], 0
    for batch in edge_batches(path, columns):
        ends = []
        for end in ("source", "target"):
            texts = to_text(_cells(batch, end))
            found = ids.find(texts)
            if (found == UNKNOWN).any():
                row = int((found == UNKNOWN).argmax())
                value, place = texts[row].as_py(), place_in([path], [sys.maxsize], FOUND)
                problem = "a node id is empty" if value is None else f"{value!r} is not the id of a node"
                raise FedpubError(f"{place(rows + row)}: {problem} of {whose}; correct it or remove the row")
            ends.append(torch.from_numpy(found))
        pairs.append(torch.stack(ends))
        rows += len(batch)
    return torch.cat(pairs, 1)


def _behind(rows: int, place: Place) -> Place:
    """The place of a row that has so many rows before its batch."""
    return lambda row: place(rows + row)


def _cells(batch: pa.Table, use: str) -> pa.Array:
    return batch.column(use).combine_chunks()


def _positions(batch: pa.Table, end: str, ids: Ids, outside: Outside, nodes: str, place: Place) -> Ints:
    """The nodes at one end of the edges; -1 for those outside the table, if that is allowed."""
    texts = to_text(_cells(batch, end))
    row = first_row(texts, None)
    if row >= 0:
        raise FedpubError(f"{place(row)}: {end} is empty; correct it, add the node or remove the edge")
    found = ids.find(texts)
    if outside == "refuse" and (found == UNKNOWN).any():
        row = int((found == UNKNOWN).argmax())
        raise FedpubError(
            f"{place(row)}: {end} {texts[row].as_py()!r} is not the id of a node in {nodes}; correct it, add the node, "
            "remove the edge, or leave out all such edges with `outside=drop`"
        )
    return found


def _weights(cells: pa.Array, name: str, place: Place) -> Floats:
    if content(cells.type) not in ("numbers", "text", "nothing"):
        raise FedpubError(f"{place(0)}: column {name!r} holds {cells.type}, not weights; name a column of numbers")
    try:
        found = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        row = first_row(are_numbers(cells), False)
        raise FedpubError(
            f"{place(row)}: the weight {cells[row].as_py()!r} in column {name!r} is not a number; correct it"
        ) from error
    wrong = np.flatnonzero(~((found >= 0) & (found < np.inf)))
    if len(wrong):
        row, value = int(wrong[0]), found[wrong[0]]
        if np.isnan(value):
            raise FedpubError(f"{place(row)}: the weight in column {name!r} is empty; fill it in or remove the edge")
        raise FedpubError(
            f"{place(row)}: the weight {value:g} in column {name!r} is not possible; weights are finite numbers, 0 or "
            "more"
        )
    return np.asarray(found, dtype=np.float64)


class _Kinds:
    """The kinds of edges met so far, or those of an encoding."""

    def __init__(self, known: tuple[str, ...] | None) -> None:
        self._known, self._met = known, list(known or ())

    @property
    def names(self) -> tuple[str, ...]:
        return self._known or fit_classes(self._met)

    def codes(self, texts: pa.Array, name: str, place: Place) -> Ints:
        """The kinds of a batch of edges, numbered as they were met."""
        row = first_row(texts, None)
        if row >= 0:
            raise FedpubError(f"{place(row)}: column {name!r} is empty; give every edge its kind, or remove it")
        new = [kind for kind in pc.unique(texts).to_pylist() if kind not in self._met]
        if new and self._known is not None:
            raise FedpubError(
                f"{place(first_row(texts, new[0]))}: {new[0]!r} in column {name!r} is not one of the kinds of edges in "
                f"the encoding given with `like` ({some(self._known)}); correct it, or import every site again with it"
            )
        self._met += new
        if len(self._met) > MAX_KINDS:
            raise FedpubError(
                f"{place(first_row(texts, self._met[MAX_KINDS]))}: column {name!r} has more than {MAX_KINDS} different "
                "values, too many to be kinds of edges; group them, or choose another `edge_type` column"
            )
        found = pc.index_in(texts, value_set=pa.array(self._met, texts.type))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    def sorted(self, codes: Ints) -> Ints:
        """Codes in the order of the names."""
        position = {kind: at for at, kind in enumerate(self.names)}
        return np.array([position[kind] for kind in self._met])[codes]


def _refuse_repeated(given: Edges, row_E: Ints, ids: Ids, place: Place) -> None:
    """Raise an error if an edge is given twice, naming both rows."""
    source, target = given.ends.numpy()
    low, high = (source, target) if given.directed else (np.minimum(source, target), np.maximum(source, target))
    kind = np.zeros_like(low) if given.kind is None else given.kind.numpy()
    order = np.lexsort((high, low, kind))
    same = [part[order][1:] == part[order][:-1] for part in (low, high, kind)]
    again = np.flatnonzero(np.logical_and.reduce(same) & (low != high)[order][1:])
    if len(again):
        at = again[row_E[order[again + 1]].argmin()]
        one, two = int(order[at]), int(order[at + 1])
        raise FedpubError(
            f"{place(int(row_E[two]))}: the edge of {ids.texts[int(source[two])].as_py()!r} and "
            f"{ids.texts[int(target[two])].as_py()!r} is also that of {place(int(row_E[one]))}; remove one of them, or "
            "choose `duplicates=merge` or `duplicates=sum`"
        )
