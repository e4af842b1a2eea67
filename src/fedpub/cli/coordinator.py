"""The verbs of a federation's coordinator, and of a federation on one machine."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpub.cli.ending import INTERRUPTED, SENTENCE, Terminated, terminable
from fedpub.cli.flags import Settings
from fedpub.cli.lines import Lines
from fedpub.cli.show import as_json, show_result
from fedpub.cli.warned import warnings_told
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.requests import Terms
from fedpub.runs.progress import progress, say
from fedpub.runs.simulated import Result
from fedpub.store.directory import read_rows
from fedpub.store.record import Record, Row

OF_SITES = Experiment("sites", "natural")
AT_SITES = ("clients", "failures", "device", "options")  # settings that each site decides or does not use


def init(
    experiment: Annotated[Experiment, Settings(without=("dataset", "scenario", "alpha", *AT_SITES))] = OF_SITES,
    terms: Terms = Terms(),  # noqa: B008
    folder: Path = Path("coordinator"),
    host: tuple[str, ...] = ("localhost",),
    bind: str = "0.0.0.0",
    port: int = 9443,
    days: int = 397,
) -> None:
    """Make a coordinator's folder: an authority, a certificate, an empty admission list, and the experiment.

    Give ca.pem and config.json of the folder to every site; admit each site by its .pub file.

    Example: fedpub coordinator init --folder coordinator --host fl.example.org --method fedpub --rounds 50

    Args:
        folder: New folder of the coordinator.
        host: Names or addresses at which sites reach this machine, for the certificate.
        bind: Address to listen on.
        port: Port that sites connect to.
        days: Validity of the certificate in days.
    """
    from fedpub.flower.setup import make_coordinator

    make_coordinator(folder, experiment, terms, host, bind, port, days)
    print(f"{folder} is ready: sites need its ca.pem, config.json and the address {host[0]}:{port}")
    print(f"then: fedpub coordinator admit --folder {folder} SITE.pub; fedpub coordinator start --folder {folder}")


def admit(
    keys: tyro.conf.Positional[tuple[Path, ...]], folder: Path = Path("coordinator"), id: str | None = None
) -> None:
    """Admit sites by their public keys; no other site can connect.

    Example: fedpub coordinator admit hospital-a.pub --folder coordinator

    Args:
        keys: The .pub files that `fedpub site init` made.
        folder: Folder of the coordinator.
        id: Name of the site, if it differs from the one in the file.
    """
    from fedpub.flower.folder import CoordinatorConfig
    from fedpub.flower.setup import admit_file

    CoordinatorConfig.load(folder)
    if not keys:
        raise FedpubError("name the .pub file of a site to admit")
    if id and len(keys) > 1:
        raise FedpubError(f"--id {id} is one name for {len(keys)} keys; admit them one by one")
    for key in keys:
        name, fingerprint = admit_file(folder, key, id)
        print(f"{name} is admitted, {fingerprint}")


def remove(site: tyro.conf.Positional[str], folder: Path = Path("coordinator")) -> None:
    """Remove a site: its key is refused at once, and from the next round on it is in no average.

    A run that is in progress continues without it. To take it back: fedpub coordinator admit.

    Example: fedpub coordinator remove hospital-b --folder coordinator

    Args:
        site: Name of the site.
        folder: Folder of the coordinator.
    """
    from fedpub.flower.folder import CoordinatorConfig
    from fedpub.flower.setup import remove_site

    CoordinatorConfig.load(folder)
    print(f"{site} is removed, {remove_site(folder, site)}")


def rotate(
    site: tyro.conf.Positional[str], key: tyro.conf.Positional[Path], folder: Path = Path("coordinator")
) -> None:
    """Admit a site by its new key; the old one is refused at once, also while a run is in progress.

    Example: fedpub coordinator rotate hospital-b hospital-b.pub --folder coordinator

    Args:
        site: Name of the site.
        key: The .pub file that `fedpub site rotate` made.
        folder: Folder of the coordinator.
    """
    from fedpub.flower.folder import CoordinatorConfig
    from fedpub.flower.setup import rotate_file

    CoordinatorConfig.load(folder)
    old, new = rotate_file(folder, site, key)
    print(f"{site} is admitted by {new} instead of {old}")


def renew(folder: Path = Path("coordinator"), host: tuple[str, ...] = (), days: int = 397) -> None:
    """Renew the certificate; a running coordinator presents it to new connections, without ending the run.

    Example: fedpub coordinator renew --folder coordinator

    Args:
        folder: Folder of the coordinator.
        host: Names or addresses at which sites reach this machine. (default: those of the old certificate)
        days: Validity of the certificate in days.
    """
    from fedpub.flower.folder import CoordinatorConfig
    from fedpub.flower.setup import renew as renewed

    CoordinatorConfig.load(folder)
    print(f"the certificate in {folder} is valid until {renewed(folder, host, days)}")


def start(
    folder: Path = Path("coordinator"),
    resume: bool = False,
    joins: bool = False,
    keep_uploads: bool = False,
    monitor: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
    log_json: bool = False,
    json: bool = False,
) -> int:
    """Serve the admitted sites and run the federation, which begins when all of them are connected.

    Every round is saved, so that --resume continues after any interruption. Sites that were admitted after the run had
    finished get a model from it with --joins here and `fedpub site join` there. SIGTERM ends it with status 0.

    Example: fedpub coordinator start --folder coordinator --monitor 9464

    Args:
        folder: Folder of the coordinator.
        resume: Continuation of a run that has begun.
        joins: Admission of new sites to a finished run, after which the coordinator exits.
        keep_uploads: EVERY upload that is received, in the folder `observed`, for `fedpub attack`. For audits with test
            data only: anyone who reads the folder can do what the coordinator could do.
        monitor: PORT or HOST:PORT for /healthz and /metrics; a port alone is on 127.0.0.1.
        quiet: No progress bar, only the result and events of sites.
        log_json: Every line as a JSON object, for programs that collect logs; no progress bar.
        json: Result as JSON; events of sites on standard error.
    """
    from fedpub.core.private import owner_only, tighten
    from fedpub.flower.coordinator import Running
    from fedpub.flower.coordinator_view import CoordinatorView
    from fedpub.flower.monitor import Monitor
    from fedpub.flower.processes import require_flower

    require_flower()
    import fedpub.flower.server  # noqa: F401 - before anything is opened: see at_once

    tell, view = Lines(log_json, say if json else _print), CoordinatorView()
    try:
        with (
            terminable(),
            owner_only(),
            warnings_told(Lines(log_json, say)),
            Monitor(monitor, view) as watched,
            Running(folder, resume, joins, view, keep_uploads) as running,
        ):
            config = running.config
            if said := tighten(folder):
                tell(said, "permissions")
            if keep_uploads:
                tell(f"every upload is kept in {folder / 'observed'}: for audits with test data only", "keeping")
            what = "new sites may join" if joins else "the run begins when all are connected"
            tell(f"serving on {config.bind}:{config.port} for {', '.join(running.sites)}; {what}", "serving")
            if watched.place:
                tell(f"monitor: {watched.place}", "monitor")
            with progress(quiet or log_json, verbose and not log_json) as bar:

                def on_round(row: Row, rounds: int) -> None:
                    bar.on_round(row, rounds)
                    tell.on_round(row, rounds)

                summary = running.wait(on_round, tell.on_event)
    except KeyboardInterrupt as interruption:
        ended = isinstance(interruption, Terminated)
        what = SENTENCE if ended else "interrupted"
        shown = Lines(log_json, say)
        shown(
            f"fedpub: {what}; every finished round is saved, continue with fedpub coordinator start --folder {folder} "
            "--resume",
            "ended",
        )
        return 0 if ended else INTERRUPTED
    out = running.folder.out(config)
    if log_json and not json:
        tell("the run is finished", "finished", out=str(out), summary=summary)
    elif not joins:
        show_result(Result(summary, Record(read_rows(out)), out), json)
    return 0


def _print(line: str) -> None:
    print(line, flush=True)


def status(folder: Path = Path("coordinator"), live: bool = False, port: int | None = None, json: bool = False) -> None:
    """Progress of a federation: rounds, the last action of each site, and refused messages.

    With --live as a page in the browser that follows the run; Ctrl-C ends it.

    Example: fedpub status --folder coordinator

    Args:
        folder: Folder of the coordinator.
        live: A live page on 127.0.0.1 instead of a table.
        port: Port of the live page. (default: a free one)
    """
    from fedpub.flower.status import status_of

    if live:
        from fedpub.cli.report import serve
        from fedpub.report.federation import federation_server

        if json:
            raise FedpubError("--live and --json contradict each other; leave one of them out")
        return serve(federation_server(folder, port or 0))
    if port is not None:
        raise FedpubError(f"--port {port} is for the live page; add --live")
    found = status_of(folder)
    updated = found.pop("updated")
    if as_json(found, json):
        return None
    console = Console(highlight=False)
    seconds = "" if updated is None else f", {time.time() - updated:.0f} s ago"
    console.print(f"{found['method']}, {found['state']}: round {found['round']} of {found['rounds']}{seconds}")
    table = Table(box=None, header_style="bold")
    for heading in ("site", "last round", "rounds", "val", "left out", "refused", "last problem"):
        table.add_column(heading, justify="left" if heading in ("site", "last problem") else "right")
    for one in found["sites"]:
        value = "" if one["val"] is None else f"{100 * one['val']:.2f}"
        words = [
            one["site"],
            one["last_round"],
            one["rounds"],
            value,
            one["left_out"],
            one["refused"],
            one["last_problem"] or "",
        ]
        table.add_row(*map(Text, map(str, words)))  # no markup: some of the text comes from sites
    console.print(table)
    return None


def local(
    experiment: Annotated[Experiment, Settings(without=AT_SITES)] = Experiment(),  # noqa: B008
    terms: Terms = Terms(),  # noqa: B008
    sites: int | None = None,
    out: Path | None = None,
    json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    data_root: Path | None = None,
) -> None:
    """A whole federation on this machine: coordinator and sites as processes, with TLS and keys, over loopback.

    Example: fedpub deploy local --sites 4 --rounds 3

    Args:
        sites: Number of sites; none for a graph with natural clients.
        out: New run directory with the files of a simulation; its folder deployment holds those of every process.
    """
    from fedpub.flower.local import deploy_local

    terms.check()
    wanted, tell = replace(experiment, clients=sites), Lines(False, say if json else _print)
    with terminable(), warnings_told(Lines(False, say)), progress(quiet, verbose) as bar:
        found = deploy_local(wanted, out, terms, data_root, bar.on_round, tell.on_event)
    show_result(found, json)
