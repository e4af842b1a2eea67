"""Your own method in one file, on the command line next to those of fedpub.

    python examples/custom_method.py compare --methods halfway fedavg local
    python examples/custom_method.py run --method halfway --share 0.3 --rounds 20

Twenty seconds on two cores. docs/write-your-own-method.md explains it line by line.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch import Tensor

from fedpub.algorithms import METHODS, Context, FedAvg
from fedpub.algorithms.training import optimiser_of, train
from fedpub.core.message import Message
from fedpub.core.tree import State, tree
from fedpub.data.clients.stack import Clients


@dataclass(frozen=True)
class Halfway(FedAvg):
    """A client starts between its own last weights and the average: θ_k ← (1 − s) θ_k + s θ̄, then trains."""

    share: float = 0.5
    """s, the share of the average."""

    def client(self, ctx: Context, own: State, msg: Message, data: Clients) -> tuple[State, Message, Tensor]:
        weights = tree(own["weights"])  # each [K, ...]: K clients at a time
        for name, average in msg.tree("weights").items():
            weights[name].lerp_(average, self.share)
        optimiser, loss_K = train(ctx, data, weights, optimiser_of(own))
        return {"weights": weights, **optimiser}, Message({"weights": weights, "size": data.num_train_K}), loss_K


METHODS["halfway"] = Halfway

if __name__ == "__main__":
    from fedpub.cli import main

    sys.exit(main(sys.argv[1:] or ["compare", "--methods", "halfway", "fedavg", "local"]))
