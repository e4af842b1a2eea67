"""Choice of the round whose model is kept: the higher mean validation value; on a tie, the lower mean validation loss;
on a further tie, the earlier round.

Accuracy alone often cannot separate rounds: if nearly all nodes are of one class, all rounds have the same accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

from torch import Tensor

LEVEL = 1e-12  # means of the same values in another order differ by less
DIGITS = 4  # significant digits of a loss: sites report no more


def rounded_loss(loss: float) -> float:
    """A client's loss as it is compared and as it leaves a site: more digits would only disclose more of the data."""
    return float(f"{loss:.{DIGITS}g}")


@overload
def better(val: float, loss: float, best_val: float, best_loss: float) -> bool: ...


@overload
def better(val: Tensor, loss: Tensor, best_val: Tensor, best_loss: Tensor) -> Tensor: ...


def better(val: Any, loss: Any, best_val: Any, best_loss: Any) -> Any:
    """Whether a round with these means replaces the best one so far; a validation value of NaN always does.

    An unknown loss (NaN, from a run of an earlier version) decides nothing.
    """
    higher, level = val > best_val + LEVEL, abs(val - best_val) <= LEVEL
    return (val != val) | higher | (level & (loss < best_loss - LEVEL))


@dataclass
class Best:
    """The best round so far, updated round by round; round 0 before the first."""

    round: int = 0
    val: float = float("-inf")
    loss: float = float("inf")

    def update(self, number: int, val: float, loss: float) -> bool:
        """Take a round with these means into account; whether it is the new best."""
        if not better(val, loss, self.val, self.loss):
            return False
        self.round, self.val, self.loss = number, val, loss
        return True
