"""Personalised subgraph federated learning: FED-PUB and its baselines.

What `__all__` names is loaded when it is first used, so that `import fedpub` costs nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpub.api import compare, graph_from_pyg, load, load_graph, predict, run
    from fedpub.data.graph import Graph
    from fedpub.errors import FedpubError
    from fedpub.experiment import Experiment
    from fedpub.notebook import Comparison, Run

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Experiment",
    "FedpubError",
    "Graph",
    "Run",
    "__version__",
    "compare",
    "graph_from_pyg",
    "load",
    "load_graph",
    "predict",
    "run",
]

_HOME = dict.fromkeys(("compare", "graph_from_pyg", "load", "load_graph", "predict", "run"), "fedpub.api")
_HOME |= dict.fromkeys(("Comparison", "Run"), "fedpub.notebook")
_HOME |= {"Experiment": "fedpub.experiment", "FedpubError": "fedpub.errors", "Graph": "fedpub.data.graph"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        return submodule("fedpub", name)
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def submodule(package: str, name: str) -> Any:
    """A module of a package by its attribute, so that `import fedpub` is enough to use any."""
    if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(f"{package}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
