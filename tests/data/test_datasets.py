from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import shutil
import stat
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedpub.cli import main
from fedpub.data import datasets
from fedpub.data.download import RawFile, cache_folder, data_root, locate
from fedpub.data.synthetic import SYNTHETIC
from fedpub.errors import FedpubError


@pytest.fixture
def server(tmp_path):
    """A web server on loopback that serves a folder."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(folder), **kwargs)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_missing_file_is_downloaded_once_and_checked(server, tmp_path):
    web, url = server
    (web / "part").write_bytes(b"content")
    file = RawFile("set/raw/part", f"{url}/part", hashlib.sha256(b"content").hexdigest())
    root = tmp_path / "root"
    assert locate("set", (file,), root) == root
    assert (root / "set/raw/part").read_bytes() == b"content"
    (web / "part").unlink()  # what is there is used
    assert locate("set", (file,), root) == root


def test_a_wrong_checksum_keeps_nothing(server, tmp_path):
    web, url = server
    (web / "part").write_bytes(b"tampered")
    file = RawFile("set/raw/part", f"{url}/part", hashlib.sha256(b"content").hexdigest())
    with pytest.raises(FedpubError, match="SHA-256"):
        locate("set", (file,), tmp_path / "root")
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def test_a_member_of_an_archive(server, tmp_path):
    web, url = server
    with zipfile.ZipFile(web / "all.zip", "w") as packed:
        packed.writestr("inner/a.csv", "1")
        packed.writestr("inner/b.csv", "2")
    files = tuple(RawFile(f"set/{name}", f"{url}/all.zip", member=f"inner/{name}") for name in ("a.csv", "b.csv"))
    root = locate("set", files, tmp_path / "root")
    assert [(root / file.path).read_text() for file in files] == ["1", "2"]
    with pytest.raises(FedpubError, match=r"set/c\.csv"):
        locate("set", (RawFile("set/c.csv", f"{url}/all.zip", member="inner/c.csv"),), tmp_path / "root")


def test_without_a_network_the_error_says_what_to_do(tmp_path, capsys):
    assert main(["data", "stats", "--dataset", "cora", "--clients", "5", "--data-root", str(tmp_path / "mine")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for words in ("planetoid/Cora/raw/ind.cora.x", str(tmp_path / "mine"), "--data-root", "'communities'"):
        assert words in said
    assert not (tmp_path / "mine/planetoid/Cora/raw/ind.cora.x").exists()


def test_the_data_root_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    assert data_root() == cache_folder()
    monkeypatch.setenv("FEDPUB_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    (tmp_path / "file").touch()
    with pytest.raises(FedpubError, match="not a folder"):
        data_root(tmp_path / "file")


def test_unknown_names_and_files():
    with pytest.raises(FedpubError, match="did you mean cora"):
        datasets.load("crora")
    with pytest.raises(FedpubError, match="no graph file"):
        datasets.load("my.graph")


def test_a_graph_file_stands_in_for_a_name(tmp_path):
    graph = replace(datasets.load("communities"), name="mine")
    graph.save(tmp_path / "mine.graph")
    assert datasets.load(str(tmp_path / "mine.graph")).digest() == graph.digest()


# How likely an edge is inside a community and between two, homophily or not.
PAPER_S_EDGES = {"communities-5-5-40": (0.5, 0.1), "communities-5-15": (0.7, 0.01)}


@pytest.mark.parametrize("name", list(SYNTHETIC))
def test_synthetic_graphs_have_the_communities_they_name(name):
    spec, graph = SYNTHETIC[name], datasets.load(name).validate()
    assert graph.num_nodes == sum(spec.subgraphs) * spec.nodes
    assert len(graph.client_names) == sum(spec.subgraphs)
    community = torch.repeat_interleave(torch.arange(len(spec.subgraphs)), torch.tensor(spec.subgraphs) * spec.nodes)
    inside = (community[graph.edges[0]] == community[graph.edges[1]]).sum()
    pairs_inside = sum(n * (n - 1) // 2 for n in (size * spec.nodes for size in spec.subgraphs))
    pairs_between = graph.num_nodes * (graph.num_nodes - 1) // 2 - pairs_inside
    between = graph.edges.shape[1] - int(inside)
    if name in PAPER_S_EDGES:
        assert (int(inside) / pairs_inside, between / pairs_between) == pytest.approx(PAPER_S_EDGES[name], abs=0.01)
    assert datasets.load(name).digest() == graph.digest()


def test_the_papers_community_sizes():
    assert SYNTHETIC["communities-5-5-40"].subgraphs == (5, 5, 40)
    assert SYNTHETIC["communities-5-15"].subgraphs == (5, 15)


def test_real_graphs_from_a_read_only_root(real_data, tmp_path, monkeypatch):
    root = tmp_path / "root"
    shutil.copytree(real_data / "planetoid/Cora", root / "planetoid/Cora")
    before = sorted(path for path in root.rglob("*"))
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "own"))
    first = datasets.load("cora", root)
    assert sorted(path for path in root.rglob("*")) == before
    assert [path.name for path in (tmp_path / "own/processed").iterdir()] == [f"cora-v{datasets.PROCESSED}.graph"]
    monkeypatch.setattr(datasets, "SOURCES", {"cora": replace(datasets.SOURCES["cora"], read=None)})
    assert datasets.load("cora", root).digest() == first.digest()  # the second time from the processed copy
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_changed_raw_files_are_noticed(real_data, tmp_path, monkeypatch):
    shutil.copytree(real_data / "amazon/Photo", tmp_path / "root/amazon/Photo")
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "own"))
    wrong = {"photo": replace(datasets.SOURCES["photo"], digest="0" * 64)}
    monkeypatch.setattr(datasets, "SOURCES", wrong)
    with pytest.raises(FedpubError, match="not the published graph"):
        datasets.load("photo", tmp_path / "root")
    assert not (tmp_path / "own/processed").exists()


def test_changed_features_are_noticed(real_data, tmp_path, monkeypatch):
    shutil.copytree(real_data / "twitch", tmp_path / "root/twitch")
    file = tmp_path / "root/twitch/PTBR/features.json"
    file.chmod(0o644)
    file.write_text(json.dumps({user: [0] for user in json.loads(file.read_text())}))
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "own"))
    with pytest.raises(FedpubError, match="not the published graph"):
        datasets.load("twitch", tmp_path / "root")


# Of the graphs as methods see them: the results in docs/ were computed on these.
NORMALISED = {
    "cora": (1433, "bdf9d363a79b"),
    "citeseer": (3703, "adf33d27fa0b"),
    "pubmed": (500, "4f4760dd46c3"),
    "computers": (767, "57b3f978cd59"),
    "photo": (745, "4eef862391f9"),
    "twitch": (3170, "03b7d75b5bd8"),
}


@pytest.mark.parametrize("name", list(NORMALISED))
def test_features_of_bags_of_words_are_normalised_per_row(real_data, name):
    graph = datasets.load(name)
    total = graph.x.to_dense().sum(1)
    assert ((total - 1).abs() < 1e-4).logical_or(total == 0).all()
    assert (graph.num_features, graph.digest()[:12]) == NORMALISED[name]


def test_arxivs_signed_features_stay_as_they_are(tmp_path, monkeypatch):
    """Made files in OGB's format: dividing a signed row by its sum would turn it round or blow it up."""
    rows = [[1.0, -0.99, 0.01], [-1.0, 0.25, 0.5], [0.5, -0.5, 0.0]]
    parts = {"edge": [[0, 1], [1, 2]], "node-label": [[0], [1], [0]], "node-feat": rows}
    folder = tmp_path / "root/ogb/ogbn_arxiv/raw"
    folder.mkdir(parents=True)
    for name, table in parts.items():
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in table)
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "own"))
    source = datasets.SOURCES["ogbn-arxiv"]
    digest = source.read(tmp_path / "root").digest(features=False)
    monkeypatch.setattr(datasets, "SOURCES", {"ogbn-arxiv": replace(source, digest=digest)})
    for copy in (None, "processed", "damaged"):  # from the raw files, then from the processed copy
        if copy == "damaged":
            (processed,) = (tmp_path / "own/processed").iterdir()
            processed.write_bytes(processed.read_bytes()[:-4])
        torch.testing.assert_close(datasets.load("ogbn-arxiv", tmp_path / "root").x, torch.tensor(rows), rtol=0, atol=0)


def test_twitch_has_seven_natural_clients(real_data):
    graph = datasets.load("twitch")
    sizes = torch.bincount(graph.client).tolist()
    assert dict(zip(graph.client_names, sizes, strict=True)) == {
        "DE": 9498, "ENGB": 7126, "ES": 4648, "FR": 6549, "PTBR": 1912, "RU": 4385, "ZHTW": 2772
    }  # fmt: skip
    assert (graph.client[graph.edges[0]] == graph.client[graph.edges[1]]).all()
    assert graph.classes == ("general", "mature")


def test_arxiv_without_features_serves_what_needs_none(real_data, capsys):
    if (Path(real_data) / "ogb/ogbn_arxiv/raw/node-feat.csv.gz").exists():
        pytest.skip("the features are at hand here")
    assert datasets.load("ogbn-arxiv", features=False).num_features == 0
    with pytest.raises(FedpubError, match=r"node-feat\.csv\.gz"):
        datasets.load("ogbn-arxiv")
    assert main(["data", "partition", "--dataset", "ogbn-arxiv", "--clients", "20"]) == 0
    assert "20 disjoint clients" in capsys.readouterr().out
