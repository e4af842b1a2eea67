"""A site's process: it has data and state, and is a Flower node itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.federation.journal import FILE as LOG
from fedpub.federation.journal import Journal
from fedpub.federation.logged import SiteLog
from fedpub.federation.secure.run_keys import WAY
from fedpub.federation.site import Site
from fedpub.federation.wire import Envelope, encode
from fedpub.flower.countersign import signer
from fedpub.flower.keys import private_key, public_line
from fedpub.flower.peers import FILE as PEERS
from fedpub.flower.preflight import UnreachableError, check_coordinator, context_of
from fedpub.flower.processes import require_flower
from fedpub.flower.site_view import SiteView
from fedpub.flower.sites import AUTHORITY, SiteConfig, open_site

AGAIN = 1.0  # seconds before an unreachable coordinator is tried again
PAUSE = 0.2  # seconds from one request for messages to the next; the coordinator's gate holds it until one comes


class Say(Protocol):
    """Shows a line; `event` is a name for what happened, for programs that read logs."""

    def __call__(self, line: str, event: str = ...) -> object: ...


def run_site(path: Path, say: Say, *, once: bool = False, wait: bool = True, view: SiteView | None = None) -> None:
    """Take part until the process ends or, with `once`, until the run is finished."""
    require_flower()
    view = view or SiteView()
    from fedpub.flower.logs import log_to
    from fedpub.flower.node import ConnectionTroubleError, Node

    path = path.resolve()
    config, site = SiteConfig.load(path), open_site(path)
    site.source  # noqa: B018 - unreadable data is an error now, not in the first round
    site.limits.now()  # and so is a policy that cannot be read
    _say_peers(site, say)  # and a list of peers
    key = private_key(config.key(path))
    log = SiteLog(Journal(path / LOG), config.id, signer(key))
    log_to(path / "logs" / "node.log")
    _introduce(config, path, say, wait)
    said = f"connected to {config.coordinator}"
    say(f"site {config.id}: {said}", "connected")
    view.contact(True)
    with Node(config.coordinator, context_of(path / AUTHORITY), key) as node:
        while not (once and site.finished):
            asked = time.monotonic()
            try:
                got = node.next_message()
                if got is not None:
                    answer = view.timed(got[1], lambda data: log.answer(data, lambda data: answered(site, data)))
                    if site.news:
                        say(f"site {config.id}: {printable(site.news)}", "news")
                        site.news = ""
                    node.reply(got[0], answer)
                now, pause, works = f"connected to {config.coordinator}", 0.0 if got else PAUSE, True
            except ConnectionTroubleError as error:
                now, works = _trouble(config, path) or str(error), False
                asked, pause = time.monotonic(), AGAIN
            view.contact(works)
            if now != said:
                said = now
                say(f"site {config.id}: {said}", "connected" if works else "trouble")
            if not (once and site.finished):
                time.sleep(max(0.0, asked + pause - time.monotonic()))


def _say_peers(site: Site, say: Say) -> None:
    """How many sites this one trusts, if it has a list of them or needs one."""
    count = len(site.identity.peers()) if site.identity else 0
    if count:
        sites = "1 other site" if count == 1 else f"{count} other sites"
        say(f"site {site.name}: trusts {sites} in secure aggregation", "peers")
    elif site.limits.now().secure or (site.folder / PEERS).is_file():
        say(f"site {site.name}: trusts no other site yet; {WAY}", "warning")


def answered(site: Site, data: bytes) -> bytes:
    """The site's answer; whatever goes wrong with one message, the next one is answered."""
    try:
        return site.answer(data)
    except Exception as error:
        site.news = f"could not answer the coordinator: {error!r}"
        return encode(Envelope("refused", {"reason": printable(f"the site failed: {type(error).__name__}")}))


def _trouble(config: SiteConfig, path: Path) -> str | None:
    """Why the site cannot connect, in one sentence; None if the coordinator would admit it right now."""
    try:
        check_coordinator(config.coordinator, path / AUTHORITY, public_line(config.key(path)))
    except FedpubError as error:
        return f"{printable(error)}; trying again"
    return None


def _introduce(config: SiteConfig, path: Path, say: Say, wait: bool) -> None:
    """Check that the coordinator is the right one, and admits this site under its name."""
    waiting = False
    while True:
        try:
            name = check_coordinator(config.coordinator, path / AUTHORITY, public_line(config.key(path)))
            break
        except UnreachableError as error:
            if not wait:
                raise
            if not waiting:
                say(f"site {config.id}: {error}; waiting for it", "waiting")
            waiting = True
            time.sleep(AGAIN)
    if name != config.id:
        raise FedpubError(
            f"the coordinator at {config.coordinator} knows this site's key as {printable(repr(name))}, not "
            f"{config.id!r}; correct the name on one of the two sides"
        )
