"""The examples run, with few rounds."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import DATA

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def python(*words: str, **environment: str) -> str:
    command = [sys.executable, *words]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_method_of_ones_own_beside_fedavg():
    script = str(EXAMPLES / "custom_method.py")
    said = python(script, "compare", "--methods", "halfway", "fedavg", "--rounds", "2", "--seeds", "1", "--hidden", "8")
    assert "halfway" in said
    assert "FedAvg" in said


def test_its_test(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_custom_method.py"))


def test_three_hospitals_from_tables_to_predictions(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    binaries = str(Path(sys.executable).parent)
    environment = os.environ | {"ROUNDS": "2", "PATH": binaries + os.pathsep + os.environ["PATH"]}
    command = [bash, str(EXAMPLES / "hospitals" / "run.sh"), str(tmp_path / "trial")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "trial" / "predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 160
    assert {row["prediction"] for row in rows} <= {"angina", "arrhythmia", "healthy"}


def test_hospitals_are_the_same_every_time(tmp_path):
    for folder in ("one", "two"):
        python(str(EXAMPLES / "hospitals" / "make_tables.py"), str(tmp_path / folder))
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 6
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_seven_countries_of_twitch(shared_cache):
    if not (DATA / "twitch").is_dir():
        pytest.skip("the Twitch graphs are not at hand: set FEDPUB_DATA to a folder that has them")
    script = str(EXAMPLES / "twitch_countries.py")
    said = python(script, "--rounds", "1", FEDPUB_DATA=str(DATA), FEDPUB_CACHE=str(shared_cache))
    assert all(country in said for country in ("DE", "ENGB", "ES", "FR", "PTBR", "RU", "ZHTW"))
