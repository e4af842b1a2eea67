"""Identities: the coordinator's certificates, the sites' keys and the list of admitted sites.

All keys are EC P-384, the curve that Flower uses.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpub.core.files import write_text
from fedpub.errors import FedpubError, unknown

CA_KEY, CA = "ca.key", "ca.pem"
SERVER_KEY, SERVER = "server.key", "server.pem"
ADMITTED = "admitted.txt"

KEY_TYPE = "ecdsa-sha2-nistp384"
SITE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9_-]{1,63})*")
ALWAYS = ("localhost", "127.0.0.1", "::1")  # for a federation on one machine
SOON = timedelta(days=14)


# Certificates


def make_authority(folder: Path, days: int = 3650) -> None:
    """The authority that signs the coordinator's certificate; sites are given `ca.pem` and trust nothing else."""
    if (folder / CA).exists():
        raise FedpubError(f"{folder / CA} already exists and sites may rely on it; remove it to start over")
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedpub authority")
    builder = _builder(name, name, key, key, datetime.now(UTC) + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    _write_private(folder / CA_KEY, _pem(key))
    _write_certificate(folder / CA, builder.sign(key, hashes.SHA384()))  # last: an incomplete one can be made again


def make_certificate(folder: Path, hosts: Sequence[str], days: int = 397) -> None:
    """The certificate that identifies the coordinator to sites under the names and addresses of `hosts`.

    A renewed certificate keeps its key, so that the two files never disagree.
    """
    authority, signer = _certificate(folder / CA), private_key(folder / CA_KEY)
    now = datetime.now(UTC)
    if authority.not_valid_after_utc <= now:
        raise FedpubError(f"{folder / CA} has expired; make a new authority and give its {CA} to every site")
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *ALWAYS))]
    if (folder / SERVER_KEY).exists():
        key = private_key(folder / SERVER_KEY)
    else:
        key = ec.generate_private_key(ec.SECP384R1())
        _write_private(folder / SERVER_KEY, _pem(key))
    until = min(now + timedelta(days=days), authority.not_valid_after_utc)
    builder = _builder(_name("fedpub coordinator"), authority.subject, key, signer, until)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    _write_certificate(folder / SERVER, builder.sign(signer, hashes.SHA384()))


def check_certificate(folder: Path) -> str | None:
    """A warning if the certificate expires soon; an error if sites would refuse it today."""
    now = datetime.now(UTC)
    authority, certificate = _certificate(folder / CA), _certificate(folder / SERVER)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise FedpubError(f"{folder / SERVER} was not signed by {folder / CA}; make a new certificate") from error
    if private_key(folder / SERVER_KEY).public_key() != certificate.public_key():
        raise FedpubError(f"{folder / SERVER_KEY} does not belong to {folder / SERVER}; make a new certificate")
    soon = None
    for path, one in ((folder / CA, authority), (folder / SERVER, certificate)):
        if now >= one.not_valid_after_utc:
            raise FedpubError(f"{path} expired on {one.not_valid_after_utc:%d %B %Y}; make a new one")
        if now < one.not_valid_before_utc:
            began = f"{one.not_valid_before_utc:%d %B %Y, %H:%M} UTC"
            raise FedpubError(f"{path} is valid only from {began}; correct this machine's clock, or make a new one")
        if now + SOON >= one.not_valid_after_utc:
            soon = f"{path} expires on {one.not_valid_after_utc:%d %B %Y}; make a new one before that day"
    return soon


def certified_hosts(folder: Path) -> list[str]:
    """The names and addresses that the coordinator's certificate is for."""
    names = _certificate(folder / SERVER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def certificate_expires(folder: Path) -> datetime:
    return _certificate(folder / SERVER).not_valid_after_utc


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    until: datetime,
) -> x509.CertificateBuilder:
    """What all certificates have; both key identifiers, which RFC 5280 requires and Python 3.13 checks."""
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # A day earlier, since clocks may differ.
    builder = builder.not_valid_before(datetime.now(UTC) - timedelta(days=1)).not_valid_after(until)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(own, critical=False).add_extension(by, critical=False)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*allowed: str) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: name in allowed for name in every})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
        raise FedpubError(f"host {host!r} is neither a host name nor an IP address; give it without a port") from None


# Site keys


def make_site_key(path: Path) -> str:
    """A site's private key at `path`, in the format that Flower reads; returns its public line."""
    if path.exists():
        raise FedpubError(f"{path} already exists and a coordinator may know it; choose another name or remove it")
    return _new_site_key(path)


def rotate_site_key(path: Path) -> str:
    """A new private key in the place of a site's old one, which is kept as `NAME.key.old`; returns its public line."""
    private_key(path)  # an error now if there is none
    _write_private(path.with_suffix(".key.old"), _read(path))
    return _new_site_key(path)


def _new_site_key(path: Path) -> str:
    _write_private(path, _pem(ec.generate_private_key(ec.SECP384R1()), serialization.PrivateFormat.OpenSSH))
    return public_line(path)


def public_line(path: Path) -> str:
    """The public half of a site's private key; its comment is the file's name without `.key`."""
    public = line_of(private_key(path).public_key())
    return f"{public} {path.name.removesuffix('.key')}"


def line_of(key: ec.EllipticCurvePublicKey) -> str:
    """A public key as OpenSSH writes it: its type and its blob."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def fingerprint(line: str) -> str:
    """A short form of a public key, as `ssh-keygen -l` shows it, for people to compare."""
    blob = base64.b64decode(line.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


# The admission list


def read_admitted(path: Path) -> dict[str, str]:
    """Site -> public key without comment, in the order of the file; a missing file admits no site."""
    sites: dict[str, str] = {}
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"line {number} of {path}"
        site = _site(words[0], place)
        key = _key(" ".join(words[1:]), place)
        if site in sites:
            raise FedpubError(f"{place}: the site {site} is listed twice; remove one of the lines")
        if other := _holder(sites, key):
            raise FedpubError(
                f"{place}: {site} has the key of {other}; remove one of the two, since every site makes its own key"
            )
        sites[site] = key
    return sites


def read_given(paths: Sequence[Path]) -> dict[str, set[str]]:
    """All keys of each site, from .pub files and from lists like the admission list; a site may have several here."""
    sites: dict[str, set[str]] = {}
    for path in paths:
        found = False
        for number, line in enumerate(_lines(path), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            place = f"line {number} of {path}"
            if words[0] == KEY_TYPE:  # a .pub file: the name comes after the key
                words = [*words[2:3], *words[:2]] if len(words) > 2 else [path.name.removesuffix(".pub"), *words]
            found = True
            sites.setdefault(_site(words[0], place), set()).add(_key(" ".join(words[1:]), place))
        if not found:
            raise FedpubError(f"there are no keys in {path}; give .pub files of sites, or a list like {ADMITTED}")
    return sites


def admit(path: Path, site: str, public_line: str) -> None:
    """Add a site at the end of the list; a site already listed with this key stays where it is."""
    _site(site, "the site to admit")
    key = _key(public_line, f"the public key of {site}")
    sites = read_admitted(path)
    if sites.get(site) == key:
        return
    if site in sites:
        raise FedpubError(
            f"{site} is admitted with another key, {fingerprint(sites[site])}; "
            f"if the site has a new one: fedpub coordinator rotate {site} NEW.pub"
        )
    if other := _holder(sites, key):
        raise FedpubError(f"this key is admitted as {other} in {path}; {site} must make its own key")
    write_text(path, "".join(f"{line}\n" for line in (*_lines(path), f"{site} {key}")))


def remove(path: Path, site: str) -> str:
    """Take a site off the list; returns its public key."""
    sites = read_admitted(path)
    if site not in sites:
        raise unknown("site", site, sites)
    write_list(path, {name: key for name, key in sites.items() if name != site})
    return sites[site]


def replace_key(path: Path, site: str, public_line: str) -> str:
    """Admit a site by a new key from now on, in its old place; returns the old key."""
    key, sites = _key(public_line, f"the new public key of {site}"), read_admitted(path)
    if site not in sites:
        raise unknown("site", site, sites)
    if other := _holder(sites, key):
        raise FedpubError(f"this key is admitted as {other} in {path}; {site} must make a new key")
    write_list(path, sites | {site: key})
    return sites[site]


def write_list(path: Path, sites: Mapping[str, str]) -> None:
    """Write the list again, in its order and with all comments; sites that it did not have come last."""
    kept, added = [], dict(sites)
    for line in _lines(path):
        words = line.split()
        if not words or words[0].startswith("#"):
            kept.append(line)
        elif (key := added.pop(words[0], None)) is not None:
            kept.append(line if " ".join(words[1:3]) == key else f"{words[0]} {key}")
    kept += [f"{name} {key}" for name, key in added.items()]
    write_text(path, "".join(f"{line}\n" for line in kept))


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FedpubError(
            f"{path} cannot be read ({error}); it should be a text file with one site per line"
        ) from error
    return text.removesuffix("\n").split("\n") if text else []


def _site(site: str, place: str) -> str:
    if not SITE.fullmatch(site):
        raise FedpubError(
            f"{place}: {site!r} cannot be a site's name; use at most 63 lower-case letters, digits, '.', '_' and '-', "
            "beginning with a letter or a digit"
        )
    return site


def _key(text: str, place: str) -> str:
    """Type and blob in canonical spelling, so that keys can be compared as text."""
    words = text.split()
    try:
        key = serialization.load_ssh_public_key(" ".join(words[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or words[0] != KEY_TYPE:
        raise FedpubError(f"{place}: there is no {KEY_TYPE} key; copy the whole content of the site's .pub file")
    return line_of(key)


def _holder(sites: dict[str, str], key: str) -> str | None:
    return next((site for site, known in sites.items() if known == key), None)


# Files


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat | None = None) -> bytes:
    chosen = form or serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, chosen, serialization.NoEncryption())


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    write_text(path, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _write_private(path: Path, content: bytes) -> None:
    """Atomically, as in `fedpub.core.files`, but readable only by its owner from the first byte on, as by mkstemp."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise FedpubError(f"cannot write {path} ({error.strerror}); choose a folder you may write to") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FedpubError(f"there is no file {path}; make it first") from error
    except OSError as error:
        raise FedpubError(f"{path} cannot be read ({error.strerror}); make it readable for this user") from error


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise FedpubError(f"{path} is not a certificate in PEM format; make a new one") from error


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    content = _read(path)
    load = serialization.load_ssh_private_key if b"OPENSSH" in content else serialization.load_pem_private_key
    try:
        key = load(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedpubError(f"{path} is not a private key without a password; make a new one") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise FedpubError(f"{path} is not a key on the curve P-384; make a new one with fedpub")
    return key
