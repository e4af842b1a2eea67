"""The parts of a client's state: its models and their optimisers, by name.

The personal model has the names that every method has; those of the shared models begin with whose they are.
"""

from __future__ import annotations

from torch import Tensor

from fedpub.algorithms.fedpub_plus.standing import MODELS
from fedpub.algorithms.masks import masked, with_masks
from fedpub.core.tree import State, Tree, either, pack, tree, unpack


def name_of(number: int, part: str) -> str:
    return f"{MODELS[number]}_{part}"


def named(number: int, parts: State) -> State:
    """The parts of a shared model, by their names in a client's state."""
    return {name_of(number, part): content for part, content in parts.items()}


def part(own: State, number: int, part: str) -> Tree:
    return tree(own[name_of(number, part)])


def for_some(here_K: Tensor, new: State, old: State) -> State:
    """The new parts for the clients that are here, the old ones for the others."""
    return new if bool(here_K.all()) else either_state(here_K, new, {name: old[name] for name in new})


def either_state(here_K: Tensor, one: State, other: State) -> State:
    """The parts of one state for the clients that are here, those of the other for the rest."""
    return unpack(either(here_K, pack(one), pack(other)))


def optimiser_part(own: State, number: int) -> State:
    return {part: own[name_of(number, part)] for part in ("first", "second", "step")}


def masked_weights(own: State) -> Tree:
    """φ ⊙ μ."""
    return masked(with_masks(tree(own["weights"]), tree(own["masks"])))
