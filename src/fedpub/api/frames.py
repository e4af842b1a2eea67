"""Tables as a notebook shows them: data frames and HTML."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedpub.errors import FedpubError

if TYPE_CHECKING:
    from pandas import DataFrame

CELL = "padding: 0.1em 0.8em; text-align: "


def data_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    frame: DataFrame = pandas().DataFrame(rows)
    return frame


def pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise FedpubError("data frames need pandas, which is not installed: pip install 'fedpub[notebook]'") from error
    return pandas


def html_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], bold: Collection[tuple[int, int]] = ()
) -> str:
    """A plain table whose cells are escaped text; `bold` holds (row, column) pairs."""

    def line(row: Sequence[str], tag: str, number: int = -1) -> str:
        cells = []
        for column, text in enumerate(row):
            look = CELL + ("right" if column else "left") + ("; font-weight: bold" if (number, column) in bold else "")
            cells.append(f'<{tag} style="{look}">{html.escape(text)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    above = f"<thead>{line(headings, 'th')}</thead>" if headings else ""
    body = "".join(line(row, "td", number) for number, row in enumerate(rows))
    caption = f'<caption style="text-align: left">{html.escape(title)}</caption>'
    return f"<table>{caption}{above}<tbody>{body}</tbody></table>"
