"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedpub.errors import FedpubError

DIGEST = "sha256"  # header key: digest of the file's tensors and metadata
NAME_LENGTH = 80


def slug(text: str) -> str:
    """The text with other characters than letters, digits, `.`, `-` and `_` as dashes; at most 80, ends trimmed."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[:NAME_LENGTH]


def file_name(name: str) -> str:
    """An untrusted name made safe as part of a file name: it cannot lead to another folder or be too long.

    A name that has to be changed ends in `~`, which no unchanged name contains, and a digest: names never collide.
    """
    plain = slug(name)
    if plain and plain == name:
        return name
    return f"{plain}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:10]}"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file in the folder of `path`: renamed to `path` if the block succeeds, deleted if it fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FedpubError(f"cannot write {path}: {error.strerror}; choose a folder you may write to") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with _writing(path), atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    with _writing(path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def append_line(path: Path, line: str) -> None:
    """Append a line, starting a new one even if a kill or a full disk truncated the last."""
    with _writing(path), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(f"{line}\n".encode())


def stamp(path: Path) -> object:
    """What differs after a file was written."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that a killed process left for these names."""
    for name in names:
        for left in folder.glob(f".{name}.*"):
            if left.is_file():
                left.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise FedpubError(f"cannot write {path} ({error}); free some space or choose another folder") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Tensors and strings in one safetensors file with their digest; the same content gives the same bytes."""
    # safetensors writes header strings in hash order, which differs between processes, so the header is one string.
    packed = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    sealed = {**metadata, DIGEST: _digest(packed, metadata)}
    with _writing(path), atomic(path) as temporary:
        safetensors.torch.save_file(packed, temporary, metadata={"fedpub": _dump(sealed)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and strings written by `write_tensors`, copied into memory; older files without a digest are accepted."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = _load((file.metadata() or {}).get("fedpub", "{}"))
            # A clone has torch's own alignment, which keeps results bit-identical after a resume.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        written = metadata.pop(DIGEST, None)
        if written is not None and written != _digest(tensors, metadata):
            raise ValueError("its content is not what was written there")
        return tensors, metadata
    except FileNotFoundError as error:
        raise FedpubError(f"there is no file {path}") from error
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise FedpubError(f"{path} cannot be read ({error}); it is damaged or not a fedpub file") from error


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Digest of the file's whole content."""
    found = hashlib.sha256(_dump(metadata).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.reshape(-1)
        if len(flat) == 1:  # the stride of a single entry is arbitrary
            flat = flat.clone(memory_format=torch.contiguous_format)
        if len(flat):
            found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def _dump(metadata: Mapping[str, str]) -> str:
    return json.dumps(dict(metadata), sort_keys=True)


def _load(text: str) -> dict[str, str]:
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        raise ValueError("its header is not a JSON object")
    return {str(key): str(value) for key, value in loaded.items()}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
