"""The list of admitted sites, which the gate consults for every request."""

from __future__ import annotations

import logging
from pathlib import Path

from fedpub.core.files import stamp as stamp
from fedpub.errors import FedpubError
from fedpub.flower.keys import fingerprint, read_admitted

REMEMBERED = 1000  # refused keys that are logged; anyone can make any number of them

log = logging.getLogger(__name__)


class Admission:
    """The current admission list; the file is read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._sites: dict[str, str] = {}
        self._logged: set[str] = set()

    def read(self) -> None:
        self._stamp = stamp(self._path)
        self._sites = {key: site for site, key in read_admitted(self._path).items()}
        self._logged.clear()

    def now(self) -> dict[str, str]:
        """Public key -> site."""
        if stamp(self._path) != self._stamp:
            try:
                self.read()
            except FedpubError as error:
                log.warning("%s; until then the old list is used", error)
        return self._sites

    def tell_refused(self, line: str, address: str) -> None:
        """Log once per key, since a refused site keeps trying."""
        if line not in self._logged and len(self._logged) < REMEMBERED:
            self._logged.add(line)
            log.warning("refused the key %s from %s: it is not in %s", fingerprint(line), address, self._path)
