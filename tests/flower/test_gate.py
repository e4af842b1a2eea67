"""The coordinator's gate and a site's questions to it, over real TLS on loopback; Flower's link is played."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the extra fedpub[deploy] is not installed")
pytest.importorskip("h11", reason="the extra fedpub[deploy] is not installed")
pytest.importorskip("httpx", reason="the extra fedpub[deploy] is not installed")

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fedpub.errors import FedpubError
from fedpub.flower import preflight
from fedpub.flower.gate import ENDPOINTS, NOT_ADMITTED, PROTOBUF, PUBLIC_KEY, SIGNATURE, TIMESTAMP, Gate
from fedpub.flower.keys import (
    admit,
    fingerprint,
    make_authority,
    make_certificate,
    make_site_key,
    public_line,
    read_admitted,
)
from fedpub.flower.lobby import Limits
from fedpub.flower.preflight import check_coordinator

PULL = "/v1/fleet/pull-messages"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A coordinator's folder with site a admitted; b and its key are known to nobody."""
    folder = tmp_path_factory.mktemp("coordinator")
    make_authority(folder)
    make_certificate(folder, [])
    admit(folder / "admitted.txt", "a", make_site_key(folder / "a.key"))
    make_site_key(folder / "b.key")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "coordinator"))


class Link:
    """Plays the mailboxes: gives back what it is sent, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.go = threading.Event()  # until then no answer is given
        self.go.set()
        self.ill: Exception | None = None

    async def __call__(self, site: str, name: str, body: bytes) -> bytes:
        self.seen.append((site, name, body))
        while not self.go.is_set():
            await asyncio.sleep(0.01)
        if self.ill:
            raise self.ill
        return body


@pytest.fixture
def link() -> Iterator[Link]:
    played = Link()
    yield played
    played.go.set()


@pytest.fixture
def gate(folder: Path, link: Link) -> Iterator[Gate]:
    with opened(folder, link) as gate:
        yield gate


def opened(folder: Path, link: Link, **limits) -> Gate:
    return Gate("127.0.0.1", 0, link, folder, Limits(**({"head_seconds": 20.0, "idle_seconds": 20.0} | limits)))


def trusting(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself
    return context


@pytest.fixture
def client(gate: Gate, folder: Path) -> Iterator[httpx.Client]:
    with calling(gate, folder) as client:
        yield client


def calling(gate: Gate, folder: Path) -> httpx.Client:
    return httpx.Client(base_url=f"https://127.0.0.1:{gate.port}", verify=trusting(folder), timeout=60)


def signed(folder: Path, site: str = "a", by: str | None = None, at: datetime | None = None) -> dict[str, str]:
    """The headers of a SuperNode, made by hand as Flower makes them."""
    key, other = (private(folder, name) for name in (site, by or site))
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    now = (at or datetime.now(UTC)).isoformat()
    return {
        "flwr-public-key": encoded(key.public_key().public_bytes(serialization.Encoding.PEM, spki)),
        "flwr-timestamp": now,
        "flwr-signature": encoded(other.sign(now.encode(), ec.ECDSA(hashes.SHA256()))),
    }


def private(folder: Path, site: str) -> ec.EllipticCurvePrivateKey:
    return serialization.load_ssh_private_key((folder / f"{site}.key").read_bytes(), password=None)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def certified(folder: Path, names: list[x509.GeneralName], begins: timedelta, ends: timedelta) -> None:
    """A server certificate for these names and times, signed by the folder's authority."""
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), password=None)
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "made by hand")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(ca.subject, subject, key.public_key(), 7, now + begins, now + ends)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


# What passes


def test_endpoints_and_headers_are_those_of_flower():
    pytest.importorskip("flwr", reason="flwr is not installed")
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

    known = {path.removeprefix("/v1/fleet/") for _, path in PROTOBUF_REQUEST_TYPES if path.startswith("/v1/fleet/")}
    assert known - ENDPOINTS == {"register-node", "unregister-node", "get-run", "get-fab"}
    assert known >= ENDPOINTS
    assert PROTOBUF_MEDIA_TYPE.encode() == PROTOBUF
    theirs = (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
    assert tuple(name.encode() for name in theirs) == (PUBLIC_KEY, TIMESTAMP, SIGNATURE)


@pytest.mark.parametrize("name", sorted(ENDPOINTS))
def test_a_site_reaches_the_fleet_endpoints(client, folder, link, name):
    response = client.post(f"/v1/fleet/{name}", content=b"hello", headers=signed(folder))
    assert (response.status_code, response.content) == (200, b"hello")
    assert response.headers["content-type"] == "application/protobuf"
    assert "server" not in response.headers
    assert link.seen == [("a", name, b"hello")], "who signed is who sent it"


def test_a_connection_serves_many_requests(client, folder, link):
    ports = set()
    for number in range(5):
        response = client.post(PULL, content=str(number).encode(), headers=signed(folder))
        assert response.content == str(number).encode()
        ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies_pass_whole(client, folder, declared):
    body = bytes(range(256)) * 2**14  # 4 MiB
    pieces = body if declared else (body[at : at + 100_000] for at in range(0, len(body), 100_000))
    assert client.post(PULL, content=pieces, headers=signed(folder)).content == body


def test_a_client_that_asks_first_is_told_to_go_on(gate, folder):
    request = b"POST " + PULL.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
    with raw(gate, folder) as one:
        one.sendall(request + b"".join(f"{name}: {value}\r\n".encode() for name, value in signed(folder).items()))
        one.sendall(b"\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"ok")
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")


def raw(gate: Gate, folder: Path) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", gate.port), timeout=60)
    return trusting(folder).wrap_socket(plain, server_hostname="127.0.0.1")


# What does not


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/control/register-node"),
        ("POST", "/v1/runtime/pull-task-input"),
        ("POST", "/v1/fleet/register-node"),
        ("POST", "/v1/fleet/unregister-node"),
        ("POST", "/v1/fleet/get-run"),
        ("POST", "/v1/fleet/get-fab"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "//v1/fleet/pull-messages"),
        ("POST", "/v1/fleet/pull-messages/"),
        ("POST", "/v1/fleet/pull-messages?x=1"),
        ("POST", "/v1/fleet/"),
        ("POST", "pull-messages"),
        ("POST", "https://127.0.0.1/v1/fleet/pull-messages"),
        ("GET", "/v1/fleet/pull-messages"),
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/v1/fedpub/admitted/"),
        ("POST", "/v1/fedpub/admitted"),
        ("OPTIONS", "*"),
        ("CONNECT", "127.0.0.1:1"),
    ],
)
def test_nothing_else_can_be_reached(gate, folder, link, method, path):
    connection = http.client.HTTPSConnection("127.0.0.1", gate.port, context=trusting(folder), timeout=60)
    connection.request(method, path, body=b"hello" if method == "POST" else None, headers=signed(folder))
    response = connection.getresponse()
    assert response.status == 404
    assert response.read().startswith(b"this is the gate of a fedpub coordinator; ")
    connection.close()
    assert not link.seen


def test_a_key_that_is_not_admitted_is_refused_and_told_once(client, folder, link, caplog):
    with caplog.at_level(logging.WARNING, "fedpub"):
        for _ in range(3):
            response = client.post(PULL, content=b"hello", headers=signed(folder, "b"))
            assert response.status_code == NOT_ADMITTED
    name = fingerprint(public_line(folder / "b.key"))
    assert response.text == f"the key {name} is not admitted; see `fedpub coordinator admit`\n"
    assert [record.getMessage() for record in caplog.records] == [
        f"refused the key {name} from 127.0.0.1: it is not in {folder / 'admitted.txt'}"
    ]
    assert not link.seen


def test_the_key_of_a_site_is_no_use_without_its_private_half(client, folder, link):
    response = client.post(PULL, content=b"hello", headers=signed(folder, "a", by="b"))
    assert (response.status_code, response.text) == (NOT_ADMITTED, "the request is not signed with the key of a\n")
    assert not link.seen


def foreign(key) -> dict[str, str]:
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {"flwr-public-key": encoded(pem)}


@pytest.mark.parametrize(
    "change",
    [
        {"flwr-public-key": None},
        {"flwr-timestamp": None},
        {"flwr-signature": None},
        {"flwr-signature": "?"},
        {"flwr-public-key": "?"},
        {"flwr-public-key": encoded(b"hello")},
        pytest.param(foreign(ed25519.Ed25519PrivateKey.generate()), id="ed25519"),
        pytest.param(foreign(ec.generate_private_key(ec.SECP256K1())), id="a curve that OpenSSH does not know"),
    ],
)
def test_unsigned_requests_are_refused(client, folder, link, change):
    headers = {name: value for name, value in (signed(folder) | change).items() if value is not None}
    response = client.post(PULL, content=b"hello", headers=headers)
    assert response.status_code == NOT_ADMITTED
    assert response.text.startswith("the request is not signed with a site's key; ")
    assert not link.seen


def test_of_two_keys_only_the_one_that_was_checked_is_passed_on(client, folder, link):
    a, b = signed(folder), signed(folder, "b")
    both = [("flwr-public-key", b["flwr-public-key"]), *a.items()]
    assert client.post(PULL, headers=both).status_code == 200
    assert link.seen[0][0] == "a"
    assert client.post(PULL, headers=both[::-1]).status_code == NOT_ADMITTED


@pytest.mark.parametrize("declared", [True, False])
def test_too_large_a_body_is_refused(folder, link, caplog, declared):
    with (
        caplog.at_level(logging.WARNING, "fedpub"),
        opened(folder, link, largest=100_000) as gate,
        calling(gate, folder) as client,
    ):
        pieces = b"x" * 300_000 if declared else (b"x" * 10_000 for _ in range(30))
        response = client.post(PULL, content=pieces, headers=signed(folder))
        assert response.status_code == 413
        assert response.text == "a sent more than the 100000 bytes that one request may have\n"
        assert client.post(PULL, content=b"x" * 100_000, headers=signed(folder)).status_code == 200
    assert [len(body) for _, _, body in link.seen] == [100_000]
    assert "a sent more than" in caplog.text


def test_a_declared_length_is_refused_before_a_byte_of_it(folder, link):
    with opened(folder, link, largest=100) as gate, raw(gate, folder) as one:
        headers = signed(folder) | {"content-length": "101", "expect": "100-continue"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
        assert one.recv(100).startswith(b"HTTP/1.1 413 ")


def test_more_requests_of_a_site_than_allowed_are_told_to_come_back(folder, link):
    link.go.clear()
    with opened(folder, link, under_way=2, idle_seconds=8.0) as gate:
        answers: list[int] = []

        def ask() -> None:
            with calling(gate, folder) as client:
                answers.append(client.post(PULL, content=b"x", headers=signed(folder)).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(link.seen) == 2)
        with calling(gate, folder) as client:
            refused = client.post(PULL, content=b"x", headers=signed(folder))
            assert (refused.status_code, "2 requests" in refused.text) == (503, True)
            assert client.get("/v1/fedpub/admitted").status_code == 200
            link.go.set()
            for thread in threads:
                thread.join()
            assert answers == [200, 200]
            assert client.post(PULL, content=b"x", headers=signed(folder)).status_code == 200


def until(done, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


def test_the_oldest_stranger_makes_room_and_a_site_stays(folder, link):
    with opened(folder, link, per_address=4) as gate, calling(gate, folder) as client:
        port = client.post(PULL, headers=signed(folder)).extensions["network_stream"].get_extra_info("client_addr")
        kept = [raw(gate, folder) for _ in range(4)]
        until(lambda: gate.lobby.strangers == 4)
        with raw(gate, folder):
            assert ended(kept[0]), "the oldest goes"
            until(lambda: gate.lobby.strangers == 4)
            again = client.post(PULL, headers=signed(folder))
            assert again.extensions["network_stream"].get_extra_info("client_addr") == port
        for one in kept:
            one.close()
        assert gate.lobby.refused["too many connections"] == 1


def test_who_connects_too_often_is_cut_before_tls(folder, link):
    with opened(folder, link, burst=3, per_second=0.001) as gate:
        for _ in range(3):
            raw(gate, folder).close()
        one = socket.create_connection(("127.0.0.1", gate.port), timeout=60)
        assert ended(one)
        one.close()
        assert gate.lobby.refused["too many connections"] == 1


def test_what_all_requests_hold_is_bounded(folder, link):
    with opened(folder, link, held=100_000) as gate, raw(gate, folder) as half, calling(gate, folder) as client:
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        half.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n{lines}\r\n".encode())
        half.sendall(b"x" * 80_000)
        until(lambda: gate._held == 80_000)
        refused = client.post(PULL, content=b"x" * 50_000, headers=signed(folder))
        assert (refused.status_code, "is reading 100000 bytes" in refused.text) == (503, True)
        half.close()
        until(lambda: gate._held == 0)
        assert client.post(PULL, content=b"x" * 50_000, headers=signed(folder)).status_code == 200


def test_a_body_that_trickles_in_is_told_to_come_back(folder, link):
    with opened(folder, link, idle_seconds=0.5, slowest=1e9) as gate, raw(gate, folder) as one:
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n{lines}\r\n".encode())
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(2000):
                one.sendall(b"x")
                time.sleep(0.01)
                one.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    assert one.recv(100).startswith(b"HTTP/1.1 503 ")
                    break
                one.settimeout(60)
            else:
                pytest.fail("it could take for ever")
    assert not link.seen


@pytest.mark.parametrize(("seconds", "status"), [(-200, 200), (-400, NOT_ADMITTED), (60, NOT_ADMITTED)])
def test_a_signature_is_of_this_time(client, folder, link, seconds, status):
    response = client.post(PULL, headers=signed(folder, at=datetime.now(UTC) + timedelta(seconds=seconds)))
    assert response.status_code == status
    assert status == 200 or "not of this time" in response.text


# Slow and broken clients


@pytest.mark.parametrize("sent", [b"", b"POST " + PULL.encode()])
def test_a_client_that_sends_no_request_is_cut(folder, link, sent):
    with opened(folder, link, head_seconds=1.0) as gate, raw(gate, folder) as one:
        one.settimeout(60)  # it does not end by itself
        one.sendall(sent)
        assert ended(one)


def ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_a_head_that_trickles_in_is_cut(folder, link):
    with (
        opened(folder, link, head_seconds=1.0) as gate,
        raw(gate, folder) as one,
        contextlib.suppress(ConnectionError, ssl.SSLError),
    ):
        for _ in range(2000):
            one.sendall(b"P")
            time.sleep(0.03)
        pytest.fail("it could go on for ever")


def test_a_stranger_that_stays_after_its_answer_takes_its_place(folder, link, monkeypatch):
    """Until TLS has ended on both sides, for which it gets a moment: open sockets are what there are few of."""
    monkeypatch.setattr("fedpub.flower.gate.SHUTDOWN", 100.0)
    with opened(folder, link, per_address=2) as gate:
        kept = [raw(gate, folder) for _ in range(2)]
        for one in kept:
            one.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 404 ")
        assert gate.lobby.strangers == 2
        with raw(gate, folder):
            until(lambda: gate.lobby.refused["too many connections"] == 1)
        for one in kept:
            one.close()
    monkeypatch.setattr("fedpub.flower.gate.SHUTDOWN", 0.2)
    with opened(folder, link) as gate, raw(gate, folder) as one:
        one.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: not gate.lobby.strangers, 20)  # without a limit of ours it takes 30 seconds


def test_more_requests_than_a_site_needs_are_told_to_come_back(folder, link):
    with opened(folder, link, requests=0.25) as gate, calling(gate, folder) as client:
        found = [client.post(PULL, content=b"x", headers=signed(folder)) for _ in range(3)]
    assert [one.status_code for one in found] == [200, 200, 503]
    assert "a has sent too many requests" in found[-1].text


def test_a_stranger_s_body_is_not_read_to_its_end(gate, folder, monkeypatch):
    """Reading costs time that belongs to the sites; the sentence arrives nevertheless."""
    monkeypatch.setattr("fedpub.flower.connection.LINGER", 100.0)
    with raw(gate, folder) as one:
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n".encode())
        assert one.recv(100).startswith(b"HTTP/1.1 401 ")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            one.sendall(b"x" * 2**27)


def test_no_handshake_is_cut(folder, link):
    with opened(folder, link, head_seconds=0.2) as gate:
        one = socket.create_connection(("127.0.0.1", gate.port), timeout=60)
        assert ended(one)
        one.close()


def test_a_body_that_stops_is_told_to_come_back(folder, link):
    with opened(folder, link, idle_seconds=0.3) as gate, raw(gate, folder) as one:
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n{lines}\r\nhalf".encode())
        assert one.recv(100).startswith(b"HTTP/1.1 503 ")
    assert not link.seen


def test_a_client_that_does_not_read_is_cut(folder, link):
    with opened(folder, link, idle_seconds=0.5) as gate, raw(gate, folder) as one:
        body = b"x" * 8 * 2**20  # more than the sockets between hold
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode())
        one.sendall(body)
        until(lambda: link.seen)
        until(lambda: not gate._connections)


def test_what_is_not_http_or_not_tls_harms_nobody(gate, folder, client):
    with raw(gate, folder) as one:
        one.sendall(b"\x00\x01\x02 what is this\r\n\r\n")
        assert ended(one)
    with socket.create_connection(("127.0.0.1", gate.port), timeout=5) as one:
        one.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with raw(gate, folder) as one:  # gone in the middle of a body
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n{lines}\r\nhalf".encode())
    assert client.post(PULL, content=b"x", headers=signed(folder)).status_code == 200


def test_two_lengths_are_no_request(gate, folder, link):
    """Where proxy and server count differently, a second request can hide in the first."""
    with raw(gate, folder) as one:
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed(folder).items())
        lengths = "Content-Length: 5\r\nContent-Length: 6\r\n"
        one.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\n{lengths}{lines}\r\nhello!".encode())
        assert ended(one)
    assert not link.seen


# The link is ill


def test_whatever_a_request_does_to_the_link_the_next_one_is_served(client, folder, link, caplog):
    link.ill = MemoryError("all of it\x1b[2J")
    with caplog.at_level(logging.WARNING, "fedpub"):
        response = client.post(PULL, content=b"x", headers=signed(folder))
    assert (response.status_code, response.text) == (502, "the link failed; try again later\n")
    assert "MemoryError" in caplog.text
    assert "\x1b" not in caplog.text
    link.ill = None
    assert client.post(PULL, content=b"x", headers=signed(folder)).status_code == 200


def test_a_link_that_hangs(folder, link):
    link.go.clear()
    with opened(folder, link, idle_seconds=0.3) as gate, calling(gate, folder) as client:
        assert client.post(PULL, content=b"x", headers=signed(folder)).status_code == 504


# The admission list


def test_the_list_is_read_again_when_it_changes(gate, client, folder, caplog):
    path = folder / "admitted.txt"

    def status(site: str) -> int:
        return client.post(PULL, content=b"x", headers=signed(folder, site)).status_code

    assert (status("a"), status("b")) == (200, NOT_ADMITTED)
    admit(path, "b", public_line(folder / "b.key"))
    assert (status("a"), status("b")) == (200, 200)
    good = path.read_text()
    path.write_text("nonsense\n")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedpub"):
        assert (status("a"), status("b")) == (200, 200)
    assert len(caplog.records) == 1
    assert f"line 1 of {path}" in caplog.text
    path.write_text(good.splitlines()[1] + "\n")
    assert (status("a"), status("b")) == (NOT_ADMITTED, 200)
    path.unlink()
    assert (status("a"), status("b")) == (NOT_ADMITTED, NOT_ADMITTED)


def test_a_site_can_ask_whether_it_is_admitted(gate, folder, client):
    def ask(**params: str) -> dict:
        response = client.get("/v1/fedpub/admitted", params=params)
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json; charset=utf-8")
        told = json.loads(response.content)
        assert abs(told.pop("time") - time.time()) < 60
        return told

    assert ask(key=fingerprint(public_line(folder / "a.key"))) == {"admitted": True, "site": "a"}
    assert ask(key=fingerprint(public_line(folder / "b.key"))) == {"admitted": False, "site": None}
    assert ask(key="") == ask() == {"admitted": False, "site": None}


def serial_of(connection: ssl.SSLSocket) -> int:
    return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)).serial_number


def test_a_renewed_certificate_is_for_new_connections_and_ends_no_old_one(gate, folder, monkeypatch, caplog):
    monkeypatch.setattr("fedpub.flower.gate.LOOK", 0.05)
    context = ssl.create_default_context(cafile=folder / "ca.pem")

    def connected() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", gate.port), timeout=10)
        return context.wrap_socket(plain, server_hostname="localhost")

    time.sleep(2.2)  # the look under way still takes as long as before
    with connected() as old:
        before = serial_of(old)
        (folder / "server.pem").write_text("damaged")
        time.sleep(0.3)
        with connected() as still:
            assert serial_of(still) == before, "a damaged certificate changes nothing"
        make_certificate(folder, ["localhost"])
        time.sleep(0.3)
        with connected() as new:
            assert serial_of(new) != before
        old.sendall(b"GET /v1/fedpub/admitted HTTP/1.1\r\nhost: x\r\n\r\n")
        assert old.recv(100).startswith(b"HTTP/1.1 200")


# Starting and stopping


def test_stop_is_quick_and_leaves_nothing_behind(folder, link):
    before = set(threading.enumerate())
    link.go.clear()
    gate = opened(folder, link, idle_seconds=3600, head_seconds=3600).start()
    failed: list[Exception] = []

    def ask() -> None:
        with calling(gate, folder) as client:
            try:
                client.post(PULL, content=b"x", headers=signed(folder))
            except httpx.TransportError as error:
                failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    idle, silent = raw(gate, folder), socket.create_connection(("127.0.0.1", gate.port))
    until(lambda: link.seen)
    gate.stop()  # with an hour's patience it does not wait for those who are there
    thread.join(60)
    assert failed
    assert not [one for one in set(threading.enumerate()) - before if "gate" in one.name or "asyncio" in one.name]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", gate.port), timeout=1)
    gate.stop()
    idle.close()
    silent.close()


def test_the_port_can_be_used_again_at_once(folder, link):
    with opened(folder, link) as gate, calling(gate, folder) as client:
        assert client.post(PULL, headers=signed(folder)).status_code == 200
        port = gate.port
    with Gate("127.0.0.1", port, link, folder) as gate:
        assert gate.port == port


def test_a_port_in_use(gate, folder, link):
    with pytest.raises(FedpubError, match=rf"cannot listen on 127\.0\.0\.1:{gate.port} "):
        Gate("127.0.0.1", gate.port, link, folder).start()


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_certificates_that_are_not_there_or_damaged(folder, link, name):
    (folder / name).write_text("damaged")
    with pytest.raises(FedpubError, match=r"the certificates in .* are invalid"):
        opened(folder, link).start()
    (folder / name).unlink()
    with pytest.raises(FedpubError, match=r"the certificates in .* are invalid"):
        opened(folder, link).start()


def test_a_damaged_list_is_found_at_the_start(folder, link):
    (folder / "admitted.txt").write_text("nonsense\n")
    with pytest.raises(FedpubError, match="line 1 of"):
        opened(folder, link).start()


def test_stop_without_start(folder):
    opened(folder, Link()).stop()


# A site's questions


def check(address: str, folder: Path, site: str = "a", timeout: float = 60) -> str:
    return check_coordinator(address, folder / "ca.pem", public_line(folder / f"{site}.key"), timeout)


def refusal(address: str, folder: Path, site: str = "a", timeout: float = 60) -> str:
    with pytest.raises(FedpubError) as caught:
        check(address, folder, site, timeout)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_admitted_site_learns_its_name(gate, folder, host):
    assert check(f"{host}:{gate.port}", folder) == "a"


def test_a_key_that_is_not_admitted(gate, folder):
    said = refusal(f"127.0.0.1:{gate.port}", folder, "b")
    assert fingerprint(public_line(folder / "b.key")) in said
    assert "give the site's .pub file to the coordinator's operator, who runs `fedpub coordinator admit`" in said
    admit(folder / "admitted.txt", "hospital-b", public_line(folder / "b.key"))
    assert [*read_admitted(folder / "admitted.txt")] == ["a", "hospital-b"]
    assert check(f"127.0.0.1:{gate.port}", folder, "b") == "hospital-b"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0", "https://h:1", "h:1/x", "h:99999"])
def test_what_is_no_address(folder, address):
    assert "is not HOST:PORT, such as" in refusal(address, folder)


@pytest.mark.parametrize("name", ["nowhere.invalid", "a..b", "a b"])
def test_a_name_that_does_not_resolve(folder, name):
    assert refusal(f"{name}:9443", folder).startswith(f"the name in {name}:9443 cannot be resolved; ")


def test_nobody_listens(folder):
    with socket.socket() as taken:  # bound, so that nobody else gets the port, but not listening
        taken.bind(("127.0.0.1", 0))
        assert "refuses connections" in refusal(f"127.0.0.1:{taken.getsockname()[1]}", folder)


def test_nobody_answers(folder):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = refusal(f"127.0.0.1:{silent.getsockname()[1]}", folder, timeout=0.2)
    assert "did not answer within 0.2 seconds" in said


def test_no_authority_at_hand(folder):
    path = folder / "ca.pem"
    path.unlink()
    assert refusal("127.0.0.1:1", folder).startswith(f"{path} cannot be read (No such file")
    for content in (b"", b"hello", b"\xff\xff", (folder / "ca.key").read_bytes()):
        path.write_bytes(content)
        assert refusal("127.0.0.1:1", folder).startswith(f"{path} is not a certificate; ")


def test_another_authority(gate, folder, tmp_path):
    make_authority(tmp_path / "other")
    shutil.copy(folder / "a.key", tmp_path / "other")
    said = refusal(f"127.0.0.1:{gate.port}", tmp_path / "other")
    assert f"was not signed by {tmp_path / 'other' / 'ca.pem'}" in said
    assert "use the ca.pem of this coordinator" in said


LOCAL = [x509.DNSName("localhost")]
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("names", "begins", "ends", "expected"),
    [
        (LOCAL, -2 * DAY, -DAY, "has expired"),
        (LOCAL, DAY, 2 * DAY, "is not valid yet; correct this machine's clock"),
        (
            [x509.DNSName("a.org"), x509.DNSName("b.org")],
            -DAY,
            DAY,
            "is for a.org, b.org; ",
        ),
    ],
)
def test_certificates_that_do_not_fit(folder, link, names, begins, ends, expected):
    certified(folder, names, begins, ends)
    with opened(folder, link) as gate:
        said = refusal(f"localhost:{gate.port}", folder)
    assert said.startswith(f"the certificate of the coordinator at localhost:{gate.port} {expected}")


def test_an_address_that_the_certificate_is_not_for(folder, link):
    certified(folder, LOCAL, -DAY, DAY)
    with opened(folder, link) as gate:
        assert check(f"localhost:{gate.port}", folder) == "a"
        assert "is for localhost; connect to one of its names" in refusal(f"127.0.0.1:{gate.port}", folder)


class Stranger(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        """Quiet."""


def test_a_server_that_is_no_coordinator(folder):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        assert "is not a fedpub coordinator (its answer to" in refusal(f"127.0.0.1:{server.server_port}", folder)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("greeting", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b""])
def test_a_server_without_tls(folder, greeting):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            one, _ = server.accept()
            with one:
                one.recv(10_000)
                one.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        said = refusal(f"127.0.0.1:{server.getsockname()[1]}", folder)
        thread.join()
    assert "is not a fedpub coordinator" in said


@pytest.mark.parametrize(("shift", "way"), [(60, "60 seconds ahead of"), (-1000, "1000 seconds behind")])
def test_a_clock_that_is_wrong(gate, folder, monkeypatch, shift, way):
    class Clock:
        @staticmethod
        def time() -> float:
            return time.time() + shift

    monkeypatch.setattr(preflight, "time", Clock)
    assert f"this machine's clock is {way} that of the coordinator" in refusal(f"127.0.0.1:{gate.port}", folder)


def test_a_proxy_that_refuses(gate, folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            one, _ = server.accept()
            with one:
                one.recv(10_000)
                one.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.getsockname()[1]}")
        said = refusal("fl.example.org:9443", folder)
        thread.join()
    assert said.startswith("the proxy in HTTPS_PROXY does not connect to fl.example.org:9443 (403 Forbidden); ")
