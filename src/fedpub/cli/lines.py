"""Lines that a verb prints while it runs: for people, or with --log-json as JSON objects, one per line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedpub.core.printable import printable

if TYPE_CHECKING:
    from fedpub.flower.site_view import Answered
    from fedpub.store.record import Row

LOG_JSON = "--log-json"
LONGEST = 2000  # characters of a text
WARNINGS = frozenset(
    {
        *("refused", "left out", "removed", "began anew", "could not join"),
        *("certificate", "stuck", "trouble", "waiting", "note", "warning"),
    }
)


def as_line(message: str, event: str, level: str = "info", **fields: Any) -> str:
    """One JSON object: what is always there first, then what belongs to the event."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    held = {"time": now, "level": level, "event": event, **fields, "message": message}
    return json.dumps({name: _plain(value) for name, value in held.items()}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Text on one line, as sites may have sent it; numbers that JSON knows."""
    if isinstance(value, str):
        return printable(value, LONGEST)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class Lines:
    """Prints lines with `show`; `about` is in every JSON object, such as the name of the site."""

    def __init__(self, as_json: bool, show: Callable[[str], None], **about: Any) -> None:
        self._as_json, self._show, self._about = as_json, show, about

    def __call__(self, line: str, event: str = "note", **fields: Any) -> None:
        level = "warning" if event in WARNINGS else "info"
        self._show(as_line(line, event, level, **self._about | fields) if self._as_json else line)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """An event of the coordinator, as its folder logs it."""
        place = f"round {event['round']}" if event["round"] else "the run"
        line = f"{place}: {event['site'] or 'coordinator'} {event['event']}: {event['reason']}"
        self(line, event["event"], site=event["site"], round=event["round"], reason=event["reason"])

    def on_round(self, row: Row, rounds: int) -> None:
        """A finished round; for people there is a bar."""
        if self._as_json:
            numbers = {"seconds": round(row.seconds, 3), "validation": row.mean("val"), "test": row.mean("test")}
            self(f"round {row.round} of {rounds}", "round", round=row.round, rounds=rounds, **numbers)

    def on_answer(self, one: Answered) -> None:
        """A message that a site has answered; for people only what is unusual is shown."""
        if self._as_json:
            numbers = {"seconds": round(one.seconds, 3), "bytes_in": one.bytes_in, "bytes_out": one.bytes_out}
            event = "answered" if one.result == "answered" else "refused"
            self(f"{one.kind} {one.result}", event, kind=one.kind, round=one.round, result=one.result, **numbers)
