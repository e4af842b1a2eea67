"""A user's own graph: what the columns become, and one sentence for everything that can be wrong."""

from __future__ import annotations

import csv
import json
import tempfile
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import fedpub
from fedpub.cli import main
from fedpub.core.sparse import to_scipy
from fedpub.data.graph import Graph
from fedpub.data.tables import Imported, from_networkx, from_pyg, from_tables
from fedpub.data.tables.aims import fit_classes
from fedpub.data.tables.encoding import Column, Encoding
from fedpub.errors import FedpubError
from small import refused

NODES = """id,age,city,active,label
007,1,Ulm,true,b
8,3,Bonn,false,a
x,5,Ulm,true,b
"""
EDGES = """source,target
007,8
8,x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, so that files go by their bare names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(nodes: str = NODES, edges: str = EDGES) -> None:
    Path("nodes.csv").write_text(nodes, encoding="utf-8")
    Path("edges.csv").write_text(edges, encoding="utf-8")


def load(*nodes: str, **options: object) -> Imported:
    paths = [Path(name) for name in nodes or ("nodes.csv",)]
    return from_tables(paths, [Path("edges.csv")], **{"id_column": "id", "label_column": "label", **options})


def command(*extra: str, nodes: str = "nodes.csv") -> list[str]:
    required = ["--nodes", *nodes.split(), "--edges", "edges.csv", "--id", "id", "--label", "label"]
    return ["data", "import", *required, *([] if "--out" in extra else ["--out", "my.graph"]), *extra]


def dense(graph: Graph) -> list[list[float]]:
    return to_scipy(graph.x).toarray().tolist()


# What columns become


def test_every_kind_of_column_by_hand() -> None:
    write()
    graph = load().graph
    z = 2 / np.sqrt(8 / 3)  # 1, 3, 5: mean 3, variance (4 + 0 + 4) / 3
    expected = [[-z, 0, 1, 1], [0, 1, 0, 0], [z, 0, 1, 1]]  # age, city=Bonn, city=Ulm, active
    torch.testing.assert_close(graph.x, torch.tensor(expected, dtype=torch.float32))
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.classes == ("a", "b")
    assert graph.node_ids == ("007", "8", "x")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.client is None


def test_columns_that_are_left_out_say_why() -> None:
    rows = "".join(f"{i},7,same,true,2024-01-01,,name{i},{i},{i % 2}\n" for i in range(101))
    write("id,c,t,b,day,empty,name,kept,label\n" + rows, "u,v\n0,1\n")
    imported = load()
    fates = imported.columns
    assert [c.name for c in imported.encoding.columns] == ["kept"]
    assert fates["id"] == "node id"
    assert fates["label"] == "label"
    assert fates["c"] == "left out: always 7"
    assert fates["t"] == "left out: always same"
    assert fates["b"] == "left out: always true"
    assert fates["day"] == "left out: always 2024-01-01"
    assert fates["empty"] == "left out: every cell is empty"
    assert fates["name"].startswith("left out: text with 101 different values, more than 100; group them")


def test_a_hundred_categories_are_one_hot_and_sparse() -> None:
    rows = "".join(f"{i},name{i:03},{i > 49},{i % 2}\n" for i in range(100))
    write("id,name,late,label\n" + rows, "u,v\n0,1\n")
    graph = load().graph
    assert graph.x.layout == torch.sparse_csr
    assert dense(graph) == np.column_stack([np.eye(100), np.arange(100) > 49]).tolist()
    assert graph.x.values().numel() == 150, "no zero is stored"


def test_sixty_four_categories_stay_dense() -> None:
    write("id,name,label\n" + "".join(f"{i},n{i:02},{i % 2}\n" for i in range(64)), "u,v\n0,1\n")
    assert load().graph.x.layout == torch.strided


def test_a_constant_fraction_is_constant_despite_rounding() -> None:
    write("id,x,w,label\n" + "".join(f"{i},0.1,{i},{i % 2}\n" for i in range(3)), "u,v\n0,1\n")
    assert np.full(3, 0.1).std() > 0
    assert load().columns["x"] == "left out: always 0.1"


def test_without_features_the_degree_is_the_feature() -> None:
    write("id,label\na,1\nb,2\nc,1\n", "u,v\na,b\nb,c\n")
    imported = load()
    low, high = np.log(2), np.log(3)  # degrees 1, 2, 1
    mean = (2 * low + high) / 3
    std = np.sqrt((2 * (low - mean) ** 2 + (high - mean) ** 2) / 3)
    np.testing.assert_allclose(imported.graph.x.flatten(), [(v - mean) / std for v in (low, high, low)], rtol=1e-6)
    assert any("log(1 + degree)" in note for note in imported.notes)
    # Another site is measured with the same rule, not with its own: here all degrees are 1.
    write("id,label\na,1\nb,2\n", "u,v\na,b\n")
    np.testing.assert_allclose(load(like=imported.encoding).graph.x.flatten(), [(low - mean) / std] * 2, rtol=1e-6)


def test_where_all_degrees_are_equal_they_are_kept_as_they_are() -> None:
    write("id,label\na,1\nb,2\n", "u,v\na,b\n")
    np.testing.assert_allclose(load().graph.x.flatten(), [np.log(2)] * 2, rtol=1e-6)


def test_missing_labels_are_unlabelled_and_counted() -> None:
    write("id,x,label\na,1,yes\nb,2,\nc,3,NA\nd,4,no\n", "u,v\na,b\n")
    imported = load()
    assert imported.graph.y.tolist() == [1, -1, -1, 0]
    assert "2 of 4 nodes have no label" in imported.notes


def test_self_loops_and_repeated_edges_are_dropped_and_counted() -> None:
    write(edges=EDGES + "8,007\n8,8\n007,8\nx,x\nx,x\n")
    imported = load()
    assert imported.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert "edges dropped: 3 self-loops, 2 repeated (in either direction)" in imported.notes


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["10.0", "9.0"], ("9.0", "10.0")),
        (["10", "9", "a"], ("10", "9", "a")),
        (["nan", "1"], ("1", "nan")),
    ],
)
def test_classes_are_sorted_as_numbers_where_all_are(labels: list[str], classes: tuple[str, ...]) -> None:
    assert fit_classes(labels) == classes


def test_an_id_or_a_client_may_be_called_na() -> None:
    write("id,x,who,label\nNA,1,null,a\nb,2,NA,b\n", "u,v\nNA,b\n")
    graph = load(client_column="who").graph
    assert graph.node_ids == ("NA", "b")
    assert graph.client_names == ("NA", "null")


# Files


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("weight,target,source", {}),
        ("weight,from,to", {"source_column": "to", "target_column": "from"}),
    ],
)
def test_the_ends_of_an_edge_are_found_by_name(header: str, options: dict[str, str]) -> None:
    write(edges=f"{header}\n1,007,8\n1,8,x\n")
    assert load(**options).graph.edges.tolist() == [[0, 1], [1, 2]]


def test_without_such_names_the_first_two_columns_are_the_ends() -> None:
    write(edges="a,b,source\n007,8,1\n8,x,1\n")
    assert load().graph.edges.tolist() == [[0, 1], [1, 2]]


def test_several_edge_files_are_one_list() -> None:
    write(edges="source,target\n007,8\n")
    Path("more.csv").write_text("a,b\n8,x\n")
    imported = from_tables(
        [Path("nodes.csv")], [Path("edges.csv"), Path("more.csv")], id_column="id", label_column="label"
    )
    assert imported.graph.edges.tolist() == [[0, 1], [1, 2]]


def test_parquet_and_csv_give_the_same_graph() -> None:
    write()
    as_text = pyarrow.csv.ConvertOptions(column_types={"id": pa.string()})
    table = pyarrow.csv.read_csv("nodes.csv", convert_options=as_text)
    city = table.column_names.index("city")
    table = table.set_column(city, "city", table["city"].dictionary_encode())
    pq.write_table(table, "nodes.parquet")
    pq.write_table(pa.table({"source": ["007", "8"], "target": ["8", "x"]}), "edges.parquet")
    other = from_tables([Path("nodes.parquet")], [Path("edges.parquet")], id_column="id", label_column="label").graph
    assert other.digest() == load().graph.digest()
    assert other.node_ids == load().graph.node_ids
    assert other.meta == load().graph.meta


def test_parquet_integers_and_nan_serve_as_ids_and_labels() -> None:
    write(edges="u,v\n1,2\n")
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1, 2, 3], "label": [10.0, float("nan"), 9.0]}), "nodes.parquet")
    graph = load("nodes.parquet").graph
    assert graph.node_ids == ("1", "2", "3")
    assert graph.classes == ("9", "10")
    assert graph.y.tolist() == [1, -1, 0]


# Natural clients


def test_clients_by_column() -> None:
    write("id,x,bank,label\na,1,south,0\nb,2,north,1\nc,3,south,1\n", "u,v\na,b\n")
    imported = load(client_column="bank")
    assert imported.graph.client_names == ("north", "south")
    assert imported.graph.client is not None
    assert imported.graph.client.tolist() == [1, 0, 1]
    assert imported.columns["bank"] == "client"
    assert [c.name for c in imported.encoding.columns] == ["x"]
    assert "2 clients: north (1 nodes), south (2 nodes)" in imported.notes


def test_clients_by_file() -> None:
    Path("south.csv").write_text("id,code,label\na,A1,0\nb,007,1\n")
    Path("north.csv").write_text("label,code,id\n1,007,c\n")  # its code alone would be a number
    Path("edges.csv").write_text("u,v\na,c\n")
    graph = load("south.csv", "north.csv").graph
    assert graph.client_names == ("north", "south")
    assert graph.client is not None
    assert graph.client.tolist() == [1, 1, 0]
    assert dense(graph) == [[0, 1], [1, 0], [1, 0]]  # 007, A1
    assert graph.edges.tolist() == [[0], [2]]


# Another site that must encode alike


def test_like_applies_the_first_sites_encoding() -> None:
    write()
    first = load()
    write("id,active,city,extra,age,label\np,0,Bonn,9,3,a\nq,1,Bonn,8,11,a\n", "u,v\np,q\n")
    second = load(like=first.encoding)
    z = 8 / np.sqrt(8 / 3)  # 11, with the first site's mean 3
    torch.testing.assert_close(second.graph.x, torch.tensor([[0, 1, 0, 0], [z, 1, 0, 1]], dtype=torch.float32))
    assert second.graph.classes == ("a", "b")
    assert second.graph.y.tolist() == [0, 0]
    assert second.encoding == first.encoding
    assert second.columns["extra"] == "left out: not in the given encoding"


@pytest.mark.parametrize(
    "nodes", ["id,active,city,age,label\np,0,Bonn,3,\nq,1,Bonn,11,\n", "id,active,city,age\np,0,Bonn,3\nq,1,Bonn,11\n"]
)
def test_like_takes_nodes_that_nobody_has_labelled(nodes: str) -> None:
    """Without labels or without the column: such a graph is there to be predicted."""
    write()
    first = load()
    write(nodes, "u,v\np,q\n")
    second = load(like=first.encoding)
    assert second.graph.y.tolist() == [-1, -1]
    assert second.graph.classes == ("a", "b")
    assert "2 of 2 nodes have no label" in second.notes
    assert (
        "there is no column 'label', so no node has a label; the columns are id, active, city, age" in second.notes
    ) == ("label" not in nodes)
    with pytest.raises(FedpubError, match="label"):
        load()


def test_an_encoding_can_be_read_of_a_graph_without_labels(tmp_path: Path) -> None:
    write()
    first = load()
    write("id,active,city,age\np,0,Bonn,3\nq,1,Bonn,11\n", "u,v\np,q\n")
    load(like=first.encoding).graph.save(tmp_path / "new.graph")
    assert Encoding.read(tmp_path / "new.graph") == first.encoding


def test_like_through_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert main(command("--encoding-out", "shared.json")) == 0
    for like in ("my.graph", "shared.json"):
        again = command("--like", like)
        again[again.index("--out") + 1] = f"{like}.again.graph"
        assert main(again) == 0
        assert Graph.load(Path(f"{like}.again.graph")).digest() == Graph.load(Path("my.graph")).digest()
    assert "007" not in Path("shared.json").read_text(), "the encoding holds no row"


@pytest.mark.parametrize(
    ("nodes", "parts"),
    [
        ("id,age,city,active,label\na,1,Ulm,1,a\nb,1,Rom,1,a\n", ["nodes.csv, line 3", "'city'", "'Rom'", "Bonn, Ulm"]),
        (
            "id,age,city,active,label\na,1,Ulm,1,a\nb,1,Ulm,1,z\n",
            ["nodes.csv, line 3", "'z'", "given with like", "import every"],
        ),
        ("id,age,city,active,label\na,old,Ulm,1,a\nb,1,Ulm,1,a\n", ["nodes.csv, line 2", "'old'", "not a number"]),
        ("id,age,city,active,label\na,1,Ulm,1,a\nb,1,Ulm,5,a\n", ["nodes.csv, line 3", "'active'", "'5'", "correct"]),
        ("id,age,city,active,label\na,1,Ulm,1,a\nb,,Ulm,1,a\n", ["nodes.csv, line 3", "'age' is missing", "encoding"]),
        ("id,ages,city,active,label\na,1,Ulm,1,a\nb,1,Ulm,1,a\n", ["nodes.csv", "'age'", "did you mean", "ages"]),
    ],
)
def test_what_the_encoding_does_not_know_is_refused(nodes: str, parts: list[str]) -> None:
    write()
    encoding = load().encoding
    write(nodes, "u,v\na,b\n")
    with pytest.raises(FedpubError) as caught:
        load(like=encoding)
    for part in parts:
        assert part in str(caught.value)


def test_a_column_that_like_needs_cannot_be_dropped() -> None:
    write()
    with pytest.raises(FedpubError, match=r"nodes.csv: .*like needs the column 'age'.*do not drop it"):
        load(like=load().encoding, drop=["age"])


def test_like_must_hold_an_encoding() -> None:
    graph = from_pyg(Data(x=torch.ones(2, 1), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]])))
    graph.save(Path("plain.graph"))
    Path("list.json").write_text("[]")
    for path in ("plain.graph", "list.json"):
        with pytest.raises(FedpubError, match=rf"{path} has no encoding.*fedpub data import"):
            Encoding.read(Path(path))
    with pytest.raises(FedpubError, match=r"there is no file gone.json"):
        Encoding.read(Path("gone.json"))


def test_an_encoding_survives_json() -> None:
    columns = (
        Column("x", "numeric", 0.1, 1 / 3),
        Column("ü", "category", categories=("a", "ß")),
        Column("b", "boolean"),
    )
    encoding = Encoding(columns, ("0", "1"))
    assert Encoding.from_json(json.dumps(json.loads(encoding.to_json()))) == encoding


# One sentence for everything that can be wrong: the file, the line, the remedy

MULTILINE = 'id,age,city,label\na,1,"two\nlines",x\n\nb,{age},Ulm,y\n'  # b stands on line 5, as an editor counts

WRONG = {
    "label column": (NODES.replace("label", "lable"), EDGES, [], ["nodes.csv", "'label'", "did you mean", "lable"]),
    "id column": (NODES.replace("id,", "node_id,"), EDGES, [], ["nodes.csv", "id column 'id'", "node_id"]),
    "drop column": (NODES, EDGES, ["--drop", "agee"], ["nodes.csv", "'agee'", "did you mean age"]),
    "client column": (NODES, EDGES, ["--client", "cty"], ["nodes.csv", "'cty'", "did you mean city"]),
    "source column": (NODES, EDGES, ["--source", "sorce", "--target", "target"], ["edges.csv", "'sorce'", "source"]),
    "only a source": (NODES, EDGES, ["--source", "source"], ["--source", "--target", "give both"]),
    "one edge column": (NODES, "source\n007\n", [], ["edges.csv", "two columns", "'source'"]),
    "duplicate id": (
        NODES + "8,1,Ulm,true,a\n",
        EDGES,
        [],
        ["nodes.csv, line 5", "'8'", "nodes.csv, line 3", "own id"],
    ),
    "id of the row before": (NODES + "x,1,Ulm,true,a\n", EDGES, [], ["nodes.csv, line 5", "'x'", "nodes.csv, line 4"]),
    "no id": (NODES + ",1,Ulm,true,a\n", EDGES, [], ["nodes.csv, line 5", "'id' is empty", "give every node an id"]),
    "unknown node": (NODES, EDGES + "8,9\n", [], ["edges.csv, line 4", "target '9'", "nodes.csv", "add the node"]),
    "no end": (NODES, EDGES + ",8\n", [], ["edges.csv, line 4", "source is empty", "remove the edge"]),
    "missing number": (
        MULTILINE.format(age=""),
        "u,v\na,b\n",
        [],
        ["nodes.csv, line 5", "'age' is missing", "--drop age"],
    ),
    "infinite": (
        MULTILINE.format(age="inf"),
        "u,v\na,b\n",
        [],
        ["nodes.csv, line 5", "'age' is not finite", "--drop age"],
    ),
    "too large": (
        MULTILINE.format(age="1e200"),
        "u,v\na,b\n",
        [],
        ["nodes.csv, line 5", "too large (1e+200)", "--drop age"],
    ),
    "missing text": (NODES + "9,1,,true,a\n", EDGES, [], ["nodes.csv, line 5", "'city' is missing", "--drop city"]),
    "missing truth": (NODES + "9,1,Ulm,,a\n", EDGES, [], ["nodes.csv, line 5", "'active' is missing", "--drop active"]),
    "missing client": (
        NODES + "9,1,,true,a\n",
        EDGES,
        ["--client", "city"],
        ["nodes.csv, line 5", "'city'", "a client"],
    ),
    "a typing error among numbers": (
        "id,x,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(200)) + "z,1O,1\n",
        "u,v\n0,1\n",
        [],
        ["nodes.csv, line 202", "'1O'", "'x' is not a number", "--drop x"],
    ),
    "single class": (NODES.replace(",b\n", ",a\n"), EDGES, [], ["nodes.csv", "'label' is 'a'", "at least two classes"]),
    "no label": ("id,x,label\na,1,\nb,2,\n", "u,v\na,b\n", [], ["nodes.csv", "'label' is empty", "label at least one"]),
    "no nodes": ("id,age,label\n", EDGES, [], ["nodes.csv has no rows", "at least one node"]),
    "empty file": ("", EDGES, [], ["nodes.csv is empty", "first line must name the columns"]),
    "no edges": (
        NODES,
        "source,target\n8,8\n",
        [],
        ["edges.csv: no edge joins two different nodes", "at least one edge"],
    ),
    "ragged row": (NODES + "9,1,Ulm, Bonn,true,a\n", EDGES, [], ["nodes.csv, line 5", "6 cells", "5", "double quotes"]),
    "twice the same column": (NODES.replace("age", "id"), EDGES, [], ["nodes.csv", "2 columns 'id'", "its own name"]),
    "output is input": (
        NODES,
        EDGES,
        ["--out", "nodes.csv", "--force"],
        ["nodes.csv is one of the tables to read", "another"],
    ),
    "encoding not json": (NODES, EDGES, ["--encoding-out", "e.txt"], ["e.txt", "--encoding-out", ".json"]),
    "no such like": (NODES, EDGES, ["--like", "gone.graph"], ["there is no file gone.graph"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_sentence_and_nothing_written(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, edges, extra, parts = WRONG[case]
    write(nodes, edges)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(command(*extra)) == 2
    message = capsys.readouterr().err
    for part in parts:
        assert part in message
    assert message.count("\n") == 1, "one sentence, on one line"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"a.csv": "id,x,label\n1,1,a\n", "b.csv": "id,y,label\n2,1,b\n"}, ["b.csv has no column 'x'", "same columns"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "b.csv": "id,x,label\n2,1,b\n1,2,b\n"}, ["b.csv, line 3", "a.csv, line 2"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "b.csv": "id,x,label\n2,NaN,b\n"}, ["b.csv, line 2", "'x' is missing"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "b.csv": "id,x,label\n"}, ["b.csv has no rows", "at least one node"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "sub/a.csv": "id,x,label\n2,2,b\n"}, ["a.csv", "also called 'a'", "rename"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "gone.csv": None}, ["there is no file gone.csv"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "b.tsv": "id\tx\tlabel\n"}, ["b.tsv", "'.tsv'", ".csv or .parquet"]),
        ({"a.csv": "id,x,label\n1,1,a\n", "b.parquet": "id,x,label\n"}, ["b.parquet cannot be read", "as Parquet"]),
    ],
)
def test_errors_name_the_right_one_of_several_files(
    files: dict[str, str | None], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("edges.csv").write_text("u,v\n1,2\n")
    for name, text in files.items():
        if text is not None:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
    assert main(command(nodes=" ".join(files))) == 2
    message = capsys.readouterr().err
    for part in parts:
        assert part in message
    assert not Path("my.graph").exists()


def test_clients_by_file_and_by_column_at_once() -> None:
    write()
    with pytest.raises(FedpubError, match="clients are given twice, by 2 node files and by the column 'city'"):
        load("nodes.csv", "nodes.csv", client_column="city")


def test_parquet_errors_count_rows() -> None:
    write()
    pq.write_table(pa.table({"id": ["a", "b", "a"], "label": ["x", "y", "y"]}), "nodes.parquet")
    with pytest.raises(FedpubError, match=r"nodes.parquet, row 3: node id 'a' is also that of nodes.parquet, row 1"):
        load("nodes.parquet")


def test_text_in_another_encoding_is_named() -> None:
    write()
    Path("nodes.csv").write_bytes("id,city,label\na,Köln,x\nb,Ulm,y\n".encode("latin-1"))
    with pytest.raises(FedpubError, match=r"nodes.csv: column 'city' is not in UTF-8; save the file as UTF-8"):
        load()


# The verb


def test_the_verb_prints_what_became_of_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    write("id,[red]age,city,day,label\n007,1,Ulm,2024-01-01,b\n8,3,Bonn,2024-01-02,\nx,5,Ulm,2024-01-03,a\n")
    assert main(command("--drop", "city")) == 0
    out = capsys.readouterr().out
    for part in (
        "[red]age",
        "standardised",
        "left out on request",
        "the day",
        "1 of 3 nodes have no label",
        "my.graph",
    ):
        assert part in out
    graph = Graph.load(Path("my.graph"))
    assert graph.name == "my"
    assert graph.digest() == load(drop=["city"]).graph.digest()


def test_an_existing_graph_is_replaced_only_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("my.graph").write_text("precious")
    assert main(command()) == 2
    assert "my.graph already exists" in capsys.readouterr().err
    assert Path("my.graph").read_text() == "precious"
    assert main(command("--force")) == 0
    assert Graph.load(Path("my.graph")).num_nodes == 3


# How CSV files are written

NAMES = """id,age,city,active,label
007,1,"Ulm, Süd",true,b
8,3,Köln,false,a
x,5,"Ulm, Süd",true,b
"""


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_delimiter_and_encoding_are_found(delimiter: str, encoding: str) -> None:
    Path("edges.csv").write_text(EDGES)
    Path("nodes.csv").write_text(NAMES, encoding="utf-8")
    expected = load()
    rows = csv.reader(NAMES.splitlines())
    with Path("nodes.csv").open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    found = load()
    assert found.encoding == expected.encoding
    assert found.graph.digest() == expected.graph.digest()
    assert found.graph.node_ids == expected.graph.node_ids


def test_delimiter_and_encoding_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("nodes.csv").write_text("id~city~label\n007~Köln~a\n8~Ulm~b\nx~Ulm~b\n", encoding="latin-1")
    Path("edges.csv").write_text("source~target\n007~8\n8~x\n")
    assert main(command("--delimiter", "~", "--encoding", "latin-1", "--json")) == 0
    assert "Köln" in json.loads(capsys.readouterr().out)["columns"]["city"]
    assert "--encoding latin-1" in refused(command("--delimiter", "~", "--force"), capsys)
    for flag, value in (("--delimiter", "::"), ("--encoding", "klingon")):
        assert f"{flag} {value}" in refused(command(flag, value, "--force"), capsys)


def test_a_line_of_a_file_in_another_encoding_is_found() -> None:
    write()
    Path("nodes.csv").write_text("id;x;label\na;1;u\nb;;v\n", encoding="utf-16")
    Path("edges.csv").write_text("u;v\na;b\n")
    with pytest.raises(FedpubError, match=r"nodes\.csv, line 3: feature 'x' is missing"):
        load()
    Path("nodes.csv").write_text("id;x;label\na;1;u\nb;v\n")
    with pytest.raises(FedpubError, match=r"nodes\.csv, line 3: 2 cells where the header has 3, cut at ';'"):
        load()


def test_spaces_around_the_names_of_columns_do_not_count() -> None:
    write()
    expected = load()
    write(NODES.replace("id,age,city,active,label", "id , age,city , active , label"), "source , target\n007,8\n8,x\n")
    found = load()
    assert found.encoding == expected.encoding
    assert found.graph.digest() == expected.graph.digest()


# Labels, categories and what edges have


def many(labels: list[object], **options: object) -> Imported:
    rows = "".join(f"n{at},{at % 7},{label}\n" for at, label in enumerate(labels))
    write(f"id,x,label\n{rows}", "u,v\nn0,n1\n")
    return load(**options)


@pytest.mark.parametrize(
    "labels",
    [
        [at / 7 for at in range(300)],
        [at % 25 + 0.5 for at in range(300)],
        list(range(300)),
        [f"t{at}" for at in range(50)],
    ],
    ids=["numbers", "repeated fractions", "integers", "texts"],
)
def test_a_quantity_is_not_turned_into_classes(labels: list[object]) -> None:
    count = len(set(labels))
    with pytest.raises(FedpubError, match=rf"column 'label' has {count} different .* in {len(labels)} rows, too many"):
        many(labels)
    assert many(labels, many_classes=True).graph.num_classes == count


def test_classes_that_are_numbers_are_classes() -> None:
    assert many([at % 40 for at in range(200)]).graph.num_classes == 40
    assert many([at % 20 + 0.5 for at in range(60)]).graph.num_classes == 20
    assert many(list(range(20))).graph.num_classes == 20


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_can_be_categories(suffix: str) -> None:
    write("id,zip,label\na,10115,u\nb,20095,v\nc,10115,u\n", "u,v\na,b\n")
    if suffix == "parquet":
        pq.write_table(pyarrow.csv.read_csv("nodes.csv"), "nodes.parquet")
    made = load(f"nodes.{suffix}", categorical=["zip"])
    assert dense(made.graph) == [[1, 0], [0, 1], [1, 0]]
    assert made.columns["zip"] == "2 features, one-hot: 10115, 20095"
    assert load(f"nodes.{suffix}", like=made.encoding).graph.digest() == made.graph.digest()
    with pytest.raises(FedpubError, match="unknown categorical column 'zap': did you mean zip"):
        load(categorical=["zap"])
    with pytest.raises(FedpubError, match="column 'label' cannot be categorical: it is label"):
        load(categorical=["label"])
    rows = "".join(f"n{at},{at},{at % 2}\n" for at in range(101))
    write(f"id,zip,label\n{rows}", "u,v\nn0,n1\n")
    with pytest.raises(FedpubError, match="column 'zip' has 101 different values, more than the 100"):
        load(categorical=["zip"])


def test_columns_of_edges_that_are_not_used_are_named() -> None:
    write(edges="source,target,amount,time\n007,8,1,2\n8,x,3,4\n")
    assert "unused edge columns: amount, time" in load().notes
    write()
    assert not any("not used" in note for note in load().notes)


# From Python


def test_from_pyg() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    data = Data(x=x.double(), y=torch.tensor([[0], [2], [-5]]), edge_index=edge_index)
    graph = from_pyg(data, name="mine")
    assert graph.name == "mine"
    assert torch.equal(graph.x, x)
    assert graph.y.tolist() == [0, 2, -1]
    assert graph.classes == ("0", "1", "2")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    sparse = from_pyg(Data(x=x.to_sparse(), y=data.y, edge_index=edge_index))
    assert sparse.x.layout == torch.sparse_csr
    assert sparse.digest() == graph.digest()


X = np.array([[1.0, 0.0], [0.0, 4.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    "x",
    [X, X.astype(np.float16), X.tolist(), sp.csr_matrix(X), sp.coo_array(X), sp.csc_matrix(X.astype(int))],
    ids=type,
)
def test_from_pyg_takes_arrays_of_numpy_and_scipy(x: object) -> None:
    y, edge_index = np.array([0, 1, 0]), np.array([[0, 1], [1, 2]])
    expected = from_pyg(Data(x=torch.tensor(X), y=torch.tensor(y), edge_index=torch.tensor(edge_index)))
    graph = from_pyg(Data(x=x, y=y, edge_index=edge_index))
    assert graph.digest() == expected.digest()
    assert (graph.x.layout == torch.sparse_csr) == sp.issparse(x)
    unlabelled = fedpub.graph_from_pyg(Data(x=x, edge_index=edge_index), labelled=False)
    assert dense(unlabelled) == X.tolist()


def test_a_sparse_matrix_with_repeated_entries_is_summed_and_left_alone() -> None:
    x = sp.csr_matrix((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    graph = from_pyg(Data(x=x, y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]])))
    assert dense(graph) == [[0, 3], [0, 0]]
    assert x.nnz == 2


def test_classes_that_a_small_part_of_a_data_set_misses_are_possible() -> None:
    data = Data(x=torch.ones(2, 1), y=torch.tensor([3, 171]), edge_index=torch.tensor([[0], [1]]))
    assert from_pyg(data).num_classes == 172


def test_what_is_not_used_of_a_pyg_data_is_named() -> None:
    data = Data(x=torch.ones(2, 1), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]), name="n", num_nodes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_pyg(data)
        fedpub.graph_from_pyg(from_pyg(data).to_pyg())
    data.edge_weight, data.edge_attr, data.train_mask = torch.ones(1), torch.ones(1, 3), torch.tensor([True, False])
    for read in (from_pyg, fedpub.graph_from_pyg):
        with pytest.warns(UserWarning, match="the PyG Data has edge_attr, which fedpub does not use"):
            read(data)


def test_a_clients_number_is_no_number_of_clients() -> None:
    data = Data(x=torch.ones(2, 1), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]))
    data.client = torch.tensor([0, 50_000_000])
    with pytest.raises(FedpubError, match="client 50000000, so 50,000,001 clients of 2 nodes; number them from 0"):
        fedpub.graph_from_pyg(data)


def test_from_pyg_without_features_uses_the_degree() -> None:
    y, edge_index = torch.tensor([0, 1, 0]), torch.tensor([[0, 1], [1, 2]])
    write("id,label\n0,0\n1,1\n2,0\n", "u,v\n0,1\n1,2\n")
    assert from_pyg(Data(y=y, edge_index=edge_index, num_nodes=3)).digest() == load().graph.digest()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": None}, "has no y"),
        ({"edge_index": None}, "has no edge_index"),
        ({"y": torch.zeros(2)}, "one class as an integer"),
        ({"y": torch.zeros(0, dtype=torch.int64)}, "no nodes"),
        ({"y": torch.tensor([1, 1])}, "fewer than two classes"),
        ({"edge_index": torch.tensor([[0], [2]])}, r"edge 0 joins 0 and 2, but its nodes are 0\.\.1"),
        ({"edge_index": torch.tensor([[0], [0]])}, "no edge joins two different nodes"),
        ({"x": torch.tensor([[1.0], [torch.nan]])}, "feature 0 of node 1 is not finite"),
        (
            {"y": torch.tensor([0, 50_000_000])},
            r"label 50000000 in y, so 50,000,001 classes for 2 labelled nodes; number",
        ),
        ({"y": np.array([0.5, 1])}, "one class as an integer"),
        ({"y": ["a", "b"]}, "y of the type list, which is not a tensor"),
        ({"x": [object(), object()]}, "x of the type list, which is not a tensor"),
        ({"edge_index": torch.tensor([0, 1])}, r"edge_index of shape \[2\]"),
    ],
)
def test_from_pyg_refuses(change: dict[str, object], sentence: str) -> None:
    good = {"x": torch.ones(2, 1), "y": torch.tensor([0, 1]), "edge_index": torch.tensor([[0], [1]])}
    with pytest.raises(FedpubError, match=sentence):
        from_pyg(Data(**{**good, **change}))


def example_network() -> nx.DiGraph:
    g = nx.DiGraph()
    g.add_node("007", age=1, city="Ulm", active=True, label="b")
    g.add_node(8, age=3, city="Bonn", active=False, label="a")
    g.add_node("x", age=5, city="Ulm", active=True, label="b")
    g.add_edges_from([("007", 8), (8, "007"), (8, "x")])
    return g


def test_from_networkx_equals_the_same_tables() -> None:
    write()
    graph = from_networkx(example_network())
    assert graph.digest() == load().graph.digest()
    assert graph.node_ids == ("007", "8", "x")
    assert graph.meta == load().graph.meta


def test_from_networkx_with_chosen_features_and_clients() -> None:
    graph = from_networkx(example_network(), features=["active"], client="city", name="mine")
    assert dense(graph) == [[1], [0], [1]]
    assert graph.client_names == ("Bonn", "Ulm")
    assert graph.client is not None
    assert graph.client.tolist() == [1, 0, 1]


def test_from_networkx_warns_of_what_it_leaves_out() -> None:
    g = example_network()
    for node in g:
        g.nodes[node]["object"] = {"a": 1}
    with pytest.warns(UserWarning, match=r"attribute 'object' left out: struct<"):
        assert from_networkx(g).num_features == 4


def test_from_networkx_warns_of_what_edges_have() -> None:
    g = example_network()
    g.edges["007", 8]["amount"] = 3.5
    with pytest.warns(UserWarning, match="edges with amount, which fedpub does not use"):
        from_networkx(g)


def test_from_networkx_refuses() -> None:
    with pytest.raises(FedpubError, match="no nodes"):
        from_networkx(nx.Graph())
    with pytest.raises(FedpubError, match="no node attributes; give its nodes their class as the attribute 'label'"):
        from_networkx(nx.path_graph(3))
    with pytest.raises(FedpubError, match=r"unknown node attribute 'lable': did you mean .*label"):
        from_networkx(example_network(), label="lable")
    g = example_network()
    g.remove_edges_from(list(g.edges))
    with pytest.raises(FedpubError, match="no edge joins two different nodes"):
        from_networkx(g)
    g = example_network()
    g.add_node("8", age=1, city="Ulm", active=True)
    with pytest.raises(FedpubError, match="2 nodes named '8'"):
        from_networkx(g)
    g = example_network()
    g.add_node("new", city="Ulm", active=True)
    with pytest.raises(FedpubError, match="node 'new': feature 'age' is missing"):
        from_networkx(g)
    g = example_network()
    g.nodes["x"]["age"] = "five"
    with pytest.raises(FedpubError, match="attribute 'age' mixes types"):
        from_networkx(g)


# Any text a CSV can hold

cell = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(cell, min_size=2, max_size=6, unique=True), data=st.data())
def test_any_ids_and_clients_survive_import_save_and_load(ids: list[str], data: st.DataObject) -> None:
    clients = data.draw(st.lists(cell, min_size=len(ids), max_size=len(ids)))
    with tempfile.TemporaryDirectory() as folder:
        paths = nodes, edges, out = [Path(folder) / name for name in ("nodes.csv", "edges.csv", "my.graph")]
        tables = [
            ["id", "x", "who", "label"],
            *([i, n, c, n % 2] for n, (i, c) in enumerate(zip(ids, clients, strict=True))),
        ]
        for path, rows in zip(paths, (tables, [["u", "v"], [ids[0], ids[-1]]]), strict=False):
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
        imported = from_tables([nodes], [edges], id_column="id", label_column="label", client_column="who").graph
        imported.save(out)
        loaded = Graph.load(out)
    assert loaded.node_ids == tuple(ids)
    assert loaded.client is not None
    assert [loaded.client_names[c] for c in loaded.client.tolist()] == clients
    assert loaded.edges.tolist() == [[0], [len(ids) - 1]]
    assert loaded.digest() == imported.digest()
