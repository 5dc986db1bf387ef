"""Eq. 15 and the box-noise model exist in NumPy, for audits, and in torch, for training: as one."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from boxmend.auditing import box_likelihood, boxes
from boxmend.auditing.pairs import compute_fitness
from boxmend.data.box_noise_model import BOX_NOISE_MODEL
from boxmend.data.types import Floats, Mask
from boxmend.methods.equations import box_noise
from boxmend.methods.equations.matching import center_fitness

NUMBER = 4000
IMAGE = (640.0, 480.0)  # width, height
NARROW_SHARE, WIDE_FACTOR = 0.7, 2.5  # of the detector's errors that are drawn


def random_boxes(seed: int) -> Floats:
    random = np.random.default_rng(seed)
    low = random.random((NUMBER, 2)) * np.array(IMAGE) * 0.7
    sides = random.uniform(2, 150, (NUMBER, 2))
    return np.concatenate([low, np.minimum(low + sides, IMAGE)], axis=1)


def drawn_residuals(noise: float, error: float) -> tuple[Floats, Mask]:
    """Residuals of the model's own kind; one box in ten has an edge that does not count."""
    random = np.random.default_rng(0)
    factors = np.where(random.random((NUMBER, 1)) < NARROW_SHARE, 1, WIDE_FACTOR)
    result = (
        random.uniform(-noise, noise, (NUMBER, 4)) - random.normal(0, error, (NUMBER, 4)) * factors
    )
    return result, random.random((NUMBER, 4)) > 0.025


def torch_counts(residuals: Floats, is_counted: Mask) -> torch.Tensor:
    return box_noise.count_residuals(torch.tensor(residuals), torch.tensor(is_counted))


def test_the_fitness_of_centre_matching_is_the_same() -> None:
    annotated, detected = random_boxes(0), random_boxes(1)
    pairs = center_fitness(torch.tensor(annotated)[:, None], torch.tensor(detected)[:, None])
    assert compute_fitness(annotated, detected) == pytest.approx(pairs[:, 0, 0].numpy(), rel=1e-12)


def test_residuals_and_their_counts_are_the_same() -> None:
    annotated, shifts = random_boxes(0), np.random.default_rng(1).normal(0, 8, (NUMBER, 4))
    detected = annotated + shifts
    detected[:, 2:] = np.maximum(detected[:, 2:], detected[:, :2] + 1)
    result = boxes.compute_residuals(
        annotated, detected, boxes.estimate_true_sides(annotated, detected, trust=0.0)
    )
    is_free = boxes.mark_free_edges(detected, np.tile(IMAGE, (NUMBER, 1)))
    in_torch, is_free_in_torch = box_noise.edge_residuals(
        torch.tensor(annotated)[None], torch.tensor(detected)[None], torch.tensor([IMAGE[::-1]])
    )
    assert result == pytest.approx(in_torch[0].numpy(), rel=1e-12)
    assert is_free.tolist() == is_free_in_torch[0].tolist()
    counts = box_likelihood.count_residuals(result, is_free)
    assert counts.tolist() == torch_counts(result, is_free).tolist()


@pytest.mark.parametrize("follows", [-0.2, 0.1, 0.4, 0.9])
def test_the_pull_is_the_same(follows: float) -> None:
    random = np.random.default_rng(0)
    shifts = random.uniform(-0.2, 0.2, (NUMBER, 4))
    answers = follows * shifts + random.normal(0, 0.05, (NUMBER, 4))
    everywhere = torch.ones(NUMBER, 4, dtype=torch.bool)
    sums = box_noise.pull_sums(torch.tensor(shifts), torch.tensor(answers), everywhere)
    result, is_counted = drawn_residuals(0.2, 0.05)
    counts = torch_counts(result, is_counted)
    plain, pulled = box_noise.fit_box_noise(counts), box_noise.fit_box_noise(counts, sums)
    assert boxes.estimate_pull(shifts, answers) == pytest.approx(
        1 - plain.noise / pulled.noise, abs=1e-9
    )


@pytest.fixture
def _same_scales(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    box_likelihood._compute_bin_probabilities.cache_clear()
    monkeypatch.setattr(
        box_likelihood, "ERROR_SCALES_SIDES", np.array(box_noise.BOX_NOISE.scales_sides)
    )
    yield
    box_likelihood._compute_bin_probabilities.cache_clear()


@pytest.mark.usefixtures("_same_scales")
@pytest.mark.parametrize("narrow", BOX_NOISE_MODEL.narrow_shares)
def test_on_the_same_grid_the_likelihood_is_the_same(narrow: float) -> None:
    counts = box_likelihood.count_residuals(*drawn_residuals(0.2, 0.06))
    by_stray = [
        box_likelihood.log_likelihood(counts[None], narrow, stray)
        for stray in box_noise.BOX_NOISE.stray_shares
    ]
    in_torch = box_noise._fit(torch.tensor(counts), narrow, False).numpy()
    # Torch keeps N and the scales in single precision, whose last digit makes the difference.
    assert np.max(by_stray, axis=0)[..., 0] == pytest.approx(in_torch, rel=1e-7)


# What remains is by design. Training takes the mean over all scales and shares of the detector's
# error; an audit, which has the confidence of detections, the best ones for each of five strata.
# Their grids of scales and strays differ, too. Where the data tell the noise, that hardly matters.
@pytest.mark.parametrize("error", [0.03, 0.06])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_the_estimated_noise_is_the_same(noise: float, error: float) -> None:
    result, is_counted = drawn_residuals(noise, error)
    confidences = np.random.default_rng(1).random(NUMBER)
    in_numpy = boxes.fit_residuals(result, is_counted, confidences)
    in_torch = box_noise.fit_box_noise(torch_counts(result, is_counted))
    assert in_numpy.noise == pytest.approx(in_torch.noise, abs=1e-3)
    assert in_numpy.noise == pytest.approx(noise, abs=2e-3)
    assert (in_numpy.low, in_numpy.high) == pytest.approx((in_torch.low, in_torch.high))
