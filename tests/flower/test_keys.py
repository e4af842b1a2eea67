"""Certificates, site keys and the admission list."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="the extra fedpub[deploy] is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fedpub.errors import FedpubError
from fedpub.flower import keys
from fedpub.flower.keys import (
    SITE,
    admit,
    check_certificate,
    fingerprint,
    line_of,
    make_authority,
    make_certificate,
    make_site_key,
    public_line,
    read_admitted,
    remove,
    replace_key,
    rotate_site_key,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coordinator")
    make_authority(folder)
    make_certificate(folder, ["fl.example.org", "10.0.0.7", "2001:db8::1"])
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "coordinator"))


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


# Certificates


def test_private_files_are_for_their_owner_alone_at_every_moment(tmp_path, generous_umask, monkeypatch):
    seen = []
    replace = os.replace

    def watched(one, other):
        seen.append((Path(other).name, mode(Path(one))))
        replace(one, other)

    monkeypatch.setattr(os, "replace", watched)
    make_authority(tmp_path)
    make_certificate(tmp_path, [])
    make_site_key(tmp_path / "a.key")
    private = [found for found in seen if found[0].endswith(".key")]
    assert private == [("ca.key", 0o600), ("server.key", 0o600), ("a.key", 0o600)]
    assert [mode(tmp_path / name) for name in ("ca.key", "server.key", "a.key")] == [0o600] * 3
    assert {mode(tmp_path / name) for name in ("ca.pem", "server.pem")} == {0o666}
    assert not [*tmp_path.glob(".*")]


def test_server_certificate_has_the_hosts_and_this_machine(made):
    names = certificate(made / "server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == [
        "10.0.0.7",
        "2001:db8::1",
        "127.0.0.1",
        "::1",
    ]


def test_certificates_are_valid_since_a_day_ago(made):
    for name, days in (("ca.pem", 3650), ("server.pem", 397)):
        one = certificate(made / name)
        now = datetime.now(UTC)
        assert abs(one.not_valid_before_utc - now + timedelta(days=1)) < timedelta(minutes=5)
        assert abs(one.not_valid_after_utc - now - timedelta(days=days)) < timedelta(minutes=5)


def test_openssl_finds_nothing_wrong_in_strict_mode(made):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl on this machine")
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "fl.example.org"]
    done = subprocess.run(
        [*words, "-CAfile", made / "ca.pem", made / "server.pem"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.7", "2001:db8::1", "localhost", "127.0.0.1"])
def test_python_trusts_it_in_strict_mode(made, host):
    client_context = ssl.create_default_context(cafile=made / "ca.pem")
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(made, client_context, host) is None


def handshake(folder: Path, client_context: ssl.SSLContext, host: str) -> ssl.SSLError | None:
    """A TLS handshake in memory; what the client has against it."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(folder / "server.pem", folder / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error
    return None


def test_authority_is_not_made_twice(folder):
    before = (folder / "ca.key").read_bytes()
    with pytest.raises(FedpubError, match=r"ca\.pem already exists"):
        make_authority(folder)
    assert (folder / "ca.key").read_bytes() == before


def test_half_made_authority_is_made_again(tmp_path):
    (tmp_path / "ca.key").write_text("half")
    make_authority(tmp_path)
    make_certificate(tmp_path, [])
    assert check_certificate(tmp_path) is None


def test_renewed_certificate_keeps_its_key(folder):
    key, old = (folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes()
    make_certificate(folder, ["other.example.org"])
    assert (folder / "server.key").read_bytes() == key
    assert (folder / "server.pem").read_bytes() != old
    assert check_certificate(folder) is None


@pytest.mark.parametrize(
    "host", ["fl.example.org:9443", "https://fl.example.org", "", "a b", "-a", "münchen.de", "[::1]"]
)
def test_what_is_no_host_is_refused(folder, host):
    with pytest.raises(FedpubError, match="neither a host name nor an IP address"):
        make_certificate(folder, [host])


def test_certificate_does_not_outlive_its_authority(tmp_path):
    make_authority(tmp_path, days=30)
    make_certificate(tmp_path, [])
    ends = {certificate(tmp_path / name).not_valid_after_utc for name in ("ca.pem", "server.pem")}
    assert len(ends) == 1


def test_expired_authority_signs_nothing(tmp_path):
    make_authority(tmp_path, days=0)
    with pytest.raises(FedpubError, match=r"ca\.pem has expired"):
        make_certificate(tmp_path, [])


def test_certificate_needs_an_authority(tmp_path):
    with pytest.raises(FedpubError, match=r"there is no file .*ca\.pem"):
        make_certificate(tmp_path, [])


def test_check_of_a_good_certificate(made):
    assert check_certificate(made) is None


def test_check_of_an_expired_certificate(folder):
    make_certificate(folder, [], days=0)
    with pytest.raises(FedpubError, match=r"server\.pem expired on .*; make a new one"):
        check_certificate(folder)


@pytest.mark.parametrize(("days", "warned"), [(13, True), (15, False)])
def test_check_warns_two_weeks_before(folder, days, warned):
    make_certificate(folder, [], days=days)
    said = check_certificate(folder)
    assert ("expires on" in said) if warned else (said is None)


def test_check_with_another_authority(folder, tmp_path):
    make_authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.pem", folder)
    with pytest.raises(FedpubError, match="was not signed by"):
        check_certificate(folder)


def test_check_with_another_key(folder):
    shutil.copy(folder / "ca.key", folder / "server.key")
    with pytest.raises(FedpubError, match=r"server\.key does not belong to .*server\.pem"):
        check_certificate(folder)


def test_check_before_its_time(folder, monkeypatch):
    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=2)

    monkeypatch.setattr(keys, "datetime", Earlier)
    with pytest.raises(FedpubError, match="correct this machine's clock"):
        check_certificate(folder)


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server.key"])
def test_check_of_damaged_files(folder, name):
    (folder / name).write_text("-----BEGIN")
    with pytest.raises(FedpubError, match=f"{name} is not a"):
        check_certificate(folder)
    (folder / name).unlink()
    with pytest.raises(FedpubError, match=f"there is no file .*{name}"):
        check_certificate(folder)


# Site keys


def test_site_key(tmp_path):
    path = tmp_path / "keys" / "hospital-a.key"
    line = make_site_key(path)
    kind, blob, comment = line.split()
    assert (kind, comment) == ("ecdsa-sha2-nistp384", "hospital-a")
    assert path.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    private = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    assert line_of(private.public_key()) == f"{kind} {blob}"
    assert public_line(path) == line


def test_site_key_is_not_overwritten(tmp_path):
    line = make_site_key(tmp_path / "a")
    with pytest.raises(FedpubError, match="already exists"):
        make_site_key(tmp_path / "a")
    assert public_line(tmp_path / "a") == line


def test_fingerprint_is_that_of_ssh_keygen(tmp_path):
    if not shutil.which("ssh-keygen"):
        pytest.skip("there is no ssh-keygen on this machine")
    line = make_site_key(tmp_path / "a.key")
    (tmp_path / "a.pub").write_text(line + "\n")
    words = ["ssh-keygen", "-l", "-f", tmp_path / "a.pub"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
    assert fingerprint(line) in shown.split()


def test_keys_that_are_of_no_use(tmp_path):
    with pytest.raises(FedpubError, match="there is no file"):
        public_line(tmp_path / "a")
    (tmp_path / "a").write_text("not a key")
    with pytest.raises(FedpubError, match="is not a private key"):
        public_line(tmp_path / "a")
    secret = serialization.BestAvailableEncryption(b"secret")
    key = ec.generate_private_key(ec.SECP384R1())
    (tmp_path / "a").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    )
    with pytest.raises(FedpubError, match="without a password"):
        public_line(tmp_path / "a")
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "a").write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    with pytest.raises(FedpubError, match="P-384"):
        public_line(tmp_path / "a")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedpubError, match="cannot write"):
        make_site_key(tmp_path / "file" / "a.key")


# The admission list

LINES = [line_of(ec.generate_private_key(ec.SECP384R1()).public_key()) for _ in range(4)]


def test_sites_are_admitted_in_order(tmp_path):
    path = tmp_path / "admitted.txt"
    assert read_admitted(path) == {}
    admit(path, "b", f"{LINES[0]} anything at all\n")
    admit(path, "a", LINES[1])
    assert [*read_admitted(path).items()] == [("b", LINES[0]), ("a", LINES[1])]
    assert path.read_text() == f"b {LINES[0]}\na {LINES[1]}\n"


def test_comments_and_blank_lines_stay(tmp_path):
    path = tmp_path / "admitted.txt"
    path.write_text(f"# the hospitals\n\nb {LINES[0]} b@host\n  # by phone", encoding="utf-8")
    admit(path, "a", LINES[1])
    assert path.read_text() == f"# the hospitals\n\nb {LINES[0]} b@host\n  # by phone\na {LINES[1]}\n"
    assert [*read_admitted(path)] == ["b", "a"]


def test_the_same_site_again_changes_nothing(tmp_path):
    path = tmp_path / "admitted.txt"
    admit(path, "a", LINES[0])
    admit(path, "b", LINES[1])
    before = path.stat()
    admit(path, "a", f"{LINES[0]} again")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_key_for_a_site_is_refused(tmp_path):
    path = tmp_path / "admitted.txt"
    admit(path, "a", LINES[0])
    with pytest.raises(FedpubError, match="a is admitted with another key, SHA256:"):
        admit(path, "a", LINES[1])
    with pytest.raises(FedpubError, match="this key is admitted as a in"):
        admit(path, "b", LINES[0])
    assert read_admitted(path) == {"a": LINES[0]}


def test_a_removed_site_leaves_the_others_and_the_comments(tmp_path):
    path = tmp_path / "admitted.txt"
    path.write_text(f"# north\na {LINES[0]} a comment\n\n# south\nb {LINES[1]} since May\n")
    assert remove(path, "a") == LINES[0]
    assert path.read_text() == f"# north\n\n# south\nb {LINES[1]} since May\n"
    with pytest.raises(FedpubError, match="unknown site 'c'"):
        remove(path, "c")
    assert remove(path, "b") == LINES[1]
    assert read_admitted(path) == {}


def test_a_new_key_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "admitted.txt"
    for site, line in zip("ab", LINES, strict=False):
        admit(path, site, line)
    assert replace_key(path, "a", LINES[2]) == LINES[0]
    assert [*read_admitted(path).items()] == [("a", LINES[2]), ("b", LINES[1])]
    with pytest.raises(FedpubError, match=r"this key is admitted as b in .*a must make a new key"):
        replace_key(path, "a", LINES[1])
    with pytest.raises(FedpubError, match="unknown site 'c'"):
        replace_key(path, "c", LINES[0])
    assert read_admitted(path)["a"] == LINES[2]


def test_a_site_s_new_key_is_another_and_the_old_one_is_kept(tmp_path):
    path = tmp_path / "a.key"
    old = make_site_key(path)
    new = rotate_site_key(path)
    assert new == public_line(path) != old
    assert new.endswith(" a")
    assert path.with_suffix(".key.old").stat().st_mode & 0o077 == 0
    assert public_line(path.with_suffix(".key.old")).rsplit(" ", 1)[0] == old.rsplit(" ", 1)[0]
    with pytest.raises(FedpubError, match="there is no file"):
        rotate_site_key(tmp_path / "b.key")


@pytest.mark.parametrize("site", ["", "A", "-a", "a b", "a/b", "ä", "a" * 64, "a\n", ".a"])
def test_names_that_no_site_can_have(tmp_path, site):
    with pytest.raises(FedpubError, match="cannot be a site's name"):
        admit(tmp_path / "admitted.txt", site, LINES[0])
    assert not (tmp_path / "admitted.txt").exists()


def rsa_line() -> str:
    key = rsa.generate_private_key(65537, 2048).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp384 AAAA",
        LINES[0][:-8],
        LINES[0].replace("ecdsa-sha2-nistp384", "ssh-rsa"),
        "ecdsa-sha2-nistp384 é",
        pytest.param(rsa_line(), id="rsa"),
        line_of(ec.generate_private_key(ec.SECP256R1()).public_key()),
    ],
)
def test_what_is_no_key_is_refused(tmp_path, line):
    with pytest.raises(FedpubError, match="the public key of a: there is no ecdsa-sha2-nistp384 key"):
        admit(tmp_path / "admitted.txt", "a", line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("B x y", "'B' cannot be a site's name"),
        ("b", "there is no ecdsa-sha2-nistp384 key"),
        (f"a {LINES[1]}", "the site a is listed twice"),
        (f"b {LINES[0]}", "b has the key of a"),
    ],
)
def test_errors_name_file_and_line(tmp_path, line, said):
    path = tmp_path / "admitted.txt"
    path.write_text(f"# first\na {LINES[0]}\n{line}\n")
    with pytest.raises(FedpubError, match=f"line 3 of {path}: {said}"):
        read_admitted(path)
    with pytest.raises(FedpubError, match="line 3"):
        admit(path, "c", LINES[2])


def test_a_list_that_is_no_text(tmp_path):
    path = tmp_path / "admitted.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FedpubError, match="cannot be read"):
        read_admitted(path)


@given(text=st.text() | st.lists(st.sampled_from(["a", "b", "#", " ", "\n", "\r", "\x0b", *LINES])).map("".join))
def test_any_text_is_a_list_or_a_sentence(text):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "admitted.txt"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            sites = read_admitted(path)
        except FedpubError as error:
            sites, said = {}, str(error)
        else:
            said = f"line 0 of {path}: "
        assert f" of {path}: " in said
        assert set(sites.values()) <= set(LINES)
        assert len(set(sites.values())) == len(sites)
        assert all(SITE.fullmatch(site) for site in sites)


notes = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=10).map(lambda text: f"# {text}")


@given(
    sites=st.lists(st.from_regex(SITE, fullmatch=True), unique=True, max_size=len(LINES)),
    before=st.lists(st.just("") | notes, max_size=3),
    data=st.data(),
)
@settings(max_examples=50)
def test_who_is_admitted_is_read_again(sites, before, data):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "admitted.txt"
        path.write_text("\n".join(before) + data.draw(st.sampled_from(["", "\n"])), encoding="utf-8")
        kept = path.read_text(encoding="utf-8")
        for site, line in zip(sites, LINES, strict=False):
            admit(path, site, line)
            admit(path, site, line)
        assert [*read_admitted(path).items()] == [*zip(sites, LINES, strict=False)]
        assert path.read_text(encoding="utf-8").startswith(kept)
