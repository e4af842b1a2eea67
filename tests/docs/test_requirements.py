"""The pins with hashes for deployments: complete, those of constraints.txt, and made by `make lock`."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "requirements" / "deploy.txt"
LOCK = runpy.run_path(str(ROOT / "requirements" / "lock.py"))
PINS = LOCK["pins"](FILE.read_text("utf-8"))


def needed_here(lines: list[str]) -> set[str]:
    """The packages among requirements that this Python on this system needs, without optional extras."""
    requirement = pytest.importorskip("packaging.requirements", reason="packaging is not installed").Requirement
    found = [requirement(line) for line in lines]
    return {LOCK["normal"](one.name) for one in found if not one.marker or one.marker.evaluate({"extra": ""})}


def test_every_pin_has_hashes_and_is_that_of_the_constraints():
    constraints = LOCK["pins"]((ROOT / "constraints.txt").read_text("utf-8"))
    assert len(PINS) > 50
    for name, (version, hashes) in PINS.items():
        assert constraints[name][0] == version, f"{name}: make lock"
        assert hashes, f"{name} has no hash: make lock"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes)


def test_all_that_a_site_needs_is_pinned_except_for_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = needed_here([*project["dependencies"], *project["optional-dependencies"]["deploy"]])
    for name in PINS:
        try:
            wanted |= needed_here(metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue  # for another system
    assert wanted - PINS.keys() == {"torch"}, "make lock"
    assert "torch" not in PINS, "its hash depends on the build"
    assert "setuptools" in PINS, "builds fedpub from a checkout"


def test_the_file_names_no_package_index():
    assert "//" not in FILE.read_text("utf-8")
    assert "index" not in FILE.read_text("utf-8")


def test_the_lock_leaves_torch_out_and_refuses_what_is_not_pinned():
    resolved = "a-b==1 \\\n    --hash=sha256:0\nnvidia-x==2 ; sys_platform == 'linux' \\\n    --hash=sha256:1\ntorch==3"
    made = LOCK["lock"](resolved, "A_b==1\ntorch==3\n")
    assert LOCK["pins"](made) == {"a-b": ("1", ["sha256:0"])}
    for constraints in ("torch==3\n", "a-b==2\n"):
        with pytest.raises(SystemExit, match=r"a-b==1 is not in constraints\.txt"):
            LOCK["lock"](resolved, constraints)
