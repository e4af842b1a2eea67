"""The GPU computes what the CPU computes; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from fedpub.algorithms import METHODS
from fedpub.data.synthetic import Communities, communities_graph
from fedpub.experiment import Experiment
from fedpub.models import MODELS
from fedpub.runs.simulated import run

ON_BOTH = ("loss", "val", "test", "sparsity", "bytes_up", "bytes_down")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def rows_on(device: str, dataset: str, **settings: object) -> list[list[float]]:
    experiment = Experiment(dataset=dataset, hidden=8, rounds=4, epochs=2, dtype="float64", device=device, **settings)
    return [[value for name in ON_BOTH for value in row.clients[name]] for row in run(experiment).record.rows]


def assert_alike(dataset: str, **settings: object) -> None:
    on_cpu, on_gpu = (torch.tensor(rows_on(device, dataset, **settings)) for device in ("cpu", "cuda"))
    torch.testing.assert_close(on_gpu, on_cpu, rtol=0, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("scenario", ["natural", "random", "dirichlet"])  # equal, nearly equal and unequal sizes
def test_every_method_gives_the_same_on_both(method, model, scenario, tmp_path):
    spec = Communities((3, 2), 21, 0.25, 0.05, 0.01, 3, 30, 0.6, 5, 0.3, 0.5)
    communities_graph("tiny", spec).save(tmp_path / "tiny.graph")
    clients = None if scenario == "natural" else 4
    settings = {"scenario": scenario, "clients": clients, "method": method, "model": model}
    assert_alike(str(tmp_path / "tiny.graph"), **settings)
    assert_alike(str(tmp_path / "tiny.graph"), fraction=0.5, **settings)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_predicts_the_same_links_on_both(method, decoder, tmp_path):
    spec = Communities((3, 2), 21, 0.25, 0.05, 0.01, 3, 30, 0.6, 5, 0.3, 0.5)
    communities_graph("tiny", spec).save(tmp_path / "tiny.graph")
    settings = {"scenario": "random", "clients": 4, "method": method, "task": "link-prediction", "decoder": decoder}
    assert_alike(str(tmp_path / "tiny.graph"), fraction=0.5, **settings)


@pytest.mark.parametrize(
    "options",
    [{"measure": "label"}, {"measure": "gradient"}, {"proxy": "feature"}, {"neighbours": 2}, {"official": True}],
    ids=str,
)
def test_every_variant_of_fed_pub_gives_the_same_on_both(options, tmp_path):
    """Those that look at values are computed round by round, the others are recorded."""
    spec = Communities((3, 2), 21, 0.25, 0.05, 0.01, 3, 30, 0.6, 5, 0.3, 0.5)
    communities_graph("tiny", spec).save(tmp_path / "tiny.graph")
    assert_alike(str(tmp_path / "tiny.graph"), scenario="natural", method="fedpub", options=options)
