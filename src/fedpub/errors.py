"""Problems that a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedpubError(Exception):
    """One sentence that names the value, the place and the way out; the command line exits with status 2."""


def unknown(kind: str, value: str, known: Iterable[str]) -> FedpubError:
    """The error for a name that does not exist, with the nearest names that do."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    near = [by_lower[name] for name in difflib.get_close_matches(value.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}" if near else f"choose one of {', '.join(known)}"
    return FedpubError(f"unknown {kind} {value!r}: {hint}")
