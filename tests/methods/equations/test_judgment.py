"""The queue of losses, its threshold, and which labels are judged noisy."""

import math

import pytest
import torch

from boxmend.methods.equations import (
    acceptance_from_rate,
    empty_queue,
    judge,
    judge_one_by_one,
    judged_probabilities,
    label_losses,
    push,
    threshold,
)

INF, NAN = math.inf, math.nan


def test_the_loss_is_the_negative_logarithm_with_background_in_the_sum() -> None:
    probabilities = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]])  # background first
    losses = label_losses(probabilities, torch.tensor([[0, 1]]), torch.ones(1, 2).bool())
    expected = torch.tensor([[-math.log(0.25), -math.log(0.8)]])  # 1.3863, 0.2231
    torch.testing.assert_close(losses, expected)


def test_probabilities_are_judged_over_all_classes_or_over_the_foreground() -> None:
    probabilities = torch.tensor([[[0.6, 0.3, 0.1], [1.0, 0, 0]]])  # background first
    labels, is_box = torch.tensor([[1, 1]]), torch.ones(1, 2).bool()
    assert judged_probabilities(probabilities, "all") is probabilities
    judged = judged_probabilities(probabilities, "foreground")
    # 0.3 / 0.4 and 0.1 / 0.4; without any foreground all its classes are alike
    torch.testing.assert_close(judged, torch.tensor([[[0, 0.75, 0.25], [0, 0.5, 0.5]]]))
    losses = label_losses(judged, labels, is_box)
    torch.testing.assert_close(losses, torch.tensor([[-math.log(0.25), -math.log(0.5)]]))


def test_a_probability_of_zero_gives_a_finite_loss_and_padding_gives_zero() -> None:
    probabilities = torch.tensor([[[1.0, 0, 0], [NAN, NAN, NAN]]])
    losses = label_losses(probabilities, torch.tensor([[1, -9]]), torch.tensor([[True, False]]))
    assert losses[0, 0].item() == pytest.approx(126 * math.log(2))  # of 2^-126
    assert losses[0, 1] == 0


def test_pushing_drops_the_oldest_and_keeps_the_order() -> None:
    queue = push(torch.tensor([1.0, 2, 3, 4]), torch.tensor([5.0, 6]), torch.ones(2).bool())
    assert queue.tolist() == [3, 4, 5, 6]


def test_only_marked_losses_are_pushed_row_by_row() -> None:
    losses = torch.tensor([[5.0, NAN], [INF, 8]])
    queue = push(torch.tensor([1.0, 2, 3]), losses, torch.tensor([[True, False], [False, True]]))
    assert queue.tolist() == [3, 5, 8]


def test_of_more_losses_than_entries_the_last_stay() -> None:
    queue = push(empty_queue(3), torch.arange(7.0), torch.tensor([1, 1, 1, 1, 1, 0, 1]).bool())
    assert queue.tolist() == [3, 4, 6]


def test_pushing_nothing_leaves_the_queue() -> None:
    queue = torch.tensor([1.0, 2])
    assert push(queue, torch.full((3,), NAN), torch.zeros(3).bool()).tolist() == [1, 2]
    assert push(queue, torch.zeros(0), torch.zeros(0).bool()).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("acceptance", "number"),
    # floor(r * 128), counted from 1: 102.4, 76.8, 64, 128; then the clamped ends
    [(0.8, 102), (0.6, 76), (0.5, 64), (1.0, 128), (0.0, 1), (0.001, 1)],
)
def test_the_threshold_is_the_entry_of_that_number(acceptance: float, number: int) -> None:
    queue = torch.arange(1.0, 129)[torch.randperm(128, generator=torch.Generator().manual_seed(0))]
    assert threshold(queue, acceptance).item() == number


def test_rounding_does_not_lose_an_entry() -> None:
    assert 0.57 * 100 < 57  # 56.99999999999999
    assert threshold(torch.arange(1.0, 101), 0.57).item() == 57


def test_everything_is_accepted_until_enough_losses_have_come() -> None:
    queue = push(empty_queue(10), torch.arange(5.0), torch.ones(5).bool())
    assert threshold(queue, 0.6).item() == INF  # the 6th of 5 finite ones
    queue = push(queue, torch.tensor([9.0]), torch.ones(1).bool())
    assert threshold(queue, 0.6).item() == 9


def test_noisy_is_strictly_above_the_threshold() -> None:
    losses = torch.tensor([[1.0, 2, 2.5, 9]])
    is_box = torch.tensor([[True, True, True, False]])
    assert judge(losses, torch.tensor(2.0), is_box).tolist() == [[False, False, True, False]]


def test_one_by_one_each_object_is_judged_before_it_is_pushed() -> None:
    losses = torch.tensor([[5.0, NAN, 1], [4, 2, NAN]])
    is_box = torch.tensor([[True, False, True], [True, True, False]])
    limits, queue = judge_one_by_one(torch.tensor([1.0, 2, 3, 4]), losses, is_box, acceptance=0.5)
    # the 2nd of four:  1 2 3 4 -> 2;  2 3 4 5 -> 3;  3 4 5 1 -> 3;  4 5 1 4 -> 4;  5 1 4 2 -> 2
    assert limits.tolist() == [[2, 3, 3], [3, 4, 2]]
    assert queue.tolist() == [5, 1, 4, 2]
    assert judge(losses, limits, is_box).tolist() == [[True, False, False], [True, False, False]]


def test_one_by_one_passes_a_batch_without_places() -> None:
    limits, queue = judge_one_by_one(empty_queue(2), torch.zeros(2, 0), torch.zeros(2, 0).bool(), 1)
    assert limits.shape == (2, 0)
    assert queue.tolist() == [INF, INF]


@pytest.mark.parametrize(
    ("rate", "acceptance"), [(0, 1), (0.2, 0.8), (0.4, 0.6), (0.5, 0.5), (0.6, 0.5)]
)
def test_the_acceptance_follows_the_rate_as_published(rate: float, acceptance: float) -> None:
    assert acceptance_from_rate(rate) == pytest.approx(acceptance)
