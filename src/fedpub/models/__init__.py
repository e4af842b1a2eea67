"""Graph neural networks on stacked clients; one file each, all of them in `MODELS`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fedpub.models.base import Dropout, Model
from fedpub.models.gcn import GCN
from fedpub.models.hops import Hops
from fedpub.models.module import Module
from fedpub.models.sage import GraphSAGE
from fedpub.models.twin import Twin

MODELS: dict[str, type[GCN] | type[GraphSAGE] | type[Twin] | type[Hops]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "twin": Twin,
    "hops": Hops,
}


def model_of(name: str, settings: Any) -> Model:
    """The model of that name; its fields are taken from the same settings of the experiment or of a model's card."""
    kind: Any = MODELS[name]
    model: Model = kind(
        **{one.name: getattr(settings, one.name) for one in fields(kind) if hasattr(settings, one.name)}
    )
    return model


__all__ = ["GCN", "MODELS", "Dropout", "GraphSAGE", "Hops", "Model", "Module", "Twin", "model_of"]
