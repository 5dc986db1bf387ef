"""The outputs of two heads for a box, against hand-computed numbers; background first."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.methods.equations import dual_heads

BOX = torch.tensor([10.0, 20, 30, 60])  # 20 wide, 40 high


def test_the_region_loss_is_disagreement_and_background() -> None:
    # |(-0.2, 0.4, -0.2)|^2 = 0.04 + 0.16 + 0.04 = 0.24; background 0.1 + 0.3, times 0.1 = 0.04
    first, second = torch.tensor([0.1, 0.6, 0.3]), torch.tensor([0.3, 0.2, 0.5])
    assert dual_heads.region_loss(first, second, 0.1).item() == pytest.approx(0.28)
    assert dual_heads.region_loss(first, second, 0.0).item() == pytest.approx(0.24)


def test_slopes_are_taken_per_side_of_the_box() -> None:
    slopes = dual_heads.slopes_in_sides(BOX, torch.tensor([0.1, 0.2, -0.3, 0.4]))
    torch.testing.assert_close(slopes, torch.tensor([2.0, 8, -6, 16]))


def test_a_slope_of_nan_counts_as_zero() -> None:
    slopes = dual_heads.slopes_in_sides(BOX, torch.tensor([torch.nan, torch.inf, -torch.inf, 1]))
    assert slopes.tolist() == [0, 0, 0, 40]


def test_sides_move_by_shares_of_the_box_and_no_further_than_allowed() -> None:
    # 10 + 0.05 * 20 = 11; 20 - 0.1 * 40 = 16; 30 + 0.1 * 20 = 32; 60 + 0.02 * 40 = 60.8
    shifts = torch.tensor([0.05, -0.5, 0.2, 0.02])
    moved = dual_heads.move_sides(BOX, shifts, max_shift=0.1)
    torch.testing.assert_close(moved, torch.tensor([11.0, 16, 32, 60.8]))


def test_the_soft_label_is_the_sharpened_mean() -> None:
    # mean of (0, 1, 0), (0.2, 0.5, 0.3) and (0.4, 0.1, 0.5): (0.6, 1.6, 0.8) / 3
    # T = 0.5 squares: 0.36, 2.56, 0.64 in proportion, sum 3.56
    label, first = torch.tensor(0), torch.tensor([0.2, 0.5, 0.3])
    second = torch.tensor([0.4, 0.1, 0.5])
    soft = dual_heads.sharpened_labels(label, first, second, 0.5)
    torch.testing.assert_close(soft, torch.tensor([0.36, 2.56, 0.64]) / 3.56)
    plain = dual_heads.sharpened_labels(label, first, second, 1.0)
    torch.testing.assert_close(plain, torch.tensor([0.6, 1.6, 0.8]) / 3)


def test_two_heads_that_are_sure_outvote_the_label() -> None:
    # (0, 1/3, 2/3) to the power 1 / 0.4 = 2.5: 1 to 2^2.5 = 5.657, so 1 / 6.657 and 5.657 / 6.657
    sure = torch.tensor([0.0, 0, 1])
    soft = dual_heads.sharpened_labels(torch.tensor(0), sure, sure, 0.4)
    torch.testing.assert_close(soft, torch.tensor([0, 0.15022, 0.84978]), atol=1e-5, rtol=0)


def test_the_regression_of_background_weighs_nothing() -> None:
    # 0.3 * 1 + 0.2 * 2
    each, soft = torch.tensor([9.0, 1, 2]), torch.tensor([0.5, 0.3, 0.2])
    assert dual_heads.soft_regression_loss(each, soft).item() == pytest.approx(0.7)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 10), st.integers(1, 6))
def test_a_soft_label_is_a_distribution(seed: int, temperature: float, num_labels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, second = (10 * torch.randn(2, 7, 1 + num_labels, generator=generator)).softmax(-1)
    labels = torch.randint(num_labels, (7,), generator=generator)
    soft = dual_heads.sharpened_labels(labels, first, second, temperature)
    assert (soft >= 0).all()
    torch.testing.assert_close(soft.sum(-1), torch.ones(7))
    mean = (first + second + torch.eye(1 + num_labels)[labels + 1]) / 3
    best = mean.argmax(-1, keepdim=True)
    assert (soft.gather(-1, best)[:, 0] >= soft.amax(-1) - 1e-6).all()  # sharpening keeps the order


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.floats(0, 0.45))
def test_no_step_turns_a_box_over(shifts: list[float], most: float) -> None:
    moved = dual_heads.move_sides(BOX, torch.tensor(shifts), most)
    assert (moved[2:] > moved[:2]).all()
    assert ((moved - BOX).abs() <= most * torch.tensor([20.0, 40, 20, 40]) + 1e-4).all()
