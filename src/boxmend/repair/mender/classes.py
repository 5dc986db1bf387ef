"""The posterior of the true class of the judged annotations, from memory and prescreen."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.data.types import Floats, Rows, Singles
from boxmend.repair.mender.label_noise import (
    LabelNoise,
    find_lost_classes,
    fit_exponents,
    fit_label_noise,
    fit_temperature,
    limit_rate,
    sample_rows,
    symmetric_transition,
)
from boxmend.repair.mender.memory import MenderMemory
from boxmend.repair.mender.posteriors import (
    combine_evidence,
    one_hot,
    posterior,
    raise_to_floor,
    split_rows,
)
from boxmend.repair.mender.prescreen import ClassPrior
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings

KEPT_BOUND = 0.9  # of the earlier lower bound of a rate, at every update
MAX_RATE_CHANGE = 0.1  # from one update to the next, before labels are first judged
MAX_SHARE_OF_RANDOM = 0.8  # of the rate of random labels, as a bound of the label noise


@dataclass(frozen=True, eq=False)
class Premises:
    """What stays the same over all updates."""

    scene: Scene
    settings: MenderSettings
    prior: ClassPrior | None  # of the prescreen, if there is an informative one

    @property
    def labels(self) -> Rows:
        """The annotated labels [k]."""
        return self.scene.objects.labels

    @property
    def num_labels(self) -> int:
        """The number of classes."""
        return self.scene.objects.num_labels


def initial_noise(premises: Premises) -> LabelNoise:
    """Return the label noise before the first update: that of the prescreen, known, or assumed."""
    settings = premises.settings
    if settings.label_noise != "auto":
        rate = settings.label_noise
        transition = symmetric_transition(rate, premises.num_labels)
        return LabelNoise(rate, rate, rate, 1.0, transition, float(premises.prior is not None))
    if premises.prior is not None:
        return premises.prior.noise
    rate = settings.initial_label_noise
    return LabelNoise(rate, 0.0, 1.0, 1.0, symmetric_transition(rate, premises.num_labels))


def estimate_noise(
    premises: Premises, memory: MenderMemory, known: LabelNoise, *, is_firm: bool
) -> LabelNoise:
    """Return the label noise, given the memory.

    Once it is firm, after warm-up, the rate does not fall below its earlier lower bound, which
    fades slowly: the detector memorises errors, so later estimates tend to be too low. If the rate
    is known, or comes from a prescreen, only the exponents are fitted.
    """
    rows = sample_rows(np.flatnonzero(memory.visits > 0), premises.num_labels)
    settings, labels = premises.settings, premises.labels[rows]
    if not len(rows) or premises.num_labels < 2 or not settings.mends_labels:
        return known
    p = memory.evidence[rows]
    if premises.prior is not None:
        return _fit_exponents(premises, premises.prior, p, rows, known)
    if settings.label_noise == "auto":
        new = fit_label_noise(p, labels, known.rate, full=settings.full_matrix)
        new = limit_rate(new, p, labels)
        least = KEPT_BOUND * known.low if is_firm else 0.0
        if new.rate >= least:
            return replace(new, low=max(new.low, least))
        known = replace(known, low=least)
    return replace(known, tau=fit_temperature(p, labels, known.transition))


def _fit_exponents(
    premises: Premises, prior: ClassPrior, p: Singles, rows: Rows, known: LabelNoise
) -> LabelNoise:
    """Return the known label noise with the exponents of detections p [n, C] and prescreen."""
    labels, weight = premises.labels[rows], premises.settings.prescreen_weight
    others = prior.probabilities[rows]
    if weight == "auto":
        tau, prescreen_tau = fit_exponents(p, others, labels, known.transition)
        return replace(known, tau=tau, prescreen_tau=prescreen_tau)
    tau = fit_temperature(combine_evidence(p, others, 1.0, weight), labels, known.transition)
    return replace(known, tau=tau, prescreen_tau=weight * tau)


def is_precise(premises: Premises, noise: LabelNoise) -> bool:
    """Return whether labels can be judged by this label noise.

    A detector that does not yet tell the classes apart fits many rates equally well, or one that is
    near the rate of random labels.
    """
    settings = premises.settings
    if not settings.mends_labels or premises.num_labels < 2:
        return False
    if settings.label_noise != "auto" or premises.prior is not None:
        return True
    random_rate = 1 - 1 / premises.num_labels
    is_narrow = noise.high - noise.low <= settings.max_rate_interval
    return is_narrow and noise.high <= MAX_SHARE_OF_RANDOM * random_rate


def is_steady(premises: Premises, before: LabelNoise, noise: LabelNoise) -> bool:
    """Return whether the label noise has nearly the rate of the update before.

    The estimate falls fast while a detector begins to tell the classes apart.
    """
    is_estimated = premises.settings.label_noise == "auto" and premises.prior is None
    return not is_estimated or abs(noise.rate - before.rate) <= MAX_RATE_CHANGE


def judge_classes(
    premises: Premises, memory: MenderMemory, noise: LabelNoise
) -> tuple[Singles, Rows]:
    """Return the posteriors q [k, C], and the classes that the detector has lost.

    As long as labels cannot be judged, q is what the labels alone say.
    """
    if not is_precise(premises, noise):  # what the labels alone say
        q = initial_noise(premises).transition.T[premises.labels].astype(np.float32)
        return q, np.zeros(0, np.int64)
    q = _compute_posteriors(premises, memory, noise)
    visited = (memory.visits > 0).astype(np.float32)
    number = float(visited.sum())
    if not number:
        return q, np.zeros(0, np.int64)
    transition = noise.transition
    if premises.prior is None:  # T fitted to the detector would explain the classes that it lost
        transition = symmetric_transition(noise.rate, premises.num_labels)
    found = (visited @ q).astype(np.float64) / number
    lost = find_lost_classes(found, premises.labels[visited > 0], transition)
    return _protect_lost(premises, q, noise, lost), lost


def class_posteriors(
    premises: Premises, memory: MenderMemory, noise: LabelNoise, lost: Rows
) -> Singles:
    """Return the posteriors q [k, C] that `judge_classes` returned with these lost classes."""
    return _protect_lost(premises, _compute_posteriors(premises, memory, noise), noise, lost)


def prior_posteriors(premises: Premises) -> Singles:
    """Return the posteriors q [k, C] before the end of warm-up: of the prescreen, or one-hot."""
    if premises.prior is None or not premises.settings.mends_labels:
        return one_hot(premises.labels, premises.num_labels)
    noise, p = initial_noise(premises), premises.prior.probabilities
    q = np.empty(p.shape, np.float32)
    for part in split_rows(len(p), premises.num_labels):
        q[part] = posterior(p[part], premises.labels[part], noise.transition, 1.0)
    return q


def _compute_posteriors(premises: Premises, memory: MenderMemory, noise: LabelNoise) -> Singles:
    q, prior = np.empty(memory.evidence.shape, np.float32), premises.prior
    for part in split_rows(len(q), premises.num_labels):
        p, tau = memory.evidence[part], noise.tau
        if prior is not None:
            p = combine_evidence(p, prior.probabilities[part], tau, noise.prescreen_tau)
            tau = 1.0
        q[part] = posterior(p, premises.labels[part], noise.transition, tau)
    return q


def _protect_lost(premises: Premises, q: Singles, noise: LabelNoise, lost: Rows) -> Singles:
    """Raise q(y) of the labels of lost classes to T[y, y]."""
    if not len(lost):
        return q
    by_class: Floats = np.zeros(premises.num_labels)
    by_class[lost] = noise.transition.diagonal()[lost]
    return raise_to_floor(q, premises.labels, by_class[premises.labels])
