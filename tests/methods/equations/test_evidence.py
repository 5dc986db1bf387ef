"""Foreground evidence, its memory, the posterior under label noise, and verdicts from it."""

import math

import pytest
import torch

from boxmend.methods.equations import (
    Judgement,
    combine_evidence,
    foreground_probabilities,
    posterior,
    posterior_judgements,
    raise_to_floor,
    soft_targets,
    symmetric_transition,
    update_memory,
)

NAN = math.nan


def test_probabilities_are_renormalised_without_background() -> None:
    p = foreground_probabilities(torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.5, 0.5]]))
    torch.testing.assert_close(p, torch.tensor([[0.75, 0.25], [0.5, 0.5]]))


@pytest.mark.parametrize("row", [[1.0, 0, 0, 0, 0], [NAN] * 5], ids=["background", "padding"])
def test_without_foreground_probability_all_classes_are_equal(row: list[float]) -> None:
    assert foreground_probabilities(torch.tensor([row])).tolist() == [[0.25] * 4]


def test_memory_starts_with_the_first_visit_and_gives_later_ones_half_the_weight() -> None:
    old = torch.tensor([[NAN, NAN], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2]])
    new = torch.tensor([[0.4, 0.6], [0.4, 0.6], [0.4, 0.6], [NAN, NAN]])
    is_new = torch.tensor([True, True, True, False])
    mean, visits = update_memory(old, torch.tensor([0, 1, 7, 2]), new, is_new)
    # 1/(0+1) = 1;  1/(1+1) = 0.5;  max(1/8, 0.5) = 0.5;  not seen
    expected = torch.tensor([[0.4, 0.6], [0.6, 0.4], [0.6, 0.4], [0.8, 0.2]])
    torch.testing.assert_close(mean, expected)
    assert visits.tolist() == [1, 2, 8, 2]


def test_without_a_least_weight_memory_is_the_plain_mean() -> None:
    seen = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    mean, visits = torch.full((1, 2), NAN), torch.zeros(1).long()
    for row in seen:
        mean, visits = update_memory(mean, visits, row[None], torch.tensor([True]), min_weight=0)
    torch.testing.assert_close(mean, seen.mean(0, keepdim=True))


def test_the_posterior_equals_the_hand_computed_values() -> None:
    # C = 3, R = 0.4: T = 0.6 on the diagonal, 0.2 elsewhere; y = 1
    # p * T: 0.7 * 0.2, 0.2 * 0.6, 0.1 * 0.2 = 0.14, 0.12, 0.02, together 0.28
    q = posterior(torch.tensor([0.7, 0.2, 0.1]), torch.tensor(1), symmetric_transition(0.4, 3))
    torch.testing.assert_close(q, torch.tensor([0.5, 3 / 7, 1 / 14]))


def test_tau_is_the_exponent_of_the_evidence() -> None:
    # p^2 * T: 0.49 * 0.2, 0.04 * 0.6, 0.01 * 0.2 = 0.098, 0.024, 0.002, together 0.124
    p, transition = torch.tensor([0.7, 0.2, 0.1]), symmetric_transition(0.4, 3)
    expected = torch.tensor([0.098, 0.024, 0.002]) / 0.124
    torch.testing.assert_close(posterior(p, torch.tensor(1), transition, tau=2), expected)
    as_tensor = posterior(p, torch.tensor(1), transition, tau=torch.tensor(2.0))
    torch.testing.assert_close(as_tensor, expected)


def test_the_matrix_is_read_from_class_to_label() -> None:
    transition = torch.tensor([[0.6, 0.4], [0.1, 0.9]])  # class 0 is annotated as 1 in 40 %
    q = posterior(torch.tensor([[0.5, 0.5]] * 2), torch.tensor([0, 1]), transition)
    expected = torch.tensor([[0.6 / 0.7, 0.1 / 0.7], [0.4 / 1.3, 0.9 / 1.3]])
    torch.testing.assert_close(q, expected)


def test_without_noise_the_label_is_kept_against_any_evidence() -> None:
    q = posterior(torch.tensor([1.0, 0, 0]), torch.tensor(2), symmetric_transition(0, 3))
    assert q.tolist() == [0, 0, 1]


def test_an_impossible_label_leaves_the_evidence() -> None:
    transition = torch.tensor([[1.0, 0], [1, 0]])  # nothing is ever annotated as 1
    q = posterior(torch.tensor([0.3, 0.7]), torch.tensor(1), transition)
    torch.testing.assert_close(q, torch.tensor([0.3, 0.7]))


def test_labels_of_padding_may_be_anything() -> None:
    q = posterior(
        torch.full((2, 3), 1 / 3), torch.tensor([-5, 10**6]), symmetric_transition(0.3, 3)
    )
    assert torch.isfinite(q).all()


@pytest.mark.parametrize(
    ("q", "label", "verdict"),
    [
        ([0.5, 0.5, 0.0], 0, Judgement.KEPT),  # exactly half is enough to stay
        ([0.5, 0.5, 0.0], 2, Judgement.DISCARDED),  # and not enough to take over
        ([0.51, 0.49, 0.0], 1, Judgement.RELABELLED),
        ([0.51, 0.49, 0.0], 0, Judgement.KEPT),
        ([0.4, 0.3, 0.3], 0, Judgement.DISCARDED),
    ],
)
def test_verdicts_follow_from_the_posterior(q: list[float], label: int, verdict: Judgement) -> None:
    judged = posterior_judgements(torch.tensor([q]), torch.tensor([label]), torch.tensor([True]))
    assert judged.tolist() == [verdict]


def test_padding_gets_no_other_verdict_than_discarded() -> None:
    judged = posterior_judgements(
        torch.tensor([[1.0, 0], [NAN, NAN]]), torch.tensor([0, 99]), torch.zeros(2).bool()
    )
    assert judged.tolist() == [Judgement.DISCARDED] * 2


def test_no_shape_of_the_posterior_depends_on_the_values() -> None:
    p = foreground_probabilities(torch.empty(2, 3, 5, device="meta"))
    labels = torch.empty(2, 3, device="meta").long()
    q = posterior(p, labels, symmetric_transition(0.4, 4, "meta"))
    assert q.shape == (2, 3, 4)
    assert posterior_judgements(q, labels, labels.bool()).shape == (2, 3)


def test_a_floor_raises_the_annotated_label_and_scales_the_others_down() -> None:
    q = torch.tensor([[0.1, 0.6, 0.3], [0.1, 0.6, 0.3], [0.0, 1.0, 0.0]])
    raised = raise_to_floor(q, torch.tensor([0, 1, 2]), torch.tensor([0.4, 0.5, 0.7]))
    # 0.1 -> 0.4: the others had 0.9 and have 0.6 left; 0.6 is above its floor; 0.7 beside 0.3
    expected = torch.tensor([[0.4, 0.4, 0.2], [0.1, 0.6, 0.3], [0.0, 0.3, 0.7]])
    torch.testing.assert_close(raised, expected)


def test_other_evidence_counts_by_the_power_of_its_weight() -> None:
    # 0.2 * 0.81^0.5 = 0.18 and 0.6 * 0.04^0.5 = 0.12, with the sum 0.8 that p had
    p, others = torch.tensor([[0.2, 0.6]]), torch.tensor([[0.81, 0.04]])
    torch.testing.assert_close(combine_evidence(p, others, 0.5), torch.tensor([[0.48, 0.32]]))
    torch.testing.assert_close(combine_evidence(p, others, 0.0), p)
    torch.testing.assert_close(combine_evidence(p, torch.zeros(1, 2), 1.0), p)  # no class in common


def test_soft_targets_give_the_background_no_probability() -> None:
    assert soft_targets(torch.tensor([[0.75, 0.25]])).tolist() == [[0, 0.75, 0.25]]
