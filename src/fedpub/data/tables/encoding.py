"""How the columns of tables become features and edges: decided once, stored with the graph, the same at every site."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fedpub.data.graph import Graph
from fedpub.errors import FedpubError

META_KEY = "encoding"  # where a graph keeps its encoding
MATRIX = "(features file)"  # the name of features that are not in a column
SHOWN = 8

Kind = Literal["numeric", "plain", "boolean", "category", "time", "hashed", "bag", "vector", "matrix", "degree"]
Rule = Literal["refuse", "mean", "zero", "category"]  # for missing cells
Aim = Literal["class", "labels", "number"]  # what is learnt of a node: one class, several labels, a number


@dataclass(frozen=True)
class Column:
    """How one column becomes features; `degree` is log(1 + degree of the node), for tables without features.

    With a rule for missing cells, one more feature says which are missing.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    missing: Rule = "refuse"
    size: int = 1  # features of a kind that has neither one nor as many as there are categories

    @property
    def known(self) -> int:
        """How many features say what is in a cell."""
        return len(self.categories) if self.kind == "category" else self.size

    @property
    def width(self) -> int:
        return self.known + (self.missing != "refuse")

    def __str__(self) -> str:
        return (
            self._said()
            + {
                "refuse": "",
                "mean": "; one more says which are missing, filled with the mean",
                "zero": "; one more says which are missing, filled with 0",
                "category": "; one more for those that are missing or new",
            }[self.missing]
        )

    def _said(self) -> str:
        match self.kind:
            case "boolean":
                return "feature: 0 or 1"
            case "category":
                return f"{self.known} features, one-hot: {some(self.categories)}"
            case "plain":
                return "feature: as it is"
            case "time":
                clock = " and the time of day as sine and cosine" if self.size > 1 else ""
                return f"{counted(self.size)}: the day, standardised{clock}"
            case "hashed":
                return f"{counted(self.size)}, one of them 1: that of the text's hash"
            case "bag":
                return f"{counted(self.size)}: how often each number is in the list"
            case "vector" | "matrix":
                return f"{counted(self.size)}: as they are"
        return f"feature: standardised, mean {self.mean:.4g} and deviation {self.std:.4g} become 0 and 1"


@dataclass(frozen=True)
class Encoding:
    """What all sites must share: the columns in order, the classes, and what is known of edges."""

    columns: tuple[Column, ...]
    classes: tuple[str, ...]
    aim: Aim = "class"
    weighted: bool = False
    directed: bool = False
    kinds: tuple[str, ...] = ()

    def to_json(self) -> str:
        columns = [_told(column) for column in self.columns]
        return json.dumps({**asdict(self), "columns": columns}, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Encoding:
        loaded = json.loads(text)
        columns = (Column(**{**one, "categories": tuple(one.get("categories", ()))}) for one in loaded.pop("columns"))
        classes, kinds = tuple(loaded.pop("classes")), tuple(loaded.pop("kinds", ()))
        return Encoding(tuple(columns), classes, kinds=kinds, **loaded)

    @staticmethod
    def read(path: Path) -> Encoding:
        """The encoding of an imported graph, or one in a JSON file of its own."""
        try:
            if path.suffix == ".json":
                return Encoding.from_json(path.read_text(encoding="utf-8"))
            return Encoding.from_json(Graph.load(path, labelled=False).meta[META_KEY])
        except FileNotFoundError as error:
            raise FedpubError(f"there is no file {path}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FedpubError(
                f"{path} has no encoding of columns; give a graph or an encoding that fedpub data import wrote"
            ) from error


def _told(column: Column) -> dict[str, Any]:
    """The fields of a column that differ from their defaults: there may be thousands of columns."""
    told = asdict(column)
    return {one.name: told[one.name] for one in fields(column) if told[one.name] != one.default}


def some(names: Sequence[str]) -> str:
    """The first few names, to keep a sentence short."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def counted(features: int) -> str:
    return "1 feature" if features == 1 else f"{features:,} features"
