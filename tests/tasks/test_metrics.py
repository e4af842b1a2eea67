"""Metrics by hand, and the settings that choose them."""

from __future__ import annotations

import pytest
import torch

from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.tasks.metrics import balanced_accuracy, by_class


def test_two_classes_are_ranked_by_the_second():
    """Scores of class 1: 3 +, 2 −, 2 +, 1 −."""
    logits = torch.tensor([[0.0, 3], [0, 2], [0, 2], [0, 1]])
    found, counted = by_class(logits, torch.tensor([1, 0, 1, 0]), torch.zeros(4, dtype=torch.int64), 1)
    assert found["roc-auc"].item() == pytest.approx(3.5 / 4)
    assert found["average-precision"].item() == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)
    assert (found["accuracy"].item(), found["balanced-accuracy"].item()) == (0.5, 0.5)
    assert counted.tolist() == [[[0, 2], [0, 2]]]


def test_balanced_accuracy_is_the_mean_recall_of_the_classes_that_occur():
    """Recalls 9/10 and 1/2; the third class does not occur."""
    confusion = torch.tensor([[[9, 1, 0], [1, 1, 0], [0, 0, 0]], [[0, 0, 0]] * 3], dtype=torch.float64)
    found = balanced_accuracy(confusion)
    assert found[0].item() == pytest.approx(0.7)
    assert bool(found[1].isnan())


def test_a_metric_that_does_not_fit_the_task_is_refused(tmp_path, capsys):
    with pytest.raises(FedpubError, match="does not fit link-prediction; give roc-auc or average-precision"):
        Experiment(task="link-prediction", metric="macro-f1").resolve()
    out = tmp_path / "run"
    assert main(["run", "--task", "link-prediction", "--metric", "macro-f1", "--out", str(out)]) == 2
    assert "--metric macro-f1 does not fit link-prediction" in capsys.readouterr().err
    assert not out.exists()
