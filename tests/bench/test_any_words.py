"""A hostile client in secure sums: any words, but only in the sums in which it takes part."""

from __future__ import annotations

import json

import pytest
import torch

from fedpub.algorithms import FedAvg
from fedpub.algorithms.sums import Hidden, Summed, reach
from fedpub.bench.any_words import FAR_SUM, SUM_ATTACKS, VANISHING, chosen, with_any_words
from fedpub.cli import main
from fedpub.core.message import Message
from small import context, refused

CTX = context()
SECURE = ["bench", "robust", "--secure", "--dataset", "communities", "--clients", "3", "--rounds", "1", "--seeds", "0"]


def sums() -> Hidden:
    return Hidden({"w": torch.tensor([0.25, -0.5, 0.0])}, {"w": torch.tensor([3.0])}, {"share": torch.tensor(0.75)})


@pytest.mark.parametrize(("shared_out", "most"), [(True, 2**15 - 1), (False, 2**15 - 1)])
def test_a_far_sum_is_at_the_end_of_its_words_against_the_others(shared_out, most):
    """Three clients, 16 bits: with shares up to (2^15 - 1) / (2^15 - 1 - 3), without up to 3 reaches and a bit."""
    levels = most - 3 if shared_out else most // 3
    found = chosen(sums(), FAR_SUM, CTX, 3, shared_out)
    end = most / levels * reach(CTX)
    torch.testing.assert_close(found.steps["w"], torch.tensor([-end, end, end]))
    assert (found.counts, found.numbers) == (sums().counts, sums().numbers)


def test_a_vanishing_divisor_is_the_smallest_number_above_zero():
    found = chosen(sums(), VANISHING, CTX, 3, True)
    assert found.counts["w"].tolist() == [1.0]
    assert 0 < float(found.numbers["share"]) < 1e-15
    assert torch.equal(found.steps["w"], chosen(sums(), FAR_SUM, CTX, 3, True).steps["w"])


@pytest.mark.parametrize("attack", SUM_ATTACKS)
def test_only_the_sums_with_the_hostile_client_are_changed(attack):
    hostile = with_any_words(FedAvg(), attack, 0, 3)
    server = {"weights": {"w": torch.zeros(3)}}
    for ids, changed in ((torch.tensor([0, 1, 2]), True), (torch.tensor([1, 2, 3]), False)):
        found = [Summed(0, ids, sums())]
        (one, _), (other, _) = (method.summed(CTX, server, ids, found, Message()) for method in (hostile, FedAvg()))
        assert torch.equal(one["weights"]["w"], other["weights"]["w"]) != changed


def test_the_table_under_secure_aggregation(tmp_path, capsys):
    path = tmp_path / "found.json"
    assert main([*SECURE, "--methods", "fedavg", "fedpub", "--attacks", "none", FAR_SUM, "--json", str(path)]) == 0
    assert FAR_SUM in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [one["defence"] for one in found] == ["none", "none", "guard", "guard"] * 2
    assert all(one["secure"] for one in found)
    assert "compares the uploads of single clients" in refused([*SECURE, "--defences", "clip"], capsys)
    assert FAR_SUM.split()[0] in refused(
        [word for word in SECURE if word != "--secure"] + ["--attacks", FAR_SUM], capsys
    )
