"""A site's part in a run: its data, what it computes with, and its files."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpub.algorithms.protocol import Algorithm, Context, NeedsSetup, Place
from fedpub.core.files import write_text
from fedpub.core.message import Message
from fedpub.core.private import owner_only
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import State, Tree, pack, state_map, unpack
from fedpub.data.clients.split import with_split
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Subgraph
from fedpub.data.clients.subgraph_files import read_subgraph
from fedpub.data.graph import Graph
from fedpub.engine.simulate import Federation, first_weights
from fedpub.errors import FedpubError
from fedpub.experiment import Plan
from fedpub.experiment.prepare import usable
from fedpub.federation.validate.upload import wrong_values
from fedpub.federation.validate.weights import implausible
from fedpub.federation.wire_header import Precision
from fedpub.tasks.nodes import placed


class Source(Protocol):
    """Where a site's data comes from."""

    classes: tuple[str, ...]
    num_features: int
    num_relations: int

    def piece(self, plan: Plan, client: int, classes: tuple[str, ...]) -> Subgraph:
        """The data of this client, split, with labels as positions in `classes`."""


class OwnGraph:
    """The site's own graph: its labelled nodes, or its edges, are split here, or as its owner has split them."""

    def __init__(self, path: Path) -> None:
        self.graph = Graph.load(path)
        self.classes, self.num_features = self.graph.classes, self.graph.num_features
        self.num_relations = self.graph.num_relations

    def piece(self, plan: Plan, client: int, classes: tuple[str, ...]) -> Subgraph:
        place = torch.tensor([classes.index(name) for name in self.graph.classes] + [-1])
        given = usable(plan, self.graph)
        there = replace(given, y=place[self.graph.y], target=placed(self.graph, classes), classes=classes)
        graph = with_split(there, plan.split, None)
        nodes, kind = (torch.arange(graph.num_nodes),), plan.model.propagation
        own = plan.task.divide(graph, nodes, plan.data_seed, plan.ratios, kind)[0]
        return replace(own, id=client)


class OnePiece:
    """A subgraph of a graph that was partitioned and split elsewhere."""

    def __init__(self, path: Path) -> None:
        self.own, self.classes = read_subgraph(path)
        self.num_features, self.num_relations = int(self.own.x.shape[1]), self.own.num_relations

    def piece(self, plan: Plan, client: int, classes: tuple[str, ...]) -> Subgraph:
        if not plan.task.was_split_for(self.own):
            task = plan.experiment.task
            raise FedpubError(f"this piece of a graph was not split for {task}; divide the graph again for that task")
        if classes != self.classes:
            raise FedpubError(
                f"this piece of a graph has the classes {self.classes}, not {classes}; use pieces of one graph"
            )
        return replace(self.own, id=client, propagation=plan.model.propagation)


@dataclass(frozen=True, eq=False)
class Part:
    """A site's part in one run: which client it is, and what it computes with."""

    folder: Path
    plan: Plan
    client: int
    classes: tuple[str, ...]
    precision: Precision
    site: str
    own: Subgraph
    sites: int  # that take part, by what the coordinator says

    @property
    def algorithm(self) -> Algorithm:
        return self.plan.algorithm

    @cached_property
    def ctx(self) -> Context:
        """With a seed that never leaves the site, if noise is drawn from it."""
        ctx = self.plan.context
        return replace(ctx, private_seed=self._private_seed()) if ctx.embedding_noise else ctx

    def _private_seed(self) -> int:
        path = self.folder / "noise.key"
        if not path.is_file():
            with owner_only():
                write_text(path, f"{secrets.randbits(62)}\n")
        return int(path.read_text(encoding="utf-8"))

    @cached_property
    def place(self) -> Place:
        return Place(len(self.classes), self.plan.device, self.plan.dtype)

    @cached_property
    def w0(self) -> Tree:
        return first_weights(
            Federation([self.own], self.place.num_classes, self.place.device, self.place.dtype), self.ctx
        )

    @cached_property
    def first_message(self) -> Message:
        """What an honest coordinator sends before anything is averaged: the first weights, the same for all sites."""
        return self.algorithm.send(self.algorithm.init_server(self.w0, 1), torch.tensor([0]))

    @cached_property
    def data(self) -> Clients:
        """What the rounds compute with, after the method's set-up if it has one."""
        own = self.own
        if isinstance(self.algorithm, NeedsSetup):
            setup = self.algorithm.setup()
            state = self.load(f"setup-{len(setup.steps) - 1}")[0]
            own = own.extended(setup.added(self.ctx, [state], self.workspace)[0])
        place = self.place
        return stack([own], place.num_classes, place.device, place.dtype, None, *self.ctx.needs)

    @cached_property
    def workspace(self) -> Any:
        assert isinstance(self.algorithm, NeedsSetup)
        return self.algorithm.setup().workspace(self.ctx, [self.own], self.place)

    def load(self, name: str) -> tuple[State, bytes]:
        """A state and the answer sent with it."""
        path = self.folder / f"{name}.safetensors"
        if not path.is_file():
            raise LostError(f"site {self.site!r} has no state of {name}")
        try:
            flat, _ = read_tensors(path)
        except FedpubError as error:
            raise LostError(f"site {self.site!r} cannot read its {path.name}, which is damaged") from error
        state = state_map(lambda leaf: leaf.to(self.plan.device), unpack(flat, "state/"))
        return state, flat["answer"].numpy().tobytes()

    def answered(self, name: str) -> bytes | None:
        """The stored answer, if any; the ledger checks that it was to the same message."""
        return self.load(name)[1] if (self.folder / f"{name}.safetensors").is_file() else None

    def check_message(self, ctx: Context, message: Message, own: Tree, base: int) -> None:
        """Raise an error unless an honest coordinator could send the message in the context's round."""
        wrong = message.unlike(self.first_message) or wrong_values(message)
        if wrong:
            raise FedpubError(f"the message of round {ctx.round} is not one of {self.plan.experiment.method}: {wrong}")
        if wrong := implausible(ctx, message, self.first_message, own, base):
            raise FedpubError(f"the weights of round {ctx.round} are not an average of models: {wrong}")

    def save(self, name: str, state: State, answer: bytes) -> None:
        tensors = pack(state_map(torch.clone, state), "state/")
        tensors["answer"] = torch.from_numpy(np.frombuffer(answer, dtype=np.uint8).copy())
        write_tensors(self.folder / f"{name}.safetensors", tensors, {})


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _numbers(metrics: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value_R[0]) for name, value_R in metrics.items()}


class LostError(FedpubError):
    """The site lacks a state that the coordinator relies on; it must begin anew."""
