"""A deployed secure run, of which the coordinator knows means and sums alone: no page and no verb invents a client."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import fedpub
from fedpub.cli import main
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.coordinator import Coordinator
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.report.load import load, run_directories
from fedpub.report.payload import payload
from fedpub.runs.simulated import run

EXPERIMENT = Experiment(
    scenario="disjoint",
    clients=4,
    method="fedpub",
    options={"communities": "explicit"},
    secure=True,
    rounds=2,
    hidden=4,
)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A run directory as `fedpub deploy local --secure` leaves it, with the models of all sites."""
    folder = tmp_path_factory.mktemp("deployed")
    sites = InProcessSites(folder / "sites", EXPERIMENT)
    play(Coordinator(EXPERIMENT, "0" * 16, sites.names, sites, folder / "sites"), folder / "run")
    run(EXPERIMENT, folder / "simulated")
    for name in ("models.safetensors", "details.json"):
        shutil.copy(folder / "simulated" / name, folder / "run" / name)
    return folder / "run"


def test_the_report_shows_means_and_no_client(deployed):
    runs, complaints = load([deployed])
    assert not complaints
    found = payload(runs, complaints)
    [row] = found["tables"][0]["lines"]
    assert row["mean"] is not None
    assert row["worst_client"] is None
    assert found["cells"][0]["name"] == "communities, disjoint, 4 clients"


def test_so_it_does_while_the_run_is_in_progress(deployed, tmp_path):
    shutil.copytree(deployed, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    [found] = load([tmp_path])[0]
    assert found.summary is not None
    assert found.summary["per_client_test"] == []
    assert found.summary["worst_client"] is None


def test_the_models_of_sites_are_no_runs(deployed, tmp_path):
    """`fedpub deploy local` keeps them below the run directory, each with a config.json of its own."""
    model = tmp_path / "run" / "deployment" / "sites" / "site-0" / "model"
    shutil.copytree(deployed, tmp_path / "run")
    model.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text("{}")
    assert run_directories([tmp_path]) == [tmp_path / "run"]


def test_a_run_in_python_says_what_is_known(deployed):
    found = fedpub.load(deployed)
    assert "disjoint, 4 clients" in repr(found)
    assert "worst client not known" in repr(found)
    assert found.clients["client"].tolist() == ["all", "all"]
    assert found.rounds["test"].notna().all()
    found.plot("convergence")
    with pytest.raises(FedpubError, match="only means are known"):
        found.plot("clients")


def test_models_of_all_sites_can_be_used(deployed):
    found = fedpub.load(deployed)
    card = found.model(2)[1]
    assert (card.site, card.val, card.test) == ("2", None, None), "a mean over all is no value of a client"
    assert len(found.predictions(2)) == len(found.nodes(2))


def test_noise_on_embeddings_does_not_keep_its_data_away(tmp_path):
    """The data of a run are those of any method."""
    noisy = replace(EXPERIMENT, secure=False, embedding_noise=0.5, rounds=1, options={})
    run(noisy, tmp_path / "run")
    assert len(fedpub.load(tmp_path / "run").nodes(0))


def test_the_verb_report(deployed, tmp_path, capsys):
    page, table = tmp_path / "page.html", tmp_path / "table.md"
    assert main(["report", str(deployed), "--out", str(page), "--markdown", str(table)]) == 0
    captured = capsys.readouterr()
    assert "missing" not in captured.err
    assert "Worst" not in table.read_text()
