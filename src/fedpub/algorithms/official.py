"""Differences between FED-PUB's published code and the paper; `FedPub(official=True)` follows the code.

- Both penalties of equation 4 are computed and have no effect.
- Masks are not trained to zero. In evaluation and in comparisons, entries below λ1 count as zero; all are sent.
- The proxy graph has no edges between its blocks.
- Weight decay is 1e-6.
"""

from __future__ import annotations

from fedpub.core.tree import Tree, tree_map

PENALTIES = (0.0, 0.0)
P_OUT = 0.0
WEIGHT_DECAY = 1e-6


def pruned(masks: Tree, lambda1: float) -> Tree:
    """Masks with their small entries set to zero."""
    return tree_map(lambda mask: mask.masked_fill(mask.abs() < lambda1, 0.0), masks)
