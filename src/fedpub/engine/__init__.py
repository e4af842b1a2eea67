"""The simulator: all clients in this process, stacked."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
