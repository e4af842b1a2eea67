"""The README's commands and its Python example do what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fedpub.cli import main

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands(language: str) -> list[str]:
    return [line for block in blocks(language) for line in block.splitlines() if line.startswith("fedpub ")]


def test_commands_that_need_nothing_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in commands("sh"):
        assert main(shlex.split(command)[1:]) == 0, command
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_papers_tables_as_written(real_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, _ = [command for command in commands("console") if "reproduce" in command]
    assert main(shlex.split(first)[1:]) == 0
    assert main([*shlex.split(second.replace("--seeds 3 --jobs 2", "--quick"))[1:]]) == 0
    assert (tmp_path / "reproduction" / "figure-heatmaps.svg").is_file()


def test_your_own_graph(tmp_path, monkeypatch):
    """The commands on own tables, one after the other, on tables that are made here."""
    monkeypatch.chdir(tmp_path)
    people = range(60)
    rows = [f"p{i},{i % 7},{'north' if i % 3 else 'south'},{'yes' if i % 2 else 'no'}" for i in people]
    Path("nodes.csv").write_text("\n".join(["id,age,city,label", *rows]) + "\n")
    Path("edges.csv").write_text("\n".join(["source,target", *(f"p{i},p{(i + 2) % 60}" for i in people)]) + "\n")
    own = [command for command in commands("console") if "my.graph" in command]
    assert len(own) == 2
    for command in own:
        extra = [] if "import" in command else ["--rounds", "2", "--seeds", "1"]
        assert main([*shlex.split(command)[1:], *extra]) == 0


def test_cora_as_written(real_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = [command for command in commands("console") if "run --dataset cora" in command]
    assert main([*shlex.split(command)[1:], "--rounds", "2"]) == 0


def test_link_prediction_as_written(real_data):
    (command,) = [command for command in commands("console") if "link-prediction" in command]
    assert main([*shlex.split(command)[1:], "--rounds", "2", "--epochs", "1"]) == 0


def test_the_python_example():
    (example,) = blocks("python")
    exec(example.replace("rounds=20", "rounds=2"), {})


def test_make_targets_exist():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M)


def test_predictions_as_written(real_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = [command for command in commands("console") if command.startswith("fedpub predict")]
    assert main(["run", "--dataset", "cora", "--clients", "5", "--rounds", "2", "--out", "runs/cora"]) == 0
    assert main(shlex.split(command)[1:]) == 0
    assert (tmp_path / "predictions.parquet").is_file()


def test_the_readme_and_the_tutorial_write_to_different_places():
    tutorial = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    written = [set(re.findall(r"--out (runs/\w+)", text)) for text in (README, tutorial)]
    assert all(written)
    assert not written[0] & written[1]
