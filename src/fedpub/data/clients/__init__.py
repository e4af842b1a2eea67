"""Who holds what: from one graph to the pieces of its clients, and to all pieces stacked."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
