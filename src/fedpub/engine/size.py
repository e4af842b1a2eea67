"""How many bytes a message takes on the wire.

A tensor costs its entries. A tree named `active` marks which entries of the message's other trees are sent: a leaf
with pruned entries costs the kept ones and the cheaper of a bitmap and a list of 32-bit positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.core.tree import Message, tree

ACTIVE = "active"


def message_bytes(message: Message, num_clients: int, device: torch.device) -> Tensor:
    """Bytes for every client of a message, [K]."""
    active = tree(message.get(ACTIVE, {}))
    fixed, pruned = 0, []
    for part, content in message.items():
        if part == ACTIVE:
            continue
        for name, leaf in (content if isinstance(content, dict) else {"": content}).items():
            if isinstance(content, dict) and name in active:
                pruned.append(_pruned_bytes(leaf, active[name]))
            else:
                fixed += leaf[0].numel() * leaf.element_size()
    return sum(pruned, torch.full((num_clients,), fixed, dtype=torch.int64, device=device))


def _pruned_bytes(leaf: Tensor, active: Tensor) -> Tensor:
    entries = leaf[0].numel()
    repeat = active.shape[-1] if active.stride(-1) == 0 else 1  # one column, seen as all of them
    kept_K = repeat * active[..., ::repeat].flatten(1).sum(1, dtype=torch.int64)
    where_K = torch.clamp(4 * kept_K, max=-(-entries // 8))
    return kept_K * leaf.element_size() + torch.where(kept_K < entries, where_K, 0)
