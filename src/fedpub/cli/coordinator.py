"""The verbs of a federation's coordinator, and of a federation on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpub.cli.flags import Settings
from fedpub.cli.show import as_json, show_result
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.requests import Terms
from fedpub.runs.progress import progress, say
from fedpub.runs.simulated import Result
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Record

INTERRUPTED = 130  # as a shell has it
OF_SITES = Experiment("sites", "natural")
AT_SITES = ("clients", "failures", "device", "options")  # settings that each site decides, or has no use for


def init(
    experiment: Annotated[Experiment, Settings(without=("dataset", "scenario", "alpha", *AT_SITES))] = OF_SITES,
    terms: Terms = Terms(),  # noqa: B008
    folder: Path = Path("coordinator"),
    host: tuple[str, ...] = ("localhost",),
    bind: str = "0.0.0.0",
    port: int = 9443,
    days: int = 397,
) -> None:
    """Make a coordinator's folder: an authority, a certificate, an empty admission list, and what is to be run.

    Give ca.pem and config.json of the folder to every site; admit each site by the .pub file that it made.

    Example: fedpub coordinator init --folder coordinator --host fl.example.org --method fedpub --rounds 50

    Args:
        folder: New folder of the coordinator.
        host: Names or addresses at which sites reach this machine, for the certificate.
        bind: Address to listen on.
        port: Port that sites connect to.
        days: Validity of the certificate in days.
    """
    from fedpub.core.files import write_text
    from fedpub.flower.coordinator import write_app
    from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
    from fedpub.flower.keys import make_authority, make_certificate
    from fedpub.flower.processes import require_flower

    require_flower()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedpubError(f"{folder} is there already; choose another --folder, or remove it")
    terms.check()
    config = CoordinatorConfig.new(bind, port, experiment, terms)
    make_authority(folder)
    make_certificate(folder, list(host), days)
    config.save(folder)
    write_text(folder / "config.json", config.experiment.to_json())  # for sites that want to know what they join
    write_app(CoordinatorFolder(folder).app)
    write_text(CoordinatorFolder(folder).admitted, "# one site a line: its name and its public key\n")
    print(f"{folder} is ready: sites need its ca.pem, config.json and the address {host[0]}:{port}")
    print(f"then: fedpub coordinator admit --folder {folder} SITE.pub; fedpub coordinator start --folder {folder}")


def admit(
    keys: tyro.conf.Positional[tuple[Path, ...]], folder: Path = Path("coordinator"), id: str | None = None
) -> None:
    """Admit sites by their public keys; those who are not on the list get nothing.

    Example: fedpub coordinator admit hospital-a.pub --folder coordinator

    Args:
        keys: The .pub files that `fedpub site init` made.
        folder: Folder of the coordinator.
        id: Name of the site, if it differs from the one in the file.
    """
    from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
    from fedpub.flower.keys import admit as admitted
    from fedpub.flower.keys import fingerprint

    CoordinatorConfig.load(folder)
    if not keys:
        raise FedpubError("name the .pub file of a site to admit")
    if id and len(keys) > 1:
        raise FedpubError(f"--id {id} is one name for {len(keys)} keys; admit them one by one")
    for path in keys:
        try:
            line = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FedpubError(f"cannot read {path} ({error}); give the .pub file of a site") from error
        words = line.split()
        name = id or (words[2] if len(words) > 2 else path.stem)
        admitted(CoordinatorFolder(folder).admitted, name, line)
        print(f"{name} is admitted, {fingerprint(line)}")


def start(
    folder: Path = Path("coordinator"),
    resume: bool = False,
    joins: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    json: bool = False,
) -> int:
    """Serve the admitted sites and play the run; it begins when all of them are there.

    Every round is saved, so that --resume continues after any interruption. Sites that were admitted after the run had
    finished get a model from it with --joins here and `fedpub site join` there.

    Example: fedpub coordinator start --folder coordinator

    Args:
        folder: Folder of the coordinator.
        resume: Continuation of a run that has begun.
        joins: Admission of new sites to a finished run, after which the coordinator exits.
        quiet: No progress bar, only the result and events of sites.
        json: Result as JSON; events of sites on standard error.
    """
    from fedpub.flower.coordinator import Running

    try:
        with Running(folder, resume, joins) as running:
            config = running.config
            what = "new sites may join" if joins else "the run begins when all are there"
            tell = _teller(json)
            tell(f"serving on {config.bind}:{config.port} for {', '.join(running.sites)}; {what}")
            with progress(quiet, verbose) as bar:
                summary = running.wait(bar.on_round, lambda event: tell(_line(event)))
    except KeyboardInterrupt:
        say(f"fedpub: interrupted; go on with fedpub coordinator start --folder {folder} --resume")
        return INTERRUPTED
    if not joins:
        out = running.folder.out(config)
        show_result(Result(summary, Record(read_rows(out)), out), json)
    return 0


def _teller(json: bool) -> Callable[[str], None]:
    """Says what happens: on the error output where the other one is for JSON."""
    return say if json else lambda line: print(line, flush=True)


def _line(event: Mapping[str, Any]) -> str:
    place = f"round {event['round']}" if event["round"] else "the run"
    return f"{place}: {event['site'] or 'coordinator'} {event['event']}: {event['reason']}"


def status(folder: Path = Path("coordinator"), json: bool = False) -> None:
    """How a run stands: rounds, what each site did last, and what was refused.

    Example: fedpub status --folder coordinator

    Args:
        folder: Folder of the coordinator.
    """
    from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
    from fedpub.flower.keys import read_admitted

    place, config = CoordinatorFolder(folder), CoordinatorConfig.load(folder)
    out = place.out(config)
    rows, sites, events = read_rows(out), list(read_admitted(place.admitted)), place.read_events()
    sites = sites[: len(rows[-1].clients["val"])] if rows else sites  # later ones are not in this run
    finished, running = RunDirectory(out).finished, place.is_in_use()
    found: dict[str, Any] = {
        "state": "finished" if finished else "running" if running else "stopped" if rows else "not begun",
        "round": rows[-1].round if rows else 0,
        "rounds": config.experiment.rounds,
        "method": config.experiment.method,
        "sites": [],
    }
    for client, site in enumerate(sites):
        took = [
            row.round for row in rows if client < len(row.clients["took_part"]) and row.clients["took_part"][client]
        ]
        mine = [event for event in events if event["site"] == site]
        found["sites"].append(
            {
                "site": site,
                "last_round": took[-1] if took else 0,
                "rounds": len(took),
                "val": rows[-1].clients["val"][client] if rows else None,
                "left_out": sum(event["event"] == "left out" for event in mine),
                "refused": sum(event["event"] == "refused" for event in mine),
                "last_problem": mine[-1]["reason"] if mine else None,
            }
        )
    if as_json(found, json):
        return
    console = Console(highlight=False)
    seconds = f", {time.time() - (out / 'rounds.csv').stat().st_mtime:.0f} s ago" if rows else ""
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
        table.add_row(*map(Text, map(str, words)))  # no markup: a site chose some of the words
    console.print(table)


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
    wanted, tell = replace(experiment, clients=sites), _teller(json)
    with progress(quiet, verbose) as bar:
        found = deploy_local(wanted, out, terms, data_root, bar.on_round, lambda event: tell(_line(event)))
    show_result(found, json)
