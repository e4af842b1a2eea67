"""Whether an audit log is as it was written, and whether the logs of a coordinator and of a site tell the same.

A log alone shows what was changed, left out or moved within it. That its last lines were cut off, or that all of it was
written again, is shown by the log of the other end: the coordinator's lines name, countersigned, the hash of the site's
line about every answer. With the sites' keys, a coordinator's log also shows whether it was written again with other
answers (`signatures.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpub.errors import FedpubError
from fedpub.federation.journal import FILE, BrokenError, is_torn, lines
from fedpub.federation.logged import FLOWER, KEY, Verify
from fedpub.federation.signatures import Signatures, is_answer


@dataclass
class Checked:
    """What a log shows on its own."""

    path: Path
    end: str | None = None
    """Whose log it is, coordinator or site; None if it is empty."""
    lines: int = 0
    answers: int = 0
    """Answers that the coordinator has taken."""
    countersigned: int = 0
    over_flower: int = 0
    """Answers that came by `flwr run`, which has no countersignatures."""
    keys: dict[str, list[str]] = field(default_factory=dict)
    """The keys that have signed, by site."""
    torn: bool = False
    """Whether the last line was cut short: its message has not left."""
    defect: str | None = None


@dataclass
class Compared:
    """What two logs show together."""

    messages: int = 0
    """Answers that both logs have, with the messages that they answer."""
    late: int = 0
    """Answers in the site's log that were too late, or not taken, by the coordinator's log."""
    elsewhere: int = 0
    """Answers in the site's log in runs of which the coordinator's log has nothing."""
    defect: str | None = None


def log_of(place: Path) -> Path:
    """The log in a folder, or the file itself."""
    path = place / FILE if place.is_dir() else place
    if not path.is_file():
        raise FedpubError(f"there is no audit log {path}; name the folder of a coordinator or of a site")
    return path


def checked(path: Path, verify: Verify, given: Mapping[str, Collection[str]] | None = None) -> Checked:
    """Read a log line by line, up to the first that is wrong; `given`: the keys of each site, by the sites."""
    found = Checked(path, torn=is_torn(path))
    signatures = Signatures(verify, given)
    try:
        for line in lines(path):
            entry = line.entry
            if found.end not in (None, entry["at"]):
                raise BrokenError(f"line {line.number} is of the other end's log")
            found.end, found.lines = entry["at"], line.number
            if _is_taken(entry):
                found.answers += 1
                found.over_flower += entry.get("over") == FLOWER
            if entry["at"] == "coordinator" and (key := signatures.check(line)):
                found.countersigned += 1
                if key not in found.keys.setdefault(entry["site"], []):
                    found.keys[entry["site"]].append(key)
    except BrokenError as error:
        found.defect = str(error)
    return found


def _is_taken(entry: dict[str, Any]) -> bool:
    """Whether a line is about an answer that the coordinator has taken."""
    return entry["at"] == "coordinator" and is_answer(entry)


def compared(coordinator: Path, site: Path) -> Compared:
    """Compare two logs, each of which is intact."""
    theirs, found = _Site.read(site), Compared()
    asked: set[str] = set()  # digests of the messages to the site: others get the same bytes from many methods
    runs: set[str] = set()
    unanswered: dict[str, int] = {}  # messages to the site without an outcome, and their lines
    taken: set[tuple[str, str]] = set()
    for line in lines(coordinator):
        entry = line.entry
        digest, question = str(entry["digest"]), str(entry["question"])
        if entry["direction"] == "out" and entry["run"]:
            runs.add(entry["run"])
        if entry["direction"] == KEY or not (entry["site"] == theirs.name or _is_unnamed(entry)):
            continue
        if entry["direction"] == "out":
            asked.add(digest)
            unanswered[digest] = line.number
            continue
        unanswered.pop(question, None)
        if not is_answer(entry) or (_is_unnamed(entry) and (question, digest) not in theirs.answered):
            continue
        if "head" in entry and theirs.answers.get(entry["head"]) != (question, digest):
            found.defect = (
                f"the site's log lacks the line of the answer in line {line.number} of the coordinator's log, which "
                "the site has countersigned: the site's log was cut off or written again"
            )
            return found
        if (question, digest) not in theirs.answered:
            found.defect = f"the site's log lacks the answer in line {line.number} of the coordinator's log"
            return found
        taken.add((question, digest))
    common = {pair for pair in theirs.answered if theirs.asked.get(pair[0], (0, None))[1] in runs}
    found.messages, found.late = len(taken), len(common - taken)
    found.elsewhere = len(theirs.answered - common - taken)
    found.defect = _what_the_coordinator_lacks(theirs, runs, asked, unanswered)
    return found


def _is_unnamed(entry: dict[str, Any]) -> bool:
    """Whether a line is about a node of `flwr run` that has not yet said which site it is: it may be any."""
    return entry.get("over") == FLOWER and str(entry["site"]).startswith("node ")


@dataclass
class _Site:
    """A site's log as the coordinator's is compared with it."""

    name: str = ""
    asked: dict[str, tuple[int, str | None]] = field(default_factory=dict)  # digest: line and run
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)  # hash of a line: question and answer
    answered: set[tuple[str, str]] = field(default_factory=set)

    @staticmethod
    def read(path: Path) -> _Site:
        found = _Site()
        for line in lines(path):
            entry = line.entry
            found.name = entry["site"]
            if entry["direction"] == "in":
                found.asked.setdefault(entry["digest"], (line.number, entry["run"]))
            else:
                found.answers[line.hash] = pair = entry["question"], entry["digest"]
                found.answered.add(pair)
        return found


def _what_the_coordinator_lacks(site: _Site, runs: set[str], asked: set[str], unanswered: dict[str, int]) -> str | None:
    """A message of a run that both know, or an answer, that only the site's log has."""
    if not any(run in runs for _, run in site.asked.values()):
        return "the two logs have no run in common: one of them was cut off, or they are of different federations"
    for digest, (number, run) in site.asked.items():
        if run in runs and digest not in asked:
            return (
                f"the coordinator's log lacks the message in line {number} of the site's log: the coordinator's log "
                "was cut off or written again"
            )
    for question, _ in sorted(site.answered):
        if question in unanswered:
            return (
                f"the coordinator's log does not say what became of the message in line {unanswered[question]}, which "
                "the site has answered: the coordinator is waiting, was ended at that moment, or its log was cut off"
            )
    return None
