"""What a site's audit log says, by run and kind of message."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpub.core.printable import printable
from fedpub.federation.journal import BrokenError, is_torn, lines


@dataclass
class Messages:
    """The messages of one kind in one run."""

    run: str
    kind: str
    received: int = 0
    sent: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    first: str = ""
    last: str = ""


@dataclass
class Refusals:
    """Answers that only say why the site refuses, by their reason."""

    run: str
    reason: str
    times: int = 0
    last: str = ""


@dataclass
class LogSummary:
    """All that was exchanged, as far as the log is intact."""

    lines: int = 0
    messages: list[Messages] = field(default_factory=list)
    refusals: list[Refusals] = field(default_factory=list)
    torn: bool = False
    """Whether the last line was cut short: its message has not left."""
    defect: str | None = None
    """The first line that is not as it was written; all before it is counted."""


def summarized(path: Path) -> LogSummary:
    found = LogSummary(torn=is_torn(path))
    messages: dict[tuple[str, str], Messages] = {}
    refusals: dict[tuple[str, str], Refusals] = {}
    try:
        for line in lines(path):
            found.lines = line.number
            _count(line.entry, messages, refusals)
    except BrokenError as error:
        found.defect = str(error)
    found.messages, found.refusals = [*messages.values()], [*refusals.values()]
    return found


def _count(
    entry: dict[str, Any], messages: dict[tuple[str, str], Messages], refusals: dict[tuple[str, str], Refusals]
) -> None:
    run, kind, time = (printable(entry[name] or "unknown") for name in ("run", "kind", "time"))
    one = messages.setdefault((run, kind), Messages(run, kind, first=time))
    one.last = time
    if entry["direction"] == "in":
        one.received, one.bytes_in = one.received + 1, one.bytes_in + entry["bytes"]
    else:
        one.sent, one.bytes_out = one.sent + 1, one.bytes_out + entry["bytes"]
    if "reason" in entry:
        reason = printable(entry["reason"])
        refused = refusals.setdefault((run, reason), Refusals(run, reason))
        refused.times, refused.last = refused.times + 1, time
