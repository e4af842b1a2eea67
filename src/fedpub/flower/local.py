"""A whole federation on this machine: real processes, TLS and keys, over loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedpub.core.private import owner_only
from fedpub.data.clients.subgraph_files import write_subgraph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import Running
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import admit, make_authority, make_certificate, make_site_key, read_admitted
from fedpub.flower.peers import trust
from fedpub.flower.processes import free_port, require_flower, start, stop
from fedpub.flower.sites import AUTHORITY, PIECE, SiteConfig
from fedpub.runs.loop import OnRound
from fedpub.runs.simulated import Result
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.model_card import DETAILS
from fedpub.store.model_files import load_model
from fedpub.store.record import Record
from fedpub.store.run_models import unsettled


def lay_out(base: Path, ready: Prepared, plan: Plan, terms: Terms, out: Path) -> tuple[Path, list[Path]]:
    """Create the folders of a coordinator and of one site per client, with keys, certificates and data."""
    coordinator = base / "coordinator"
    make_authority(coordinator)
    make_certificate(coordinator, ["localhost"])
    config = CoordinatorConfig.new("127.0.0.1", free_port(), plan, terms, str(out.resolve()))
    config.save(coordinator)
    sites = []
    width = len(str(len(ready.federation.subgraphs) - 1))
    for own in ready.federation.subgraphs:
        name = f"site-{own.id:0{width}}"
        folder = base / "sites" / name
        held = SiteConfig(name, f"127.0.0.1:{config.port}", "", str(plan.device))
        held.save(folder)
        admit(CoordinatorFolder(coordinator).admitted, name, make_site_key(held.key(folder)))
        shutil.copy(coordinator / "ca.pem", folder / AUTHORITY)
        write_subgraph(folder / PIECE, own, ready.graph.classes)
        sites.append(folder)
    if plan.experiment.secure:  # what people do at sites of their own: here one machine has made all keys
        known = read_admitted(CoordinatorFolder(coordinator).admitted)
        for folder in sites:
            trust(folder, {name: key for name, key in known.items() if name != folder.name})
    return coordinator, sites


def start_sites(sites: list[Path]) -> list[subprocess.Popen[bytes]]:
    return [start_site(folder) for folder in sites]


def start_site(folder: Path) -> subprocess.Popen[bytes]:
    # One thread each: they share this machine.
    words = [sys.executable, "-m", "fedpub", "site", "start", "--folder", str(folder)]
    return start(words, folder / "logs" / "site.log", {"OMP_NUM_THREADS": "1"})


def deploy_local(
    experiment: Experiment,
    out: Path | None = None,
    terms: Terms = Terms(),  # noqa: B008
    root: Path | None = None,
    on_round: OnRound | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Run an experiment as a federation; all its processes end with it."""
    require_flower()
    plan = experiment.resolve()
    if plan.failures:
        raise FedpubError("`failures` is for simulations, since deployed sites fail by themselves; leave it out")
    if out is not None:
        RunDirectory.check_free(out)
    ready = prepare(plan, root)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedpub-")))
        place = out or base / "run"
        stack.enter_context(owner_only())  # from here on: datasets, which others may use too, were prepared above
        RunDirectory.create(place, plan.experiment.to_json(), ready.graph.digest(), ready.partition.digest)
        if out is not None:
            base = out / "deployment"
        coordinator, sites = lay_out(base, ready, plan, terms, place)
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(stop, processes)
        processes.extend(map(start_site, sites))
        with Running(coordinator) as running:
            summary = running.wait(on_round, on_event)
        _collect_models(RunDirectory(place), sites, summary, plan)
        return Result(summary, Record(read_rows(place)), out, ready.idle)


def _collect_models(store: RunDirectory, sites: list[Path], summary: dict[str, Any], plan: Plan) -> None:
    """Write the sites' models and their details to one file each, like a simulation: only here are all sites on one
    machine."""
    models = [load_model(folder / "model") for folder in sites if (folder / "model").is_dir()]
    if len(models) == len(sites):
        found = {name: [getattr(card, name) for _, card in models] for name in DETAILS}
        details = {name: values for name, values in found.items() if any(one is not None for one in values)}
        store.keep(unsettled(models, plan), details, summary["best_round"])
