"""A personal model as two files, to be used without the run that made it.

model.safetensors   the weights; if many of them are zero, only the others and their positions
config.json         the card: the use of the weights, and the graphs that they expect
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpub.core.files import write_text
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.core.tree import Tree
from fedpub.errors import FedpubError
from fedpub.models import MODELS, Model
from fedpub.models.fallback import apart, chosen
from fedpub.store.model_card import FORMAT, ModelCard

WEIGHTS, CARD = "model.safetensors", "config.json"
ENTRY = 80  # approximate bytes of a tensor's entry in the header of a file


def save_model(folder: Path, weights: Tree, card: ModelCard, own: Model | None = None) -> None:
    """Save one client's weights, leaves [1, ...], and their card; an existing model is replaced.

    Zeros lose their sign. `own` is the model if the card is of an object, here and below.
    """
    weights, card = settled(weights, card, own)
    check_weights(weights, card.check(), str(folder), own)
    stored: Tree = {}
    for name, leaf in weights.items():
        stored |= {name + part: tensor for part, tensor in _stored(leaf).items()}
    text, shapes = card.to_json(), {name: list(leaf.shape) for name, leaf in weights.items()}
    # A model cannot be used without its card: a kill never leaves new weights with an old card.
    (folder / CARD).unlink(missing_ok=True)
    write_tensors(folder / WEIGHTS, stored, {"format": FORMAT, "shapes": json.dumps(shapes, sort_keys=True)})
    write_text(folder / CARD, text)


def load_model(folder: Path, own: Model | None = None) -> tuple[Tree, ModelCard]:
    """Load a model written by `save_model`: dense leaves [1, ...] and the card."""
    path = folder / WEIGHTS
    stored, header = read_tensors(path)
    if header.get("format") != FORMAT:
        raise FedpubError(
            f"{path} holds no model of fedpub (its format is {header.get('format')!r}, not {FORMAT!r}); "
            "give another folder"
        )
    card = ModelCard.read(folder / CARD)
    try:
        shapes: dict[str, list[int]] = dict(json.loads(header["shapes"]))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, "its header does not name the weights") from error
    _check_shapes(shapes, card, str(path), own)
    weights = {name: _dense(stored, name, shape, path) for name, shape in shapes.items()}
    check_weights(weights, card, str(path), own)
    return weights, card


def settled(weights: Tree, card: ModelCard, own: Model | None = None) -> tuple[Tree, ModelCard]:
    """The model that a client uses, if it could choose between two."""
    fallback = chosen(weights)
    if fallback is None:
        return weights, card
    first, second = apart(weights)
    if not fallback.any():
        return first, card
    shapes = {name: list(leaf.shape) for name, leaf in second.items()}
    firsts = {name: kind().inputs[0] for name, kind in MODELS.items()}
    widths = {name: second[first].shape[-1] for name, first in firsts.items() if first in second}
    cards = [card, *(replace(card, model=name, hidden=width) for name, width in widths.items())]
    return second, next((one for one in cards if one.shapes(own) == shapes), card)


def _check_shapes(shapes: Mapping[str, Any], card: ModelCard, place: str, own: Model | None) -> None:
    wanted = card.shapes(own)
    for name in sorted(wanted.keys() | shapes.keys()):
        if name not in shapes:
            raise FedpubError(f"{place} lacks the weights {name!r}, which its card needs; save the model again")
        if name not in wanted:
            raise FedpubError(f"{place} has the weights {name!r}, which its card does not know; save the model again")
        if shapes[name] != wanted[name]:
            raise FedpubError(
                f"{place} has weights {name!r} of shape {shapes[name]}, but its card needs {wanted[name]}; "
                "save the model again"
            )


def check_weights(weights: Tree, card: ModelCard, place: str, own: Model | None = None) -> None:
    """Raise an error unless the weights match the card."""
    _check_shapes({name: list(leaf.shape) for name, leaf in weights.items()}, card, place, own)
    for name, leaf in weights.items():
        if leaf.dtype != getattr(torch, card.dtype):
            kind = str(leaf.dtype).removeprefix("torch.")
            raise FedpubError(
                f"{place} has weights {name!r} of type {kind}, but its card says {card.dtype}; save the model again"
            )


def _stored(leaf: Tensor) -> Tree:
    """The leaf as it is, its non-zeros with their positions (bits or numbers), or its non-zero rows.

    The form with the fewest bytes is chosen.
    """
    rows_RH = leaf.detach().cpu().numpy().reshape(-1, leaf.shape[-1])
    kept_RH = rows_RH != 0
    kept_R = kept_RH.any(1)
    some, index = rows_RH[kept_RH], np.flatnonzero(kept_RH)
    ways = [
        {"": rows_RH.reshape(leaf.shape).copy()},  # a copy: safetensors refuses views of the same memory
        {"/values": some, "/bits": np.packbits(kept_RH)},
        {"/values": rows_RH[kept_R].ravel(), "/rows": np.packbits(kept_R)},
    ]
    if kept_RH.size <= 2**32:
        ways.append({"/values": some, "/index": index.astype(np.uint32)})
    smallest = min(ways, key=lambda way: sum(part.nbytes + ENTRY for part in way.values()))
    return {name: torch.from_numpy(part) for name, part in smallest.items()}


def _dense(stored: Tree, name: str, shape: list[int], path: Path) -> Tensor:
    """The inverse of `_stored`."""
    if name in stored:
        return stored[name]
    values, width = stored.get(f"{name}/values"), shape[-1]
    how = next((how for how in ("bits", "rows", "index") if f"{name}/{how}" in stored), None)
    if values is None or how is None:
        raise damaged(path, f"it has no weights {name!r}")
    where = stored[f"{name}/{how}"]
    kinds = (torch.uint32 if how == "index" else torch.uint8, True, 1, 1)
    if (where.dtype, values.dtype in (torch.float32, torch.float64), where.dim(), values.dim()) != kinds:
        raise damaged(path, f"the positions of {name!r} are of the wrong type")
    at = where.numpy().astype(np.int64) if how == "index" else np.flatnonzero(np.unpackbits(where.numpy()))
    if how == "rows":
        at = (at[:, None] * width + np.arange(width)).ravel()
    if len(at) != len(values):
        raise damaged(path, f"{name!r} has {len(values):,} values at {len(at):,} positions")
    dense = np.zeros(math.prod(shape), dtype=values.numpy().dtype)
    if len(at) and (at[-1] >= len(dense) or (np.diff(at) <= 0).any()):
        raise damaged(path, f"a position of {name!r} is out of range or out of order")
    dense[at] = values.numpy()
    return torch.from_numpy(dense).view(shape)


def damaged(path: Path, reason: str) -> FedpubError:
    return FedpubError(f"{path} is damaged: {reason}; save the model again")
