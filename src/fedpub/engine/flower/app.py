"""The two ends as Flower knows them. Light: Flower starts a process for every message, and torch takes seconds to load.

A site's messages are handed to the process that `fedpub site start` keeps running, which has data and torch at hand
(`socket` in the node's config). Where there is none, as in a federation of Flower's own, they are answered here, in the
site's folder (`folder` in the node's config).
"""

from __future__ import annotations

import socket
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpub.engine.flower.exchange import packed, unpacked
from fedpub.engine.flower.relay import ask

server, client = ServerApp(), ClientApp()


@server.main()  # type: ignore[untyped-decorator]
def coordinate(grid: Grid, context: Context) -> None:
    from fedpub.engine.flower.server import coordinate

    coordinate(grid, Path(str(context.run_config["folder"])), bool(context.run_config["joins"]))


@client.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    letter = unpacked(message.content) or b""
    where = context.node_config.get("socket")
    if where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect(str(where))
            return Message(packed(ask(line, letter)), reply_to=message)
    from fedpub.engine.flower.sites import open_site

    site = open_site(Path(str(context.node_config["folder"])))
    return Message(packed(site.answer(letter)), reply_to=message)
