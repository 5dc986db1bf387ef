"""Cross-entropy through a transition matrix and on soft targets."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from boxmend.methods.equations import (
    forward_corrected_loss,
    soft_cross_entropy,
    soft_targets,
    symmetric_transition,
)

NAN = math.nan
PREDICTION = torch.tensor([[0.4, 0.3, 0.2, 0.1]])  # background, then three classes
PAIR = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]])


def drawn_logits(rows: int) -> Tensor:
    return 2 * torch.randn(rows, 4, generator=torch.Generator().manual_seed(3))


def test_the_corrected_loss_equals_the_hand_computed_values() -> None:
    # label 1 under pair noise: s(0) * 0.4 + s(1) * 0.6 = 0.3 * 0.4 + 0.2 * 0.6 = 0.24
    loss = forward_corrected_loss(PREDICTION.log(), torch.tensor([2]), PAIR)
    torch.testing.assert_close(loss, torch.tensor([-math.log(0.24)]))
    # label 0: s(0) * 0.6 + s(2) * 0.4 = 0.22
    loss = forward_corrected_loss(PREDICTION.log(), torch.tensor([1]), PAIR)
    torch.testing.assert_close(loss, torch.tensor([-math.log(0.22)]))


def test_background_is_left_as_it_is() -> None:
    loss = forward_corrected_loss(PREDICTION.log(), torch.tensor([0]), PAIR)
    torch.testing.assert_close(loss, torch.tensor([-math.log(0.4)]))


def test_without_noise_it_is_plain_cross_entropy() -> None:
    logits, columns = drawn_logits(8), torch.arange(8) % 4
    plain = functional.cross_entropy(logits, columns, reduction="none")
    corrected = forward_corrected_loss(logits, columns, symmetric_transition(0, 3))
    torch.testing.assert_close(corrected, plain)


def test_an_impossible_label_costs_much_but_not_infinitely_much() -> None:
    never = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 0, 0]])
    logits = drawn_logits(1).requires_grad_()
    loss = forward_corrected_loss(logits, torch.tensor([3]), never).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert 50 < loss.item() < 150
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    "transition", [PAIR, symmetric_transition(0.4, 3)], ids=["pair", "symmetric"]
)
def test_its_gradient_is_that_against_the_posterior_of_the_prediction(transition: Tensor) -> None:
    logits, columns = drawn_logits(12), torch.arange(12) % 4
    first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(forward_corrected_loss(first, columns, transition).sum(), first)
    targets = []
    for row, column in zip(logits.softmax(-1), columns.tolist(), strict=True):
        weights = row[1:] * transition[:, column - 1]
        foreground = torch.cat([torch.zeros(1), weights / weights.sum()])
        targets.append(torch.eye(4)[0] if column == 0 else foreground)
    against = soft_cross_entropy(second, torch.stack(targets)).sum()
    (expected,) = torch.autograd.grad(against, second)
    torch.testing.assert_close(found, expected)


def test_soft_cross_entropy_equals_the_hand_computed_value() -> None:
    targets = torch.tensor([[0.0, 0.5, 0.25, 0.25]])
    loss = soft_cross_entropy(PREDICTION.log(), targets)
    expected = -(0.5 * math.log(0.3) + 0.25 * math.log(0.2) + 0.25 * math.log(0.1))
    torch.testing.assert_close(loss, torch.tensor([expected]))


def test_a_certain_target_is_plain_cross_entropy() -> None:
    logits, columns = drawn_logits(8), torch.arange(8) % 4
    plain = functional.cross_entropy(logits, columns, reduction="none")
    torch.testing.assert_close(soft_cross_entropy(logits, torch.eye(4)[columns]), plain)


def test_posteriors_get_a_background_of_zero() -> None:
    assert soft_targets(torch.tensor([[0.75, 0.25]])).tolist() == [[0, 0.75, 0.25]]


def test_padding_has_neither_loss_nor_gradient() -> None:
    is_row = torch.tensor([True, False])
    for number in range(2):
        logits = torch.tensor([[0.1, 0.2, 0.3, 0.4], [NAN] * 4]).requires_grad_()
        if number == 0:
            losses = forward_corrected_loss(logits, torch.tensor([1, -100]), PAIR, is_row)
        else:
            targets = torch.tensor([[0.0, 1, 0, 0], [NAN] * 4])
            losses = soft_cross_entropy(logits, targets, is_row)
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert losses[1] == 0
        assert losses[0] > 0
        assert gradient[1].tolist() == [0] * 4
        assert torch.isfinite(gradient).all()
