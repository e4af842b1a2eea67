"""Both ends as Flower apps, for `flwr run` in a Flower federation.

There every node runs the code of anyone who may start a run; `fedpub site start` uses none of this. Imports are lazy:
Flower starts a process for every message, and torch takes seconds to load.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server, client = ServerApp(), ClientApp()


@server.main()  # type: ignore[untyped-decorator]
def coordinate(grid: Grid, context: Context) -> None:
    from fedpub.core.private import owner_only
    from fedpub.flower.server import coordinate

    with owner_only():
        coordinate(grid, Path(str(context.run_config["folder"])))


@client.query()  # type: ignore[untyped-decorator]
def answer(message: Message, context: Context) -> Message:
    """Answer from the site's folder, which is in the node's config."""
    from fedpub.core.private import owner_only
    from fedpub.federation.journal import FILE, Journal
    from fedpub.federation.logged import SiteLog
    from fedpub.flower.exchange import packed, unpacked
    from fedpub.flower.sites import open_site

    folder = Path(str(context.node_config["folder"]))
    with owner_only():
        site = open_site(folder)
        log = SiteLog(Journal(folder / FILE), site.name)  # without keys: these are of the node, not of the app
        return Message(packed(log.answer(unpacked(message.content) or b"", site.answer)), reply_to=message)
