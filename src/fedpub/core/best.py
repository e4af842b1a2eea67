"""Which round's model is kept: the one with the higher mean validation value; where two are level, the one with the
lower mean validation loss; where these are level, too, the earlier one.

Accuracy alone often cannot tell rounds apart: where one class is nearly everything, all rounds are right equally often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

from torch import Tensor

LEVEL = 1e-12  # means of the same values in another order differ by less
DIGITS = 4  # of a loss, that count: sites tell no more of it


def rounded_loss(loss: float) -> float:
    """A client's loss as it counts, and as it leaves a site: more digits would only carry more of the data."""
    return float(f"{loss:.{DIGITS}g}")


@overload
def better(val: float, loss: float, best_val: float, best_loss: float) -> bool: ...


@overload
def better(val: Tensor, loss: Tensor, best_val: Tensor, best_loss: Tensor) -> Tensor: ...


def better(val: Any, loss: Any, best_val: Any, best_loss: Any) -> Any:
    """Whether a round with these means is kept instead of the best before; also where nobody can judge (NaN): the last.

    A loss that is unknown (NaN, from a run of an earlier version) decides nothing.
    """
    higher, level = val > best_val + LEVEL, abs(val - best_val) <= LEVEL
    return (val != val) | higher | (level & (loss < best_loss - LEVEL))


@dataclass
class Best:
    """The best round so far of a run whose rounds are told one after the other; 0 before the first."""

    round: int = 0
    val: float = float("-inf")
    loss: float = float("inf")

    def update(self, number: int, val: float, loss: float) -> bool:
        """Whether a round with these means is the best from now on."""
        if not better(val, loss, self.val, self.loss):
            return False
        self.round, self.val, self.loss = number, val, loss
        return True
