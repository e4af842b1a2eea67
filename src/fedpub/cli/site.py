"""The verbs of a site."""

from __future__ import annotations

import json as spelling
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedpub.cli.ending import terminable
from fedpub.cli.lines import Lines
from fedpub.cli.show import as_json
from fedpub.cli.warned import warnings_told
from fedpub.errors import FedpubError
from fedpub.runs.progress import say


def init(id: str, coordinator: str, graph: Path, ca: Path = Path("ca.pem"), folder: Path | None = None) -> None:
    """Make a site's folder with a key of its own, which stays there, and a .pub file for the coordinator.

    Example: fedpub site init --id hospital-a --coordinator fl.example.org:9443 --graph my.graph --ca ca.pem

    Args:
        id: Name of the site in the federation.
        coordinator: Address of the coordinator, HOST:PORT.
        graph: Graph of the site, as `fedpub data import` writes it.
        ca: The coordinator's ca.pem.
        folder: New folder of the site. (default: a folder named after the site)
    """
    from fedpub.flower.setup import make_site

    place = folder or Path(id)
    found, fingerprint = make_site(place, id, coordinator, graph, ca)
    print(f"{place} is ready: {found}")
    print(f"give {place / f'{id}.pub'} to the coordinator ({fingerprint}), then: fedpub site start --folder {place}")


def rotate(folder: Path) -> None:
    """Make a new key for a site; the old one is kept beside it.

    Give the .pub file to the coordinator, wait until it has rotated the key, and restart the site.

    Example: fedpub site rotate --folder hospital-a

    Args:
        folder: Folder of the site.
    """
    from fedpub.flower.peers import FILE as PEERS
    from fedpub.flower.setup import rotate_key

    public, fingerprint = rotate_key(folder)
    print(f"{folder} has a new key, {fingerprint}")
    if (folder / PEERS).is_file():
        print(f"at every site that trusts this one: fedpub site trust FOLDER {public.name} --replace")
    print(f"at the coordinator: fedpub coordinator rotate {public.stem} {public.name}; then start the site again")


def start(
    folder: Path | None = None,
    id: str | None = None,
    coordinator: str | None = None,
    graph: Path | None = None,
    experiment: Path | None = None,
    device: str | None = None,
    once: bool = False,
    wait: bool = True,
    monitor: str | None = None,
    log_json: bool = False,
) -> None:
    """Take part in the coordinator's runs until ended; after a restart the site resumes. SIGTERM ends it with status 0.

    Example: fedpub site start --folder hospital-a --monitor 9464

    Args:
        folder: Folder of the site. (default: the folder named after the site)
        id: Name of the site.
        coordinator: New address of the coordinator, if it has moved.
        graph: New place of the graph, if it has moved; a run that has begun needs the same data.
        experiment: The agreed config.json; from now on the site takes part in nothing else.
        device: Where the site computes from now on: cpu, or cuda for its GPU. (default: cpu, or as in the last start)
        once: Exit after one finished run.
        wait: Waiting for a coordinator that cannot be reached; without it, an error.
        monitor: PORT or HOST:PORT for /healthz and /metrics; a port alone is on 127.0.0.1.
        log_json: Every line as a JSON object, for programs that collect logs.
    """
    from fedpub.core.private import owner_only, tighten
    from fedpub.experiment.checks import checked_device
    from fedpub.flower.monitor import Monitor
    from fedpub.flower.site import run_site
    from fedpub.flower.site_view import SiteView
    from fedpub.flower.sites import SiteConfig, agree

    if folder is None and id is None:
        raise FedpubError("name the site: --folder FOLDER, or --id NAME for the folder of that name")
    place = folder or Path(str(id))
    config = SiteConfig.load(place)
    if id is not None and id != config.id:
        raise FedpubError(f"{place} is the folder of {config.id!r}, not of {id!r}; give the right --folder")
    place_of_graph = str(graph.resolve()) if graph else config.graph
    moved = SiteConfig(config.id, coordinator or config.coordinator, place_of_graph, device or config.device)
    checked_device(moved.device)

    tell = Lines(log_json, lambda line: print(line, flush=True), site=config.id)
    view = SiteView(tell.on_answer)
    try:
        warned = warnings_told(Lines(log_json, say, site=config.id))
        with terminable(), owner_only(), Monitor(monitor, view) as watched, warned:
            if said := tighten(place):
                tell(said, "permissions")
            if moved != config:
                moved.save(place)
            if experiment is not None:
                agree(place, experiment)
            if watched.place:
                tell(f"monitor: {watched.place}", "monitor")
            run_site(place, tell, once=once, wait=wait, view=view)
    except KeyboardInterrupt:
        tell("ended; the site's state is in its folder", "ended")


def join(folder: Path, wait: bool = True, json: bool = False) -> None:
    """Join a finished federation: a model from the members that are most alike, and the gain over training alone.

    The coordinator must have admitted the site, and run `fedpub coordinator start --joins`.

    Example: fedpub site join --folder hospital-e

    Args:
        folder: Folder of the site.
        wait: Waiting for a coordinator that cannot be reached; without it, an error.
    """
    from fedpub.federation.joining import RESULT

    (folder / RESULT).unlink(missing_ok=True)
    with redirect_stdout(sys.stderr) if json else nullcontext():
        start(folder, once=True, wait=wait)
    if not (folder / RESULT).is_file():
        return
    found = spelling.loads((folder / RESULT).read_text(encoding="utf-8"))
    if as_json(found, json):
        return
    table = Table(title=f"{found['metric']} in percent, {found['epochs']} epochs", title_justify="left", box=None)
    for heading in ("", "validation", "test"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in ("alone", "joined"):
        table.add_row(name, *(f"{100 * found[name][column]:.2f}" for column in ("val", "test")))
    gain = [f"{100 * (found['joined'][column] - found['alone'][column]):+.2f}" for column in ("val", "test")]
    table.add_row("gain", *gain)
    console = Console(highlight=False)
    console.print(table)
    near = sorted(found["nearest"].items(), key=lambda pair: -pair[1])[:5]
    console.print("most alike: " + ", ".join(f"{name} {share:.0%}" for name, share in near), soft_wrap=True)
    console.print(
        f"kept, as it is better on the validation set: {found['kept']}, in {folder / 'model'}", soft_wrap=True
    )
