"""Modules that are imported on first access, so that `import fedpub` is cheap and sufficient."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def submodules(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose modules are its attributes."""

    def find(name: str) -> Any:
        if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return find
