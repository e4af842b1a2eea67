"""`fedpub run`: what it writes, what a real kill leaves, and what it says to bad input."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedpub
from fedpub.cli import main
from fedpub.core.tensor_files import read_tensors
from fedpub.data.graph import Graph
from fedpub.data.synthetic import Communities, communities_graph
from fedpub.errors import FedpubError, Note
from fedpub.experiment import Experiment
from fedpub.runs.simulated import run
from fedpub.store.directory import read_rows
from small import instead, refused

CLIENTS = 5  # of the graph file
ROUNDS = 6


@pytest.fixture
def tiny(graph_file: str) -> list[str]:
    """The words of a run of a moment, less --out."""
    words = ["run", "--quiet", "--dataset", graph_file, "--scenario", "natural"]
    return [*words, "--hidden", "8", "--rounds", str(ROUNDS)]


@pytest.fixture
def done(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run that is complete."""
    assert main([*tiny, "--keep-checkpoint", "--out", str(tmp_path / "done")]) == 0
    capsys.readouterr()
    return tmp_path / "done"


@pytest.fixture
def unfinished(done: Path) -> Path:
    """A run that was killed after its last checkpoint and before its summary."""
    for name in ("summary.json", "models.safetensors", "relations.safetensors"):
        (done / name).unlink()
    return done


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def kept(folder: Path) -> dict[str, bytes]:
    """The files of a run, less what tells the time or the machine."""
    found = {}
    for name, content in contents(folder).items():
        if name.endswith(".csv"):
            lines = csv.reader(content.decode().splitlines())
            found[name] = "\n".join(",".join(line[:1] + line[2:]) for line in lines).encode()  # less `seconds`
        elif name == "summary.json":
            found[name] = json.dumps(json.loads(content) | {"seconds": None}, indent=2).encode()
        elif name != "env.json" and not Path(name).name.startswith("."):
            found[name] = content
    return found


def test_a_run_writes_its_directory(done):
    assert sorted(contents(done)) == [
        "checkpoint/state.safetensors",
        "clients.csv",
        "config.json",
        "details.json",
        "env.json",
        "models.safetensors",
        "relations.safetensors",
        "rounds.csv",
        "summary.json",
    ]
    summary = json.loads((done / "summary.json").read_text())
    needed = {"metric", "test", "val", "best_round", "per_client_test", "sparsity", "bytes_up", "bytes_down"}
    assert needed | {"seconds", "rounds"} <= summary.keys()
    assert summary["metric"] == "accuracy"
    assert summary["rounds"] == ROUNDS
    assert 1 <= summary["best_round"] <= ROUNDS
    assert len(summary["per_client_test"]) == CLIENTS
    assert all(0 <= value <= 1 for value in (*summary["per_client_test"], summary["val"], summary["sparsity"]))
    assert summary["test"] == pytest.approx(sum(summary["per_client_test"]) / CLIENTS)
    assert summary["bytes_down"] > summary["bytes_up"] / 2 > 0
    config = json.loads((done / "config.json").read_text())
    assert config["method"] == "fedpub"
    assert config["options"]["tau"] == 3.0
    env = json.loads((done / "env.json").read_text())
    assert {"fedpub", "python", "packages", "command"} <= env.keys()
    assert len((done / "rounds.csv").read_text().splitlines()) == 1 + ROUNDS
    assert len((done / "clients.csv").read_text().splitlines()) == 1 + ROUNDS * CLIENTS


def test_the_best_round_is_that_of_the_rows(done):
    summary = json.loads((done / "summary.json").read_text())
    with (done / "rounds.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    best = max(rows, key=lambda row: (round(float(row["val"]), 9), -float(row["val_loss"])))
    assert int(best["round"]) == summary["best_round"]
    assert float(best["test"]) == summary["test"]
    assert sum(int(row["bytes_up"]) for row in rows) == summary["bytes_up"]


def test_only_fed_pub_has_relations(tiny, tmp_path):
    assert main([*tiny, "--method", "fedavg", "--out", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out" / "relations.safetensors").exists()
    assert (tmp_path / "out" / "models.safetensors").exists()


def test_no_file_is_a_pickle(done):
    """Every file opens as what its name says, and with nothing else."""
    for path in (path for path in done.rglob("*") if path.is_file()):
        if path.suffix == ".json":
            assert isinstance(json.loads(path.read_text()), dict)
        elif path.suffix == ".csv":
            with path.open(newline="") as lines:
                assert len({len(line) for line in csv.reader(lines)}) == 1
        else:
            assert path.suffix == ".safetensors"
            content = path.read_bytes()
            length = int.from_bytes(content[:8], "little")
            assert isinstance(json.loads(content[8 : 8 + length]), dict)
            assert read_tensors(path)[0]


def test_a_run_from_the_configuration_of_another_finds_the_same(done, tmp_path, capsys):
    words = ["run", "--quiet", "--config", str(done / "config.json"), "--out", str(tmp_path / "again")]
    assert main([*words, "--keep-checkpoint"]) == 0
    assert kept(tmp_path / "again") == kept(done)


def test_resuming_a_finished_run_prints_the_result_and_changes_no_file(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*tiny, "--out", str(out)]) == 0
    first = capsys.readouterr().out
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert main(["run", "--quiet", "--resume", str(out)]) == 0
    assert capsys.readouterr().out == first
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert after == before


# Real kills.

DEADLINE_S = 120
LONG = 120  # rounds: the last kill leaves most of them undone


def start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "fedpub", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ
    )


def wait_until(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    """Until the run has come so far; never longer than the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        if process.poll() is not None:
            raise AssertionError(f"it ended by itself: {process.communicate()[1].decode()}")
        if time.monotonic() > deadline:
            raise AssertionError("it did not come so far in time")
        time.sleep(0.001)


def kill_when(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    """SIGKILL as soon as the run has come so far."""
    try:
        wait_until(process, ready)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def lines(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().count(b"\n")
    return 0


@pytest.mark.parametrize("method", ["fedpub", "gcfl"])
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(method, tmp_path):
    words = ["run", "--quiet", "--method", method, "--dataset", "communities", "--hidden", "8", "--rounds", str(LONG)]
    whole, out = tmp_path / "whole", tmp_path / "out"
    resume = ["run", "--quiet", "--resume", str(out)]
    often = ["--checkpoint-seconds", "0.05"]
    rows, state = out / "rounds.csv", out / "checkpoint" / "state.safetensors"

    # As soon as there is a run; then in its first rounds, before a checkpoint.
    kill_when(start([*words, "--out", str(out), *often]), lambda: (out / "config.json").is_file())
    kill_when(start([*resume, "--checkpoint-seconds", "1000"]), lambda: lines(rows) > 6)
    assert not state.exists()
    # After some checkpoints, twice in a row.
    kill_when(start([*resume, *often]), lambda: state.is_file() and lines(rows) > 15)
    first, saved = state.stat().st_mtime_ns, int(read_tensors(state)[1]["round"])
    assert 0 < saved < LONG
    kill_when(start([*resume, *often]), lambda: state.stat().st_mtime_ns != first and lines(rows) > saved + 5)
    assert saved < int(read_tensors(state)[1]["round"]) < LONG
    assert not (out / "summary.json").exists()

    assert main([*resume, "--keep-checkpoint"]) == 0
    assert main([*words, "--out", str(whole), "--keep-checkpoint"]) == 0
    ended, expected = kept(out), kept(whole)
    assert ended.keys() == expected.keys()
    assert [name for name in expected if ended[name] != expected[name]] == []


def test_what_a_killed_write_left_behind_goes_away(unfinished):
    """A kill inside a write leaves a temporary file; the next run that ends well is without it."""
    left = [unfinished / "checkpoint" / ".state.safetensors.abc123", unfinished / ".summary.json.abc123"]
    for path in left:
        path.write_bytes(b"half")
    assert main(["run", "--quiet", "--resume", str(unfinished), "--keep-checkpoint"]) == 0
    assert [path.name for path in left if path.exists()] == []


# Bad input: one sentence, exit status 2, nothing half-written or lost.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dataset", "communitis"], "unknown dataset 'communitis': did you mean communities"),
        (["--dataset", "croa"], "did you mean cora"),
        (["--dataset", "absent.graph"], "absent.graph"),
        (["--method", "fedavgg"], "unknown method 'fedavgg': did you mean fedavg"),
        (["--model", "gncc"], "did you mean gcn"),
        (["--scenario", "disjont", "--clients", "3"], "did you mean disjoint"),
        (["--scenario", "overlapping", "--clients", "7"], "use 5 or 10"),
        (["--scenario", "disjoint"], "needs a number of clients"),
        (["--scenario", "disjoint", "--clients", "101"], "more than the 100 nodes"),
        (["--scenario", "disjoint", "--clients", "0"], "give --clients 1 or more"),
        (["--clients", "4"], "5 natural clients, not 4"),
        (["--lr", "-1"], "--lr -1"),
        (["--rounds", "0"], "--rounds 0"),
        (["--epochs", "0"], "--epochs 0"),
        (["--hidden", "0"], "--hidden 0"),
        (["--fraction", "2"], "--fraction 2"),
        (["--failures", "-1"], "--failures -1"),
        (["--dropout", "1"], "--dropout 1"),
        (["--ratios", "0.5", "0.5", "0.5"], "must sum to 1"),
        (["--scenario", "dirichlet", "--clients", "4", "--alpha", "-1"], "positive alpha"),
        (["--chunk", "-1"], "--chunk -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_possible_is_one_sentence_and_leaves_nothing(words, said, tiny, tmp_path, capsys):
    out = tmp_path / "new"
    assert said in refused(instead([*tiny, "--out", str(out)], *words), capsys)
    assert not out.exists(), f"left behind: {sorted(contents(out))}"


def test_no_gpu_is_said(tiny, tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "--device cpu" in refused([*tiny, "--device", "cuda", "--out", str(tmp_path / "new")], capsys)
    assert not (tmp_path / "new").exists()


def test_the_sentence_stands_alone_also_where_there_would_be_a_progress_bar(tiny, capsys):
    loud = [word for word in tiny if word != "--quiet"]
    assert "did you mean" in refused(instead(loud, "--dataset", "communitis"), capsys)


def test_a_directory_that_exists_is_left_alone(tiny, done, tmp_path, capsys):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("years of work")
    before = contents(done)
    assert f"{done} holds a run already: continue it with --resume" in refused([*tiny, "--out", str(done)], capsys)
    assert "choose another --out" in refused([*tiny, "--out", str(folder)], capsys)
    assert "choose another --out" in refused([*tiny, "--out", str(file)], capsys)
    assert contents(done) == before
    assert contents(folder) == {"thesis.txt": b"years of work"}
    assert file.read_text() == "years of work"


def test_an_empty_directory_may_be_used(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    assert main([*tiny, "--out", str(tmp_path / "empty")]) == 0
    assert (tmp_path / "empty" / "summary.json").is_file()


def test_only_runs_can_be_resumed(tmp_path, capsys):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("years of work")
    for path in (folder, file, tmp_path / "absent"):
        assert f"{path} is not a run directory" in refused(["run", "--quiet", "--resume", str(path)], capsys)
    assert contents(folder) == {"thesis.txt": b"years of work"}
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a configuration"),
        (b'{"dataset": "comm', "is not a configuration"),
        (b"[1, 2]", "is not a configuration"),
        (b"\xff\xfe\x00\x01", "config.json"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("flag", ["--resume", "--config"])
def test_a_damaged_configuration_is_said_and_nothing_is_lost(flag, content, said, unfinished, capsys):
    (unfinished / "config.json").write_bytes(content)
    before = contents(unfinished)
    path = unfinished if flag == "--resume" else unfinished / "config.json"
    assert said in refused(["run", "--quiet", flag, str(path)], capsys)
    assert contents(unfinished) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "unknown setting 'colour'"),
        ({"method": "fedavgg"}, "did you mean fedavg"),
        ({"options": {"lamda1": 1}}, "did you mean lambda1"),
        ({"options": 3}, "options"),
        ({"rounds": "many"}, "rounds"),
        ({"lr": None}, "lr"),
        ({"hidden": 8.5}, "hidden"),
        ({"dataset": 7}, "dataset"),
        ({"ratios": 1}, "ratios"),
        ({"ratios": [0.5, 0.5]}, "ratios"),
        ({"dtype": "float12"}, "dtype"),
    ],
    ids=str,
)
@pytest.mark.parametrize("flag", ["--resume", "--config"])
def test_a_setting_that_cannot_be_is_said_and_nothing_is_lost(flag, changes, said, unfinished, capsys):
    config = unfinished / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    before = contents(unfinished)
    path = unfinished if flag == "--resume" else config
    assert said in refused(["run", "--quiet", flag, str(path)], capsys)
    assert contents(unfinished) == before


def test_a_configuration_that_is_not_there_is_said(tmp_path, capsys):
    assert "absent.json" in refused(["run", "--quiet", "--config", str(tmp_path / "absent.json")], capsys)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rounds": ROUNDS + 1}, "rounds"),
        ({"seed": 1}, "seed"),
        ({"method": "fedavg", "options": {}}, "method"),
        ({"options": {"lambda1": 0.5}}, "options"),
    ],
)
def test_a_directory_of_another_experiment_is_not_continued(changes: dict[str, Any], name, unfinished):
    held = Experiment.from_json((unfinished / "config.json").read_text(), unfinished / "config.json")
    before = contents(unfinished)
    with pytest.raises(FedpubError, match=rf"belongs to another experiment: its {name} is "):
        run(replace(held, **changes), unfinished, resume=True)
    assert contents(unfinished) == before


def test_a_directory_of_a_version_with_other_options_is_not_continued(unfinished):
    """A method that has got an option since would go on as another one."""
    config = json.loads((unfinished / "config.json").read_text())
    del config["options"]["lambda2"]
    (unfinished / "config.json").write_text(json.dumps(config))
    asked = Experiment.from_json(json.dumps(config), unfinished)
    with pytest.raises(FedpubError, match=r"made by another version, in which fedpub had other options \(lambda2\)"):
        run(asked, unfinished, resume=True)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_checkpoint_is_said_and_nothing_is_lost(share, unfinished, capsys):
    state = unfinished / "checkpoint" / "state.safetensors"
    content = state.read_bytes()
    state.write_bytes(content[: int(share * len(content))])
    before = contents(unfinished)
    assert "state.safetensors cannot be read" in refused(["run", "--quiet", "--resume", str(unfinished)], capsys)
    assert contents(unfinished) == before


def test_a_checkpoint_that_is_another_file_is_said(unfinished, done, capsys):
    from safetensors.torch import save_file

    state = unfinished / "checkpoint" / "state.safetensors"
    save_file({"w": torch.ones(2)}, state)
    before = contents(unfinished)
    assert "state.safetensors" in refused(["run", "--quiet", "--resume", str(unfinished)], capsys)
    assert contents(unfinished) == before


@pytest.mark.parametrize("kept_lines", [0, 1, 3, 12.5])
def test_rows_that_end_before_the_checkpoint_are_said_and_nothing_is_lost(kept_lines, unfinished, capsys):
    """Cut after so many lines of clients.csv; a half is the middle of a line."""
    path = unfinished / "clients.csv"
    rows = path.read_bytes().splitlines(keepends=True)
    cut = rows[: int(kept_lines)]
    if kept_lines % 1:
        cut.append(rows[int(kept_lines)][:20])
    path.write_bytes(b"".join(cut))
    before = contents(unfinished)
    said = refused(["run", "--quiet", "--resume", str(unfinished)], capsys)
    assert f"of the {ROUNDS} rounds that the checkpoint covers" in said
    assert contents(unfinished) == before


def test_a_run_that_diverges_keeps_its_rows_and_its_last_checkpoint(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    words = [*tiny, "--method", "fedavg", "--lr", "1e30", "--checkpoint-seconds", "0", "--out", str(out)]
    said = refused(words, capsys)
    assert "the loss of client 0 is nan in round 2" in said
    assert "--lr" in said
    tensors, header = read_tensors(out / "checkpoint" / "state.safetensors")
    assert header["round"] == "1"
    assert all(torch.isfinite(leaf).all() for name, leaf in tensors.items() if "weights" in name)
    assert [row.round for row in read_rows(out)] == [1]
    assert not (out / "summary.json").exists()
    before = contents(out)
    assert refused(["run", "--quiet", "--resume", str(out)], capsys) == said  # it is as far as it can come
    assert contents(out) == before


def test_flags_of_another_method_are_refused(tiny, capsys):
    said = refused([*tiny, "--method", "gcfl", "--no-masks"], capsys)
    assert "--masks is an option of fedpub and fedpub-plus, not of gcfl" in said


@pytest.mark.parametrize(
    "flags",
    [
        ["--lambda1", "-1"],
        ["--lambda2", "nan"],
        ["--mask-lr", "inf"],
        ["--tau", "nan"],
        ["--lr", "nan"],
        ["--weight-decay", "nan"],
        ["--ratios", "nan", "0", "0"],
        ["--device", "cpu:x"],
        ["--fraction", "0"],
        ["--method", "fedprox", "--mu", "nan"],
        ["--method", "fedper", "--head", "zzz"],
        ["--scenario", "dirichlet", "--clients", "3", "--alpha", "inf"],
    ],
)
def test_numbers_that_mean_nothing_are_refused(flags, graph_file, tmp_path, capsys):
    said = refused(["run", "--quiet", "--dataset", graph_file, *flags, "--out", str(tmp_path / "out")], capsys)
    assert flags[-1] in said or flags[-2].lstrip("-") in said or "ratios" in said
    assert not (tmp_path / "out").exists()


def test_flags_that_contradict_a_resumed_run_are_refused(done, capsys):
    assert "its rounds is 6, not 500" in refused(["run", "--resume", str(done), "--rounds", "500"], capsys)
    assert "its method is 'fedpub', not 'fedavg'" in refused(
        ["run", "--resume", str(done), "--method", "fedavg"], capsys
    )
    assert "its tau is" in refused(["run", "--resume", str(done), "--tau", "7"], capsys)
    assert "leave --out" in refused(["run", "--resume", str(done), "--out", "elsewhere"], capsys)
    assert "its hidden is" in refused(["run", "--config", str(done / "config.json"), "--hidden", "4"], capsys)
    assert main(["run", "--resume", str(done), "--rounds", "6", "--method", "fedpub"]) == 0


def test_a_directory_in_use_is_not_touched(tiny, tmp_path, capsys):
    fcntl = pytest.importorskip("fcntl")
    assert main([*tiny, "--out", str(tmp_path / "out")]) == 0
    (tmp_path / "out" / "summary.json").unlink()
    with (tmp_path / "out" / "config.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "in use by another process" in refused(["run", "--quiet", "--resume", str(tmp_path / "out")], capsys)
    assert main(["run", "--quiet", "--resume", str(tmp_path / "out")]) == 0


def test_resuming_leaves_other_files_alone(tiny, tmp_path):
    assert main([*tiny, "--out", str(tmp_path / "out"), "--keep-checkpoint"]) == 0
    (tmp_path / "out" / "summary.json").unlink()
    (tmp_path / "out" / ".gitignore").write_text("mine")
    (tmp_path / "out" / ".notes").mkdir()
    (tmp_path / "out" / "checkpoint" / ".state.safetensors.abc").write_text("half a checkpoint")
    assert main(["run", "--quiet", "--resume", str(tmp_path / "out"), "--keep-checkpoint"]) == 0
    assert (tmp_path / "out" / ".gitignore").read_text() == "mine"
    assert (tmp_path / "out" / ".notes").is_dir()
    assert not (tmp_path / "out" / "checkpoint" / ".state.safetensors.abc").exists()


def test_a_finished_run_on_a_graph_that_changed_is_not_taken_for_the_new_one(tiny, graph_file, tmp_path, capsys):
    assert main([*tiny, "--out", str(tmp_path / "out")]) == 0
    graph = Graph.load(Path(graph_file))
    replace(graph, x=graph.x * 2).save(Path(graph_file))
    assert "has changed" in refused(["run", "--quiet", "--resume", str(tmp_path / "out")], capsys)


def test_a_configuration_runs_again_from_another_folder(done, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert main(["run", "--quiet", "--config", str(done / "config.json"), "--out", "again"]) == 0


def test_official_has_the_published_weight_decay_unless_one_is_given():
    official = Experiment(method="fedpub", options={"official": True})
    assert official.resolve().weight_decay == 1e-6
    assert replace(official, weight_decay=0.0).resolve().weight_decay == 0.0
    assert Experiment(method="fedpub").resolve().weight_decay == 0.0


def test_a_client_without_training_nodes_is_named(tmp_path, capsys):
    spec = Communities((2,), 10, 0.5, 0.1, 0.1, 2, 10, 0.5, 5, 0.3, 0.0)
    graph = communities_graph("some", spec)
    y = graph.y.clone()
    y[10:] = -1  # the second client has no label at all
    replace(graph, y=y).save(tmp_path / "some.graph")
    assert main(["run", "--quiet", "--dataset", str(tmp_path / "some.graph"), "--rounds", "2"]) == 0
    assert "client 1 has nothing to train on" in capsys.readouterr().out


def test_ctrl_c_saves_the_round_that_is_under_way(tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    words = ["run", "--quiet", "--method", "fedpub", "--dataset", "communities", "--hidden", "8", "--rounds", str(LONG)]
    process = start([*words, "--checkpoint-seconds", "1000", "--out", str(out)])
    try:
        wait_until(process, lambda: lines(out / "rounds.csv") > 6)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=DEADLINE_S)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    saved = int(read_tensors(out / "checkpoint" / "state.safetensors")[1]["round"])
    assert saved == read_rows(out)[-1].round < LONG
    assert main(["run", "--quiet", "--resume", str(out), "--keep-checkpoint"]) == 0
    assert main([*words, "--out", str(whole), "--keep-checkpoint"]) == 0
    assert kept(out) == kept(whole)


@pytest.mark.parametrize(("model", "said"), [("gcn", 1), ("hops", 0)])
def test_what_a_model_cannot_use_of_the_edges_is_said_once(model, said, graph_file, tmp_path, capsys):
    graph = Graph.load(Path(graph_file))
    replace(graph, directed=True).validate().save(tmp_path / "directed.graph")
    words = ["--dataset", str(tmp_path / "directed.graph"), "--rounds", "1", "--hidden", "4", "--model", model]
    assert main(["compare", *words, "--methods", "local", "fedavg", "--seeds", "2", "--quiet"]) == 0
    note = f"fedpub: the model gcn treats all edges of graph {graph.name!r} alike: their directions are not used\n"
    assert capsys.readouterr().err.count(note) == said
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedpub.run(str(tmp_path / "directed.graph"), rounds=1, hidden=4, model=model, progress=False)
    assert len([one for one in caught if issubclass(one.category, Note)]) == said
