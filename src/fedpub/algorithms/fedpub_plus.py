"""FED-PUB with four additions; the same exchange as FED-PUB, plus two scalars.

1. The model `twin` (`models/twin.py`), half as wide: separate weights for a node and its neighbours, normalised. In
   training, whole input features are dropped (`models/feature_dropout.py`).
2. Masks learn slowly if there is little data to learn them from: with e training examples per input feature, at
   e / (e + 0.1) of their speed.
3. A client keeps, and is evaluated with, the mean of its personal weights over the last rounds,

       m ← β m + (1 − β) θ ⊙ μ,   personal weights m / (1 − βʳ) after r rounds,

   which training never sees.
4. In addition, every client trains the model of the method Local (for links, the same model alone), and keeps it from
   the round in which these models were best on average, as Local does (`core.best`): their validation accuracy and
   loss are the two scalars that are sent, and their means come back. A client uses the federated model if that is
   better by more than `margin` on its own validation nodes, by means over rounds with the same β; otherwise it uses
   its local model, so that a client that does not gain does not lose. If both accuracies are equal, the lower
   validation loss decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpub.algorithms.fedpub import FedPub
from fedpub.algorithms.protocol import Context, Notes
from fedpub.algorithms.training import train
from fedpub.core.best import LEVEL, better
from fedpub.core.message import Message
from fedpub.core.optim import adam_init
from fedpub.core.tree import State, Tree, for_each, stacked, tensor, tree, tree_map, update
from fedpub.data.clients.stack import Clients
from fedpub.errors import FedpubError
from fedpub.models.base import Model
from fedpub.models.fallback import WithFallback, apart, together
from fedpub.models.feature_dropout import FeatureDropout
from fedpub.models.gcn import GCN
from fedpub.tasks import Task

ALONE = "alone_"  # prefix of the parts of a client's state that belong to the model it trains alone
LOCAL, LOCAL_DROPOUT = GCN(128), 0.5  # the defaults of the method Local
UNKNOWN = -1.0  # accuracy of a model that does not exist yet or has no validation nodes: it is not chosen
SHARED = (ALONE + "val", ALONE + "loss")  # reported by clients about the models that they train alone


@dataclass(frozen=True)
class FedPubPlus(FedPub):
    title: ClassVar[str] = "FED-PUB-plus"

    inputs: float = 0.3
    """Share of a client's input features dropped in each training step; none if `dropout` is 0."""
    scarce: float = 0.1
    """Training examples per input feature at which masks learn and are pruned at half speed; 0 for full speed."""
    average: float = 0.8
    """Decay β of the means over rounds; 0 for the last round alone."""
    choose: bool = True
    """Fallback to a local model where that validates better; uploads its validation accuracy and loss."""
    margin: float = 0.01
    """Validation accuracy by which the federated model must beat the local one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, high in (
            ("inputs", self.inputs, 0.99),
            ("scarce", self.scarce, 1000),
            ("average", self.average, 0.999),
        ):
            if not 0 <= value <= high:
                raise FedpubError(f"`{name}={value}` is outside 0 to {high}")

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {**super().defaults, "model": "twin", "hidden": 64, "dropout": 0.6}

    def net(self, chosen: Model, task: Task) -> Model:
        federated = FeatureDropout(super().net(chosen, task), self.inputs)
        if not self.choose:
            return federated
        # Two models of one client need the same adjacency and outputs; for links, outputs are as wide as the model. A
        # model that never propagates has a fallback that does not, either.
        like_local = chosen.propagation == LOCAL.propagation and not task.of_pairs and not chosen.independent
        return WithFallback(federated, LOCAL if like_local else chosen)

    def pace(self, data: Clients) -> float | Tensor:
        """e / (e + scarce), with e training examples per input feature: a mask on every weight needs much data."""
        if not self.scarce:
            return 1.0
        examples_K = data.num_train_K.to(data.dtype) / data.num_features
        return examples_K / (examples_K + self.scarce)

    @property
    def uploads(self) -> frozenset[str]:
        return super().uploads | (set(SHARED) if self.choose else set())

    def upload_like(self, ctx: Context, w0: Tree, num_classes: int) -> Message:
        like, number = super().upload_like(ctx, apart(w0)[0], num_classes), torch.zeros(1, dtype=torch.float64)
        return like | (dict.fromkeys(SHARED, number) if self.choose else {})

    def init_server(self, w0: Tree, num_clients: int) -> State:
        server = super().init_server(apart(w0)[0], num_clients)
        unknown_K = next(iter(w0.values())).new_full((num_clients,), UNKNOWN, dtype=torch.float64)
        return server | ({name: unknown_K.clone() for name in SHARED} if self.choose else {})

    def init_client(self, w0: Tree, num_clients: int) -> State:
        federated, local = apart(w0)
        own = super().init_client(federated, num_clients)
        some = next(iter(w0.values()))
        own |= {"mean": tree_map(torch.zeros_like, tree(own["weights"])), "rounds": some.new_zeros(num_clients)}
        if self.choose:
            alone = stacked(local, num_clients)
            own |= {ALONE + name: part for name, part in {"weights": alone, **adam_init(alone)}.items()}
            own |= {"kept": tree_map(torch.clone, alone)}
            # The choice is made in double precision: rounding must not decide between models that tie.
            zero_K = some.new_zeros(num_clients, dtype=torch.float64)
            numbers = dict.fromkeys(("val_mean", "loss", ALONE + "val_mean", ALONE + "loss"), 0.0)
            numbers |= dict.fromkeys(("kept_val", "kept_loss", "kept_mean", "kept_mean_loss"), UNKNOWN)
            own |= {name: zero_K + value for name, value in numbers.items()}
        return own

    def send(self, server: State, ids: Tensor) -> Message:
        message = super().send(server, ids)
        if not self.choose:
            return message
        known_K = tensor(server[ALONE + "val"]) >= 0
        means: State = {}
        for name in SHARED:
            mean = torch.where(known_K, tensor(server[name]), 0).sum() / known_K.sum().clamp(min=1)
            means[name] = torch.where(known_K.any(), mean, UNKNOWN).expand(len(ids)).clone()
        return message | means

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        done, up, loss_K = super().client(ctx, own, msg, data)
        done["mean"] = tree_map(self._averaged, tree(own["mean"]), self.masked(done))
        done["rounds"] = tensor(own["rounds"]) + 1
        if self.choose:
            done |= self._keep(own, *(msg.tensor(name) for name in SHARED))
            done |= self._train_alone(ctx, own, data)
            val_K, done["loss"] = _judged(ctx, self._federated(done), data)
            alone_K, done[ALONE + "loss"] = _judged(_local(ctx), tree(done[ALONE + "weights"]), data)
            done["val_mean"] = self._averaged(tensor(own["val_mean"]), val_K.clamp(min=0))
            done[ALONE + "val_mean"] = self._averaged(tensor(own[ALONE + "val_mean"]), alone_K)
            up = up | {ALONE + "val": alone_K, ALONE + "loss": tensor(done[ALONE + "loss"]).clone()}
        return done, up, loss_K

    def server(self, ctx: Context, server: State, ids: Tensor, up: Message) -> tuple[State, Notes]:
        """FED-PUB's step; every client's last scalars are kept, so that means are always over the same clients."""
        done, notes = super().server(ctx, {"weights": server["weights"]}, ids, up)
        if self.choose:
            val_K, lost_K = (up.tensor(name) for name in SHARED)
            claimed: State = dict(zip(SHARED, (val_K.clamp(max=1), lost_K.clamp(min=0)), strict=True))
            done |= update({name: server[name] for name in SHARED}, ids, claimed)
        return done, notes

    def _keep(self, own: State, mean_K: Tensor, mean_loss_K: Tensor) -> State:
        """The model trained alone, as of the last round if the means over clients were best then."""
        better_K = better(mean_K, mean_loss_K, tensor(own["kept_mean"]), tensor(own["kept_mean_loss"]))
        better_K = better_K & (tensor(own["rounds"]) > 0)
        val_K = tensor(own[ALONE + "val_mean"]) / self._share(own).clamp(min=1e-30)
        numbers = {"kept_val": val_K, "kept_loss": own[ALONE + "loss"]}
        numbers |= {"kept_mean": mean_K, "kept_mean_loss": mean_loss_K}
        return {
            "kept": tree_map(
                lambda new, old: _where(better_K, new, old), tree(own[ALONE + "weights"]), tree(own["kept"])
            ),
            **{name: torch.where(better_K, tensor(new), tensor(own[name])) for name, new in numbers.items()},
        }

    def _train_alone(self, ctx: Context, own: State, data: Clients) -> State:
        weights = tree(own[ALONE + "weights"])
        before = {name: own[ALONE + name] for name in ("first", "second", "step")}
        optimiser, _ = train(_local(ctx), data, weights, before)
        return {ALONE + name: part for name, part in {"weights": weights, **optimiser}.items()}

    def _averaged(self, mean: Tensor, value: Tensor) -> Tensor:
        return mean.mul_(self.average).add_(value, alpha=1 - self.average)

    def _share(self, own: State) -> Tensor:
        """1 − βʳ: the weight of the rounds so far in a mean that started at zero, [K], double."""
        rounds_K = tensor(own["rounds"]).double()
        return 1 - torch.full_like(rounds_K, self.average) ** rounds_K

    def _federated(self, own: State) -> Tree:
        """The mean over rounds; before the first, the weights themselves. Entries that are pruned now are zero."""
        share_K = self._share(own)

        def unbiased(mean: Tensor, now: Tensor) -> Tensor:
            return _where(share_K > 0, mean * (now != 0) / for_each(share_K.clamp(min=1e-30), mean).to(mean), now)

        return tree_map(unbiased, tree(own["mean"]), self.masked(own))

    def personal(self, own: State) -> Tree:
        federated = self._federated(own)
        if not self.choose:
            return federated
        val_K = tensor(own["val_mean"]) / self._share(own).clamp(min=1e-30)
        kept_K = tensor(own["kept_val"])
        level_K = (val_K - kept_K).abs() <= LEVEL
        lower_K = tensor(own["loss"]) < tensor(own["kept_loss"]) - LEVEL
        alone_K = (kept_K >= 0) & (val_K <= kept_K + self.margin) & ~(level_K & lower_K)
        return together(federated, tree(own["kept"]), alone_K)


def _local(ctx: Context) -> Context:
    assert isinstance(ctx.model, WithFallback), "the experiment gives the method its net"
    second = ctx.model.second
    return replace(ctx, model=second, dropout=LOCAL_DROPOUT if second == LOCAL else ctx.dropout)


def _judged(ctx: Context, weights: Tree, data: Clients) -> tuple[Tensor, Tensor]:
    """Accuracy and loss on the validation nodes, [K], double; for a client without any the accuracy is `UNKNOWN`."""
    with torch.no_grad():
        found = ctx.task.validate(ctx.model, weights, data)
    return found["val"].nan_to_num(UNKNOWN).double(), found["val_loss"].nan_to_num(0.0).double()


def _where(chosen_K: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(for_each(chosen_K, one), one, other)
