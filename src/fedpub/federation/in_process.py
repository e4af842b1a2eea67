"""All sites of a federation in this process: messages are still encoded, and states still go through files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedpub.data.clients.subgraph_files import write_subgraph
from fedpub.experiment import Experiment, Plan
from fedpub.experiment.prepare import Prepared, prepare
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.part import OnePiece
from fedpub.federation.requests import Terms
from fedpub.federation.secure.run_keys import Identity
from fedpub.federation.site import Site
from fedpub.federation.wire_header import Precision
from fedpub.store.directory import read_rows
from fedpub.store.record import Row


class InProcessSites:
    """An exchange with one site per client of an experiment, each with its own folder."""

    def __init__(
        self, folder: Path, experiment: Experiment | Plan, root: Path | None = None, ready: Prepared | None = None
    ) -> None:
        ready = ready or prepare(experiment.resolve(), root)
        self.folder, self.names = folder, [f"site-{own.id}" for own in ready.federation.subgraphs]
        for name, own in zip(self.names, ready.federation.subgraphs, strict=True):
            write_subgraph(folder / name / "piece.safetensors", own, ready.graph.classes)
        self.sites: dict[int, Site] = {}
        self.identities = identities(self.names) if experiment.resolve().secure else {}

    def site(self, client: int) -> Site:
        if client not in self.sites:
            place = self.folder / self.names[client]
            name = self.names[client]
            piece = place / "piece.safetensors"
            self.sites[client] = Site(place, name, lambda: OnePiece(piece), identity=self.identities.get(name))
        return self.sites[client]

    def restart(self) -> None:
        """As if every site's process had died: only what is on disk is left."""
        self.sites = {}

    def __call__(self, messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        return dict(self.stream(messages, deadline))

    def stream(self, messages: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        for client, message in messages.items():
            yield client, self.site(client).answer(message)


def run_in_process(
    experiment: Experiment | Plan, precision: Precision, root: Path | None = None, ready: Prepared | None = None
) -> tuple[dict[str, Any], Row]:
    """The summary and the last round of an experiment whose uploads are rounded like those of sites."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plan = experiment.resolve()
        sites = InProcessSites(place / "sites", plan, root, ready)
        terms = Terms(precision=precision)
        coordinator = Coordinator(plan, "0" * 16, sites.names, sites, place / "sites", terms)
        return play(coordinator, place / "run"), read_rows(place / "run")[-1]


def identities(names: list[str]) -> dict[str, Identity]:
    """Sites that trust each other, with keys for this process only."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    keys = {name: Ed25519PrivateKey.generate() for name in names}
    lines = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}

    def verify(line: str, signature: bytes, text: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)).verify(signature, text)
        except InvalidSignature:
            return False
        return True

    return {name: Identity(name, key.sign, verify, lambda: lines) for name, key in keys.items()}
