"""What a site has been asked in a run, so that a coordinator cannot ask for more than was agreed.

The file is written before an answer is computed and survives every restart, even one that begins the run anew:

- each question (a round, an exchange before the rounds, a step of joining) is answered for one message only; the same
  message again gets the same answer, a different one is refused;
- rounds only go forward, so there are never more answers than rounds;
- a round is computed from the state after the last one; if the coordinator reports that this answer was late, from
  the state before it, but only a limited number of times (`taken_back`);
- a site adds its part to the sum of a round for one list of survivors, and sums only go forward, too;
- a site that lost its state begins anew at most `ANEW` times, with the same experiment; each time, its current round
  may be asked once more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedpub.core.files import write_text
from fedpub.errors import FedpubError

FILE, ASKED = "asked.json", "letters"  # the file, and the name of `Ledger.asked` in it
ANEW = 3  # how often a site may begin a run anew
BACK, EVERY = 3, 4  # answers that may be reported lost: 3, and one more for every 4 rounds


@dataclass
class Ledger:
    """The record of one run at one site; changed in memory, then saved."""

    path: Path
    terms: str = ""  # the digest of what the run is about
    attempt: int = -1
    anew: int = 0
    taken_back: int = 0
    over: int = -1  # sums of rounds up to this one are not given any more, whatever is asked again
    asked: dict[str, str] = field(default_factory=dict)  # question: digest of the message that asked it

    @staticmethod
    def open(folder: Path) -> Ledger:
        path = folder / FILE
        if not path.is_file():
            return Ledger(path)
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            return Ledger(path, asked=held.pop(ASKED), **held)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise FedpubError(
                f"{path} cannot be read, so this site does not know what it has answered; restore the file, or "
                f"move {folder} away to take part as a new site"
            ) from error

    def save(self) -> None:
        content = asdict(self)
        del content["path"]
        content[ASKED] = content.pop("asked")
        write_text(self.path, json.dumps(content, indent=1) + "\n")

    def begin(self, terms: str, attempt: int) -> None:
        """Record that a run begins, or begins anew, with these terms."""
        if self.terms not in ("", terms):
            raise FedpubError("this run has begun with other terms, which cannot change; start a new run for them")
        if attempt <= self.attempt:
            return
        if self.terms:
            if self.anew >= ANEW:
                raise FedpubError(f"this site has begun the run anew {ANEW} times, which is the limit; start a new run")
            self.anew += 1
            self.asked.pop(f"round {self.newest}", None)
        self.terms, self.attempt = terms, attempt
        self.save()

    @property
    def newest(self) -> int:
        """The last round that was asked for; 0 if there was none."""
        words = [name.split(" ") for name in self.asked]
        return max((int(number) for kind, number in words if kind == "round"), default=0)

    def forget_sums(self, number: int) -> None:
        """Forget the sums of earlier rounds, of which nothing is answered any more, even if a run begins anew."""
        self.over = max(self.over, number - 1)
        kept = ("round", "exchange", "join")
        self.asked = {
            name: digest
            for name, digest in self.asked.items()
            if name.startswith(kept) or int(name.split(" ")[1].partition(".")[0]) >= number
        }

    def check(self, question: str, digest: str) -> None:
        """Raise an error if the question was asked before by a different message."""
        if self.asked.get(question, digest) != digest:
            raise FedpubError(f"{question} was asked before by another message; a site answers each question once")

    def note(self, question: str, digest: str, *, back: bool = False, rounds: int = 0) -> None:
        """Record that the question will be answered; `back`: from the state before the last one."""
        if question in self.asked:
            return
        if back:
            if self.taken_back >= BACK + rounds // EVERY:
                raise FedpubError(
                    f"{self.taken_back} answers of this site were reported lost, which is the limit; start a new run"
                )
            self.taken_back += 1
        self.asked[question] = digest
        self.save()
