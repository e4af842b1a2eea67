"""FED-PUB-plus from sums over groups of clients: what they add up, and the server step from it.

The server then has no scores of single clients but their means, in one row.

Axes: K clients, M models and columns of scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedpub.algorithms.context import Context
from fedpub.algorithms.fedpub_plus.averages import HELD
from fedpub.algorithms.fedpub_plus.choice import UNKNOWN
from fedpub.algorithms.fedpub_plus.standing import (
    ALONE,
    BESIDE_LOSS,
    COMMUNITY,
    EVERYONE,
    FUNCTION,
    MODELS,
    TRYING,
    USED,
    WITH_EVERYONE,
    phases,
)
from fedpub.algorithms.sums import LARGEST, Hidden, Summed, steps_of, within
from fedpub.core.message import Message
from fedpub.core.tree import State, Tree, tensor, tree

FIRST_COMMUNITY = 2  # groups: 0 are those who are alone, 1 is everyone, then come the communities


def groups_of(server: State, ids: Tensor) -> Tensor:
    """With whom every client is added up, [K]: with those that do the same in this round."""
    phase_K, place_K = phases(server)[ids], tensor(server["community"])[ids]
    return torch.where(phase_K >= TRYING, FIRST_COMMUNITY + place_K, (phase_K == WITH_EVERYONE).long())


def hidden(sent: Message, up: Message) -> Hidden:
    """What the clients of a group add up: all are in the same phase. Those who are alone send no weights."""
    numbers = _told(up.tensor("scores"))
    if bool((sent.tensor("phase") == ALONE).any()):
        return Hidden(numbers=numbers)
    weights = up.tree("weights")
    rows = {name: up.sent[name][..., :1] for name in weights}
    return Hidden(steps_of(weights, sent.tree("weights")), _as(rows, weights), numbers)


def _as(rows: Tree, weights: Tree) -> Tree:
    return {name: leaf.to(weights[name].dtype) for name, leaf in rows.items()}


def _told(told_KM: Tensor) -> Tree:
    """Scores as numbers within ±1, and who knows them: of each column, and of those who have tried both averages."""
    score_KM, known_KM = told_KM[:, :USED].clone(), told_KM[:, :USED] >= 0
    score_KM[:, BESIDE_LOSS] /= LARGEST
    both_K1 = known_KM[:, [EVERYONE, COMMUNITY]].all(1, keepdim=True)
    both_KM = both_K1 & known_KM[:, : len(MODELS)]
    score_KM = torch.where(known_KM, score_KM.clamp(max=1), 0)
    return {
        "known": known_KM.double(),
        "scores": score_KM,
        "both": both_KM.double(),
        "both_scores": torch.where(both_KM, score_KM[:, : len(MODELS)], 0),
    }


def functions(up: Message) -> Message:
    """What the clients that are alone have learnt: it is in the clear."""
    if FUNCTION not in up:
        return Message()
    return Message({FUNCTION: up[FUNCTION]}, {name: up.sent[name] for name in up.tree(FUNCTION)})


def from_sums(ctx: Context, server: State, found: Sequence[Summed]) -> State:
    """The server's averages, and the means of the scores."""
    done: State = dict(server)
    for one in found:
        phase = int(phases(server)[one.ids[0]])
        if phase == ALONE:
            continue
        name, row = ("everyone", 0) if phase == WITH_EVERYONE else ("communities", one.group - FIRST_COMMUNITY)
        mean: Tree = {}
        for leaf, last in tree(done[name]).items():
            count, whole = one.sums.counts[leaf], len(one.ids)
            step = (whole + HELD) / (whole * (count + HELD)) * one.sums.steps[leaf]
            mean[leaf] = last.clone()
            mean[leaf][row] += within(step, ctx)
        done[name] = mean
    if not found:
        return done
    told_M = _means(found, "scores", "known", USED).to(tensor(server["scores"]).device)
    told_M[BESIDE_LOSS] = torch.where(told_M[BESIDE_LOSS] < 0, UNKNOWN, told_M[BESIDE_LOSS] * LARGEST)
    done["scores"] = torch.cat([told_M, told_M.new_full((1,), UNKNOWN)]).unsqueeze(0)
    return done


def compared(found: Sequence[Summed]) -> Tensor:
    """The mean scores of the models, [M], over the clients that have tried both averages."""
    return _means(found, "both_scores", "both", len(MODELS))


def _means(found: Sequence[Summed], name: str, counted: str, columns: int) -> Tensor:
    """The means of the columns over the clients that know them, [M]."""
    total_M, count_M = torch.zeros(2, columns, dtype=torch.float64)
    for one in found:
        total_M = total_M + one.sums.numbers[name].cpu()
        count_M = count_M + one.sums.numbers[counted].cpu()
    return torch.where(count_M > 0, total_M / count_M.clamp(min=1), UNKNOWN)
