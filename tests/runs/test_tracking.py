"""TensorBoard and MLflow get what a run measured."""

from __future__ import annotations

import importlib.util

import pytest

from fedpub.cli import main
from fedpub.experiment import Experiment
from fedpub.runs.tracking import Tracker, means, settings
from fedpub.store.directory import read_rows

RUN = ["run", "--quiet", "--method", "fedavg", "--rounds", "3", "--hidden", "4", "--dataset"]


def test_tensorboard_has_every_round(graph_file, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    assert main([*RUN, graph_file, "--out", str(out), "--track", "tensorboard"]) == 0
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    rows = read_rows(out)
    found = [(event.step, event.value) for event in events.Scalars("val")]
    assert found == [(row.round, pytest.approx(row.mean("val"), rel=1e-6)) for row in rows]
    assert "result/test" in events.Tags()["scalars"]


def test_mlflow_has_settings_rounds_and_result(graph_file, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "run"
    assert main([*RUN, graph_file, "--out", str(out), "--track", "mlflow"]) == 0
    client = MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == "fedpub"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["rounds"] == "3"
    steps = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, "test")]
    assert steps == [(row.round, pytest.approx(row.mean("test"))) for row in read_rows(out)]
    assert "result_test" in run.data.metrics


def test_bad_names_and_missing_packages_are_refused_before_anything_is_made(graph_file, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    assert main([*RUN, graph_file, "--out", str(out), "--track", "tensorbord"]) == 2
    assert "tensorboard" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main([*RUN, graph_file, "--out", str(out), "--track", "mlflow"]) == 2
    assert "pip install 'fedpub[mlflow]'" in capsys.readouterr().err
    assert not out.exists()


def test_what_is_told(graph_file):
    from fedpub.runs.simulated import run

    experiment = Experiment(dataset=graph_file, method="fedprox", rounds=1, hidden=4).resolve().experiment
    row = run(experiment).record.rows[0]
    told = means(row)
    assert told["val"] == row.mean("val")
    assert told["bytes_up"] == sum(row.clients["bytes_up"])
    assert settings(experiment)["fedprox.mu"] == 0.001
    assert "options" not in settings(experiment)
    assert Tracker((), experiment, None).sinks == []
