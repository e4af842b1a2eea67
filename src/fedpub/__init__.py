"""Personalised subgraph federated learning: FED-PUB and its baselines.

What `__all__` names is loaded when it is first used, so that `import fedpub` costs nothing.
"""

from __future__ import annotations

import importlib
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
        raise AttributeError(f"module 'fedpub' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
