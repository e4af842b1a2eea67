"""FED-PUB-plus: `method.py` is the method; what its server knows, how communities are found, how a client chooses, and
what it trains beside are files of their own."""

from fedpub.algorithms.fedpub_plus.method import FedPubPlus

__all__ = ["FedPubPlus"]
