"""The coordinator's one door: admitted sites reach the part of Flower's link that is for them, and nothing else.

The link has no port of its own. Through the gate signed requests of bounded size get to the endpoints below.
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
from fedpub.flower.keys import ADMITTED, SERVER, SERVER_KEY, fingerprint, line_of, read_admitted

FLEET = "/v1/fleet/"
# What a site calls. It does not register itself: admission is by the coordinator. And there is no app to get.
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
CHUNK = 2**16
NOT_ADMITTED = 401
LINGER = 2.0  # seconds for a refused client to read why
REMEMBERED = 1000  # refused keys; a stranger can make any number of them

Headers = dict[bytes, bytes]
log = logging.getLogger(__name__)


class _HttpError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence


class Gate:
    """A proxy in a thread of its own, with the certificate, the authority and the admission list of `folder`.

    - `link`: what answers: Flower's link in this process, as httpx carries requests to it.
    - `largest`: bytes of one request; Flower sends arrays in pieces of 5 MiB, all else in one.
    - `most`: requests at a time; sites try again later when told so.
    - `head_seconds`: for the beginning of a request, and for an open connection without one.
    - `idle_seconds`: without a single byte from a site, or an answer from the link.
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
        """Serve; `port` is then the real one where 0 was asked for."""
        self.admission.read()
        self._thread = threading.Thread(target=self._run, name="fedpub-gate", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        return self

    def stop(self) -> None:
        """Cut what is under way, which sites try again later, and end the thread."""
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
            await self._stopping.wait()
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._folder / SERVER, self._folder / SERVER_KEY)
            return context
        except OSError as error:
            raise FedpubError(f"the certificates in {self._folder} are no good ({error}); make them again") from error

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= 4 * self._most:
            writer.transport.abort()
            return
        self._connections.add(task)
        client = _Client(reader, writer, self._head_seconds, self._idle_seconds)
        try:
            while (request := await client.request()) is not None:
                try:
                    await self._answer(client, request)
                except _HttpError as refusal:
                    await client.answer(refusal.status, f"{refusal.sentence}\n")
                if not client.again():
                    await client.discard()
                    break
            writer.close()
        # Gone, too slow, or not HTTP.
        except (TimeoutError, OSError, h11.ProtocolError):
            writer.transport.abort()
        except asyncio.CancelledError:  # by `stop`; here the task ends anyway
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _answer(self, client: _Client, request: h11.Request) -> None:
        path, _, query = request.target.decode("ascii").partition("?")
        name = path.removeprefix(FLEET)
        if request.method == b"POST" and path == FLEET + name and name in ENDPOINTS and not query:
            await self._fleet(client, request, name)
        elif request.method == b"GET" and path == ASK:
            asked = parse_qs(query).get("key", [""])[0]
            site = next((site for key, site in self.admission.now().items() if fingerprint(key) == asked), None)
            told = {"admitted": site is not None, "site": site, "time": time.time()}
            await client.answer(200, json.dumps(told), "application/json")
        else:
            raise _HttpError(404, "this is the gate of a fedpub coordinator; sites enter with `fedpub site start`")

    async def _fleet(self, client: _Client, request: h11.Request, name: str) -> None:
        headers = _passed([*request.headers])
        site = self._sender(headers, client.address)
        if int(headers.get(b"content-length", 0)) > self._largest:
            raise self._too_large(site)
        if self._busy >= self._most:
            raise _HttpError(503, f"the coordinator has {self._most} requests under way; try again later")
        self._busy += 1
        try:
            await self._forward(client, name, headers, site)
        finally:
            self._busy -= 1

    def _sender(self, headers: Headers, address: str) -> str:
        """The admitted site whose key signed this request. That its time is recent, Flower checks."""
        unsigned = _HttpError(
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
            raise _HttpError(
                NOT_ADMITTED, f"the key {fingerprint(line)} is not admitted; see `fedpub coordinator admit`"
            )
        try:
            key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise _HttpError(NOT_ADMITTED, f"the request is not signed with the key of {site}") from None
        return site

    async def _forward(self, client: _Client, name: str, headers: Headers, site: str) -> None:
        body = await self._bounded(client.body(), site)
        headers = headers | {b"content-length": str(len(body)).encode()}
        try:
            async with asyncio.timeout(self._idle_seconds):
                response = await self._upstream.post(
                    f"http://link{FLEET}{name}", headers=[*headers.items()], content=body
                )
        except TimeoutError:
            raise _HttpError(504, "the link does not answer in time; try again later") from None
        except Exception as error:  # whatever a request does to Flower, the next one is served
            log.warning("the link failed at %s of %s: %s", name, site, printable(repr(error)))
            raise _HttpError(502, "the link failed; try again later") from None
        headers = _passed(response.headers.raw) | {b"content-length": str(len(response.content)).encode()}
        await client.begin(response.status_code, headers)
        await client.send(h11.Data(data=response.content))
        await client.send(h11.EndOfMessage())

    async def _bounded(self, body: AsyncIterator[bytes], site: str) -> bytes:
        """Counted as it comes: a length need not be declared."""
        taken = bytearray()
        async for chunk in body:
            taken += chunk
            if len(taken) > self._largest:
                raise self._too_large(site)
        return bytes(taken)

    def _too_large(self, site: str) -> _HttpError:
        sentence = f"{site} sent more than the {self._largest} bytes that one request may have"
        log.warning(sentence)
        return _HttpError(413, sentence)


class Admission:
    """The admission list as it is now; read again only when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._sites: dict[str, str] = {}
        self._told: set[str] = set()

    def read(self) -> None:
        self._stamp = _stamp(self._path)
        self._sites = {key: site for site, key in read_admitted(self._path).items()}
        self._told.clear()

    def now(self) -> dict[str, str]:
        """Public key -> site."""
        if _stamp(self._path) != self._stamp:
            try:
                self.read()
            except FedpubError as error:
                log.warning("%s; until then the list stays as it was", error)
        return self._sites

    def tell_refused(self, line: str, address: str) -> None:
        """Once for each key: a site that is refused comes back."""
        if line not in self._told and len(self._told) < REMEMBERED:
            self._told.add(line)
            log.warning("refused the key %s from %s: it is not in %s", fingerprint(line), address, self._path)


class _Client:
    """One connection: HTTP events in and out, each within its time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head_seconds: float, idle_seconds: float
    ) -> None:
        self._reader, self._writer = reader, writer
        self._head_seconds, self._idle_seconds = head_seconds, idle_seconds
        self._http = h11.Connection(h11.SERVER)
        self.address = str((writer.get_extra_info("peername") or ("?",))[0])

    async def request(self) -> h11.Request | None:
        async with asyncio.timeout(self._head_seconds):
            event = await self._event()
        return event if isinstance(event, h11.Request) else None

    async def body(self) -> AsyncIterator[bytes]:
        if self._http.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    event = await self._event()
            except TimeoutError:
                # The network may be better soon.
                raise _HttpError(503, f"nothing came for {self._idle_seconds:g} seconds; try again later") from None
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def begin(self, status: int, headers: Headers) -> None:
        """The head of an answer; the connection is closed after it where the request is not read to its end."""
        closing = {} if self._http.their_state is h11.DONE else {b"connection": b"close"}
        await self.send(h11.Response(status_code=status, headers=[*(headers | closing).items()]))

    async def answer(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        headers = {
            b"content-type": f"{kind}; charset=utf-8".encode(),
            b"content-length": str(len(body)).encode(),
            b"cache-control": b"no-store",
            b"connection": b"close",
        }
        await self.begin(status, headers)
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    async def send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(self._idle_seconds):
            await self._writer.drain()

    def again(self) -> bool:
        """Whether another request can come on this connection."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def discard(self) -> None:
        """Take in what is still being sent: to close on it would destroy the answer on its way."""
        if self._http.their_state is h11.SEND_BODY and not self._http.they_are_waiting_for_100_continue:
            async with asyncio.timeout(LINGER):
                while isinstance(await self._event(), h11.Data):
                    pass

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(CHUNK))
        return event


def _passed(headers: list[tuple[bytes, bytes]]) -> Headers:
    """The headers that mean something to Flower, each once: what was looked at is what is passed on."""
    named = {name.lower(): value for name, value in headers}
    plain = (b"accept", b"content-length", b"content-type")
    return {name: value for name, value in named.items() if name in plain or name.startswith(b"flwr-")}


def _stamp(path: Path) -> object:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino
