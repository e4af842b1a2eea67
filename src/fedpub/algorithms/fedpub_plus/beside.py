"""Local's model, trained beside a federated one: a client that gains nothing from the federation loses nothing.

It is kept from the round in which these models were best on average over the clients, as Local keeps it (`core.best`).
For that, clients send the validation value and loss of theirs, and receive the means of the last round. A client that
has missed rounds cannot follow the others: it keeps its own best model.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedpub.algorithms.fedpub_plus.choice import UNKNOWN, smoothed
from fedpub.algorithms.protocol import Context
from fedpub.algorithms.training import train
from fedpub.core.best import better
from fedpub.core.optim import adam_init
from fedpub.core.tree import State, Tree, either, stacked, tensor, tree, tree_map
from fedpub.data.clients.stack import Clients
from fedpub.models.fallback import WithFallback
from fedpub.models.gcn import GCN

ALONE = "alone_"  # prefix of the parts of a client's state that belong to the model it trains alone
KEPT = "kept"  # that model, as of the round it is kept from
LOCAL, LOCAL_DROPOUT = GCN(128), 0.5  # the defaults of the method Local


def init_beside(w0: Tree, num_clients: int) -> State:
    weights = stacked(w0, num_clients)
    some = next(iter(weights.values()))
    unknown_K = torch.full((num_clients,), UNKNOWN, dtype=torch.float64, device=some.device)
    names = (ALONE + "score", "kept_score", "kept_mean", "kept_mean_loss")
    rounds_K = torch.zeros(num_clients, dtype=torch.int64, device=some.device)
    own: State = {ALONE + name: part for name, part in {"weights": weights, **adam_init(weights)}.items()}
    own |= {KEPT: tree_map(torch.clone, weights), ALONE + "rounds": rounds_K, "has_kept": torch.zeros_like(rounds_K)}
    return own | {name: unknown_K.clone() for name in names}


def train_beside(ctx: Context, own: State, mean_K: Tensor, mean_loss_K: Tensor, data: Clients) -> tuple[State, Tensor]:
    """Keep the last round's model if the means over clients were best then, and train on; its validation value and
    loss, [K, 2]."""
    done = _kept(ctx, own, mean_K, mean_loss_K)
    done[ALONE + "rounds"] = tensor(own[ALONE + "rounds"]) + 1
    weights, inner = tree(own[ALONE + "weights"]), _local(ctx)
    optimiser, _ = train(inner, data, weights, {name: own[ALONE + name] for name in ("first", "second", "step")})
    done |= {ALONE + name: part for name, part in {"weights": weights, **optimiser}.items()}
    with torch.no_grad():
        found = inner.task.validate(inner.model, weights, data)
    val_K, loss_K = (found[name].nan_to_num(UNKNOWN).double() for name in ("val", "val_loss"))
    done[ALONE + "score"] = smoothed(tensor(own[ALONE + "score"]), val_K)
    return done, torch.stack([val_K, loss_K], 1)


def _kept(ctx: Context, own: State, mean_K: Tensor, mean_loss_K: Tensor) -> State:
    rounds_K, score_K = tensor(own[ALONE + "rounds"]), tensor(own[ALONE + "score"])
    with_all_K = better(mean_K, mean_loss_K, tensor(own["kept_mean"]), tensor(own["kept_mean_loss"])) & (mean_K >= 0)
    by_itself_K = (score_K > tensor(own["kept_score"])) | ((tensor(own["has_kept"]) == 0) & (score_K >= 0))
    better_K = torch.where(rounds_K < ctx.round - 1, by_itself_K, with_all_K)
    numbers = {"kept_score": score_K, "kept_mean": mean_K, "kept_mean_loss": mean_loss_K}
    kept: State = {name: torch.where(better_K, tensor(new), tensor(own[name])) for name, new in numbers.items()}
    kept["has_kept"] = tensor(own["has_kept"]) | better_K
    return kept | {KEPT: either(better_K, tree(own[ALONE + "weights"]), tree(own[KEPT]))}


def _local(ctx: Context) -> Context:
    assert isinstance(ctx.model, WithFallback), "the experiment gives the method its net"
    second = ctx.model.second
    return replace(ctx, model=second, dropout=LOCAL_DROPOUT if second == LOCAL else ctx.dropout)
