"""Who may be connected to the gate: limits that hold before TLS, so that strangers cost little.

A connection is a stranger's until a request on it was signed with an admitted key. Of strangers there are few: where
there is no more room, the oldest goes and the newest may try. So whoever holds connections open keeps no site away,
since a site shows its key within milliseconds.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

REMEMBERED = 4096  # addresses whose last connections are counted


@dataclass(frozen=True)
class Limits:
    """The most of everything that the gate holds at one time."""

    strangers: int = 256
    """Connections without an admitted key."""
    per_address: int = 64
    """Those of one address."""
    burst: int = 256
    """New connections of one address at once."""
    per_second: float = 32.0
    """New connections of one address in the long run."""
    per_site: int = 8
    """Connections of one site; beyond that the oldest is closed."""
    requests: float = 64.0
    """Requests of one site per second in the long run, and eight times as many at once."""
    under_way: int = 4
    """Concurrent requests of one site."""
    largest: int = 2**23
    """Bytes of one request: Flower sends arrays in pieces of 5 MiB, everything else at once."""
    held: int = 2**27
    """Bytes of all requests that are being read."""
    head_seconds: float = 10.0
    """For TLS, for the head of a request, and for a stranger's connection without one."""
    idle_seconds: float = 30.0
    """Without a byte from a site, or without an answer."""
    kept_seconds: float = 300.0
    """For the open connection of a site between two requests: it may train for a while."""
    slowest: float = 2**14
    """Bytes per second of a request, once it has taken `idle_seconds`."""


@dataclass(eq=False)
class Guest:
    """One connection; `close` ends it at once."""

    address: str
    close: Callable[[], object] = lambda: None
    site: str | None = None


@dataclass
class _Bucket:
    tokens: float
    at: float


@dataclass
class Lobby:
    """All connections, oldest first; `refused` counts those that were closed, by reason."""

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    refused: Counter[str] = field(default_factory=Counter)
    _strangers: dict[str, dict[Guest, None]] = field(default_factory=dict)  # by address
    _sites: dict[str, dict[Guest, None]] = field(default_factory=dict)
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _requests: dict[str, _Bucket] = field(default_factory=dict)

    @property
    def strangers(self) -> int:
        return sum(map(len, self._strangers.values()))

    def enter(self, guest: Guest) -> bool:
        """Whether a new connection may begin; an older one may have to go for it."""
        if not self._takes(self._buckets, guest.address, self.limits.burst, self.limits.per_second):
            self.refused["too many connections"] += 1
            return False
        mine = self._strangers.setdefault(guest.address, {})
        if len(mine) >= self.limits.per_address:
            self._evict(mine)
        elif self.strangers >= self.limits.strangers:
            self._evict(max(self._strangers.values(), key=len))
        self._strangers.setdefault(guest.address, {})[guest] = None
        return True

    def is_known(self, guest: Guest, site: str) -> None:
        """A request on the connection was signed with the key of this site."""
        if guest.site == site:
            return
        self.leave(guest)
        guest.site = site
        mine = self._sites.setdefault(site, {})
        if len(mine) >= self.limits.per_site:
            self._evict(mine)
        self._sites.setdefault(site, {})[guest] = None

    def leave(self, guest: Guest) -> None:
        groups, name = (self._strangers, guest.address) if guest.site is None else (self._sites, guest.site)
        mine = groups.get(name, {})
        mine.pop(guest, None)
        if not mine:
            groups.pop(name, None)

    def _evict(self, group: dict[Guest, None]) -> None:
        self.refused["too many connections"] += 1
        oldest = next(iter(group))
        self.leave(oldest)
        oldest.close()

    def takes_request(self, site: str) -> bool:
        """Whether this site has asked rarely enough; counts this request."""
        return self._takes(self._requests, site, 8 * self.limits.requests, self.limits.requests)

    def _takes(self, buckets: dict[str, _Bucket], name: str, most: float, per_second: float) -> bool:
        now = self.clock()
        bucket = buckets.pop(name, None) or _Bucket(most, now)
        bucket.tokens = min(bucket.tokens + (now - bucket.at) * per_second, most)
        bucket.at = now
        buckets[name] = bucket  # the one heard of last is at the end
        if len(buckets) > REMEMBERED:
            del buckets[next(iter(buckets))]
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def network_of(address: str) -> str:
    """What counts as one address: with IPv6, all that a single host may choose from."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address) or known.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((known, 64), strict=False))
