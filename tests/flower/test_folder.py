"""The lock of a coordinator's folder."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from fedpub.errors import FedpubError
from fedpub.flower.folder import CoordinatorFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")


def test_a_look_at_the_status_keeps_no_coordinator_from_starting(tmp_path: Path) -> None:
    import fcntl

    folder = CoordinatorFolder(tmp_path)
    with (tmp_path / "lock").open("ab") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        threading.Timer(0.03, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with folder.in_use():
            assert folder.is_in_use()
            with pytest.raises(FedpubError, match="already running"), folder.in_use():
                pass
    assert not folder.is_in_use()
