"""Shares and probabilities from planted errors, by hand and on drawn mixtures."""

import numpy as np
import pytest

from boxmend.auditing.calibration import (
    Share,
    estimate_error_share,
    estimate_lowest_share,
    fit_error_curve,
    fit_mean_curve,
    make_sample,
)


def test_the_weight_beyond_limits_counts_what_is_equal() -> None:
    one = make_sample(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0]))
    assert one.total == 3.5
    assert one.weigh_beyond(np.array([0.0, 2.0, 2.5, 9.0])).tolist() == [3.5, 3.0, 2.0, 0.0]


def test_a_share_is_what_lies_beyond_over_what_is_planted_beyond() -> None:
    # planted all at 1; of 1000 observed 40 are at 1, the rest at 0: 40 / 1 / 1000
    observed = make_sample(np.array([1.0] * 40 + [0.0] * 960))
    share = estimate_error_share(observed, make_sample(np.ones(50)))
    assert share.value == pytest.approx(0.04)
    # below by Poisson, (sqrt(40.25) - 0.98)^2 - 0.25; above by three deviations and three more
    assert share.low == pytest.approx(((40.25**0.5 - 0.98) ** 2 - 0.25) / 1000)
    assert share.high == pytest.approx((40 + 3 * 40**0.5 + 3) / 1000)
    assert share.cautious == pytest.approx(0.75 * share.value + 0.25 * share.low)


def test_of_two_samples_the_one_with_the_lower_bound_tells_the_share() -> None:
    many = make_sample(np.array([1.0] * 300 + [0.0] * 700)), make_sample(np.ones(50)), 3.0
    few = make_sample(np.array([1.0] * 50 + [0.0] * 950)), make_sample(np.ones(50)), 3.0
    assert estimate_lowest_share([many, few]).value == pytest.approx(0.05)
    assert estimate_lowest_share([few, many]) == estimate_lowest_share([many, few])


def test_of_nothing_no_share_is_known() -> None:
    empty, some = make_sample(np.zeros(0)), make_sample(np.ones(3))
    assert estimate_error_share(empty, some) == Share(0.0, 0.0, 1.0)
    assert estimate_error_share(some, empty) == Share(0.0, 0.0, 1.0)
    assert fit_error_curve(empty, some, 0.5).at(np.array([1.0])).tolist() == [0.0]
    assert fit_mean_curve(empty, np.zeros(0)).at(np.array([1.0])).tolist() == [0.0]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5])
def test_the_share_of_a_drawn_mixture_is_found_again(share: float) -> None:
    random = np.random.default_rng(1)
    number = 20_000
    is_wrong = random.random(number) < share
    observed = np.where(is_wrong, random.normal(3, 1, number), random.normal(0, 1, number))
    actual = estimate_error_share(make_sample(observed), make_sample(random.normal(3, 1, number)))
    assert actual.low - 0.002 <= is_wrong.mean() <= actual.high + 0.002
    assert actual.value == pytest.approx(share, abs=0.2 * share + 0.003)


def test_probabilities_of_a_drawn_mixture_are_calibrated() -> None:
    random = np.random.default_rng(2)
    number = 20_000
    is_wrong = random.random(number) < 0.3
    observed = np.where(is_wrong, random.normal(2, 1, number), random.normal(0, 1, number))
    chances = fit_error_curve(
        make_sample(observed), make_sample(random.normal(2, 1, 50_000)), 0.3
    ).at(observed)
    for low, high in ((0.0, 0.1), (0.2, 0.4), (0.4, 0.7), (0.8, 1.0)):
        inside = (chances >= low) & (chances < high)
        assert inside.sum() > 500
        assert is_wrong[inside].mean() == pytest.approx(chances[inside].mean(), abs=0.05)


def test_a_curve_never_falls_and_stays_within_zero_and_one() -> None:
    random = np.random.default_rng(3)
    curve = fit_error_curve(make_sample(random.random(300)), make_sample(random.random(300)), 0.9)
    values = curve.at(np.linspace(-1, 2, 200))
    assert (np.diff(values) >= 0).all()
    assert values.min() >= 0
    assert values.max() <= 1


def test_of_a_single_suspect_little_is_certain() -> None:
    observed = make_sample(np.array([5.0] + [0.0] * 99))
    chance = fit_error_curve(observed, make_sample(np.full(20, 5.0)), 0.01).at(np.array([5.0]))[0]
    # As many are seen there as planted ones are expected: 1. But of one seen, less 1 + sqrt(1) / 2
    # for doubt, a share of 1 / 2.5 is left, and nothing is surer than 0.99.
    assert chance == pytest.approx(0.99 / 2.5)


def test_where_all_look_like_planted_errors_nearly_all_are_errors() -> None:
    observed = make_sample(np.array([5.0] * 400 + [0.0] * 600))
    chance = fit_error_curve(observed, make_sample(np.full(20, 5.0)), 0.4).at(np.array([5.0, 0.0]))
    # 400 are seen and 0.4 * 1000 expected; doubt takes 1 + sqrt(400) / 2 = 11 of 400
    assert chance == pytest.approx([0.99 * 400 / 411, 0.0], abs=1e-9)


def test_where_less_is_expected_than_seen_the_chance_is_the_ratio() -> None:
    observed = make_sample(np.array([5.0] * 400 + [0.0] * 600))
    chance = fit_error_curve(observed, make_sample(np.full(20, 5.0)), 0.1).at(np.array([5.0]))
    assert chance == pytest.approx([0.99 * (100 / 400) * 400 / 411])


def test_what_certainty_cuts_off_is_made_up_for_below_it() -> None:
    # Planted: 30 at 2, 10 at 1. Of 1000 observed 100 are at 2, 400 at 1. With a share of 0.4, 300
    # are expected at 2, where only 100 are, and 100 at 1, a ratio of 1/4. The cut leaves 200 of
    # 400 errors; the ratio below is raised by at most 1.3.
    observed = make_sample(np.array([2.0] * 100 + [1.0] * 400 + [0.0] * 500))
    planted = make_sample(np.array([2.0] * 30 + [1.0] * 10))
    values = fit_error_curve(observed, planted, 0.4).values
    assert values == pytest.approx([0, 0.99 * 1.3 / 4 * 400 / 401, 0.99 * 100 / 106], rel=1e-6)


def test_a_mean_counts_values_by_their_weights() -> None:
    sample = make_sample(np.array([1.0, 1.0, 1.0, 2.0]), np.array([3.0, 1.0, 0.0, 1.0]))
    curve = fit_mean_curve(sample, np.array([0.2, 0.6, 1.0, 1.0]))
    # at 1: (3 * 0.2 + 1 * 0.6) / 4; at 2: 1
    assert curve.at(np.array([0.0, 9.0])) == pytest.approx([0.3, 1.0])
