"""The coordinator's only open port: admitted sites reach their part of Flower's link, and nothing else.

The link has no port of its own. The gate passes signed requests of bounded size to the endpoints below.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs

import h11
import httpx
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.flower.admission import Admission, stamp
from fedpub.flower.connection import Connection, Headers, HttpError
from fedpub.flower.keys import ADMITTED, SERVER, SERVER_KEY, check_certificate, fingerprint, line_of

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

PUBLIC_KEY, TIMESTAMP, SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"
NOT_ADMITTED = 401
LOOK = 2.0  # seconds between two checks whether the certificate was renewed

log = logging.getLogger(__name__)


class Gate:
    """A proxy in a thread of its own, with the certificate, the authority and the admission list of `folder`.

    - `link`: Flower's link in this process, as a transport of httpx.
    - `largest`: the most bytes of one request; Flower sends arrays in pieces of 5 MiB, everything else at once.
    - `most`: the most concurrent requests; further ones are told to try again later.
    - `head_seconds`: time limit for the head of a request, and for an open connection without one.
    - `idle_seconds`: time limit without a byte from a site, or without an answer from the link.
    """

    def __init__(
        self,
        host: str,
        port: int,
        link: httpx.AsyncBaseTransport,
        folder: Path,
        *,
        largest: int = 2**25,
        most: int = 64,
        head_seconds: float = 10.0,
        idle_seconds: float = 30.0,
    ) -> None:
        self.host, self.port = host, port
        self._link = link
        self._folder = folder
        self.admission = Admission(folder / ADMITTED)
        self._largest, self._most = largest, most
        self._head_seconds, self._idle_seconds = head_seconds, idle_seconds
        self._busy = 0
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
        context = self._context()
        async with httpx.AsyncClient(transport=self._link, timeout=None) as self._upstream:
            try:
                server = await asyncio.start_server(
                    self._connection,
                    self.host,
                    self.port,
                    ssl=context,
                    ssl_handshake_timeout=self._head_seconds,
                    ssl_shutdown_timeout=1.0,
                )
            except (OSError, OverflowError) as error:
                place = f"{self.host}:{self.port}"
                raise FedpubError(f"cannot listen on {place} ({error}); choose another address or port") from error
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            renewing = asyncio.create_task(self._renew(context))
            await self._stopping.wait()
            renewing.cancel()
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

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

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= 4 * self._most:
            writer.transport.abort()
            return
        self._connections.add(task)
        client = Connection(reader, writer, self._head_seconds, self._idle_seconds)
        try:
            while (request := await client.request()) is not None:
                try:
                    await self._answer(client, request)
                except HttpError as refusal:
                    await client.answer(refusal.status, f"{refusal.sentence}\n")
                if not client.again():
                    await client.discard()
                    break
            writer.close()
        # Disconnected, too slow, or not HTTP.
        except (TimeoutError, OSError, h11.ProtocolError):
            writer.transport.abort()
        except asyncio.CancelledError:  # by `stop`; here the task ends anyway
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _answer(self, client: Connection, request: h11.Request) -> None:
        path, _, query = request.target.decode("ascii").partition("?")
        name = path.removeprefix(FLEET)
        if request.method == b"POST" and path == FLEET + name and name in ENDPOINTS and not query:
            await self._fleet(client, request, name)
        elif request.method == b"GET" and path == ASK:
            asked = parse_qs(query).get("key", [""])[0]
            site = next((site for key, site in self.admission.now().items() if fingerprint(key) == asked), None)
            status = {"admitted": site is not None, "site": site, "time": time.time()}
            await client.answer(200, json.dumps(status), "application/json")
        else:
            raise HttpError(404, "this is the gate of a fedpub coordinator; sites enter with `fedpub site start`")

    async def _fleet(self, client: Connection, request: h11.Request, name: str) -> None:
        headers = _passed([*request.headers])
        site = self._sender(headers, client.address)
        if int(headers.get(b"content-length", 0)) > self._largest:
            raise self._too_large(site)
        if self._busy >= self._most:
            raise HttpError(503, f"the coordinator has {self._most} requests under way; try again later")
        self._busy += 1
        try:
            await self._forward(client, name, headers, site)
        finally:
            self._busy -= 1

    def _sender(self, headers: Headers, address: str) -> str:
        """The admitted site whose key signed this request. Flower checks that the signature is recent."""
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
        return site

    async def _forward(self, client: Connection, name: str, headers: Headers, site: str) -> None:
        body = await self._bounded(client.body(), site)
        headers = headers | {b"content-length": str(len(body)).encode()}
        try:
            async with asyncio.timeout(self._idle_seconds):
                response = await self._upstream.post(
                    f"http://link{FLEET}{name}", headers=[*headers.items()], content=body
                )
        except TimeoutError:
            raise HttpError(504, "the link does not answer in time; try again later") from None
        except Exception as error:  # whatever a request does to Flower, the next one is still served
            log.warning("the link failed at %s of %s: %s", name, site, printable(repr(error)))
            raise HttpError(502, "the link failed; try again later") from None
        headers = _passed(response.headers.raw) | {b"content-length": str(len(response.content)).encode()}
        await client.begin(response.status_code, headers)
        await client.send(h11.Data(data=response.content))
        await client.send(h11.EndOfMessage())

    async def _bounded(self, body: AsyncIterator[bytes], site: str) -> bytes:
        """The body, counted as it arrives: its length need not be declared."""
        taken = bytearray()
        async for chunk in body:
            taken += chunk
            if len(taken) > self._largest:
                raise self._too_large(site)
        return bytes(taken)

    def _too_large(self, site: str) -> HttpError:
        sentence = f"{site} sent more than the {self._largest} bytes that one request may have"
        log.warning(sentence)
        return HttpError(413, sentence)


def _passed(headers: list[tuple[bytes, bytes]]) -> Headers:
    """The headers that Flower uses, each once, so that exactly what was checked is passed on."""
    named = {name.lower(): value for name, value in headers}
    plain = (b"accept", b"content-length", b"content-type")
    return {name: value for name, value in named.items() if name in plain or name.startswith(b"flwr-")}
