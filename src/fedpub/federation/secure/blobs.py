"""Bytes as a tensor of a message."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedpub.core.message import Message
from fedpub.errors import FedpubError
from fedpub.federation.wire import Envelope


def as_tensor(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def blob(name: str, data: bytes) -> Message:
    return Message({name: as_tensor(data).unsqueeze(0)})


def content(envelope: Envelope, name: str) -> bytes:
    found = envelope.message.get(name)
    if not isinstance(found, torch.Tensor) or found.dtype != torch.uint8:
        raise FedpubError(
            f"the message {envelope.kind} lacks the bytes {name}; both ends need the same version of fedpub"
        )
    return found.numpy().tobytes()
