"""Arithmetic on dicts of stacked tensors.

A Tree has one leaf per parameter, each [K, ...] with the client axis K in front.
A State holds Trees and tensors by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from fedpub.core.sparse import sparse_matmul

Tree = dict[str, Tensor]
State = dict[str, "Tree | Tensor"]


def tree_map(function: Callable[..., Tensor], first: Tree, *others: Tree) -> Tree:
    """The function applied leaf by leaf; leaves are matched by name."""
    return {name: function(leaf, *(other[name] for other in others)) for name, leaf in first.items()}


def state_map(function: Callable[[Tensor], Tensor], state: State) -> State:
    """The function applied to every tensor of a state or message."""
    return {
        name: tree_map(function, part) if isinstance(part, dict) else function(part) for name, part in state.items()
    }


def stacked(w0: Tree, clients: int) -> Tree:
    """A copy for every client of parameters without a client axis."""
    return tree_map(lambda leaf: leaf.repeat(clients, *[1] * leaf.dim()), w0)


def broadcast(one: Tree, clients: int) -> Tree:
    """Parameters [1, ...] as seen by every client; a view that must not be written to."""
    return tree_map(lambda leaf: leaf.expand(clients, *leaf.shape[1:]), one)


def select(state: State, index: Tensor) -> State:
    """The clients at the given positions; a view of the state if these are consecutive."""
    run = _run(index)
    return state_map(lambda leaf: leaf[index] if run is None else leaf[run], state)


def _run(index: Tensor) -> slice | None:
    """The positions as a slice if they are consecutive: then nothing has to be copied."""
    if not len(index):
        return None
    first = int(index[0])
    following = torch.arange(first, first + len(index), device=index.device)
    return slice(first, first + len(index)) if torch.equal(index, following) else None


def put(state: State, index: Tensor, part: State) -> None:
    """Write the clients at the given positions; a part that is a view of the state is in place already."""
    run = _run(index)
    flat, given = pack(state), pack(part)
    for name, leaf in flat.items():
        if not leaf.numel():
            continue
        if run is None:
            leaf.index_copy_(0, index.to(leaf.device), given[name])
        elif leaf[run].data_ptr() != given[name].data_ptr():
            leaf[run].copy_(given[name])


def update(state: State, index: Tensor, part: State) -> State:
    """A state in which the clients at the given positions are replaced."""
    run = _run(index)

    def replaced(old: Tensor, new: Tensor) -> Tensor:
        if run is not None and len(index) == len(old):
            return new
        return old.index_copy(0, index.to(old.device), new)

    changed: State = {}
    for name, old in state.items():
        new = part[name]
        if isinstance(old, dict) and isinstance(new, dict):
            changed[name] = tree_map(replaced, old, new)
        elif isinstance(old, Tensor) and isinstance(new, Tensor):
            changed[name] = replaced(old, new)
        else:
            raise TypeError(f"{name!r} is a tree on one side and a tensor on the other")
    return changed


def apart(state: State, clients: int) -> list[State]:
    """The state of each client separately, leaves [1, ...]: views of the whole."""
    return [state_map(lambda leaf, at=at: leaf[at : at + 1], state) for at in range(clients)]  # type: ignore[misc]


def together(parts: list[State]) -> State:
    """States of different clients, concatenated; the whole itself if they are the views that `apart` made of it."""

    def join(leaves: list[Tensor]) -> Tensor:
        whole = leaves[0]._base
        if whole is not None and len(whole) == len(leaves) and all(leaf._base is whole for leaf in leaves):
            rows = [whole[at : at + 1] for at in range(len(whole))]
            if [_place(row) for row in rows] == [_place(leaf) for leaf in leaves]:
                return whole
        return leaves[0] if len(leaves) == 1 else torch.cat(leaves)

    joined: State = {}
    for name, first in parts[0].items():
        if isinstance(first, dict):
            joined[name] = {leaf: join([tree(part[name])[leaf] for part in parts]) for leaf in first}
        else:
            joined[name] = join([tensor(part[name]) for part in parts])
    return joined


def _place(leaf: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    """Address, shape and strides of a tensor."""
    return leaf.data_ptr(), leaf.shape, leaf.stride()


def for_each(value_K: Tensor, leaf: Tensor) -> Tensor:
    """A value for every client in the shape of a leaf [K, ...]."""
    return value_K.view(-1, *[1] * (leaf.dim() - 1))


def either(here_K: Tensor, one: Tree, other: Tree) -> Tree:
    """The leaves of one tree for the clients that are here, those of the other for the rest."""
    return tree_map(lambda new, old: torch.where(for_each(here_K, new), new, old), one, other)


CACHED = 2**18  # entries that fit into a core's cache


def flatten(tree: Tree) -> Tensor:
    """All parameters of a client in a row, [K, P]; leaves in the order of their names."""
    return torch.cat([tree[name].flatten(1) for name in sorted(tree)], dim=1)


def mix(weights: Tensor, tree: Tree) -> Tree:
    """Weighted sums over clients: [M, K], dense or sparse, times [K, ...] gives [M, ...]."""
    return tree_map(lambda leaf: _mixed(weights.to(leaf.dtype), leaf), tree)


def _mixed(share: Tensor, leaf: Tensor) -> Tensor:
    if share.layout == torch.sparse_csr:
        return sparse_matmul(share, leaf.flatten(1).contiguous()).view(-1, *leaf.shape[1:])
    if leaf.dim() == 3 and leaf.shape[2] > 1 and len(share) > 1 and leaf.device.type == "cpu":
        # A product for every row: its operands stay in a CPU's cache, unlike those of one product of long rows.
        return torch.matmul(share, leaf.transpose(0, 1)).transpose(0, 1)
    return (share @ leaf.flatten(1)).reshape(-1, *leaf.shape[1:])


def tree(part: Tree | Tensor) -> Tree:
    """The part of a state or message that is known to be a tree."""
    if not isinstance(part, dict):
        raise TypeError(f"expected a tree of parameters, found a tensor of shape {list(part.shape)}")
    return part


def tensor(part: Tree | Tensor) -> Tensor:
    """The part of a state or message that is known to be a tensor."""
    if isinstance(part, dict):
        raise TypeError(f"expected a tensor, found a tree of {sorted(part)}")
    return part


def pack(state: Mapping[str, Tree | Tensor], prefix: str = "") -> Tree:
    """A flat dict of tensors for a file: the leaf `w` of the tree `weights` becomes `weights/w`."""
    flat: Tree = {}
    for name, part in state.items():
        if isinstance(part, dict):
            leaves = part or {"": torch.empty(0)}  # keeps a tree without leaves
            flat |= {f"{prefix}{name}/{leaf}": value for leaf, value in leaves.items()}
        else:
            flat[f"{prefix}{name}"] = part
    return flat


def unpack(flat: Tree, prefix: str = "") -> State:
    """The inverse of `pack`."""
    state: State = {}
    for key, value in flat.items():
        if not key.startswith(prefix):
            continue
        name, slash, leaf = key.removeprefix(prefix).partition("/")
        if leaf:
            tree(state.setdefault(name, {}))[leaf] = value
        else:
            state[name] = {} if slash else value
    return state


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors; of one, that tensor itself."""
    first, *others = parts
    for other in others:
        first = first + other
    return first
