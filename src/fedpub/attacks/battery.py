"""All attacks on what a notebook holds, except those on single nodes (`nodes.py`).

Axes: K clients, C classes, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpub.algorithms.communities import communities
from fedpub.algorithms.fedpub_plus.standing import FUNCTION
from fedpub.algorithms.measures import EMBEDDING, LABELS
from fedpub.attacks import embedding, inversion, labels, scores, words
from fedpub.attacks.case import Case
from fedpub.attacks.findings import Finding, scored
from fedpub.attacks.first_step import gradient
from fedpub.attacks.notebook import Own
from fedpub.core.tree import State, tensor, tree
from fedpub.models.base import OUTPUT

FROM_UPLOADS, FROM_EMBEDDING = "classes, from uploads", "classes, from the embedding"
WORDS, PROFILE = "words, from the rows sent", "word profile, by inversion"
WEIGHT, BIAS = f"{OUTPUT}.weight", f"{OUTPUT}.bias"
KNOWN_GRADIENT = 0.7  # the share of the output layer's entries whose gradient is known, from which on it is used


def attack(case: Case) -> list[Finding]:
    return [*class_shares(case), *class_shares_by_embedding(case), *client_words(case), *word_profile(case)]


def not_applied(attack: str, learnt: str, measure: str, why: str) -> Finding:
    return Finding(attack, learnt, measure, f"It does not apply: {why}.")


# Classes

SHARES = ("the share of each class among a client's training nodes", "overlap with the true shares")


def class_shares(case: Case) -> list[Finding]:
    if not case.context.task.of_classes:
        return [not_applied(FROM_UPLOADS, *SHARES, "the task has no classes")]
    clients = [client for client in case.clients if case.notebook.steps.get(client)]
    if not clients:
        return [not_applied(FROM_UPLOADS, *SHARES, "no output layer was seen")]
    estimate_KC = torch.stack([labels.by_steps(case.notebook.steps[client]) for client in clients])
    exact = _with_gradients(case, clients)
    if exact:
        found = [_gradients(case.notebook.first[client], case, (WEIGHT, BIAS)) for client in exact]
        weight_KHC, bias_KC = (torch.cat([one[at] for one in found]) for at in range(2))
        estimate_KC[[clients.index(client) for client in exact]] = labels.by_gradient(weight_KHC, bias_KC)
    how = f"by the gradient for {len(exact)} of {len(clients)} clients, by steps for the others"
    return [_of_classes(FROM_UPLOADS, case, clients, estimate_KC, {"how": how})]


def _with_gradients(case: Case, clients: list[int]) -> list[int]:
    found = []
    for client in clients:
        own = case.notebook.first[client]
        if WEIGHT in own.known and case.is_first_step(own):
            moved = own.change[WEIGHT] != 0
            _, known = gradient(own.change[WEIGHT], case.plan.lr)
            if float(known[moved].double().mean()) >= KNOWN_GRADIENT:
                found.append(client)
    return found


def _gradients(own: Own, case: Case, names: tuple[str, ...]) -> list[Tensor]:
    return [gradient(own.change[name], case.plan.lr)[0] for name in names]


def _of_classes(
    attack: str, case: Case, clients: list[int], estimate_KC: Tensor, more: dict[str, object] | None = None
) -> Finding:
    seen = {case.names[client]: row for client, row in zip(clients, estimate_KC.tolist(), strict=True)}
    further: dict[str, object] = {**(more or {}), "estimates": seen}
    if case.truth is None:
        sentence = "What the coordinator would believe of each client's classes is in the estimates."
        return Finding(attack, *SHARES, sentence, more=further)
    truth_KC = case.truth.shares[clients]
    overall_C = case.truth.shares[~case.truth.shares.isnan().any(1)].mean(0)
    guesses = {
        "all classes equal": _mean(scores.overlap(torch.full_like(truth_KC, 1 / case.num_classes), truth_KC)),
        "the shares of all clients together": _mean(scores.overlap(overall_C.expand_as(truth_KC), truth_KC)),
    }
    further |= {"guesses": guesses, "correlation": _mean(scores.correlation(estimate_KC, truth_KC))}
    further["main_class"] = float((estimate_KC.argmax(1) == truth_KC.nan_to_num(0).argmax(1)).double().mean())
    sentence = (
        "The coordinator knows of {score} of a client's training nodes how they divide among the classes, and of "
        "{worst} at the client that it knows best; from the shares of all clients together it would know {guess}."
    )
    values = scores.overlap(estimate_KC, truth_KC).tolist()
    return scored(attack, *SHARES, sentence, values, max(guesses.values()), more=further)


def class_shares_by_embedding(case: Case) -> list[Finding]:
    if not case.context.task.of_classes:
        return [not_applied(FROM_EMBEDDING, *SHARES, "the task has no classes")]
    evidence: dict[int, list[Tensor]] = {}
    alike: dict[int, Tensor] = {}  # what clients are compared by
    for client, told in case.notebook.told.items():
        for _, parts, output in told:
            if (found := _evidence(parts, output, case.num_classes)) is not None:
                evidence.setdefault(client, []).append(found)
                alike[client] = _compared(parts)
    if not evidence:
        return [not_applied(FROM_EMBEDDING, *SHARES, "no embedding is sent")]
    clients = sorted(evidence)
    counted = LABELS in case.plan.algorithm.uploads
    last_KC = torch.cat([evidence[client][-1] for client in clients])
    by_embedding_KC = torch.cat([embedding.shares(evidence[client]) for client in clients])
    estimate_KC = torch.softmax(last_KC, 1) if counted else by_embedding_KC
    more: dict[str, object] = {"how": "counts of classes are sent"} if counted else {}
    if case.truth:
        main_K = case.truth.shares[clients].nan_to_num(0).argmax(1)
        found_K = communities(torch.stack([alike[client] for client in clients]), 1)
        more["groups"] = scores.adjusted_rand(found_K, main_K)
    return [_of_classes(FROM_EMBEDDING, case, clients, estimate_KC, more)]


def _evidence(parts: State, output: dict[str, Tensor], classes: int) -> Tensor | None:
    """For each class, [1, C]."""
    if LABELS in parts:  # what is searched for is sent itself
        return tensor(parts[LABELS]).double().clamp(min=1e-9).log()
    if EMBEDDING in parts and WEIGHT in output:
        mean_KH = tensor(parts[EMBEDDING]).double()
        return embedding.logits(mean_KH, output[WEIGHT].double(), output[BIAS].double())
    if FUNCTION in parts:
        change_KD = tree(parts[FUNCTION])["change"].double()
        return embedding.variation(change_KD, classes) if bool(change_KD.any()) else None
    return None


def _compared(parts: State) -> Tensor:
    if FUNCTION in parts:
        return tree(parts[FUNCTION])["change"][0].double()
    return tensor(parts[LABELS if LABELS in parts else EMBEDDING])[0].double()


# Words

HAS, LIKE = ("which words any node of a client has", "F1"), ("how often each word occurs at a client", "cosine")


def client_words(case: Case) -> list[Finding]:
    inputs = case.context.model.inputs
    clients = [client for client in case.clients if {*inputs} & {*case.notebook.first[client].known}]
    if why := _no_words(case, clients):
        return [not_applied(WORDS, *HAS, why)]
    found_KF = torch.stack([words.words(case.notebook.first[client].touched, inputs) for client in clients])
    if case.truth is None:
        counts = {case.names[client]: int(row.sum()) for client, row in zip(clients, found_KF, strict=True)}
        sentence = "How many words each client seems to have is in the estimates."
        return [Finding(WORDS, *HAS, sentence, more={"estimates": counts})]
    truth_KF = case.truth.has[clients]
    f1_K, precision_K, recall_K = scores.f1(found_KF, truth_KF)
    guess_F = words.common(case.truth.has)
    guess_K, *_ = scores.f1(guess_F.expand_as(truth_KF), truth_KF)
    sentence = (
        "The coordinator knows which words occur at a client with an F1 of {score}, and of {worst} at the client that "
        "it knows best; the words that most clients have would reach {guess}."
    )
    more = {"precision": _mean(precision_K), "recall": _mean(recall_K)}
    return [scored(WORDS, *HAS, sentence, f1_K.tolist(), _mean(guess_K), more=more)]


def word_profile(case: Case) -> list[Finding]:
    inputs = case.context.model.inputs
    clients = [client for client in case.clients if inputs[-1] in case.notebook.first[client].known]
    if why := _no_words(case, clients):
        return [not_applied(PROFILE, *LIKE, why)]
    rows, exact = [], 0
    for client in clients:
        own = case.notebook.first[client]
        change, known = own.change, case.is_first_step(own)
        exact += known
        found = gradient(change[inputs[-1]], case.plan.lr)[0] if known else change[inputs[-1]]
        rows.append(inversion.profile(found[0]))
    how = f"from the gradient of {exact} of {len(clients)} clients"
    estimate_KF = torch.stack(rows)
    if case.truth is None:
        top = estimate_KF.topk(min(10, estimate_KF.shape[1])).indices.tolist()
        most = {case.names[client]: row for client, row in zip(clients, top, strict=True)}
        sentence = "The numbers of the words that seem most frequent at each client are in the estimates."
        return [Finding(PROFILE, *LIKE, sentence, more={"how": how, "estimates": most})]
    truth_KF, guess_F = case.truth.profiles[clients], case.truth.overall
    guess = _mean(scores.cosine(guess_F.expand_as(truth_KF), truth_KF))
    away_K = scores.cosine(estimate_KF - guess_F / guess_F.sum(), _relative(truth_KF) - guess_F / guess_F.sum())
    sentence = (
        "The coordinator's picture of how often each word occurs at a client has a cosine of {score} with the truth, "
        "and of {worst} for the client that it knows best; the mean of all nodes has {guess}."
    )
    more = {"how": how, "beyond the mean": _mean(away_K)}
    return [scored(PROFILE, *LIKE, sentence, scores.cosine(estimate_KF, truth_KF).tolist(), guess, more=more)]


def _no_words(case: Case, clients: list[int]) -> str:
    if not clients:
        return "no first layer was seen"
    if case.truth is not None and not case.truth.of_words:
        return "the features are not like words, of which a node has few"
    return ""


def _relative(profile_KF: Tensor) -> Tensor:
    return profile_KF / profile_KF.sum(1, keepdim=True).clamp(min=1e-30)


def _mean(value_K: Tensor) -> float:
    return float(value_K.double().nanmean())
