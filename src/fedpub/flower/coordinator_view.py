"""What a monitor shows of a coordinator: filled by the rounds, read by another thread."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedpub.algorithms import METHODS
from fedpub.federation.requests import Exchange, as_they_come
from fedpub.flower.metrics import OTHER, PROCESS, Family, Metrics, watch_process
from fedpub.store.record import Row
from fedpub.version import __version__

# Events in which a site's message, or the site itself, was not accepted.
REFUSALS = ("refused", "left out", "removed", "began anew", "could not join")
DIRECTIONS = ("up", "down")
# Why the gate refuses requests and connections, before any of it reaches the rounds.
AT_THE_GATE = ("too many connections", *(f"HTTP {status}" for status in (400, 401, 404, 413, 502, 503, 504)))
PRESENT, ADMITTED, REMOVED = "present", "admitted", "removed"
NEAR = 0.8  # share of the watchdog's limit without progress from which on something is wrong

FAMILIES = (
    Family("fedpub_up", "1 if /healthz finds nothing wrong."),
    Family(
        "fedpub_build_info", "Version and method, as labels.", {"version": (__version__,), "method": tuple(METHODS)}
    ),
    Family("fedpub_round", "Last finished round."),
    Family("fedpub_rounds", "Rounds of the run."),
    Family("fedpub_round_seconds", "Duration of the last round in seconds."),
    Family("fedpub_rounds_seconds_total", "Duration of all rounds of this process in seconds."),
    Family(
        "fedpub_bytes_total",
        "Bytes of messages, up from sites and down to them, set-up included.",
        {"direction": DIRECTIONS},
    ),
    Family("fedpub_sites", "Sites of the run by state.", {"state": (PRESENT, ADMITTED, REMOVED)}),
    Family("fedpub_refusals_total", "Events in which a site or its answer was not accepted.", {"reason": REFUSALS}),
    Family("fedpub_gate_refusals_total", "Requests and connections that the gate refused.", {"reason": AT_THE_GATE}),
    Family("fedpub_gate_strangers", "Connections that have not shown an admitted key."),
    Family("fedpub_validation", "Mean validation value of the last round, between 0 and 1 for classes."),
    *PROCESS,
)


class CoordinatorView:
    """State and numbers of a running coordinator."""

    def __init__(self) -> None:
        self.metrics = Metrics(FAMILIES)
        self.metrics.ask("fedpub_up", lambda: float(self.health()["problem"] is None))
        watch_process(self.metrics)
        self.state, self.round, self.rounds = "starting", 0, 0
        self.is_serving: Callable[[], bool] = lambda: True
        self._moved, self._limit = time.monotonic, float("inf")

    def begin(self, method: str, rounds: int, rows: list[Row]) -> None:
        """The run that is played, and what an earlier process has finished of it."""
        self.metrics.set("fedpub_build_info", 1, version=__version__, method=method)
        self.metrics.set("fedpub_rounds", rounds)
        self.round, self.rounds = rows[-1].round if rows else 0, rounds
        self.metrics.set("fedpub_round", self.round)

    def watch(self, moved: Callable[[], float], limit: float) -> None:
        """When something last moved, and for how long nothing may."""
        self._moved, self._limit = moved, limit

    def on_round(self, row: Row) -> None:
        self.round = row.round
        self.metrics.set("fedpub_round", row.round)
        self.metrics.set("fedpub_round_seconds", row.seconds)
        self.metrics.add("fedpub_rounds_seconds_total", row.seconds)
        self.metrics.set("fedpub_validation", row.mean("val"))

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] in REFUSALS:
            self.metrics.add("fedpub_refusals_total", reason=event["event"])

    def on_presence(self, present: int, members: Collection[str], admitted: Collection[str]) -> None:
        """How many sites are connected, which are in the run, and which of all are admitted."""
        left = sum(site not in admitted for site in members)
        for state, count in ((PRESENT, present), (ADMITTED, len(members) - left), (REMOVED, left)):
            self.metrics.set("fedpub_sites", count, state=state)

    def on_gate(self, strangers: int, refused: Mapping[str, int]) -> None:
        """What the gate has counted since it was started."""
        self.metrics.set("fedpub_gate_strangers", strangers)
        counts = Counter[str]()
        for reason, count in refused.items():
            counts[reason if reason in AT_THE_GATE else OTHER] += count
        for reason, count in counts.items():
            self.metrics.set("fedpub_gate_refusals_total", count, reason=reason)

    def counted(self, exchange: Exchange) -> Exchange:
        """The exchange, with its bytes counted as in clients.csv: a message for every site that is asked."""
        return _Counted(exchange, self)

    def health(self) -> dict[str, object]:
        return {"state": self.state, "problem": self._problem(), "round": self.round, "rounds": self.rounds}

    def _problem(self) -> str | None:
        if not self.is_serving():
            return "the gate has closed or does not answer, so no site can connect"
        idle = time.monotonic() - self._moved()
        if idle > NEAR * self._limit:
            return f"no progress for {idle:.0f} s; after {self._limit:.0f} s the process ends"
        return None

    def metrics_text(self) -> str:
        return self.metrics.text()


@dataclass(frozen=True)
class _Counted:
    exchange: Exchange
    view: CoordinatorView

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        return dict(self.stream(messages, deadline))

    def stream(self, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        metrics = self.view.metrics
        metrics.add("fedpub_bytes_total", sum(map(len, messages.values())), direction="down")
        for client, answer in as_they_come(self.exchange, messages, deadline):
            metrics.add("fedpub_bytes_total", len(answer), direction="up")
            if self.view.state == "waiting":
                self.view.state = "running"
            yield client, answer
