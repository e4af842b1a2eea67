"""A comparison as Markdown, by hand."""

from __future__ import annotations

import re

from fedpub import Comparison
from fedpub.cli.show import show_comparison
from fedpub.report.compared import best_in, markdown, not_above
from fedpub.runs.comparison import Cell, Run, scores

TEN = Cell("cora", "disjoint", 10)


def one(method: str, seed: int, test: float, cell: Cell = TEN) -> Run:
    summary = {"metric": "accuracy", "test": test, "baseline": "majority", "majority": 0.5}
    summary |= {
        "worst_client_test": test,
        "weighted_test": test,
        "sparsity": 0.25,
        "bytes_up": 3e6,
        "seconds": 1.0,
        "per_client_test": [test],
    }
    return Run(cell, method, seed, summary)


def test_a_comparison_as_markdown():
    """Titles, deviations, the best in bold but never the oracle, and the methods that are not above the baseline."""
    values = {"local": (0.4, 0.5), "fedpub": (0.7, 0.8), "oracle": (0.9, 0.9)}
    runs = [one(method, seed, test) for method, tests in values.items() for seed, test in enumerate(tests)]
    title, _, *lines = markdown(runs).rstrip().split("\n")
    assert title.startswith("**disjoint**, test accuracy in percent, mean ± deviation over seeds 0, 1; bold is best")
    assert lines[0] == "| method | cora 10 | average | zeros | MB up |"
    assert lines[2:6] == [
        "| Local | 45.00 ± 7.07 | 45.00 | 25 % | 3 |",
        "| FED-PUB | **75.00 ± 7.07** | **75.00** | 25 % | 3 |",
        "| Oracle | 90.00 ± 0.00 | 90.00 | 25 % | 3 |",
        "| majority class | 50.00 |  |  |  |",
    ]
    assert lines[7] == "- cora, disjoint 10: not above the baseline (majority class, 50.00 %): Local"


def test_the_best_is_found_in_every_cell():
    other = Cell("citeseer", "disjoint", 10)
    runs = [one("local", 0, 0.8), one("fedpub", 0, 0.7), one("local", 0, 0.6, other), one("fedpub", 0, 0.7, other)]
    assert best_in(scores(runs)) == [{"local"}, {"fedpub"}]
    assert best_in([]) == []
    assert not_above(runs, scores(runs)) == []


def test_the_best_is_bold_in_a_notebook_and_in_a_terminal(monkeypatch, capsys):
    runs = [one("local", 0, 0.6), one("fedpub", 0, 0.7), one("oracle", 0, 0.9)]
    cells = Comparison(runs)._repr_html_().split("<td ")
    assert [text.partition(">")[2].partition("<")[0] for text in cells if "font-weight: bold" in text] == ["70.00"]
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show_comparison(runs, scores(runs))
    shown = capsys.readouterr().out
    assert re.findall(r"\x1b\[1m\s*(\d+\.\d\d)", shown) == ["70.00"]
