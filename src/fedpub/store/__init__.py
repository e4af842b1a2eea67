"""Runs and models on disk."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
