"""Graph neural networks on stacked clients; one file each, all of them in `MODELS`."""

from __future__ import annotations

from fedpub.models.base import Dropout, Model
from fedpub.models.gcn import GCN
from fedpub.models.sage import GraphSAGE

MODELS: dict[str, type[GCN] | type[GraphSAGE]] = {"gcn": GCN, "sage": GraphSAGE}

__all__ = ["GCN", "MODELS", "Dropout", "GraphSAGE", "Model"]
