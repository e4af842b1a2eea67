"""Any model, with whole input features dropped in training, so that predictions do not rest on a single feature.

A client's feature is dropped for all of its nodes at once, which leaves out rows of the first weight matrices: the
propagated features ÂX stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedpub.core.tree import Tree
from fedpub.data.clients.stack import Clients
from fedpub.models.base import Around, Dropout


@dataclass(frozen=True)
class FeatureDropout(Around):
    p: float

    def apply(self, w: Tree, data: Clients, dropout: Dropout | None = None) -> Tensor:
        if dropout and self.p:
            kept_KF1 = replace(dropout, p=self.p).columns(data.ids_K, data.num_features, data.dtype)
            w = w | {name: w[name] * kept_KF1 for name in self.model.inputs}
        return self.model.apply(w, data, dropout)
