"""Child processes that end with their parent, however that ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait

PR_SET_PDEATHSIG = 1
ORPHANED = 1  # exit status


def signalled_with_parent(number: signal.Signals) -> None:
    """The system sends this process a signal when its parent ends: on Linux only, and whatever it is computing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_parent() -> None:
    """A process of `multiprocessing` ends when its parent does, also if that is killed."""
    signalled_with_parent(signal.SIGKILL)
    # For other systems, and for a parent that ended before the line above.
    threading.Thread(target=_watch, name="fedpub-parent", daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(ORPHANED)
