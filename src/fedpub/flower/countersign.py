"""Countersignatures with the keys by which sites are admitted: ECDSA on P-384, as everything that sites sign."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedpub.federation.logged import Sign

ALGORITHM = ec.ECDSA(hashes.SHA384())


def signer(key: ec.EllipticCurvePrivateKey) -> Sign:
    return lambda text: key.sign(text, ALGORITHM)


def verify(key: str, signature: bytes, text: bytes) -> bool:
    """Whether the key of a line in OpenSSH's format has signed the text; False for a line that is no such key."""
    try:
        public = load_ssh_public_key(key.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP384R1):
        return False
    try:
        public.verify(signature, text, ALGORITHM)
    except InvalidSignature:
        return False
    return True
