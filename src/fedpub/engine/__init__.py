"""Engines carry a method's messages: `simulate` between clients in this process."""

from typing import Any

from fedpub import submodule


def __getattr__(name: str) -> Any:
    return submodule("fedpub.engine", name)
