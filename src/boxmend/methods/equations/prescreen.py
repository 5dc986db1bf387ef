"""The prescreen of labels before training: which class does each annotation seem to have?

Annotated boxes, described by a backbone that was never shown their labels, are told apart by a
linear classifier. It is trained on the annotations of the other folds, so what it says of an
annotation does not depend on that annotation's own label. Classifier and noise model are found in
turns: the classifier is trained through the transition matrix, as in `forward_corrected_loss`, and
the matrix is fitted to what the classifier says. Nothing is drawn: the same input gives the same
result.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.methods.equations.evidence import TINY
from boxmend.methods.equations.label_noise import (
    NoiseModel,
    fit_noise_model,
    fit_rate_and_temperature,
    fit_temperature,
    log_likelihood,
    symmetric_transition,
)

DECAYS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
ROUNDS = 2  # of training and estimating once the decay is chosen; a third changes nothing
MOST_ROWS = 30_000  # to train on: more add time and memory
MOST_STEPS = 60
CHUNK = 8192  # rows that are described in single precision at a time
NORM = 10.0  # of a row, by the mean of squares: the same decays then suit all features
LEAST_GAIN = 10.0  # in log-likelihood, by the features: below, chance gives any rate
ANCHOR_SHARE = 0.1  # of a label's annotations are surest of their class
FEWEST_ANCHORS = 5
LEAST_RIGHT = 0.4  # of a class's labels, by a full matrix: with fewer it has mixed up classes
ANCHOR_PRIOR = 2.0  # imagined anchors a class, labelled as the symmetric noise has it


class Belief(NamedTuple):
    """Holds what is known or believed before the prescreen."""

    known_rate: float | None = None  # of symmetric noise; then only tau is fitted
    full: bool = True  # whether a full matrix is considered
    previous: float = 0.3  # the rate to start from where none is known
    decays: tuple[float, ...] = DECAYS  # to choose from, from strong to weak


class PrescreenResult(NamedTuple):
    """What a classifier that did not see their labels says of the annotations."""

    probabilities: Tensor  # [n, C], calibrated: the raw ones to the power of tau, renormalised
    model: NoiseModel  # with the tau of the raw probabilities
    decay: float  # that was chosen


class _Rows(NamedTuple):
    """What the classifiers are trained on."""

    features: Tensor  # [m, D], scaled
    labels: Tensor  # [m]
    folds: Tensor  # [m]


class _Fit(NamedTuple):
    """One classifier a fold, and the noise model that belongs to them."""

    weights: Tensor  # [K, 1 + D, C], the bias first
    probabilities: Tensor  # [m, C], raw, by the classifier that did not see the row
    model: NoiseModel
    value: float  # log-likelihood of the labels
    decay: float


class _Scale(NamedTuple):
    """Center and factor of the features."""

    center: Tensor  # [D]
    factor: float


def prescreen_labels(
    features: Tensor, labels: Tensor, folds: Tensor, num_labels: int, belief: Belief | None = None
) -> PrescreenResult:
    """Tell what annotations seem to be, by classifiers that did not see their labels.

    Takes features [n, D] of any precision, labels [n] and folds [n] from 0; annotations that are
    not independent, as those of one image, belong into one fold. The decay is the one under which
    the labels of the folds left out are likeliest. Where nothing can be learnt, as from a single
    fold or from features that say no more than how frequent the labels are, all classes are alike
    and the rate is the believed one: any other would explain the labels as well. Everything is
    returned on the device of the features.
    """
    belief = belief or Belief()
    labels, folds = labels.to(features.device).long(), folds.to(features.device).long()
    sample = _spread(len(labels), features.device)
    described = _described(features[sample])
    scale = _scale(described)
    rows = _Rows((described - scale.center) * scale.factor, labels[sample], folds[sample])
    num_folds = int(folds.max()) + 1 if len(folds) else 0
    if num_labels < 2 or not _is_split(rows.folds):
        return _nothing_learnt(len(labels), num_labels, features.device, belief)
    starts = torch.zeros(num_folds, 1 + features.shape[1], num_labels, device=features.device)
    fit = _best_decay(rows, starts, belief)
    if fit.value < _value_of_shares(rows.labels, num_labels) + LEAST_GAIN:
        return _nothing_learnt(len(labels), num_labels, features.device, belief)
    if belief.known_rate is None:
        fit = _estimated(rows, fit, belief)
    raw = _predicted(features, folds, fit.weights, scale)
    calibrated = (fit.model.tau * raw.log_softmax(-1)).softmax(-1)
    transition = fit.model.transition.to(features.device)
    return PrescreenResult(calibrated, fit.model._replace(transition=transition), fit.decay)


def corrected_loss(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """Average -log sum_c p(c) T[c, y] over annotations, with p the softmax of logits.

    Takes logits [n, C], labels [n] and T [C, C]. Returns a scalar; a label that T calls impossible
    keeps it finite.
    """
    through = transition.clamp(min=TINY).log().T[labels]  # log T[c, y], [n, C]
    return -(logits.log_softmax(-1) + through).logsumexp(-1).mean()


def anchored_transition(probabilities: Tensor, labels: Tensor, model: NoiseModel) -> Tensor:
    """Read a full matrix off the labels of those annotations that are surest of their class.

    A classifier trained through a symmetric matrix explains other noise away: where 4 of 10 cats
    are labelled as dogs, it finds all cats to be 0.4 dog, and the labels right. But the annotations
    of which "cat" leads the other labels by most are cats, and what they are annotated as is what
    cats are. Takes raw p [n, C], labels [n] and a model, which says how p is tempered and to which
    each row is smoothed. Returns [C, C], each row adding up to 1.
    """
    num_labels = probabilities.shape[1]
    chances = _tempered(probabilities, model.tau) @ model.transition.double()  # of labels, [n, C]
    best, second = chances.topk(2).values.T
    is_best = chances == best[:, None]
    leads = chances - torch.where(is_best, second[:, None], best[:, None])  # over any other label
    counts = torch.bincount(labels, minlength=num_labels).tolist()
    matrix = ANCHOR_PRIOR * model.transition.double()
    for label, count in enumerate(counts):
        number = min(max(int(ANCHOR_SHARE * count), FEWEST_ANCHORS), len(labels))
        anchors = leads[:, label].topk(number).indices
        matrix[label] += torch.bincount(labels[anchors], minlength=num_labels)
    return (matrix / matrix.sum(1, keepdim=True)).float()


def _best_decay(rows: _Rows, starts: Tensor, belief: Belief) -> _Fit:
    """Weaken the decay as long as the labels of the folds left out become likelier."""
    rate = belief.previous if belief.known_rate is None else belief.known_rate
    transition = symmetric_transition(rate, starts.shape[2])
    best: _Fit | None = None
    for decay in belief.decays:
        weights, p = _trained(rows, transition, decay, starts if best is None else best.weights)
        model = _simple_model(p, rows.labels.cpu(), belief)
        fit = _Fit(weights, p, model, _value(p, rows, model), decay)
        if best is not None and fit.value <= best.value:
            break
        best = fit
    if best is None:
        raise ValueError("no decays to choose from")
    return best


def _estimated(rows: _Rows, fit: _Fit, belief: Belief) -> _Fit:
    """Train and estimate in turns, as long as the labels become likelier.

    The full matrix is taken where there is evidence for it.
    """
    num_labels = fit.probabilities.shape[1]
    num_entries = num_labels * (num_labels - 1)
    cost = (num_entries - 1) / 2 * math.log(len(rows.labels))  # as `fit_noise_model` has it
    if belief.full and num_labels > 2 and cost < -fit.value:  # else no matrix could pay for it
        transition = anchored_transition(fit.probabilities, rows.labels.cpu(), fit.model)
        full = _refitted(rows, fit, transition, belief)
        is_likelier = full.value - fit.value > num_entries
        if full.model.is_full and is_likelier and _is_right_enough(full.model.transition):
            fit = full
    for _ in range(ROUNDS):
        is_full = fit.model.is_full
        new = _refitted(rows, fit, fit.model.transition, belief._replace(full=is_full))
        if new.value <= fit.value:  # from weak evidence the rate would drift away
            break
        fit = new
    return fit


def _is_right_enough(transition: Tensor) -> bool:
    """Whether classes are called by their names often enough to be taken for what they are."""
    return bool(transition.diagonal().min() >= LEAST_RIGHT)


def _refitted(rows: _Rows, fit: _Fit, transition: Tensor, belief: Belief) -> _Fit:
    """Train on from where the classifiers are, through another matrix, and fit the noise anew."""
    labels = rows.labels.cpu()
    weights, p = _trained(rows, transition, fit.decay, fit.weights)
    if belief.full:
        model = fit_noise_model(p, labels, fit.model.rate)
    else:
        model = _simple_model(p, labels, belief._replace(previous=fit.model.rate))
    return _Fit(weights, p, model, _value(p, rows, model), fit.decay)


def _simple_model(probabilities: Tensor, labels: Tensor, belief: Belief) -> NoiseModel:
    """Fit symmetric noise; where its rate is known, tau alone."""
    num_labels = probabilities.shape[1]
    if belief.known_rate is None:
        rate, tau = fit_rate_and_temperature(probabilities, labels, belief.previous)
        return NoiseModel(rate, tau, symmetric_transition(rate, num_labels), is_full=False)
    rate = belief.known_rate if num_labels > 1 else 0.0
    transition = symmetric_transition(belief.known_rate, num_labels)
    tau = fit_temperature(probabilities, labels, transition)
    return NoiseModel(rate, tau, transition, is_full=False)


def _value(probabilities: Tensor, rows: _Rows, model: NoiseModel) -> float:
    return float(log_likelihood(probabilities, rows.labels.cpu(), model.transition, model.tau))


def _value_of_shares(labels: Tensor, num_labels: int) -> float:
    """The log-likelihood of labels drawn by how frequent they are, whatever the features."""
    counts = torch.bincount(labels, minlength=num_labels).double()
    return float(torch.xlogy(counts, counts / counts.sum()).sum())


def _nothing_learnt(
    count: int, num_labels: int, device: torch.device, belief: Belief
) -> PrescreenResult:
    """All classes are alike, and the rate is as believed."""
    rate = belief.previous if belief.known_rate is None else belief.known_rate
    rate = rate if num_labels > 1 else 0.0
    model = NoiseModel(rate, 1.0, symmetric_transition(rate, num_labels, device), is_full=False)
    p = torch.full((count, num_labels), 1 / num_labels, device=device)
    return PrescreenResult(p, model, belief.decays[0])


def _trained(
    rows: _Rows, transition: Tensor, decay: float, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """Train one classifier a fold without the fold. Returns weights and, on the CPU, p [m, C]."""
    weights = starts.clone()
    logits = torch.zeros(len(rows.labels), starts.shape[2], device=starts.device)
    transition = transition.to(starts.device)
    for fold, start in enumerate(starts):
        is_left_out = rows.folds == fold
        if is_left_out.any() and not is_left_out.all():
            seen = _Rows(*(column[~is_left_out] for column in rows))
            weights[fold] = _trained_once(seen, transition, decay, start)
            logits[is_left_out] = _logits(rows.features[is_left_out], weights[fold])
    return weights, logits.softmax(-1).cpu()


def _trained_once(rows: _Rows, transition: Tensor, decay: float, start: Tensor) -> Tensor:
    """Minimise the corrected loss plus decay times the sum of squares; the bias is free."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=MOST_STEPS,
        history_size=10,
        tolerance_grad=1e-5,
        tolerance_change=1e-6,
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


def _predicted(features: Tensor, folds: Tensor, weights: Tensor, scale: _Scale) -> Tensor:
    """Logits [n, C] of all rows, each by the classifier of its fold."""
    logits = torch.zeros(len(folds), weights.shape[2], device=features.device)
    for fold, of_fold in enumerate(weights):
        for places in torch.split((folds == fold).nonzero()[:, 0], CHUNK):
            scaled = (_described(features[places]) - scale.center) * scale.factor
            logits[places] = _logits(scaled, of_fold)
    return logits


def _is_split(folds: Tensor) -> bool:
    return bool(len(folds)) and bool(folds.min() < folds.max())


def _spread(count: int, device: torch.device) -> Tensor:
    """At most MOST_ROWS places, evenly spaced."""
    number = min(count, MOST_ROWS)
    return torch.arange(number, device=device) * count // max(number, 1)


def _described(features: Tensor) -> Tensor:
    """Signed square roots, so that no single large entry decides; each row of length 1."""
    features = features.detach().float()
    roots = features.sign() * features.abs().sqrt()
    lengths: Tensor = torch.linalg.vector_norm(roots, dim=1, keepdim=True)
    return roots / lengths.clamp(min=TINY)


def _scale(described: Tensor) -> _Scale:
    """Center on the mean, and make the mean of the squared lengths NORM squared."""
    if not len(described):
        return _Scale(described.new_zeros(described.shape[1]), 1.0)
    center = described.mean(0)
    spread = float((described - center).square().sum(1).mean().sqrt())
    return _Scale(center, NORM / spread if spread > 1e-6 else 1.0)


def _tempered(probabilities: Tensor, tau: float) -> Tensor:
    return (tau * probabilities.double().clamp(min=TINY).log()).softmax(-1)
