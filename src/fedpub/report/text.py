"""Numbers, p-values and tables as text, for reports, terminals, notebooks and the paper's recipes.

Bold marks the best of its cell: the highest mean, and all that show the same two decimals. The oracle is never bold,
since no federation can train it, and neither is the only method of a cell. A method that ties with the best within
noise is not bold: the p-values show such ties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedpub.algorithms import has_all_data, title_of
from fedpub.report.style import method_of

BOLD = "bold is best, the oracle aside"


def titled(label: str) -> str:
    """A label with its method's title, as `FED-PUB (tau=5.0)`; a name that no method has is left unchanged."""
    name, variant, rest = label.partition(" (")
    return title_of(name) + variant + rest


def number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2f}"


def spread(mean: float | None, deviation: float | None = None) -> str:
    """A mean with its deviation; a single seed has no deviation."""
    return number(mean) + ("" if deviation is None or not number(mean) else f" ± {deviation:.2f}")


def signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}".replace("-", "−")


def percent(share: float | None) -> str:
    """A metric between 0 and 1, in percent."""
    return "none" if share is None else f"{100 * share:.2f} %"


def whole_percent(share: float | None) -> str:
    return "" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def p_value(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def best(cell: Mapping[str, float | None]) -> set[str]:
    """The labels shown in bold among the methods of a cell."""
    known = {
        label: round(value, 2)
        for label, value in cell.items()
        if value is not None and not math.isnan(value) and not has_all_data(method_of(label))
    }
    return {label for label, value in known.items() if value == max(known.values())} if len(known) > 1 else set()


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table whose first `words` columns are text and the others numbers."""
    aligned = ["---" if place < words else "---:" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, aligned, *rows))


def escaped(text: str) -> str:
    """The text with its Markdown markup escaped."""
    flat = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\|`*_[]<>" else character for character in flat)


def bold(text: str) -> str:
    return f"**{text}**" if text else ""
