"""Simulated detections: the same each time, and with the errors that detectors make."""

import numpy as np
import pytest

from boxmend.data.boxes import compute_iou
from boxmend.data.detections import Detections
from boxmend.data.synth import LABEL_NAMES
from boxmend.data.synth.detections import (
    CONFUSED_SHARE,
    LOOK_ALIKES,
    MIN_SCORE,
    MISSED_SHARE,
    simulate_detections,
)
from boxmend.data.synth.scene import lay_out

NUM_SCENES = 300
SIZE = 100


@pytest.fixture(scope="module")
def found() -> Detections:
    return simulate_detections(0, range(NUM_SCENES), SIZE)


def best_detections(found: Detections) -> tuple[list[int], list[int], list[float]]:
    """For each true object: its label, the label of the surest detection there, and their IoU."""
    true, named, overlaps = [], [], []
    for scene in range(NUM_SCENES):
        layout = lay_out(0, scene)
        rows = np.flatnonzero(found.image_rows == scene)
        for piece, label in zip(layout.objects, layout.labels, strict=True):
            box = np.repeat(piece.placed.box[None] * SIZE, len(rows), axis=0)
            iou = compute_iou(box, found.boxes[rows].astype(np.float64))
            near = np.flatnonzero(iou >= 0.5)
            true.append(label)
            if len(near):
                best = near[np.argmax(found.scores[rows][near])]
                named.append(int(found.labels[rows][best]))
                overlaps.append(float(iou[best]))
            else:
                named.append(-1)
    return true, named, overlaps


def test_they_depend_on_seed_and_scene_only(found: Detections) -> None:
    again = simulate_detections(0, [7], SIZE)
    rows = found.image_rows == 7
    assert again.boxes.tolist() == found.boxes[rows].tolist()
    assert again.labels.tolist() == found.labels[rows].tolist()
    assert again.scores.tolist() == found.scores[rows].tolist()
    assert again.image_rows.tolist() == [0] * int(rows.sum())
    assert simulate_detections(1, [7], SIZE).boxes.tolist() != again.boxes.tolist()


def test_a_larger_size_draws_the_same_detections_larger(found: Detections) -> None:
    large = simulate_detections(0, range(20), 10 * SIZE)
    rows = found.image_rows < 20
    assert np.abs(large.boxes / 10 - found.boxes[rows]).max() <= 0.0051
    assert large.labels.tolist() == found.labels[rows].tolist()


def test_scores_and_boxes_are_valid(found: Detections) -> None:
    assert found.scores.min() >= MIN_SCORE
    assert found.scores.max() <= 1
    assert (found.boxes >= 0).all()
    assert (found.boxes <= SIZE).all()
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()
    assert set(found.labels.tolist()) == set(range(len(LABEL_NAMES)))


def test_they_make_the_errors_of_detectors_at_their_rates(found: Detections) -> None:
    true, named, overlaps = best_detections(found)
    n = len(true)
    missed = sum(name == -1 for name in named) / n
    confused = [(a, b) for a, b in zip(true, named, strict=True) if b not in (a, -1)]
    assert missed == pytest.approx(MISSED_SHARE, abs=0.02)
    assert len(confused) / n == pytest.approx(CONFUSED_SHARE, abs=0.02)
    pairs = {frozenset(map(LABEL_NAMES.index, pair)) for pair in LOOK_ALIKES}
    alike = [frozenset(pair) in pairs for pair in confused]
    assert np.mean(alike) > 0.6  # the others are neighbours that overlap
    assert 0.8 < np.median(overlaps) < 0.97  # edges are a little off


def test_some_detections_show_no_object_and_have_low_scores(found: Detections) -> None:
    is_false = np.ones(len(found.labels), np.bool_)
    for row, (scene, box) in enumerate(zip(found.image_rows.tolist(), found.boxes, strict=True)):
        boxes = np.array([piece.placed.box for piece in lay_out(0, scene).objects]) * SIZE
        is_false[row] = compute_iou(np.repeat(box[None], len(boxes), axis=0), boxes).max() < 0.3
    assert 0.02 < is_false.mean() < 0.4
    assert found.scores[is_false].mean() < 0.4 < found.scores[~is_false].mean()


def test_no_scenes_have_no_detections() -> None:
    nothing = simulate_detections(0, [], SIZE)
    assert len(nothing.labels) == len(nothing.scores) == len(nothing.image_rows) == 0
    assert nothing.boxes.shape == (0, 4)
