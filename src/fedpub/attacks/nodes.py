"""Attacks on single nodes: which candidates a client has trained on. The attacker knows the candidates, with their
classes and neighbourhoods, and wants to know which of them were training nodes.

Axes: K clients, M candidates, S shadow models, P weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedpub.attacks import membership, scores, tracing
from fedpub.attacks.battery import not_applied
from fedpub.attacks.case import Case
from fedpub.attacks.findings import Finding, scored
from fedpub.attacks.first_step import gradient
from fedpub.attacks.notebook import Own
from fedpub.core.rng import numpy_stream
from fedpub.core.tree import tree_map
from fedpub.data.clients.subgraph import Subgraph
from fedpub.engine.simulate import Federation
from fedpub.models.base import OUTPUT, Model
from fedpub.tasks.base import outputs
from fedpub.tasks.node_classification import NodeClassification

MOST = 100  # candidates of either kind at a client
STEP, SURE, LIRA = (f"a node's membership, {how}" for how in ("from a step", "from confidence", "LiRA"))
MEMBERS = ("which nodes a client has trained on", "area under the ROC curve")
CHANCE = 0.5

Shadow = Callable[[Federation], "Case"]  # the same run with other training nodes


@dataclass(frozen=True, eq=False)
class Candidates:
    """Of one client: its training nodes and as many of its test nodes, in the order of the subgraph."""

    nodes_M: Tensor
    member_M: Tensor


def candidates(own: Subgraph, seed: int) -> Candidates:
    stream = numpy_stream(seed, "attack", "candidates", own.id)
    parts = [torch.nonzero(part & (own.y >= 0)).flatten() for part in (own.train, own.test)]
    count = min(MOST, *map(len, parts))
    chosen = [part[torch.from_numpy(stream.permutation(len(part))[:count])] for part in parts]
    nodes_M = torch.cat(chosen).sort().values
    return Candidates(nodes_M, own.train[nodes_M])


def attack_nodes(case: Case, shadow: Shadow | None, shadows: int, targets: tuple[str, ...]) -> list[Finding]:
    """`shadow` plays a run with other training nodes, for LiRA; targets are `uploaded` and `personal`."""
    federation = case.federation
    if not isinstance(case.context.task, NodeClassification):
        return [not_applied(STEP, *MEMBERS, "the task is not node classification")]
    if federation is None:
        return [not_applied(STEP, *MEMBERS, "candidate nodes are needed; give the sites' graphs with --pieces")]
    wanted = [candidates(own, case.plan.seed) for own in federation.subgraphs]
    findings = []
    if "uploaded" in targets:
        findings.append(_by_step(case, federation, wanted))
    played = list(_shadows(case, federation, wanted, shadow, shadows)) if shadow else []
    for target in targets:
        findings += _by_confidence(case, target, federation, wanted, played)
    return findings


# From the step of the first round


def _by_step(case: Case, federation: Federation, wanted: list[Candidates]) -> Finding:
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for client in case.clients:
        own = case.notebook.first[client]
        if len(wanted[client].nodes_M) and any(name.startswith(OUTPUT) for name in own.sent):
            found[client] = _traced(case, own, federation, client, wanted[client]), wanted[client].member_M
    if not found:
        return not_applied(STEP, *MEMBERS, "no weights of a whole model were seen")
    return _members(STEP, case, found, "by the first step, the coordinator tells a training node from another one")


def _traced(case: Case, own: Own, federation: Federation, client: int, chosen: Candidates) -> Tensor:
    model, change = case.context.model, own.change
    (data,) = federation.chunks([client], case.plan.context)
    held = federation.subgraphs[client]
    leaves = {name: leaf.to(data.device).clone().requires_grad_(name in change) for name, leaf in own.sent.items()}
    logits_NC = outputs(model, leaves, data)
    log_p_NC = torch.log_softmax(logits_NC, 1)
    names = [name for name in change if change[name].dim() > 2]
    exact = case.is_first_step(own)
    each, rows = [], []
    for node in chosen.nodes_M.tolist():
        loss = -log_p_NC[node, int(held.y[node])]
        parts = torch.autograd.grad(loss, [leaves[name] for name in names], retain_graph=True)
        each.append(torch.cat([part.flatten().cpu() for part in parts]))
        near = [part[0].any(1).cpu() for name, part in zip(names, parts, strict=True) if name in model.inputs]
        rows.append(torch.cat(near))
    moved = torch.cat([(change[name][0] != 0).any(1) for name in names if name in model.inputs])
    observed, known = _observed([change[name] for name in names], case.plan.lr, exact)
    each_MP = torch.stack(each)[:, known].double()
    m_M = tracing.shares(each_MP, observed[known], exact)
    return tracing.score(m_M, tracing.untouched(torch.stack(rows), moved))


def _observed(changes: list[Tensor], lr: float, exact: bool) -> tuple[Tensor, Tensor]:
    """The gradient that is known, or else the direction of the step; and in which entries."""
    flat = torch.cat([change.flatten() for change in changes])
    return gradient(flat, lr) if exact else (-flat, torch.ones_like(flat, dtype=torch.bool))


# From how sure models are


def _shadows(
    case: Case, federation: Federation, wanted: list[Candidates], shadow: Shadow, count: int
) -> Iterator[tuple[Case, list[Tensor]]]:
    """Runs in which a random half of every client's candidates are its training nodes."""
    for number in range(count):
        held, trained = [], []
        for own, chosen in zip(federation.subgraphs, wanted, strict=True):
            stream = numpy_stream(case.plan.seed, "attack", "shadow", number, own.id)
            order = stream.permutation(len(chosen.nodes_M))[: len(chosen.nodes_M) // 2]
            half = torch.zeros(len(chosen.nodes_M), dtype=torch.bool)
            half[torch.from_numpy(order)] = True
            train = torch.zeros_like(own.train)
            train[chosen.nodes_M[half]] = True
            held.append(replace(own, train=train))
            trained.append(half)
        yield shadow(replace(federation, subgraphs=held)), trained


def _by_confidence(
    case: Case, target: str, federation: Federation, wanted: list[Candidates], played: list[tuple[Case, list[Tensor]]]
) -> list[Finding]:
    uploaded = target == "uploaded"
    about = "" if uploaded else " (of kept models)"
    who = "the coordinator" if uploaded else "anyone who gets hold of a client's kept model"
    odds = dict(_odds(case, uploaded, federation, wanted))
    if not odds:
        why = "no model was seen that can be evaluated" if uploaded else "no kept models are available"
        return [not_applied(SURE + about, *MEMBERS, why)]
    plain = {client: (odd_M, wanted[client].member_M) for client, odd_M in odds.items()}
    found = [_members(SURE + about, case, plain, f"{who} tells a training node from another one", uploaded)]
    if played:
        others = [dict(_odds(one, uploaded, federation, wanted)) for one, _ in played]
        compared = {}
        for client, odd_M in odds.items():
            both = zip(others, (half for _, half in played), strict=True)
            if pairs := [(one[client], half[client]) for one, half in both if client in one]:
                shadow_SM, trained_SM = (torch.stack([pair[at] for pair in pairs]) for at in range(2))
                compared[client] = membership.lira(odd_M, shadow_SM, trained_SM), wanted[client].member_M
        say = f"with {len(played)} shadow models, {who} tells a training node from another one"
        found.append(_members(LIRA + about, case, compared, say, uploaded))
    return found


@torch.no_grad()
def _odds(case: Case, uploaded: bool, federation: Federation, wanted: list[Candidates]) -> Iterator[tuple[int, Tensor]]:
    """Of every client's candidates by its model, [M]."""
    model: Model = case.context.model if uploaded else case.plan.context.model
    for client, chosen in enumerate(wanted):
        if not len(chosen.nodes_M):
            continue
        if uploaded:
            own = case.notebook.last.get(client)
            weights = {**own.sent, **own.known} if own else {}
        else:
            weights = tree_map(lambda leaf, at=client: leaf[at : at + 1], case.personal) if case.personal else {}
        if not any(name.startswith(OUTPUT) for name in weights):
            continue
        (data,) = federation.chunks([client], case.plan.context)
        placed = {name: leaf.to(data.device) for name, leaf in weights.items()}
        logits_NC = outputs(model, placed, data).cpu()
        yield client, membership.log_odds(logits_NC[chosen.nodes_M], data.y_N.cpu()[chosen.nodes_M])


def _members(
    attack: str, case: Case, found: dict[int, tuple[Tensor, Tensor]], say: str, by_coordinator: bool = True
) -> Finding:
    values = [scores.auc(score_M, member_M) for score_M, member_M in found.values()]
    sentence = f"Of two nodes of a client, {say} with a probability of {{score}}, and of {{worst}} at the client that "
    sentence += "is worst off; a guess would be right with {guess}."
    # Over all clients: scores of different clients are compared by their ranks.
    ranked = [(_ranks(score_M), member_M) for score_M, member_M in found.values()]
    score, member = (torch.cat([pair[at] for pair in ranked]) if ranked else torch.zeros(0) for at in range(2))
    rate = scores.found_at(score, member.bool())
    more: dict[str, object] = {"candidates": len(score), "members found at 1 % false alarms": rate}
    return scored(attack, *MEMBERS, sentence, values, CHANCE, by_coordinator=by_coordinator, more=more)


def _ranks(score_M: Tensor) -> Tensor:
    """From 0 to 1."""
    return score_M.argsort().argsort().double() / max(1, len(score_M) - 1)
