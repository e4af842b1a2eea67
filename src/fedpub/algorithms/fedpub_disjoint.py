"""FED-PUB with disjoint communities: with equal shares, the server needs only a sum over each of them.

With A(i) the average that client i was sent, and C(i) its community, every round

    A(i) ← A(i) + Σ_j a_j (θ_j − A(j)) / Σ_j a_j   over the clients j of C(i), a_j: whether j sends that entry
    C    ← the communities of the new embeddings: average linkage, similarity at least 0.5, at least `min_group` clients
    A(i) ← the mean of A(j) over the clients j of the new C(i)

The last line has no weights of single clients in it: averages of communities are known to the server.

Axes: K clients, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpub.algorithms.communities import communities
from fedpub.algorithms.fedpub_options import EXPLICIT, Options
from fedpub.algorithms.measures import EMBEDDING
from fedpub.algorithms.protocol import Context, Notes
from fedpub.algorithms.similarity import cosine
from fedpub.algorithms.sums import Hidden, Summed, steps_of, within
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, mix, tensor, tree, tree_map


def one_community(like: Tensor, num_clients: int) -> State:
    """Before the first round, in which all clients receive the same weights."""
    return {
        "community": torch.zeros(num_clients, dtype=torch.int64, device=like.device),
        "embeddings": like.new_zeros(num_clients, 0),
    }


@dataclass(frozen=True)
class Disjoint(Options):
    shared_out: ClassVar[bool] = False

    def least(self, ctx: Context, server: State) -> int:
        """Clients without which an average is kept as it is."""
        return min(ctx.min_group, len(tensor(server["community"])))

    def groups(self, server: State, ids: Tensor) -> Tensor:
        return tensor(server["community"])[ids]

    def hidden(self, ctx: Context, sent: Message, up: Message, examples: int) -> Hidden:
        """Steps of entries that are not sent are zero; their numbers of senders are counted."""
        steps = steps_of(up.tree("weights"), sent.tree("weights"))
        chosen = {name: step * up.sent[name] if name in up.sent else step for name, step in steps.items()}
        return Hidden(chosen, {name: sent.to(chosen[name].dtype) for name, sent in up.sent.items()})

    def clear(self, up: Message) -> Message:
        return Message({name: part for name, part in up.items() if name == EMBEDDING})

    def summed(
        self, ctx: Context, server: State, ids: Tensor, found: Sequence[Summed], clear: Message
    ) -> tuple[State, Notes]:
        place_K, mean = tensor(server["community"]), tree_map(torch.clone, tree(server["weights"]))
        for one in found:
            member_K = place_K == one.group
            for name, leaf in mean.items():
                count = one.sums.counts.get(name, leaf.new_full((), len(one.ids)))
                leaf[member_K] += within(one.sums.steps[name] / count.clamp(min=1), ctx)
        done: State = {"weights": mean, "community": place_K, "embeddings": server["embeddings"]}
        if EMBEDDING in clear:
            done |= self._regrouped(ctx, ids, done, clear.tensor(EMBEDDING))
        same_KK = (tensor(done["community"])[ids].unsqueeze(1) == tensor(done["community"])[ids]).to(torch.float32)
        return done, {"similarity": cosine(tensor(done["embeddings"])[ids]), "alpha": same_KK / same_KK.sum(1, True)}

    def _regrouped(self, ctx: Context, ids: Tensor, server: State, embedding_KH: Tensor) -> State:
        """The new communities; a client that is absent is known by its last embedding."""
        known_KH = tensor(server["embeddings"])
        if not known_KH.shape[1]:
            known_KH = embedding_KH.new_zeros(len(known_KH), embedding_KH.shape[1])
        known_KH = known_KH.index_copy(0, ids.to(known_KH.device), embedding_KH)
        place_K = communities(known_KH, ctx.min_group, EXPLICIT)
        member_KK = (place_K.unsqueeze(1) == place_K).double()
        mean: Tree = mix(member_KK / member_KK.sum(1, keepdim=True), tree(server["weights"]))
        return {"weights": mean, "community": place_K, "embeddings": known_KH}
