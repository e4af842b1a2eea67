"""The key that a site has in one run, signed by its identity, and the check of the others' keys.

The coordinator carries these keys from site to site. It could hand out keys of its own and play all other sites to
each of them; therefore every site checks each key against its own list of the others' identities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpub.core.files import atomic, writing
from fedpub.core.printable import printable
from fedpub.core.private import owner_only
from fedpub.errors import FedpubError

FILE = "secure.key"
LENGTH = 32  # bytes of either half
LONGEST = 200  # bytes of a signature; one of P-384 takes at most 104
WAY = "get the .pub files of the other sites from their people, compare fingerprints, and run fedpub site trust"


@dataclass(frozen=True)
class Identity:
    """Who a site is, and whom it trusts."""

    name: str
    sign: Callable[[bytes], bytes]
    """Signs a text with the identity key of the site."""
    verify: Callable[[str, bytes, bytes], bool]
    """Whether a key, given as a line, has made this signature of this text."""
    peers: Callable[[], Mapping[str, str]]
    """The key lines of the sites that the site trusts, by name, from its own list, which is read when needed."""


def key_text(run: str, site: str, public: bytes) -> bytes:
    """What a site signs. Its first line keeps it apart from all else that is signed with the same key."""
    return f"fedpub secure aggregation 1: key of a run\n{json.dumps([run, site, public.hex()])}\n".encode()


def run_key(folder: Path) -> bytes:
    """The private key of a run in its folder: made when it is first needed, and kept for as long as the run."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    path = folder / FILE
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        held = X25519PrivateKey.generate().private_bytes_raw()
        with owner_only(), writing(path), atomic(path) as temporary:
            temporary.write_bytes(held)
    except OSError as error:
        raise FedpubError(f"{path} cannot be read ({error.strerror}); make it readable for this user") from error
    if len(held) != LENGTH:
        raise FedpubError(
            f"{path} is damaged: it has {len(held)} bytes, not {LENGTH}; restore it from a backup, or start a new run"
        )
    return held


def public_half(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def prepared(identity: Identity | None) -> Identity:
    """The identity of a site that is to take part in secure aggregation; an error that says what it lacks for that."""
    if identity is None:
        raise FedpubError(
            "this site has no key to sign with, which secure aggregation needs; make it with fedpub site init and "
            "start it with fedpub site start"
        )
    if not identity.peers():
        raise FedpubError(f"{identity.name} trusts no other site yet, which secure aggregation needs; {WAY}")
    return identity


def checked(
    identity: Identity,
    run: str,
    names: Sequence[str],
    keys: Sequence[bytes],
    signatures: Sequence[bytes],
    own: bytes,
) -> None:
    """Raise an error that names the site unless all keys of a run are those of sites that this one trusts.

    `own` is the public key that this site has in the run. Its own name needs no signature: only that key is its own.
    """
    if not len(names) == len(keys) == len(signatures):
        raise FedpubError(
            f"the coordinator sends {len(names)} sites with {len(keys)} keys and {len(signatures)} signatures; both "
            "ends need the same version of fedpub"
        )
    peers = prepared(identity).peers()
    holders = {own: identity.name}
    seen: set[str] = set()
    for name, key, signature in zip(names, keys, signatures, strict=True):
        shown = printable(name)
        if name in seen:
            raise FedpubError(f"the coordinator lists the site {shown} twice; settle it with the coordinator")
        seen.add(name)
        if name == identity.name:
            if key != own:
                raise FedpubError(f"the coordinator sends another key for {shown} than this site has in the run")
            continue
        _check_form(shown, key, signature)
        if name not in peers:
            raise FedpubError(f"this site does not know {shown}, so it shares no sum with it; {WAY}")
        if not identity.verify(peers[name], signature, key_text(run, name, key)):
            raise FedpubError(
                f"the key of {shown} in this run is not signed by the {shown} that this site trusts; if that site "
                "has a new identity key: fedpub site trust --replace; otherwise another plays it"
            )
        if key in holders:
            raise FedpubError(f"{shown} and {holders[key]} have the same key in this run; every site makes its own")
        holders[key] = shown


def _check_form(shown: str, key: bytes, signature: bytes) -> None:
    """Raise an error unless the two have possible lengths, and others' keys cannot be foreseen with this key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    if len(key) != LENGTH or not 0 < len(signature) <= LONGEST:
        raise FedpubError(
            f"the key of {shown} has {len(key)} bytes and its signature {len(signature)}; possible are {LENGTH}, and "
            f"1 to {LONGEST}"
        )
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:  # a point of low order: the secret shared with it is zero, whatever the other key is
        raise FedpubError(
            f"the key of {shown} in this run keeps no secret, which no honest site makes; run without {shown}"
        ) from None
