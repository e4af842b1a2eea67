"""From an experiment to its result, and what is done with results: comparing, predicting, tracking."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
