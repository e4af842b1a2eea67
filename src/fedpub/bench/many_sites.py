"""Several sites in one process, for large federations on one machine: run it with their folders."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from fedpub.flower.site import run_site


def _say(line: str, event: str = "") -> None:
    print(line, flush=True)


def run_sites(folders: Sequence[Path]) -> None:
    """Take part with all of them, each in a thread, until the run is finished."""
    threads = [threading.Thread(target=run_site, args=(folder, _say), kwargs={"once": True}) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    run_sites([Path(word) for word in sys.argv[1:]])
