"""The verb `doctor`. It needs neither rich nor tyro, since it has to work when packages are broken."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import asdict
from json import dumps

from fedpub.cli.checkup import Finding, examine

INDENT = 9  # the width of the states


def doctor(json: bool = False) -> int:
    """Check of the installation, with a fix for everything missing or broken: packages, devices, data, disk, extras.

    A problem keeps fedpub from working and makes the exit status 1; a note does not.

    Example: fedpub doctor

    Args:
        json: Output as JSON.
    """
    found = examine()
    broken = any(one.state == "problem" for one in found)
    whole = {"ok": not broken, "checks": [asdict(one) for one in found]}
    text = dumps(whole, indent=2) if json else "\n".join(line for one in found for line in _lines(one))
    encoding = sys.stdout.encoding or "utf-8"  # a folder's name may hold characters that the terminal lacks
    print(text.encode(encoding, "replace").decode(encoding))
    return int(broken)


def _lines(one: Finding) -> list[str]:
    width = max(40, shutil.get_terminal_size().columns)
    head, below = f"{one.state:<{INDENT}}", " " * INDENT
    said = [(f"{one.what}: {one.found}", head, below)]
    said += [(one.advice, f"{below}-> ", f"{below}   ")] if one.advice else []
    return [
        line
        for text, first, later in said
        # Long words are paths and flags, kept whole for copying.
        for line in textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
        )
    ]
