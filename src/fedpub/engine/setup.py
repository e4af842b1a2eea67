"""The exchanges that some methods need before the rounds, with all clients in this process.

Axes: K clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup, Place
from fedpub.core.message import Message
from fedpub.core.sparse import csr, from_scipy, to_scipy
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.data.clients.subgraph import Added
from fedpub.engine.memory import keep_buffers
from fedpub.engine.rounds import check_declared
from fedpub.engine.simulate import Federation, check_numbers, first_weights
from fedpub.engine.size import message_bytes
from fedpub.errors import FedpubError

OnStep = Callable[[str, int, int], None]  # description of an exchange, number of complete ones, total


@dataclass(frozen=True, eq=False)
class SetUp:
    """The result of set-up: the nodes added to every client's graph, and the cost."""

    added: list[Added]
    bytes_up_K: Tensor
    bytes_down_K: Tensor
    seconds: float

    def extend(self, federation: Federation) -> Federation:
        """The federation for the rounds, with the added nodes."""
        pairs = zip(federation.subgraphs, self.added, strict=True)
        return replace(federation, subgraphs=[own.extended(added) for own, added in pairs], set_up=True)

    def cost(self) -> dict[str, float]:
        return {
            "setup_bytes_up": int(self.bytes_up_K.sum()),
            "setup_bytes_down": int(self.bytes_down_K.sum()),
            "setup_seconds": self.seconds,
        }

    def save(self, path: Path) -> None:
        tensors = {"bytes_up": self.bytes_up_K, "bytes_down": self.bytes_down_K}
        for client, own in enumerate(self.added):
            parts = {"anchor": own.anchor, "node": own.node}
            if sp.issparse(own.x):
                x = from_scipy(own.x)
                parts |= {"indptr": x.crow_indices(), "indices": x.col_indices(), "values": x.values()}
                parts["shape"] = torch.tensor(x.shape)
            else:
                parts["x"] = torch.from_numpy(own.x)
            tensors |= {f"{client}/{name}": part for name, part in parts.items()}
        write_tensors(path, tensors, {"clients": str(len(self.added)), "seconds": str(self.seconds)})

    @staticmethod
    def load(path: Path) -> SetUp:
        try:
            tensors, header = read_tensors(path)
            added = [_added(tensors, f"{client}/") for client in range(int(header["clients"]))]
            return SetUp(added, tensors["bytes_up"], tensors["bytes_down"], float(header["seconds"]))
        except (KeyError, TypeError, ValueError, RuntimeError, FedpubError) as error:
            raise FedpubError(
                f"{path} is not a set-up file ({error}); delete it and the checkpoint folder next to it to start over"
            ) from error


def _added(tensors: dict[str, Tensor], prefix: str) -> Added:
    part = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if "x" in part:
        return Added(part["x"].numpy(), part["anchor"], part["node"])
    x = csr(part["indptr"], part["indices"], part["values"], tuple(part["shape"].tolist()))
    return Added(to_scipy(x), part["anchor"], part["node"])


def set_up(algorithm: Algorithm, ctx: Context, federation: Federation, on_step: OnStep | None = None) -> SetUp | None:
    """Run all exchanges of a method before its first round; None if it has none."""
    if not isinstance(algorithm, NeedsSetup):
        return None
    check_numbers(federation)
    if federation.device.type == "cpu":
        keep_buffers()
    began = time.monotonic()
    setup, everyone = algorithm.setup(), federation.subgraphs
    place = Place(federation.num_classes, federation.device, federation.dtype)
    size = federation.chunk or len(everyone)
    groups = [everyone[at : at + size] for at in range(0, len(everyone), size)]
    work = [setup.workspace(ctx, group, place) for group in groups]
    w0 = first_weights(federation, ctx)
    states = [setup.init_clients(ctx, w0, own) for own in work]
    server = setup.init_server(len(everyone))
    up_K = torch.zeros(len(everyone), dtype=torch.int64)
    down_K = torch.zeros_like(up_K)
    for step, name in enumerate(setup.steps):
        answers: list[Message] = []
        for number, group in enumerate(groups):
            received = [setup.send(server, step, own.id) for own in group]
            states[number], up = setup.clients(ctx, step, states[number], received, work[number])
            for own, got, sent in zip(group, received, up, strict=True):
                check_declared(algorithm, sent)
                up_K[own.id] += message_bytes(sent, 1, federation.device).cpu()[0]
                down_K[own.id] += message_bytes(got, 1, federation.device).cpu()[0]
            answers += up
        server = setup.server(ctx, step, server, answers)
        if on_step:
            on_step(name, step + 1, len(setup.steps))
    added = [one for own, group in zip(states, work, strict=True) for one in setup.added(ctx, own, group)]
    return SetUp(added, up_K, down_K, time.monotonic() - began)
