"""One HTTP connection of the gate, with time limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h11

CHUNK = 2**16
LINGER, READ = 2.0, 2**18  # seconds, and bytes that are still read, for a refused client to learn why

Headers = dict[bytes, bytes]


class HttpError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence


class Connection:
    """One connection: HTTP events in and out, each with a time limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle_seconds: float) -> None:
        self._reader, self._writer, self._idle_seconds = reader, writer, idle_seconds
        self._http = h11.Connection(h11.SERVER)

    async def request(self, patience: float) -> h11.Request | None:
        """The head of the next request, which may take that many seconds."""
        async with asyncio.timeout(patience):
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
                # The network may recover.
                raise HttpError(503, f"nothing came for {self._idle_seconds:g} seconds; try again later") from None
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head of an answer; the connection closes after it if the request was not read to its end."""
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
        """Whether this connection can take another request."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def discard(self) -> None:
        """Read a little of what is still being sent: closing now would destroy the answer in transit."""
        if self._http.their_state is h11.SEND_BODY and not self._http.they_are_waiting_for_100_continue:
            read = 0
            async with asyncio.timeout(LINGER):
                while read < READ and isinstance(event := await self._event(), h11.Data):
                    read += len(event.data)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(CHUNK))
        return event
