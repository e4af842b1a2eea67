"""Tensors and strings in one file, with a digest of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from torch import Tensor

from fedpub.core.files import atomic, writing
from fedpub.errors import FedpubError

DIGEST = "sha256"  # header key: digest of the file's tensors and metadata


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Tensors and strings in one safetensors file with their digest; the same content gives the same bytes."""
    # safetensors writes header strings in hash order, which differs between processes, so the header is one string.
    packed = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    sealed = {**metadata, DIGEST: _digest(packed, metadata)}
    with writing(path, safetensors.SafetensorError), atomic(path) as temporary:
        told = {"fedpub": _dump(sealed)}
        if any(tensor.dtype is torch.bfloat16 for tensor in packed.values()):  # which numpy does not know
            safetensors.torch.save_file(packed, temporary, metadata=told)
        else:  # as arrays: the function for tensors leaves a type of ctypes behind for each, in every round
            arrays = {name: tensor.numpy() for name, tensor in packed.items()}
            safetensors.numpy.save_file(arrays, temporary, metadata=told)


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
