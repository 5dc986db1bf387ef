"""When the estimates of a Mender count: not too early, and not when errors are memorised."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend import MenderSettings
from boxmend.repair.mender.beliefs import Beliefs, initial_beliefs, revise
from boxmend.repair.mender.classes import Premises, is_precise, is_steady
from boxmend.repair.mender.label_noise import (
    LabelNoise,
    bound_by_confident,
    limit_rate,
    symmetric_transition,
)
from boxmend.repair.mender.scene import make_scene
from tests.auditing.audit_scenes import LABELS, Noise, Scene, scene

NUM_LABELS = len(LABELS)


def premises_of(drawn: Scene, **settings: float) -> Premises:
    return Premises(make_scene(drawn.dataset), MenderSettings(**settings), None)  # type: ignore[arg-type]


def noise_of(rate: float, low: float, high: float) -> LabelNoise:
    return LabelNoise(rate, low, high, 1.0, symmetric_transition(rate, NUM_LABELS))


def update(premises: Premises, drawn: Scene, before: Beliefs, number: int) -> Beliefs:
    found = drawn.detected
    order = np.lexsort((-found.scores, found.image_rows))
    sorted_found = replace(
        found,
        image_rows=found.image_rows[order],
        labels=found.labels[order],
        scores=found.scores[order],
        boxes=found.boxes[order],
    )
    return revise(premises, before, sorted_found, number)


@pytest.mark.parametrize(
    ("low", "high", "is_known"),
    [(0.3, 0.5, True), (0.2, 0.51, False), (0.5, 0.65, False), (0.5, 0.63, True)],
)
def test_labels_are_judged_by_a_precise_rate_below_that_of_random_labels(
    low: float, high: float, is_known: bool
) -> None:
    premises = premises_of(scene(Noise(), images=4))  # random labels: a rate of 0.8
    assert is_precise(premises, noise_of(low, low, high)) == is_known
    known = premises_of(scene(Noise(), images=4), label_noise=0.6)
    assert is_precise(known, noise_of(low, low, high))
    off = premises_of(scene(Noise(), images=4), label_noise=0)
    assert not is_precise(off, noise_of(low, low, high))


def test_a_rate_that_still_falls_fast_is_not_steady() -> None:
    premises = premises_of(scene(Noise(), images=4))
    assert is_steady(premises, noise_of(0.5, 0.4, 0.6), noise_of(0.41, 0.4, 0.5))
    assert not is_steady(premises, noise_of(0.5, 0.4, 0.6), noise_of(0.38, 0.3, 0.5))


def test_confident_evidence_bounds_the_rate() -> None:
    labels = np.repeat([0, 1], 100)
    sure = np.tile([0.9, 0.1], (20, 1))  # one of ten is contradicted
    unsure = np.tile([0.6, 0.4], (80, 1))  # half of them are
    p = np.concatenate([sure, unsure, sure[:, ::-1], unsure[:, ::-1]]).astype(np.float32)
    labels[[0, 1, 100, 101]] = 1 - labels[[0, 1, 100, 101]]
    labels[20:60] = 1
    labels[120:160] = 0
    share = 5 / 41  # of the 40 most confident ones, and one more
    expected = share + 2 * np.sqrt(share * (1 - share) / 40)
    assert bound_by_confident(p, labels) == pytest.approx(expected)
    high = LabelNoise(0.4, 0.35, 0.45, 1.0, symmetric_transition(0.4, 2))
    limited = limit_rate(high, p, labels)
    assert (limited.rate, limited.low, limited.high) == pytest.approx(
        (expected, expected, expected)
    )
    assert limited.transition == pytest.approx(symmetric_transition(expected, 2))
    low = LabelNoise(0.1, 0.05, 0.2, 1.0, symmetric_transition(0.1, 2))
    assert limit_rate(low, p, labels) is low


def test_a_detector_that_knows_no_class_changes_no_label() -> None:
    drawn = scene(Noise(labels=0.3), images=200)
    random = np.random.default_rng(0)
    labels = random.integers(NUM_LABELS, size=len(drawn.detected.labels))
    blind = replace(drawn, detected=replace(drawn.detected, labels=labels))
    premises = premises_of(drawn)
    beliefs = initial_beliefs(premises)
    for number in range(6):
        beliefs = update(premises, blind, beliefs, number)
    assert not beliefs.estimates.is_warm_up
    assert not beliefs.estimates.judges_labels
    assert (beliefs.labels == premises.labels).all()


def test_rates_do_not_fall_below_their_earlier_bounds() -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.3), images=300)
    premises = premises_of(drawn)
    beliefs = initial_beliefs(premises)
    for number in range(3):
        beliefs = update(premises, drawn, beliefs, number)
    first = beliefs.estimates
    assert first.judges_labels
    data = drawn.dataset  # a detector that has memorised all annotations
    memorised = replace(
        drawn,
        detected=replace(
            drawn.detected,
            image_rows=data.image_rows,
            labels=data.labels,
            boxes=data.boxes,
            scores=np.full(len(data), 0.9),
        ),
    )
    for number in range(3, 9):
        beliefs = update(premises, memorised, beliefs, number)
    last = beliefs.estimates
    assert last.labels.rate >= first.labels.low > 0.2
    assert last.boxes.noise >= first.boxes.low > 0.2
