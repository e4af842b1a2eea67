"""From a named or an own graph to the clients of an experiment."""

from typing import Any

from fedpub import submodule


def __getattr__(name: str) -> Any:
    return submodule("fedpub.data", name)
