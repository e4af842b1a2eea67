"""From a named or an own graph to the clients of an experiment."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
