"""The site's machine: the process that has data and state, and Flower's node, which carries its letters."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedpub.engine.flower.keys import public_line
from fedpub.engine.flower.preflight import UnreachableError, check_coordinator
from fedpub.engine.flower.processes import command, free_port, require_flower, start, stop
from fedpub.engine.flower.relay import answering
from fedpub.engine.flower.sites import AUTHORITY, SiteConfig, open_site
from fedpub.errors import FedpubError

AGAIN, FIRST_PAUSE, LAST_PAUSE = 3.0, 1.0, 5.0  # after a kill Flower holds a key to be in use for a minute


def run_site(path: Path, say: Callable[[str], None], *, once: bool = False, wait: bool = True) -> None:
    """Take part until the process is ended or, with `once`, until the run is finished."""
    require_flower()
    path = path.resolve()
    config, site = SiteConfig.load(path), open_site(path)
    site.source  # noqa: B018 - data that cannot be read is said now, not in the first round
    _introduce(config, path, say, wait)
    say(f"site {config.id}: connected to {config.coordinator}")

    def answer(letter: bytes) -> bytes:
        answered = site.answer(letter)
        if site.news:
            say(f"site {config.id}: {site.news}")
            site.news = ""
        return answered

    with answering(answer) as socket:
        words = [command("flower-supernode"), "--superlink", config.coordinator, "--root-certificates"]
        words += [str(path / AUTHORITY), "--auth-supernode-private-key", str(config.key(path))]
        words += ["--node-config", f'id="{config.id}" socket="{socket}"', "--port"]
        log, pause, node = path / "logs" / "node.log", FIRST_PAUSE, None
        try:
            while not (once and site.finished):
                if node is None or node.poll() is not None:
                    if node is not None:
                        say(f"site {config.id}: Flower's node ended, {log} says why; starting it again")
                        time.sleep(pause)
                        pause = min(2 * pause, LAST_PAUSE)
                    node = start([*words, str(free_port())], log, {"FLWR_HOME": str(path / "flower")})
                time.sleep(0.3)
            time.sleep(AGAIN)  # for the last answer to leave
        finally:
            if node is not None:
                stop([node])


def _introduce(config: SiteConfig, path: Path, say: Callable[[str], None], wait: bool) -> None:
    """That the coordinator is who it should be, and admits this site under its name."""
    waiting = False
    while True:
        try:
            name = check_coordinator(config.coordinator, path / AUTHORITY, public_line(config.key(path)))
            break
        except UnreachableError as error:
            if not wait:
                raise
            if not waiting:
                say(f"site {config.id}: {error}; waiting for it")
            waiting = True
            time.sleep(AGAIN)
    if name != config.id:
        raise FedpubError(
            f"the coordinator at {config.coordinator} knows this site's key as {name!r}, not {config.id!r}: "
            "one of you has to correct the name"
        )
