"""How a column is encoded, decided by what it holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from fedpub.data.tables import values
from fedpub.data.tables.cells import Content, are_numbers, first_row
from fedpub.data.tables.encoding import Column, Kind, Rule
from fedpub.data.tables.rules import Rules
from fedpub.data.tables.table import Floats, Table
from fedpub.errors import FedpubError

MAX_CATEGORIES = 100
NO_RULES = Rules()
NATURAL: Mapping[Content, Kind] = {  # what a column becomes unless something else is declared
    "numbers": "numeric",
    "truth values": "boolean",
    "text": "category",
    "times": "time",
    "lists": "bag",
}


def fit_column(table: Table, name: str, rules: Rules = NO_RULES) -> Column | str:
    """How to encode a column, or why it is left out."""
    content = table.content(name)
    if content == "nothing":
        return "left out: every cell is empty"
    if content == "other":
        kind = table.type_name(name)
        return f"left out: {kind} is none of numbers, text, dates, lists of numbers and truth values; convert it"
    if name in rules.kinds and content == "lists":
        raise FedpubError(
            f"{table.source}: column {name!r} holds lists, which become features as they are; name another"
        )
    kind = rules.kinds.get(name) or NATURAL[content]
    missing = rules.rule(name, kind)
    match kind:
        case "numeric" | "plain":
            return _fit_number(table, name, kind, missing)
        case "boolean":
            return _fit_truth(table, name, missing)
        case "category":
            return _fit_category(table, name, missing, asked=name in rules.kinds)
        case "time":
            return _fit_times(table, name, missing)
        case "hashed":
            values.texts(table, name, missing, remedy(name, "category"))
            return Column(name, "hashed", missing=missing, size=rules.widths[name])
    return _fit_list(table, name)


def remedy(name: str, rule: Rule) -> str:
    return f"correct it, allow empty cells with `missing={name}={rule}`, or leave the column out with `drop={name}`"


def _fit_number(table: Table, name: str, kind: Kind, missing: Rule) -> Column | str:
    found, gone = values.numbers(table, name, missing, remedy(name, "mean"))
    if gone.all():
        return "left out: every cell is empty"
    if missing == "zero":
        found[gone] = 0
    known = found if missing == "zero" else found[~gone]
    fitted = fit_numbers(name, kind, known, missing)
    if fitted is None and not gone.any():
        return f"left out: always {found[0]:g}"
    fitted = fitted or Column(name, kind, float(known[0]), missing=missing)
    return Column(name, kind, fitted.mean, missing=missing) if kind == "plain" else fitted


def fit_numbers(name: str, kind: Kind, values: Floats, missing: Rule = "refuse", size: int = 1) -> Column | None:
    """The column with its mean and deviation; None if it is constant."""
    std = float(values.std())
    # By rounding, a constant 0.1 has a deviation above 0, and numbers near the smallest float one of 0.
    if values.min() == values.max() or std == 0:
        return None
    return Column(name, kind, float(values.mean()), std, missing=missing, size=size)


def _fit_truth(table: Table, name: str, missing: Rule) -> Column | str:
    found = values.codes(table, table.text(name), values.TRUTH, name, missing, remedy(name, "category"))
    if found.min() == found.max():
        return (
            f"left out: always {values.TRUTH[found[0]]}"
            if found[0] < len(values.TRUTH)
            else "left out: every cell is empty"
        )
    return Column(name, "boolean", missing=missing)


def _fit_category(table: Table, name: str, missing: Rule, asked: bool = False) -> Column | str:
    texts = table.text(name)
    categories = sorted(pc.unique(texts.drop_null()).to_pylist())
    count, way_out = len(categories), remedy(name, "category")
    if count > MAX_CATEGORIES:
        if asked:
            raise FedpubError(
                f"{table.source}: column {name!r} has {count:,} different values, more than the {MAX_CATEGORIES} that "
                "a `categorical` column may have; group them, such as zip codes by their first digits, or hash them "
                f"with `hash={name}=64`"
            )
        written = are_numbers(texts)
        if 2 * pc.sum(written).as_py() > len(texts):  # one typo must not turn a numeric column into text
            row = first_row(written, False)
            raise FedpubError(
                f"{table.place(row)}: {texts[row].as_py()!r} in column {name!r} is not a number, as most are; {way_out}"
            )
        return (
            f"left out: text with {count:,} different values, more than {MAX_CATEGORIES}; group them, or hash them "
            f"into a number of features with hash {name}=64"
        )
    found = values.codes(table, texts, categories, name, missing, way_out)
    if count == 0:
        return "left out: every cell is empty"
    if count == 1 and not found.any():
        return f"left out: always {categories[0]}"
    return Column(name, "category", categories=tuple(categories), missing=missing)


def _fit_times(table: Table, name: str, missing: Rule) -> Column | str:
    day, clock, gone = values.times(table, name, missing, remedy(name, "mean"))
    if gone.all():
        return "left out: every cell is empty"
    size = 3 if clock[~gone].any() else 1
    fitted = fit_numbers(name, "time", day[~gone], missing, size)
    if fitted is None and size == 1 and not gone.any():
        return f"left out: always {np.datetime64(int(day[0]), 'D')}"
    return fitted or Column(name, "time", float(day[~gone][0]), missing=missing, size=size)


def _fit_list(table: Table, name: str) -> Column | str:
    lists = table.lists(name)
    integers = all(pa.types.is_integer(part.types[name].value_type) for part in table.parts)
    if integers:
        largest = pc.max(lists.flatten()).as_py()
        if largest is None:
            return "left out: every list is empty"
        fitted = Column(name, "bag", size=int(largest) + 1)
    else:
        longest = pc.max(pc.list_value_length(lists)).as_py()
        if not longest:
            return "left out: every list is empty"
        fitted = Column(name, "vector", size=int(longest))
    values.check_lists(table, fitted, lists)
    return fitted


def fit_degree(degree_N: Tensor) -> Column:
    """The only feature of a graph without feature columns."""
    # If all nodes have the same degree it is not standardised, which would make it zero.
    return fit_numbers("degree", "degree", log_degree(degree_N)) or Column("degree", "degree")


def log_degree(degree_N: Tensor) -> Floats:
    return np.log1p(degree_N.numpy().astype(np.float64))
