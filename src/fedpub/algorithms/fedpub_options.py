"""The options of FED-PUB and their meaning. The method itself is in `fedpub.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from torch import Tensor

from fedpub.algorithms import official
from fedpub.algorithms.measures import Functions, Gradients, Labels, Measure, Nothing, Parameters
from fedpub.algorithms.protocol import Algorithm
from fedpub.core.message import SENT
from fedpub.data.clients.stack import Clients
from fedpub.data.synthetic import SYNTHETIC
from fedpub.errors import FedpubError
from fedpub.models.proxy import P_OUT, ProxyKind

TAU, TAU_OVERLAPPING, TAU_SYNTHETIC = 3.0, 5.0, 10.0
EXPLICIT = 0.5  # minimum similarity within an explicit community


@dataclass(frozen=True)
class Options(Algorithm):
    tau: float | None = None
    """Sharpness of averaging by similarity. (default: 3; 5 for overlapping clients, 10 for synthetic graphs)"""
    lambda1: float = 0.001
    """Strength of the L1 penalty on masks; 0 for none. It prunes entries whose steps, at most `mask_lr` times the
    learning rate, are below `lambda1` times the learning rate."""
    lambda2: float = 0.001
    """Strength of the proximal term; no effect with one local epoch, which starts where the term is zero."""
    mask_lr: float = 1.0
    """Learning rate of the masks, as a multiple of `lr`; 10 with a `lambda1` of 6 prunes four fifths."""
    masks: bool = True
    """Personal masks on every weight matrix."""
    similarity: bool = True
    """Averaging by similarity; without it, uniform averaging."""
    measure: Literal["function", "parameter", "gradient", "label"] = "function"
    """Measure of similarity; label uploads label counts, for comparison only."""
    proxy: ProxyKind = "sbm"
    """Proxy graph of functional embeddings: block model, Erdős-Rényi, one node, or the client's own features."""
    embedding: Literal["client", "server"] = "client"
    """Place where functional embeddings are computed; server uploads the masked weights, if there are masks."""
    communities: Literal["implicit", "explicit", "disjoint"] = "implicit"
    """Averaging over all clients (implicit), over those with a similarity of at least 0.5 (explicit), or with equal
    shares in disjoint groups of at least `min_group` such clients (disjoint; with `secure`, explicit is disjoint)."""
    neighbours: int = 0
    """Neighbour count: most similar clients to average over, including the client itself; 0 for all."""
    official: bool = False
    """Behaviour of the published code: penalties without effect, masks pruned below `lambda1` in evaluation, no edges
    between blocks of the proxy graph, weight decay 1e-6 by default."""

    def __post_init__(self) -> None:
        if self.embedding == "server" and self.proxy == "feature":
            raise FedpubError("`proxy=feature` needs a client's own features; leave out `embedding=server`")
        by_embedding = self.similarity and self.measure == "function" and self.communities == "implicit"
        if self.neighbours and not by_embedding:
            raise FedpubError(
                f"`neighbours={self.neighbours}` needs functional embeddings and implicit communities; "
                "leave it out, or `measure`, `communities` and `similarity=False`"
            )

    def adapted(self, dataset: str, scenario: str) -> Self:
        """A copy with the paper's tau, unless one is set."""
        if self.tau is not None:
            return self
        tau = TAU_OVERLAPPING if scenario == "overlapping" else TAU
        return replace(self, tau=TAU_SYNTHETIC if dataset in SYNTHETIC else tau)

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {"weight_decay": official.WEIGHT_DECAY} if self.official else {}

    @property
    def uploads(self) -> frozenset[str]:
        pruned = {SENT} if self.masks and not self.official else set()
        return frozenset({"weights"} | pruned | self.compared.uploads)

    @property
    def notes(self) -> Mapping[str, int]:
        # With neighbours there is no K by K matrix: the share of attention that each client leaves out is reported.
        return {"left_out": 1} if self.neighbours else {"similarity": 2, "alpha": 2}

    @property
    def looks_at_values(self) -> bool:
        return bool(
            self.measure == "label" or self.proxy == "feature" or self.neighbours or self.communities == "disjoint"
        )

    @property
    def penalties(self) -> tuple[float, float]:
        """λ1 and λ2."""
        return official.PENALTIES if self.official else (self.lambda1, self.lambda2)

    @property
    def compared(self) -> Measure:
        """The measure by which clients are compared."""
        if not self.similarity:
            return Nothing()
        if self.measure == "function":
            p_out, prunes = official.P_OUT if self.official else P_OUT, bool(self.masks and self.penalties[0])
            return Functions(self.proxy, p_out, self.embedding == "server", self.masks, prunes)
        return {"parameter": Parameters, "gradient": Gradients, "label": Labels}[self.measure]()

    @property
    def threshold(self) -> float | None:
        """The minimum similarity within a community; None if all clients form one."""
        return EXPLICIT if self.communities == "explicit" else None

    def secured(self) -> Self:
        """With disjoint communities: a server that knows other mixtures can solve for every client's weights."""
        needs = "needs the weights of every single client"
        if not self.similarity:
            return replace(self, communities="disjoint")
        if self.measure != "function":
            raise FedpubError(f"`measure={self.measure}` {needs} or its labels; leave it out, or `secure`")
        if self.embedding == "server":
            raise FedpubError(f"`embedding=server` {needs}; leave it out, or `secure`")
        if self.communities == "implicit" or self.neighbours:
            raise FedpubError(
                "averages by similarity, one for each client, cannot be sums over groups: add `communities=explicit` "
                "for disjoint groups, take `method=fedpub-plus`, or leave `secure` out"
            )
        return replace(self, communities="disjoint")

    def pace(self, data: Clients) -> float | Tensor:
        """The learning rate of a client's masks, as a factor; one for all clients, or one per client, [K]."""
        return 1.0
