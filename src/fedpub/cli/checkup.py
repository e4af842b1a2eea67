"""Checks of the installation: available, missing and broken parts.

The checks do not need what they check: at import time only the standard library is used, and every failure becomes a
finding.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from fedpub.version import __version__

PYTHON = (3, 11)
CHECKOUT = Path(__file__).parents[3]  # if fedpub runs from one
# Modules whose names differ from those of their packages.
MODULES = {"mlflow-skinny": "mlflow", "mkdocs-material": "material"}
SLOW = ("torch-geometric", "igraph")  # found, but not imported: that takes up to a second
GIB = 2**30
LITTLE_DISK, LITTLE_MEMORY, NARROW = 2.0, 2.0, 80  # GiB, GiB, columns


@dataclass(frozen=True)
class Finding:
    what: str
    state: Literal["ok", "note", "problem"]  # a problem keeps fedpub from working
    found: str
    advice: str = ""  # what to do about it


def examine() -> list[Finding]:
    """The findings of all checks; a check that fails becomes a finding."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check()
        except Exception as error:
            said = f"could not be examined ({_said(error)})"
            found.append(Finding(check.__name__, "note", said, "fix the other problems listed here, then try again"))
    return found


def versions() -> Iterator[Finding]:
    yield Finding("fedpub", "ok", f"{__version__} in {Path(__file__).parent}")
    here, needed = ".".join(map(str, sys.version_info[:3])), ".".join(map(str, PYTHON))
    if sys.version_info >= PYTHON:
        yield Finding("Python", "ok", f"{here} at {sys.executable}")
    else:
        yield Finding("Python", "problem", f"{here} is older than {needed}", f"install fedpub with Python {needed}")


def packages() -> Iterator[Finding]:
    """Required packages: installed, recent enough, and importable."""
    required = _required()
    if not required:
        said = "fedpub is found but not installed, so its requirements are not known"
        yield Finding("packages", "note", said, "pip install it, or in a checkout: pip install -c constraints.txt -e .")
    fine = []
    for wanted in required:
        finding = _package(wanted, essential=True)
        if finding.state == "ok" and finding.what != "torch":
            fine.append(finding.found)
        else:
            yield finding
    if fine:
        yield Finding("packages", "ok", ", ".join(fine))
    if other := _unpinned():
        listed = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        advice = "if something fails: pip install -c constraints.txt -e '.[dev]'"
        yield Finding("constraints.txt", "note", f"other versions than the tested ones: {listed}", advice)


def _required(extra: str = "") -> list[Any]:
    """The requirements of this installation or of one of its extras."""
    requirements = importlib.import_module("packaging.requirements")
    try:
        texts = metadata.requires("fedpub") or []
    except metadata.PackageNotFoundError:
        return []
    found = [requirements.Requirement(text) for text in texts]
    if not extra:
        return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]
    return [one for one in found if one.marker is not None and one.marker.evaluate({"extra": extra})]


def _package(wanted: Any, essential: bool) -> Finding:
    """Whether a requirement is met and, if it is essential, its module can be imported."""
    name, advice = wanted.name, f"pip install '{wanted.name}{wanted.specifier}'"
    missing: Literal["note", "problem"] = "problem" if essential else "note"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, missing, "is not installed", advice)
    if not wanted.specifier.contains(version, prereleases=True):
        return Finding(name, missing, f"{version} is installed, {wanted.specifier} is needed", advice)
    module = MODULES.get(name, name.replace("-", "_"))
    try:
        if essential and name not in SLOW:
            _imported(module)
        elif importlib.util.find_spec(module) is None:
            raise ImportError("its files are missing")
    except (Exception, SystemExit) as error:
        again = f"pip install --force-reinstall --no-deps '{name}=={version}'"
        return Finding(name, missing, f"{version} cannot be imported ({_said(error)})", again)
    return Finding(name, "ok", version if name == "torch" else f"{name} {version}")


def _imported(module: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module)


def _unpinned() -> list[str]:
    """In a checkout: packages whose installed version differs from the pinned one."""
    file = CHECKOUT / "constraints.txt"
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        name, pinned, version = line.partition("==")
        try:
            here = metadata.version(name) if pinned else version
        except metadata.PackageNotFoundError:
            continue
        if here.partition("+")[0] != version:  # after a plus: how it was built
            found.append(f"{name} {here} (not {version})")
    return found


def extras() -> Iterator[Finding]:
    """Optional packages, which only some verbs and flags need."""
    try:
        names = metadata.metadata("fedpub").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return
    project = CHECKOUT / "pyproject.toml"
    if project.is_file():
        import tomllib  # missing in a Python that is too old, which `versions` reports

        known = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        if missed := ", ".join(extra for extra in known if extra not in names):
            advice = "pip install -c constraints.txt -e '.[dev]'"
            yield Finding("installation", "note", f"is older than {project}, without the extras {missed}", advice)
    for extra in names:
        if extra == "dev":
            continue
        found = [_package(wanted, essential=False) for wanted in _required(extra)]
        lacking = [f"{one.what} {one.found}" for one in found if one.state != "ok"]
        if lacking:
            advice = f"only if you need it: pip install 'fedpub[{extra}]'"
            yield Finding(f"extra {extra}", "note", "; ".join(lacking), advice)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(one.found for one in found))


def devices() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        torch = _imported("torch")
        threads = torch.get_num_threads()
    except Exception:  # reported by `packages`
        yield Finding("CPU", "ok", f"{cores} cores")
        return
    yield Finding("CPU", "ok", f"{cores} core{'s' * (cores > 1)}, {threads} thread{'s' * (threads > 1)}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = torch.cuda.is_available()
    if seen:
        for number in range(torch.cuda.device_count()):
            one = torch.cuda.get_device_properties(number)
            yield Finding(
                f"GPU cuda:{number}", "ok", f"{one.name}, {one.total_memory / GIB:.0f} GiB; use --device cuda"
            )
    elif torch.version.cuda is None and shutil.which("nvidia-smi"):
        advice = "for --device cuda install another one: https://pytorch.org/get-started/locally"
        yield Finding("GPU", "note", f"torch {torch.__version__} is built without CUDA", advice)
    elif shutil.which("nvidia-smi"):
        why = f" ({said[0].message})" if said else ""
        yield Finding("GPU", "note", f"torch sees none{why}", "see what nvidia-smi says, and CUDA_VISIBLE_DEVICES")
    else:
        yield Finding("GPU", "ok", "none; everything runs on the CPU")


def memory() -> Iterator[Finding]:
    from fedpub.engine.memory import available, whole

    total, free = whole(), available()
    if total is None or free is None:
        return
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free < LITTLE_MEMORY * GIB:
        yield Finding("memory", "note", text, "for large graphs or many clients give --max-memory, a smaller --hidden")
    else:
        yield Finding("memory", "ok", text)


def folders() -> Iterator[Finding]:
    """Output folders: whether they can be written to and have free space."""
    from fedpub.data.download import cache_folder

    places: tuple[tuple[str, Path, Literal["note", "problem"], str], ...] = (
        ("cache", cache_folder(), "problem", "set FEDPUB_CACHE to a folder that you may write to"),
        ("current folder", Path.cwd(), "note", "give --out a folder that you may write to"),
    )
    for what, folder, refused, advice in places:
        there = folder
        while not there.exists():
            there = there.parent
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            yield Finding(what, refused, f"{folder} cannot be written to", advice)
            continue
        free = shutil.disk_usage(there).free / GIB
        text = f"{folder}, {free:,.1f} GiB free"
        if free < LITTLE_DISK:
            yield Finding(what, "note", text, f"free some space there, or {advice}")
        else:
            yield Finding(what, "ok", text)


def data() -> Iterator[Finding]:
    """Named graphs that are available, and those that would be downloaded."""
    from fedpub.data import datasets
    from fedpub.data.download import cache_folder, data_root
    from fedpub.data.synthetic import SYNTHETIC
    from fedpub.errors import FedpubError

    yield Finding("built-in graphs", "ok", ", ".join(SYNTHETIC))
    cache_, named = cache_folder(), os.environ.get("FEDPUB_DATA")
    try:
        root = data_root()
    except FedpubError as error:
        yield Finding("data", "problem", str(error), "give FEDPUB_DATA another value, or unset it")
        return
    if named and not root.exists():
        yield Finding("FEDPUB_DATA", "note", f"there is no folder {root}", "correct it, or let downloads make it")
    here = [
        name
        for name, source in datasets.SOURCES.items()
        if (cache_ / "processed" / f"{name}-v{datasets.PROCESSED}.graph").is_file()
        or any(all((folder / file.path).is_file() for file in source.files) for folder in (root, cache_))
    ]
    if here:
        yield Finding("graphs at hand", "ok", f"{', '.join(here)} in {root}")
    if absent := [name for name in datasets.SOURCES if name not in here]:
        advice = "they are downloaded on first use; without a network set FEDPUB_DATA to a folder that has them"
        yield Finding("graphs to download", "note", ", ".join(absent), advice)


def terminal() -> Iterator[Finding]:
    encoding, columns = (sys.stdout.encoding or "none").lower(), shutil.get_terminal_size().columns
    if encoding.replace("-", "") != "utf8":
        said = f"the output's encoding is {encoding}, which may lack characters that tables use"
        yield Finding("terminal", "note", said, "export PYTHONUTF8=1, or choose a UTF-8 locale such as C.UTF-8")
    elif sys.stdout.isatty() and columns < NARROW:
        yield Finding(
            "terminal", "note", f"{columns} columns are few for tables", f"widen it to {NARROW}, or use --json"
        )
    else:
        yield Finding("terminal", "ok", f"{encoding}, {columns} columns" if sys.stdout.isatty() else encoding)


def _said(error: BaseException) -> str:
    """An error as one short line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else f"{text[:200]}..."


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    versions,
    packages,
    devices,
    memory,
    folders,
    data,
    extras,
    terminal,
)
