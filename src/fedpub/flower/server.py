"""The coordinator's rounds with the sites of a folder, for any transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedpub.errors import FedpubError
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.joining import Finished
from fedpub.federation.journal import Journal
from fedpub.federation.known import SITES, Known
from fedpub.federation.logged import Keys, LoggedExchange
from fedpub.federation.recording import FOLDER, Recorder
from fedpub.federation.requests import Exchange
from fedpub.federation.wire import Envelope, decode, encode
from fedpub.federation.wire_header import WireError
from fedpub.flower.exchange import FlowerExchange, GridCarrier, Present
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import read_admitted
from fedpub.runs.loop import OnRound
from fedpub.store.directory import RunDirectory

LOOK = 1.0  # seconds between two checks of which sites are connected

OnLine = Callable[[dict[str, Any]], None]  # called with every event as it is logged


def members(folder: CoordinatorFolder) -> list[str]:
    """The sites of the run; those admitted after it has begun are not in it."""
    known = Known.load(folder.path / SITES)
    return list(known.sites) if known else list(read_admitted(folder.admitted))


def play_rounds(
    folder: CoordinatorFolder,
    config: CoordinatorConfig,
    exchange: Exchange,
    on_round: OnRound | None = None,
    on_line: OnLine = lambda _: None,
    is_member: Callable[[str], bool] = lambda site: True,
    keys: Keys | None = None,
    keep_uploads: bool = False,
) -> dict[str, Any]:
    """Run to the end with the sites for which `is_member` holds; returns the summary.

    With `keys`, only answers that their site has countersigned are used. `keep_uploads` keeps all that the coordinator
    sees in files, for an audit.
    """
    sites = members(folder)

    def on_event(client: int | None, what: str, number: int, reason: str) -> None:
        on_line(folder.event(None if client is None else sites[client], what, number, reason))

    def on_step(name: str, done: int, total: int) -> None:
        on_event(None, "set-up", done, name)

    logged = LoggedExchange(
        exchange,
        Journal(folder.audit),
        sites.__getitem__,
        keys,
        lambda client, number, reason: on_event(client, "refused", number, reason),
    )
    about = (config.experiment, config.run, sites, logged, folder.path, config.terms)
    observe = Recorder(folder.path / FOLDER, sites) if keep_uploads else None
    coordinator = Coordinator(*about, on_event, is_member, observe)
    return play(coordinator, folder.out(config), on_round, on_step)


def serve_joins(
    folder: CoordinatorFolder,
    config: CoordinatorConfig,
    is_there: Callable[[str], bool],
    exchange_with: Callable[[str], Exchange],
    on_line: OnLine = lambda _: None,
    keys: Keys | None = None,
) -> dict[str, Any]:
    """Let every site that was admitted after the run join it once; returns the summary of the run."""
    out, known = RunDirectory(folder.out(config)), Known.load(folder.path / SITES)
    if known is None or not out.finished:
        raise FedpubError(f"the run of {folder.path} is not finished; sites can join when it is")
    start, _ = out.restore(torch.device("cpu"))
    assert start is not None, "a finished run has a checkpoint"
    finished = Finished(config.experiment.resolve(), config.run, known, start.server, start.clients)
    new = [site for site in read_admitted(folder.admitted) if site not in known.sites]
    waiting, journal = list(new), Journal(folder.audit)
    while waiting:
        for site in [one for one in waiting if is_there(one)]:
            number = len(known.sites) + new.index(site)
            try:
                exchange = LoggedExchange(exchange_with(site), journal, {0: site}.__getitem__, keys)
                told = finished.join(site, number, exchange, config.terms.deadline)
                kept = f"it keeps the model {told['kept']!r}" if told.get("kept") else "what it keeps, it does not tell"
                on_line(folder.event(site, "joined", 0, kept))
            except Exception as error:  # whatever it sent
                on_line(folder.event(site, "could not join", 0, str(error) or type(error).__name__))
            waiting.remove(site)
        if waiting:
            time.sleep(LOOK)
    return out.summary()


def coordinate(grid: Any, path: Path) -> None:
    """Play the run of a coordinator's folder in a federation of Flower's own, where nodes say who they are."""
    folder, config = CoordinatorFolder(path), CoordinatorConfig.load(path)
    carrier = GridCarrier(grid)
    with folder.in_use():
        present = _by_claim(grid, carrier, members(folder), config.run, Journal(folder.audit))
        play_rounds(folder, config, FlowerExchange(carrier, present))


def _by_claim(
    grid: Any, carrier: GridCarrier, sites: list[str], run: str, journal: Journal
) -> Callable[[], Mapping[int, Present]]:
    known: dict[int, Present] = {}

    def now() -> Mapping[int, Present]:
        nodes = {present.node for present in known.values()}
        fresh = {number: Present(node) for number, node in enumerate(grid.get_node_ids()) if node not in nodes}
        if fresh:
            data = encode(Envelope("hello", {"run": run}))
            exchange = FlowerExchange(carrier, lambda: fresh)
            logged = LoggedExchange(exchange, journal, lambda number: f"node {fresh[number].node}")
            said = logged(dict.fromkeys(fresh, data), 30.0)
            for number, data in said.items():
                try:
                    name = decode(data).fields.get("site")
                except WireError:
                    continue
                if name in sites:
                    known[sites.index(str(name))] = fresh[number]
        return known

    return now
