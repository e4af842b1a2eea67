"""Whose training node it is."""

from __future__ import annotations

import pytest
import torch

from fedpub.attacks.whose import given


def test_a_node_is_given_to_the_surest_model_beside_its_usual_sureness():
    """The second model is sure of everything; of the third node less so, in proportion, than the first model."""
    score_KM = torch.tensor([[3.0, 0.0, 1.5], [9.0, 10.0, 8.0]])
    assert given(score_KM, torch.tensor([0, 1, 0])).tolist() == [1, 1, 1]
    assert given(score_KM, torch.tensor([1, 0, 1])).tolist() == [0, 0, 0]


def test_clients_with_the_same_model_share_a_node():
    """As in a secure run: nobody can say which of the members of a group has it."""
    score_KM = torch.tensor([[1.0, 2.0]]).repeat(4, 1)
    assert given(score_KM, torch.tensor([2, 0])).tolist() == pytest.approx([0.25, 0.25])
