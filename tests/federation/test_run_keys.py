"""The keys of a run: signed by identities, and checked against what each site itself knows of the others."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_probing import Prober, refusal

pytest.importorskip("cryptography", reason="the extra fedpub[deploy] is not installed")

from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from fedpub.errors import FedpubError
from fedpub.federation.secure.run_keys import FILE, Identity, checked, key_text, prepared, public_half, run_key
from fedpub.federation.wire import Envelope
from fedpub.flower.countersign import signer, verify
from fedpub.flower.keys import line_of

RUN, OTHER_RUN = "5f0c1a9be2d34708", "0" * 16
NAMES = ("a", "b", "c")


@dataclass
class Roster:
    """Three sites that know each other, and what the coordinator hands to the first."""

    identities: dict[str, Identity]
    keys: dict[str, bytes]
    signatures: dict[str, bytes]
    own: bytes

    @staticmethod
    def of(folder: Path) -> Roster:
        private = {name: ec.generate_private_key(ec.SECP384R1()) for name in NAMES}
        lines = {name: line_of(key.public_key()) for name, key in private.items()}

        def others(own: str) -> Mapping[str, str]:
            return {name: line for name, line in lines.items() if name != own}

        identities = {
            name: Identity(name, signer(key), verify, lambda name=name: others(name)) for name, key in private.items()
        }
        keys = {name: public_half(run_key(folder / name)) for name in NAMES}
        signatures = {name: identities[name].sign(key_text(RUN, name, keys[name])) for name in NAMES}
        return Roster(identities, keys, signatures, keys["a"])

    def check(self, names=NAMES) -> None:
        """As the first site does it."""
        keys, signatures = ([held[name] for name in names] for held in (self.keys, self.signatures))
        checked(self.identities["a"], RUN, names, keys, signatures, self.own)


@pytest.fixture
def roster(tmp_path):
    return Roster.of(tmp_path)


# The key of a run


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_key_of_a_run_is_private_from_its_first_byte_on(tmp_path, monkeypatch):
    seen = []
    write = Path.write_bytes
    monkeypatch.setattr(
        Path, "write_bytes", lambda path, data: (seen.append(stat.S_IMODE(path.stat().st_mode)), write(path, data))[1]
    )
    key = run_key(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600
    assert seen == [0o600]
    assert (tmp_path / "run" / FILE).read_bytes() == key
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FILE]


def test_a_run_has_one_key_and_another_run_another(tmp_path):
    first = run_key(tmp_path / "one")
    assert len(first) == len(public_half(first)) == 32
    assert run_key(tmp_path / "one") == first
    assert run_key(tmp_path / "two") != first
    assert public_half(first) != first


def test_a_damaged_key_is_a_sentence_and_is_not_replaced(tmp_path):
    (tmp_path / FILE).write_bytes(b"x" * 31)
    with pytest.raises(FedpubError, match="is damaged: it has 31 bytes, not 32; restore it"):
        run_key(tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"x" * 31


def test_public_halves_are_those_of_the_standard():
    """RFC 7748, section 6.1: Alice's keys."""
    private = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_half(bytes.fromhex(private)).hex() == public


# What is signed

WORDS = st.tuples(st.text(max_size=6), st.text(max_size=6), st.binary(max_size=4))


@given(WORDS, WORDS)
def test_what_is_signed_is_about_one_run_one_site_and_one_key(one, other):
    assert (key_text(*one) == key_text(*other)) == (one == other)


def test_what_is_signed_is_kept_apart_from_all_else_that_is_signed():
    assert key_text(RUN, "a", b"\x01\xff").startswith(b"fedpub secure aggregation 1: key of a run\n")
    assert not key_text(RUN, "a", b"").startswith(b"fedpub audit")


# The check


def test_the_keys_of_sites_that_are_trusted_are_taken(roster):
    roster.check()
    roster.check(names=("c", "b", "a"))


@pytest.mark.parametrize("known", [{}, {"b": "ecdsa-sha2-nistp384 AAAA"}])
def test_a_site_that_is_not_known_is_named(known, roster):
    identity = roster.identities["a"]
    roster.identities["a"] = Identity("a", identity.sign, identity.verify, lambda: known)
    with pytest.raises(FedpubError, match="fedpub site trust") as caught:
        roster.check(names=("a", "c"))
    assert ("this site does not know c" if known else "a trusts no other site yet") in str(caught.value)


def test_a_key_that_the_coordinator_has_swapped_is_noticed(roster, tmp_path):
    """It signs with an identity of its own, or leaves the signature as it was."""
    roster.keys["b"] = public_half(run_key(tmp_path / "of the coordinator"))
    stranger = signer(ec.generate_private_key(ec.SECP384R1()))
    for signature in (roster.signatures["b"], stranger(key_text(RUN, "b", roster.keys["b"]))):
        roster.signatures["b"] = signature
        with pytest.raises(FedpubError, match="the key of b in this run is not signed by the b that this site trusts"):
            roster.check()


@pytest.mark.parametrize(
    ("run", "site"), [(OTHER_RUN, "b"), (RUN, "c")], ids=["of another run", "of another site's name"]
)
def test_a_signature_is_of_this_run_and_this_site(run, site, roster):
    roster.signatures["b"] = roster.identities["b"].sign(key_text(run, site, roster.keys["b"]))
    with pytest.raises(FedpubError, match="the key of b in this run is not signed"):
        roster.check()


def test_two_sites_have_two_keys(roster):
    """The second repeats the key of the first, and signs it itself."""
    roster.keys["c"] = roster.keys["b"]
    roster.signatures["c"] = roster.identities["c"].sign(key_text(RUN, "c", roster.keys["c"]))
    with pytest.raises(FedpubError, match="c and b have the same key in this run"):
        roster.check()


def test_the_own_key_belongs_to_no_other_site(roster):
    roster.keys["c"] = roster.keys["a"]
    roster.signatures["c"] = roster.identities["c"].sign(key_text(RUN, "c", roster.keys["c"]))
    with pytest.raises(FedpubError, match="c and a have the same key in this run"):
        roster.check()
    with pytest.raises(FedpubError, match="c and a have the same key in this run"):
        roster.check(names=("b", "c"))


def test_the_own_key_is_not_replaced(roster, tmp_path):
    """Not even by one that this site has signed, in another life of its folder."""
    roster.keys["a"] = public_half(run_key(tmp_path / "older"))
    roster.signatures["a"] = roster.identities["a"].sign(key_text(RUN, "a", roster.keys["a"]))
    with pytest.raises(FedpubError, match="another key for a than this site has"):
        roster.check()


def test_a_site_is_listed_once(roster):
    with pytest.raises(FedpubError, match="lists the site b twice"):
        roster.check(names=("a", "b", "b"))


@pytest.mark.parametrize(
    ("key", "signature", "words"),
    [
        (b"k" * 31, b"s", "the key of b has 31 bytes and its signature 1"),
        (b"", b"s", "the key of b has 0 bytes"),
        (b"k" * 32, b"", "its signature 0"),
        (b"k" * 32, b"s" * 201, "its signature 201"),
        (bytes(32), b"s", "keeps no secret"),
        (b"\x01" + bytes(31), b"s", "keeps no secret"),
    ],
)
def test_keys_and_signatures_have_their_form(key, signature, words, roster):
    roster.keys["b"], roster.signatures["b"] = key, signature
    with pytest.raises(FedpubError, match=words):
        roster.check()


@pytest.mark.parametrize("short", ["keys", "signatures"])
def test_every_site_has_a_key_and_a_signature(short, roster):
    lists = {"keys": [*roster.keys.values()], "signatures": [*roster.signatures.values()]}
    lists[short].pop()
    with pytest.raises(FedpubError, match=r"3 sites with \d keys and \d signatures"):
        checked(roster.identities["a"], RUN, NAMES, lists["keys"], lists["signatures"], roster.own)


def test_names_of_strangers_are_made_safe_to_show(roster):
    roster.keys["\x1b[2J"], roster.signatures["\x1b[2J"] = roster.keys["b"], roster.signatures["b"]
    with pytest.raises(FedpubError) as caught:
        roster.check(names=("a", "\x1b[2J"))
    assert "\x1b" not in str(caught.value)


# At a site


def test_a_site_that_trusts_no_other_takes_part_in_no_secure_run(tmp_path):
    prober, roster = Prober(tmp_path / "sites"), Roster.of(tmp_path)
    begin = prober.seen["begin"].fields
    experiment = json.dumps(json.loads(begin["experiment"]) | {"secure": True})

    def asked() -> str:
        return refusal(prober.ask(Envelope("begin", {**begin, "run": "f" * 16, "experiment": experiment})))

    assert "no key to sign with" in asked()
    assert not (prober.site.folder / "runs" / ("f" * 16)).exists()
    identity = roster.identities["a"]
    prober.site.identity = Identity("a", identity.sign, identity.verify, dict)
    assert asked().startswith("a trusts no other site yet, which secure aggregation needs; get the .pub files")
    prober.site.identity = identity
    assert prepared(identity) is identity
    assert "trust" not in asked(), "it is refused for another reason: it takes part in one run"
