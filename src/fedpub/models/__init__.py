"""Graph neural networks on stacked clients; one file each, all of them in `MODELS`."""

from __future__ import annotations

from fedpub.models.base import Dropout, Model
from fedpub.models.gcn import GCN
from fedpub.models.sage import GraphSAGE
from fedpub.models.twin import Twin

MODELS: dict[str, type[GCN] | type[GraphSAGE] | type[Twin]] = {"gcn": GCN, "sage": GraphSAGE, "twin": Twin}

__all__ = ["GCN", "MODELS", "Dropout", "GraphSAGE", "Model", "Twin"]
