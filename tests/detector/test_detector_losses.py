"""Losses by hand; padding with NaN must not affect losses or gradients."""

import math

import pytest
import torch

from boxmend.detector.losses import box_loss, classification_loss, objectness_loss
from boxmend.errors import UsageError

NAN = float("nan")
SAMPLED = torch.tensor([[True, True, False]])


def test_objectness_is_averaged_over_the_sampled_of_all_images() -> None:
    logits = torch.tensor([[0.0, math.log(3), NAN]], requires_grad=True)
    loss = objectness_loss(logits, torch.tensor([[True, False, True]]), SAMPLED)
    # -log sigmoid(0) = log 2; sigmoid(log 3) = 3/4, so -log(1 - 3/4) = log 4
    torch.testing.assert_close(loss, torch.tensor((math.log(2) + math.log(4)) / 2))
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.tensor([[-0.25, 0.375, 0]]))


LOGITS = [[[0.0, math.log(2), 0], [math.log(3), 0, 0], [NAN, NAN, NAN]]]
# probabilities 1/4 2/4 1/4 and 3/5 1/5 1/5


def test_hard_targets_cost_the_logarithm_of_their_column() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss = classification_loss(logits, torch.tensor([[1, 0, 77]]), SAMPLED)
    torch.testing.assert_close(loss, torch.tensor((math.log(2) + math.log(5 / 3)) / 2))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all()
    assert gradient[0, 2].tolist() == [0, 0, 0]


def test_soft_targets_cost_their_mean_logarithm() -> None:
    soft = torch.tensor([[[0.0, 0.5, 0.5], [1, 0, 0], [NAN, NAN, NAN]]])
    loss = classification_loss(torch.tensor(LOGITS), soft, SAMPLED)
    expected = (0.5 * math.log(2) + 0.5 * math.log(4) + math.log(5 / 3)) / 2
    torch.testing.assert_close(loss, torch.tensor(expected))


def test_one_hot_soft_targets_equal_hard_ones() -> None:
    hard = torch.tensor([[2, 1, 0]])
    soft = torch.nn.functional.one_hot(hard, 3).float()
    logits = torch.tensor(LOGITS)
    torch.testing.assert_close(
        classification_loss(logits, soft, SAMPLED), classification_loss(logits, hard, SAMPLED)
    )


def test_weights_scale_a_rois_part_and_leave_the_divisor() -> None:
    weights = torch.tensor([[0.5, 0.0, NAN]])
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss = classification_loss(logits, torch.tensor([[1, 0, 0]]), SAMPLED, weights)
    torch.testing.assert_close(loss, torch.tensor(0.5 * math.log(2) / 2))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("l1", [0.05, 1 / 9, 2, 0]),
        # below 1/9: 0.05^2 * 9 / 2; at 1/9: 1/18; above: 2 - 1/18
        ("smooth_l1", [0.05**2 * 4.5, 1 / 18, 2 - 1 / 18, 0]),
        # of beta 4 all are below: d^2 / 8
        (4.0, [0.05**2 / 8, 1 / 648, 0.5, 0]),
    ],
)
def test_box_loss_sums_positives_over_the_number_of_sampled(
    kind: str | float, parts: list[float]
) -> None:
    deltas = torch.tensor([[[0.05, -1 / 9, 2, 1], [9.0, 9, 9, 9], [NAN] * 4]], requires_grad=True)
    wanted = torch.tensor([[[0.0, 0, 0, 1], [NAN] * 4, [NAN] * 4]])
    loss = box_loss(deltas, wanted, torch.tensor([[True, False, True]]), SAMPLED, kind)
    torch.testing.assert_close(loss, torch.tensor(sum(parts) / 2))
    (gradient,) = torch.autograd.grad(loss, deltas)
    assert gradient.isfinite().all()
    assert gradient[0, 1:].tolist() == [[0] * 4] * 2


def test_a_given_number_is_the_divisor_of_all_losses() -> None:
    """As where other processes have the rest of the batch."""
    number, yes = torch.tensor(8), torch.tensor([[True, False, True]])
    logits, targets = torch.tensor(LOGITS), torch.tensor([[1, 0, 0]])
    deltas = torch.tensor([[[3.0, 0, 0, 0], [0, 0, 0, 0], [NAN] * 4]])
    pairs = [
        [objectness_loss(logits[..., 0], yes, SAMPLED, *more) for more in ((), (number,))],
        [classification_loss(logits, targets, SAMPLED, None, *more) for more in ((), (number,))],
        [
            box_loss(deltas, torch.zeros(1, 3, 4), yes, SAMPLED, "l1", *more)
            for more in ((), (number,))
        ],
    ]
    for of_two, of_eight in pairs:
        assert of_two > 0
        torch.testing.assert_close(of_eight, of_two / 4)


def test_an_unknown_box_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'giou'; known: smooth_l1, l1"):
        box_loss(torch.zeros(1, 4), torch.zeros(1, 4), SAMPLED[0, :1], SAMPLED[0, :1], "giou")


def test_without_a_sample_all_losses_are_zero() -> None:
    none = torch.zeros(1, 3, dtype=torch.bool)
    nan = torch.full((1, 3, 4), NAN)
    assert objectness_loss(nan[..., 0], none, none) == 0
    assert classification_loss(nan, none.long(), none) == 0
    assert box_loss(nan, nan, none, none, "l1") == 0


def test_losses_are_float32_whatever_the_network_computes_in() -> None:
    half = torch.zeros(1, 3, 4, dtype=torch.bfloat16)
    assert classification_loss(half, torch.zeros(1, 3).long(), SAMPLED).dtype == torch.float32
    assert objectness_loss(half[..., 0], SAMPLED, SAMPLED).dtype == torch.float32
    assert box_loss(half, half, SAMPLED, SAMPLED, "smooth_l1").dtype == torch.float32
