"""How far a long piece of work has come."""

from __future__ import annotations

from collections.abc import Callable

Step = Callable[[str, int, int | None], None]  # what is being done, how much of it is done, of how much if known


def silent(what: str, done: int, total: int | None) -> None:
    """Nobody watches."""
