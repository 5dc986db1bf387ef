"""Rate, temperature and transition matrix from evidence that was drawn with known ones."""

import math

import pytest
import torch
from torch import Tensor

from boxmend.methods.equations import (
    fit_noise_model,
    fit_rate_and_temperature,
    fit_transition,
    log_likelihood,
    rate_interval,
    symmetric_transition,
)

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_LABELS = 20


def evidence(
    count: int, transition: Tensor, tau: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Calibrated probabilities tempered by 1 / tau, and labels disturbed by the matrix."""
    generator = torch.Generator().manual_seed(seed)
    true_p = (4 * torch.randn(count, len(transition), generator=generator)).softmax(-1)
    true = torch.multinomial(true_p, 1, generator=generator)[:, 0]
    labels = torch.multinomial(transition[true], 1, generator=generator)[:, 0]
    return (true_p.log() / tau).softmax(-1), labels


def pair_transition(rate: float, num_labels: int) -> Tensor:
    eye = torch.eye(num_labels)
    return (1 - rate) * eye + rate * eye.roll(1, dims=1)  # class c is annotated as c + 1


def test_the_symmetric_matrix_equals_the_hand_computed_values() -> None:
    expected = torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]])
    torch.testing.assert_close(symmetric_transition(0.6, 3), expected)
    assert symmetric_transition(0.6, 1).tolist() == [[1]]


def test_the_likelihood_equals_the_hand_computed_value() -> None:
    p, labels = torch.tensor([[0.8, 0.2], [0.5, 0.5]]), torch.tensor([0, 1])
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    # 0.8 * 0.9 + 0.2 * 0.3 = 0.78;  0.5 * 0.1 + 0.5 * 0.7 = 0.4
    value = log_likelihood(p, labels, transition, tau=1)
    assert value.item() == pytest.approx(math.log(0.78) + math.log(0.4))
    # p^2 renormalised: 16/17 and 1/17;  16/17 * 0.9 + 1/17 * 0.3 = 14.7/17
    value = log_likelihood(p, labels, transition, tau=2)
    assert value.item() == pytest.approx(math.log(14.7 / 17) + math.log(0.4))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_the_rate_of_symmetric_noise_is_recovered(rate: float) -> None:
    p, labels = evidence(5000, symmetric_transition(rate, NUM_LABELS))
    result, tau = fit_rate_and_temperature(p, labels)
    assert result == pytest.approx(rate, abs=0.03)
    assert tau == pytest.approx(1, abs=0.15)
    if rate == 0:
        assert result <= 0.01


@pytest.mark.parametrize("tau", [0.4, 2.5], ids=["over-confident", "timid"])
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_the_temperature_of_the_evidence_is_recovered(tau: float, rate: float) -> None:
    p, labels = evidence(5000, symmetric_transition(rate, NUM_LABELS), tau)
    result, found_tau = fit_rate_and_temperature(p, labels)
    assert result == pytest.approx(rate, abs=0.03)
    assert found_tau == pytest.approx(tau, rel=0.15)


def test_no_other_rate_or_temperature_is_more_likely() -> None:
    p, labels = evidence(3000, symmetric_transition(0.3, 5))
    rate, tau = fit_rate_and_temperature(p, labels, strength=0)
    best = log_likelihood(p, labels, symmetric_transition(rate, 5), tau)
    for step in (-0.03, 0.03):
        moved = symmetric_transition(rate + step, 5)
        assert log_likelihood(p, labels, moved, tau) < best
        assert log_likelihood(p, labels, symmetric_transition(rate, 5), tau + 3 * step) < best


def test_without_evidence_the_estimate_is_the_prior() -> None:
    rate, tau = fit_rate_and_temperature(torch.zeros(0, 4), torch.zeros(0).long(), previous=0.25)
    assert rate == pytest.approx(0.25, abs=1e-6)
    assert tau == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_few_annotations_keep_the_estimate_in_bounds(seed: int) -> None:
    p, labels = evidence(8, symmetric_transition(0.2, 4), seed=seed)
    rate, tau = fit_rate_and_temperature(p, labels, previous=0.2)
    assert 0 <= rate <= 0.6
    assert 0.1 <= tau <= 10


def test_certain_evidence_gives_finite_estimates() -> None:
    p = torch.eye(3)[[0, 1, 2, 0]]
    rate, _ = fit_rate_and_temperature(p, torch.tensor([0, 1, 2, 1]), previous=0.25)
    assert rate == pytest.approx(0.25, abs=0.01)  # one of four, as the prior says


def test_the_fit_is_deterministic_and_changes_no_argument() -> None:
    p, labels = evidence(500, symmetric_transition(0.4, 6))
    before = p.clone()
    assert fit_rate_and_temperature(p, labels) == fit_rate_and_temperature(p, labels)
    assert torch.equal(p, before)


def test_a_single_class_cannot_be_wrong() -> None:
    assert fit_rate_and_temperature(torch.ones(5, 1), torch.zeros(5).long()) == (0, 1)
    model = fit_noise_model(torch.ones(5, 1), torch.zeros(5).long())
    assert model.rate == 0
    assert model.transition.tolist() == [[1]]


def test_one_round_of_expectation_and_maximisation_equals_the_hand_computed_one() -> None:
    p, labels = torch.tensor([[0.8, 0.2], [0.5, 0.5]]), torch.tensor([0, 1])
    prior = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    transition = fit_transition(p, labels, prior, strength=2, rounds=1)
    # owners: label 0: 0.72/0.78, 0.06/0.78 = 12/13, 1/13;  label 1: 0.05/0.4, 0.35/0.4 = 1/8, 7/8
    rows = [[12 / 13 + 1.8, 1 / 8 + 0.2], [1 / 13 + 0.6, 7 / 8 + 1.4]]
    expected = torch.tensor([[cell / sum(row) for cell in row] for row in rows])
    torch.testing.assert_close(transition, expected)


def test_pair_noise_is_recovered_entry_by_entry() -> None:
    transition = pair_transition(0.4, NUM_LABELS)
    p, labels = evidence(10_000, transition)
    actual = fit_transition(p, labels, symmetric_transition(0.4, NUM_LABELS))
    torch.testing.assert_close(actual.sum(1), torch.ones(NUM_LABELS))
    assert actual.diagonal().mean().item() == pytest.approx(0.6, abs=0.03)
    assert actual.diagonal(1).mean().item() == pytest.approx(0.4, abs=0.03)
    assert (actual - transition).abs().max() < 0.1


def test_a_class_without_evidence_keeps_the_prior() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0]]).repeat(40, 1)
    prior = symmetric_transition(0.3, 3)
    transition = fit_transition(p, torch.arange(40) % 2, prior)
    torch.testing.assert_close(transition[2], prior[2], atol=1e-4, rtol=0)


def test_the_full_matrix_is_used_if_the_evidence_supports_it() -> None:
    p, labels = evidence(4000, pair_transition(0.4, 10), tau=1.5)
    model = fit_noise_model(p, labels)
    assert model.is_full
    assert model.rate == pytest.approx(0.4, abs=0.03)
    assert model.tau == pytest.approx(1.5, rel=0.15)
    assert model.transition.diagonal(1).mean().item() == pytest.approx(0.4, abs=0.04)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_symmetric_noise_stays_symmetric(rate: float) -> None:
    p, labels = evidence(4000, symmetric_transition(rate, 10))
    model = fit_noise_model(p, labels)
    assert not model.is_full
    assert model.rate == pytest.approx(rate, abs=0.03)
    assert (model.rate, model.tau) == fit_rate_and_temperature(p, labels)


def simulate_evidence(rate: float, seed: int, count: int = 800) -> tuple[Tensor, Tensor]:
    """Evidence of six classes, too timid by an exponent of 1.4, and labels wrong at the rate."""
    generator = torch.Generator().manual_seed(seed)
    chances = (3 * torch.randn(count, 6, generator=generator)).softmax(-1)
    truth = torch.multinomial(chances, 1, generator=generator)[:, 0]
    is_wrong = torch.rand(count, generator=generator) < rate
    moves = torch.randint(1, 6, (count,), generator=generator)
    labels = torch.where(is_wrong, (truth + moves) % 6, truth)
    return (chances.log() / 1.4).softmax(-1), labels


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_the_interval_holds_the_rate_about_nineteen_times_of_twenty(rate: float) -> None:
    held, widths = 0, []
    for seed in range(20):
        evidence, labels = simulate_evidence(rate, seed)
        result = fit_rate_and_temperature(evidence, labels)
        low, high = rate_interval(evidence, labels, *result)
        assert low <= result[0] <= high
        held += low <= rate <= high
        widths.append(high - low)
    assert held >= 17
    assert max(widths) < 0.16  # and it says something


def test_the_interval_is_zero_for_one_class_and_full_without_annotations() -> None:
    assert rate_interval(torch.ones(5, 1), torch.zeros(5).long(), 0.0, 1.0) == (0.0, 0.0)
    assert rate_interval(torch.ones(0, 3), torch.zeros(0).long(), 0.3, 1.0) == (0.0, 0.95)


def test_more_annotations_make_the_interval_narrower() -> None:
    few, many = (simulate_evidence(0.3, 1, count) for count in (200, 3200))
    widths = []
    for evidence, labels in (few, many):
        low, high = rate_interval(evidence, labels, *fit_rate_and_temperature(evidence, labels))
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
