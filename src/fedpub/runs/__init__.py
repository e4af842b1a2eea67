"""Running experiments, and using their results: comparison, prediction, tracking."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
