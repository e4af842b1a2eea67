"""The house rules that a linter cannot know, or whose breach nobody would see: see docs/architecture.md."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpub"
FILES = sorted(SOURCE.rglob("*.py"))


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the sources in a folder, with the contracts of this project."""
    words = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        words, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("core/tree.py", "import fedpub.data.graph"),
        ("algorithms/fedavg.py", "from fedpub.experiment import Experiment"),
        ("federation/wire.py", "def later():\n    from fedpub.flower import gate"),
        ("report/tables.py", "from fedpub.paper import recipe"),
        ("api/calls.py", "from fedpub.bench import timing"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_noticed(room: str, line: str, tmp_path: Path) -> None:
    """Also where it is hidden in a function."""
    shutil.copytree(SOURCE, tmp_path / "fedpub", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "fedpub" / room
    file.write_text(file.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_modules_import_each_other_in_no_circle() -> None:
    """Neither at the top nor in a function; names that only types need are no import."""
    graph = grimp.build_graph("fedpub", cache_dir=None, exclude_type_checking_imports=True)
    open_, done = [], set()

    def visit(module: str) -> None:
        if module in done:
            return
        assert module not in open_, f"a circle: {' -> '.join([*open_[open_.index(module) :], module])}"
        open_.append(module)
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            visit(other)
        done.add(open_.pop())

    for module in sorted(graph.modules - {"fedpub"}):
        visit(module)


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for file in FILES:
        yield str(file.relative_to(SOURCE)), ast.parse(file.read_text(encoding="utf-8"))


# A worker process of the peer that is measured there has no other place for its data.
CACHES_ALLOWED = ("bench/flower.py",)


def test_no_module_keeps_a_cache() -> None:
    caches = {"cache", "lru_cache"}
    for name, module in parsed():
        if name in CACHES_ALLOWED:
            continue
        for node in module.body:
            for mark in getattr(node, "decorator_list", []):
                words = {one.id for one in ast.walk(mark) if isinstance(one, ast.Name)}
                words |= {one.attr for one in ast.walk(mark) if isinstance(one, ast.Attribute)}
                assert not words & caches, f"{name}: {node.name} is cached for as long as the process lives"
            assert not _empty(getattr(node, "value", None)), f"{name}: line {node.lineno} makes something to be filled"


def _empty(value: ast.expr | None) -> bool:
    """Whether a module-level value is an empty container."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    called = getattr(value, "func", None) if isinstance(value, ast.Call) else None
    return getattr(called, "id", "") in {"dict", "list", "WeakKeyDictionary"} and not value.args


# Words that belong to a room: outside of it, others would depend on how it spells them.
OWNED = {
    "active": ("core/message.py",),
    "embedding": ("algorithms/",),
    "conv1": ("models/", "bench/pyg_loop.py"),
    "alone.": ("models/fallback.py",),
}


@pytest.mark.parametrize("word", OWNED)
def test_a_room_s_words_are_spelt_nowhere_else(word: str) -> None:
    for name, module in parsed():
        if name.startswith(OWNED[word]):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                found = text == word if word in ("active", "embedding") else text.startswith(word)
                assert not found, f"{name}:{node.lineno} knows {word!r}, which is {OWNED[word][0]}'s"
