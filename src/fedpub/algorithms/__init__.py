"""The methods, one file each; `METHODS` has them by their names on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.fedgnn import FedGNN
from fedpub.algorithms.fedper import FedPer
from fedpub.algorithms.fedprox import FedProx
from fedpub.algorithms.fedpub import FedPub
from fedpub.algorithms.fedpub_plus import FedPubPlus
from fedpub.algorithms.fedsage import FedSage
from fedpub.algorithms.gcfl import GCFL
from fedpub.algorithms.local import Local
from fedpub.algorithms.oracle import Oracle
from fedpub.algorithms.protocol import Algorithm, Context
from fedpub.errors import FedpubError, unknown

METHODS: dict[str, type[Algorithm]] = {
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedper": FedPer,
    "fedgnn": FedGNN,
    "fedsage": FedSage,
    "gcfl": GCFL,
    "oracle": Oracle,
    "fedpub": FedPub,
    "fedpub-plus": FedPubPlus,
}
ALSO_CALLED = {"fedsage+": "fedsage"}  # names used in papers


def method_called(name: str) -> str:
    """The name in `METHODS` of a method that may have other names, too."""
    name = ALSO_CALLED.get(name, name)
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return name


def title_of(method: str) -> str:
    """The display name of a method; its plain name if it has no `title` or is unknown."""
    title: str = vars(METHODS.get(method, object)).get("title", method)
    return title


def has_all_data(method: str) -> bool:
    """Whether a method trains on the whole graph in one place, which no federation can."""
    return bool(getattr(METHODS.get(method), "undivided", False))


def options_of(method: str) -> list[str]:
    kind: Any = METHODS[method]
    return [one.name for one in fields(kind)]


def check_owned(names: Iterable[str], method: str) -> None:
    """Raise an error if one of these settings is an option of other methods only."""
    for name in names:
        owners = [other for other in METHODS if name in options_of(other)]
        if owners and method not in owners:
            *others, last = owners
            listed = f"{', '.join(others)} and {last}" if others else last
            raise FedpubError(f"`{name}` is an option of {listed}, not of {method}; leave it out, or change `method`")


__all__ = [
    "ALSO_CALLED",
    "GCFL",
    "METHODS",
    "Algorithm",
    "Context",
    "FedAvg",
    "FedGNN",
    "FedPer",
    "FedProx",
    "FedPub",
    "FedPubPlus",
    "FedSage",
    "Local",
    "Oracle",
    "check_owned",
    "has_all_data",
    "method_called",
    "options_of",
    "title_of",
]
