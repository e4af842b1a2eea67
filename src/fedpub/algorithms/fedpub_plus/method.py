"""FED-PUB-plus: averages over all clients or over communities, and a personal model on what is received.

A client begins alone: for five rounds it trains a model that is never mixed or sent. What it has learnt is the change
of that model's function F, the outputs on the nodes of a random graph that is the same for all, since the common start,

    f_i = F(θ_i) − F(θ_0), less its mean over the nodes;

clients whose f have a mean cosine of at least 0.1 are a community (`communities.py`). Then, every round,

    θ_i ← θ̄;  E epochs of min L(G_i; θ_i);  θ̄ ← the mean of θ_j over all, or over the community of i   (shared)
    φ_i ← θ̄;  E epochs of min L(G_i; φ_i ⊙ μ_i) + λ1 ‖μ_i‖₁                                             (personal)

where φ and the mask μ never leave the client: unlike in FED-PUB, masks do not shape what is averaged. If there are
communities, both averages are tried in turns for fifty rounds. Then the one whose models validate better, by the means
over all clients, continues alone: `everyone`, with or without masks, or `community`.

A client uses one of four models: its personal one, one of the two shared ones as it has trained them, or Local's, which
it trains beside (`beside.py`). It chooses by its validation examples and the means over all clients (`choice.py`).

Axes: K clients, G communities, D numbers of f, M models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpub.algorithms.communities import communities
from fedpub.algorithms.fedpub_plus.averages import averaged
from fedpub.algorithms.fedpub_plus.beside import KEPT, LOCAL, init_beside, train_beside
from fedpub.algorithms.fedpub_plus.choice import UNKNOWN, chosen, means, no_scores, smoothed
from fedpub.algorithms.fedpub_plus.secret import compared, from_sums, functions, groups_of, hidden
from fedpub.algorithms.fedpub_plus.standing import (
    ALONE,
    BESIDE,
    BESIDE_LOSS,
    BESIDE_VAL,
    COMMUNITY,
    EVERYONE,
    FUNCTION,
    IN_COMMUNITY,
    MODELS,
    PERSONAL,
    ROUNDS_ALONE,
    TRYING,
    USED,
    WITH_EVERYONE,
    comparable,
    departed,
    groups,
    heard,
    members,
    on_trial,
    phases,
    reports,
    tried,
    unscored,
)
from fedpub.algorithms.fedpub_plus.state import (
    either_state,
    for_some,
    masked_weights,
    name_of,
    named,
    optimiser_part,
    part,
)
from fedpub.algorithms.masks import MASK, first_masks, forget_unseen, with_masks
from fedpub.algorithms.measures import common_proxy, noisy
from fedpub.algorithms.protocol import Algorithm, Context, Notes
from fedpub.algorithms.sums import LARGEST, Hidden, Summed
from fedpub.algorithms.training import optimiser_of, train
from fedpub.core.message import SENT, Message
from fedpub.core.optim import adam_init
from fedpub.core.tree import (
    State,
    Tree,
    broadcast,
    either,
    for_each,
    stacked,
    state_map,
    tensor,
    tree,
    tree_map,
)
from fedpub.data.clients.stack import Clients
from fedpub.errors import FedpubError
from fedpub.models.base import Model
from fedpub.models.fallback import WithFallback, apart, together
from fedpub.models.proxy import BLOCK_NODES, BLOCKS
from fedpub.tasks import Task

SCARCE = 0.1  # training examples per input feature at which masks learn at half speed
NODES = BLOCKS * BLOCK_NODES  # of the random graph


@dataclass(frozen=True)
class FedPubPlus(Algorithm):
    title: ClassVar[str] = "FED-PUB-plus"
    shared_out: ClassVar[bool] = False
    looks_at_values: ClassVar[bool] = True

    grouping: bool = True
    """Averages over communities where these validate better than one average over all clients."""
    min_group: int = 3
    """Minimum number of clients in a community, and in an average: with fewer answers, the last one is kept."""
    given: str = ""
    """Known communities, one number per client, such as 0,0,1,1; none are searched for."""
    masks: bool = True
    """A personal model with masks on every weight matrix, which is never sent."""
    lambda1: float = 0.001
    """Strength of the L1 penalty on masks; 0 for none."""
    fallback: bool = True
    """Local's model as a fallback, trained beside the others."""
    evidence: float = 50.0
    """Weight, in validation examples, of the mean over all clients when a client chooses its model."""

    def __post_init__(self) -> None:
        if self.min_group < 1:
            raise FedpubError(f"`min_group={self.min_group}` is not possible; give 1 or more")
        if self.given and not self.grouping:
            raise FedpubError("`given` names communities and `grouping=False` has none; leave one of them out")
        if (known := self.known) and min(Counter(known).values()) < self.min_group:
            least = f"`min_group={self.min_group}`"
            raise FedpubError(f"`given` has a community of fewer than {least} clients; join it to another one")
        for name, value in (("lambda1", self.lambda1), ("evidence", self.evidence)):
            if not 0 <= value < float("inf"):
                raise FedpubError(f"`{name}={value}` is not possible; give 0 or more")

    @property
    def known(self) -> list[int]:
        """The communities that are given, client by client, numbered by their first members."""
        words = [word.strip() for word in self.given.split(",")] if self.given else []
        if not all(word.isdecimal() for word in words):
            raise FedpubError(
                f"`given={self.given}` is not a list of numbers; give one number per client, such as 0,0,1,1"
            )
        seen: dict[str, int] = {}
        return [seen.setdefault(word.lstrip("0"), len(seen)) for word in words]

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {"model": "hops", "hidden": 64, "dropout": 0.6}

    @property
    def notes(self) -> Mapping[str, int]:
        return {"similarity": 2, "alpha": 2, "community": 1, "used": 1}

    def net(self, chosen: Model, task: Task, batches: bool = False) -> Model:
        if not self.fallback:
            return chosen
        # Two models of one client need the same adjacency and outputs; for links, outputs are as wide as the model. In
        # batches of nodes Local's model cannot train.
        like_local = chosen.propagation == LOCAL.propagation and not task.of_pairs and not batches
        return WithFallback(chosen, LOCAL if like_local else chosen)

    # The client

    def init_client(self, w0: Tree, num_clients: int) -> State:
        first, second = apart(w0)
        weights = stacked(first, num_clients)
        masks = first_masks(weights) if self.masks else {}
        own: State = {"weights": weights, "masks": masks, **adam_init(with_masks(weights, masks))}
        for number in (EVERYONE, COMMUNITY):
            shared = stacked(first, num_clients)
            own |= named(number, {"weights": shared, **adam_init(shared)})
        device = next(iter(w0.values())).device
        own |= {name: no_scores(num_clients, len(MODELS), device) for name in ("scores", "means")}
        for name in ("examples", "moved"):  # validation examples; the last round in which "weights" were trained
            own[name] = torch.zeros(num_clients, dtype=torch.int64, device=device)
        return own | (init_beside(second, num_clients) if self.fallback else {})

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        inner, phase_K, received, mean_KM = _inner(ctx), msg.tensor("phase"), msg.tree("weights"), msg.tensor("means")
        alone_K, joint_K = phase_K == ALONE, phase_K == WITH_EVERYONE
        done = own | {"means": mean_KM[:, : len(MODELS)].clone(), "examples": ctx.task.num_val(data)}
        score_KM = tensor(own["scores"]).clone()

        # Shared: θ ← θ̄, or the client's own while it is alone
        weights = either(alone_K, part(own, COMMUNITY, "weights"), received)
        ours, theirs = (optimiser_part(own, number) for number in (EVERYONE, COMMUNITY))
        optimiser, loss_K = train(inner, data, weights, either_state(joint_K, ours, theirs))
        shared: State = {"weights": weights, **optimiser}
        val_K = _validated(inner, weights, data)
        for number, here_K in ((EVERYONE, joint_K), (COMMUNITY, ~joint_K)):
            done |= for_some(here_K, named(number, shared), own)
            score_KM[:, number] = smoothed(score_KM[:, number], torch.where(here_K, val_K, UNKNOWN))

        # Personal: φ ← θ̄, with the average that goes on, or may
        learns_K = joint_K | (phase_K == IN_COMMUNITY)
        done["moved"] = torch.where(learns_K, ctx.round, tensor(own["moved"]))
        if not self.masks:  # nothing personal is trained: the guard compares what is received with what was shared
            done["weights"] = either(learns_K, weights, tree(own["weights"]))
        elif bool(learns_K.any()):
            done |= for_some(learns_K, self._train_personal(inner, own, received, data), own)
            mine_K = _validated(inner, masked_weights(done), data)
            score_KM[:, PERSONAL] = smoothed(score_KM[:, PERSONAL], torch.where(learns_K, mine_K, UNKNOWN))

        further_K3 = torch.zeros_like(score_KM[:, :3])
        if self.fallback:
            beside, further_K3[:, :2] = train_beside(ctx, own, mean_KM[:, BESIDE_VAL], mean_KM[:, BESIDE_LOSS], data)
            done |= beside
            score_KM[:, BESIDE] = tensor(done["kept_score"])
        done["scores"] = score_KM
        further_K3[:, USED - BESIDE_VAL] = self.used(done).double()
        up: State = {"weights": weights, "scores": torch.cat([score_KM, further_K3], 1)}
        sent = {name: _changed(leaf, received[name], ~alone_K) for name, leaf in weights.items()}
        if self.grouping:
            up[FUNCTION], sent["change"] = self._function(inner, weights, received, alone_K, data)
        return done, Message(up, sent), loss_K

    def _train_personal(self, inner: Context, own: State, received: Tree, data: Clients) -> State:
        """The personal model of all clients of the stack, in copies."""
        masks, weights = tree_map(torch.clone, tree(own["masks"])), tree_map(torch.clone, received)
        optimiser = state_map(torch.clone, optimiser_of(own))
        if self.lambda1:
            forget_unseen(masks, tensor(own["step"]), inner.model, data)
        examples_K = data.num_train_K.to(data.dtype) / data.num_features
        pace_K = inner.lr * examples_K / (examples_K + SCARCE)
        done, _ = train(
            inner,
            data,
            weights,
            optimiser,
            masks,
            lr={MASK + name: pace_K for name in masks},
            shrink=pace_K * self.lambda1 if self.lambda1 else None,
        )
        return {"weights": weights, "masks": masks, **done}

    def _function(
        self, inner: Context, weights: Tree, start: Tree, alone_K: Tensor, data: Clients
    ) -> tuple[Tree, Tensor]:
        """f of the clients that are alone, [K, D], and which entries are sent. They have received the common start."""
        width = NODES * inner.task.outputs(data.num_classes)
        change_KD = torch.zeros(data.num_clients, width, dtype=data.dtype, device=data.device)
        if bool(alone_K.any()):
            proxy = common_proxy(inner, data.num_features, data.device, data.dtype)
            with torch.no_grad():
                rows = tree_map(lambda leaf: leaf[alone_K], weights)
                first = tree_map(lambda leaf: leaf[alone_K][:1], start)
                change_KPC = inner.model.respond(rows, proxy) - inner.model.respond(first, proxy)
            change_KD[alone_K] = (change_KPC - change_KPC.mean(1, keepdim=True)).flatten(1)
            change_KD = torch.where(alone_K.unsqueeze(1), noisy(inner, change_KD, data), change_KD)
        return {"change": change_KD}, alone_K.unsqueeze(1).expand_as(change_KD)

    def used(self, own: State) -> Tensor:
        """Which of its models a client uses, [K]: one of those that it has trained."""
        steps = {EVERYONE: tensor(own[name_of(EVERYONE, "step")]), COMMUNITY: tensor(own[name_of(COMMUNITY, "step")])}
        steps[PERSONAL] = tensor(own["step"]) if self.masks else torch.zeros_like(steps[EVERYONE])
        steps[BESIDE] = tensor(own["has_kept"]) if self.fallback else torch.zeros_like(steps[EVERYONE])
        exists_KM = torch.stack([steps[number] > 0 for number in range(len(MODELS))], 1)
        score_KM, mean_KM, examples_K = (tensor(own[name]) for name in ("scores", "means", "examples"))
        return chosen(exists_KM, score_KM, mean_KM, examples_K, self.evidence)

    def since(self, own: State, base: int) -> int:
        return int(tensor(own["moved"]).min())

    def personal(self, own: State) -> Tree:
        used_K, found = self.used(own), masked_weights(own)
        for number in (EVERYONE, COMMUNITY):
            found = either(used_K == number, part(own, number, "weights"), found)
        return together(found, tree(own[KEPT]), used_K == BESIDE) if self.fallback else found

    # The server

    def init_server(self, w0: Tree, num_clients: int) -> State:
        first, device = apart(w0)[0], next(iter(w0.values())).device
        alone = ROUNDS_ALONE if self.grouping and not self.given else 0
        place_K = torch.full((num_clients,), -1 if alone else 0, device=device)
        if known := self.known:
            if num_clients > 1 and len(known) != num_clients:  # a site knows itself only
                raise FedpubError(f"`given` has {len(known)} numbers for {num_clients} clients; give one for each")
            place_K = torch.tensor(known[:num_clients], device=device)
        count = int(place_K.max().clamp(min=0)) + 1
        return {
            "start": stacked(first, 1),
            "everyone": stacked(first, 1),
            "communities": stacked(first, count),  # leaves [G, ...]
            "community": place_K,
            "alone": torch.full((num_clients,), alone, device=device),  # rounds left
            "function": torch.zeros(num_clients, 0, device=device),
            "scores": no_scores(num_clients, USED + 1, device),
            "tried": torch.zeros(1, dtype=torch.int64, device=device),  # rounds
            "decided": torch.full((1,), COMMUNITY if self.given else 0, device=device),  # or EVERYONE; 0: not yet
        }

    def send(self, server: State, ids: Tensor) -> Message:
        phase_K, count = phases(server)[ids], len(ids)
        weights = broadcast(tree(server["everyone"]), count)
        if bool((phase_K >= TRYING).any()):
            place_K = tensor(server["community"])[ids].clamp(min=0)
            own = tree_map(lambda leaf: leaf[place_K], tree(server["communities"]))
            weights = either(phase_K >= TRYING, own, weights)
        if bool((phase_K == ALONE).any()):
            weights = either(phase_K == ALONE, broadcast(tree(server["start"]), count), weights)
        mean_KM = means(tensor(server["scores"])[:, :USED]).repeat(count, 1)
        return Message({"weights": weights, "phase": phase_K, "means": mean_KM})

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        ids = ids.to(tensor(server["alone"]).device)
        phase_K, done = phases(server)[ids], dict(server)
        place_K = tensor(server["community"])
        member_GK = members(place_K[ids], groups(server)) * (phase_K >= TRYING)
        least = min(self.min_group, len(place_K))
        for name, share in (("everyone", (phase_K == WITH_EVERYONE).unsqueeze(0)), ("communities", member_GK)):
            share = share * (share.sum(1, keepdim=True) >= least)  # of fewer, the last average is kept
            if bool(share.any()):
                done[name] = averaged(share, up.tree("weights"), up.sent, tree(server[name]))
        told_KM = up.tensor("scores")
        told_KM = torch.cat([told_KM[:, :BESIDE_LOSS].clamp(max=1), told_KM[:, BESIDE_LOSS:].clamp(max=LARGEST)], 1)
        done["scores"] = tensor(server["scores"]).index_copy(0, ids, told_KM)
        alone = torch.nonzero(phase_K == ALONE).flatten()
        if len(alone):
            done |= heard(self.min_group, done, ids[alone], up.select(alone))
        if on_trial(server, phase_K):
            done |= tried(done, comparable(tensor(done["scores"])))
        return done, reports(least, done, ids, phase_K, told_KM)

    # The same from sums over groups (`algorithms.sums`): all who are alone, all together, or a community

    def secured(self) -> FedPubPlus:
        return self

    def groups(self, server: State, ids: Tensor) -> Tensor:
        return groups_of(server, ids)

    def hidden(self, ctx: Context, sent: Message, up: Message, examples: int) -> Hidden:
        return hidden(sent, up)

    def clear(self, up: Message) -> Message:
        return functions(up)

    def summed(
        self, ctx: Context, server: State, ids: Tensor, found: Sequence[Summed], clear: Message
    ) -> tuple[State, Notes]:
        ids = ids.to(tensor(server["alone"]).device)
        phase_K, done = phases(server)[ids], from_sums(ctx, server, found)
        alone = torch.nonzero(phase_K == ALONE).flatten()
        if len(alone):
            done |= heard(self.min_group, done, ids[alone], clear.select(alone))
        if on_trial(server, phase_K):
            done |= tried(done, compared(found))
        unknown_KM = no_scores(len(ids), USED + 1, ids.device)
        return done, reports(self.min_group, done, ids, phase_K, unknown_KM)

    def without(self, server: State, ids: Tensor) -> State:
        if self.given or not self.grouping:
            return server | unscored(server, ids)
        return departed(self.min_group, server, ids)

    # A new client of a finished federation

    def fingerprint(self, up: Message) -> Tensor | None:
        return up.tree(FUNCTION)["change"] if self.grouping and bool(up.sent["change"].any()) else None

    def introduction(self, server: State) -> Message | None:
        if not self.grouping:
            return None
        alone = server | {"alone": torch.ones_like(tensor(server["alone"]))}
        return self.send(alone, torch.zeros(1, dtype=torch.int64))

    def shares(self, server: State, newcomer: Tensor, members_K: Tensor) -> Tensor:
        known_K = tensor(server["alone"]).to(members_K.device) == 0  # what the others are sent is no average
        if not bool(known_K.any()):
            return super().shares(server, newcomer, members_K)
        found_K = communities(torch.cat([newcomer, members_K[known_K]]), self.min_group)
        near_K = known_K.double()
        if bool((found_K[1:] == found_K[0]).any()):
            near_K[known_K] = (found_K[1:] == found_K[0]).double()
        return (near_K / near_K.sum()).unsqueeze(0)

    # The form of its messages

    @property
    def uploads(self) -> frozenset[str]:
        return frozenset({"weights", SENT, "scores"} | ({FUNCTION} if self.grouping else set()))

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        weights, inner = stacked(apart(w0)[0], 1), _inner(ctx)
        like: State = {"weights": weights, "scores": no_scores(1, USED + 1, next(iter(w0.values())).device)}
        if self.grouping:
            width = NODES * inner.task.outputs(num_classes)
            like[FUNCTION] = {"change": next(iter(weights.values())).new_zeros(1, width)}
        leaves = {name: leaf for part in like.values() if isinstance(part, dict) for name, leaf in part.items()}
        return Message(like, tree_map(lambda leaf: torch.ones_like(leaf, dtype=torch.bool), leaves))


def _inner(ctx: Context) -> Context:
    """The context of the models that the federation trains."""
    return replace(ctx, model=ctx.model.model) if isinstance(ctx.model, WithFallback) else ctx


def _changed(new: Tensor, old: Tensor, here_K: Tensor) -> Tensor:
    """Which rows training has changed; the others have no examples, and nothing to send."""
    rows = (new != old).any(-1, keepdim=True) & for_each(here_K, new)
    return rows.expand_as(new)


def _validated(inner: Context, weights: Tree, data: Clients) -> Tensor:
    """The validation values, [K], double; of a client without examples it is unknown."""
    with torch.no_grad():
        return inner.task.validate(inner.model, weights, data)["val"].nan_to_num(UNKNOWN).double()
