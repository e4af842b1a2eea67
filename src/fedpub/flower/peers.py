"""The sites that a site trusts: `peers.txt` in its folder, with keys that people have got from each other.

The coordinator has no part in it: a list that came from there could hold keys of its own, under the names of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedpub.core.private import owner_only
from fedpub.errors import FedpubError, unknown
from fedpub.federation.secure.run_keys import Identity
from fedpub.flower.countersign import signer, verify
from fedpub.flower.keys import fingerprint, private_key, public_line, read_admitted, read_given, write_list

FILE = "peers.txt"


def identity_of(folder: Path, name: str, key: Path) -> Identity:
    """Who the site in a folder is, and whom it trusts; keys and list are read when they are needed."""
    return Identity(name, lambda text: signer(private_key(key))(text), verify, lambda: read_peers(folder, name, key))


def read_peers(folder: Path, name: str, key: Path) -> dict[str, str]:
    """Site -> public key of all that the site trusts, never itself; none where the file is missing."""
    path = folder / FILE
    peers = read_admitted(path)
    if peers:
        _check_others(peers, name, key, f"; remove that line of {path}")
    return peers


def new_peers(peers: Mapping[str, str], name: str, key: Path, given: Sequence[Path], replace: bool) -> dict[str, str]:
    """The sites of .pub files that are not trusted yet, or with `replace` by another key; nothing is written."""
    for path in given:
        if not path.is_file():
            raise FedpubError(f"there is no file {path}; ask the people of that site for their .pub file")
    found: dict[str, str] = {}
    for site, lines in read_given(given).items():
        if len(lines) > 1:
            said = " and ".join(sorted(map(fingerprint, lines)))
            raise FedpubError(f"the files have several keys of {site}, {said}; give the one that its people confirm")
        (found[site],) = lines
    _check_others(found, name, key, "; give the .pub files of the others")
    for site, line in found.items():
        if peers.get(site, line) != line and not replace:
            raise FedpubError(
                f"{site} is trusted by another key: the known one is {fingerprint(peers[site])}, the given one "
                f"{fingerprint(line)}; only if the people of {site} confirm that they have a new key: `replace`"
            )
    holders: dict[str, str] = {}
    for site, line in {**peers, **found}.items():
        if (other := holders.setdefault(line, site)) != site:
            raise FedpubError(f"{site} and {other} have the same key, {fingerprint(line)}; every site makes its own")
    return {site: line for site, line in found.items() if peers.get(site) != line}


@owner_only()
def trust(folder: Path, peers: Mapping[str, str]) -> None:
    """Write the list of a site: these are all that it trusts."""
    write_list(folder / FILE, peers)


def without(peers: Mapping[str, str], name: str) -> dict[str, str]:
    """The same list without a site."""
    if not peers:
        raise FedpubError(f"{name!r} cannot be removed: this site trusts no other yet")
    if name not in peers:
        raise unknown("site", name, peers)
    return {site: line for site, line in peers.items() if site != name}


def _check_others(peers: Mapping[str, str], name: str, key: Path, way: str) -> None:
    own = " ".join(public_line(key).split()[:2])
    for site, line in peers.items():
        if site == name or line == own:
            what = "is this site itself" if line == own else "is this site's own name, with another key"
            raise FedpubError(f"{site} {what}, and it need not trust itself{way}")
