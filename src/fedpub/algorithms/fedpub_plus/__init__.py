"""FED-PUB-plus: `method.py` is the method. What its server knows, how communities are found, what is averaged, how a
client chooses, what it trains beside, and the names of its state's parts are files of their own."""

from fedpub.algorithms.fedpub_plus.method import FedPubPlus

__all__ = ["FedPubPlus"]
