"""The prescreen: class probabilities of annotations by a classifier that did not see their labels.

They cannot memorise a label, so the noise model that is fitted to them stays. `mend` uses the same
rules for its own prescreen.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.arguments import refuse_rows, to_floats
from boxmend.data.dataset import Dataset
from boxmend.data.label_noise_model import LABEL_NOISE_MODEL as SHARED
from boxmend.data.types import Rows, Singles
from boxmend.errors import UsageError
from boxmend.repair.mender.label_noise import LabelNoise, fit_label_noise, sample_rows
from boxmend.repair.mender.posteriors import TINY, posterior, split_rows
from boxmend.repair.mender.settings import MenderSettings

NAME = "prescreen"  # of the argument, for messages
SUM_TOLERANCE = 0.01  # by which the probabilities of a row may add up to another number than 1


@dataclass(frozen=True)
class PrescreenLimits:
    """When a prescreen is informative enough, as for `mend`."""

    max_interval: float = SHARED.prescreen_max_interval
    max_doubt: float = SHARED.prescreen_max_doubt
    negligible_rate: float = SHARED.negligible_rate


LIMITS = PrescreenLimits()


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """Calibrated probabilities of a prescreen, and the label noise fitted to them."""

    probabilities: Singles  # [k, C] of the judged annotations; uniform where unknown
    noise: LabelNoise  # with exponents of 1


def read_prescreen(value: Any, dataset: Dataset) -> Singles:
    """Return the argument as probabilities [n, C] of all annotations; NaN rows are unknown."""
    shape = len(dataset), len(dataset.label_names)
    if isinstance(value, str | Path):
        raise UsageError(
            f"{NAME} is {str(value)!r}; expected probabilities: "
            f"boxmend.prescreen(dataset, weights={str(value)!r}) computes them"
        )
    columns = to_floats(NAME, value)
    if columns.shape != shape:
        raise UsageError(
            f"{NAME} has shape {columns.shape}; expected {shape}: the probability of every label "
            "for every annotation of the dataset, in its order"
        )
    is_unknown = np.isnan(columns).all(axis=1)
    in_range = ((columns >= 0) & (columns <= 1)).all(axis=1)
    adds_up = np.abs(columns.sum(axis=1) - 1) <= SUM_TOLERANCE
    refuse_rows(
        NAME,
        ~(is_unknown | (in_range & adds_up)),
        columns,
        "expected probabilities from 0 to 1 that add up to 1, or only NaN",
    )
    singles: Singles = columns.astype(np.float32)
    return singles


def fit_prior(p: Singles, labels: Rows, settings: MenderSettings) -> ClassPrior | None:
    """Fit the label noise to a prescreen [k, C]; return None if it is not informative.

    It is not if its interval of the label noise is wide, or if it leaves most wrong labels.
    """
    known = np.flatnonzero(~np.isnan(p).any(axis=1))
    num_labels = p.shape[1]
    rows = sample_rows(known, num_labels)
    if not len(rows) or num_labels < 2:
        return None
    noise = fit_label_noise(
        p[rows], labels[rows], settings.initial_label_noise, full=settings.full_matrix
    )
    prior = np.full(p.shape, 1 / num_labels, np.float32)
    for part in split_rows(len(known), num_labels):
        chosen = known[part]
        powers = np.maximum(p[chosen], TINY).astype(np.float64) ** noise.tau
        prior[chosen] = powers / powers.sum(axis=1, keepdims=True)
    noise = replace(noise, tau=1.0, prescreen_tau=1.0)
    q = posterior(prior[rows], labels[rows], noise.transition, 1.0)
    doubt = 1 - float(q.max(axis=1).mean())
    is_sure = doubt <= LIMITS.max_doubt * noise.rate or noise.rate < LIMITS.negligible_rate
    is_precise = noise.high - noise.low <= LIMITS.max_interval
    return ClassPrior(prior, noise) if is_sure and is_precise else None
