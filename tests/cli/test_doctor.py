"""`fedpub doctor`: what is broken is a line with a way out, never a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedpub.cli import checkup as doctor
from fedpub.cli import main
from fedpub.cli.checkup import Finding, examine
from fedpub.data import datasets

ROOT = Path(__file__).parents[2]


def findings(check: str) -> dict[str, Finding]:
    return {one.what: one for one in getattr(doctor, check)()}


def test_nothing_is_wrong_here(capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert all(re.match(r"ok  |note  |         ", line) for line in told.splitlines())
    assert told.isascii()
    for word in ("fedpub", "Python", "torch", "numpy", "CPU", "GPU", "memory", "cache", "communities", "extra mlflow"):
        assert word in told


def test_whatever_is_not_well_says_what_to_do(capsys):
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert all(one["advice"] for one in told["checks"] if one["state"] != "ok")
    assert all(not one["advice"] for one in told["checks"] if one["state"] == "ok")


def with_broken(module: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """fedpub where a package fails to be imported, as one does whose library is missing."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise ImportError('libmissing.so: no such file', name=__name__)\n")
    env = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, "-m", "fedpub", *words], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("module", ["torch", "tyro", "rich", "pyarrow"])
def test_a_package_that_cannot_be_imported_is_a_line(module, tmp_path):
    done = with_broken(module, tmp_path, "doctor", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    (broken,) = [one for one in told["checks"] if one["state"] == "problem"]
    assert broken["what"] == module
    assert "libmissing.so" in broken["found"]
    assert "pip install" in broken["advice"]


@pytest.mark.parametrize("module", ["torch", "tyro"])
def test_other_verbs_send_to_the_doctor(module, tmp_path):
    done = with_broken(module, tmp_path, "data", "list")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"fedpub: {module} cannot be imported" in done.stderr
    assert "fedpub doctor" in done.stderr


def test_torch_is_imported_only_by_the_check():
    code = "import sys, fedpub.cli.checkup, fedpub.cli.doctor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("wanted", "said"), [("no-such-package>=1", "is not installed"), ("numpy>=99", ">=99 is needed")]
)
def test_a_requirement_that_is_not_met(wanted, said, monkeypatch, capsys):
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: [wanted, "rich>=1"])
    name = wanted.partition(">")[0]
    found = findings("packages")
    assert (found[name].state, found[name].advice) == ("problem", f"pip install '{wanted}'")
    assert said in found[name].found
    assert found["packages"].found.startswith("rich ")
    assert main(["doctor"]) == 1
    assert f"-> pip install '{wanted}'" in capsys.readouterr().out


def test_a_package_that_is_not_installed_itself(monkeypatch):
    def nothing(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", nothing)
    monkeypatch.setattr(doctor.metadata, "metadata", nothing)
    assert findings("packages")["packages"].state == "note"
    assert findings("extras") == {}


def test_other_versions_than_the_pinned_ones_are_a_note(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "99.0+cpu")
    found = doctor._unpinned()
    assert len(found) > 50
    assert any(re.fullmatch(r"numpy 99.0\+cpu \(not [\d.]+\)", line) for line in found)


def declare(monkeypatch, *extras: tuple[str, str]) -> None:
    message = Message()
    for extra, _ in extras:
        message["Provides-Extra"] = extra
    monkeypatch.setattr(doctor.metadata, "metadata", lambda name: message)
    texts = [f'{wanted}; extra == "{extra}"' for extra, wanted in extras]
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: texts)


def test_extras_are_optional(monkeypatch):
    declare(monkeypatch, ("fine", "rich"), ("absent", "no-such-package>=2"), ("dev", "also-not-here"))
    found = findings("extras")
    assert found.keys() == {"extra fine", "extra absent", "installation"}
    assert "tensorboard" in found["installation"].found  # in pyproject.toml, but not in what is declared here
    assert found["extra fine"].state == "ok"
    assert found["extra absent"].state == "note"
    assert "pip install 'fedpub[absent]'" in found["extra absent"].advice


def test_python_is_the_one_that_the_package_wants():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == ">=" + ".".join(map(str, doctor.PYTHON))


def test_an_old_python_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "PYTHON", (99, 1))
    assert findings("versions")["Python"].state == "problem"


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["doctor"]) == 1
    assert "-> set FEDPUB_CACHE" in capsys.readouterr().out


def test_little_room_is_a_note(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=2**20))
    assert {one.state for one in doctor.folders()} == {"note"}
    monkeypatch.setattr(doctor, "LITTLE_MEMORY", 2.0**20)
    assert findings("memory")["memory"].state == "note"


def test_graphs_at_hand_and_to_be_downloaded(tmp_path, monkeypatch):
    assert "graphs at hand" not in findings("data")
    for file in datasets.SOURCES["photo"].files:
        path = tmp_path / "data" / file.path
        path.parent.mkdir(parents=True)
        path.write_text("")
    monkeypatch.setenv("FEDPUB_DATA", str(tmp_path / "data"))
    found = findings("data")
    assert found["graphs at hand"].found.startswith("photo in ")
    assert "photo" not in found["graphs to download"].found
    assert "cora" in found["graphs to download"].found
    assert "communities" in found["built-in graphs"].found


def test_a_data_folder_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPUB_DATA", str(tmp_path / "absent"))
    assert findings("data")["FEDPUB_DATA"].state == "note"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPUB_DATA", str(tmp_path / "file"))
    assert findings("data")["data"].state == "problem"


def fake_torch(cuda: str | None, devices: int) -> SimpleNamespace:
    card = SimpleNamespace(name="H200", total_memory=141 * 2**30)
    gpu = SimpleNamespace(is_available=lambda: devices > 0, device_count=lambda: devices)
    gpu.get_device_properties = lambda number: card
    return SimpleNamespace(
        get_num_threads=lambda: 4, cuda=gpu, version=SimpleNamespace(cuda=cuda), __version__="2.13.0"
    )


@pytest.mark.parametrize(
    ("cuda", "count", "tools", "what", "state", "said"),
    [
        ("13.0", 2, True, "GPU cuda:1", "ok", "H200, 141 GiB"),
        ("13.0", 0, True, "GPU", "note", "torch sees none"),
        (None, 0, True, "GPU", "note", "built without CUDA"),
        (None, 0, False, "GPU", "ok", "runs on the CPU"),
    ],
)
def test_gpus(cuda, count, tools, what, state, said, monkeypatch):
    monkeypatch.setattr(doctor, "_imported", lambda module: fake_torch(cuda, count))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi" if tools else None)
    found = findings("devices")
    assert "4 threads" in found["CPU"].found
    assert found[what].state == state
    assert said in found[what].found


def test_a_terminal_without_the_letters_is_a_note_and_gets_its_lines(tmp_path, monkeypatch):
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="ascii", write_through=True)
    monkeypatch.setenv("FEDPUB_CACHE", str(tmp_path / "Söhne"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert main(["doctor"]) == 0
    told = written.getvalue().decode("ascii")
    assert "S?hne" in told
    assert "PYTHONUTF8=1" in told


def test_a_narrow_terminal_is_a_note(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    assert "widen it" in findings("terminal")["terminal"].advice


def test_a_check_that_fails_is_a_line(monkeypatch):
    def strange():
        yield Finding("before", "ok", "fine")
        raise RuntimeError("two\nlines " + "x" * 500)

    monkeypatch.setattr(doctor, "CHECKS", (strange,))
    before, failed = examine()
    assert before.found == "fine"
    assert (failed.what, failed.state) == ("strange", "note")
    assert "RuntimeError: two lines" in failed.found
    assert len(failed.found) < 300


def test_every_extra_that_is_installed_is_found(monkeypatch):
    """Some packages' modules have other names."""
    wanted = [wanted for extra in ("docs", "mlflow", "tensorboard") for wanted in doctor._required(extra)]
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name in ("material", "mlflow") or None)
    found = {one.name: doctor._package(one, essential=False) for one in wanted}
    for name in ("mkdocs-material", "mlflow-skinny"):
        assert found[name].state == "ok" or found[name].found == "is not installed"
