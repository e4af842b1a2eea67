"""Connections that bring no key, to try a gate on this machine: run it with a port, their number, and seconds.

A quarter each: TCP without TLS, a request that trickles in, one with too much in it, and requests for what is not
there. Whoever is cut connects again a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import sys
from collections.abc import Awaitable, Callable

PAUSE = 1.0  # seconds before a stranger that was cut connects again, at most twice as long

TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


async def half_open(port: int) -> None:
    reader, _ = await asyncio.open_connection("127.0.0.1", port)
    await reader.read(1)


async def slow(port: int) -> None:
    _, writer = await _secure(port)
    for byte in b"POST /v1/fleet/push-object HTTP/1.1\r\n" * 100:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.5)


async def oversized(port: int) -> None:
    reader, writer = await _secure(port)
    writer.write(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n")
    for _ in range(1000):
        writer.write(b"x" * 2**16)
        await writer.drain()
    await reader.read(1)


async def wrong_path(port: int) -> None:
    reader, writer = await _secure(port)
    writer.write(b"GET /v1/control/start-run HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.read()


async def _secure(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=TRUSTING)


async def _again_and_again(what: Callable[[int], Awaitable[None]], port: int) -> None:
    while True:
        await asyncio.sleep(PAUSE * (1 + random.random()))
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            await what(port)


async def strangers(port: int, count: int, seconds: float) -> None:
    kinds = (half_open, slow, oversized, wrong_path)
    tasks = [asyncio.create_task(_again_and_again(kinds[number % len(kinds)], port)) for number in range(count)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(strangers(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
