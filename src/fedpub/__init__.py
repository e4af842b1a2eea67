"""Personalised subgraph federated learning: FED-PUB and its baselines.

What `__all__` names is loaded when it is first used, so that `import fedpub` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpub.core.lazy import submodules
from fedpub.version import __version__

if TYPE_CHECKING:
    from fedpub.api.calls import compare, graph_from_pyg, load, load_graph, predict, run
    from fedpub.api.results import Comparison, Run
    from fedpub.api.sweep import Sweep, sweep
    from fedpub.data.graph import Graph
    from fedpub.errors import FedpubError
    from fedpub.experiment import Experiment

__all__ = [
    "Comparison",
    "Experiment",
    "FedpubError",
    "Graph",
    "Run",
    "Sweep",
    "__version__",
    "compare",
    "graph_from_pyg",
    "load",
    "load_graph",
    "predict",
    "run",
    "sweep",
]

_HOME = dict.fromkeys(("compare", "graph_from_pyg", "load", "load_graph", "predict", "run"), "fedpub.api.calls")
_HOME |= dict.fromkeys(("Comparison", "Run"), "fedpub.api.results")
_HOME |= dict.fromkeys(("Sweep", "sweep"), "fedpub.api.sweep")
_HOME |= {"Experiment": "fedpub.experiment", "FedpubError": "fedpub.errors", "Graph": "fedpub.data.graph"}
_submodule = submodules(__name__)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        return _submodule(name)
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
