"""Whether every answer in a coordinator's log is countersigned by its site.

The log itself says by which key each site was admitted when; these lines are the coordinator's own, and it can write
them again. Only keys that come from the sites themselves show that it has signed nothing in their place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedpub.core.printable import printable
from fedpub.federation.countersigned import signed_text
from fedpub.federation.journal import BrokenError, Line
from fedpub.federation.logged import DROPPED, FLOWER, KEY, SILENT, Verify


def is_answer(entry: dict[str, Any]) -> bool:
    """Whether a line of the coordinator is about an answer that it has taken."""
    return entry["direction"] == "in" and ("signature" in entry or entry["kind"] not in (DROPPED, SILENT))


class Signatures:
    """The keys that may have signed, at the place in the log that was reached; `given`: those that sites gave."""

    def __init__(self, verify: Verify, given: Mapping[str, Collection[str]] | None = None) -> None:
        self._verify, self._given = verify, given
        self._now: dict[str, str | None] = {}
        self._asked: dict[tuple[str, str], str | None] = {}  # message to a site, and the site's key when it left
        self._over: dict[str, object] = {}  # what each run is over

    def check(self, line: Line) -> str | None:
        """Take the next line; the key that has signed it. A BrokenError if it is an answer that is not signed."""
        entry = line.entry
        site, run, over = entry["site"], entry["run"], entry.get("over")
        if run and self._over.setdefault(run, over) != over:
            raise BrokenError(f"line {line.number} is of {FLOWER} or not, unlike earlier lines of its run")
        if entry["direction"] == KEY:
            self._now[site] = entry.get("key")
        elif entry["direction"] == "out":
            self._asked[site, entry["digest"]] = self._now.get(site)
        else:
            before = self._asked.pop((site, str(entry["question"])), None)
            if is_answer(entry):
                return self._signed(line, {before, self._now.get(site)})
        return None

    def _signed(self, line: Line, admitted: set[str | None]) -> str | None:
        entry, site = line.entry, printable(line.entry["site"])
        if "signature" not in entry:
            if entry.get("over") == FLOWER and self._given is None:
                return None
            raise BrokenError(f"line {line.number} is an answer of {site} without its countersignature")
        key = str(entry.get("key"))
        try:
            text = signed_text(entry["run"], entry["question"], entry["digest"], entry["head"])
            good = self._verify(key, bytes.fromhex(entry["signature"]), text)
        except (KeyError, ValueError, TypeError):
            good = False
        if not good:
            raise BrokenError(f"line {line.number} has a countersignature of {site} that is wrong")
        signed = f"line {line.number} is countersigned with a key that"
        if key not in admitted:
            raise BrokenError(f"{signed} {site} did not have, by this log")
        if self._given is not None and key not in self._given.get(entry["site"], ()):
            raise BrokenError(f"{signed} {site} did not have, by the keys given")
        return key
