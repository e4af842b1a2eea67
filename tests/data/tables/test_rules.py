"""What a user declares about edges, columns and splits, through the command line: by hand on tiny tables."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpub.cli import main
from fedpub.core.sparse import to_scipy
from fedpub.data.graph import NO_SET, TEST, TRAIN, VALIDATION, Graph
from fedpub.data.tables import from_tables

NODES = "id,x,label\na,1,u\nb,2,v\nc,3,u\n"
EDGES = "source,target,w,kind\na,b,2,pay\nb,a,3,pay\nb,c,1,call\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(nodes: str = NODES, edges: str = EDGES, suffix: str = "csv") -> None:
    for name, text in (("nodes", nodes), ("edges", edges)):
        Path(f"{name}.csv").write_text(text, encoding="utf-8")
        if suffix == "parquet":
            pq.write_table(pyarrow.csv.read_csv(f"{name}.csv"), f"{name}.parquet")


def command(*extra: str, suffix: str = "csv", out: str = "my.graph") -> list[str]:
    learnt = [] if {"--labels", "--number"} & set(extra) else ["--label", "label"]
    tables = ["--nodes", f"nodes.{suffix}", "--edges", f"edges.{suffix}"]
    return ["data", "import", *tables, "--id", "id", *learnt, "--out", out, *extra]


def load(*extra: str, suffix: str = "csv", out: str = "my.graph") -> Graph:
    assert main(command(*extra, suffix=suffix, out=out)) == 0
    return Graph.load(Path(out), labelled=False)


def triples(graph: Graph) -> list[tuple[int, int, float]]:
    assert graph.weight is not None
    return [(u, v, w) for (u, v), w in zip(graph.edges.T.tolist(), graph.weight.tolist(), strict=True)]


def features(graph: Graph) -> np.ndarray:
    return np.asarray(to_scipy(graph.x).toarray())


# Edges


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], [(0, 1, 5), (1, 2, 1)]),
        (["--duplicates", "sum"], [(0, 1, 5), (1, 2, 1)]),
        (["--duplicates", "merge"], [(0, 1, 2), (1, 2, 1)]),
        (["--directed"], [(0, 1, 2), (1, 0, 3), (1, 2, 1)]),
        (["--directed", "--duplicates", "refuse"], [(0, 1, 2), (1, 0, 3), (1, 2, 1)]),
    ],
)
def test_weights_of_repeated_edges(suffix: str, flags: list[str], expected: list[tuple[int, int, float]]) -> None:
    write(suffix=suffix)
    graph = load("--edge-weight", "w", *flags, suffix=suffix)
    assert triples(graph) == expected
    assert graph.directed == ("--directed" in flags)


def test_edges_are_counted_where_there_are_no_weights() -> None:
    write()
    assert triples(load("--duplicates", "sum")) == [(0, 1, 2), (1, 2, 1)]


def test_kinds_of_edges_are_named_and_in_order() -> None:
    write()
    graph = load("--edge-type", "kind")
    assert graph.kinds == ("call", "pay")
    assert graph.kind is not None
    assert sorted(zip(graph.kind.tolist(), *graph.edges.tolist(), strict=True)) == [(0, 1, 2), (1, 0, 1)]


def test_edges_to_the_outside_can_be_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    write(edges=EDGES + "c,z,1,pay\nz,a,1,pay\n")
    assert load("--outside", "drop").edges.tolist() == [[0, 1], [1, 2]]
    assert "edges dropped: 2 to nodes outside nodes.csv" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [("7", "8"), ("7.0", "8.0"), ("7", "8.0")])
def test_ids_are_the_same_however_they_are_written(columns: tuple[str, str]) -> None:
    write("id,x,label\n7,1,u\n8,2,v\n", f"u,v\n{columns[0]},{columns[1]}\n")
    pq.write_table(pa.table({"id": [7, 8], "x": [1, 2], "label": ["u", "v"]}), "nodes.parquet")
    for nodes in ("nodes.csv", "nodes.parquet"):
        made = from_tables([Path(nodes)], [Path("edges.csv")], id_column="id", label_column="label").graph
        assert made.edges.tolist() == [[0], [1]]


def test_like_takes_kinds_and_directions_from_the_first_site() -> None:
    write()
    first = load("--edge-weight", "w", "--edge-type", "kind", "--directed", "--encoding-out", "shared.json")
    write(edges="source,target,w,kind\nb,c,4,pay\n")
    same = ("--edge-weight", "w", "--edge-type", "kind", "--like", "shared.json")
    second = load(*same, out="second.graph")
    assert second.directed
    assert second.kinds == first.kinds
    assert second.kind is not None
    assert second.kind.tolist() == [1]


@pytest.mark.parametrize(
    ("edges", "flags", "parts"),
    [
        ("source,target,w,kind\nb,c,4,gift\n", ["--edge-weight", "w", "--edge-type", "kind"], ["line 2", "'gift'"]),
        (EDGES, ["--edge-weight", "w"], ["has kinds of edges", "--edge-type"]),
        (EDGES, ["--edge-type", "kind"], ["has weights of edges", "--edge-weight"]),
        (
            EDGES,
            ["--edge-weight", "w", "--edge-type", "kind", "--directed"],
            ["no directions of edges", "leave out --directed"],
        ),
    ],
)
def test_like_refuses_other_edges(
    edges: str, flags: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    load("--edge-weight", "w", "--edge-type", "kind", "--encoding-out", "shared.json")
    write(edges=edges)
    refuse(command(*flags, "--like", "shared.json", out="second.graph"), parts, capsys)


# Columns


def test_missing_numbers_become_the_mean_or_zero_and_say_so() -> None:
    write("id,x,z,label\na,1,4,u\nb,,,v\nc,3,2,u\n")
    found = features(load("--missing", "x=mean", "z=zero"))
    z = np.array([4.0, 0.0, 2.0])  # mean 2, variance 8 / 3
    np.testing.assert_allclose(
        found, np.column_stack([[-1, 0, 1], [0, 1, 0], (z - 2) / np.sqrt(8 / 3), [0, 1, 0]]), atol=1e-6
    )


def test_missing_texts_are_a_category_and_so_are_new_ones() -> None:
    write("id,c,t,label\na,red,true,u\nb,,,v\nc,blue,false,u\n")
    assert features(load("--missing", "category", "--encoding-out", "shared.json")).tolist() == [
        [0, 1, 0, 1, 0],  # blue, red, missing; true, missing
        [0, 0, 1, 0, 1],
        [1, 0, 0, 0, 0],
    ]
    write("id,c,t,label\na,green,true,u\nb,red,true,v\nc,blue,false,u\n")
    second = features(load("--like", "shared.json", out="second.graph"))
    assert second[:, :3].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_a_rule_adds_its_feature_even_where_nothing_is_missing() -> None:
    write()
    assert features(load("--missing", "mean")).shape == (3, 2)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_days_are_standardised_and_times_of_day_go_round(suffix: str) -> None:
    rows = ("2024-02-28 06:00:00", "2024-02-29 12:00:00", "2024-03-01 18:00:00")
    nodes = "id,when,label\n" + "".join(f"{i},{when},{c}\n" for i, when, c in zip("abc", rows, "uvu", strict=True))
    write(nodes, suffix=suffix)
    day = np.sqrt(3 / 2)
    expected = [[-day, 1, 0], [0, 0, -1], [day, -1, 0]]
    np.testing.assert_allclose(features(load(suffix=suffix)), expected, atol=1e-6)


def test_dates_without_times_are_one_feature() -> None:
    write("id,when,label\na,2023-12-31,u\nb,2024-01-01,v\nc,2024-01-02,u\n")
    day = np.sqrt(3 / 2)
    np.testing.assert_allclose(features(load("--dates", "when")), [[-day], [0], [day]], atol=1e-6)


def test_hashed_texts_have_the_feature_of_their_hash() -> None:
    write("id,shop,label\na,north,u\nb,south,v\nc,north,u\n")
    at = {
        name: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % 5 for name in ("north", "south")
    }
    found = features(load("--hash", "shop=5"))
    assert found.shape == (3, 5)
    assert found.argmax(1).tolist() == [at["north"], at["south"], at["north"]]
    assert found.sum() == 3


def test_plain_numbers_stay_and_many_zeros_are_sparse(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["a", "b", "c", *(f"n{i}" for i in range(3, 100))]
    heads = ",".join(f"f{i}" for i in range(100))
    ones = np.eye(100, dtype=int)
    rows = "".join(
        f"{i},{','.join(map(str, row))},{'uv'[at % 2]}\n" for at, (i, row) in enumerate(zip(ids, ones, strict=True))
    )
    write(f"id,{heads},label\n{rows}")
    graph = load("--plain", "f*", "--drop", "f?0")
    assert graph.x.layout == torch.sparse_csr
    assert features(graph)[:3, :3].tolist() == np.eye(3).tolist()
    shown = capsys.readouterr().out
    assert "f0 ... f9 (10 columns)" in shown
    assert shown.count("\n") < 40, "neighbours share a line"


@pytest.mark.parametrize("name", ["more.mtx", "more.npz"])
def test_features_from_a_matrix(name: str) -> None:
    write()
    more = sp.csr_matrix(np.array([[0, 5.0], [0, 0], [7, 0]]))
    scipy.io.mmwrite(name, more) if name.endswith("mtx") else sp.save_npz(name, more)
    assert features(load("--features", name))[:, 1:].tolist() == more.toarray().tolist()


def test_lists_are_bags_of_numbers_or_vectors() -> None:
    write()
    lists = {"bag": [[0, 2, 2], [], [1]], "vector": [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]}
    pq.write_table(pa.table({"id": ["a", "b", "c"], "label": ["u", "v", "u"], **lists}), "nodes.parquet")
    made = from_tables([Path("nodes.parquet")], [Path("edges.csv")], id_column="id", label_column="label").graph
    assert features(made).tolist() == [[1, 0, 2, 0.5, 1.5], [0, 0, 0, 2.5, 3.5], [0, 1, 0, 4.5, 5.5]]


# What is learnt, and by which nodes


def test_a_number_twice_in_a_bag_counts_twice() -> None:
    write()
    table = {"id": ["a", "b", "c"], "label": ["u", "v", "u"], "bag": [[99, 5, 99], [], [1]]}
    pq.write_table(pa.table(table), "nodes.parquet")
    found = from_tables([Path("nodes.parquet")], [Path("edges.csv")], id_column="id", label_column="label").graph
    assert found.x.layout == torch.sparse_csr
    assert features(found)[0, [5, 99]].tolist() == [1, 2]


def test_several_labels() -> None:
    write("id,x,spam,bot\na,1,1,true\nb,2,0,\nc,3,,false\n")
    graph = load("--labels", "spam", "bot")
    assert graph.classes == ("spam", "bot")
    assert graph.target is not None
    np.testing.assert_array_equal(graph.target.numpy(), [[1, 1], [0, np.nan], [np.nan, 0]])
    assert graph.y.tolist() == [-1] * 3


def test_a_number() -> None:
    write("id,x,price\na,1,2.5\nb,2,\nc,3,-1\n")
    graph = load("--number", "price")
    assert graph.classes == ("price",)
    assert graph.target is not None
    np.testing.assert_array_equal(graph.target.numpy(), [[2.5], [np.nan], [-1]])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_split_by_words(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("id,x,set,label\na,1,train,u\nb,2,Val,v\nc,3,test,u\nd,4,,v\n", suffix=suffix)
    graph = load("--split-column", "set", suffix=suffix)
    assert graph.split is not None
    assert graph.split.tolist() == [TRAIN, VALIDATION, TEST, NO_SET]
    assert graph.num_features == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "1 nodes for training, 1 for validation, 1 for testing, 1 in no set" in said


def test_a_split_by_time() -> None:
    rows = ("2023-12-31", "2024-01-01", "2024-02-01", "", "2024-01-31")
    write("id,x,day,label\n" + "".join(f"{i},{n},{rows[n]},{n % 2}\n" for n, i in enumerate("abcde")))
    graph = load("--time", "day", "--validation-from", "2024-01-01", "--test-from", "2024-02-01")
    assert graph.split is not None
    assert graph.split.tolist() == [TRAIN, VALIDATION, TEST, NO_SET, VALIDATION]
    assert graph.num_features == 1, "the time would tell the sets apart"


# One sentence, status 2, nothing written


def refuse(arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    capsys.readouterr()
    assert main(arguments) == 2
    message = capsys.readouterr().err
    for part in parts:
        assert part in message, message
    assert message.count("\n") == 1, "one sentence, on one line"
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


BY_TIME = ["--time", "x", "--validation-from", "2024-01-01", "--test-from"]
WRONG = {
    "negative weight": (NODES, EDGES.replace("b,a,3", "b,a,-3"), ["--edge-weight", "w"], ["line 3", "-3", "'w'"]),
    "infinite weight": (NODES, EDGES.replace("b,a,3", "b,a,inf"), ["--edge-weight", "w"], ["line 3", "inf", "finite"]),
    "no weight": (NODES, EDGES.replace("b,a,3", "b,a,"), ["--edge-weight", "w"], ["line 3", "'w' is empty"]),
    "NaN weight": (NODES, EDGES.replace("b,a,3", "b,a,NaN"), ["--edge-weight", "w"], ["line 3", "'w' is empty"]),
    "weights of text": (NODES, EDGES, ["--edge-weight", "kind"], ["line 2", "'pay'", "not a number"]),
    "no such weight": (NODES, EDGES, ["--edge-weight", "ww"], ["edges.csv", "'ww'", "did you mean w"]),
    "no kind": (NODES, EDGES.replace("1,call", "1,"), ["--edge-type", "kind"], ["line 4", "'kind' is empty"]),
    "repeated": (NODES, EDGES, ["--duplicates", "refuse"], ["line 3", "'b' and 'a'", "line 2", "--duplicates sum"]),
    "outside": (NODES, EDGES + "c,z,1,pay\n", [], ["line 5", "'z'", "--outside drop"]),
    "unknown set": (
        "id,x,set,label\na,1,train,u\nb,2,dev,v\n",
        "u,v\na,b\n",
        ["--split-column", "set"],
        ["nodes.csv, line 3", "'dev'", "'set'", "train, validation or test"],
    ),
    "two splits": (NODES, EDGES, ["--split-column", "label", *BY_TIME, "2024-02-01"], ["--split-column", "--time"]),
    "one date": (NODES, EDGES, ["--time", "x", "--validation-from", "2024-01-01"], ["--test-from is missing"]),
    "dates without a time": (NODES, EDGES, ["--test-from", "2024-01-01"], ["--test-from 2024-01-01", "--time"]),
    "dates in the wrong order": (
        NODES.replace(",1,", ",2024-01-01,").replace(",2,", ",2024-01-02,").replace(",3,", ",2024-01-03,"),
        EDGES,
        [*BY_TIME, "2023-01-01"],
        ["--test-from 2023-01-01 is not after --validation-from 2024-01-01"],
    ),
    "a bound that is no date": (
        NODES.replace(",1,", ",2024-01-01,").replace(",2,", ",2024-01-02,").replace(",3,", ",2024-01-03,"),
        EDGES,
        [*BY_TIME, "spring"],
        ["--test-from spring", "2024-01-31"],
    ),
    "a time that is no date": (
        "id,x,label\na,2024-01-01,u\nb,soon,v\n",
        "u,v\na,b\n",
        [*BY_TIME, "2024-02-01"],
        ["nodes.csv, line 3", "'soon'", "'x' is not a date", "2024-01-31"],
    ),
    "a day that is none": (
        "id,day,label\na,2024-02-28,u\nb,2024-02-30,v\n",
        "u,v\na,b\n",
        ["--dates", "day"],
        ["nodes.csv, line 3", "'2024-02-30'", "'day' is not a date"],
    ),
    "rule": (NODES, EDGES, ["--missing", "x=median"], ["'median'", "mean"]),
    "rule for numbers": (NODES, EDGES, ["--missing", "x=category"], ["--missing x=category", "numeric", "mean"]),
    "rule for the label": (NODES, EDGES, ["--missing", "label=mean"], ["'label'", "not a feature"]),
    "two rules": (NODES, EDGES, ["--missing", "mean", "zero"], ["--missing mean", "--missing zero", "choose one"]),
    "width": (NODES, EDGES, ["--hash", "x"], ["--hash x", "shop=64"]),
    "plain and hashed": (NODES, EDGES, ["--plain", "x", "--hash", "x=4"], ["'x'", "--plain", "--hash"]),
    "class and number": (NODES, EDGES, ["--number", "x", "--label", "label"], ["2 of --label, --labels and --number"]),
    "three labels": (NODES.replace("3,u", "2,u"), EDGES, ["--labels", "x"], ["line 3", "'2'", "neither 0 nor 1"]),
    "number of text": (NODES, EDGES, ["--number", "label"], ["line 2", "'u'", "not a number"]),
    "matrix of text": (NODES, EDGES, ["--features", "edges.csv"], ["edges.csv", ".mtx or .npz"]),
    "no matrix": (NODES, EDGES, ["--features", "gone.npz"], ["there is no file gone.npz"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_sentence_and_nothing_written(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, edges, extra, parts = WRONG[case]
    write(nodes, edges)
    refuse(command(*extra), parts, capsys)


def test_nothing_to_learn_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    bare = [word for word in command() if word not in ("--label", "label")]
    refuse(bare, ["none of --label, --labels and --number are given"], capsys)


def test_a_matrix_of_other_rows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    sp.save_npz("more.npz", sp.eye(2, format="csr"))
    refuse(command("--features", "more.npz"), ["more.npz has 2 rows for 3 nodes"], capsys)


# The command


def test_a_bar_is_for_terminals(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    assert main(command()) == 0
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(command("--force", "--json")) == 0
    shown = capfd.readouterr()
    for what in ("reading nodes", "edges", "writing"):
        assert what in shown.err
    assert json.loads(shown.out)["nodes"] == 3, "standard output is for the result"


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(6)), edge_order=st.permutations(range(8)))
def test_the_order_of_rows_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], edge_order: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("shuffled")
    ends = [(0, 1), (1, 2), (2, 0), (1, 0), (3, 4), (4, 5), (5, 3), (0, 5)]
    colours = ("red", "blue", "green")

    def graph(rows: list[int], links: list[int]) -> Graph:
        nodes, edges = folder / "nodes.csv", folder / "edges.csv"
        table = "".join(f"n{i},{i * i},{colours[i % 3]},{i % 2}\n" for i in rows)
        nodes.write_text("id,x,c,label\n" + table)
        edges.write_text("u,v,w\n" + "".join(f"n{ends[e][0]},n{ends[e][1]},{e + 1}\n" for e in links))
        return from_tables([nodes], [edges], id_column="id", label_column="label", edge_weight="w").graph

    straight, shuffled = graph(list(range(6)), list(range(8))), graph(order, edge_order)

    def named(one: Graph) -> dict[frozenset[str], float]:
        return {frozenset((one.node_ids[u], one.node_ids[v])): w for u, v, w in triples(one)}

    assert named(shuffled) == named(straight)
    place = [shuffled.node_ids.index(name) for name in straight.node_ids]
    torch.testing.assert_close(shuffled.x[place], straight.x)
    assert shuffled.y[place].tolist() == straight.y.tolist()
