"""What a method may know in addition to its state."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fedpub.models.base import Model
from fedpub.tasks.base import Step, Task

# Protection of a federation against a hostile member; `default` applies unless a run sets another.
Defence = Literal["default", "none", "clip", "median", "guard"]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Context:
    """The model, the task and the round, and how to train."""

    model: Model
    task: Task
    seed: int
    round: int  # the first is 1
    epochs: int
    lr: float
    weight_decay: float
    dropout: float
    defence: Defence = "none"
    secure: bool = False  # the server gets sums over groups of clients only
    min_group: int = 3  # clients in a group
    embedding_noise: float = 0.0  # standard deviations of noise on functional embeddings
    batch_size: int = 0  # training nodes per step; 0: all
    made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)  # by `once`

    @property
    def needs(self) -> tuple[int, bool, bool]:
        """What stacked clients must hold: see `fedpub.data.clients.stack.stack`."""
        return self.model.steps, self.model.propagates, self.model.independent and not self.task.of_pairs

    def step(self, epoch: int, batch: int = 0) -> Step:
        """A step of local training in this round; it determines the random streams."""
        return Step(self.seed, self.round, epoch, self.dropout, batch=batch)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """A value that is computed once for a run and then reused in all its rounds."""
        if key not in self.made:
            self.made[key] = make()
        found: Made = self.made[key]
        return found
