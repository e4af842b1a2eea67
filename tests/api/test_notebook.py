"""The notebook runs from its first cell to its last, and shows what it promises."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_steps.ipynb"


def shown(cell: nbformat.NotebookNode) -> set[str]:
    """The kinds of what a cell put out."""
    return {kind for output in cell.outputs for kind in output.get("data", {})}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """The notebook after it was run in an empty folder."""
    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPUB_CACHE", str(folder / "cache"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    return book


def test_it_is_stored_without_outputs():
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    for cell in book.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_nothing_fails_and_nothing_is_said_on_the_side(played):
    outputs = [output for cell in played.cells if cell.cell_type == "code" for output in cell.outputs]
    # PyG's progress bars miss widgets, which no cell here needs.
    outputs = [output for output in outputs if "TqdmWarning" not in output.get("text", "")]
    assert {output.output_type for output in outputs} == {"execute_result", "display_data"}  # no error, no warning


def test_runs_comparisons_and_frames_are_tables_and_plots_are_pictures(played):
    code = [cell for cell in played.cells if cell.cell_type == "code"]
    last_lines = {cell.source.splitlines()[-1]: cell for cell in code}
    plots = [cell for line, cell in last_lines.items() if ".plot(" in line]
    assert len(plots) == 4
    for cell in plots:
        assert [output.output_type for output in cell.outputs] == ["execute_result"]  # once, not twice
        assert "image/png" in shown(cell)
    tables = ("run", "comparison", "mine", "run.rounds.tail()", "comparison.table")
    for line in (*tables, "fedpub.predict(mine, data, client=0).head()"):
        result = next(one for one in last_lines[line].outputs if one.output_type == "execute_result")
        assert "<table" in result.data["text/html"]
    own = next(one for one in last_lines[code[-1].source].outputs if one.output_type == "execute_result")
    assert "Median" in own.data["text/html"]


def test_the_bar_is_gone_when_a_run_is_done(played):
    bars = [
        output.data["text/html"]
        for cell in played.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "display_data"
    ]
    assert bars == [""] * 4  # two runs, two comparisons
