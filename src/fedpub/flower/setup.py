"""New folders of a coordinator and of sites, and the admission of a site: all files are for their owner alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fedpub.core.files import write_text
from fedpub.core.private import owner_only, tighten
from fedpub.data.graph import Graph
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.policy import Policy
from fedpub.federation.requests import Terms
from fedpub.flower.coordinator import write_app
from fedpub.flower.folder import CoordinatorConfig, CoordinatorFolder
from fedpub.flower.keys import (
    admit,
    certificate_expires,
    certified_hosts,
    fingerprint,
    make_authority,
    make_certificate,
    make_site_key,
    remove,
    replace_key,
    rotate_site_key,
)
from fedpub.flower.processes import require_flower
from fedpub.flower.sites import AUTHORITY, SiteConfig


@owner_only()
def make_coordinator(
    folder: Path, experiment: Experiment, terms: Terms, hosts: Sequence[str], bind: str, port: int, days: int
) -> None:
    """A folder with an authority, a certificate for these hosts, an empty admission list and the experiment."""
    require_flower()
    _check_free(folder)
    terms.check()
    config = CoordinatorConfig.new(bind, port, experiment, terms)
    make_authority(folder)
    make_certificate(folder, hosts, days)
    config.save(folder)
    write_text(folder / "config.json", config.experiment.to_json())  # for sites that want to know what they join
    write_app(CoordinatorFolder(folder).app)
    write_text(CoordinatorFolder(folder).admitted, "# one site a line: its name and its public key\n")


@owner_only()
def make_site(folder: Path, name: str, coordinator: str, graph: Path, authority: Path) -> tuple[Graph, str]:
    """A folder with a key and a .pub file for the coordinator; the site's graph and the fingerprint of its key."""
    require_flower()
    _check_free(folder)
    if not authority.is_file():
        raise FedpubError(f"`ca={authority}` is no file; ask the coordinator for its ca.pem")
    found = Graph.load(graph)
    config = SiteConfig(name, coordinator, str(graph.resolve()))
    line = make_site_key(config.key(folder))
    config.save(folder)
    Policy().save(folder)  # all settings by name, so that the owner sees what can be limited
    shutil.copyfile(authority, folder / AUTHORITY)
    write_text(folder / f"{name}.pub", f"{line}\n")
    return found, fingerprint(line)


@owner_only()
def admit_file(folder: Path, key: Path, name: str | None = None) -> tuple[str, str]:
    """Admit the site of a .pub file, by the name in it unless another is given; its name and fingerprint."""
    line = _public(key)
    words = line.split()
    name = name or (words[2] if len(words) > 2 else key.stem)
    admit(CoordinatorFolder(folder).admitted, name, line)
    return name, fingerprint(line)


@owner_only()
def rotate_file(folder: Path, site: str, key: Path) -> tuple[str, str]:
    """Admit a site by the key of a .pub file instead of its old one; the fingerprints of the old and the new key."""
    line = _public(key)
    old = replace_key(CoordinatorFolder(folder).admitted, site, line)
    return fingerprint(old), fingerprint(line)


@owner_only()
def remove_site(folder: Path, site: str) -> str:
    """Take a site off the admission list; the fingerprint of its key."""
    return fingerprint(remove(CoordinatorFolder(folder).admitted, site))


@owner_only()
def renew(folder: Path, hosts: Sequence[str], days: int) -> str:
    """A new certificate with the old key, for the old hosts unless others are given; the day on which it expires."""
    make_certificate(folder, hosts or certified_hosts(folder), days)
    return f"{certificate_expires(folder):%d %B %Y}"


@owner_only()
def rotate_key(folder: Path) -> tuple[Path, str]:
    """A new key for a site; the .pub file for the coordinator and the fingerprint."""
    config = SiteConfig.load(folder)
    line = rotate_site_key(config.key(folder))
    public = folder / f"{config.id}.pub"
    write_text(public, f"{line}\n")
    return public, fingerprint(line)


def _public(key: Path) -> str:
    try:
        return key.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FedpubError(f"cannot read {key} ({error}); give the .pub file of a site") from error


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedpubError(f"{folder} already exists; choose another `folder`, or remove it")
    tighten(folder)  # if it is there, and empty
