"""The verb that shows what the others do."""

from __future__ import annotations

from fedpub.cli.data import stats


def demo() -> None:
    """Divide the built-in graph among clients and show what they look like.

    Example: fedpub demo
    """
    stats("communities", "natural")
    stats("communities", "overlapping", (10, 20))
