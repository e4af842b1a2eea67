"""A deployed federation whose coordinator has kept what it saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedpub.algorithms.protocol import NeedsSetup
from fedpub.attacks.case import Case, Truth
from fedpub.attacks.nodes import Shadow
from fedpub.attacks.notebook import Notebook
from fedpub.attacks.replay import play
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.simulate import Federation
from fedpub.errors import FedpubError
from fedpub.experiment import Plan
from fedpub.federation.known import SITES, Known
from fedpub.federation.part import OnePiece, OwnGraph
from fedpub.federation.recording import FOLDER, recorded
from fedpub.flower.folder import CoordinatorConfig

PLACES = ("{}/piece.safetensors", "{}.safetensors", "{}.graph", "{}/{}.graph")  # of a site's data


def from_folder(folder: Path, pieces: Path | None, rounds: int) -> tuple[Case, Shadow | None]:
    """What a coordinator's folder has of the first rounds; with the sites' data, also the truth."""
    config, known = CoordinatorConfig.load(folder), Known.load(folder / SITES)
    seen = folder / FOLDER
    if known is None or not seen.is_dir():
        raise FedpubError(
            f"{folder} has no {FOLDER}: its coordinator has not kept what it saw; start it with "
            "fedpub coordinator start --keep-uploads"
        )
    plan = replace(config.experiment, device="cpu").resolve().related(known.relations)
    notebook, last = Notebook(), 0
    for observed, sites in recorded(seen):
        if tuple(sites) != tuple(known.sites):
            raise FedpubError(f"{seen} is of another run, with the sites {', '.join(sites)}; remove it")
        if observed.round <= rounds:
            notebook(observed)
            last = observed.round
    if not last:
        raise FedpubError(f"{seen} is empty: no round has been recorded yet; wait for the first one")
    case = Case(plan, notebook, list(known.sites), len(known.classes))
    if pieces is None:
        return case, None
    held = [_piece(pieces, site, plan, at, tuple(known.classes)) for at, site in enumerate(known.sites)]
    federation = Federation(held, len(known.classes), plan.device, plan.dtype)

    def shadow(other: Federation) -> Case:
        return play(plan, other, last)

    case = replace(case, truth=Truth(held, len(known.classes)), federation=federation)
    return case, None if isinstance(plan.algorithm, NeedsSetup) else shadow


def _piece(folder: Path, site: str, plan: Plan, client: int, classes: tuple[str, ...]) -> Subgraph:
    for place in PLACES:
        path = folder / place.format(site, site)
        if path.is_file():
            source = OwnGraph(path) if path.suffix == ".graph" else OnePiece(path)
            return source.piece(plan, client, classes)
    raise FedpubError(
        f"{folder} has no data of the site {site!r}; put its graph there as {site}.graph, or leave `pieces` out"
    )
