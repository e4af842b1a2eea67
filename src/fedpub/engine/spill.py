"""The states of clients in files, with one chunk at a time in memory.

For federations whose optimisers and masks are larger than memory. The tensors are those of a state, [K, ...] for all
clients, mapped from unlinked files: these vanish with the process.
"""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedpub.core.tree import State, pack, put, unpack


class Spill:
    def __init__(self, folder: Path, clients: int) -> None:
        self._folder = folder
        self._clients = clients
        self._maps: list[mmap.mmap] = []
        self.state: State = {}

    def put(self, ids: Tensor, part: State) -> None:
        """Write the states of some clients; the first call allocates all."""
        if not self.state:
            self.state = unpack({name: self._mapped(leaf) for name, leaf in pack(part).items()})
        put(self.state, ids, part)
        self.rest()

    def rest(self) -> None:
        """Let the system drop from memory what was read or written; the files keep it."""
        for one in self._maps:
            one.madvise(mmap.MADV_DONTNEED)

    def _mapped(self, like: Tensor) -> Tensor:
        if not like.numel():
            return like
        size = self._clients * like[0].numel() * like.element_size()
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(size)
            held = mmap.mmap(file.fileno(), size)
        self._maps.append(held)
        array = np.frombuffer(held, dtype=torch.empty(0, dtype=like.dtype).numpy().dtype)
        return torch.from_numpy(array).view(self._clients, *like.shape[1:])
