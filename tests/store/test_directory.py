"""What a run measured and keeps: the summary by hand, the rows on disk, resuming in the same process."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedpub.core.tensor_files import read_tensors, write_tensors
from fedpub.data.clients.partition import partition
from fedpub.data.graph import Graph
from fedpub.engine.rounds import participants
from fedpub.engine.simulate import Federation
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.experiment.prepare import prepare
from fedpub.report.load import load
from fedpub.runs.simulated import Result, run
from fedpub.store.directory import RunDirectory, read_rows
from fedpub.store.record import Record, Row, baseline_of, not_above
from small import few_of_one_class

NAN = float("nan")
CLIENTS = 5  # of the graph file


@pytest.fixture
def tiny(graph_file: str) -> Experiment:
    """An experiment of a moment, on a graph file with natural clients."""
    return Experiment(dataset=graph_file, scenario="natural", hidden=8, rounds=6, method="fedavg")


def row(number: int, val: list[float], test: list[float], **columns: list[float]) -> Row:
    count = len(val)
    plain = {"took_part": [1] * count, "loss": [1.0] * count, "val": val, "val_loss": [0.5] * count}
    plain |= {"test": test, "test_f1": test}
    plain |= {"sparsity": [0.0] * count, "bytes_up": [0] * count, "bytes_down": [0] * count}
    return Row(number, 0.5, plain | columns)


def hand_made() -> Record:
    return Record(
        [
            row(1, [0.4, 0.6, NAN, 0.5], [0.1, 0.1, 0.1, NAN], bytes_up=[1, 2, 3, 4], bytes_down=[10, 0, 0, 0]),
            row(
                2,
                [0.5, 0.7, NAN, 0.6],
                [0.5, 0.6, 0.9, NAN],
                test_f1=[0.2, 0.3, 0.4, NAN],
                sparsity=[0.0, 0.5, 0.25, 0.25],
                bytes_up=[5, 0, 0, 0],
                bytes_down=[0, 20, 0, 0],
            ),
            row(3, [0.7, 0.5, NAN, 0.6], [1.0, 1.0, 1.0, NAN], bytes_up=[0, 0, 0, 7], bytes_down=[0, 0, 30, 0]),
            row(4, [0.1, 0.1, NAN, 0.1], [0.9, 0.9, 0.9, NAN]),
        ]
    )


def test_the_summary_by_hand():
    summary = hand_made().summary("accuracy", [10, 30, 60, 0])
    assert summary == {
        "metric": "accuracy",
        "test": pytest.approx(2.0 / 3),  # 0.5, 0.6, 0.9; the fourth has no test nodes
        "val": pytest.approx(0.6),  # 0.5, 0.7, 0.6; the third has no validation nodes
        "val_loss": 0.5,
        "best_round": 2,  # the third is as good, and later
        "level_rounds": 2,
        "rounds": 4,
        "per_client_test": [0.5, 0.6, 0.9, None],
        "worst_client": 0,
        "worst_client_test": 0.5,
        "weighted_test": pytest.approx(0.77),  # (5 + 18 + 54) / 100
        "test_f1": pytest.approx(0.3),
        "clients_without_test": 1,
        "sparsity": pytest.approx(0.25),
        "bytes_up": 22,
        "bytes_down": 60,
        "seconds": 2.0,
        "setup_bytes_up": 0,
        "setup_bytes_down": 0,
        "setup_seconds": 0.0,
    }


def test_a_baseline_beside_the_result():
    """Two clients with a majority class of 0.9 and 0.5 of their test nodes, and one without any."""
    record = Record([row(1, [0.5] * 3, [0.8, 0.6, NAN])])
    summary = record.summary("accuracy", [1, 1, 0], baseline=("majority", [0.9, 0.5, NAN]))
    found = {name: summary[name] for name in ("baseline", "majority", "per_client_majority")}
    assert found == {"baseline": "majority", "majority": pytest.approx(0.7), "per_client_majority": [0.9, 0.5, None]}
    words, value = baseline_of(summary)
    assert (words, value) == ("majority class", pytest.approx(0.7))
    assert not_above(0.7, (words, 0.7)) == "70.00 % is not above the baseline (majority class, 70.00 %)"
    assert not_above(0.71, (words, 0.7)) is None
    assert baseline_of(record.summary("accuracy", [1, 1, 0])) is None, "an earlier version, or sites elsewhere"


def test_the_weights_are_test_nodes_and_the_worst_client_is_the_lowest():
    record = Record([row(1, [0.5, 0.5, 0.5], [0.8, 0.2, 0.5])])
    summary = record.summary("accuracy", [1, 8, 1])
    assert summary["worst_client"] == 1
    assert summary["worst_client_test"] == 0.2
    assert summary["weighted_test"] == pytest.approx(0.29)
    assert summary["test"] == pytest.approx(0.5)
    assert summary["clients_without_test"] == 0


def test_without_validation_nodes_the_last_round_counts():
    record = Record([row(number, [NAN, NAN], [0.1 * number, 0.3]) for number in (1, 2, 3)])
    assert record.best().round == 3
    assert record.summary("accuracy", [1, 1])["per_client_test"] == [pytest.approx(0.3), 0.3]


def test_where_nobody_has_test_nodes_there_is_no_worst_client():
    summary = Record([row(1, [0.5, 0.6], [NAN, NAN])]).summary("accuracy", [0, 0])
    assert summary["per_client_test"] == [None, None]
    assert summary["clients_without_test"] == 2
    assert summary["worst_client"] is summary["worst_client_test"] is summary["weighted_test"] is None


@pytest.mark.parametrize(
    ("vals", "losses", "kept"),
    [
        ((0.5, 0.6, 0.55), (0.9, 0.8, 0.1), 2),
        ((0.6, 0.6, 0.6), (0.9, 0.7, 0.8), 2),
        ((0.6, 0.6, 0.6), (0.9, 0.8, 0.7), 3),
        ((0.6, 0.6, 0.6), (0.7, 0.7, 0.7), 1),
        ((0.5, 0.6, 0.6), (0.1, 0.9, 0.8), 3),
        ((0.6, 0.6 + 1e-14, 0.6 - 1e-14), (0.8, 0.9, 0.7), 3),
        ((0.6, 0.6 + 1e-9, 0.6), (0.7, 0.9, 0.6), 2),
        ((0.6, 0.6, 0.6), (NAN, NAN, NAN), 1),
        ((0.6, 0.6, 0.7), (NAN, 0.1, 0.9), 3),
        ((NAN, NAN, NAN), (0.1, 0.2, 0.3), 3),
    ],
    ids=[
        "the value comes first",
        "level: the lower loss",
        "level: the last has the lowest",
        "level in both: the first",
        "only the best values are level",
        "less than rounding apart is level",
        "more is not",
        "an earlier version knew no loss",
        "nor in its first rounds",
        "nobody can judge: the last",
    ],
)
def test_the_round_whose_model_is_kept(vals, losses, kept):
    """The mean over two clients, of which the first has the mean less 0.1 and the second the mean plus 0.1."""
    rows = [
        row(number, [val - 0.1, val + 0.1], [0.5, 0.5], val_loss=[loss - 0.05, loss + 0.05])
        for number, (val, loss) in enumerate(zip(vals, losses, strict=True), 1)
    ]
    assert Record(rows).best().round == kept
    record = Record()
    new = [one.round for one in rows if record.append(one)]  # as a run decides, round after round
    assert new[-1] == record.best().round == kept


@pytest.mark.parametrize("method", ["local", "fedavg", "fedpub", "fedpub-plus"])
def test_where_all_rounds_are_right_equally_often_the_model_of_the_lowest_loss_is_kept(method, tmp_path):
    """With 5 % of one class every round predicts the other one; the first has hardly learnt anything."""
    few_of_one_class().save(tmp_path / "few.graph")
    asked = Experiment(dataset=str(tmp_path / "few.graph"), scenario="natural", method=method, hidden=8, rounds=8)
    found = run(replace(asked, lr=0.1, dropout=0.0, ratios=(0.4, 0.3, 0.3)), tmp_path / "out")
    assert {round(row.mean("val"), 6) for row in found.record.rows} == {0.972222}, "accuracy does not tell them apart"
    losses = [row.mean("val_loss") for row in found.record.rows]
    assert found.summary["best_round"] == 1 + losses.index(min(losses))
    assert 1 < found.summary["best_round"] < 8
    assert found.summary["val_loss"] == min(losses)
    _, header = read_tensors(tmp_path / "out" / "models.safetensors")
    assert header["round"] == str(found.summary["best_round"])


def without_losses(path: Path) -> None:
    """A run's rows as an earlier version wrote them."""
    for name in ("rounds.csv", "clients.csv"):
        rows = list(csv.reader((path / name).read_text().splitlines()))
        at = rows[0].index("val_loss")
        text = "".join(",".join(row[:at] + row[at + 1 :]) + "\n" for row in rows)
        (path / name).write_text(text)


def test_a_run_of_a_version_without_validation_losses_is_resumed(tiny, tmp_path):
    out = tmp_path / "out"
    run(tiny, out, keep_checkpoint=True)
    expected = [row.clients | {"val_loss": None} for row in read_rows(out)]
    without_losses(out)
    assert repr([row.clients | {"val_loss": None} for row in read_rows(out)]) == repr(expected)  # NaN is not itself
    assert all(np.isnan(row.mean("val_loss")) for row in read_rows(out))
    longer = replace(tiny, rounds=8)
    (out / "config.json").write_text(longer.resolve().experiment.to_json())
    (out / "summary.json").unlink()
    found = run(longer, out, resume=True)
    assert [row.round for row in read_rows(out)] == list(range(1, 9))
    assert np.isnan([row.mean("val_loss") for row in read_rows(out)]).tolist() == [True] * 6 + [False] * 2
    assert found.record.best().round == found.summary["best_round"]


def test_a_checkpoint_that_lacks_what_a_method_keeps_is_refused(tiny, tmp_path):
    out, plus = tmp_path / "out", replace(tiny, method="fedpub-plus")
    run(plus, out, keep_checkpoint=True)
    state = out / "checkpoint" / "state.safetensors"
    tensors, header = read_tensors(state)
    write_tensors(state, {name: leaf for name, leaf in tensors.items() if not name.endswith("loss")}, header)
    (out / "summary.json").unlink()
    with pytest.raises(FedpubError, match=r"earlier version, which did not keep kept_mean_loss.*with that"):
        run(plus, out, resume=True)


def strict(text: str) -> Any:
    """JSON as other programs read it: without Python's NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("ratios", [(0.2, 0.4, 0.4), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0)])
def test_summary_json_is_json_also_where_a_set_is_empty(ratios, tiny, tmp_path):
    run(replace(tiny, ratios=ratios, rounds=2), tmp_path / "out")
    summary = strict((tmp_path / "out" / "summary.json").read_text())
    assert summary["clients_without_test"] == (CLIENTS if ratios[2] == 0 else 0)


class Killed(Exception):  # noqa: N818
    """Stands in for the kill that the tests of `fedpub run` do with a real signal."""


def run_until(experiment: Experiment, out: Path, last: int, **named: Any) -> None:
    """Run and be killed when the rows of round `last` are written, before its checkpoint."""

    def stop(found: Row, rounds: int) -> None:
        if found.round == last:
            raise Killed

    with pytest.raises(Killed):
        run(experiment, out, on_round=stop, **named)


def kept(folder: Path) -> dict[str, bytes]:
    """The files of a run, less what tells the time or the machine."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".csv":
            with path.open(newline="") as lines:
                rows = [line[:1] + line[2:] for line in csv.reader(lines)]
            found[name] = json.dumps(rows).encode()
        elif name == "summary.json":
            found[name] = json.dumps(json.loads(path.read_text()) | {"seconds": 0}).encode()
        elif name != "env.json":
            found[name] = path.read_bytes()
    return found


VARIANTS: dict[str, dict[str, Any]] = {
    "local": {"method": "local"},
    "fedavg": {"method": "fedavg"},
    "fedprox": {"method": "fedprox"},
    "fedper": {"method": "fedper"},
    "gcfl": {"method": "gcfl", "options": {"warm_up": 1, "eps1": 10.0, "eps2": 0.0}},
    "oracle": {"method": "oracle"},
    "fedpub": {"method": "fedpub"},
    "fedpub, no masks": {"method": "fedpub", "options": {"masks": False}},
    "fedpub, no similarity": {"method": "fedpub", "options": {"similarity": False}},
    "fedpub, official": {"method": "fedpub", "options": {"official": True}},
    "sage": {"method": "fedpub", "model": "sage"},
    "few take part": {"method": "fedpub", "fraction": 0.4, "failures": 0.2},
    "fedpub-plus": {"method": "fedpub-plus"},
    "fedpub-plus, few take part": {"method": "fedpub-plus", "fraction": 0.4, "failures": 0.2},
    "no validation nodes": {"method": "fedavg", "ratios": (0.5, 0.0, 0.5)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(name, tiny, tmp_path):
    experiment = replace(tiny, **VARIANTS[name])
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(experiment, whole, checkpoint_seconds=0, keep_checkpoint=True)
    run_until(experiment, parts, 3, checkpoint_seconds=0)
    assert not (parts / "summary.json").exists()
    run_until(experiment, parts, 5, checkpoint_seconds=0, resume=True)
    run(experiment, parts, resume=True, keep_checkpoint=True)
    assert kept(parts) == kept(whole)


def test_a_run_killed_before_its_first_checkpoint_starts_again(tiny, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(tiny, whole)
    run_until(tiny, parts, 4)
    assert not (parts / "checkpoint").exists()
    assert len(read_rows(parts)) == 4
    run(tiny, parts, resume=True)
    assert kept(parts) == kept(whole)


def test_a_run_killed_between_its_last_checkpoint_and_its_summary(tiny, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(tiny, whole, keep_checkpoint=True)
    run(tiny, parts, keep_checkpoint=True)
    for name in ("summary.json", "models.safetensors"):
        (parts / name).unlink()
    run(tiny, parts, resume=True, keep_checkpoint=True, on_round=lambda *_: pytest.fail("a round is computed again"))
    assert kept(parts) == kept(whole)


def test_rows_come_back_from_the_file_as_they_were(tiny, tmp_path):
    found: Result = run(replace(tiny, failures=0.5), tmp_path / "out")
    back = read_rows(tmp_path / "out")
    assert [one.round for one in back] == [1, 2, 3, 4, 5, 6]
    assert repr(back) == repr(found.record.rows)  # NaN is not equal to itself
    means = (tmp_path / "out" / "rounds.csv").read_text().splitlines()
    assert len(means) == 7
    named = dict(zip(means[0].split(","), means[3].split(","), strict=True))
    for name in ("loss", "val", "test", "test_f1", "sparsity"):
        assert float(named[name]) == pytest.approx(back[2].mean(name), nan_ok=True)
    assert int(named["took_part"]) == sum(back[2].clients["took_part"])
    assert int(named["bytes_up"]) == sum(back[2].clients["bytes_up"])


def test_a_last_round_that_was_cut_short_is_left_out(tiny, tmp_path):
    out = tmp_path / "out"
    run(replace(tiny, rounds=2), out)
    expected = [repr(one) for one in read_rows(out)]
    whole = (out / "clients.csv").read_bytes()
    second = whole.index(b"\n2,") + 1
    for end in range(second, len(whole)):
        (out / "clients.csv").write_bytes(whole[:end])
        found = [repr(one) for one in read_rows(out)]
        assert found == expected[:1], f"cut after {whole[:end][-40:]!r}"


def test_the_rows_of_a_file_that_was_cut_before_the_checkpoint_are_not_made_up(tiny, tmp_path):
    """The last value of the checkpoint's round, cut in the middle, is still a number."""
    out = tmp_path / "out"
    run(tiny, out, keep_checkpoint=True)
    (out / "summary.json").unlink()
    whole = (out / "clients.csv").read_bytes()
    (out / "clients.csv").write_bytes(whole[:-2])
    with pytest.raises(FedpubError, match=r"5 of the 6 rounds"):
        run(tiny, out, resume=True)
    assert (out / "clients.csv").read_bytes() == whole[:-2]


@pytest.mark.parametrize("damage", ["2,0.1,zero,1,x", "two,0.1,0,1,0.5,0.5,0.5,0.5,0.5,1,1", "\x00\x00"])
def test_rows_that_are_not_numbers_are_one_sentence(damage, tiny, tmp_path):
    out = tmp_path / "out"
    run_until(tiny, out, 4, checkpoint_seconds=0)
    lines = (out / "clients.csv").read_text().splitlines()
    lines[7] = damage
    (out / "clients.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(FedpubError, match=r"clients\.csv"):
        run(tiny, out, resume=True)


@pytest.fixture(params=[(True, True, False, True), (False, True, True, True)], ids=["third", "first"])
def unreliable(tiny: Experiment, request: pytest.FixtureRequest) -> Experiment:
    """One client in a round at most, which fails every other time; also in the round that the name tells."""

    def somebody(seed: int) -> tuple[bool, ...]:
        return tuple(bool(participants(seed, number, CLIENTS, 0.2, 0.5)) for number in range(1, 5))

    seed = next(seed for seed in range(1000) if somebody(seed) == request.param)
    return replace(tiny, seed=seed, fraction=0.2, failures=0.5)


@pytest.mark.parametrize("method", ["fedavg", "gcfl", "fedpub"])
def test_a_round_in_which_nobody_takes_part_has_rows_like_the_others(method, unreliable, tmp_path):
    experiment = replace(unreliable, method=method)
    run(experiment, tmp_path / "out")
    with (tmp_path / "out" / "clients.csv").open(newline="") as lines:
        widths = {len(line) for line in csv.reader(lines)}
    assert len(widths) == 1
    assert [one.round for one in read_rows(tmp_path / "out")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("method", ["gcfl", "fedpub"])
def test_a_run_with_rounds_in_which_nobody_takes_part_is_resumed(method, unreliable, tmp_path):
    experiment = replace(unreliable, method=method)
    run(experiment, tmp_path / "whole", checkpoint_seconds=0, keep_checkpoint=True)
    run_until(experiment, tmp_path / "parts", 5, checkpoint_seconds=0)
    run(experiment, tmp_path / "parts", resume=True, keep_checkpoint=True)
    assert kept(tmp_path / "parts") == kept(tmp_path / "whole")


def test_relations_have_an_entry_per_round_and_no_number_for_who_was_not_there(tiny, tmp_path):
    experiment = replace(tiny, method="fedpub", fraction=0.6)
    found = run(experiment, tmp_path / "out")
    similarity = read_tensors(tmp_path / "out" / "relations.safetensors")[0]["similarity"]
    assert similarity.shape == (6, CLIENTS, CLIENTS)
    for number, one in enumerate(found.record.rows):
        there = torch.tensor(one.clients["took_part"], dtype=torch.bool)
        assert there.sum() == 3
        known = there[:, None] & there
        assert torch.equal(torch.isnan(similarity[number]), ~known)
        torch.testing.assert_close(similarity[number].diagonal()[there], torch.ones(3))


def test_relations_stay_with_their_rounds_when_nobody_takes_part_in_one(unreliable, tmp_path):
    experiment = replace(unreliable, method="fedpub")
    found = run(experiment, tmp_path / "out")
    similarity = read_tensors(tmp_path / "out" / "relations.safetensors")[0]["similarity"]
    took_part = [[bool(value) for value in one.clients["took_part"]] for one in found.record.rows]
    assert (~torch.isnan(similarity.diagonal(dim1=1, dim2=2))).tolist() == took_part


def test_the_models_are_those_of_the_best_round(tiny, tmp_path):
    """The kept weights, evaluated again, give the values of the summary."""
    experiment = replace(tiny, method="fedpub", lr=0.05, rounds=8).resolve()
    summary = run(experiment, tmp_path / "out").summary
    weights, header = read_tensors(tmp_path / "out" / "models.safetensors")
    assert header == {"round": str(summary["best_round"])}
    federation = prepare(experiment).federation
    ctx = experiment.context
    metrics = ctx.task.evaluate(ctx.model, weights, federation.chunks(list(range(CLIENTS)))[0])
    assert metrics["test"].tolist() == pytest.approx(summary["per_client_test"])
    assert float(metrics["val"].mean()) == pytest.approx(summary["val"])


def test_of_rounds_that_are_equally_good_the_first_one_s_models_are_kept(tiny, tmp_path):
    """With steps too small to change the loss, too, every round is as good as the first."""
    slow = replace(tiny, lr=1e-300, method="local")
    assert run(slow, tmp_path / "six").summary["best_round"] == 1
    run(replace(slow, rounds=1), tmp_path / "one")
    models = [(tmp_path / name / "models.safetensors").read_bytes() for name in ("six", "one")]
    assert models[0] == models[1]


def test_without_validation_nodes_the_last_models_are_kept(tiny, tmp_path):
    found = run(replace(tiny, ratios=(0.5, 0.0, 0.5)), tmp_path / "out", keep_checkpoint=True)
    assert found.summary["best_round"] == 6
    weights, header = read_tensors(tmp_path / "out" / "models.safetensors")
    state, _ = read_tensors(tmp_path / "out" / "checkpoint" / "state.safetensors")
    assert header["round"] == "6"
    assert weights
    for name, leaf in weights.items():
        assert torch.equal(leaf, state[f"clients/weights/{name}"])


def test_a_finished_run_keeps_its_result_and_its_models_but_no_checkpoint(tiny, tmp_path):
    """Nor what set-up made; who asks for it has both."""
    experiment, out, asked = replace(tiny, method="fedgnn", rounds=2), tmp_path / "out", tmp_path / "asked"
    found = run(experiment, out, checkpoint_seconds=0)
    run(experiment, asked, keep_checkpoint=True)
    files = {"config.json", "env.json", "rounds.csv", "clients.csv", "models.safetensors", "details.json"}
    files |= {"summary.json"}
    assert {path.name for path in out.iterdir()} == files
    assert {path.name for path in asked.iterdir()} == files | {"checkpoint", "setup.safetensors"}
    assert read_tensors(asked / "checkpoint" / "state.safetensors")[1]["round"] == "2"
    assert (out / "models.safetensors").read_bytes() == (asked / "models.safetensors").read_bytes()
    again = run(experiment, out, resume=True, on_round=lambda *_: pytest.fail("a round is computed again"))
    assert again.summary == found.summary
    assert repr(again.record.rows) == repr(found.record.rows)


def test_the_relations_of_a_finished_run_are_in_a_file_of_their_own(tiny, tmp_path):
    run(replace(tiny, method="fedpub"), tmp_path / "out", checkpoint_seconds=0)
    assert not (tmp_path / "out" / "checkpoint").exists()
    (loaded,), complaints = load([tmp_path / "out"])
    assert complaints == []
    assert [(one.name, one.rounds[-1]) for one in loaded.relations] == [("similarity", 6), ("alpha", 6)]


def test_clients_are_stacked_once(tiny, tmp_path, monkeypatch):
    """Before the first round: the end of a run counts test nodes without features."""
    stacked, usual = [], Federation.chunks
    monkeypatch.setattr(
        Federation, "chunks", lambda self, ids, ctx=None: stacked.append(list(ids)) or usual(self, ids, ctx)
    )
    run(tiny, tmp_path / "out")
    assert stacked == [list(range(CLIENTS))]


def test_a_run_without_a_directory_finds_the_same(tiny, tmp_path):
    with_one, without = run(tiny, tmp_path / "out"), run(tiny)
    assert without.path is None
    assert with_one.summary | {"seconds": 0} == without.summary | {"seconds": 0}


def test_chunks_are_a_matter_of_memory(tiny):
    experiment = replace(tiny, dtype="float64", method="fedpub")
    whole, parts = run(experiment).summary, run(experiment, chunk=2).summary
    assert parts["per_client_test"] == whole["per_client_test"]
    assert parts["bytes_up"] == whole["bytes_up"]


def test_a_summary_that_cannot_be_read_is_said(tiny, tmp_path):
    run(tiny, tmp_path / "out")
    (tmp_path / "out" / "summary.json").write_text("{")
    with pytest.raises(FedpubError, match=r"summary\.json cannot be read"):
        RunDirectory(tmp_path / "out").summary()


def test_a_run_is_not_resumed_on_another_graph(tiny, tmp_path):
    run_until(tiny, tmp_path / "out", 3, checkpoint_seconds=0)
    path = Path(tiny.dataset)
    graph = Graph.load(path)
    replace(graph, x=graph.x * 2).save(path)
    with pytest.raises(FedpubError, match="has changed"):
        run(tiny, tmp_path / "out", resume=True)
    graph.save(path)
    assert run(tiny, tmp_path / "out", resume=True).summary["rounds"] == 6


def test_a_run_is_not_resumed_on_another_partition_of_the_same_graph(tiny, tmp_path, monkeypatch):
    """As another version of METIS would divide it."""
    experiment = replace(tiny, scenario="disjoint", clients=3)
    run_until(experiment, tmp_path / "out", 3, checkpoint_seconds=0)
    with monkeypatch.context() as patch:
        other = partition(Graph.load(tiny.dataset), "random", 3)
        patch.setattr("fedpub.experiment.prepare.cached_partition", lambda *how: other)
        with pytest.raises(FedpubError, match=r"the partition of .* has changed"):
            run(experiment, tmp_path / "out", resume=True)
    assert run(experiment, tmp_path / "out", resume=True).summary["rounds"] == 6


def test_a_run_that_began_without_a_digest_of_its_partition_is_resumed(tiny, tmp_path):
    run_until(tiny, tmp_path / "out", 3, checkpoint_seconds=0)
    env = tmp_path / "out" / "env.json"
    began = json.loads(env.read_text())
    assert len(began.pop("partition")) == 64
    env.write_text(json.dumps(began))
    assert run(tiny, tmp_path / "out", resume=True).summary["rounds"] == 6
