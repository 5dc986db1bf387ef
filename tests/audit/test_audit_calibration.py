"""Shares and probabilities from planted errors, by hand and on drawn mixtures."""

import numpy as np
import pytest

from boxmend.auditing.calibration import (
    Share,
    error_curve,
    lowest_share,
    mean_curve,
    sample,
    share_of_errors,
)


def test_the_weight_beyond_limits_counts_what_is_equal() -> None:
    one = sample(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0]))
    assert one.total == 3.5
    assert one.beyond(np.array([0.0, 2.0, 2.5, 9.0])).tolist() == [3.5, 3.0, 2.0, 0.0]


def test_a_share_is_what_lies_beyond_over_what_is_planted_beyond() -> None:
    # planted all at 1; of 1000 observed 40 are at 1, the rest at 0: 40 / 1 / 1000
    observed = sample(np.array([1.0] * 40 + [0.0] * 960))
    found = share_of_errors(observed, sample(np.ones(50)))
    assert found.value == pytest.approx(0.04)
    # below by Poisson, (sqrt(40.25) - 0.98)^2 - 0.25; above by three deviations and three more
    assert found.low == pytest.approx(((40.25**0.5 - 0.98) ** 2 - 0.25) / 1000)
    assert found.high == pytest.approx((40 + 3 * 40**0.5 + 3) / 1000)
    assert found.cautious == pytest.approx(0.75 * found.value + 0.25 * found.low)


def test_of_two_samples_the_one_with_the_lower_bound_tells_the_share() -> None:
    many = sample(np.array([1.0] * 300 + [0.0] * 700)), sample(np.ones(50)), 3.0
    few = sample(np.array([1.0] * 50 + [0.0] * 950)), sample(np.ones(50)), 3.0
    assert lowest_share([many, few]).value == pytest.approx(0.05)
    assert lowest_share([few, many]) == lowest_share([many, few])


def test_of_nothing_no_share_is_known() -> None:
    empty, some = sample(np.zeros(0)), sample(np.ones(3))
    assert share_of_errors(empty, some) == Share(0.0, 0.0, 1.0)
    assert share_of_errors(some, empty) == Share(0.0, 0.0, 1.0)
    assert error_curve(empty, some, 0.5).at(np.array([1.0])).tolist() == [0.0]
    assert mean_curve(empty, np.zeros(0)).at(np.array([1.0])).tolist() == [0.0]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5])
def test_the_share_of_a_drawn_mixture_is_found_again(share: float) -> None:
    random = np.random.default_rng(1)
    number = 20_000
    is_wrong = random.random(number) < share
    observed = np.where(is_wrong, random.normal(3, 1, number), random.normal(0, 1, number))
    found = share_of_errors(sample(observed), sample(random.normal(3, 1, number)))
    assert found.low - 0.002 <= is_wrong.mean() <= found.high + 0.002
    assert found.value == pytest.approx(share, abs=0.2 * share + 0.003)


def test_probabilities_of_a_drawn_mixture_are_calibrated() -> None:
    random = np.random.default_rng(2)
    number = 20_000
    is_wrong = random.random(number) < 0.3
    observed = np.where(is_wrong, random.normal(2, 1, number), random.normal(0, 1, number))
    chances = error_curve(sample(observed), sample(random.normal(2, 1, 50_000)), 0.3).at(observed)
    for low, high in ((0.0, 0.1), (0.2, 0.4), (0.4, 0.7), (0.8, 1.0)):
        inside = (chances >= low) & (chances < high)
        assert inside.sum() > 500
        assert is_wrong[inside].mean() == pytest.approx(chances[inside].mean(), abs=0.05)


def test_a_curve_never_falls_and_stays_within_zero_and_one() -> None:
    random = np.random.default_rng(3)
    curve = error_curve(sample(random.random(300)), sample(random.random(300)), 0.9)
    values = curve.at(np.linspace(-1, 2, 200))
    assert (np.diff(values) >= 0).all()
    assert values.min() >= 0
    assert values.max() <= 1


def test_of_a_single_suspect_little_is_certain() -> None:
    observed = sample(np.array([5.0] + [0.0] * 99))
    chance = error_curve(observed, sample(np.full(20, 5.0)), 0.01).at(np.array([5.0]))[0]
    assert 0.2 < chance < 0.5  # one of one, but one only


def test_a_mean_curve_pools_what_falls() -> None:
    curve = mean_curve(sample(np.array([1.0, 2.0, 3.0, 4.0])), np.array([0.0, 1.0, 0.0, 1.0]))
    low, high = curve.at(np.array([0.0, 9.0]))
    assert low == 0.0
    assert high == 1.0
    assert curve.at(np.array([2.5]))[0] == pytest.approx(0.5, abs=0.2)
