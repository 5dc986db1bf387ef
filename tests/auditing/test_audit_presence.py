"""Spurious, missing and duplicate annotations: shares and choices computed by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Detected, Evidence, Objects
from boxmend.auditing.presence import (
    Presence,
    UnexplainedDetections,
    find_missing,
    find_repeats,
    judge_presence,
)

Floats = NDArray[np.float64]
SQUARE = (0.0, 0.0, 100.0, 100.0)
ELSEWHERE = (200.0, 200.0, 300.0, 300.0)
NOWHERE = (0.0, 0.0, 1.0, 1.0)  # too small to overlap anything


def objects(boxes: Floats, images: NDArray[np.int64] | None = None, labels: int = 0) -> Objects:
    """Annotations, one in each image unless told otherwise, all of one label of two."""
    rows = np.arange(len(boxes)) if images is None else images
    return Objects(rows, np.full(len(boxes), labels), boxes, 2)


def detected(images: list[int], scores: list[float], boxes: list[tuple[float, ...]]) -> Detected:
    return Detected(
        np.array(images), np.zeros(len(images), np.int64), np.array(scores), np.array(boxes)
    )


def squares(number: int, side: float = 100.0) -> Floats:
    return np.tile([0.0, 0.0, side, side], (number, 1))


# Presence. No planted box overlaps the tiny detections, so all planted boxes have a support of 0,
# and the share of spurious annotations is the share of those whose support is 0.


def presence(
    support: Floats, confidences: Floats | float = 0.9, boxes: Floats | None = None
) -> Presence:
    n = len(support)
    evidence = Evidence(
        num_labels=2,
        keys=np.zeros(0, np.int64),
        values=np.zeros(0),
        rest=np.ones(n),
        support=support,
        boxes=np.full((n, 4), np.nan),
        confidences=np.broadcast_to(np.asarray(confidences, np.float64), n),
    )
    seen = detected([0, 0], [0.05, 0.9], [NOWHERE, NOWHERE])
    given = objects(squares(n) if boxes is None else boxes, np.zeros(n, np.int64))
    return judge_presence(given, evidence, seen, np.array([[400.0, 400]]), np.random.default_rng(0))


def supports(number: int, zeros: int) -> Floats:
    support = np.full(number, 0.9)
    support[:zeros] = 0.0
    return support


def test_the_share_of_spurious_ones_is_less_than_what_has_no_support() -> None:
    found = presence(supports(200, 40))
    # 40 of 200, less the 0.005 that every detector overlooks; the upper bound stays
    low = ((40.25**0.5 - 0.98) ** 2 - 0.25) / 200
    assert found.rate.value == pytest.approx(0.2 - 0.005)
    assert found.rate.low == pytest.approx(low - 0.005)
    assert found.rate.high == pytest.approx((40 + 3 * 40**0.5 + 3) / 200)
    assert found.p_spurious[:40].min() > 0.8
    assert found.p_spurious[40:].max() < 0.05


@pytest.mark.parametrize(
    ("nearly_cut", "expected"),
    [
        (20, 0.2 - 0.1),  # as many objects lie below the cut as within its double
        (60, 0.2 / 20),  # a twentieth always stays
    ],
)
def test_objects_that_the_cut_of_the_list_hides_are_not_spurious(
    nearly_cut: int, expected: float
) -> None:
    confidences = np.full(200, 0.9)
    confidences[100 : 100 + nearly_cut] = 0.08  # the lowest score is 0.05: within its double
    confidences[180:190] = 0.1  # not within it
    confidences[:40] = 0.0  # not seen at all: this says nothing about the cut
    assert presence(supports(200, 40), confidences).rate.value == pytest.approx(expected)


def test_large_objects_tell_the_share_where_it_is_lower_for_them() -> None:
    # three strata of 400: of small objects 40 % are overlooked, of larger ones 8 of 400
    boxes = np.concatenate([squares(400, side) for side in (20.0, 60.0, 120.0)])
    support = np.concatenate([supports(400, 160), supports(400, 8), supports(400, 8)])
    found = presence(support, boxes=boxes)
    assert found.rate.value == pytest.approx(8 / 400 - 0.005)
    assert found.rate.high == pytest.approx((8 + 4.5 * 8**0.5 + 4.5) / 400)


def test_images_of_unknown_size_are_not_used() -> None:
    seen = detected([0], [0.9], [SQUARE])
    given = objects(squares(10), np.zeros(10, np.int64))
    evidence = Evidence(
        2, np.zeros(0, np.int64), np.zeros(0), *(np.zeros(10),) * 2, squares(10), np.zeros(10)
    )
    random = np.random.default_rng(0)
    found = judge_presence(given, evidence, seen, np.array([[400.0, 0]]), random)
    assert found.rate == Share(0.0, 0.0, 1.0)
    assert found.p_spurious.tolist() == [0.0] * 10


def test_planted_boxes_are_no_larger_than_their_image() -> None:
    # Annotated boxes have twice the sides of the image, which one detection fills. Cut to the
    # image, every planted box has a support of 0.9: more than the annotations, which look worse
    # than any planted error.
    given = objects(squares(200, 200.0), np.zeros(200, np.int64))
    evidence = Evidence(
        2,
        np.zeros(0, np.int64),
        np.zeros(0),
        np.ones(200),
        np.full(200, 0.5),
        squares(200),
        np.full(200, 0.9),
    )
    seen = detected([0, 0], [0.9, 0.1], [SQUARE, NOWHERE])
    random = np.random.default_rng(0)
    found = judge_presence(given, evidence, seen, np.array([[100.0, 100]]), random)
    assert found.rate.value == pytest.approx(1 - 0.005)


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
    given = ignored or Objects(nothing, nothing, np.zeros((0, 4)), 2)
    ones = np.ones(200)
    return find_missing(
        (objects(squares(200)), given, seen), ones, ones if p_right is None else p_right
    )


def free(scores: Floats) -> Detected:
    """Detections where nothing is annotated, one in each of the first images."""
    number = len(scores)
    return detected(list(range(number)), scores.tolist(), [ELSEWHERE] * number)


def test_what_no_annotation_explains_is_a_candidate() -> None:
    inside, twin = (10.0, 10.0, 50.0, 50.0), (200.0, 200.0, 300.0, 280.0)
    extra = detected(
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
    found = missing(free(np.array([0.9])), ignored=ignored)
    assert found.detections.tolist() == ([200] if is_found else [])


def test_a_fix_is_as_probable_as_the_label_and_the_box_of_known_objects_are_right() -> None:
    is_other = np.arange(200) % 2  # every second one: half of them at any score
    alike = free(np.linspace(0.5, 0.95, 80))  # as the objects that are known
    all_right = missing(alike)
    assert all_right.p_missing.min() > 0.5
    assert all_right.p_fix == pytest.approx(all_right.p_missing)
    half = missing(alike, own_labels=is_other)
    assert half.p_fix == pytest.approx(0.5 * half.p_missing, abs=0.02)
    loose = squares(200)
    loose[is_other == 1, 3] = 40.0  # an IoU of 0.4: explained, but not found
    half = missing(alike, own_boxes=loose)
    assert half.p_fix == pytest.approx(0.5 * half.p_missing, abs=0.02)


def test_annotations_whose_label_is_wrong_say_nothing_about_labels() -> None:
    is_other = np.arange(200) % 2
    found = missing(
        free(SCORES[::2]), own_labels=is_other, p_right=(is_other == 0).astype(np.float64)
    )
    assert found.p_fix == pytest.approx(found.p_missing)


def test_the_rate_of_missing_objects_is_that_of_all_objects() -> None:
    # Half of the annotations are of nothing, and what was seen of them is faint. Of 40 candidates
    # 20 are as bold as what known objects show: 20 lost, of 200 that are there and these.
    extra = free(np.full(20, 0.95))
    faint = detected(list(range(20, 40)), [0.3] * 20, [ELSEWHERE] * 20)
    is_real = np.arange(200) >= 100
    seen = Detected(
        np.concatenate([np.arange(200), extra.image_rows, faint.image_rows]),
        np.zeros(240, np.int64),
        np.concatenate([np.where(is_real, 0.9, 0.1), extra.scores, faint.scores]),
        np.concatenate([squares(200), extra.boxes, faint.boxes]),
    )
    nothing = np.zeros(0, np.int64)
    scene = objects(squares(200)), Objects(nothing, nothing, np.zeros((0, 4)), 2), seen
    found = find_missing(scene, is_real.astype(np.float64), np.ones(200))
    assert len(found.detections) == 40
    assert found.rate.value == pytest.approx(20 / 220)
    assert found.p_missing[:20].min() > found.p_missing[20:].max() + 0.3


# Duplicates.


def doubled(number: int, of: int) -> Objects:
    """One annotation in each of `of` images, and a second one in the first `number`."""
    return objects(squares(of + number), np.concatenate([np.arange(of), np.arange(number)]))


def test_of_two_annotations_of_one_object_the_one_with_less_support_goes() -> None:
    support = np.array([0.2, 0.9, 0.5, 0.9, 0.2, 0.5])
    found = find_repeats(doubled(3, of=3), support, 0.0, np.random.default_rng(0))
    # supports 0.2 and 0.9, 0.9 and 0.2, 0.5 and 0.5: of equals the first stays
    assert found.rows.tolist() == [0, 4, 5]
    assert found.kept.tolist() == [3, 1, 2]


def test_the_rate_of_duplicates_is_that_of_all_annotations() -> None:
    found = find_repeats(doubled(40, of=360), np.ones(400), 0.0, np.random.default_rng(0))
    # each pair counts once, and all of them overlap wholly: more than any box that is drawn again
    assert len(found.rows) == 40
    assert found.rate.value == pytest.approx(40 / 400)


def test_annotations_of_two_labels_are_no_duplicates() -> None:
    boxes = squares(20)
    given = Objects(np.repeat(np.arange(10), 2), np.tile([0, 1], 10), boxes, 2)
    assert len(find_repeats(given, np.ones(20), 0.0, np.random.default_rng(0)).rows) == 0


def test_duplicates_overlap_less_where_boxes_are_drawn_less_exactly() -> None:
    boxes = squares(400)
    boxes[360:, 2] = np.linspace(55, 80, 40)  # an IoU of 0.55 to 0.8 with the first 40
    given = objects(boxes, np.concatenate([np.arange(360), np.arange(40)]))
    exact = find_repeats(given, np.ones(400), 0.0, np.random.default_rng(0))
    loose = find_repeats(given, np.ones(400), 0.4, np.random.default_rng(0))
    assert exact.p_duplicate.max() < 0.05  # by 5 % of a side it does not fall to 0.8
    assert loose.p_duplicate.mean() > 0.3
