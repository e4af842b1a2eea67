"""A client's subgraph as a file: what a site gets when a graph is partitioned for a trial."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedpub.core.sparse import csr, from_scipy, to_scipy
from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.data.clients.links import Judged, Links
from fedpub.data.clients.subgraph import Subgraph
from fedpub.errors import FedpubError

FORMAT = "fedpub-subgraph-1"
PARTS = ("nodes", "edges", "y", "train", "val", "test")
IF_ANY = ("weight", "kind", "target")


def write_subgraph(path: Path, own: Subgraph, classes: tuple[str, ...]) -> None:
    x = from_scipy(own.x)
    tensors = {name: getattr(own, name) for name in PARTS}
    tensors |= {name: part for name in IF_ANY if (part := getattr(own, name)) is not None}
    tensors |= {"x.indptr": x.crow_indices(), "x.indices": x.col_indices(), "x.values": x.values()}
    if own.links:
        tensors |= {"links.train": own.links.train, "links.apart": own.links.apart}
        for name, judged in (("val", own.links.val), ("test", own.links.test)):
            tensors |= {f"links.{name}.pairs": judged.pairs, f"links.{name}.true": judged.true}
    header = {"format": FORMAT, "id": str(own.id), "propagation": own.propagation, "classes": json.dumps(classes)}
    header |= {"directed": str(own.directed), "kinds": str(own.num_kinds)}
    # Parts may be views of one tensor, which safetensors refuses.
    tensors = {name: part.clone() for name, part in tensors.items()}
    write_tensors(path, tensors, header | {"features": str(own.x.shape[1])})


def read_subgraph(path: Path) -> tuple[Subgraph, tuple[str, ...]]:
    """A subgraph and the names of all classes."""
    tensors, header = read_tensors(path)
    if header.get("format") != FORMAT:
        raise FedpubError(f"{path} is not a piece of a graph (format {header.get('format')!r}); divide the graph again")
    try:
        shape = (len(tensors["y"]), int(header["features"]))
        x = to_scipy(csr(tensors["x.indptr"], tensors["x.indices"], tensors["x.values"], shape))
        parts = {name: tensors[name] for name in PARTS} | {name: tensors.get(name) for name in IF_ANY}
        edges = {"directed": header.get("directed") == "True", "num_kinds": int(header.get("kinds", 1))}
        propagation = "mean" if header["propagation"] == "mean" else "symmetric"
        own = Subgraph(int(header["id"]), x=x, propagation=propagation, **edges, **parts)  # type: ignore[arg-type]
        return replace(own, links=_links(tensors, len(own.y))), tuple(json.loads(header["classes"]))
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FedpubError(f"{path} is damaged ({error}); divide the graph again") from error


def _links(tensors: dict[str, Tensor], num_nodes: int) -> Links | None:
    if "links.train" not in tensors:
        return None

    def judged(name: str) -> Judged:
        pairs = tensors[f"links.{name}.pairs"]
        return Judged(pairs, tensors[f"links.{name}.true"], torch.zeros(pairs.shape[1], dtype=torch.int64))

    return Links(tensors["links.train"], judged("val"), judged("test"), tensors["links.apart"], num_nodes)


def subgraph_digest(own: Subgraph) -> str:
    """SHA-256 of a client's data, so that a run is never resumed with different data."""
    sha = hashlib.sha256()
    x = own.x.copy()
    x.sort_indices()
    arrays = [getattr(own, name).numpy() for name in PARTS] + [x.indptr, x.indices, x.data]
    arrays += [part.numpy() for name in IF_ANY if (part := getattr(own, name)) is not None]
    sha.update(b"directed" if own.directed else b"")
    if own.links:
        arrays += [own.links.train.numpy(), own.links.val.pairs.numpy(), own.links.test.pairs.numpy()]
    for array in arrays:
        sha.update(f"{array.shape}{array.dtype}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
