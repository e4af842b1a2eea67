"""The methods, one file each; `METHODS` has them by their names on the command line."""

from __future__ import annotations

from fedpub.algorithms.base import Algorithm, Context
from fedpub.algorithms.fedavg import FedAvg
from fedpub.algorithms.fedgnn import FedGNN
from fedpub.algorithms.fedper import FedPer
from fedpub.algorithms.fedprox import FedProx
from fedpub.algorithms.fedpub import FedPub
from fedpub.algorithms.fedpub_plus import FedPubPlus
from fedpub.algorithms.fedsage import FedSage
from fedpub.algorithms.gcfl import GCFL
from fedpub.algorithms.local import Local
from fedpub.algorithms.oracle import Oracle

METHODS: dict[str, type[Algorithm]] = {
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedper": FedPer,
    "fedgnn": FedGNN,
    "fedsage": FedSage,
    "gcfl": GCFL,
    "oracle": Oracle,
    "fedpub": FedPub,
    "fedpub-plus": FedPubPlus,
}

__all__ = [
    "GCFL",
    "METHODS",
    "Algorithm",
    "Context",
    "FedAvg",
    "FedGNN",
    "FedPer",
    "FedProx",
    "FedPub",
    "FedPubPlus",
    "FedSage",
    "Local",
    "Oracle",
]
