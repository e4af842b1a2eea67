"""What a monitor shows of a site: filled by its loop, read by another thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fedpub.federation.wire_header import LIMIT, WireError, parse, split
from fedpub.flower.metrics import OTHER, PROCESS, Family, Metrics, watch_process
from fedpub.version import __version__

KINDS = ("hello", "begin", "setup", "ready", "round", "finish", "join")
RESULTS = ("answered", "refused", "lost")
SILENT = 60.0  # seconds without contact from which on something is wrong

FAMILIES = (
    Family("fedpub_up", "1 if /healthz finds nothing wrong."),
    Family("fedpub_build_info", "Version, as a label.", {"version": (__version__,)}),
    Family("fedpub_round", "Last round that the site was asked for."),
    Family("fedpub_answer_seconds", "Duration of the last answer in seconds."),
    Family("fedpub_answers_seconds_total", "Duration of all answers in seconds."),
    Family("fedpub_bytes_total", "Bytes of messages, in and out.", {"direction": ("in", "out")}),
    Family("fedpub_messages_total", "Messages by kind and by result.", {"kind": KINDS, "result": RESULTS}),
    Family("fedpub_connected", "1 if the last request to the coordinator was answered."),
    Family("fedpub_contact_seconds", "Seconds since the coordinator last answered."),
    *PROCESS,
)


@dataclass(frozen=True)
class Answered:
    """One message, for a log: its kind, its round (0: none), what became of it, seconds, and bytes in and out."""

    kind: str
    round: int
    result: str
    seconds: float
    bytes_in: int
    bytes_out: int


class SiteView:
    """State and numbers of a running site; `on_answer` is called after every message."""

    def __init__(
        self, on_answer: Callable[[Answered], object] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.metrics = Metrics(FAMILIES)
        self._on_answer, self._clock = on_answer, clock
        self._contact, self._connected, self._answering, self._round = clock(), False, False, 0
        self.metrics.set("fedpub_build_info", 1, version=__version__)
        self.metrics.ask("fedpub_up", lambda: float(self.health()["problem"] is None))
        self.metrics.ask("fedpub_connected", lambda: float(self._connected))
        self.metrics.ask("fedpub_contact_seconds", lambda: self._clock() - self._contact)
        watch_process(self.metrics)

    def contact(self, works: bool) -> None:
        """Whether the coordinator has just answered a request."""
        self._connected = works
        if works:
            self._contact = self._clock()

    def timed(self, data: bytes, answer: Callable[[bytes], bytes]) -> bytes:
        """The answer to a message, which is noted."""
        began, self._answering = self._clock(), True
        try:
            found = answer(data)
        finally:
            self._answering, self._contact = False, self._clock()
        self._note(data, found, self._clock() - began)
        return found

    def _note(self, data: bytes, answer: bytes, seconds: float) -> None:
        kind, number = _kind_and_round(data)
        said, _ = _kind_and_round(answer)
        result = said if said in RESULTS else RESULTS[0]
        if number:
            self._round = number
            self.metrics.set("fedpub_round", number)
        self.metrics.add("fedpub_bytes_total", len(data), direction="in")
        self.metrics.add("fedpub_bytes_total", len(answer), direction="out")
        self.metrics.add("fedpub_messages_total", kind=kind, result=result)
        self.metrics.set("fedpub_answer_seconds", seconds)
        self.metrics.add("fedpub_answers_seconds_total", seconds)
        self._on_answer(Answered(kind, number, result, seconds, len(data), len(answer)))

    def health(self) -> dict[str, object]:
        state = "answering" if self._answering else "connected" if self._connected else "disconnected"
        silent = self._clock() - self._contact
        problem = None
        if silent > SILENT and not self._answering:  # an answer may take minutes, and polls nothing meanwhile
            problem = f"no contact with the coordinator for {silent:.0f} s"
        return {"state": state, "problem": problem, "round": self._round}

    def metrics_text(self) -> str:
        return self.metrics.text()


def _kind_and_round(data: bytes) -> tuple[str, int]:
    """The kind of a message, if it is a known one, and its round. What other machines send is not believed."""
    try:
        header = parse(split(data, LIMIT)[0])
        kind, number = header["kind"], header["fields"].get("round", 0)
    except (WireError, KeyError, AttributeError, TypeError):
        return OTHER, 0
    plain = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
    return kind if kind in (*KINDS, *RESULTS) else OTHER, number if plain else 0
