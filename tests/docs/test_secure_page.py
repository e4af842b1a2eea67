"""The page on secure aggregation and the example of a secure method say what the code does."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

from fedpub.algorithms import METHODS
from fedpub.core.tensor_files import read_tensors
from fedpub.engine.sums import Block, _coding
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.federation.coordinator import Coordinator, Terms
from fedpub.federation.deployed import play
from fedpub.federation.in_process import InProcessSites
from fedpub.runs.simulated import run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of the tables under a heading, by their first cell."""
    text = (DOCS / "secure-aggregation.md").read_text("utf-8").partition(heading)[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: [cell.replace("−", "-") for cell in cells[1:]] for cells in lines}


def test_the_example_by_hand():
    table = rows("**By hand**")
    block = Block("steps", "w", (), 8, 42.0, 1.0, torch.float64)
    words = block.words(torch.tensor([0.5, -1.0, 1 / 3])).flatten()
    total = block.modulo(words.sum(0, keepdim=True))
    assert [*map(int, table["word, modulo 256"])] == [*words.tolist(), int(total)]
    assert float(block.value(total)) == pytest.approx(-1 / 6)
    self_masks = [*map(int, table["its self-mask"])]
    masks = [100 + 30, -100 + 200, -30 - 200]
    sent = [(int(word) + own + pair) % 256 for word, own, pair in zip(words, self_masks, masks, strict=False)]
    assert [*map(int, table["what is sent"])] == [*sent, sum(sent) % 256]
    assert (sum(sent) - sum(self_masks[:3])) % 256 == int(total)


@pytest.mark.parametrize("shared_out", [False, True])
def test_words_are_as_long_as_the_page_says(shared_out):
    kind = "steps times" if shared_out else "steps: "
    row = next(cells for name, cells in rows("## Fixed point").items() if name.startswith(kind))
    few, many = (int(number.replace(",", "")) for number in re.findall(r"up to ([\d,]+)", row[2]))
    bits = [_coding("steps", 1.0, sites, shared_out)[0] for sites in (few, few + 1, many, many + 1)]
    assert bits == [16, 24, 24, 32]
    assert [_coding("counts", 1.0, sites, shared_out)[0] for sites in (255, 256)] == [8, 16]


def test_methods_that_can_and_cannot_are_those_of_the_page():
    found = {"yes": [], "no": []}
    for cells, (_, *rest) in rows("## Which methods can").items():
        said = rest[0].partition(":")[0] if rest else ""
        for name in re.findall(r"`([a-z-]+)`", cells):
            if name in METHODS and said in found:
                found[said].append(name)
    for name in found["yes"]:
        Experiment(method=name, clients=4, secure=True).resolve()
    for name in found["no"]:
        with pytest.raises(FedpubError):
            Experiment(method=name, clients=4, secure=True).resolve()
    assert {*found["yes"]} == {"fedavg", "fedprox", "fedper", "fedpub-plus"}
    assert {*found["no"]} == {"gcfl", "fedgnn", "fedsage", "fedpub"}


@pytest.fixture
def _majority(monkeypatch, tmp_path):
    """The page's own method, which is gone afterwards."""
    page = (DOCS / "write-your-own-method.md").read_text("utf-8")
    content = re.search(r"```python\n(# majority.py\n.*?)```", page, re.S).group(1)
    (tmp_path / "majority.py").write_text(content, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("majority")
    yield
    del METHODS["majority"], sys.modules["majority"]


@pytest.mark.usefixtures("_majority")
def test_the_page_s_method_votes_alike_in_plain_secure_and_deployed_runs(tmp_path):
    """Counts are exact: there is no rounding between the three."""
    settings = {"scenario": "disjoint", "clients": 4, "rounds": 2, "hidden": 4, "defence": "none"}
    secure = Experiment(method="majority", secure=True, **settings)
    run(Experiment(method="majority", **settings), tmp_path / "plain", chunk=1, keep_checkpoint=True)
    run(secure, tmp_path / "secure", chunk=1, keep_checkpoint=True)
    sites = InProcessSites(tmp_path / "sites", secure)
    terms = Terms(patience=1)
    play(Coordinator(secure, "0" * 16, sites.names, sites, tmp_path / "sites", terms=terms), tmp_path / "deployed")
    states = [read_tensors(tmp_path / name / "checkpoint" / "state.safetensors")[0] for name in ("plain", "secure")]
    states.append(read_tensors(tmp_path / "deployed" / "checkpoint" / "state.safetensors")[0])
    names = [name for name in states[0] if name.startswith("server/weights/")]
    assert names
    for name in names:
        torch.testing.assert_close(states[1][name], states[0][name], rtol=0, atol=1e-6)
        torch.testing.assert_close(states[2][name], states[0][name], rtol=0, atol=1e-6)
