"""FED-PUB (Baek et al., ICML 2023): average with similar clients, and mask what one receives.

Client i trains the weights θ_i, which start at the received θ̄_i, and a mask μ_i that starts at one and stays at home:

    min L(G_i; θ_i ⊙ μ_i) + λ1 ‖μ_i‖₁ + λ2 ‖θ_i − θ̄_i‖²                                          (equation 4)

Adam would rescale the L1 term's tiny constant gradient to a full step, so it is decoupled: after each step

    μ ← sign(μ) · max(|μ| − η λ1, 0),

which makes exact zeros. Where the loss cannot depend on μ, because no node of the client has that input feature, the
minimum is known: μ = 0. The proximal term is taken in θ, since in θ ⊙ μ it would forbid the zeros that λ1 asks for.

With h̃_i the mean output of client i's model on a random graph that all share, the server computes

    S(i, j) = cos(h̃_i, h̃_j),   α_ij = exp(τ S(i, j)) / Σ_k exp(τ S(i, k)),   θ̄_i ← Σ_j α_ij θ_j   (equation 3)

Entries with μ = 0 are not sent: each entry is averaged over the clients that sent it, and keeps its last value where
nobody did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpub.algorithms.protocol import Context, Notes
from fedpub.algorithms.similarity import attention, cosine, label_similarity, nearest
from fedpub.algorithms.training import MASK, adopt, masked, of_part, optimiser_of, train
from fedpub.core.optim import adam_init, soft_threshold
from fedpub.core.tree import (
    CACHED,
    Message,
    State,
    Tree,
    flatten,
    mix,
    not_zero,
    select,
    stacked,
    tensor,
    tree,
    tree_map,
    update,
)
from fedpub.data.clients.stack import Clients
from fedpub.data.synthetic import SYNTHETIC
from fedpub.errors import FedpubError
from fedpub.models.proxy import P_OUT, Proxy, ProxyKind, feature_proxy, narrowed, random_proxy

TAU, TAU_OVERLAPPING, TAU_SYNTHETIC = 3.0, 5.0, 10.0
OFFICIAL_WEIGHT_DECAY = 1e-6


@dataclass(frozen=True)
class FedPub:
    title: ClassVar[str] = "FED-PUB"

    tau: float | None = None
    """Sharpness of averaging by similarity. (default: 3; 5 for overlapping clients, 10 for synthetic graphs)"""
    lambda1: float = 0.001
    """Strength of the L1 penalty on masks; 0 for none. It prunes entries whose steps, at most `mask_lr` times the
    learning rate, are below `lambda1` times the learning rate."""
    lambda2: float = 0.001
    """Strength of the proximal term; no effect with one local epoch, which starts where the term is zero."""
    mask_lr: float = 1.0
    """Learning rate of the masks, as a multiple of `lr`; 10 with a `lambda1` of 6 prunes four fifths."""
    masks: bool = True
    """Personal masks on every weight matrix."""
    similarity: bool = True
    """Averaging by similarity; without it, uniform averaging."""
    measure: Literal["function", "parameter", "gradient", "label"] = "function"
    """Measure of similarity; label uploads label counts, for comparison only."""
    proxy: ProxyKind = "sbm"
    """Proxy graph of functional embeddings: block model, Erdős-Rényi, one node, or the client's own features."""
    embedding: Literal["client", "server"] = "client"
    """Place where functional embeddings are computed; server uploads the masked weights, if there are masks."""
    communities: Literal["implicit", "explicit"] = "implicit"
    """Averaging over all clients (implicit), or over those with a similarity of at least 0.5 (explicit)."""
    neighbours: int = 0
    """Neighbour count: most similar clients to average over, including the client itself; 0 for all."""
    official: bool = False
    """Behaviour of the published code: penalties without effect, masks pruned below `lambda1` in evaluation, no edges
    between blocks of the proxy graph, weight decay 1e-6 by default."""

    def __post_init__(self) -> None:
        if self.embedding == "server" and self.proxy == "feature":
            raise FedpubError("`proxy=feature` needs a client's own features; leave out `embedding=server`")
        by_embedding = self.similarity and self.measure == "function" and self.communities == "implicit"
        if self.neighbours and not by_embedding:
            raise FedpubError(
                f"`neighbours={self.neighbours}` needs functional embeddings and implicit communities; "
                "leave it out, or `measure`, `communities` and `similarity=False`"
            )

    def adapted(self, dataset: str, scenario: str) -> FedPub:
        """With the paper's tau."""
        if self.tau is not None:
            return self
        tau = TAU_OVERLAPPING if scenario == "overlapping" else TAU
        return replace(self, tau=TAU_SYNTHETIC if dataset in SYNTHETIC else tau)

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {"weight_decay": OFFICIAL_WEIGHT_DECAY} if self.official else {}

    @property
    def notes(self) -> Mapping[str, int]:
        # With neighbours no K by K matrix is made: what share of its attention each client leaves out is told instead.
        return {"left_out": 1} if self.neighbours else {"similarity": 2}

    @property
    def steady(self) -> bool:
        # Label counts, features drawn from a client's own nodes and neighbours are found by looking at values.
        return not (self.measure == "label" or self.proxy == "feature" or self.neighbours)

    @property
    def uploads(self) -> frozenset[str]:
        by_measure = {"function": {"embedding"}, "label": {"labels"}}.get(self.measure, set())
        if self.measure == "function" and self.embedding == "server":
            by_measure = {"personal"} if self.masks else set()  # without masks, the weights are what is embedded
        pruned = {"active"} if self.masks and not self.official else set()
        return frozenset({"weights"} | pruned | (by_measure if self.similarity else set()))

    def init_server(self, w0: Tree, num_clients: int) -> State:
        return {"weights": stacked(w0, num_clients)}

    def init_client(self, w0: Tree, num_clients: int) -> State:
        weights = stacked(w0, num_clients)
        masks = {name: torch.ones_like(leaf) for name, leaf in weights.items() if self.masks and is_matrix(leaf)}
        parameters = weights | {MASK + name: mask for name, mask in masks.items()}
        return {"weights": weights, "masks": masks, **adam_init(parameters)}

    def send(self, server: State, ids: Tensor) -> Message:
        return select({"weights": server["weights"]}, ids)

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        received, masks = tree(msg["weights"]), tree(own["masks"])
        weights = adopt(own, received)
        if self._prunes_unseen and not ctx.together and bool((tensor(own["step"]) == 0).any()):
            for name, seen_KF in ctx.model.seen(data).items():
                masks[name].mul_(seen_KF.unsqueeze(2))

        pace_K = self.pace(data)
        amount_K = ctx.lr * self.lambda1 * pace_K

        def sparsify(p: Tree, part: slice) -> None:
            for name in masks:
                soft_threshold(p[MASK + name], of_part(amount_K, part))

        optimiser, loss_K = train(
            ctx,
            data,
            weights,
            optimiser_of(own),
            masks,
            lr={MASK + name: ctx.lr * self.mask_lr * pace_K for name in masks},
            proximal=None if self.official or not self.lambda2 else (self.lambda2, received),
            after_step=None if self.official or not self.lambda1 else sparsify,
        )
        own = {"weights": weights, "masks": masks, **optimiser}
        return own, self._upload(ctx, own, data), loss_K

    def pace(self, data: Clients) -> float | Tensor:
        """What a client's masks learn at, as a share of the speed that is asked for; one, or [K]."""
        return 1.0

    def _upload(self, ctx: Context, own: State, data: Clients) -> Message:
        weights, masks = tree(own["weights"]), tree(own["masks"])
        up: Message = {"weights": weights}
        if "active" in self.uploads:
            up["active"] = tree_map(sent_entries, masks)
        if "embedding" in self.uploads:
            with torch.no_grad():
                up["embedding"] = ctx.model.embed(self.masked(own), self.proxy_graph(ctx, data))
        if "personal" in self.uploads:
            up["personal"] = self.masked(own)
        if "labels" in self.uploads:
            rows = data.train_rows
            cell = data.segments.owner_N[rows] * data.num_classes + data.y_N[rows]
            counts = torch.bincount(cell, minlength=data.num_clients * data.num_classes)
            up["labels"] = counts.view(data.num_clients, data.num_classes).to(data.dtype)
        return up

    def proxy_graph(self, ctx: Context, data: Clients) -> Proxy:
        """The graph that goes through every client's model."""
        if self.proxy == "feature":
            return feature_proxy(ctx.seed, data, ctx.model.propagation, self._p_out)
        proxy = self._random_proxy(ctx, data.num_features, data.device, data.dtype)
        if not self._prunes_unseen:
            return proxy
        seen_KF = torch.stack(list(ctx.model.seen(data).values())).any(0)
        return narrowed(proxy, seen_KF, data)

    def _embedded(self, ctx: Context, personal: Tree) -> Tensor:
        """The functional embeddings of personal weights, where these are at the server."""
        first = next(leaf for name, leaf in personal.items() if name.startswith("conv1") and is_matrix(leaf))
        return ctx.model.embed(personal, self._random_proxy(ctx, first.shape[1], first.device, first.dtype))

    def _random_proxy(self, ctx: Context, features: int, device: torch.device, dtype: torch.dtype) -> Proxy:
        return random_proxy(self.proxy, ctx.seed, features, ctx.model.propagation, self._p_out, device, dtype)

    @property
    def _p_out(self) -> float:
        return 0.0 if self.official else P_OUT

    @property
    def _prunes_unseen(self) -> bool:
        """Whether masks are zero on the inputs that a client does not see."""
        return bool(self.masks and self.lambda1 and not self.official)

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        last = select({"weights": server["weights"]}, ids)
        if self.embedding == "server" and self.similarity and self.measure == "function":
            up = up | {"embedding": self._embedded(ctx, tree(up.get("personal", up["weights"])))}
        alpha_KK, notes = self.attention(up, last)
        mean = average_active(alpha_KK, tree(up["weights"]), tree(up.get("active", {})), tree(last["weights"]))
        return update(server, ids, {"weights": mean}), notes

    def attention(self, up: Message, last: State) -> tuple[Tensor, Notes]:
        """α of the clients that took part, [K, K], and what it is made of."""
        assert self.tau is not None, "the experiment resolves tau"
        if self.neighbours:
            embedding = tensor(up["embedding"])
            alpha_KK, left_out = nearest(embedding, self.tau, min(self.neighbours, len(embedding)))
            return alpha_KK, {"left_out": left_out}
        similarity_KK = self.similarities(up, last)
        threshold = 0.5 if self.communities == "explicit" else None
        alpha_KK = attention(similarity_KK, self.tau if self.similarity else 0.0, threshold)
        return alpha_KK, {"similarity": similarity_KK}

    def similarities(self, up: Message, sent: State) -> Tensor:
        """S(i, j) of the clients that took part, [K, K]."""
        weights = tree(up["weights"])
        if not self.similarity:
            count = len(next(iter(weights.values())))
            return next(iter(weights.values())).new_ones(count, count)
        if self.measure == "function":
            return cosine(tensor(up["embedding"]))
        if self.measure == "label":
            return label_similarity(tensor(up["labels"]))
        if self.measure == "gradient":
            weights = tree_map(torch.sub, weights, tree(sent["weights"]))
        active = tree(up.get("active", {}))  # what was not sent cannot be compared: it counts as zero
        return cosine(flatten(weights | {name: weights[name] * active[name] for name in active}))

    def personal(self, own: State) -> Tree:
        return self.masked(own)

    def starts(self, own: State) -> Tree:
        return self.masked(own)

    def masked(self, own: State) -> Tree:
        """θ ⊙ μ."""
        masks = tree(own["masks"])
        if self.official:
            masks = tree_map(lambda mask: mask.masked_fill(mask.abs() < self.lambda1, 0.0), masks)
        return masked(tree(own["weights"]) | {MASK + name: mask for name, mask in masks.items()})


def is_matrix(leaf: Tensor) -> bool:
    """Whether a parameter [K, ...] is a weight matrix: only those have masks."""
    return leaf.dim() >= 3


def sent_entries(mask: Tensor) -> Tensor:
    """Which entries are not pruned, [K, F, H]; where those are whole rows, as inputs that a client does not see, a view
    of one column."""
    if mask.device.type != "cpu":
        return mask != 0
    kept_KF, width = not_zero(mask), mask.shape[2]
    if bool(((kept_KF == 0) | (kept_KF == width)).all()):
        return (kept_KF > 0).unsqueeze(2).expand_as(mask)
    return mask != 0


def average_active(alpha_KK: Tensor, weights: Tree, active: Tree, last: Tree) -> Tree:
    """θ̄_i = Σ_j α_ij a_j θ_j / Σ_j α_ij a_j, entry by entry; the last value where no a_j is set."""
    averaged = {}
    for name, leaf in weights.items():
        if name not in active:
            averaged[name] = mix(alpha_KK, {name: leaf})[name]
            continue
        sent = active[name]
        mean = leaf.new_empty(len(alpha_KK), *leaf.shape[1:])
        # Rows at a time: a CPU's cache holds them, and thousands of clients need little memory.
        step = max(1, (CACHED if leaf.device.type == "cpu" else BLOCK_ENTRIES) // (len(leaf) * leaf.shape[2]))
        for start in range(0, leaf.shape[1], step):
            rows = (slice(None), slice(start, start + step))
            _average_entries(alpha_KK, leaf[rows], sent[rows], last[name][rows], mean[rows])
        averaged[name] = mean
    return averaged


def _average_entries(alpha_KK: Tensor, leaf: Tensor, active: Tensor, last: Tensor, out: Tensor) -> None:
    sent = (active[..., :1] if active.stride(-1) == 0 else active).to(leaf.dtype)
    parts = mix(alpha_KK, {"total": leaf * sent, "shares": sent})
    if leaf.device.type == "cpu" and bool((parts["shares"] > 0).all()):
        torch.div(parts["total"], parts["shares"], out=out)
    else:
        torch.where(parts["shares"] > 0, parts["total"].div_(parts["shares"]), last, out=out)


BLOCK_ENTRIES = 2**26  # of a GPU's blocks
