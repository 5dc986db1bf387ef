"""The prescreen: out-of-fold class probabilities of annotations, before training.

A linear classifier works on features of the annotated boxes from a backbone that never saw their
labels. It is trained on the other folds, so its prediction for an annotation does not depend on
that annotation's label. Classifier and noise model are fitted in turn: the classifier minimises the
forward-corrected loss -log sum_c s(c) T[c, y] through the transition matrix T, and T is fitted to
the classifier's predictions. The result is deterministic.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations.evidence import TINY
from boxmend.methods.equations.label_noise import (
    LABEL_NOISE,
    NoiseModel,
    fit_noise_model,
    fit_rate_and_temperature,
    fit_temperature,
    log_likelihood,
    symmetric_transition,
)


@dataclass(frozen=True)
class PrescreenConstants:
    """Limits of the classifier's training and of the fitted matrix."""

    decays: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)  # from strong to weak
    num_rounds: int = 2  # of training and fitting after the decay is chosen; a third has no effect
    max_train_annotations: int = 30_000  # with more only time and memory grow
    max_lbfgs_steps: int = 60
    lbfgs_history: int = 10  # steps
    gradient_tolerance: float = 1e-5  # of L-BFGS
    change_tolerance: float = 1e-6  # of L-BFGS
    annotations_per_chunk: int = 8192  # whose features are in single precision at a time
    # Root mean square of a row, so that the same decays suit all features.
    feature_norm: float = 10.0
    # Gain in log-likelihood over the class shares alone; with less the rate is arbitrary.
    min_log_likelihood_gain: float = 10.0
    anchor_share: float = 0.1  # of a label's annotations
    min_anchors: int = 5  # per label
    anchor_prior: float = 2.0  # pseudo-anchors per class, labelled as by symmetric noise
    # Smallest diagonal entry of a full matrix; a matrix with less confuses classes with each other.
    min_correct_share: float = 0.4


PRESCREEN = PrescreenConstants()


class Belief(NamedTuple):
    """Prior knowledge about the label noise."""

    known_rate: float | None = None  # of symmetric noise; only tau is then fitted
    full: bool = True  # whether to consider a full matrix
    previous: float = LABEL_NOISE.prior_rate  # initial rate if none is known
    decays: tuple[float, ...] = PRESCREEN.decays  # to choose from, from strong to weak


class PrescreenResult(NamedTuple):
    """Out-of-fold predictions for the annotations, and the noise model fitted to them."""

    probabilities: Tensor  # [n, C], calibrated: raw probabilities to the power tau, renormalised
    model: NoiseModel  # with the tau of the raw probabilities
    decay: float  # the chosen one


class _Rows(NamedTuple):
    """The training data of the classifiers."""

    features: Tensor  # [m, D], scaled
    labels: Tensor  # [m]
    folds: Tensor  # [m]


class _Fit(NamedTuple):
    """One classifier per fold, and the noise model fitted to their predictions."""

    weights: Tensor  # [K, 1 + D, C], the bias first
    probabilities: Tensor  # [m, C], raw and out-of-fold
    model: NoiseModel
    value: float  # log-likelihood of the labels
    decay: float


class _Scale(NamedTuple):
    """Mean and scale of the features."""

    center: Tensor  # [D]
    factor: float


def prescreen_labels(
    features: Tensor, labels: Tensor, folds: Tensor, num_labels: int, belief: Belief | None = None
) -> PrescreenResult:
    """Predict the class of annotations by classifiers that did not see their labels.

    Takes features [n, D] of any precision, labels [n] and folds [n] from 0. Dependent annotations,
    such as those of one image, must share a fold. The chosen decay maximises the likelihood of the
    held-out labels. If the features predict the labels no better than the class shares do, or there
    is a single fold, the probabilities are uniform and the rate is the prior one: any other rate
    would explain the labels equally well. The result is on the device of the features.
    """
    belief = belief or Belief()
    labels, folds = labels.to(features.device).long(), folds.to(features.device).long()
    sample = _spread_indices(len(labels), features.device)
    normalised = _normalise(features[sample])
    scale = _scale(normalised)
    rows = _Rows((normalised - scale.center) * scale.factor, labels[sample], folds[sample])
    num_folds = int(folds.max()) + 1 if len(folds) else 0
    if num_labels < 2 or not _is_split(rows.folds):
        return _uninformative_result(len(labels), num_labels, features.device, belief)
    starts = torch.zeros(num_folds, 1 + features.shape[1], num_labels, device=features.device)
    fit = _fit_best_decay(rows, starts, belief)
    baseline = _class_share_likelihood(rows.labels, num_labels)
    if fit.value < baseline + PRESCREEN.min_log_likelihood_gain:
        return _uninformative_result(len(labels), num_labels, features.device, belief)
    if belief.known_rate is None:
        fit = _estimate_noise(rows, fit, belief)
    raw = _predict(features, folds, fit.weights, scale)
    calibrated = (fit.model.tau * raw.log_softmax(-1)).softmax(-1)
    transition = fit.model.transition.to(features.device)
    return PrescreenResult(calibrated, fit.model._replace(transition=transition), fit.decay)


def corrected_loss(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """Compute the mean of -log sum_c p(c) T[c, y] over annotations, with p the softmax of logits.

    Takes logits [n, C], labels [n] and T [C, C]. Returns a scalar, which is finite even for a label
    that T makes impossible.
    """
    log_noise = transition.clamp(min=TINY).log().T[labels]  # log T[c, y], [n, C]
    return -(logits.log_softmax(-1) + log_noise).logsumexp(-1).mean()


def anchored_transition(probabilities: Tensor, labels: Tensor, model: NoiseModel) -> Tensor:
    """Estimate a full matrix from the labels of anchors, the most certain annotations of a class.

    A classifier trained through a symmetric matrix explains asymmetric noise away: if 4 of 10 cats
    are labelled as dogs, it predicts every cat to be 40 % dog and the labels to be right. But the
    annotations with the largest margin of "cat" over any other label are cats, so their labels show
    how cats are annotated. Takes raw p [n, C], labels [n] and a model, whose tau tempers p and
    whose matrix smooths each row. Returns T [C, C], each row adding up to 1.
    """
    num_labels = probabilities.shape[1]
    likelihoods = _temper(probabilities, model.tau) @ model.transition.double()  # of labels, [n, C]
    best, second = likelihoods.topk(2).values.T
    is_best = likelihoods == best[:, None]
    margins = likelihoods - torch.where(is_best, second[:, None], best[:, None])
    counts = torch.bincount(labels, minlength=num_labels).tolist()
    matrix = PRESCREEN.anchor_prior * model.transition.double()
    for label, count in enumerate(counts):
        num_anchors = max(int(PRESCREEN.anchor_share * count), PRESCREEN.min_anchors)
        anchors = margins[:, label].topk(min(num_anchors, len(labels))).indices
        matrix[label] += torch.bincount(labels[anchors], minlength=num_labels)
    return (matrix / matrix.sum(1, keepdim=True)).float()


def _fit_best_decay(rows: _Rows, starts: Tensor, belief: Belief) -> _Fit:
    """Fit with weaker and weaker decay, as long as the held-out labels become more likely."""
    rate = belief.previous if belief.known_rate is None else belief.known_rate
    transition = symmetric_transition(rate, starts.shape[2])
    best: _Fit | None = None
    for decay in belief.decays:
        weights, p = _train(rows, transition, decay, starts if best is None else best.weights)
        model = _fit_symmetric(p, rows.labels.cpu(), belief)
        fit = _Fit(weights, p, model, _likelihood(p, rows, model), decay)
        if best is not None and fit.value <= best.value:
            break
        best = fit
    if best is None:
        raise ValueError("no decays to choose from")
    return best


def _estimate_noise(rows: _Rows, fit: _Fit, belief: Belief) -> _Fit:
    """Train and fit the noise in turn, as long as the labels become more likely.

    The full matrix is used if the evidence supports it.
    """
    num_labels = fit.probabilities.shape[1]
    num_entries = num_labels * (num_labels - 1)
    cost = (num_entries - 1) / 2 * math.log(len(rows.labels))  # the criterion of `fit_noise_model`
    if belief.full and num_labels > 2 and cost < -fit.value:  # else no gain could reach the cost
        transition = anchored_transition(fit.probabilities, rows.labels.cpu(), fit.model)
        full = _refit(rows, fit, transition, belief)
        is_likelier = full.value - fit.value > num_entries
        if full.model.is_full and is_likelier and _keeps_classes_apart(full.model.transition):
            fit = full
    for _ in range(PRESCREEN.num_rounds):
        is_full = fit.model.is_full
        new = _refit(rows, fit, fit.model.transition, belief._replace(full=is_full))
        if new.value <= fit.value:  # from weak evidence the rate would drift
            break
        fit = new
    return fit


def _keeps_classes_apart(transition: Tensor) -> bool:
    """Return whether every class keeps its label often enough not to be confused with another."""
    return bool(transition.diagonal().min() >= PRESCREEN.min_correct_share)


def _refit(rows: _Rows, fit: _Fit, transition: Tensor, belief: Belief) -> _Fit:
    """Continue the training through another matrix, and fit the noise again."""
    labels = rows.labels.cpu()
    weights, p = _train(rows, transition, fit.decay, fit.weights)
    if belief.full:
        model = fit_noise_model(p, labels, fit.model.rate)
    else:
        model = _fit_symmetric(p, labels, belief._replace(previous=fit.model.rate))
    return _Fit(weights, p, model, _likelihood(p, rows, model), fit.decay)


def _fit_symmetric(probabilities: Tensor, labels: Tensor, belief: Belief) -> NoiseModel:
    """Fit symmetric noise, or tau alone if the rate is known."""
    num_labels = probabilities.shape[1]
    if belief.known_rate is None:
        rate, tau = fit_rate_and_temperature(probabilities, labels, belief.previous)
        return NoiseModel(rate, tau, symmetric_transition(rate, num_labels), is_full=False)
    rate = belief.known_rate if num_labels > 1 else 0.0
    transition = symmetric_transition(belief.known_rate, num_labels)
    tau = fit_temperature(probabilities, labels, transition)
    return NoiseModel(rate, tau, transition, is_full=False)


def _likelihood(probabilities: Tensor, rows: _Rows, model: NoiseModel) -> float:
    return float(log_likelihood(probabilities, rows.labels.cpu(), model.transition, model.tau))


def _class_share_likelihood(labels: Tensor, num_labels: int) -> float:
    """Return the log-likelihood of the labels under the class shares alone, without features."""
    counts = torch.bincount(labels, minlength=num_labels).double()
    return float(torch.xlogy(counts, counts / counts.sum()).sum())


def _uninformative_result(
    count: int, num_labels: int, device: torch.device, belief: Belief
) -> PrescreenResult:
    """Return uniform probabilities and the prior rate."""
    rate = belief.previous if belief.known_rate is None else belief.known_rate
    rate = rate if num_labels > 1 else 0.0
    model = NoiseModel(rate, 1.0, symmetric_transition(rate, num_labels, device), is_full=False)
    p = torch.full((count, num_labels), 1 / num_labels, device=device)
    return PrescreenResult(p, model, belief.decays[0])


def _train(rows: _Rows, transition: Tensor, decay: float, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Train one classifier per fold on the other folds.

    Returns the weights and, on the CPU, the out-of-fold p [m, C].
    """
    weights = starts.clone()
    logits = torch.zeros(len(rows.labels), starts.shape[2], device=starts.device)
    transition = transition.to(starts.device)
    for fold, start in enumerate(starts):
        is_held_out = rows.folds == fold
        if is_held_out.any() and not is_held_out.all():
            train_rows = _Rows(*(column[~is_held_out] for column in rows))
            weights[fold] = _train_classifier(train_rows, transition, decay, start)
            logits[is_held_out] = _logits(rows.features[is_held_out], weights[fold])
    return weights, logits.softmax(-1).cpu()


def _train_classifier(rows: _Rows, transition: Tensor, decay: float, start: Tensor) -> Tensor:
    """Minimise the corrected loss plus decay times the sum of squared weights, without the bias."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=PRESCREEN.max_lbfgs_steps,
        history_size=PRESCREEN.lbfgs_history,
        tolerance_grad=PRESCREEN.gradient_tolerance,
        tolerance_change=PRESCREEN.change_tolerance,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = corrected_loss(_logits(rows.features, weights), rows.labels, transition)
        value = value + decay * weights[1:].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def _logits(features: Tensor, weights: Tensor) -> Tensor:
    return torch.addmm(weights[0], features, weights[1:])


def _predict(features: Tensor, folds: Tensor, weights: Tensor, scale: _Scale) -> Tensor:
    """Return the logits [n, C] of all rows, each by the classifier that held its fold out."""
    logits = torch.zeros(len(folds), weights.shape[2], device=features.device)
    for fold, classifier in enumerate(weights):
        rows_of_fold = (folds == fold).nonzero()[:, 0]
        for rows in torch.split(rows_of_fold, PRESCREEN.annotations_per_chunk):
            scaled = (_normalise(features[rows]) - scale.center) * scale.factor
            logits[rows] = _logits(scaled, classifier)
    return logits


def _is_split(folds: Tensor) -> bool:
    return bool(len(folds)) and bool(folds.min() < folds.max())


def _spread_indices(count: int, device: torch.device) -> Tensor:
    """Return at most `max_train_annotations` indices below `count`, evenly spaced."""
    number = min(count, PRESCREEN.max_train_annotations)
    return torch.arange(number, device=device) * count // max(number, 1)


def _normalise(features: Tensor) -> Tensor:
    """Take signed square roots, so that no large entry dominates, and scale rows to length 1."""
    features = features.detach().float()
    roots = features.sign() * features.abs().sqrt()
    lengths: Tensor = torch.linalg.vector_norm(roots, dim=1, keepdim=True)
    return roots / lengths.clamp(min=TINY)


def _scale(normalised: Tensor) -> _Scale:
    """Return the mean, and the factor that gives rows a root mean square of `feature_norm`."""
    if not len(normalised):
        return _Scale(normalised.new_zeros(normalised.shape[1]), 1.0)
    center = normalised.mean(0)
    spread = float((normalised - center).square().sum(1).mean().sqrt())
    return _Scale(center, PRESCREEN.feature_norm / spread if spread > 1e-6 else 1.0)


def _temper(probabilities: Tensor, tau: float) -> Tensor:
    return (tau * probabilities.double().clamp(min=TINY).log()).softmax(-1)
