"""The measures by which FED-PUB compares clients: what each uploads, and the similarities that follow.

Axes: K clients, H hidden, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.similarity import cosine, label_similarity
from fedpub.core.message import Message
from fedpub.core.rng import numpy_stream
from fedpub.core.tree import State, Tree, flatten, tree_map
from fedpub.data.clients.stack import Clients
from fedpub.models.proxy import P_OUT, Proxy, ProxyKind, feature_proxy, narrowed, proxy_structure, random_proxy

EMBEDDING, PERSONAL, LABELS = "embedding", "personal", "labels"  # the names of uploads


class Measure(Protocol):
    @property
    def uploads(self) -> frozenset[str]: ...

    def upload(self, ctx: Context, personal: Tree, data: Clients) -> State:
        """The upload of clients with these personal weights, for the comparison."""

    def upload_like(self, ctx: Context, weights: Tree, num_classes: int) -> State:
        """An example upload of one client, for names, shapes and types."""

    def similarity(self, ctx: Context, up: Message, last: Tree) -> Tensor:
        """S(i, j), [K, K]; `last` are the weights that the clients had received."""

    def fingerprint(self, up: Message) -> Tensor | None:
        """The part of an upload with which later clients can be compared, [K, ...]."""


class Nothing:
    """All clients are alike."""

    uploads: frozenset[str] = frozenset()

    def upload(self, ctx: Context, personal: Tree, data: Clients) -> State:
        return {}

    def upload_like(self, ctx: Context, weights: Tree, num_classes: int) -> State:
        return {}

    def fingerprint(self, up: Message) -> Tensor | None:
        return None

    def similarity(self, ctx: Context, up: Message, last: Tree) -> Tensor:
        some = next(iter(up.tree("weights").values()))
        return some.new_ones(len(some), len(some))


@dataclass(frozen=True)
class Functions(Nothing):
    """Functional embeddings: the mean output on a proxy graph (section 4.1), computed at the client or the server."""

    proxy: ProxyKind
    p_out: float
    at_server: bool
    masks: bool  # whether personal weights differ from those that are sent
    prunes: bool  # whether weights on inputs that a client never sees are zero

    @property
    def uploads(self) -> frozenset[str]:  # type: ignore[override]
        if not self.at_server:
            return frozenset({EMBEDDING})
        return frozenset({PERSONAL} if self.masks else ())

    def upload(self, ctx: Context, personal: Tree, data: Clients) -> State:
        if self.at_server:
            return {PERSONAL: personal} if self.masks else {}
        with torch.no_grad():
            return {EMBEDDING: noisy(ctx, ctx.model.embed(personal, self.graph(ctx, data)), data)}

    def upload_like(self, ctx: Context, weights: Tree, num_classes: int) -> State:
        if self.at_server:
            return {PERSONAL: weights} if self.masks else {}
        return {EMBEDDING: ctx.model.embed(weights, self._shared(ctx, weights))}

    def similarity(self, ctx: Context, up: Message, last: Tree) -> Tensor:
        return cosine(self.embeddings(ctx, up))

    def fingerprint(self, up: Message) -> Tensor | None:
        return None if self.at_server else up.tensor(EMBEDDING)

    def embeddings(self, ctx: Context, up: Message) -> Tensor:
        """h̃ of the clients that took part, [K, H]."""
        if not self.at_server:
            return up.tensor(EMBEDDING)
        personal = up.tree(PERSONAL if self.masks else "weights")
        return ctx.model.embed(personal, self._shared(ctx, personal))

    def graph(self, ctx: Context, data: Clients) -> Proxy:
        """The proxy graph on which every client's model is evaluated."""
        if self.proxy == "feature":
            edges = ("proxy edges", self.p_out)
            a_PP = ctx.once(edges, lambda: proxy_structure("sbm", ctx.seed, ctx.model.propagation, self.p_out))
            return feature_proxy(ctx.seed, data, a_PP, ctx.model.steps)
        proxy = self._random(ctx, data.num_features, data.device, data.dtype)
        seen = [*ctx.model.seen(data).values()] if self.prunes else []
        return data.once(proxy, lambda: narrowed(proxy, torch.stack(seen).any(0))) if seen else proxy

    def _shared(self, ctx: Context, weights: Tree) -> Proxy:
        """The proxy graph common to all, for models of which only the weights are known."""
        some = next(iter(weights.values()))
        return self._random(ctx, ctx.model.num_inputs(weights), some.device, some.dtype)

    def _random(self, ctx: Context, features: int, device: torch.device, dtype: torch.dtype) -> Proxy:
        return common_proxy(ctx, features, device, dtype, "sbm" if self.proxy == "feature" else self.proxy, self.p_out)


def common_proxy(
    ctx: Context, features: int, device: torch.device, dtype: torch.dtype, kind: ProxyKind = "sbm", p_out: float = P_OUT
) -> Proxy:
    """The random graph that is the same for all clients of a run."""
    model = ctx.model
    return ctx.once(
        ("proxy", kind, p_out, features, device, dtype),
        lambda: random_proxy(kind, ctx.seed, features, model.propagation, p_out, device, dtype, model.steps),
    )


def noisy(ctx: Context, embedding_KH: Tensor, data: Clients) -> Tensor:
    """Embeddings with normal noise, in standard deviations of each client's own entries.

    The seed of a run is known to all; a site draws from a seed that only it knows, or the noise could be subtracted.
    """
    if not ctx.embedding_noise:
        return embedding_KH
    seed = ctx.seed if ctx.private_seed is None else ctx.private_seed
    streams = [numpy_stream(seed, "embedding noise", client, ctx.round) for client in data.ids_K.tolist()]
    noise_KH = torch.from_numpy(np.stack([stream.standard_normal(embedding_KH.shape[1]) for stream in streams]))
    return embedding_KH + ctx.embedding_noise * embedding_KH.std(1, keepdim=True) * noise_KH.to(embedding_KH)


class Parameters(Nothing):
    """The weights themselves. Entries that were not sent cannot be compared: they count as zero."""

    def similarity(self, ctx: Context, up: Message, last: Tree) -> Tensor:
        compared = self.compared(up.tree("weights"), last)
        return cosine(flatten(compared | {name: compared[name] * sent for name, sent in up.sent.items()}))

    def compared(self, weights: Tree, last: Tree) -> Tree:
        return weights


class Gradients(Parameters):
    """The change of the weights in a round of training."""

    def compared(self, weights: Tree, last: Tree) -> Tree:
        return tree_map(torch.sub, weights, last)


class Labels(Nothing):
    """Class counts of a client's training nodes: for comparison only, since they are sensitive."""

    uploads: frozenset[str] = frozenset({LABELS})

    def upload(self, ctx: Context, personal: Tree, data: Clients) -> State:
        rows = data.train_rows
        cell = data.segments.owner_N[rows] * data.num_classes + data.y_N[rows]
        counts = torch.bincount(cell, minlength=data.num_clients * data.num_classes)
        return {LABELS: counts.view(data.num_clients, data.num_classes).to(data.dtype)}

    def upload_like(self, ctx: Context, weights: Tree, num_classes: int) -> State:
        return {LABELS: next(iter(weights.values())).new_zeros(1, num_classes)}

    def similarity(self, ctx: Context, up: Message, last: Tree) -> Tensor:
        return label_similarity(up.tensor(LABELS))
