"""Spurious, missing and duplicate annotations: shares and choices computed by hand."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing import presence
from boxmend.auditing.audit import Audit, audit_without_probe
from boxmend.auditing.calibration import Share
from boxmend.auditing.duplicates import find_repeats
from boxmend.auditing.evidence import Detected, Evidence, Objects
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.missing import UnexplainedDetections, find_missing
from boxmend.auditing.presence import PRESENCE, judge_presence
from boxmend.data.boxes import compute_areas
from tests.auditing.audit_scenes import Noise, Scene, scene

Floats = NDArray[np.float64]
SQUARE = (0.0, 0.0, 100.0, 100.0)
ELSEWHERE = (200.0, 200.0, 300.0, 300.0)
NOWHERE = (0.0, 0.0, 1.0, 1.0)  # too small to overlap anything


def objects(boxes: Floats, images: NDArray[np.int64] | None = None, labels: int = 0) -> Objects:
    """Annotations of one label of two; by default one in each image."""
    rows = np.arange(len(boxes)) if images is None else images
    return Objects(rows, np.full(len(boxes), labels), boxes, 2)


def make_detected(
    images: list[int], scores: list[float], boxes: list[tuple[float, ...]]
) -> Detected:
    return Detected(
        np.array(images), np.zeros(len(images), np.int64), np.array(scores), np.array(boxes)
    )


def squares(number: int, side: float = 100.0) -> Floats:
    return np.tile([0.0, 0.0, side, side], (number, 1))


# Presence.


@cache
def spurious_scene() -> tuple[Scene, Audit]:
    """A scene with 10 % of spurious annotations at random places, and its audit."""
    one = scene(Noise(spurious=0.1), images=300)
    return one, audit_without_probe(one.dataset, one.detected)


def test_boxes_at_random_places_are_probably_spurious() -> None:
    one, result = spurious_scene()
    is_spurious = one.true_labels < 0
    p = result.p_wrong[Kind.SPURIOUS]
    assert result.rates["spurious"].value == pytest.approx(is_spurious.mean(), abs=0.02)
    assert p[is_spurious].mean() > 0.5
    assert p[~is_spurious].mean() < 0.02
    assert p.max() <= PRESENCE.max_probability


def test_halves_of_objects_are_more_suspicious_than_whole_ones() -> None:
    # 60 of 1,260 annotations cover a half of an object, each side in turn, that is annotated, too.
    one = scene(Noise(), images=300)
    halved = np.arange(0, 1200, 20)
    boxes = one.dataset.boxes[halved].copy()
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    for edge in range(4):
        boxes[edge::4, edge] = middles[edge::4, edge % 2]
    dataset = one.dataset.add(one.dataset.image_rows[halved], one.dataset.labels[halved], boxes)
    p = audit_without_probe(dataset, one.detected).p_wrong[Kind.SPURIOUS]
    assert np.median(p[1200:]) > np.quantile(p[:1200], 0.7)
    assert p[:1200].mean() < 0.02


def test_the_share_of_overlooked_objects_follows_from_the_cut_of_the_list() -> None:
    confidences = np.full(200, 0.9)
    confidences[100:120] = 0.08  # the lowest score is 0.05: within its double
    confidences[180:190] = 0.1  # not within it
    confidences[:40] = 0.0  # not seen at all: this says nothing about the cut
    evidence = Evidence(
        2, np.zeros(0, np.int64), np.zeros(0), *(np.zeros(200),) * 2, squares(200), confidences
    )
    seen = make_detected([0, 0], [0.05, 0.9], [NOWHERE, NOWHERE])
    assert presence.estimate_overlooked_share(evidence, seen) == pytest.approx(0.1)
    sure = replace(evidence, confidences=np.full(200, 0.9))
    assert presence.estimate_overlooked_share(sure, seen) == PRESENCE.min_overlooked_share


def test_what_a_detector_overlooks_is_not_spurious() -> None:
    share = presence.subtract_overlooked(Share(0.2, 0.15, 0.3), 0.05)
    assert (share.value, share.low, share.high) == pytest.approx((0.15, 0.1, 0.3))
    share = presence.subtract_overlooked(Share(0.2, 0.04, 0.3), 0.3)  # a fiftieth always stays
    assert (share.value, share.low, share.high) == pytest.approx((0.004, 0.0008, 0.3))


def test_images_of_unknown_size_are_not_used() -> None:
    seen = make_detected([0], [0.9], [SQUARE])
    annotated = objects(squares(10), np.zeros(10, np.int64))
    evidence = Evidence(
        2, np.zeros(0, np.int64), np.zeros(0), *(np.zeros(10),) * 2, squares(10), np.zeros(10)
    )
    random = np.random.default_rng(0)
    result = judge_presence(annotated, evidence, seen, np.array([[400.0, 0]]), 0.0, random)
    assert result.rate == Share(0.0, 0.0, 1.0)
    assert result.p_spurious.tolist() == [0.0] * 10


def test_planted_boxes_are_no_larger_than_their_image() -> None:
    annotated = objects(squares(200, 200.0), np.zeros(200, np.int64))
    sizes = np.array([[100.0, 100]])
    amount = 50, np.random.default_rng(0)
    planted = presence.plant_anywhere(annotated, np.array([0]), sizes, amount)
    assert planted.boxes.tolist() == [[0, 0, 100, 100]] * 50


def test_planted_parts_keep_about_half_of_an_object() -> None:
    annotated = objects(squares(200), np.zeros(200, np.int64))
    planted = presence.plant_parts(annotated, 400, np.random.default_rng(0))
    shares = compute_areas(planted.boxes) / 100**2
    assert 0.25 < shares.min() < 0.4
    assert 0.6 < shares.max() < 0.78
    assert shares.mean() == pytest.approx(0.5, abs=0.03)


# Missing objects. 200 images with one annotation each, seen with scores from 0.5 to 0.95.

SCORES = np.linspace(0.5, 0.95, 200)


def missing(
    extra: Detected,
    *,
    own_boxes: Floats | None = None,
    own_labels: NDArray[np.int64] | None = None,
    p_right: Floats | None = None,
    ignored: Objects | None = None,
) -> UnexplainedDetections:
    """Missing objects among `extra` detections, which come behind those of the annotations."""
    nothing = np.zeros(0, np.int64)
    seen = Detected(
        np.concatenate([np.arange(200), extra.image_rows]),
        np.concatenate([np.zeros(200, int) if own_labels is None else own_labels, extra.labels]),
        np.concatenate([SCORES, extra.scores]),
        np.concatenate([squares(200) if own_boxes is None else own_boxes, extra.boxes]),
    )
    annotated = ignored or Objects(nothing, nothing, np.zeros((0, 4)), 2)
    ones = np.ones(200)
    return find_missing(
        (objects(squares(200)), annotated, seen), ones, ones if p_right is None else p_right, 0.0
    )


def free(scores: Floats) -> Detected:
    """Detections where nothing is annotated, one in each of the first images."""
    number = len(scores)
    return make_detected(list(range(number)), scores.tolist(), [ELSEWHERE] * number)


def test_what_no_annotation_explains_is_a_candidate() -> None:
    inside, twin = (10.0, 10.0, 50.0, 50.0), (200.0, 200.0, 300.0, 280.0)
    extra = make_detected(
        [0, 1, 2, 3, 3], [0.9, 0.9, 0.3, 0.8, 0.9], [ELSEWHERE, inside, ELSEWHERE, twin, ELSEWHERE]
    )
    # the first is one; the second is a part of an annotated object (an IoU of 0.16, but wholly
    # within it: its log odds fall by 3); the third is weaker than what known objects show; of the
    # last two, which are of one object, the more confident one is
    assert missing(extra).detections.tolist() == [200, 204]


@pytest.mark.parametrize(("inside", "is_found"), [(0.4, True), (0.5, False), (0.6, False)])
def test_what_lies_within_an_ignored_object_by_half_is_explained(
    inside: float, is_found: bool
) -> None:
    ignored = Objects(
        np.array([0]), np.array([1]), np.array([[200.0, 200, 200 + 100 * inside, 300]]), 2
    )
    result = missing(free(np.array([0.9])), ignored=ignored)
    assert result.detections.tolist() == ([200] if is_found else [])


def test_a_fix_is_as_probable_as_the_label_and_the_box_of_known_objects_are_right() -> None:
    is_other = np.arange(200) % 2  # every second one: half of them at any score
    alike = free(np.linspace(0.5, 0.95, 80))  # as the objects that are known
    all_right = missing(alike)
    assert all_right.p_missing.mean() > 0.5
    assert all_right.p_fix == pytest.approx(all_right.p_missing)
    half = missing(alike, own_labels=is_other)
    assert half.p_fix.sum() == pytest.approx(0.5 * half.p_missing.sum(), rel=0.05)
    loose = squares(200)
    loose[is_other == 1, 3] = 47.0  # an IoU of 0.47: explained, but not found
    half = missing(alike, own_boxes=loose)
    assert half.p_fix.sum() == pytest.approx(0.5 * half.p_missing.sum(), rel=0.05)


def test_annotations_whose_label_is_wrong_say_nothing_about_labels() -> None:
    is_other = np.arange(200) % 2
    result = missing(
        free(SCORES[::2]), own_labels=is_other, p_right=(is_other == 0).astype(np.float64)
    )
    assert result.p_fix == pytest.approx(result.p_missing)


def test_the_rate_of_missing_objects_is_that_of_all_objects() -> None:
    # Half of the annotations are spurious, with low scores near them. Of 40 candidates
    # 20 are as confident as those of known objects. One in 200 annotations is background, so 19 of
    # 219 objects are missing.
    extra = free(np.full(20, 0.95))
    faint = make_detected(list(range(20, 40)), [0.3] * 20, [ELSEWHERE] * 20)
    is_real = np.arange(200) >= 100
    seen = Detected(
        np.concatenate([np.arange(200), extra.image_rows, faint.image_rows]),
        np.zeros(240, np.int64),
        np.concatenate([np.where(is_real, 0.9, 0.1), extra.scores, faint.scores]),
        np.concatenate([squares(200), extra.boxes, faint.boxes]),
    )
    nothing = np.zeros(0, np.int64)
    scene = objects(squares(200)), Objects(nothing, nothing, np.zeros((0, 4)), 2), seen
    actual = find_missing(scene, is_real.astype(np.float64), np.ones(200), 0.0)
    assert len(actual.detections) == 40
    assert actual.rate.value == pytest.approx(19 / 219)
    assert actual.p_missing[:20].min() > actual.p_missing[20:].max() + 0.3


# Duplicates.


def duplicate_boxes(number: int, of: int) -> Objects:
    """One annotation in each of `of` images, and a second one in the first `number`."""
    return objects(squares(of + number), np.concatenate([np.arange(of), np.arange(number)]))


def test_of_two_annotations_of_one_object_the_one_with_less_support_goes() -> None:
    support = np.array([0.2, 0.9, 0.5, 0.9, 0.2, 0.5])
    repeats = find_repeats(duplicate_boxes(3, of=3), support, 0.0, np.random.default_rng(0))
    # supports 0.2 and 0.9, 0.9 and 0.2, 0.5 and 0.5: of equals the first stays
    assert repeats.rows.tolist() == [0, 4, 5]
    assert repeats.kept.tolist() == [3, 1, 2]


def test_the_rate_of_duplicates_is_that_of_all_annotations() -> None:
    repeats = find_repeats(duplicate_boxes(40, of=360), np.ones(400), 0.0, np.random.default_rng(0))
    # each pair counts once, and all of them overlap wholly: more than any box that is drawn again
    assert len(repeats.rows) == 40
    assert repeats.rate.value == pytest.approx(40 / 400)


def test_annotations_of_two_labels_are_no_duplicates() -> None:
    boxes = squares(20)
    annotated = Objects(np.repeat(np.arange(10), 2), np.tile([0, 1], 10), boxes, 2)
    assert len(find_repeats(annotated, np.ones(20), 0.0, np.random.default_rng(0)).rows) == 0


def test_duplicates_overlap_less_where_boxes_are_drawn_less_exactly() -> None:
    boxes = squares(400)
    boxes[360:, 2] = np.linspace(70, 90, 40)  # an IoU of 0.7 to 0.9 with the first 40
    annotated = objects(boxes, np.concatenate([np.arange(360), np.arange(40)]))
    exact = find_repeats(annotated, np.ones(400), 0.0, np.random.default_rng(0))
    loose = find_repeats(annotated, np.ones(400), 0.4, np.random.default_rng(0))
    assert exact.p_duplicate.mean() < loose.p_duplicate.mean() - 0.1


def test_close_pairs_are_duplicates_as_far_as_less_close_ones_are_few() -> None:
    # An edge drawn again lies off by up to 5 %, so planted pairs reach down to an IoU of about
    # 0.84. 40 pairs are closer; 6 lie as much below: (6 / 3 + 1) / 41 are no duplicates.
    boxes = squares(446)
    boxes[400:440, 2] = 97.0
    boxes[440:, 2] = 78.0
    annotated = objects(boxes, np.concatenate([np.arange(400), np.arange(46)]))
    repeats = find_repeats(annotated, np.ones(446), 0.0, np.random.default_rng(0))
    is_close = np.isin(repeats.rows, np.arange(400, 440)) | np.isin(
        repeats.kept, np.arange(400, 440)
    )
    assert repeats.p_duplicate[is_close].mean() == pytest.approx(1 - 3 / 41, abs=0.002)
    assert repeats.p_duplicate[~is_close].max() < 0.1
