"""What a user declares about the columns of a node table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import get_args

from fedpub.data.tables.encoding import Kind, Rule
from fedpub.errors import FedpubError, unknown

FITTING: Mapping[Rule, tuple[Kind, ...]] = {  # the kinds of columns that a rule for missing cells is for
    "mean": ("numeric", "plain", "time"),
    "zero": ("numeric", "plain"),
    "category": ("category", "boolean", "hashed"),
}


@dataclass(frozen=True)
class Rules:
    """Which columns are not what they seem, and what becomes of missing cells."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)  # by column, what it is whatever it looks like
    widths: Mapping[str, int] = field(default_factory=dict)  # of hashed columns
    missing: Mapping[str, Rule] = field(default_factory=dict)  # by column
    otherwise: tuple[Rule, ...] = ()  # for all columns that one of these rules fits

    def rule(self, column: str, kind: Kind) -> Rule:
        """What becomes of the missing cells of a column."""
        given = self.missing.get(column)
        if given is None:
            return next((rule for rule in self.otherwise if kind in FITTING.get(rule, ())), "refuse")
        if given != "refuse" and kind not in FITTING[given]:
            fitting = [rule for rule, kinds in FITTING.items() if kind in kinds]
            raise FedpubError(
                f"`missing={column}={given}` is not possible, because the column is {DESCRIBED.get(kind, kind)}; "
                f"choose {' or '.join([*fitting, 'refuse'])}"
            )
        return given

    @property
    def texts(self) -> list[str]:
        """The columns to read as text, whatever they look like."""
        return [name for name, kind in self.kinds.items() if kind in ("category", "hashed", "time")]


DESCRIBED: Mapping[Kind, str] = {
    "numeric": "numeric",
    "plain": "numeric",
    "time": "a date",
    "category": "text",
    "hashed": "text",
    "boolean": "true or false",
    "bag": "a list",
    "vector": "a list",
}
SETTINGS: Mapping[str, Kind] = {"categorical": "category", "dates": "time", "plain": "plain", "hash": "hashed"}


def declared(
    names: Sequence[str],
    taken: Mapping[str, str],
    source: str,
    says: Mapping[str, Collection[str]],
) -> Rules:
    """The rules for a table with columns of these names, of which some are `taken` for something else, by what a user
    says: the settings of SETTINGS, and missing."""
    hashed = {}
    for one in says["hash"]:
        column, _, width = one.rpartition("=")
        if not column or not width.isdecimal() or int(width) < 1:
            raise FedpubError(f"`hash={one}` has no width; write the column and a number of features, such as shop=64")
        hashed[column] = int(width)
    kinds: dict[str, Kind] = {}
    widths: dict[str, int] = {}
    asked: dict[str, str] = {}  # by column, the setting that names it
    for setting, kind in SETTINGS.items():
        for pattern in hashed if kind == "hashed" else says[setting]:
            for column in matching(pattern, names, f"{setting} column", source, taken):
                if column in taken:
                    raise FedpubError(
                        f"column {column!r} cannot be `{setting}`: it is {taken[column]}; remove it from that list"
                    )
                if asked.setdefault(column, setting) != setting:
                    raise FedpubError(
                        f"column {column!r} cannot be both `{asked[column]}` and `{setting}`; choose one of them"
                    )
                kinds[column] = kind
                if kind == "hashed":
                    widths[column] = hashed[pattern]
    by_column, otherwise = _missing(says["missing"], names, taken, source)
    return Rules(kinds, widths, by_column, otherwise)


def matching(pattern: str, names: Sequence[str], role: str, source: str, taken: Collection[str] = ()) -> Sequence[str]:
    """The columns that a pattern means: the one of that name, else those that fit its `*` and `?` and are free."""
    if pattern in names:
        return [pattern]
    found = (
        [name for name in names if fnmatchcase(name, pattern) and name not in taken] if set("*?") & set(pattern) else []
    )
    if not found:
        raise FedpubError(f"{source}: {unknown(role, pattern, names)}")
    return found


def _missing(
    given: Collection[str], names: Sequence[str], taken: Mapping[str, str], source: str
) -> tuple[dict[str, Rule], tuple[Rule, ...]]:
    """Rules of columns, and rules for all: `age=mean category`."""
    by_column: dict[str, Rule] = {}
    otherwise: list[Rule] = []
    for one in given:
        pattern, _, word = one.rpartition("=")
        rule: Rule | None = next((rule for rule in get_args(Rule) if rule == word), None)
        if rule is None:
            raise unknown(f"rule for missing cells in `missing={one}`,", word, get_args(Rule))
        if not pattern:
            if clash := [other for other in otherwise if set(FITTING.get(other, ())) & set(FITTING.get(rule, ()))]:
                raise FedpubError(
                    f"`missing={clash[0]}` and `missing={rule}` are both for numeric columns; choose one for all, and "
                    f"write the columns of the other, such as age={rule}"
                )
            otherwise.append(rule)
            continue
        for column in matching(pattern, names, "column with missing cells", source, taken):
            if column in taken:
                raise FedpubError(
                    f"`missing={one}` is not possible: column {column!r} is {taken[column]}, not a feature; leave it "
                    "out"
                )
            by_column[column] = rule
    return by_column, tuple(otherwise)
