"""A site's key of a run, the secrets it shares with others, and what is derived from them.

Every key is for one purpose: it is derived with a label of its own, the attempt's context and the numbers of those
that it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpub.errors import FedpubError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY = 32  # `cryptography` is an extra, which simulations do not need: it is imported where it is used


def new_key() -> bytes:
    """A private key of X25519."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(private: bytes) -> bytes:
    return _private(private).public_key().public_bytes_raw()


class Exchange:
    """The secrets that one private key shares with others' public keys, each computed once."""

    def __init__(self, private: bytes) -> None:
        self.private = private
        self.public = public_of(private)
        self._shared: dict[bytes, bytes] = {}

    def with_key(self, public: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if public not in self._shared:
            try:
                shared = _private(self.private).exchange(X25519PublicKey.from_public_bytes(public))
            except ValueError as error:  # a point of low order, with which all would share zero
                raise FedpubError(f"the public key {public.hex()} is not one of X25519") from error
            self._shared[public] = shared
        return self._shared[public]


def derived(secret: bytes, label: str, context: bytes, *numbers: int, also: bytes = b"", length: int = KEY) -> bytes:
    """HKDF-SHA256. Labels contain no zero byte, and all that follows has a fixed length: no two inputs are the same."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    numbered = b"".join(number.to_bytes(4, "little") for number in numbers)
    info = label.encode() + b"\0" + context + numbered + also
    return HKDF(hashes.SHA256(), length, None, info).derive(secret)


def _private(private: bytes) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if len(private) != KEY:
        raise FedpubError(f"a private key of X25519 has {KEY} bytes, not {len(private)}")
    return X25519PrivateKey.from_private_bytes(private)
