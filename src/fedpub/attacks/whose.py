"""Whose training node it is: the client whose model is surest of the node's class, compared with what it is of others.

With s_j(v) the log-odds of the true class of node v under what is known of client j's model, standardised over all
candidates, node v is given to argmax_j s_j(v). Where all clients of a group are given the group's mean, as a secure run
forces, they tie: the node is given to each of them in part. Unlike a membership attack, this cannot be answered from
an average that all clients receive.

Axes: K clients, M candidates of all clients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.attacks import membership
from fedpub.attacks.case import Case
from fedpub.attacks.findings import Finding, not_applied, scored
from fedpub.engine.simulate import Federation
from fedpub.models.base import OUTPUT
from fedpub.tasks.base import outputs

WHOSE = "whose training node it is"
OWNER = ("which client has trained on a node", "share of the nodes given to the right client")
SENTENCE = (
    "Of the training nodes of all clients, the coordinator gives {score} to the client that has them, and {worst} at "
    "the client that is worst off; a guess would be right with {guess}."
)


def attack_owners(case: Case, federation: Federation, nodes: dict[int, Tensor]) -> Finding:
    """`nodes`: some training nodes of every client."""
    known = [client for client in case.clients if client in case.notebook.last and len(nodes[client])]
    weights = {client: {**case.notebook.last[client].sent, **case.notebook.last[client].known} for client in known}
    if len(known) < 2 or not all(any(name.startswith(OUTPUT) for name in one) for one in weights.values()):
        return not_applied(WHOSE, *OWNER, "the models of fewer than two clients were seen")
    score_KM, owner_M = [], []
    for client in known:
        (data,) = federation.chunks([client], case.plan.context)
        y_M = data.y_N.cpu()[nodes[client]]
        rows = []
        for own in weights.values():
            with torch.no_grad():
                logits_NC = outputs(
                    case.context.model, {name: leaf.to(data.device) for name, leaf in own.items()}, data
                )
            rows.append(membership.log_odds(logits_NC.cpu()[nodes[client]], y_M))
        score_KM.append(torch.stack(rows))
        owner_M.append(torch.full((len(y_M),), known.index(client)))
    right_M, owner = given(torch.cat(score_KM, 1), torch.cat(owner_M)), torch.cat(owner_M)
    values = [float(right_M[owner == at].mean()) for at in range(len(known))]
    return scored(WHOSE, *OWNER, SENTENCE, values, 1 / len(known))


def given(score_KM: Tensor, owner_M: Tensor) -> Tensor:
    """The part of every node that is given to its owner, [M]."""
    mean_K1, deviation_K1 = score_KM.mean(1, keepdim=True), score_KM.std(1, keepdim=True).clamp(min=1e-12)
    standard_KM = (score_KM - mean_K1) / deviation_K1
    first_KM = standard_KM == standard_KM.max(0).values
    return first_KM.gather(0, owner_M.unsqueeze(0))[0].double() / first_KM.double().sum(0)
