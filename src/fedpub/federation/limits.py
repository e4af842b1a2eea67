"""A site's policy while it runs: the file is read again when it changes, and what was used is counted in the log.

The audit log outlives restarts, and a site's owner who moves the folder `runs` away leaves it where it is.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedpub.core.files import stamp
from fedpub.errors import FedpubError
from fedpub.experiment import Plan
from fedpub.federation.journal import FILE as LOG
from fedpub.federation.journal import BrokenError, parsed
from fedpub.federation.policy import FILE, Policy

DAY = timedelta(hours=24)


class Limits:
    """The limits of the site in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stamp = folder, stamp(folder / FILE)
        self._policy = _read(folder) or Policy()
        self._used = Used(folder / LOG)

    def now(self) -> Policy:
        """The current policy; an error, as often as it is asked for, while the file is invalid.

        While there is no file, what was there last remains in force: editors and `mv` remove it for a moment.
        """
        if (found := stamp(self._folder / FILE)) not in (None, self._stamp) and (read := _read(self._folder)):
            self._stamp, self._policy = found, read
        if isinstance(self._policy, FedpubError):
            raise FedpubError(*self._policy.args)  # a new one: each has its own traceback
        return self._policy

    def check(self, plan: Plan, sites: int, precision: str) -> None:
        self.now().check(plan, sites, precision)

    def check_new_round(self) -> None:
        if self.now().rounds_per_day is not None:
            self._used.read()
            self.now().check_new_round(self._used.rounds)

    def check_new_run(self, run: str) -> None:
        """A run that was begun within the last 24 hours is not a new one."""
        if self.now().runs_per_day is not None:
            self._used.read()
            if run not in self._used.runs:
                self.now().check_new_run(len(self._used.runs))


def _read(folder: Path) -> Policy | FedpubError | None:
    try:
        return Policy.read(folder)
    except FedpubError as error:
        return error


class Used:
    """The rounds and runs of the last 24 hours in an audit log, of which each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._place = path, 0, 0
        self._answered: dict[tuple[str, str], datetime] = {}  # message and answer, and when it first left
        self._begun: dict[str, datetime] = {}

    @property
    def rounds(self) -> int:
        return len(self._answered)

    @property
    def runs(self) -> set[str]:
        return {*self._begun}

    def read(self) -> None:
        since = datetime.now(UTC) - DAY
        if self._path.is_file():
            with self._path.open("rb") as file:
                known = os.fstat(file.fileno())
                if known.st_ino != self._file or known.st_size < self._place:
                    self._file, self._place = known.st_ino, 0
                file.seek(self._place)
                for line in file:
                    if line.endswith(b"\n"):
                        self._place += len(line)
                        self._take(line, since)
        self._answered = {key: when for key, when in self._answered.items() if when >= since}
        self._begun = {run: when for run, when in self._begun.items() if when >= since}

    def _take(self, text: bytes, since: datetime) -> None:
        if b'"direction":"out"' not in text:
            return
        try:
            entry = parsed(text).entry
            when = datetime.fromisoformat(entry["time"])
            if when < since or not entry["run"]:
                return
            if entry["kind"] == "round":
                self._answered.setdefault((entry["question"], entry["digest"]), when)
            if entry["kind"] in ("begun", "join"):
                self._begun.setdefault(entry["run"], when)
        except (BrokenError, KeyError, ValueError, TypeError):
            return  # fedpub audit verify reports it
