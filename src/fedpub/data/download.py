"""Raw files of the named graphs: from the data root, else the cache, else the network."""

from __future__ import annotations

import hashlib
import os
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from fedpub.core.files import atomic
from fedpub.errors import FedpubError

TIMEOUT_S = 20
CHUNK = 1 << 18


@dataclass(frozen=True)
class RawFile:
    """A file of a dataset: its path under the data root and its URL."""

    path: str
    url: str
    sha256: str | None = None  # where it is not known, the digest of the graph is checked
    member: str | None = None  # its name inside a zip archive at `url`


def cache_folder() -> Path:
    """`FEDPUB_CACHE`, else the user's cache folder."""
    if chosen := os.environ.get("FEDPUB_CACHE"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedpub"))


def data_root(root: Path | None = None) -> Path:
    """The folder of the raw files: the argument, else `FEDPUB_DATA`, else the cache folder."""
    if root is None:
        root = Path(os.environ.get("FEDPUB_DATA") or cache_folder())
    if root.exists() and not root.is_dir():
        raise FedpubError(f"the data root {root} is not a folder; give one with `data_root` or FEDPUB_DATA")
    return root


def locate(dataset: str, files: tuple[RawFile, ...], root: Path) -> Path:
    """A folder with all `files`; missing ones are downloaded into it."""
    for folder in dict.fromkeys((root, cache_folder())):
        if all((folder / file.path).is_file() for file in files):
            return folder
    folder = root if _writable(root) else cache_folder()
    for file in files:
        if not (folder / file.path).is_file():
            _download(dataset, file, root, folder)
    return folder


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _download(dataset: str, file: RawFile, root: Path, folder: Path) -> None:
    target = folder / file.path
    try:
        with atomic(target) as temporary:
            if file.member is None:
                _fetch(file.url, temporary, Path(file.path).name)
            else:
                archive = folder / "archives" / file.url.rsplit("/", 1)[-1]
                if not archive.is_file():
                    with atomic(archive) as whole:
                        _fetch(file.url, whole, archive.name)
                with zipfile.ZipFile(archive) as packed:
                    temporary.write_bytes(packed.read(file.member))
            found = hashlib.sha256(temporary.read_bytes()).hexdigest()
            if file.sha256 not in (None, found):
                raise FedpubError(
                    f"{file.url} has the SHA-256 {found}, not {file.sha256}: nothing was kept; "
                    f"download it from another source and put it at {root / file.path}"
                )
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        reason = getattr(error, "reason", None) or error
        raise FedpubError(
            f"dataset {dataset!r} needs {file.path}, which is not in {root} and could not be downloaded from "
            f"{file.url} ({reason}); put it at {root / file.path}, or name a folder that has it with `data_root` "
            f"or FEDPUB_DATA, or use the dataset 'communities', which needs no download"
        ) from error


def _fetch(url: str, target: Path, label: str) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    request = urllib.request.Request(url, headers={"User-Agent": "fedpub"})
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT_S) as response,
        target.open("wb") as out,
        Progress(*columns, transient=True) as progress,
    ):
        total = int(response.headers.get("Content-Length") or 0) or None
        task = progress.add_task(f"downloading {label}", total=total)
        while block := response.read(CHUNK):
            out.write(block)
            progress.update(task, advance=len(block))
