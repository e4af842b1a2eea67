"""The coordinator's only open port: admitted sites reach their mailboxes, and nothing else.

The gate passes on signed requests of bounded size to the endpoints below.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs

import h11
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.flower.admission import Admission, stamp
from fedpub.flower.connection import Connection, Headers, HttpError
from fedpub.flower.keys import ADMITTED, SERVER, SERVER_KEY, check_certificate, fingerprint, line_of
from fedpub.flower.lobby import Guest, Limits, Lobby, network_of

FLEET = "/v1/fleet/"
# What a site calls. It cannot register itself, since the coordinator admits sites, and there is no app to fetch.
ENDPOINTS = frozenset(
    {
        "activate-node",
        "confirm-message-received",
        "deactivate-node",
        "pull-messages",
        "pull-object",
        "push-messages",
        "push-object",
        "send-node-heartbeat",
    }
)
ASK = "/v1/fedpub/admitted"
PROTOBUF = b"application/protobuf"
PIECE = 2**18  # bytes of a response that are written at once: who does not read is noticed between two of them

PUBLIC_KEY, TIMESTAMP, SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"
AHEAD, BEHIND = 5.0, 300.0  # seconds by which the time of a signature may differ, as in Flower
NOT_ADMITTED = 401
SHUTDOWN = 1.0  # seconds for the other side to end TLS
BACKLOG = 512  # connections that the system holds until they are accepted
LOOK = 2.0  # seconds between two checks whether the certificate was renewed

log = logging.getLogger(__name__)

# Takes a site's name, an endpoint and the body of a request; returns that of the response, or raises an HttpError.
Deliver = Callable[[str, str, bytes], Awaitable[bytes]]


class Gate:
    """A server in a thread of its own, with the certificate, the authority and the admission list of `folder`."""

    def __init__(self, host: str, port: int, deliver: Deliver, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008
        self.host, self.port = host, port
        self._deliver, self._folder, self._limits = deliver, folder, limits
        self.admission = Admission(folder / ADMITTED)
        self.lobby = Lobby(limits)
        self._under_way: Counter[str] = Counter()  # requests by site
        self._held = 0  # bytes of requests
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._problem: BaseException | None = None

    def start(self) -> Gate:
        """Serve; if `port` was 0, it is set to the real one."""
        self.admission.read()
        self._thread = threading.Thread(target=self._run, name="fedpub-gate", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        return self

    def stop(self) -> None:
        """Abort open requests, which sites repeat later, and end the thread."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def is_serving(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Gate:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._problem = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._tls = self._context()
        try:
            listening = await self._listening()
        except (OSError, OverflowError) as error:
            place = f"{self.host}:{self.port}"
            raise FedpubError(f"cannot listen on {place} ({error}); choose another address or port") from error
        self.port = listening[0].getsockname()[1]
        self._ready.set()
        tasks = [asyncio.create_task(self._accept(one)) for one in listening]
        tasks.append(asyncio.create_task(self._renew(self._tls)))
        await self._stopping.wait()
        for task in (*tasks, *self._connections):
            task.cancel()
        await asyncio.gather(*tasks, *self._connections, return_exceptions=True)
        for one in listening:
            one.close()

    async def _listening(self) -> list[socket.socket]:
        """A socket for every address of the host; TLS begins only when a connection has room."""
        found = await self._loop.getaddrinfo(
            self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((family, address[:2]) for family, _, _, _, address in found):
                port = listening[0].getsockname()[1] if listening else address[1]  # the same, if any will do
                listening.append(socket.create_server((address[0], port), family=family, backlog=BACKLOG))
                listening[-1].setblocking(False)
        except BaseException:
            for one in listening:
                one.close()
            raise
        return listening

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError as error:  # such as too many open files
                log.warning("no connection can be accepted now: %s", error)
                await asyncio.sleep(1.0)
                continue
            await asyncio.sleep(0)  # however many come, requests are served in between
            guest = Guest(network_of(str(address[0])))
            if not self.lobby.enter(guest):
                accepted.close()
                continue
            task = self._loop.create_task(self._connection(accepted, guest))
            guest.close = task.cancel
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    def call(self, what: Callable[[], None]) -> None:
        """Have something done by the thread of the gate, to which all mailboxes belong."""
        self._loop.call_soon_threadsafe(what)

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Present a renewed certificate to new connections; those that are open keep the old one."""
        used = stamp(self._folder / SERVER)
        while True:
            await asyncio.sleep(LOOK)
            if (now := stamp(self._folder / SERVER)) != used:
                used = now
                try:
                    check_certificate(self._folder)
                    context.load_cert_chain(self._folder / SERVER, self._folder / SERVER_KEY)
                    log.warning("new connections get the certificate that was renewed")
                except (OSError, FedpubError) as error:
                    log.warning("the renewed certificate cannot be used (%s); the old one is still used", error)

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._folder / SERVER, self._folder / SERVER_KEY)
            return context
        except OSError as error:
            raise FedpubError(f"the certificates in {self._folder} are invalid ({error}); make new ones") from error

    async def _connection(self, accepted: socket.socket, guest: Guest) -> None:
        writer = None
        try:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.head_seconds,
                ssl_shutdown_timeout=SHUTDOWN,
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            await self._requests(Connection(reader, writer, self._limits.idle_seconds), guest)
            writer.close()
            await writer.wait_closed()  # until then it takes its place
        # Disconnected, too slow, or not HTTP; cancelled by `stop`, or for a newer connection.
        except (TimeoutError, OSError, h11.ProtocolError, asyncio.CancelledError):
            if writer is None:
                accepted.close()
            else:
                writer.transport.abort()
        finally:
            self.lobby.leave(guest)

    async def _requests(self, client: Connection, guest: Guest) -> None:
        while (request := await client.request(self._patience(guest))) is not None:
            try:
                await self._answer(client, guest, request)
            except HttpError as refusal:
                self.lobby.refused[f"HTTP {refusal.status}"] += 1
                await client.answer(refusal.status, f"{refusal.sentence}\n")
            if not client.again():
                await client.discard()
                return

    def _patience(self, guest: Guest) -> float:
        return self._limits.head_seconds if guest.site is None else self._limits.kept_seconds

    async def _answer(self, client: Connection, guest: Guest, request: h11.Request) -> None:
        path, _, query = request.target.decode("ascii").partition("?")
        name = path.removeprefix(FLEET)
        if request.method == b"POST" and path == FLEET + name and name in ENDPOINTS and not query:
            await self._fleet(client, guest, request, name)
        elif request.method == b"GET" and path == ASK:
            asked = parse_qs(query).get("key", [""])[0]
            site = next((site for key, site in self.admission.now().items() if fingerprint(key) == asked), None)
            status = {"admitted": site is not None, "site": site, "time": time.time()}
            await client.answer(200, json.dumps(status), "application/json")
        else:
            raise HttpError(404, "this is the gate of a fedpub coordinator; sites enter with `fedpub site start`")

    async def _fleet(self, client: Connection, guest: Guest, request: h11.Request, name: str) -> None:
        headers = {name.lower(): value for name, value in request.headers}  # each once: what is checked is what counts
        site = self._sender(headers, guest.address)
        self.lobby.is_known(guest, site)
        if not self.lobby.takes_request(site):
            raise HttpError(503, f"{site} has sent too many requests; try again later")
        if int(headers.get(b"content-length", 0)) > self._limits.largest:
            raise self._too_large(site)
        if self._under_way[site] >= self._limits.under_way:
            raise HttpError(503, f"{site} has {self._under_way[site]} requests under way; try again later")
        self._under_way[site] += 1
        try:
            answer = await self._delivered(site, name, await self._read(client.body(), site))
        finally:
            self._under_way[site] -= 1
            if not self._under_way[site]:
                del self._under_way[site]
        await client.begin(200, {b"content-type": PROTOBUF, b"content-length": str(len(answer)).encode()})
        for start in range(0, len(answer), PIECE):
            await client.send(h11.Data(data=answer[start : start + PIECE]))
        await client.send(h11.EndOfMessage())

    def _sender(self, headers: Headers, address: str) -> str:
        """The admitted site whose key signed this request just now."""
        unsigned = HttpError(
            NOT_ADMITTED, "the request is not signed with a site's key; sites enter with `fedpub site start`"
        )
        try:
            key = load_pem_public_key(base64.b64decode(headers[PUBLIC_KEY], validate=True))
            signature, signed = base64.b64decode(headers[SIGNATURE], validate=True), headers[TIMESTAMP]
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise unsigned
            line = line_of(key)
        except (KeyError, ValueError, UnsupportedAlgorithm):
            raise unsigned from None
        site = self.admission.now().get(line)
        if site is None:
            self.admission.tell_refused(line, address)
            raise HttpError(
                NOT_ADMITTED, f"the key {fingerprint(line)} is not admitted; see `fedpub coordinator admit`"
            )
        try:
            key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise HttpError(NOT_ADMITTED, f"the request is not signed with the key of {site}") from None
        if not _is_recent(signed):
            raise HttpError(NOT_ADMITTED, f"the signature of {site} is not of this time; set the clocks of both sides")
        return site

    async def _delivered(self, site: str, name: str, body: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await self._deliver(site, name, body)
        except HttpError:
            raise
        except TimeoutError:
            raise HttpError(504, "there is no answer in time; try again later") from None
        except Exception as error:  # whatever a request does, the next one is still served
            log.warning("the link failed at %s of %s: %s", name, site, printable(repr(error)))
            raise HttpError(502, "the link failed; try again later") from None

    async def _read(self, body: AsyncIterator[bytes], site: str) -> bytes:
        """The body, counted as it arrives: its length need not be declared."""
        taken, begun = bytearray(), time.monotonic()
        try:
            async for chunk in body:
                taken += chunk
                self._held += len(chunk)
                if len(taken) > self._limits.largest:
                    raise self._too_large(site)
                if self._held > self._limits.held:
                    raise HttpError(503, f"the coordinator is reading {self._limits.held} bytes; try again later")
                if time.monotonic() - begun > self._limits.idle_seconds + len(taken) / self._limits.slowest:
                    raise HttpError(503, "the request came too slowly; try again later")
            return bytes(taken)
        finally:
            self._held -= len(taken)

    def _too_large(self, site: str) -> HttpError:
        sentence = f"{site} sent more than the {self._limits.largest} bytes that one request may have"
        log.warning(sentence)
        return HttpError(413, sentence)


def _is_recent(signed: bytes) -> bool:
    try:
        age = time.time() - datetime.fromisoformat(signed.decode("ascii")).timestamp()
    except (ValueError, OverflowError, OSError):
        return False
    return -AHEAD < age < BEHIND + AHEAD
