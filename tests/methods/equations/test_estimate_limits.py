"""Limits of the estimates: when they stop, what they refuse, and how wide their bounds are."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.methods.equations import (
    Belief,
    NoiseModel,
    PrescreenResult,
    fit_box_noise,
    fit_noise_model,
    fit_rate_and_temperature,
    prescreen_labels,
    rate_interval,
    symmetric_transition,
)
from boxmend.methods.equations.box_noise import BOX_NOISE, NUM_BINS
from boxmend.methods.equations.label_noise import LABEL_NOISE

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_LABELS = 6
NUM_ENTRIES = 30  # of a full matrix of six labels, beside its diagonal


def clusters(count: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """Features of six classes that are easily separated, labels, and three folds.

    A third of the labels are wrong, so that a full matrix could pay for its entries.
    """
    rows = torch.arange(count)
    truth = rows % NUM_LABELS
    noise = torch.rand(count, NUM_LABELS, generator=torch.Generator().manual_seed(0))
    moved = (truth + 1 + rows // 18 % 5) % NUM_LABELS
    labels = torch.where(rows // 6 % 3 == rows % 3, moved, truth)
    return torch.eye(NUM_LABELS)[truth] + noise, labels, rows // 6 % 3


def prescreen_refits(
    monkeypatch: pytest.MonkeyPatch, refits: Iterable[dict[str, Any]]
) -> PrescreenResult:
    """Run a prescreen with scripted refits: the gain, the rate and the matrix of each."""
    script = iter(refits)

    def refit(rows: Any, fit: Any, transition: Tensor, belief: Belief) -> Any:
        step = next(script)
        assert belief.full == step["is_full"]
        matrix = step.get("matrix", fit.model.transition)
        model = NoiseModel(step["rate"], 1.0, matrix, step["is_full"])
        return fit._replace(model=model, value=fit.value + step["gain"])

    monkeypatch.setattr("boxmend.methods.equations.prescreen._refit", refit)
    prescreened = prescreen_labels(*clusters(), NUM_LABELS)
    assert list(script) == []  # all were asked for
    return prescreened


def full_matrix(least_right: float) -> Tensor:
    """Return a matrix with this share of right labels for the first class, 0.9 for the others."""
    matrix = symmetric_transition(0.1, NUM_LABELS)
    matrix[0] = (1 - least_right) / (NUM_LABELS - 1)
    matrix[0, 0] = least_right
    return matrix


@pytest.mark.parametrize(
    ("gain", "least_right", "is_taken"),
    [
        (NUM_ENTRIES + 1, 0.41, True),
        (NUM_ENTRIES - 1, 0.41, False),  # likelier, but by less than one for each entry
        (NUM_ENTRIES + 1, 0.39, False),  # most of a class have another name: it is mixed up
    ],
)
def test_a_full_matrix_has_to_be_much_likelier_and_call_classes_by_their_names(
    monkeypatch: pytest.MonkeyPatch, gain: float, least_right: float, is_taken: bool
) -> None:
    full = {"rate": 0.2, "gain": gain, "matrix": full_matrix(least_right), "is_full": True}
    no_gain = {"rate": 0.9, "gain": 0.0, "is_full": is_taken}
    model = prescreen_refits(monkeypatch, [full, no_gain]).model
    assert model.is_full == is_taken
    assert (model.rate == 0.2) == is_taken


def test_rounds_stop_where_labels_become_no_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = {"rate": 0.5, "gain": 0.0, "matrix": full_matrix(0.9), "is_full": True}
    better, worse = ({"rate": r, "gain": g, "is_full": False} for r, g in ((0.1, 2.0), (0.2, -1.0)))
    assert prescreen_refits(monkeypatch, [rejected, better, worse]).model.rate == 0.1
    best = {"rate": 0.3, "gain": 1.0, "is_full": False}
    assert (
        prescreen_refits(monkeypatch, [rejected, better, best]).model.rate == 0.3
    )  # two rounds at most


def test_the_bias_of_the_classifiers_does_not_decay() -> None:
    """Weights of a strong decay hardly tell classes apart, but rare classes stay rare."""
    labels = torch.tensor([0] * 8 + [1, 2]).repeat(40)
    noise = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    look = prescreen_labels(
        torch.eye(3)[labels] + noise,
        labels,
        torch.arange(400) // 10 % 4,
        3,
        Belief(0.0, decays=(0.3,)),
    )
    raw = (look.probabilities.double().log() / look.model.tau).softmax(-1)
    assert raw.mean(0).tolist() == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.1])
def test_the_bounds_are_those_around_the_likeliest_rate_of_all(rate: float) -> None:
    # Ten labels that are surely right have the likelihood (1 - R)^10, highest at R = 0 whatever
    # rate is given; it falls by 1.92 in the logarithm at 1 - exp(-0.192).
    p, labels = torch.eye(2)[[0, 1] * 5], torch.tensor([0, 1] * 5)
    low, high = rate_interval(p, labels, rate, 1.0)
    assert low == 0
    assert high == pytest.approx(1 - math.exp(-0.192), abs=1e-5)


def test_the_bounds_allow_for_another_temperature() -> None:
    """They hardly depend on the tau they start from: the best one near it counts."""
    generator = torch.Generator().manual_seed(3)
    chances = (3 * torch.randn(400, 4, generator=generator)).softmax(-1)
    labels = torch.multinomial(0.8 * chances + 0.05, 1, generator=generator)[:, 0]
    rate, tau = fit_rate_and_temperature(chances, labels)
    bounds = rate_interval(chances, labels, rate, tau)
    for steps in (-2, 2):
        interval = rate_interval(chances, labels, rate, tau * 1.05**steps)
        assert interval == pytest.approx(bounds, abs=1e-4)


@pytest.mark.parametrize(("gain", "is_full"), [(11.4, False), (11.6, True)])
def test_a_full_matrix_has_to_pay_for_its_entries(
    monkeypatch: pytest.MonkeyPatch, gain: float, is_full: bool
) -> None:
    # (3 * 2 - 1) / 2 * log 100 = 11.51
    fits = iter([-90.0, -90.0 + gain])
    monkeypatch.setattr(
        "boxmend.methods.equations.label_noise.log_likelihood", lambda *_: torch.tensor(next(fits))
    )
    labels = torch.arange(100) % 3
    assert fit_noise_model(torch.eye(3)[labels], labels).is_full == is_full


def test_the_rate_of_a_full_matrix_counts_classes_by_their_number() -> None:
    # Of 1000 annotations 800 are of class 0, and half of those are called 1; 400 are wrong.
    truth = torch.tensor([0] * 8 + [1, 2]).repeat(100)
    labels = torch.where((truth == 0) & (torch.arange(1000) % 2 == 0), 1, truth)
    model = fit_noise_model(torch.eye(3)[truth], labels)
    assert model.is_full
    assert model.rate == pytest.approx(0.4, abs=0.02)


def test_of_too_many_annotations_every_second_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "boxmend.methods.equations.label_noise.LABEL_NOISE",
        replace(LABEL_NOISE, max_annotations=10),
    )
    truth = torch.arange(15) % 3
    labels = torch.where(torch.arange(15) % 2 == 1, (truth + 1) % 3, truth)  # odd ones are wrong
    rate, _ = fit_rate_and_temperature(torch.eye(3)[truth], labels, strength=0)
    assert rate == pytest.approx(0, abs=1e-6)
    rate, _ = fit_rate_and_temperature(torch.eye(3)[truth][:10], labels[:10], strength=0)
    assert rate == pytest.approx(0.5, abs=1e-3)


def counts_of(noise: float, number: int) -> Tensor:
    """Counts of edges whose residuals are spread evenly up to the noise."""
    counts = torch.zeros(NUM_BINS)
    counts[: round(100 * noise)] = number / round(100 * noise)
    return counts


def test_noise_and_bounds_are_corrected_for_the_pull() -> None:
    counts = counts_of(0.3, 6000)
    plain, pulled = fit_box_noise(counts), fit_box_noise(counts, torch.tensor([25.0, 100]))
    assert 0 < plain.low < plain.noise < plain.high
    for name in ("noise", "low", "high"):
        assert getattr(pulled, name) == pytest.approx(getattr(plain, name) / 0.75)
    assert pulled.error == plain.error


def test_fewer_than_400_edges_give_no_estimate() -> None:
    few, enough = (fit_box_noise(counts_of(0.3, number)) for number in (399, 401))
    assert few[:4] == pytest.approx((0.0, 0.0, 0.0, 0.6))
    assert enough.noise == pytest.approx(0.3, abs=0.05)


def test_the_four_edges_of_a_box_count_as_one_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    of_boxes = fit_box_noise(counts_of(0.2, 4000))
    monkeypatch.setattr(
        "boxmend.methods.equations.box_noise.SHARED", replace(SHARED, edges_per_box=1)
    )
    of_edges = fit_box_noise(counts_of(0.2, 1000))
    assert tuple(of_boxes) == pytest.approx(tuple(of_edges))


def scripted_fit(monkeypatch: pytest.MonkeyPatch, chances: dict[float, float]) -> None:
    """Let the likelihood of every N be this one, up to a factor, for one scale of d."""
    logs = torch.full(
        (len(SHARED.noises_sides), len(BOX_NOISE.scales_sides)), -torch.inf, dtype=torch.float64
    )
    for noise, chance in chances.items():
        logs[round(noise / 0.02), 0] = math.log(chance)
    monkeypatch.setattr(
        "boxmend.methods.equations.box_noise._fit",
        lambda counts, narrow, is_gaussian: logs.clone(),
    )


def test_the_bounds_of_the_box_noise_leave_one_in_forty_on_each_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 0.02 of the chances are below 0.2 and 0.04 up to it; 0.96 up to 0.3 and 0.98 up to 0.4.
    scripted_fit(monkeypatch, {0.1: 0.02, 0.2: 0.02, 0.3: 0.92, 0.4: 0.02, 0.5: 0.02})
    fitted = fit_box_noise(counts_of(0.3, 1000))
    assert fitted.noise == pytest.approx(0.3)
    assert (fitted.low, fitted.high) == pytest.approx((0.19, 0.41))


def test_noise_has_to_be_likelier_than_none_by_six_in_the_logarithm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted_fit(monkeypatch, {0.0: 1.0, 0.4: math.exp(6)})
    assert fit_box_noise(counts_of(0.3, 1000)).noise == pytest.approx(0.2)  # both alike


def test_the_error_is_the_deviation_of_both_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # The narrow share is 0.55, 0.7, 0.85 or 1 alike, in the mean 0.775; the others are 2.5 times
    # as wide: 0.01^2 * (0.775 + 0.225 * 6.25).
    scripted_fit(monkeypatch, {0.2: 1.0})
    fitted = fit_box_noise(counts_of(0.2, 1000))
    assert fitted.error == pytest.approx(0.01 * math.sqrt(0.775 + 0.225 * 6.25))
