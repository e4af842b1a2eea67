"""A site's folder: its name, its coordinator and its data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fedpub.core.files import write_text
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.part import OnePiece, OwnGraph
from fedpub.federation.site import Site

CONFIG, AUTHORITY, PIECE, AGREED = "site.json", "ca.pem", "piece.safetensors", "agreed.json"


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

    agreed = folder / AGREED
    return Site(folder, config.id, source, Experiment.read(agreed) if agreed.is_file() else None, config.device)


def agree(folder: Path, experiment: Path) -> None:
    """From now on the site takes part only in this experiment."""
    Experiment.read(experiment)  # an error now if it is invalid
    write_text(folder / AGREED, experiment.read_text(encoding="utf-8"))
