"""Flower's link inside the coordinator's process: nodes, messages, and the part of its API that is for sites.

There is no other part: no app can be started or fetched. Nothing is stored on disk: after a restart sites activate
themselves again, and messages are sent again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from fastapi import APIRouter, FastAPI
from flwr.app import Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
)
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.date import now
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.protobuf.routing import ProtobufRoute
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_DEPENDENCY, ProtobufTranslationMiddleware
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from flwr.superlink.servicer.fleet import fleet_handlers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from fedpub.core.printable import printable
from fedpub.errors import FedpubError
from fedpub.flower.exchange import IncompleteError, Present, packed, payload_of

ACTIVATE = "/v1/fleet/activate-node"
LOG_BYTES = 2**20


class Link:
    """Carries messages to the nodes of admitted sites; `admitted` returns the current list of their keys."""

    def __init__(self, admitted: Callable[[], Mapping[str, str]], largest: int) -> None:
        self._admitted, self._largest = admitted, largest
        objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self._factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), objects)
        self._state = self._factory.state()
        self._arrivals: Counter[int] = Counter()
        self._pems: dict[str, bytes] = {}  # of the keys in the admission list
        self._run = self._task = 0
        self._lock = threading.Lock()
        self.app = self._app()

    # What sites reach, through the gate

    def _app(self) -> FastAPI:
        ours = APIRouter(route_class=ProtobufRoute)

        @ours.post(ACTIVATE)
        def activate(request: Annotated[ActivateNodeRequest, PROTOBUF_REQUEST_DEPENDENCY]) -> ActivateNodeResponse:
            """Replaces Flower's endpoint, for which the key of a killed node is in use for another minute."""
            return self._activate(request)

        app = FastAPI(
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
                Middleware(ProtobufTranslationMiddleware),
                Middleware(NodeAuthMiddleware),
            ],
        )
        app.state.linkstate_factory, app.state.enable_supernode_auth = self._factory, True
        app.include_router(ours)
        app.include_router(fleet_router)
        return app

    def _activate(self, request: ActivateNodeRequest) -> ActivateNodeResponse:
        with self._lock:
            node = self._state.get_node_id_by_public_key(request.public_key)
            if node is None and request.public_key in self._keys().values():
                node = self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, request.public_key, 0)
            if node is not None:
                self._state.deactivate_node(node)
        answer: ActivateNodeResponse = fleet_handlers.activate_node(request=request, state=self._state)
        self._arrivals[answer.node_id] += 1
        return answer

    # What the rounds need

    def present(self, sites: Mapping[int, str]) -> dict[int, Present]:
        """The connected nodes of these sites; a site is identified by its key only."""
        admitted, online = self._keys(), set(self._state.get_nodes(self._running()))
        keys = {client: admitted[site] for client, site in sites.items() if site in admitted}
        nodes = {client: self._state.get_node_id_by_public_key(key) for client, key in keys.items()}
        return {client: Present(node, self._arrivals[node]) for client, node in nodes.items() if node in online}

    def _keys(self) -> dict[str, bytes]:
        """The keys of the admitted sites in the form in which nodes present them; each is converted once."""
        admitted = self._admitted()
        pems = self._pems = {line: self._pems.get(line) or _pem(line) for line in admitted.values()}
        return {site: pems[line] for site, line in admitted.items()}

    def send(self, node: int, data: bytes, ttl: float) -> str | None:
        about = Metadata(
            run_id=self._running(),
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=node,
            reply_to_message_id="",
            group_id="",
            created_at=now().timestamp(),
            ttl=ttl,
            message_type="query",
        )
        message = make_message(metadata=about, content=packed(data))
        with no_object_id_recompute():
            number = message.object_id
            about.__dict__["_message_id"] = number
            # Objects first: when a site finds the message, all of it is there.
            self._state.object_store.preregister(self._run, get_object_tree(message))
            for name, one in get_all_nested_objects(message).items():
                self._state.object_store.put(name, one.deflate())
            stored: str | None = self._state.store_message_ins(remove_content_from_message(message))
        return stored

    def replies(self, numbers: Iterable[str]) -> dict[str, bytes | None]:
        """Read directly from the store: Flower's own query drops the answer of a node that has left since."""
        found = dict[str, bytes | None]()
        for number in numbers:
            reply = self._state.message_ins_id_to_message_res_id.get(number)
            if reply is not None:
                with contextlib.suppress(IncompleteError):
                    # Anything else is passed on as an empty message, which its reader refuses.
                    found[number] = payload_of(reply, self._object, self._largest) or b""
        return found

    def _object(self, name: str) -> bytes:
        content: bytes | None = self._state.object_store.get(name)
        if not content:
            raise IncompleteError(name)
        return content

    def forget(self) -> None:
        """Drop everything that was pushed: what arrives later is too late."""
        self._state.cleanup_run(self._running())

    def _running(self) -> int:
        """The Flower run to which all messages belong; a new one if the old one expired while this process slept."""
        if self._run and self._state.acknowledge_task_heartbeat(self._task):
            return self._run
        if self._run:
            self._state.cleanup_run(self._run)
        for _ in range(2):
            self._run = self._state.create_run(
                None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
            )
            self._task = self._state.get_run_info(run_ids=[self._run])[0].primary_task_id if self._run else 0
            if self._run and self._state.claim_task(self._task) and self._state.activate_task(self._task):
                return self._run
        raise FedpubError("Flower's link cannot begin a run; start it again with fedpub coordinator start --resume")

    def keep_alive(self, ended: threading.Event) -> None:
        """Flower ends a run whose process is silent for a minute; aggregation may take longer."""
        while not ended.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
            self._state.acknowledge_task_heartbeat(self._task)


def _pem(line: str) -> bytes:
    """A key in the form in which nodes present it."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class _Shown(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {record.levelname} {printable(record.getMessage(), 1000)}"


def log_to(path: Path) -> None:
    """Send Flower's log to a file, since it quotes what sites send."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(_Shown())
    flower = logging.getLogger("flwr")
    for old in list(flower.handlers):
        flower.removeHandler(old)
        old.close()
    flower.addHandler(handler)
    flower.setLevel(logging.WARNING)
    flower.propagate = False
