"""The part of Flower's protocol that nodes use, as mailboxes: at most one message to a site, and one answer from it.

Nothing else of Flower is served: no app can be started or fetched, and no node registers itself. A site that asks for
messages has none in its hands, so it gets its message as often as it asks until it has answered. Small messages travel
whole; large ones as Flower's objects, of which those of an answer wait on disk. After a restart all is forgotten: sites
activate themselves again, and messages are sent again.

All of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from flwr.app import Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from google.protobuf.message import DecodeError

from fedpub.flower.connection import HttpError
from fedpub.flower.exchange import OBJECTS, WHOLE, content_of, packed, payload_of

RUN, COORDINATOR = 1, 1  # what Flower's messages call them
LONG_POLL = 10.0  # seconds that a request for messages waits for one
ABSENT = 45.0  # seconds without a request after which a site counts as absent; nodes send heartbeats every 8 to 10
SMALL = 2**20  # bytes of an answer that waits in memory
TTL = 10.0**9  # the exchange has the deadline
UNKNOWN_NODE, TOO_LARGE = 401, 413
NAME = re.compile(r"[0-9a-f]{64}")  # of an object


@dataclass
class _Question:
    """A message to a site: whole, or as Flower's objects."""

    number: str  # of the exchange
    name: str  # of Flower's message
    proto: Any
    trees: list[Any] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)


class _Answer:
    """The objects of an answer as they arrive, in a file that needs no name."""

    def __init__(self, name: str, wanted: set[str], largest: int, folder: Path) -> None:
        self.name, self._largest = name, largest
        self.missing = wanted
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(SMALL, dir=str(folder))  # noqa: SIM115 - closed by `close`
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def take(self, name: str, content: bytes) -> None:
        if self._end + len(content) > self._largest:
            raise _too_large(self._largest)
        self._file.write(content)
        self._places[name] = (self._end, len(content))
        self._end += len(content)
        self.missing.discard(name)

    def read(self) -> bytes:
        """The message in it; empty where it is none."""
        return payload_of(self.name, self._object, self._largest) or b""

    def _object(self, name: str) -> bytes:
        start, length = self._places.get(name, (0, 0))
        self._file.seek(start)
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()


@dataclass
class _Box:
    site: str
    node: int = field(default_factory=lambda: secrets.randbits(62) + 2)
    seen: float = float("-inf")
    question: _Question | None = None
    answer: _Answer | None = None
    has_come: asyncio.Event = field(default_factory=asyncio.Event)

    def clear(self) -> None:
        self.question = None
        if self.answer is not None:
            self.answer.close()
            self.answer = None


class Link:
    """The mailboxes of all admitted sites.

    - `tell`: takes the number of a question and the answer to it.
    - `largest`: the most bytes of an answer.
    - `folder`: where large answers wait.
    """

    def __init__(self, tell: Callable[[str, bytes], None], largest: int, folder: Path) -> None:
        self._tell, self._largest, self._folder = tell, largest, folder
        self._boxes: dict[str, _Box] = {}
        self._reading = asyncio.Lock()

    # For the coordinator

    def send(self, node: int, number: str, data: bytes) -> bool:
        """Put a message into a site's box, instead of the one before; False if there is no such node any more."""
        box = next((box for box in self._boxes.values() if box.node == node), None)
        if box is None:
            return False
        box.clear()
        box.question = _question(node, number, data)
        box.has_come.set()
        return True

    def forget(self) -> None:
        """Drop all messages: what arrives later is too late."""
        for box in self._boxes.values():
            box.clear()

    def present(self, sites: Mapping[str, object]) -> dict[str, int]:
        """The nodes of the connected sites; the boxes of those that are not in `sites` any more are closed."""
        for name in [name for name in self._boxes if name not in sites]:
            box = self._boxes.pop(name)
            box.clear()
            box.has_come.set()
        late = time.monotonic() - ABSENT
        return {name: box.node for name, box in self._boxes.items() if box.seen > late}

    # For the sites

    async def serve(self, site: str, name: str, body: bytes) -> bytes:
        """The response to one request of an admitted site."""
        kind, handle = _ENDPOINTS[name]
        request = kind()
        try:
            request.ParseFromString(body)
        except DecodeError:
            raise HttpError(400, "the request cannot be read; sites enter with `fedpub site start`") from None
        if name == "activate-node":
            box = self._boxes.setdefault(site, _Box(site))
        else:
            node = request.node if hasattr(request, "node") else request
            found = self._boxes.get(site)
            if found is None or found.node != node.node_id:
                raise HttpError(UNKNOWN_NODE, "the node is not active; activate it again")
            box = found
        box.seen = time.monotonic()
        response: bytes = (await handle(self, box, request)).SerializeToString()
        return response

    async def _activate(self, box: _Box, request: Any) -> ActivateNodeResponse:
        return ActivateNodeResponse(node_id=box.node)

    async def _deactivate(self, box: _Box, request: Any) -> DeactivateNodeResponse:
        box.seen = float("-inf")
        return DeactivateNodeResponse()

    async def _beat(self, box: _Box, request: Any) -> SendNodeHeartbeatResponse:
        return SendNodeHeartbeatResponse(success=True)

    async def _pull(self, box: _Box, request: Any) -> PullMessagesResponse:
        """The message in the box, which is waited for."""
        if box.question is None:
            box.has_come.clear()
            try:
                async with asyncio.timeout(LONG_POLL):
                    await box.has_come.wait()
            except TimeoutError:
                return PullMessagesResponse()
        if self._boxes.get(box.site) is not box:
            raise HttpError(UNKNOWN_NODE, "the site is not admitted any more")
        if (asked := box.question) is None:
            return PullMessagesResponse()
        return PullMessagesResponse(messages_list=[asked.proto], message_object_trees=asked.trees)

    async def _pull_object(self, box: _Box, request: Any) -> PullObjectResponse:
        content = box.question.objects.get(request.object_id) if box.question else None
        if content is None:
            return PullObjectResponse(object_found=False, object_available=False)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    async def _confirm(self, box: _Box, request: Any) -> ConfirmMessageReceivedResponse:
        return ConfirmMessageReceivedResponse()

    async def _push(self, box: _Box, request: Any) -> PushMessagesResponse:
        """Begin an answer; nothing is wanted of one to another question than the last."""
        if len(request.messages_list) != 1 or len(request.message_object_trees) > 1:
            raise HttpError(400, "a site answers one message at a time")
        about, asked = request.messages_list[0].metadata, box.question
        if asked is None or about.reply_to_message_id != asked.name:
            return PushMessagesResponse(results={about.message_id: 0})
        if not request.message_object_trees:
            if request.ByteSize() > self._largest:
                raise _too_large(self._largest)
            box.clear()
            self._tell(asked.number, content_of(request.messages_list[0]) or b"")
            return PushMessagesResponse(results={about.message_id: 0})
        tree = request.message_object_trees[0]
        if tree.object_id != about.message_id or not (wanted := _names(tree)):
            raise HttpError(400, f"an answer has at most {OBJECTS} objects, of which the first is the message")
        if box.answer is not None:
            box.answer.close()
        box.answer = _Answer(about.message_id, set(wanted), self._largest, self._folder)
        return PushMessagesResponse(results={about.message_id: 0}, objects_to_push=wanted, session_id=about.message_id)

    async def _push_object(self, box: _Box, request: Any) -> PushObjectResponse:
        answer, asked = box.answer, box.question
        if answer is None or asked is None or request.object_id not in answer.missing:
            return PushObjectResponse(stored=False)
        answer.take(request.object_id, request.object_content)
        if not answer.missing:
            async with self._reading:  # one at a time is in memory as a whole
                data = await asyncio.to_thread(answer.read)
            if box.answer is answer:  # neither forgotten nor begun again since
                box.clear()
                self._tell(asked.number, data)
        return PushObjectResponse(stored=True)


def _too_large(largest: int) -> HttpError:
    return HttpError(TOO_LARGE, f"an answer may have {largest} bytes, and this one is larger")


def _question(node: int, number: str, data: bytes) -> _Question:
    whole = len(data) <= WHOLE
    about = Metadata(
        run_id=RUN,
        message_id=secrets.token_hex(32) if whole else "",
        src_node_id=COORDINATOR,
        dst_node_id=node,
        reply_to_message_id="",
        group_id="",
        created_at=now().timestamp(),
        ttl=TTL,
        message_type="query",
    )
    message = make_message(metadata=about, content=packed(data))
    if whole:
        return _Question(number, about.message_id, message_to_proto(message))
    with no_object_id_recompute():
        name = message.object_id
        about.__dict__["_message_id"] = name
        objects = {each: one.deflate() for each, one in get_all_nested_objects(message).items()}
        tree = get_object_tree(message)
        return _Question(number, name, message_to_proto(remove_content_from_message(message)), [tree], objects)


def _names(tree: ObjectTree) -> list[str]:
    """The objects of an answer, each once; none if they are too many, or not named as Flower names objects.

    What is too much is noticed before it is looked at: millions of objects without a name fit into one request.
    """
    found: dict[str, None] = {}
    left, seen = [tree], 1
    while left:
        one = left.pop()
        seen += len(one.children)
        if seen > OBJECTS or not NAME.fullmatch(one.object_id):
            return []
        found[one.object_id] = None
        left += one.children
    return list(found)


_Handler = Callable[[Link, _Box, Any], Awaitable[Any]]
_ENDPOINTS: dict[str, tuple[Callable[[], Any], _Handler]] = {
    "activate-node": (ActivateNodeRequest, Link._activate),
    "confirm-message-received": (ConfirmMessageReceivedRequest, Link._confirm),
    "deactivate-node": (DeactivateNodeRequest, Link._deactivate),
    "pull-messages": (PullMessagesRequest, Link._pull),
    "pull-object": (PullObjectRequest, Link._pull_object),
    "push-messages": (PushMessagesRequest, Link._push),
    "push-object": (PushObjectRequest, Link._push_object),
    "send-node-heartbeat": (SendNodeHeartbeatRequest, Link._beat),
}
