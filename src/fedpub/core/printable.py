"""What others say, made fit to be shown: sites and coordinators choose these words, and a terminal obeys some."""

from __future__ import annotations

LONGEST = 200


def printable(text: object, longest: int = LONGEST) -> str:
    """One line of at most `longest` characters; what is not printable, such as an escape code, is spelt out."""
    said = str(text)
    spelt = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in said[: 2 * longest])
    return spelt if len(spelt) <= longest and len(said) <= 2 * longest else f"{spelt[: longest - 1]}…"
