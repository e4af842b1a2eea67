"""How many bytes a message takes on the wire.

A tensor costs its entries. A leaf that is sent in part costs those entries, and the cheaper of a bitmap and a list of
32-bit positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.core.message import Message, leaves


def message_bytes(message: Message, num_clients: int, device: torch.device) -> Tensor:
    """Bytes for every client of a message, [K]."""
    fixed, pruned = 0, []
    for part, content in message.items():
        for name, leaf in leaves(part, content).items():
            if isinstance(content, dict) and name in message.sent:
                pruned.append(_pruned_bytes(leaf, message.sent[name]))
            else:
                fixed += leaf[0].numel() * leaf.element_size()
    return sum(pruned, torch.full((num_clients,), fixed, dtype=torch.int64, device=device))


def _pruned_bytes(leaf: Tensor, sent: Tensor) -> Tensor:
    entries = leaf[0].numel()
    repeat = sent.shape[-1] if sent.stride(-1) == 0 else 1  # one column, seen as all of them
    kept_K = repeat * sent[..., ::repeat].flatten(1).sum(1, dtype=torch.int64)
    where_K = torch.clamp(4 * kept_K, max=-(-entries // 8))
    return kept_K * leaf.element_size() + torch.where(kept_K < entries, where_K, 0)
