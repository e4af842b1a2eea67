"""What a site puts around an answer on its way: its signature, and the hash of its audit log's last line.

    "FPCS" | version, 1 byte | head, 32 bytes | length of the signature, 1 byte | signature | answer

The answer itself is unchanged: a message that is repeated gets the same answer, with a new signature around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpub.errors import FedpubError

MAGIC, VERSION = b"FPCS", 1
HEAD = 32
LONGEST = 200  # bytes of a signature; one of P-384 takes at most 104
BEFORE = len(MAGIC) + 1 + HEAD + 1


@dataclass(frozen=True)
class Countersigned:
    """An answer with what a site has put around it."""

    answer: bytes
    head: str
    """The hash of the site's line about this answer."""
    signature: bytes


def wrapped(answer: bytes, head: str, signature: bytes) -> bytes:
    if not 0 < len(signature) <= LONGEST:
        raise FedpubError(f"a signature of {len(signature)} bytes cannot be sent; it needs 1 to {LONGEST}")
    return b"".join([MAGIC, bytes([VERSION]), bytes.fromhex(head), bytes([len(signature)]), signature, answer])


def unwrapped(data: bytes) -> Countersigned:
    """What came, whatever it holds; a FedpubError if it is not countersigned."""
    if data[: len(MAGIC)] != MAGIC:
        raise FedpubError("the answer is not countersigned; the site needs the same version of fedpub")
    if len(data) < BEFORE:
        raise FedpubError(f"the countersigned answer of {len(data)} bytes is cut short")
    if data[len(MAGIC)] != VERSION:
        raise FedpubError(f"the countersignature has format {data[len(MAGIC)]}, and only {VERSION} is known here")
    length = data[BEFORE - 1]
    if not 0 < length <= LONGEST or BEFORE + length > len(data):
        raise FedpubError(f"the countersignature of {length} bytes is cut short or too long")
    head = data[len(MAGIC) + 1 : BEFORE - 1].hex()
    return Countersigned(data[BEFORE + length :], head, data[BEFORE : BEFORE + length])


def signed_text(run: str | None, question: str, answer: str, head: str) -> bytes:
    """What a site signs. Its first line keeps it apart from all else that is signed with the same key."""
    return f"fedpub audit 1\nrun {run}\nquestion {question}\nanswer {answer}\nhead {head}\n".encode()
