"""The arithmetic of each attack beside numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedpub.attacks import embedding, inversion, labels, membership, scores, tracing, words
from fedpub.attacks.findings import scored
from fedpub.attacks.first_step import gradient, is_first_step
from fedpub.core.optim import adam_init, adam_step

LR = 0.01


def near(one: Tensor, other: object, tolerance: float = 1e-6) -> bool:
    return torch.allclose(one.double(), torch.as_tensor(other, dtype=torch.float64), rtol=0, atol=tolerance)


def stepped(gradients: Tensor, steps: int = 1) -> Tensor:
    """The change that Adam makes of weights of 0.05, in single precision."""
    before = {"w": torch.full((1, *gradients.shape), 0.05)}
    weights, state = {"w": before["w"].clone()}, adam_init(before)
    for _ in range(steps):
        state = adam_step(weights, {"w": gradients.float().unsqueeze(0)}, state, {"w": LR}, 0.0)
    return (weights["w"].double() - before["w"].double())[0]


# The first step


def test_the_gradient_is_in_the_digits_of_the_first_step():
    true = torch.tensor([[3e-4, -2e-5, 0.0], [-1e-3, 5e-5, 4e-6]])
    found, known = gradient(stepped(true), LR)
    assert near(found / true.where(true != 0, 1.0), (true != 0).double(), 0.02)
    assert known.equal(torch.tensor([[True, True, True], [True, True, True]]))


def test_a_gradient_that_is_too_large_for_the_digits_has_the_right_sign_and_is_not_said_to_be_known():
    found, known = gradient(stepped(torch.tensor([2.0, -1.0])), LR)
    assert found.sign().tolist() == [1, -1]
    assert known.tolist() == [False, False]


def test_only_a_first_step_is_taken_for_one():
    some = torch.tensor([[1e-3, -2e-4], [5e-4, 3e-3]])
    assert is_first_step({"w": stepped(some)}, LR)
    assert not is_first_step({"w": stepped(some, 2)}, LR)
    assert not is_first_step({"w": torch.zeros(2)}, LR)
    others = [stepped(some), stepped(-some), stepped(some.flip(0))]
    assert not is_first_step({"w": sum(others) / 3}, LR)  # the mean of a group
    agreeing = torch.tensor([1.0] * 8 + [1 / 3] * 2) * LR  # that of one whose members agree on most entries
    assert not is_first_step({"w": agreeing}, LR)
    assert not is_first_step({"w": torch.full((4,), 0.85 * LR)}, LR)


def test_rare_words_do_not_decide_whether_it_is_a_first_step():
    change = {"w": stepped(torch.tensor([[1e-3, -2e-4]])), "in": stepped(torch.tensor([[1e-8, 2e-8, 1e-8, 1e-8]]))}
    assert not is_first_step(change, LR)
    assert is_first_step(change, LR, inputs=("in",))


# Classes


def test_the_shares_follow_from_the_gradient_of_the_output_layer():
    share = torch.tensor([[0.75, 0.25, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]], dtype=torch.float64)
    bias = 1 / 4 - share
    weight = torch.stack([3 * bias, 5 * bias], 1)  # two hidden values, 3 and 5 at every node
    assert near(labels.by_gradient(weight, bias), share)


def test_of_two_classes_the_bias_tells_the_scale():
    share = torch.tensor([[0.7, 0.3], [0.4, 0.6]], dtype=torch.float64)
    bias = 1 / 2 - share
    assert near(labels.by_gradient(2 * bias.unsqueeze(1), bias), share)


def test_a_class_of_which_all_weights_fall_is_absent():
    steps = torch.tensor([[0.01, -0.01, -0.01], [0.01, 0.01, -0.01]])  # of 2 hidden values and 3 classes
    assert near(labels.by_steps([steps]), [2 / 3, 1 / 3, 0])
    assert near(labels.by_steps([steps, -steps]), [1 / 3, 1 / 3, 1 / 3])


def test_an_embedding_goes_through_the_output_layer_without_its_negative_values():
    weight = torch.tensor([[[1.0, 0.0, 2.0], [5.0, 5.0, 5.0]]])
    assert near(embedding.logits(torch.tensor([[2.0, -1.0]]), weight, torch.tensor([[0.0, 1.0, 0.0]])), [[2, 1, 4]])


def test_the_variation_of_each_class_over_the_proxy_nodes():
    function = torch.tensor([[0.0, 1.0, 2.0, 1.0]])  # two nodes, two classes
    assert near(embedding.variation(function, 2), [[math.sqrt(2), 0]])


def test_evidence_becomes_shares():
    found = embedding.shares([torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([[10.0, 0.0, -10.0]])])
    power = [math.exp(1.2), 1.0, math.exp(-1.2)]
    assert near(found, [[one / sum(power) for one in power]], 1e-6)
    assert near(embedding.shares([torch.tensor([[3.0, 3.0]])]), [[0.5, 0.5]])


# Words


def test_words_are_the_rows_with_a_touched_entry_in_any_matrix_of_the_first_layer():
    first = torch.tensor([[[True, False], [False, False], [False, False]]])
    second = torch.tensor([[[False, False], [False, True], [False, False]]])
    assert words.words({"a": first, "b": second, "out": ~first}, ("a", "b")).tolist() == [True, True, False]


def test_common_words_are_those_that_more_than_half_of_the_clients_have():
    has = torch.tensor([[True, True, False], [True, False, False]])
    assert words.common(has).tolist() == [True, False, False]


def test_a_word_profile_sums_sizes_over_the_hidden_units():
    assert near(inversion.profile(torch.tensor([[1.0, -1.0], [3.0, -3.0], [0.0, 0.0]])), [0.25, 0.75, 0])


# Nodes


def test_log_odds_of_the_true_class():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    assert near(membership.log_odds(logits, torch.tensor([0, 1])), [0, math.log(4)], 1e-6)


def test_lira_compares_with_models_that_were_trained_without_the_node():
    shadow = torch.tensor([[0.0, 9.0], [2.0, 4.0], [9.0, 6.0]], dtype=torch.float64)
    trained = torch.tensor([[False, True], [False, False], [True, False]])
    # Without node 0: 0 and 2; without node 1: 4 and 6. Their deviation is 1.
    assert near(membership.lira(torch.tensor([4.0, 5.0]).double(), shadow, trained), [3, 0])


def test_the_nodes_that_took_part_explain_the_gradient():
    each = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    found = tracing.shares(each, torch.tensor([0.5, 0.5, 0.0]), exact=True)
    assert near(found, [1.5, 1.5, 0], 0.01)
    assert tracing.shares(each, torch.tensor([-0.5, 0.5, 0.0]), exact=True)[0] == 0  # no negative shares


def test_a_node_whose_words_did_not_move_was_not_there():
    rows = torch.tensor([[True, True, False], [False, True, True]])
    untouched = tracing.untouched(rows, torch.tensor([True, True, False]))
    assert untouched.tolist() == [0, 0.5]
    ranked = tracing.score(torch.tensor([0.1, 7.0]).double(), untouched)
    assert ranked[0] > ranked[1]


# Scores


def test_overlap_and_correlation():
    truth, found = torch.tensor([[0.5, 0.5, 0.0]]).double(), torch.tensor([[0.25, 0.5, 0.25]]).double()
    assert near(scores.overlap(found, truth), [0.75])
    assert near(scores.correlation(found, truth), [0.5])
    assert math.isnan(float(scores.correlation(torch.full((1, 3), 1 / 3), truth)))


def test_f1_of_words():
    found, truth = torch.tensor([[True, True, False, False]]), torch.tensor([[True, False, True, False]])
    assert [float(one) for one in scores.f1(found, truth)] == [0.5, 0.5, 0.5]


def test_auc_counts_ties_as_half():
    member = torch.tensor([True, True, False, False])
    assert scores.auc(torch.tensor([3.0, 1.0, 1.0, 0.0]), member) == 0.875
    assert math.isnan(scores.auc(torch.tensor([1.0]), torch.tensor([True])))


def test_the_share_found_at_few_false_alarms_needs_enough_candidates():
    member = torch.arange(200) >= 100
    score = torch.arange(200).double()
    score[99] = 150.5  # the one false alarm
    assert scores.found_at(score, member) == 1.0
    score[98] = 150.5
    assert scores.found_at(score, member) == pytest.approx(0.49)
    assert scores.found_at(score[1:], member[1:]) is None


def test_the_adjusted_rand_index():
    assert scores.adjusted_rand(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0])) == 1
    assert scores.adjusted_rand(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])) == pytest.approx(-0.5)
    assert scores.adjusted_rand(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 1, 1])) == pytest.approx(0)


def test_a_finding_is_the_mean_over_clients_with_the_one_about_which_most_is_learnt():
    found = scored("a", "b", "c", "{score} {guess} {worst}", [0.5, math.nan, 1.0], 0.25)
    assert (found.score, found.guess, found.worst) == (0.75, 0.25, 1.0)
    assert found.sentence == "75 % 25 % 100 %"
    assert list(found.clients) == [0.5, None, 1.0]
    assert found.verdict == "better than guessing"


def test_a_gain_below_a_twentieth_of_what_a_guess_leaves_open_does_not_matter():
    assert scored("a", "b", "c", "", [0.52], 0.5).verdict == "no better than guessing"
    assert "no better than a guess" in scored("a", "b", "c", "", [0.52], 0.5).sentence
    assert scored("a", "b", "c", "", [0.99], 0.98).verdict == "better than guessing"
    assert scored("a", "b", "c", "", [1.0], 0.999).verdict == "no better than guessing"
