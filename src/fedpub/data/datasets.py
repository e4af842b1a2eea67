"""Graphs by name, and graphs from files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedpub.core.sparse import from_scipy, to_scipy
from fedpub.data.clients import split
from fedpub.data.download import RawFile, cache_folder, data_root, locate
from fedpub.data.graph import Graph, largest_component, row_normalised, undirected
from fedpub.data.synthetic import DRAWN, SYNTHETIC, communities_graph
from fedpub.errors import FedpubError, unknown

PROCESSED = 2  # increase it when the same raw files would give a different graph
SPARSE_BELOW = 0.2  # features with a smaller share of non-zeros are kept sparse


@dataclass(frozen=True)
class Source:
    """How a named graph is built from raw files, and the digest of the result."""

    files: tuple[RawFile, ...]
    read: Callable[[Path], Graph]
    digest: str  # of the whole graph; of structure and labels only if the features' digest is not known
    about: str
    connected: bool = True  # keep the largest component
    structure: tuple[str, ...] | None = None  # the files that are enough without features


def names() -> list[str]:
    return [*SOURCES, *(name for name in SYNTHETIC if name not in DRAWN)]


def about(name: str) -> str:
    """One line of description of a named graph."""
    if name in SOURCES:
        return SOURCES[name].about
    spec = SYNTHETIC[name]
    sizes = "/".join(map(str, spec.subgraphs))
    return f"generated from a seed: communities of {sizes} subgraphs, {spec.nodes} nodes each"


def load(name: str, root: Path | None = None, features: bool = True, labelled: bool = True) -> Graph:
    """A graph by its name, or from a file that `fedpub data import` wrote.

    Named graphs are reduced to the largest component and bags of words normalised per row, as in the paper; signed
    features (ogbn-arxiv) are left unchanged.
    Without `features`, a missing feature file is no error. A graph file that is not trained on need not be `labelled`.
    """
    if name in SYNTHETIC:
        return communities_graph(name, SYNTHETIC[name])
    if name in SOURCES:
        return _named(name, SOURCES[name], data_root(root), features)
    path = Path(name)
    if path.suffix.lower() in (".csv", ".parquet"):
        raise FedpubError(f"{name} is a table, not a graph; convert it with fedpub data import")
    if path.is_file():
        return Graph.load(path, labelled)
    if path.suffix or len(path.parts) > 1:
        raise FedpubError(
            f"there is no graph file {name}; create one with fedpub data import, or choose one of {', '.join(names())}"
        )
    raise unknown("dataset", name, names())


def absolute(name: str) -> str:
    """The absolute path of a graph file; the name of a named graph."""
    return name if name in SOURCES or name in SYNTHETIC or not Path(name).is_file() else str(Path(name).resolve())


def published_ratios(name: str) -> split.Ratios | None:
    """The ratios of the published split of a dataset; None for graphs that the paper does not use."""
    return split_ratios(name) if name in PAPER else None


def split_ratios(name: str) -> split.Ratios:
    """The ratios the paper uses for a dataset."""
    return split.LARGE if name == "ogbn-arxiv" else split.DEFAULT


def _named(name: str, source: Source, root: Path, features: bool) -> Graph:
    processed = cache_folder() / "processed" / f"{name}-v{PROCESSED}.graph"
    if processed.is_file():
        with suppress(FedpubError):  # a damaged copy is rebuilt
            return Graph.load(processed)
    files = source.files
    if not features and source.structure is not None:
        files = tuple(file for file in files if Path(file.path).name in source.structure)
    whole = replace(source.read(locate(name, files, root)), name=name)
    found = whole.digest(features=source.structure is None)
    if found != source.digest:
        raise FedpubError(
            f"the raw files of {name!r} under {root} are not the published graph (digest {found[:12]}, "
            f"expected {source.digest[:12]}); remove them so that they are downloaded again"
        )
    graph = row_normalised(largest_component(whole) if source.connected else whole).validate()
    if graph.num_features:
        graph.save(processed)
    return graph


def _planetoid(folder: str) -> Source:
    name = folder.lower()
    prefix = f"planetoid/{folder}/raw"
    url = "https://github.com/kimiyoung/planetoid/raw/master/data"
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(
        RawFile(f"{prefix}/ind.{name}.{part}", f"{url}/ind.{name}.{part}", sha256)
        for part, sha256 in zip(parts, PLANETOID_SHA256[name], strict=True)
    )

    def read(root: Path) -> Graph:
        from torch_geometric.io import read_planetoid_data

        data = read_planetoid_data(str(root / prefix), name)
        return _graph(data.x, data.y, data.edge_index)

    return Source(files, read, DIGESTS[name], f"{folder}, a citation graph (Planetoid)")


def _amazon(folder: str) -> Source:
    file = f"amazon_electronics_{folder.lower()}.npz"
    path = f"amazon/{folder}/raw/{file}"
    url = f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}"

    def read(root: Path) -> Graph:
        from torch_geometric.io import read_npz

        data = read_npz(str(root / path))
        return _graph(data.x, data.y, data.edge_index)

    return Source((RawFile(path, url),), read, DIGESTS[folder.lower()], f"Amazon {folder}, a co-purchase graph")


def _arxiv() -> Source:
    structure = ("edge.csv.gz", "node-label.csv.gz")
    url = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
    prefix = "ogb/ogbn_arxiv/raw"
    files = tuple(
        RawFile(f"{prefix}/{file}", url, member=f"arxiv/raw/{file}") for file in (*structure, "node-feat.csv.gz")
    )

    def read(root: Path) -> Graph:
        edges, labels = (_csv(root / prefix / file, np.int64) for file in structure)
        feature_file = root / prefix / "node-feat.csv.gz"
        x = _csv(feature_file, np.float32) if feature_file.is_file() else np.zeros((len(labels), 0), np.float32)
        return _graph(torch.from_numpy(x), torch.from_numpy(labels[:, 0]), torch.from_numpy(edges.T.copy()))

    about = "ogbn-arxiv made undirected, a citation graph of 169,343 papers (OGB)"
    return Source(files, read, DIGESTS["ogbn-arxiv"], about, structure=structure)


def _twitch() -> Source:
    url = "https://raw.githubusercontent.com/benedekrozemberczki/datasets/master/twitch"
    published = {country: country for country in TWITCH} | {"ZHTW": "TW"}
    files = []
    for country, there in published.items():
        for local, remote in (("edges.csv", "_edges.csv"), ("target.csv", "_target.csv"), ("features.json", ".json")):
            files.append(RawFile(f"twitch/{country}/{local}", f"{url}/{there}/{there}{remote}"))

    def read(root: Path) -> Graph:
        x, y, edges, client, offset = [], [], [], [], 0
        for index, country in enumerate(TWITCH):
            own = _twitch_country(root / "twitch" / country)
            x.append(own[0])
            y.append(own[1])
            edges.append(own[2] + offset)
            client.append(torch.full_like(own[1], index))
            offset += len(own[1])
        graph = _graph(from_scipy(sp.vstack(x)), torch.cat(y), torch.cat(edges, 1), ("general", "mature"))
        return replace(graph, client=torch.cat(client), client_names=TWITCH)

    about = "Twitch users of seven countries, seven natural clients; label: mature content (MUSAE)"
    return Source(tuple(files), read, DIGESTS["twitch"], about, connected=False)


def _twitch_country(folder: Path) -> tuple[sp.csr_matrix, Tensor, Tensor]:
    from pyarrow import csv

    target = csv.read_csv(folder / "target.csv").to_pydict()
    # One country lists two users twice: the later row is the same user, so the labels agree.
    label = dict(zip(target["new_id"], target["mature"], strict=True))
    y = torch.tensor([int(label[node]) for node in range(len(label))])
    edges = csv.read_csv(folder / "edges.csv").to_pydict()
    games = json.loads((folder / "features.json").read_text())
    rows = np.repeat(np.arange(len(y)), [len(games[str(node)]) for node in range(len(y))])
    columns = np.concatenate([np.asarray(games[str(node)], np.int64) for node in range(len(y))])
    x = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(y), TWITCH_FEATURES))
    x.data[:] = 1  # a game listed twice is one game
    return x, y, torch.tensor([edges["from"], edges["to"]])


def _graph(x: Tensor, y: Tensor, edge_index: Tensor, classes: tuple[str, ...] | None = None) -> Graph:
    if x.layout == torch.strided and x.numel() and torch.count_nonzero(x) < SPARSE_BELOW * x.numel():
        x = from_scipy(to_scipy(x))
    names = classes or tuple(str(label) for label in range(int(y.max()) + 1))
    return Graph(x, y, undirected(edge_index, len(y)), names)


def _csv(path: Path, dtype: type) -> np.ndarray:
    from pyarrow import csv

    with gzip.open(path) as file:
        table = csv.read_csv(file, read_options=csv.ReadOptions(autogenerate_column_names=True))
    return np.stack([column.to_numpy().astype(dtype) for column in table.columns], axis=1)


PAPER = ("cora", "citeseer", "pubmed", "computers", "photo", "ogbn-arxiv")
TWITCH = ("DE", "ENGB", "ES", "FR", "PTBR", "RU", "ZHTW")
TWITCH_FEATURES = 3170
PLANETOID_SHA256 = {  # x, tx, allx, y, ty, ally, graph, test.index
    "cora": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "pubmed": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
}
DIGESTS = {
    "cora": "75ef5d7fd3ae03c3e38e66e37c6373bd52fb1e80cc78eda162a4d95aac9eb833",
    "citeseer": "04b4c515e8e45d2f5fdc88f1b4f998161e5333c1ab58a8e0b11373a703c10bdb",
    "pubmed": "339b3d951331901d78483bcacd904460d62000b5570b22e6d2e7600752fd2567",
    "computers": "79e6191500b80b7366ffa5297115b6a637401c9759e60fe802ba7548d6e0e174",
    "photo": "eeebe8d33056f31832371b0c0856d93ab45a0360709393fe96bc424f2145c874",
    "ogbn-arxiv": "c6754b650abb84e048bee7ab15257b5011f38f5dcb4a5f54e74c95188a2476ad",
    "twitch": "9c4c47465be79475bdd49357e29ec9870203da47b2ef76316bbf3f564cd469ca",
}
SOURCES: dict[str, Source] = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "computers": _amazon("Computers"),
    "photo": _amazon("Photo"),
    "ogbn-arxiv": _arxiv(),
    "twitch": _twitch(),
}
