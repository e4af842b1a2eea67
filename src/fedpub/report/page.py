"""The report as one HTML file that needs nothing else: style, script and data are inside it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from fedpub.report.style import DARK_COLOURS, colour_variables


def page(data: dict[str, Any]) -> str:
    """The page. What users named goes into the data only, and from there to the screen as text, never as markup."""
    parts = resources.files("fedpub.report")
    template, style, script = (
        parts.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    style = style.replace("/* light */", colour_variables()).replace("/* dark */", colour_variables(DARK_COLOURS))
    # The data comes last: whatever stands in it is not looked at for a place to fill in.
    filled = template.replace("/* page.css */", style).replace("/* page.js */", script)
    return filled.replace("/* data */", embedded(data))


def dumped(data: dict[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def embedded(data: dict[str, Any]) -> str:
    """JSON that can stand in a script element: no character of it can end the element or begin a comment."""
    text = dumped(data)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
