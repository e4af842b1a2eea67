"""Clients: a graph is partitioned, every client gets its subgraph, and subgraphs are stacked."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
