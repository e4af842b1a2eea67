"""The table of deliberate defects fits the sources and the tests; the defects themselves are for `make mutants`."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from mutants import ROOT, SOURCE, TABLE, Mutant


@cache
def defined(file: str) -> set[str]:
    """The test functions of a file."""
    parsed = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(parsed) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("one", TABLE, ids=[one.name for one in TABLE])
def test_every_defect_still_fits(one: Mutant) -> None:
    assert (ROOT / SOURCE / one.file).read_text(encoding="utf-8").count(one.old) == 1, "bring the table up to date"
    assert one.new != one.old
    assert one.tests
    for test in one.tests.split():
        file, *names = test.split("::")
        assert {name.split("[")[0] for name in names} <= defined(file), test


def test_every_defect_has_its_name() -> None:
    names = [one.name for one in TABLE]
    assert sorted(set(names)) == sorted(names)


def test_a_text_that_is_gone_is_an_error(tmp_path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    with pytest.raises(AssertionError, match="occurs 0 times"):
        Mutant("gone", "a.py", "z = 1", "z = 2", "test_mutants.py").apply(tmp_path)
    with pytest.raises(AssertionError, match="occurs 2 times"):
        Mutant("twice", "a.py", " = 1", " = 2", "test_mutants.py").apply(tmp_path)
    assert Mutant("once", "a.py", "y = 1", "y = 2", "test_mutants.py").apply(tmp_path) == "x = 1\ny = 1\n"
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\n"
