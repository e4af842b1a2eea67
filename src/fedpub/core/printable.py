"""Text from sites and coordinators made safe to display: a terminal would execute escape codes in it."""

from __future__ import annotations

LONGEST = 200


def printable(text: object, longest: int = LONGEST) -> str:
    """One line of at most `longest` characters; unprintable characters, such as escape codes, are spelt out."""
    said = str(text)
    spelt = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in said[: 2 * longest])
    return spelt if len(spelt) <= longest and len(said) <= 2 * longest else f"{spelt[: longest - 1]}…"
