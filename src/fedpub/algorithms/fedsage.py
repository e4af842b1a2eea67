"""FedSage+ (Zhang et al., 2021): every client learns to generate the neighbours it lacks, then FedAvg.

1. Alone. Client i hides half of a held-out set of its nodes. On the rest its generator learns how many neighbours
   each node lost (smooth L1) and their features (each generated one against the nearest hidden one), together with a
   classifier on the graph mended with generated neighbours:

       min  |count − lost|₁ˢ + mean_p min_u ‖x̂_p − x_u‖² / F + L(mended G_i; θ_i)

2. Together. Only the feature head H_i is trained. The other clients j take turns to score it against neighbours of
   nodes that they sample themselves, and send the gradient of H_i back: from a gradient of the generated features,
   2 (x̂ − x_u), client i could read x_u. A gradient of weights is a mean over many nodes. It discloses as much as means
   do: a client whose nodes all have the same neighbour gives that neighbour away.
3. Client i mends its whole graph once, without noise: new nodes with edges in both directions. Then FedAvg from the
   common initial weights, so that the classifier has the same budget as that of every other method.

Axes: K clients, N remaining nodes, M those that lost neighbours, P generated, T true neighbours, B sampled nodes,
F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.protocol import Algorithm, Context, Place
from fedpub.core.message import Message
from fedpub.core.optim import adam_init, adam_step
from fedpub.core.rng import numpy_stream, torch_stream
from fedpub.core.segments import Segments
from fedpub.core.tree import State, Tree, apart, stacked, tensor, together, tree, tree_map
from fedpub.data.clients.hiding import SAMPLED, hidden_rows, lost_neighbours, mended_rows, sampled_neighbours
from fedpub.data.clients.stack import Clients, stack
from fedpub.data.clients.subgraph import Added, Subgraph
from fedpub.errors import FedpubError
from fedpub.models import Model, Module
from fedpub.models.generator import LATENT, Generator, feature_head, generate, greedy_loss, mean_by_client
from fedpub.tasks import Step, Task

CLASSIFIER = "classifier:"  # prefix of the parameters of the classifier that is trained with the generator


@dataclass(frozen=True)
class FedSage(FedAvg):
    title: ClassVar[str] = "FedSage+"
    secured = Algorithm.secured  # what its clients exchange before the rounds is no sum

    generator_epochs: int = 20
    """Epochs in which each client trains its generator alone."""
    generator_rounds: int = 20
    """Rounds in which other clients' gradients train it further."""
    generated: int = 5
    """Maximum number of generated neighbours per node."""

    @property
    def uploads(self) -> frozenset[str]:
        return super().uploads | {"head", "latent", "gradient"}

    def init_server(self, w0: Tree, num_clients: int) -> State:
        if self.generated < 1:
            raise FedpubError(
                f"`generated={self.generated}` leaves nothing to mend with; give 1 or more, or take fedavg"
            )
        return super().init_server(w0, num_clients)

    def net(self, chosen: Model, task: Task, batches: bool = False) -> Model:
        if isinstance(chosen, Module):
            raise FedpubError(
                f"FedSage+ needs a model with any number of outputs, and those of the module {chosen.name} are fixed; "
                "take another `method`, or a model by name"
            )
        return chosen

    def setup(self) -> Mending:
        return Mending(self.generator_epochs, self.generator_rounds, self.generated)


@dataclass(frozen=True, eq=False)
class _Work:
    """The data of a group of clients; `left` is without the hidden nodes."""

    data: list[Subgraph]
    left: list[Subgraph]
    clients: Clients  # those of `left`
    x_NF: Tensor  # their features, dense
    lost_N: Tensor  # how many hidden neighbours a node had
    rows_M: Tensor
    own_M: Segments
    true_MTF: Tensor
    known_MT: Tensor
    mended_N: Tensor  # bool: which nodes get generated neighbours in phase one
    place: Place


@dataclass(frozen=True)
class Mending:
    """The set-up of FedSage+."""

    epochs: int
    rounds: int
    neighbours: int

    @property
    def steps(self) -> Sequence[str]:
        together = ["sharing generators", "scoring each other's generators"] * self.rounds
        return ["training generators"] * self.epochs + together + ["mending"]

    def _round(self, step: int) -> tuple[int, bool]:
        """The round of phase two, and whether generators are shared in this step, not scored."""
        return (step - self.epochs) // 2, (step - self.epochs) % 2 == 0

    def workspace(self, ctx: Context, data: list[Subgraph], place: Place) -> _Work:
        hidden = [hidden_rows(own, ctx.seed) for own in data]
        pairs = list(zip(data, hidden, strict=True))
        left = [own.kept(torch.nonzero(~gone).flatten()) for own, gone in pairs]
        clients = stack(left, place.num_classes, place.device, place.dtype, steps=ctx.model.steps)
        losses = [lost_neighbours(own, gone, self.neighbours, ctx.seed) for own, gone in pairs]
        lost, rows, true, known = zip(*losses, strict=True)
        start = np.cumsum([0] + [own.num_nodes for own in left])
        return _Work(
            data=data,
            left=left,
            clients=clients,
            x_NF=torch.from_numpy(sp.vstack([own.x for own in left]).toarray()).to(place.device, place.dtype),
            lost_N=torch.cat(lost).to(place.device, place.dtype),
            rows_M=torch.cat([own + at for own, at in zip(rows, start[:-1], strict=True)]).to(place.device),
            own_M=Segments.of([len(own) for own in rows], place.dtype, place.device),
            true_MTF=torch.cat(true).to(place.device, place.dtype),
            known_MT=torch.cat(known).to(place.device),
            mended_N=torch.cat([mended_rows(own, ctx.seed) for own in left]).to(place.device),
            place=place,
        )

    def init_server(self, num_clients: int) -> State:
        return {"clients": torch.tensor([num_clients])}

    def init_clients(self, ctx: Context, w0: Tree, work: _Work) -> list[State]:
        first = self.generator(ctx).init(work.clients.num_features, torch_stream(ctx.seed, "fedsage", "generator"))
        first = tree_map(lambda leaf: leaf.to(work.place.device, work.place.dtype), first)
        parameters = stacked(first | {CLASSIFIER + name: leaf for name, leaf in w0.items()}, len(work.data))
        return apart({"parameters": parameters, **adam_init(parameters)}, len(work.data))

    def generator(self, ctx: Context) -> Generator:
        return Generator(ctx.model, self.neighbours)

    def send(self, server: State, step: int, client: int) -> Message:
        clients = int(tensor(server["clients"]))
        number, showing = self._round(step)
        if step <= self.epochs or clients == 1:
            return Message()
        if showing:  # the gradient of the round before
            by = (client + turn(number - 1, clients)) % clients
            return Message({"gradient": tree_map(lambda leaf: leaf[by : by + 1], tree(server["gradient"]))})
        whose = (client - turn(number, clients)) % clients
        head = tree_map(lambda leaf: leaf[whose : whose + 1], tree(server["head"]))
        return Message({"head": head, "latent": tensor(server["latent"])[whose : whose + 1]})

    def server(self, ctx: Context, step: int, server: State, up: list[Message]) -> State:
        return {"clients": server["clients"], **Message.together(up)} if up[0] else server

    def problem(
        self, ctx: Context, step: int, server: State, client: int, up: Message, features: int, place: Place
    ) -> str | None:
        return up.unlike(self._expected(ctx, step, int(tensor(server["clients"])), features, place))

    def _expected(self, ctx: Context, step: int, clients: int, features: int, place: Place) -> Message:
        """An example upload of this step: all uploads have its names, shapes and types."""
        number, showing = self._round(step)
        if step < self.epochs or number == self.rounds or (clients == 1 and not showing):
            return Message()
        first = self.generator(ctx).init(features, torch_stream(ctx.seed, "fedsage", "generator"))
        head = tree_map(lambda leaf: leaf.to(place.dtype), stacked(feature_head(first), 1))
        latent = torch.empty(1, SAMPLED, LATENT, dtype=place.dtype)
        return Message({"head": head, "latent": latent} if showing else {"gradient": head})

    def clients(
        self, ctx: Context, step: int, own: list[State], received: list[Message], work: _Work
    ) -> tuple[list[State], list[Message]]:
        state, message, nothing = together(own), Message.together(received), [Message() for _ in own]
        if step < self.epochs:
            return apart(self.train_alone(ctx, step, state, work), len(own)), nothing
        number, showing = self._round(step)
        if not showing:
            if not message:
                return own, nothing
            return own, _each({"gradient": self.score(ctx, number, message, work)}, len(own))
        if step == self.epochs:  # from here on only the head is trained, with a new optimiser
            head = feature_head(tree(state["parameters"]))
            state = {"parameters": state["parameters"], **adam_init(head)}
        else:
            state = self.train_head(ctx, number - 1, state, message, work)
        if number == self.rounds:
            return apart(state, len(own)), nothing
        weights = tree(state["parameters"])
        shown = _each({"head": feature_head(weights), "latent": self.latents(ctx, number, weights, work)}, len(own))
        return apart(state, len(own)), shown

    def train_alone(self, ctx: Context, epoch: int, state: State, work: _Work) -> State:
        """One step of Adam on the generator and its classifier."""
        parameters = tree(state["parameters"])
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in parameters.items()}
        loss_K = torch.stack(list(self.losses(ctx, epoch, leaves, work).values())).sum(0)
        gradients = torch.autograd.grad(loss_K.sum(), list(leaves.values()))
        rates = dict.fromkeys(leaves, ctx.lr)
        optimiser = adam_step(parameters, dict(zip(leaves, gradients, strict=True)), state, rates, ctx.weight_decay)
        return {"parameters": parameters, **optimiser}

    def losses(self, ctx: Context, epoch: int, parameters: Tree, work: _Work) -> dict[str, Tensor]:
        """The three losses of phase one, each [K]."""
        generator, own = self.generator(ctx), work.clients.segments
        z_NL = generator.encode(parameters, work.clients)
        count_N = generator.counts(parameters, z_NL, own)
        check_counts(count_N.detach(), work.left, own)
        each_N = torch.nn.functional.smooth_l1_loss(count_N, work.lost_N, reduction="none")
        noisy_NL = z_NL + noise(ctx.seed, work, "alone", epoch)
        generated = generator.features(parameters, noisy_NL[work.rows_M], work.own_M)
        matched_M = greedy_loss(generated, work.true_MTF, work.known_MT)
        classifier = {
            name.removeprefix(CLASSIFIER): leaf for name, leaf in parameters.items() if name.startswith(CLASSIFIER)
        }
        whole_N = whole_counts(count_N.detach(), work.left, self.neighbours, ctx.seed) * work.mended_N
        mended = self.mended(generator, parameters, noisy_NL, whole_N, work)
        return {
            "count": mean_by_client(each_N, own),
            "features": mean_by_client(matched_M, work.own_M),
            "task": ctx.task.loss(ctx.model, classifier, mended, Step(ctx.seed, 0, epoch, ctx.dropout)),
        }

    def mended(self, generator: Generator, w: Tree, z_NL: Tensor, count_N: Tensor, work: _Work) -> Clients:
        """The remaining graph with generated neighbours, whose features have a gradient."""
        x_GF, owner = generate(generator, w, z_NL, count_N, work.clients.segments)
        position = owner.cpu().numpy()
        start = np.cumsum([0] + [own.num_nodes for own in work.left])
        bounds = np.searchsorted(position, start)
        parts, order = [], []
        for client, own in enumerate(work.left):
            mine = np.arange(bounds[client], bounds[client + 1])
            # Only the structure: features follow below, dense and with a gradient.
            bare = replace(own, x=sp.csr_matrix((own.num_nodes, 0)))
            anchor = torch.from_numpy(position[mine] - start[client])
            parts.append(bare.extended(Added(sp.csr_matrix((len(mine), 0)), anchor, torch.arange(len(mine)))))
            order += [np.arange(start[client], start[client + 1]), start[-1] + mine]
        place = work.place
        structure = stack(parts, place.num_classes, place.device, place.dtype, steps=generator.encoder.steps)
        x = torch.cat([work.x_NF, x_GF])[torch.from_numpy(np.concatenate(order)).to(place.device)]
        return structure.with_features(x)

    def latents(self, ctx: Context, number: int, w: Tree, work: _Work) -> Tensor:
        """The head's inputs for nodes that each client samples, [K, B, L]."""
        with torch.no_grad():
            z_NL = self.generator(ctx).encode(w, work.clients) + noise(ctx.seed, work, "together", number)
        rows = []
        for own, (start, end) in zip(work.left, work.clients.segments.spans, strict=True):
            stream = numpy_stream(ctx.seed, "fedsage", "shown", own.id, number)
            rows.append(start + stream.integers(end - start, size=SAMPLED))
        return z_NL[torch.from_numpy(np.concatenate(rows)).to(z_NL.device)].view(len(rows), SAMPLED, -1)

    def score(self, ctx: Context, number: int, message: Message, work: _Work) -> Tree:
        """The gradient of other clients' heads, scored against neighbours of nodes sampled here."""
        head = {name: leaf.detach().requires_grad_() for name, leaf in message.tree("head").items()}
        latent_KBL, place = message.tensor("latent"), work.place
        targets = [sampled_neighbours(own, ctx.seed, number, self.neighbours) for own in work.data]
        true, known = (torch.cat(part) for part in zip(*targets, strict=True))
        segments = Segments.of([SAMPLED] * len(latent_KBL), place.dtype, place.device)
        generated = self.generator(ctx).features(head, latent_KBL.flatten(0, 1), segments)
        # A node without neighbours has no score.
        has = known.any(1).to(place.device)
        known[:, 0] |= ~known.any(1)
        matched = greedy_loss(generated, true.to(place.device, place.dtype), known.to(place.device)) * has
        gradients = torch.autograd.grad(matched.sum() / SAMPLED, list(head.values()))
        return dict(zip(head, gradients, strict=True))

    def train_head(self, ctx: Context, number: int, state: State, message: Message, work: _Work) -> State:
        """One step of Adam on the feature head alone: its own loss and another client's."""
        generator, parameters = self.generator(ctx), tree(state["parameters"])
        head = feature_head(parameters)
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in head.items()}
        with torch.no_grad():
            z_NL = generator.encode(parameters, work.clients) + noise(ctx.seed, work, "together", number)
        generated = generator.features(leaves, z_NL[work.rows_M], work.own_M)
        matched_K = mean_by_client(greedy_loss(generated, work.true_MTF, work.known_MT), work.own_M)
        found = torch.autograd.grad(matched_K.sum(), list(leaves.values()))
        gradients = dict(zip(leaves, found, strict=True))
        if message:
            gradients = tree_map(torch.add, gradients, message.tree("gradient"))
        optimiser = adam_step(head, gradients, state, dict.fromkeys(head, ctx.lr), ctx.weight_decay)
        return {"parameters": parameters, **optimiser}

    @torch.no_grad()
    def added(self, ctx: Context, own: list[State], work: _Work) -> list[Added]:
        """The whole graphs, mended."""
        generator, weights, place = self.generator(ctx), tree(together(own)["parameters"]), work.place
        data = stack(work.data, place.num_classes, place.device, place.dtype, steps=ctx.model.steps)
        z_NL = generator.encode(weights, data)
        count_N = generator.counts(weights, z_NL, data.segments)
        check_counts(count_N, work.data, data.segments)
        whole_N = whole_counts(count_N, work.data, self.neighbours, ctx.seed)
        x_GF, owner = (part.cpu().numpy() for part in generate(generator, weights, z_NL, whole_N, data.segments))
        found = []
        for start, end in data.segments.spans:
            mine = np.flatnonzero((owner >= start) & (owner < end))
            anchor = torch.from_numpy(owner[mine] - start)
            found.append(Added(x_GF[mine], anchor, torch.arange(len(mine))))
        return found


def _each(parts: State, clients: int) -> list[Message]:
    """A separate message for every client."""
    return [Message(part) for part in apart(parts, clients)]


def check_counts(count_N: Tensor, data: list[Subgraph], segments: Segments) -> None:
    wrong = torch.nonzero(~torch.isfinite(count_N)).flatten()
    if len(wrong):
        client = data[int(segments.owner_N[wrong[0]])].id
        raise FedpubError(
            f"the generator of client {client} diverged: it predicts {float(count_N[wrong[0]])} neighbours for a node; "
            "lower `lr`, or check that client's features"
        )


def turn(number: int, clients: int) -> int:
    """The offset of the client that scores a generator in a round: all other clients take turns."""
    return 1 + number % (clients - 1)


def whole_counts(count_N: Tensor, data: list[Subgraph], most: int, seed: int) -> Tensor:
    """Predicted counts as whole numbers, at most `most`: 0.4 becomes a neighbour for two nodes in five.

    With rounding to the nearest, nodes that each lack less than half a neighbour would get none in all.
    """
    drawn = [numpy_stream(seed, "fedsage", "counts", own.id).random(own.num_nodes) for own in data]
    up_N = torch.from_numpy(np.concatenate(drawn)).to(count_N.device, count_N.dtype)
    return (count_N + up_N).floor().clamp(0, most).long()


def noise(seed: int, work: _Work, phase: str, number: int) -> Tensor:
    """Standard normal noise, [N, L]; that of a client is independent of the others."""
    parts = [
        numpy_stream(seed, "fedsage", "noise", phase, own.id, number).standard_normal((own.num_nodes, LATENT))
        for own in work.left
    ]
    return torch.from_numpy(np.concatenate(parts)).to(work.place.device, work.place.dtype)
