"""A site's folder: its name, its coordinator and its data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedpub.core.files import write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.part import OnePiece, OwnGraph
from fedpub.federation.policy import Policy
from fedpub.federation.site import Site
from fedpub.flower.peers import identity_of

CONFIG, AUTHORITY, PIECE = "site.json", "ca.pem", "piece.safetensors"
AGREED = "agreed.json"  # the agreed experiment, in folders of earlier versions


@dataclass(frozen=True)
class SiteConfig:
    id: str
    coordinator: str  # HOST:PORT
    graph: str  # a graph file; empty: a piece of a graph in the folder itself
    device: str = "cpu"  # where the site computes

    def key(self, folder: Path) -> Path:
        return folder / f"{self.id}.key"

    def save(self, folder: Path) -> None:
        write_text(folder / CONFIG, json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def load(folder: Path) -> SiteConfig:
        path = folder / CONFIG
        try:
            return SiteConfig(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise FedpubError(
                f"{folder} is not a site's folder ({error}); create one with fedpub site init --id NAME"
            ) from error


def open_site(folder: Path) -> Site:
    config = SiteConfig.load(folder)

    def source() -> OwnGraph | OnePiece:
        return OwnGraph(Path(config.graph)) if config.graph else OnePiece(folder / PIECE)

    take_over(folder)
    return Site(folder, config.id, source, config.device, identity_of(folder, config.id, config.key(folder)))


def agree(folder: Path, experiment: Path) -> None:
    """From now on the site takes part only in this experiment."""
    wanted = Experiment.read(experiment)  # an error now if it is invalid
    replace(Policy.load(folder), experiment=wanted).save(folder)
    (folder / AGREED).unlink(missing_ok=True)


def take_over(folder: Path) -> None:
    """Move the experiment of `agreed.json`, where earlier versions kept it, into the policy."""
    old = folder / AGREED
    if not old.is_file():
        return
    agreed, policy = Experiment.read(old), Policy.load(folder)
    if policy.experiment not in (None, agreed):
        raise FedpubError(f"{old} and the policy in {folder} name different experiments; remove the wrong one")
    replace(policy, experiment=agreed).save(folder)
    old.unlink()
