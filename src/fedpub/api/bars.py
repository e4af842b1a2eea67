"""Progress bars in a notebook or a terminal."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedpub.store.record import Row


class Silent:
    """A bar that shows nothing."""

    def on_prepare(self, what: str, done: int, total: int | None) -> None:
        """Show what comes before everything else."""

    def on_step(self, name: str, done: int, total: int) -> None:
        """Show an exchange before the first round."""

    def on_round(self, row: Row, rounds: int) -> None:
        """Show a finished round."""


class NotebookBar(Silent):
    """A bar in a notebook's cell, over `total` runs."""

    SECONDS = 0.2  # between two updates

    def __init__(self, total: int) -> None:
        from IPython.display import HTML, display

        self._html, self._total, self._run, self._shown = HTML, total, 1, 0.0
        self._handle = display(HTML(""), display_id=True)

    def on_prepare(self, what: str, done: int, total: int | None) -> None:
        self._show(done, total or 1, what)

    def on_step(self, name: str, done: int, total: int) -> None:
        self._show(done, total, f"set-up: {name}")

    def on_round(self, row: Row, rounds: int) -> None:
        values = f"validation {100 * row.mean('val'):.2f}, test {100 * row.mean('test'):.2f}"
        self._show(row.round, rounds, f"round {row.round} of {rounds}, {values}")
        self._run += row.round == rounds

    def _show(self, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if now - self._shown < self.SECONDS:
            return
        self._shown = now
        said = f"run {self._run} of {self._total}, {text}" if self._total > 1 else text
        bar = f'<progress value="{done}" max="{total}"></progress> {html.escape(said)}'
        self._handle.update(self._html(bar))

    def close(self) -> None:
        self._handle.update(self._html(""))


@contextmanager
def progress(wanted: bool, total: int = 1) -> Iterator[Any]:
    """A bar if there is a notebook or a terminal to show it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if wanted and getattr(shell, "kernel", None) is not None:
        bar = NotebookBar(total)
        try:
            yield bar
        finally:
            bar.close()
    elif wanted and sys.stderr is not None and sys.stderr.isatty():
        from fedpub.runs.progress import progress as in_terminal

        with in_terminal(False, total=total) as shown:
            yield shown
    else:
        yield Silent()
