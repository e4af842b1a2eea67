"""An attempt of which the survivors are known, as named bytes: what a coordinator that was killed resumes with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fedpub.errors import FedpubError
from fedpub.federation.secure.attempt import Attempt
from fedpub.federation.secure.records import tags_bytes, tags_of

LISTS = "lists"


@dataclass(frozen=True)
class Kept:
    total: bytes
    alive: tuple[int, ...]
    survivors: tuple[int, ...]
    deposits: dict[int, bytes]
    tags: dict[int, dict[int, bytes]]
    answers: dict[int, bytes]


def saved(
    attempt: Attempt,
    total: bytes,
    lists: tuple[tuple[int, ...], tuple[int, ...]],
    deposits: Mapping[int, bytes],
    tags: Mapping[int, Mapping[int, bytes]],
    answers: Mapping[int, bytes],
) -> dict[str, bytes]:
    told = {"context": attempt.context.hex(), "alive": lists[0], "survivors": lists[1]}
    return {
        LISTS: json.dumps(told).encode(),
        "sum": total,
        **{f"deposit-{number}": data for number, data in deposits.items()},
        **{f"confirmation-{number}": tags_bytes(one) for number, one in tags.items()},
        **{f"answer-{number}": data for number, data in answers.items()},
    }


def read(attempt: Attempt, kept: Mapping[str, bytes]) -> Kept:
    """What was saved of this attempt."""
    try:
        told = json.loads(kept[LISTS])
        alive, survivors = tuple(told["alive"]), tuple(told["survivors"])
        deposits = {one: kept[f"deposit-{one}"] for one in alive}
        if told["context"] != attempt.context.hex() or not set(survivors) <= set(alive) <= set(attempt.members):
            raise FedpubError("what was saved is of another attempt than the one that is to be resumed")
        total = kept["sum"]
    except (KeyError, ValueError, TypeError) as error:
        raise FedpubError("what was saved of an attempt is incomplete: ask its members again") from error
    tags = {one: tags_of(kept[f"confirmation-{one}"]) for one in survivors if f"confirmation-{one}" in kept}
    answers = {one: kept[f"answer-{one}"] for one in survivors if f"answer-{one}" in kept}
    return Kept(total, alive, survivors, deposits, tags, answers)
