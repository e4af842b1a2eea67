"""The verb that shows and changes which other sites a site trusts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import tyro

from fedpub.cli.show import as_json
from fedpub.errors import FedpubError
from fedpub.runs.progress import say


def trust(
    folder: tyro.conf.Positional[Path],
    keys: tyro.conf.Positional[tuple[Path, ...]] = (),
    replace: bool = False,
    remove: str | None = None,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Show and change which other sites a site trusts in secure aggregation, by keys that people have compared.

    Get the .pub files from the people of the other sites, not from the coordinator, and compare every fingerprint with
    them on the phone. Without files, the list is shown, with this site's own fingerprint to read out.

    Example: fedpub site trust hospital-a hospital-b.pub hospital-c.pub

    Args:
        folder: Folder of the site.
        keys: The .pub files of other sites.
        replace: New keys in the place of those by which sites were trusted before.
        remove: Name of a site that is trusted no longer.
        yes: No question: the fingerprints have been compared.
    """
    from fedpub.flower import peers
    from fedpub.flower.keys import fingerprint, public_line
    from fedpub.flower.sites import SiteConfig

    config = SiteConfig.load(folder)
    own = config.key(folder)
    known = peers.read_peers(folder, config.id, own)
    if remove is not None and keys:
        raise FedpubError(f"`remove={remove}` and keys to add contradict each other; give one of them")
    if remove is not None:
        known = peers.without(known, remove)
        peers.trust(folder, known)
    elif keys and (new := peers.new_peers(known, config.id, own, keys, replace)):
        _confirm({site: fingerprint(line) for site, line in new.items()}, yes)
        known = {**known, **new}
        peers.trust(folder, known)
    listed = {site: fingerprint(line) for site, line in known.items()}
    _show(config.id, fingerprint(public_line(own)), listed, json)


def _confirm(new: Mapping[str, str], yes: bool) -> None:
    """Show the fingerprints; an error unless people have compared them."""
    if not yes and not sys.stdin.isatty():
        said = ", ".join(f"{site} has {said}" for site, said in new.items())
        raise FedpubError(
            f"no one can be asked here whether {said}; compare with what their people read out, then add `yes`"
        )
    for site, said in new.items():
        say(f"{site}: {said}")
    if yes:
        return
    print("Did the people of these sites read out the same fingerprints? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise FedpubError("nothing was changed; compare the fingerprints with the people of these sites first")


def _show(name: str, own: str, listed: Mapping[str, str], json: bool) -> None:
    found = {"site": name, "fingerprint": own, "peers": listed}
    if as_json(found, json):
        return
    lines = {f"{name} (this site)": own, **listed}
    width = max(map(len, lines))
    for site, said in lines.items():  # no table: it would shorten a fingerprint in a narrow terminal
        print(f"{site:<{width}}  {said}")
    if not listed:
        print("no other site is trusted yet")
