"""The coordinator's rounds inside Flower's server process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedpub.engine.deployed import play
from fedpub.engine.federate import SITES, Coordinator, Known
from fedpub.engine.flower.exchange import FlowerExchange
from fedpub.engine.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.engine.flower.keys import read_admitted
from fedpub.engine.flower.processes import LEADER, is_alive
from fedpub.engine.joining import Finished
from fedpub.engine.wire import Letter, WireError, decode, encode
from fedpub.errors import FedpubError
from fedpub.files import write_text
from fedpub.results import RunDirectory

LOOK = 2.0  # seconds between two looks at who is there


def coordinate(grid: Any, path: Path, joins: bool = False) -> None:
    """Play the run of a coordinator's folder, or let new sites join it when it is finished.

    What goes wrong is left there for whoever started it.
    """
    folder = CoordinatorFolder(path)
    _end_with(os.environ.get(LEADER))
    try:
        config = CoordinatorConfig.load(path)
        write_text(folder.process, f"{os.getpid()}\n")
        known = Known.load(path / SITES)
        admitted = list(read_admitted(folder.admitted))
        sites = list(known.sites) if known else admitted  # who is admitted later is not in the run
        if joins:
            _serve_joins(grid, folder, config, known, [site for site in admitted if site not in sites])
            return
        if folder.nodes.is_file():
            held = {site: int(node) for site, node in json.loads(folder.nodes.read_text(encoding="utf-8")).items()}
            nodes = _by_key(grid, {number: held[site] for number, site in enumerate(sites) if site in held})
        else:
            nodes = _by_claim(grid, sites, config.run)

        def on_event(client: int | None, what: str, number: int, reason: str) -> None:
            folder.event(None if client is None else sites[client], what, number, reason)

        exchange = FlowerExchange(grid, nodes)
        coordinator = Coordinator(config.experiment, config.run, sites, exchange, path, config.terms, on_event)
        play(coordinator, folder.out(config), on_step=lambda name, done, total: on_event(None, "set-up", done, name))
    except FedpubError as error:
        write_text(folder.failure, f"{error}\n")
        raise


def _serve_joins(
    grid: Any, folder: CoordinatorFolder, config: CoordinatorConfig, known: Known | None, new: list[str]
) -> None:
    """Let every new site that comes join once, for as long as the coordinator's process lives."""
    out = RunDirectory(folder.out(config))
    if known is None or not out.finished:
        raise FedpubError(f"the run of {folder.path} is not finished: sites can join when it is")
    start, _ = out.restore(torch.device("cpu"))
    assert start is not None, "a finished run has a checkpoint"
    held = {site: int(node) for site, node in json.loads(folder.nodes.read_text(encoding="utf-8")).items()}
    finished = Finished(config.experiment, config.run, known, start.server, start.clients)
    waiting = list(new)
    while waiting:
        there = set(grid.get_node_ids())
        for site in [one for one in waiting if held.get(one) in there]:
            exchange = FlowerExchange(grid, _by_key(grid, {0: held[site]}))
            try:
                told = finished.join(site, len(known.sites) + new.index(site), exchange, config.terms.deadline)
                folder.event(site, "joined", 0, json.dumps(told))
            except (FedpubError, KeyError, ValueError, TypeError, RuntimeError) as error:  # whatever it sent
                folder.event(site, "could not join", 0, str(error))
            waiting.remove(site)
        time.sleep(LOOK)
    write_text(folder.joined, "")


def _end_with(leader: str | None) -> None:
    """End when the coordinator's process has ended: Flower's link and this one may not notice, and hold the run."""

    def watch(pid: int) -> None:
        while is_alive(pid):
            time.sleep(0.5)
        os._exit(1)

    if leader:
        threading.Thread(target=watch, args=(int(leader),), daemon=True).start()


def _by_key(grid: Any, held: Mapping[int, int]) -> Callable[[], Mapping[int, int]]:
    """The nodes of the sites' keys that are there: a key is who a site is, whatever it says."""
    seen: dict[str, Any] = {"at": float("-inf"), "nodes": set()}

    def now() -> Mapping[int, int]:
        if time.monotonic() - seen["at"] > LOOK:
            seen.update(at=time.monotonic(), nodes=set(grid.get_node_ids()))
        return {client: node for client, node in held.items() if node in seen["nodes"]}

    return now


def _by_claim(grid: Any, sites: list[str], run: str) -> Callable[[], Mapping[int, int]]:
    """In a federation of Flower's own, nodes are who they say they are: it decides who may join."""
    known: dict[int, int] = {}

    def now() -> Mapping[int, int]:
        fresh = {number: node for number, node in enumerate(grid.get_node_ids()) if node not in known.values()}
        if fresh:
            letter = encode(Letter("hello", {"run": run}, {}))
            said = FlowerExchange(grid, lambda: fresh)(dict.fromkeys(fresh, letter), 30.0)
            for number, data in said.items():
                try:
                    name = decode(data).fields.get("site")
                except WireError:
                    continue
                if name in sites:
                    known[sites.index(str(name))] = fresh[number]
        return known

    return now
