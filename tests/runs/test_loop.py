"""The loop that every run goes through, on made-up rounds and a store that writes down what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedpub.core.tree import Tree, tree
from fedpub.engine.rounds import Round, Snapshot
from fedpub.runs.loop import Keeping, run_rounds
from fedpub.store.memory import Memory
from fedpub.store.record import Row
from fedpub.tasks.base import Details

VALUES = (0.5, 0.7, 0.6, 0.7)  # of validation: round 2 is the best


def rounds_of(*values: float) -> Iterator[Round]:
    """The rounds of one client, whose weight is the number of the round in every one."""
    weight = torch.zeros(1)
    for number, value in enumerate(values, 1):
        weight += 1  # as an engine goes on with the same tensors
        one = torch.tensor([value], dtype=torch.float64)
        yield Round(
            snapshot=Snapshot(number, {}, {"weights": {"w": weight}}),
            took_part_R=torch.tensor([True]),
            metrics={"val": one, "val_loss": 1 - one, "test": one},
            loss_R=one,
            sparsity_R=torch.zeros(1),
            bytes_up_R=torch.ones(1, dtype=torch.int64),
            bytes_down_R=torch.ones(1, dtype=torch.int64),
            ids=torch.tensor([0]),
            notes={},
        )


@dataclass
class Told(Memory):
    """What a store is told, in order."""

    said: list[Any] = field(default_factory=list)
    details: Details = field(default_factory=dict)

    def append(self, measured: Round, seconds: float) -> Row:
        self.said.append(f"row {measured.snapshot.round}")
        return super().append(measured, seconds)

    def checkpoint(self, snapshot: Snapshot, best: Tree) -> None:
        self.said.append(f"checkpoint {snapshot.round}, best {weight(best)}")

    def finish(self, summary: dict[str, Any], best: Tree, details: Details, keep_checkpoint: bool) -> None:
        self.details = details
        self.said.append(f"finish {summary['best_round']}, best {weight(best)}, kept {keep_checkpoint}")


def weight(best: Tree) -> float | None:
    return float(best["w"]) if best else None


def played(store: Told, *values: float, **named: Any) -> dict[str, Any]:
    return run_rounds(
        rounds_of(*values),
        len(values),
        store,
        lambda record, details: record.summary("accuracy", [1]) | {"thresholds": details.get("threshold")},
        Keeping(**named),
        lambda row, rounds: store.said.append(f"told {row.round} of {rounds}"),
    )


def personal(clients: dict[str, Any]) -> Tree:
    return tree(clients["weights"])


def test_a_round_is_kept_told_and_saved_before_the_next():
    store = Told()
    summary = played(store, *VALUES[:2], checkpoint_seconds=0, keep_checkpoint=True)
    assert store.said == [
        "row 1",
        "told 1 of 2",
        "checkpoint 1, best None",
        "row 2",
        "told 2 of 2",
        "checkpoint 2, best None",
        "finish 2, best None, kept True",
    ]
    assert summary["best_round"] == 2
    assert [row.round for row in store.record.rows] == [1, 2]


def test_the_model_of_the_best_round_is_kept_and_does_not_change_later():
    store = Told()
    played(store, *VALUES, checkpoint_seconds=0, personal=personal)
    assert [said for said in store.said if "best" in said] == [
        "checkpoint 1, best 1.0",
        "checkpoint 2, best 2.0",
        "checkpoint 3, best 2.0",
        "checkpoint 4, best 2.0",
        "finish 2, best 2.0, kept False",
    ]


def test_a_resumed_run_keeps_the_model_of_a_better_round_before():
    before, store = Told(), Told()
    played(before, 0.9)
    store.record.append(before.record.rows[0])
    later = (one for number, one in enumerate(rounds_of(*VALUES), 1) if number > 1)
    kept = {"w": torch.ones(1)}
    summarise = lambda record, details: record.summary("accuracy", [1])  # noqa: E731
    run_rounds(later, 4, store, summarise, Keeping(personal=personal), None, kept)
    assert store.said[-1] == "finish 1, best 1.0, kept False"


def test_details_are_those_of_the_model_that_is_kept():
    store, asked = Told(), []

    def details(models: Tree) -> Details:
        asked.append(weight(models))
        return {"threshold": [0.25]}

    summary = played(store, *VALUES, personal=personal, details=details)
    assert asked == [2.0]
    assert store.details == {"threshold": [0.25]}
    assert summary["thresholds"] == [0.25]
    without = Told()
    assert played(without, *VALUES, details=details)["thresholds"] is None
    assert asked == [2.0]
    assert without.details == {}


@pytest.mark.parametrize(
    ("named", "saved"),
    [
        ({}, []),
        ({"keep_checkpoint": True}, ["checkpoint 4, best None"]),
        ({"checkpoint_seconds": 1e9}, []),
    ],
    ids=["dropped anyway", "the last one is kept", "never due"],
)
def test_the_last_round_is_saved_where_its_checkpoint_stays(named, saved):
    store = Told()
    played(store, *VALUES, **named)
    assert [said for said in store.said if said.startswith("checkpoint")] == saved


def stopped_in(number: int, store: Told) -> Callable[[], bool]:
    return lambda: f"told {number} of {len(VALUES)}" in store.said


def test_ctrl_c_saves_the_round_and_finishes_nothing():
    store = Told()
    with pytest.raises(KeyboardInterrupt):
        played(store, *VALUES, personal=personal, stop=stopped_in(3, store))
    assert store.said[-2:] == ["told 3 of 4", "checkpoint 3, best 2.0"]
