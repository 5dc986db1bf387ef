"""Means over seeds and recovered shares, by hand-computed numbers."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from boxmend.bench.grids.statistics import mean_difference, recovered_share, summarize_seeds

shares = st.floats(0, 1)
three = st.lists(shares, min_size=3, max_size=3)


def by_seed(numbers: list[float]) -> dict[int, float]:
    return dict(enumerate(numbers))


def test_a_summary_has_the_mean_and_the_sample_deviation() -> None:
    # mean (50 + 52 + 57) / 3 = 53; squares 9 + 1 + 16 = 26; sqrt(26 / 2) = 3.6056
    summary = summarize_seeds({3: 0.52, 0: 0.50, 7: 0.57})
    assert summary is not None
    assert summary.mean == pytest.approx(0.53)
    assert summary.deviation == pytest.approx(math.sqrt(13) / 100)
    assert summary.seeds == (0, 3, 7)


def test_one_seed_has_no_deviation_and_none_no_summary() -> None:
    alone = summarize_seeds({5: 0.4})
    assert alone is not None
    assert (alone.mean, alone.deviation, alone.seeds) == (0.4, None, (5,))
    assert summarize_seeds({}) is None


def test_the_share_is_that_of_the_paper() -> None:
    # against 79.5: (70.3 - 53.7) / (79.5 - 53.7) = 16.6 / 25.8 = 64.3 %
    recovered = recovered_share({0: 0.703}, {0: 0.537}, {0: 0.795})
    assert recovered.value == pytest.approx(16.6 / 25.8)
    assert (recovered.error, recovered.seeds, recovered.left_out) == (None, (0,), ())


def test_the_share_is_one_of_means_and_not_a_mean_of_shares() -> None:
    # gains 0.10 and 0.20, losses 0.20 and 0.30: 0.30 / 0.50 = 60 %; the mean of 50 and 67 is 58 %
    # rests 0.10 - 0.6 x 0.20 = -0.02 and 0.20 - 0.6 x 0.30 = 0.02: deviation 0.02 x sqrt 2, error
    # of the mean 0.02, over the mean loss 0.25: 0.08
    recovered = recovered_share({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.4}, {0: 0.6, 1: 0.7})
    assert recovered.value == pytest.approx(0.6)
    assert recovered.error == pytest.approx(0.08)


def test_only_seeds_that_all_three_have_count() -> None:
    method, baseline, clean = {0: 0.5, 1: 0.9}, {0: 0.4, 2: 0.1}, {0: 0.6, 1: 0.7, 2: 0.7}
    recovered = recovered_share(method, baseline, clean)
    assert recovered.value == pytest.approx(0.5)
    assert (recovered.seeds, recovered.left_out) == ((0,), (1, 2))


@pytest.mark.parametrize("clean", [0.4, 0.3, 0.4 + 1e-9, 0.4099])
def test_no_share_where_noise_cost_less_than_a_point(clean: float) -> None:
    recovered = recovered_share({0: 0.5}, {0: 0.4}, {0: clean})
    assert (recovered.value, recovered.error, recovered.seeds) == (None, None, (0,))
    assert recovered_share({0: 0.405}, {0: 0.4}, {0: 0.4101}).value == pytest.approx(0.005 / 0.0101)


def test_no_share_of_a_loss_too_small_to_divide_by() -> None:
    recovered = recovered_share(
        by_seed([0.0] * 3), by_seed([1.0, 0, 0]), by_seed([0.0, 1.0, 1e-313])
    )
    assert (recovered.value, recovered.error) == (None, None)


def test_no_share_without_a_common_seed() -> None:
    recovered = recovered_share({0: 0.5}, {1: 0.4}, {0: 0.6})
    assert (recovered.value, recovered.seeds, recovered.left_out) == (None, (), (0, 1))


def test_a_difference_is_taken_pair_by_pair() -> None:
    # -1, +2 and +2 points: mean 1, squares 4 + 1 + 1 = 6, deviation sqrt 3, error 1
    result = mean_difference({0: 0.49, 1: 0.52, 2: 0.62}, {0: 0.5, 1: 0.5, 2: 0.6, 3: 0.1})
    assert result.value == pytest.approx(0.01)
    assert result.error == pytest.approx(0.01)
    assert (result.seeds, result.left_out) == ((0, 1, 2), (3,))
    assert mean_difference({0: 0.5}, {1: 0.5}).value is None


@given(three, three, three, st.permutations([10, 20, 30]))
def test_seeds_may_come_in_any_order(
    method: list[float], baseline: list[float], clean: list[float], seeds: list[int]
) -> None:
    sides = [dict(zip(seeds, one, strict=True)) for one in (method, baseline, clean)]
    turned = [dict(reversed(side.items())) for side in sides]
    assert recovered_share(*sides) == recovered_share(*turned)


@given(three, three, st.floats(0.01, 2))
def test_a_method_that_wins_back_the_same_share_in_every_seed_has_no_error(
    baseline: list[float], losses: list[float], share: float
) -> None:
    assume(sum(losses) > 0.031)
    clean = [base + loss for base, loss in zip(baseline, losses, strict=True)]
    method = [base + share * loss for base, loss in zip(baseline, losses, strict=True)]
    recovered = recovered_share(by_seed(method), by_seed(baseline), by_seed(clean))
    assert recovered.value == pytest.approx(share, abs=1e-6)
    assert recovered.error == pytest.approx(0, abs=1e-6)


@given(three, three)
def test_the_baseline_wins_back_nothing_and_clean_all(
    baseline: list[float], clean: list[float]
) -> None:
    assume(sum(clean) > sum(baseline) + 0.031)
    base, best = by_seed(baseline), by_seed(clean)
    assert recovered_share(base, base, best).value == 0
    assert recovered_share(best, base, best).value == pytest.approx(1)
