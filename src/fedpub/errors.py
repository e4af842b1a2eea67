"""Errors that a user can fix."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable

# A setting in a message, such as `rounds` or `rounds=0`: shown as written in Python, and as a flag on the command line.
SETTING = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`")


class FedpubError(Exception):
    """One sentence that names the value, the place and the way out; the command line exits with status 2.

    Settings are in backquotes, which are removed before the sentence is shown.
    """

    def __str__(self) -> str:
        return SETTING.sub(lambda found: found[0][1:-1], super().__str__())

    def with_flags(self) -> str:
        """The sentence as the command line prints it."""
        return with_flags(super().__str__())


def with_flags(text: str) -> str:
    """A text with its settings as flags."""
    return SETTING.sub(_flag, text)


def _flag(found: re.Match[str]) -> str:
    flag, value = f"--{found[1].replace('_', '-')}", found[2]
    if value in ("True", "False"):
        return flag if value == "True" else f"--no-{flag[2:]}"
    return flag if value is None else f"{flag} {value}"


def unknown(kind: str, value: str, known: Iterable[str]) -> FedpubError:
    """The error for a name that does not exist, with the closest names that do."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    near = [by_lower[name] for name in difflib.get_close_matches(value.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}" if near else f"choose one of {', '.join(known)}"
    return FedpubError(f"unknown {kind} {value!r}: {hint}")


class Note(UserWarning):
    """What a user should know although nothing is wrong; the command line shows every text once."""


def note(text: str) -> None:
    warnings.warn(text, Note, stacklevel=2)
