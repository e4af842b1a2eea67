"""A site as a Flower node: the site's own process, with Flower's client.

Flower's own node fetches the app that the coordinator hands out and runs it. This one only asks for messages, and its
answers are computed by the code installed here.
"""

from __future__ import annotations

import contextlib
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node as NodeNumber
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.flower.exchange import IncompleteError, packed, payload_of

LARGEST = 2**31  # bytes of a message
RESPONSE = 2**26  # of one response: objects are at most 5 MiB
HEARTBEAT = 20  # seconds; a node counts as absent after missing two of them
TIMEOUT = 30.0
KEPT = 240.0  # seconds that an unused connection is kept: a new one may find the coordinator's port crowded
TRIES, TRY = 50, 0.2  # attempts to get an object that has not arrived yet, and seconds between them


class ConnectionTroubleError(FedpubError):
    """The coordinator cannot be reached now; a later attempt may succeed."""


@dataclass
class _Line:
    """The innermost part of Flower's client: follows no redirects, and limits the size of responses."""

    context: ssl.SSLContext
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        kept = httpx.Limits(max_connections=4, keepalive_expiry=KEPT)
        self.http = httpx.Client(verify=self.context, timeout=TIMEOUT, follow_redirects=False, limits=kept)

    def intercept(self, context: Any, call_next: Callable[[Any], httpx.Response]) -> httpx.Response:
        context.request.headers["accept-encoding"] = "identity"
        response = self.http.send(context.request, stream=True)
        content = bytearray()
        try:
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > RESPONSE:
                    raise httpx.ReadError(f"a response of more than {RESPONSE} bytes")
        finally:
            response.close()
        return httpx.Response(response.status_code, content=bytes(content), request=context.request)


class Node:
    """A connection to the coordinator at `address` that reconnects by itself; errors say why it cannot."""

    def __init__(self, address: str, context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey) -> None:
        self._public = public_key_to_bytes(key.public_key())
        self._line = _Line(context)
        signing = NodeAuthHttpInterceptor(key, key.public_key())
        self._fleet = FleetHttpClient(f"https://{address}", interceptors=[signing, self._line], verify=context)
        self._number: NodeNumber | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="fedpub-heartbeat", daemon=True)

    def __enter__(self) -> Node:
        self._beating.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        if self._number is not None:
            with contextlib.suppress(Exception):  # the coordinator may be gone, and the node ends anyway
                self._fleet.DeactivateNode(DeactivateNodeRequest(node_id=self._number.node_id))
        self._line.http.close()
        self._fleet.close()
        self._beating.join(TIMEOUT)

    def _beat(self) -> None:
        """Send heartbeats, even while a message is answered, which may take minutes."""
        while not self._ended.wait(HEARTBEAT * random.uniform(0.4, 0.5)):
            if self._number is not None:
                with contextlib.suppress(Exception):  # the next call of the other thread reports it
                    beat = SendNodeHeartbeatRequest(node=self._number, heartbeat_interval=HEARTBEAT)
                    self._fleet.SendNodeHeartbeat(beat)

    def next_message(self) -> tuple[Any, bytes] | None:
        """What was received, for the reply, and its data (b"" if it is not a fedpub message); None if nothing came."""
        got: tuple[Any, bytes] | None = self._asked(self._pulled)
        return got

    def reply(self, received: Any, answer: bytes) -> None:
        self._asked(lambda node: self._pushed(node, received, answer))

    def _asked(self, what: Callable[[NodeNumber], Any]) -> Any:
        was_active = self._number is not None
        try:
            if self._number is None:
                request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
                self._number = NodeNumber(node_id=self._fleet.ActivateNode(request).node_id)
            return what(self._number)
        except httpx.HTTPStatusError as error:
            self._number = None
            if was_active:  # a restarted coordinator does not know its nodes
                return self._asked(what)
            reason = f"{error.response.status_code}: {printable(error.response.text.strip())}"
            raise ConnectionTroubleError(f"the coordinator refused a request ({reason}); trying again") from error
        except Exception as error:  # whatever arrives, the site keeps running
            raise ConnectionTroubleError(f"the connection failed ({printable(repr(error))}); trying again") from error

    def _pulled(self, node: NodeNumber) -> tuple[Any, bytes] | None:
        response = self._fleet.PullMessages(PullMessagesRequest(node=node))
        if not response.messages_list:
            return None
        received = message_from_proto(response.messages_list[0])
        run, number = received.metadata.run_id, received.metadata.message_id

        def fetch(name: str) -> bytes:
            for _ in range(TRIES):
                found = self._fleet.PullObject(PullObjectRequest(node=node, run_id=run, object_id=name))
                if found.object_available:
                    content: bytes = found.object_content
                    return content
                if not found.object_found or self._ended.wait(TRY):  # it may not have reached the link yet
                    break
            raise IncompleteError(f"the object {printable(name)} of a message is missing")

        data = payload_of(number, fetch, LARGEST) if received.metadata.message_type == "query" else None
        self._fleet.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=number)
        )
        return received, data or b""

    def _pushed(self, node: NodeNumber, received: Any, answer: bytes) -> None:
        reply = Message(packed(answer), reply_to=received)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree, objects = get_object_tree(reply), get_all_nested_objects(reply)
            response = self._fleet.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[tree],
                    clientapp_runtime_list=[0.0],
                )
            )
            for name in response.objects_to_push:
                content = objects[name].deflate()
                request = PushObjectRequest(
                    node=node,
                    run_id=received.metadata.run_id,
                    object_id=name,
                    object_content=content,
                    session_id=response.session_id,
                )
                if not self._fleet.PushObject(request).stored:
                    return  # the coordinator no longer waits for it
