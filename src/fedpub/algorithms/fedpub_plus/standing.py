"""What the server of FED-PUB-plus knows: who is in which community, and which average continues.

Axes: K clients, G communities, D numbers that describe a client, M columns of scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.algorithms.communities import AT_ONCE, communities
from fedpub.algorithms.fedpub_plus.choice import UNKNOWN, means
from fedpub.algorithms.protocol import Notes
from fedpub.algorithms.similarity import cosine
from fedpub.core.message import Message
from fedpub.core.tree import State, mix, tensor, tree, tree_map

ROUNDS_ALONE = 5
TRIAL = 50  # rounds in which both averages are tried, in turns
ALONE, WITH_EVERYONE, TRYING, IN_COMMUNITY = range(4)  # what a client does in a round
PERSONAL, EVERYONE, COMMUNITY, BESIDE = range(4)  # its models: columns of its scores
MODELS = ("personal", "everyone", "community", "local")
BESIDE_VAL, BESIDE_LOSS, USED = range(4, 7)  # further columns: the last round of the model beside; the model it uses
FUNCTION = "functions"  # the name of the upload


def phases(server: State) -> Tensor:
    """What every client does in the next round, [K]."""
    together = IN_COMMUNITY
    if int(tensor(server["decided"])) != COMMUNITY:
        trying = not int(tensor(server["decided"])) and groups(server) > 1 and int(tensor(server["tried"])) % 2
        together = TRYING if trying else WITH_EVERYONE
    return torch.where(tensor(server["alone"]) > 0, ALONE, together)


def heard(least: int, server: State, ids: Tensor, up: Message) -> State:
    """What clients have learnt alone; those that have done so for long enough are placed."""
    change_KD = up.tree(FUNCTION)["change"]
    known_KD = tensor(server["function"])
    if not known_KD.shape[1]:
        known_KD = change_KD.new_zeros(len(known_KD), change_KD.shape[1])
    left = tensor(server["alone"]).index_add(0, ids, torch.full_like(ids, -1))
    done: State = {"function": known_KD.index_copy(0, ids, change_KD), "alone": left}
    return done | (placed(least, server | done) if bool((left[ids] == 0).any()) else {})


def placed(least: int, server: State) -> State:
    """The communities of all clients that are known, and their weights.

    A new one begins with those that its members had, or with that of all clients. Until half of the clients are known,
    all are one.
    """
    known_K, old_K = tensor(server["alone"]) == 0, tensor(server["community"])
    found_K = torch.zeros_like(old_K[known_K])
    if 2 * len(found_K) >= len(old_K):
        found_K = communities(tensor(server["function"])[known_K], least)
    new_K = torch.full_like(old_K, -1)
    new_K[known_K] = found_K
    count = int(found_K.max()) + 1
    had_GG = members(new_K, count).double() @ members(old_K, groups(server)).double().T * (groups(server) > 1)
    from_GG = torch.cat([had_GG, (had_GG.sum(1, keepdim=True) == 0)], 1)  # last: that of all
    from_GG = from_GG / from_GG.sum(1, keepdim=True)
    had = tree_map(lambda *some: torch.cat(some), tree(server["communities"]), tree(server["everyone"]))
    return {"community": new_K, "communities": mix(from_GG, had)}


def departed(least: int, server: State, ids: Tensor) -> State:
    """As if these clients had never come: they are in no community and no mean, and begin alone if they return.

    If they leave a community, the others are placed again, since it may be too small now.
    """
    leave = bool((tensor(server["community"])[ids] >= 0).any())
    never = {"community": -1, "alone": ROUNDS_ALONE, "function": 0}
    gone = {name: tensor(server[name]).index_fill(0, ids, value) for name, value in never.items()}
    left = server | gone | unscored(server, ids)
    return left | placed(least, left) if leave and bool((tensor(left["alone"]) == 0).any()) else left


def unscored(server: State, ids: Tensor) -> State:
    if len(tensor(server["scores"])) != len(tensor(server["alone"])):
        return {}  # means of all clients, which are made again in every round
    return {"scores": tensor(server["scores"]).index_fill(0, ids, UNKNOWN)}


def on_trial(server: State, phase_K: Tensor) -> bool:
    """Whether it is not decided yet which average continues."""
    return not int(tensor(server["decided"])) and groups(server) > 1 and bool((phase_K != ALONE).any())


def comparable(score_KM: Tensor) -> Tensor:
    """The mean scores of the models, [M], over the clients that have tried both averages."""
    return means(score_KM[(score_KM[:, [EVERYONE, COMMUNITY]] >= 0).all(1)])


def tried(server: State, mean_M: Tensor) -> State:
    """Another round of the trial; after the last one, the average whose models validate better continues."""
    tried = tensor(server["tried"]) + 1
    if int(tried) < TRIAL:
        return {"tried": tried}
    better = bool(mean_M[COMMUNITY] > torch.maximum(mean_M[EVERYONE], mean_M[PERSONAL]))
    return {"tried": tried, "decided": torch.full_like(tried, COMMUNITY if better else EVERYONE)}


def reports(least: int, server: State, ids: Tensor, phase_K: Tensor, told_KM: Tensor) -> Notes:
    place_K = tensor(server["community"])[ids]
    notes = {"community": place_K, "used": told_KM[:, USED].long().clamp(-1, len(MODELS) - 1)}
    if len(ids) > AT_ONCE:  # no K by K matrix of so many
        return notes | {name: torch.empty(0, 0) for name in ("similarity", "alpha")}
    same_KK = (place_K.unsqueeze(1) == place_K) | (phase_K.unsqueeze(1) == WITH_EVERYONE)
    same_KK = same_KK & (phase_K.unsqueeze(1) == phase_K) & (phase_K != ALONE)
    same_KK = same_KK & (same_KK.sum(1, keepdim=True) >= least)  # of fewer, nothing is averaged
    same_KK = same_KK | torch.eye(len(ids), dtype=torch.bool, device=same_KK.device)
    similarity_KK = cosine(tensor(server["function"])[ids])
    return notes | {"similarity": similarity_KK, "alpha": same_KK.float() / same_KK.sum(1, keepdim=True)}


def groups(server: State) -> int:
    return len(next(iter(tree(server["communities"]).values())))


def members(place_K: Tensor, count: int) -> Tensor:
    """Who is in which community, [G, K]; a client that is not placed, in none."""
    return place_K == torch.arange(count, device=place_K.device).unsqueeze(1)
