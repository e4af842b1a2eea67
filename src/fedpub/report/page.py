"""The report as one self-contained HTML file, with style, script and data inside."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from fedpub.report.style import DARK_COLOURS, colour_variables


def page(data: dict[str, Any], name: str = "page") -> str:
    """The page of this name: NAME.html and NAME.js, with the style and the tools of all pages.

    Names chosen by users appear only in the data, and are displayed as text, never as markup.
    """
    parts = resources.files("fedpub.report")
    template, own, style, tools = (
        parts.joinpath(file).read_text(encoding="utf-8")
        for file in (f"{name}.html", f"{name}.js", "page.css", "tools.js")
    )
    style = style.replace("/* light */", colour_variables()).replace("/* dark */", colour_variables(DARK_COLOURS))
    # The data is inserted last, so that a placeholder inside it is not replaced.
    filled = template.replace("/* style */", style).replace(
        "/* script */", f'"use strict";\n(() => {{\n{tools}\n{own}}})();'
    )
    return filled.replace("/* data */", embedded(data))


def dumped(data: dict[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def embedded(data: dict[str, Any]) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or start a comment."""
    text = dumped(data)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
