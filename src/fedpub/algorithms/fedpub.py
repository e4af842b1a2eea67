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
nobody did. Line numbers are those of Algorithm 1 (client) and Algorithm 2 (server) in the paper's appendix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpub.algorithms import official
from fedpub.algorithms.masks import MASK, first_masks, forget_unseen, masked, with_masks
from fedpub.algorithms.measures import Functions, Gradients, Labels, Measure, Nothing, Parameters
from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.similarity import attention, cosine, nearest
from fedpub.algorithms.training import adopt, optimiser_of, train
from fedpub.core.kernels import average_sent, sent_entries
from fedpub.core.message import SENT, Message
from fedpub.core.optim import adam_init
from fedpub.core.tree import State, Tree, select, stacked, tensor, tree, tree_map, update
from fedpub.data.clients.stack import Clients
from fedpub.data.synthetic import SYNTHETIC
from fedpub.errors import FedpubError
from fedpub.models.proxy import P_OUT, ProxyKind

TAU, TAU_OVERLAPPING, TAU_SYNTHETIC = 3.0, 5.0, 10.0
EXPLICIT = 0.5  # similarity within a community, where communities are explicit


@dataclass(frozen=True)
class FedPub(Algorithm):
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
        return {"weight_decay": official.WEIGHT_DECAY} if self.official else {}

    # Algorithm 1: the client

    def init_client(self, w0: Tree, num_clients: int) -> State:
        weights = stacked(w0, num_clients)
        masks = first_masks(weights) if self.masks else {}
        return {"weights": weights, "masks": masks, **adam_init(with_masks(weights, masks))}

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        received, masks = msg.tree("weights"), tree(own["masks"])  # line 2: RunClient(θ̄_i)
        weights = adopt(own, received)  # line 3: θ_i ← θ̄_i; the model multiplies by μ_i
        lambda1, lambda2 = self.penalties
        if lambda1 and masks:
            forget_unseen(masks, tensor(own["step"]), ctx.model, data)
        pace_K = self.pace(data)
        optimiser, loss_K = train(  # lines 4 to 6: E epochs of equation 4
            ctx,
            data,
            weights,
            optimiser_of(own),
            masks,
            lr={MASK + name: ctx.lr * self.mask_lr * pace_K for name in masks},
            shrink=ctx.lr * lambda1 * pace_K if lambda1 else None,  # λ1 ‖μ_i‖₁
            proximal=(lambda2, received) if lambda2 else None,  # λ2 ‖θ_i − θ̄_i‖²
        )
        own = {"weights": weights, "masks": masks, **optimiser}
        up: State = {"weights": weights, **self.compared.upload(ctx, self.masked(own), data)}
        return own, Message(up, tree_map(sent_entries, masks) if SENT in self.uploads else {}), loss_K  # line 7

    def pace(self, data: Clients) -> float | Tensor:
        """The share of their learning rate at which a client's masks learn; one for all, or [K]."""
        return 1.0

    def masked(self, own: State) -> Tree:
        """θ ⊙ μ."""
        masks = official.pruned(tree(own["masks"]), self.lambda1) if self.official else tree(own["masks"])
        return masked(with_masks(tree(own["weights"]), masks))

    personal = starts = masked  # what is evaluated and kept, and what the next round's training starts from

    # Algorithm 2: the server

    def init_server(self, w0: Tree, num_clients: int) -> State:
        return {"weights": stacked(w0, num_clients)}  # line 2

    def send(self, server: State, ids: Tensor) -> Message:
        return Message(select({"weights": server["weights"]}, ids))

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        last = tree(select({"weights": server["weights"]}, ids)["weights"])
        assert self.tau is not None, "the experiment resolves tau"
        if isinstance(self.compared, Functions) and self.neighbours:
            alpha_KK, left_out_K = nearest(self.compared.embeddings(ctx, up), self.tau, self.neighbours)
            notes = {"left_out": left_out_K}
        else:
            similarity_KK = self.compared.similarity(ctx, up, last)  # S(i, j)
            alpha_KK = attention(similarity_KK, self.tau, EXPLICIT if self.communities == "explicit" else None)
            notes = {"similarity": similarity_KK}
        mean = average_sent(alpha_KK, up.tree("weights"), up.sent, last)  # line 8: θ̄_i ← Σ_j α_ij θ_j
        return update(server, ids, {"weights": mean}), notes

    def fingerprint(self, up: Message) -> Tensor | None:
        return self.compared.fingerprint(up)

    def shares(self, newcomer: Tensor, members_K: Tensor) -> Tensor:
        assert self.tau is not None, "the experiment resolves tau"
        return attention(cosine(torch.cat([newcomer, members_K]))[:1, 1:], self.tau)

    # What its options mean

    @property
    def uploads(self) -> frozenset[str]:
        pruned = {SENT} if self.masks and not self.official else set()
        return frozenset({"weights"} | pruned | self.compared.uploads)

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        own = FedPub.init_client(self, w0, 1)
        weights, masks = tree(own["weights"]), tree(own["masks"])
        like: State = {"weights": weights, **self.compared.upload_like(ctx, weights, num_classes)}
        return Message(like, tree_map(sent_entries, masks) if SENT in self.uploads else {})

    @property
    def notes(self) -> Mapping[str, int]:
        # With neighbours no K by K matrix is made: the share of attention that each client leaves out is reported.
        return {"left_out": 1} if self.neighbours else {"similarity": 2}

    @property
    def looks_at_values(self) -> bool:
        return bool(self.measure == "label" or self.proxy == "feature" or self.neighbours)

    @property
    def penalties(self) -> tuple[float, float]:
        """λ1 and λ2."""
        return official.PENALTIES if self.official else (self.lambda1, self.lambda2)

    @property
    def compared(self) -> Measure:
        """What clients are compared by."""
        if not self.similarity:
            return Nothing()
        if self.measure == "function":
            p_out, prunes = official.P_OUT if self.official else P_OUT, bool(self.masks and self.penalties[0])
            return Functions(self.proxy, p_out, self.embedding == "server", self.masks, prunes)
        return {"parameter": Parameters, "gradient": Gradients, "label": Labels}[self.measure]()
