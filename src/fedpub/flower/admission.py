"""The list of admitted sites, as the gate looks at it for every request."""

from __future__ import annotations

import logging
from pathlib import Path

from fedpub.errors import FedpubError
from fedpub.flower.keys import fingerprint, read_admitted

REMEMBERED = 1000  # refused keys; a stranger can make any number of them

log = logging.getLogger(__name__)


class Admission:
    """The admission list as it is now; read again only when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._sites: dict[str, str] = {}
        self._told: set[str] = set()

    def read(self) -> None:
        self._stamp = _stamp(self._path)
        self._sites = {key: site for site, key in read_admitted(self._path).items()}
        self._told.clear()

    def now(self) -> dict[str, str]:
        """Public key -> site."""
        if _stamp(self._path) != self._stamp:
            try:
                self.read()
            except FedpubError as error:
                log.warning("%s; until then the list stays as it was", error)
        return self._sites

    def tell_refused(self, line: str, address: str) -> None:
        """Once for each key: a site that is refused comes back."""
        if line not in self._told and len(self._told) < REMEMBERED:
            self._told.add(line)
            log.warning("refused the key %s from %s: it is not in %s", fingerprint(line), address, self._path)


def _stamp(path: Path) -> object:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino
