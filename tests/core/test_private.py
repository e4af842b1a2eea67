"""What is written for its owner alone, whatever the umask; folders of older versions."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from fedpub.core.files import append_line, atomic, write_text
from fedpub.core.private import owner_only, tighten

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")


def modes(folder: Path) -> dict[str, int]:
    """Permissions of everything in a folder."""
    return {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


@pytest.fixture
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def old(tmp_path, generous_umask) -> Path:
    """A folder as an older version made it."""
    folder = tmp_path / "fed"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "config.json").write_text("{}")
    (folder / "run.sh").touch(0o755)
    return folder


def test_all_that_is_written_in_the_block_is_for_the_owner(tmp_path, generous_umask):
    with owner_only():
        write_text(tmp_path / "folder" / "below" / "file", "text")
        append_line(tmp_path / "folder" / "lines", "text")
        (tmp_path / "of a library").write_text("text")
    write_text(tmp_path / "afterwards", "text")
    expected = {"folder": 0o700, "folder/below": 0o700, "folder/below/file": 0o600, "folder/lines": 0o600}
    assert modes(tmp_path) == expected | {"of a library": 0o600, "afterwards": 0o666}


def test_after_a_failure_the_umask_is_the_user_s(tmp_path, generous_umask):
    with pytest.raises(ValueError, match="no"), owner_only():
        raise ValueError("no")
    write_text(tmp_path / "afterwards", "text")
    assert modes(tmp_path) == {"afterwards": 0o666}


def test_a_file_is_private_while_it_is_written_also_if_something_else_makes_it(tmp_path, generous_umask):
    with owner_only(), atomic(tmp_path / "file") as temporary:
        assert list(modes(tmp_path).values()) == [0o600]
        temporary.unlink()
        temporary.touch()
        temporary.chmod(0o666)
    assert modes(tmp_path) == {"file": 0o600}


def test_writing_a_file_never_changes_the_umask_of_other_threads(tmp_path, monkeypatch, generous_umask):
    asked = []
    with owner_only():
        monkeypatch.setattr(os, "umask", asked.append)
        thread = threading.Thread(target=write_text, args=(tmp_path / "file", "text"))
        thread.start()
        thread.join()
        monkeypatch.undo()
    assert asked == []
    assert modes(tmp_path) == {"file": 0o600}


def test_a_folder_of_an_older_version_is_tightened_once_and_that_is_said(old):
    assert tighten(old) == f"{old} was readable by other users of this machine; now only its owner can read it"
    assert stat.S_IMODE(old.stat().st_mode) == 0o700
    assert modes(old) == {"run": 0o700, "run/config.json": 0o600, "run.sh": 0o700}
    assert tighten(old) is None


def test_one_open_file_in_a_private_folder_is_enough_to_be_said(old):
    tighten(old)
    (old / "run" / "config.json").chmod(0o640)
    assert "was readable by other users" in tighten(old)


def test_what_a_link_leads_to_is_left_alone(old, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (old / "folder").symlink_to(tmp_path / "elsewhere")
    (old / "file").symlink_to(tmp_path / "elsewhere" / "file")
    tighten(old)
    assert modes(tmp_path / "elsewhere") == {"file": 0o666}
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o777


def test_what_cannot_be_tightened_is_said(old, monkeypatch):
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)  # as on a file system without permissions
    said = tighten(old)
    assert said.startswith(f"other users of this machine may be able to read {old} (")
    assert "its file system keeps no permissions, so keep the folder on another one" in said

    def refuse(path, mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    assert "Operation not permitted, so run this as the owner of the folder" in tighten(old)


def test_what_vanishes_meanwhile_is_no_problem(old, monkeypatch):
    chmod = Path.chmod

    def vanished(path, mode):
        if path.name == "config.json":
            raise FileNotFoundError(2, "No such file or directory")
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", vanished)
    assert "now only its owner can read it" in tighten(old)
    assert tighten(old.parent / "nowhere") is None
