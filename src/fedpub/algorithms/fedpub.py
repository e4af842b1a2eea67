"""FED-PUB (Baek et al., ICML 2023): average with similar clients, and mask the received weights.

Client i trains the weights θ_i, which start at the received θ̄_i, and a mask μ_i that starts at one and is never sent:

    min L(G_i; θ_i ⊙ μ_i) + λ1 ‖μ_i‖₁ + λ2 ‖θ_i − θ̄_i‖²                                          (equation 4)

Adam would rescale the L1 term's tiny constant gradient to a full step, so it is decoupled: after each step

    μ ← sign(μ) · max(|μ| − η λ1, 0),

which gives exact zeros. If the loss cannot depend on μ, because no node of the client has that input feature, the
minimum is known: μ = 0. The proximal term is in θ, since in θ ⊙ μ it would work against the zeros that λ1 favours.

With h̃_i the mean output of client i's model on a random graph common to all, the server computes

    S(i, j) = cos(h̃_i, h̃_j),   α_ij = exp(τ S(i, j)) / Σ_k exp(τ S(i, k)),   θ̄_i ← Σ_j α_ij θ_j   (equation 3)

Entries with μ = 0 are not sent: each entry is averaged over the clients that sent it, and keeps its last value if
none did. Line numbers are those of Algorithm 1 (client) and Algorithm 2 (server) in the paper's appendix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.algorithms import official
from fedpub.algorithms.fedpub_disjoint import Disjoint, one_community
from fedpub.algorithms.masks import MASK, first_masks, forget_unseen, masked, with_masks
from fedpub.algorithms.measures import Functions
from fedpub.algorithms.protocol import Context, Notes
from fedpub.algorithms.similarity import attention, cosine, nearest
from fedpub.algorithms.sums import sums_of
from fedpub.algorithms.training import adopt, optimiser_of, train
from fedpub.core.kernels import average_sent, sent_entries
from fedpub.core.message import SENT, Message
from fedpub.core.optim import adam_init
from fedpub.core.tree import State, Tree, select, stacked, tensor, tree, tree_map, update
from fedpub.data.clients.stack import Clients
from fedpub.errors import FedpubError
from fedpub.models import Model
from fedpub.tasks import Task


@dataclass(frozen=True)
class FedPub(Disjoint):
    title: ClassVar[str] = "FED-PUB"

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

    def masked(self, own: State) -> Tree:
        """θ ⊙ μ."""
        masks = official.pruned(tree(own["masks"]), self.lambda1) if self.official else tree(own["masks"])
        return masked(with_masks(tree(own["weights"]), masks))

    personal = starts = masked  # evaluated and kept, and the start of the next round's training

    def net(self, chosen: Model, task: Task, batches: bool = False) -> Model:
        if self.similarity and self.measure == "label" and task.of_targets:
            raise FedpubError("`measure=label` compares counts of classes, which this task has none of; take another")
        return chosen

    # Algorithm 2: the server

    def init_server(self, w0: Tree, num_clients: int) -> State:
        first: State = {"weights": stacked(w0, num_clients)}  # line 2
        return first | (one_community(next(iter(w0.values())), num_clients) if self.communities == "disjoint" else {})

    def send(self, server: State, ids: Tensor) -> Message:
        return Message(select({"weights": server["weights"]}, ids))

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        if self.communities == "disjoint":
            return self.summed(ctx, server, ids, sums_of(self, ctx, server, ids, up, self.least(ctx, server)), up)
        last = tree(select({"weights": server["weights"]}, ids)["weights"])
        assert self.tau is not None, "the experiment resolves tau"
        if isinstance(self.compared, Functions) and self.neighbours:
            alpha_KK, left_out_K = nearest(self.compared.embeddings(ctx, up), self.tau, self.neighbours)
            notes = {"left_out": left_out_K}
        else:
            similarity_KK = self.compared.similarity(ctx, up, last)  # S(i, j)
            alpha_KK = attention(similarity_KK, self.tau, self.threshold)  # α_ij
            notes = {"similarity": similarity_KK, "alpha": alpha_KK}
        mean = average_sent(alpha_KK, up.tree("weights"), up.sent, last)  # line 8: θ̄_i ← Σ_j α_ij θ_j
        return update(server, ids, {"weights": mean}), notes

    def fingerprint(self, up: Message) -> Tensor | None:
        return self.compared.fingerprint(up)

    def shares(self, server: State, newcomer: Tensor, members_K: Tensor) -> Tensor:
        assert self.tau is not None, "the experiment resolves tau"
        return attention(cosine(torch.cat([newcomer, members_K]))[:1, 1:], self.tau)

    # The form of its messages

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        own = FedPub.init_client(self, w0, 1)
        weights, masks = tree(own["weights"]), tree(own["masks"])
        like: State = {"weights": weights, **self.compared.upload_like(ctx, weights, num_classes)}
        return Message(like, tree_map(sent_entries, masks) if SENT in self.uploads else {})
