"""Simulated detections of drawn scenes: what a good, but imperfect detector would report.

No detector runs. The detections are drawn at random around the true objects, with the errors that
detectors make: missed objects, confused look-alikes, edges in the wrong place, objects detected
twice, and clutter detected as an object. Scores are higher for right detections.
"""

from collections.abc import Sequence

import numpy as np

from boxmend.data.detections import Detections
from boxmend.data.synth.scene import LABEL_NAMES, SceneLayout, lay_out
from boxmend.data.types import Floats, Rows

LOOK_ALIKES = (("moon", "ring"), ("gear", "star"), ("arrow", "plus"))
DETECTION_STREAM = 0xDE7EC7
MISSED_SHARE = 0.01  # of the objects
CONFUSED_SHARE = 0.015  # of the objects
REPEATED_SHARE = 0.05  # of the objects, with a second, worse box
CLUTTER_SHARE = 0.1  # of the pieces of clutter
EDGE_ERROR_SIDES = 0.025  # standard deviation of an edge, in sides of the box
WORSE_EDGE_ERROR_SIDES = 0.12  # that of the second box of an object
MIN_SCORE = 0.05


def simulate_detections(seed: int, scenes: Sequence[int], size: int) -> Detections:
    """Return simulated detections in these scenes of a seed, drawn `size` pixels square.

    Rows of images are places in `scenes`. The same arguments give the same detections.
    """
    parts = [_detect(seed, scene) for scene in scenes]
    counts = [len(scores) for _, scores, _ in parts]
    return Detections(
        image_rows=np.repeat(np.arange(len(scenes)), np.array(counts, np.int64)),
        labels=np.concatenate([np.zeros(0, np.int64), *(labels for labels, _, _ in parts)]),
        scores=np.concatenate([np.zeros(0), *(scores for _, scores, _ in parts)]).round(4),
        boxes=(np.concatenate([np.zeros((0, 4)), *(boxes for _, _, boxes in parts)]) * size).round(
            2
        ),
    )


def _detect(seed: int, scene: int) -> tuple[Rows, Floats, Floats]:
    """Return labels, scores and boxes, in fractions of the side, in one scene."""
    random = np.random.default_rng((seed, scene, DETECTION_STREAM))
    layout = lay_out(seed, scene)
    groups = [_detect_objects(layout, random), _detect_clutter(layout, random)]
    labels, scores, boxes = (np.concatenate(columns) for columns in zip(*groups, strict=True))
    boxes = np.clip(boxes, 0, 1)
    is_kept = (scores >= MIN_SCORE) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return labels[is_kept], scores[is_kept], boxes[is_kept]


def _detect_objects(
    layout: SceneLayout, random: np.random.Generator
) -> tuple[Rows, Floats, Floats]:
    """Detect most objects, some as their look-alike, and some twice."""
    boxes = np.array([piece.placed.box for piece in layout.objects])
    labels, n = np.array(layout.labels, np.int64), len(layout.objects)
    is_seen = random.random(n) >= MISSED_SHARE
    is_confused = random.random(n) < CONFUSED_SHARE
    named = np.where(is_confused, _look_alikes()[labels], labels)
    scores = np.where(is_confused, random.beta(3, 3, n), random.beta(14, 0.8, n))
    is_repeated = is_seen & (random.random(n) < REPEATED_SHARE)
    again = np.flatnonzero(is_repeated)
    return (
        np.concatenate([named[is_seen], labels[again]]),
        np.concatenate([scores[is_seen], scores[again] * random.uniform(0.2, 0.6, len(again))]),
        np.concatenate(
            [
                _shift_edges(boxes[is_seen], EDGE_ERROR_SIDES, random),
                _shift_edges(boxes[again], WORSE_EDGE_ERROR_SIDES, random),
            ]
        ),
    )


def _detect_clutter(
    layout: SceneLayout, random: np.random.Generator
) -> tuple[Rows, Floats, Floats]:
    """Take some pieces of clutter for objects, mostly with low scores."""
    boxes = np.array([piece.placed.box for piece in (*layout.under, *layout.over)]).reshape(-1, 4)
    boxes = boxes[random.random(len(boxes)) < CLUTTER_SHARE]
    n = len(boxes)
    labels = random.integers(len(LABEL_NAMES), size=n)
    return labels, random.beta(1, 9, n), _shift_edges(boxes, EDGE_ERROR_SIDES, random)


def _look_alikes() -> Rows:
    """Return the label that each label is confused with."""
    others = np.arange(len(LABEL_NAMES))
    for pair in LOOK_ALIKES:
        first, second = map(LABEL_NAMES.index, pair)
        others[[first, second]] = second, first
    return others


def _shift_edges(boxes: Floats, error: float, random: np.random.Generator) -> Floats:
    """Return boxes with normal errors of their edges, in sides of each box."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved: Floats = boxes + random.normal(0, error, boxes.shape) * sides
    return moved
