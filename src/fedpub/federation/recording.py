"""What a coordinator sees, kept in files for an audit with test data: what it sent, and what came back.

A file per answer in a plain run, and per round in a secure one. Without the option that asks for it nothing is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedpub.core.message import Message
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import pack, unpack
from fedpub.engine.observed import Observed, Sum
from fedpub.errors import FedpubError

FOLDER, FORMAT = "observed", "fedpub-observed-1"


class Recorder:
    """Writes every observation to a file in the folder; asked again, a round replaces its files."""

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self._folder, self._sites = folder, json.dumps(list(sites))

    def __call__(self, observed: Observed) -> None:
        tensors: dict[str, Tensor] = {"ids": observed.ids, **pack(observed.sent.flat(), "sent/")}
        if observed.clear is not None:
            tensors |= pack(observed.clear.flat(), "clear/")
        for number, one in enumerate(observed.sums):
            tensors |= {f"sums/{number}/ids": one.ids, **pack(one.parts, f"sums/{number}/parts/")}
        header = {"format": FORMAT, "round": str(observed.round), "sites": self._sites}
        header |= {"clear": str(observed.clear is not None), "sums": str(len(observed.sums))}
        name = f"{observed.round:06}-{int(observed.ids[0]):05}.safetensors"
        write_tensors(self._folder / name, {key: value.clone() for key, value in tensors.items()}, header)


def recorded(folder: Path) -> Iterator[tuple[Observed, list[str]]]:
    """All observations in the order of their rounds, with the names of the sites."""
    for path in sorted(folder.glob("*.safetensors")):
        tensors, header = read_tensors(path)
        if header.get("format") != FORMAT:
            raise FedpubError(f"{path} is not what a coordinator has seen (format {header.get('format')!r}); remove it")
        try:
            yield _observed(tensors, header), [str(name) for name in json.loads(header["sites"])]
        except (KeyError, ValueError, TypeError) as error:
            raise FedpubError(f"{path} is damaged ({error}); remove it") from error


def _observed(tensors: dict[str, Tensor], header: dict[str, str]) -> Observed:
    sums = []
    for number in range(int(header["sums"])):
        ids = tensors[f"sums/{number}/ids"]
        sums.append(Sum(ids, unpack(tensors, f"sums/{number}/parts/")))
    clear = Message.of(unpack(tensors, "clear/")) if header["clear"] == "True" else None
    ids = tensors["ids"].to(torch.int64)
    return Observed(int(header["round"]), ids, Message.of(unpack(tensors, "sent/")), clear, tuple(sums))
