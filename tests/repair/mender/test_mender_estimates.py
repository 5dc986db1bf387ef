"""When the estimates of a Mender count: not too early, and not when errors are memorised."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend import MenderSettings
from boxmend.data.types import Floats
from boxmend.repair.mender.beliefs import Beliefs, initial_beliefs, revise
from boxmend.repair.mender.classes import Premises, is_precise
from boxmend.repair.mender.label_noise import LabelNoise, symmetric_transition
from boxmend.repair.mender.scene import make_scene
from tests.auditing.audit_scenes import LABELS, Noise, Scene, scene

NUM_LABELS = len(LABELS)


def premises_of(drawn: Scene, **settings: float) -> Premises:
    return Premises(make_scene(drawn.dataset), MenderSettings(**settings), None)  # type: ignore[arg-type]


def noise_of(rate: float, low: float, high: float) -> LabelNoise:
    return LabelNoise(rate, low, high, 1.0, symmetric_transition(rate, NUM_LABELS))


def sorted_by_confidence(drawn: Scene) -> Floats:
    order: Floats = np.lexsort((-drawn.detected.scores, drawn.detected.image_rows))
    return order


def update(premises: Premises, drawn: Scene, before: Beliefs, number: int) -> Beliefs:
    found, order = drawn.detected, sorted_by_confidence(drawn)
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
    [(0.3, 0.5, True), (0.2, 0.51, False), (0.6, 0.73, False), (0.6, 0.71, True)],
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
