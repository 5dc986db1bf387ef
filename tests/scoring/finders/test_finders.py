"""Finders of label errors on made-up detections, against scores worked out on paper."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Box
from boxmend.errors import UsageError
from boxmend.scoring.finders import KINDS, OTHERS, OURS, compare, hotcoco, mistakenness, objectlab
from boxmend.scoring.finders import ours as boxmend_finder
from tests.fabricated_runs import DISCARDED, KEPT, NOWHERE, RELABELLED, UNJUDGED
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, detected, opened, seen, truth_of

BOX: Box = (0, 0, 10, 10)
FAR: Box = (50, 50, 60, 60)


def tall(height: float) -> Box:
    """A box within BOX: its IoU with it is height / 10."""
    return (0, 0, 10, height)


def without_nan(values: np.ndarray | None) -> np.ndarray:
    assert values is not None
    return values


class TestMistakenness:
    def test_a_detection_of_the_same_label_lowers_the_suspicion(self) -> None:
        detections = detected((0, VAN, 0.75, tall(8)))
        result = mistakenness.suspect_annotations(annotated([BOX], [VAN]), detections)
        assert without_nan(result.labels).tolist() == [(-0.75 + 1) / 2]
        # IoU 0.8: i = (1 - 0.8) / 0.5 = 0.4
        assert without_nan(result.boxes)[0] == pytest.approx((0.75 * (2 * 0.4 - 1) + 1) / 2)

    def test_a_detection_of_another_label_raises_the_suspicion(self) -> None:
        detections = detected((0, BUS, 0.75, BOX))
        result = mistakenness.suspect_annotations(annotated([BOX], [VAN]), detections)
        assert without_nan(result.labels).tolist() == [(0.75 + 1) / 2]
        assert without_nan(result.boxes).tolist() == [(0.75 * -1 + 1) / 2]  # IoU 1: i = 0

    @pytest.mark.parametrize(("height", "is_matched"), [(5, True), (4.9, False)])
    def test_half_an_overlap_is_enough(self, height: float, is_matched: bool) -> None:
        detections = detected((0, BUS, 0.5, tall(height)))
        result = mistakenness.suspect_annotations(annotated([BOX], [VAN]), detections)
        assert (without_nan(result.labels)[0] == 0.75) == is_matched
        assert without_nan(result.labels)[0] == (0.75 if is_matched else 0.5)

    def test_without_a_match_the_label_is_in_the_middle_and_the_box_suspicious(self) -> None:
        result = mistakenness.suspect_annotations(
            annotated([BOX], [VAN]), detected((0, VAN, 0.9, FAR))
        )
        assert without_nan(result.labels).tolist() == [0.5]
        assert without_nan(result.boxes).tolist() == [1]

    def test_the_most_confident_detection_chooses_first_and_the_next_takes_what_is_free(
        self,
    ) -> None:
        # Both detections overlap annotation 0 most; the surer one gets it, the other gets 1.
        dataset = annotated([BOX, tall(8)], [VAN, VAN])
        detections = detected((0, VAN, 0.25, BOX), (0, BUS, 0.75, BOX))
        result = mistakenness.suspect_annotations(dataset, detections)
        assert without_nan(result.labels).tolist() == [(0.75 + 1) / 2, (-0.25 + 1) / 2]

    def test_detections_of_other_images_do_not_count(self) -> None:
        dataset = annotated([BOX, BOX], [VAN, VAN], images=[0, 2])
        detections = detected((2, BUS, 0.5, BOX), (1, BUS, 1.0, BOX))
        result = mistakenness.suspect_annotations(dataset, detections)
        assert without_nan(result.labels).tolist() == [0.5, 0.75]

    def test_there_are_no_default_flags(self) -> None:
        result = mistakenness.suspect_annotations(annotated([BOX], [VAN]), detected())
        assert result.is_label_flagged is result.is_box_flagged is None


class TestHotcoco:
    @pytest.mark.parametrize(("score", "is_flagged"), [(0.75, True), (0.5, True), (0.25, False)])
    def test_a_detection_of_another_label_is_suspicious_by_its_score(
        self, score: float, is_flagged: bool
    ) -> None:
        dataset = annotated([FAR, BOX], [VAN, VAN])
        result = hotcoco.suspect_annotations(dataset, detected((0, BUS, score, tall(8))))
        assert without_nan(result.labels).tolist() == [0, score]
        assert without_nan(result.is_label_flagged).tolist() == [False, is_flagged]

    def test_not_where_one_of_the_own_label_found_it_too(self) -> None:
        detections = detected((0, BUS, 0.75, BOX), (0, VAN, 0.5, BOX))
        assert without_nan(
            hotcoco.suspect_annotations(annotated([BOX], [VAN]), detections).labels
        ).tolist() == [0]

    def test_the_surest_of_several_counts(self) -> None:
        detections = detected((0, BUS, 0.5, BOX), (0, TRUCK, 0.75, BOX), (0, BUS, 0.25, BOX))
        assert without_nan(
            hotcoco.suspect_annotations(annotated([BOX], [VAN]), detections).labels
        ).tolist() == [0.75]

    def test_it_knows_no_bad_boxes(self) -> None:
        result = hotcoco.suspect_annotations(
            annotated([BOX], [VAN]), detected((0, VAN, 0.9, tall(6)))
        )
        assert result.boxes is None
        assert result.is_box_flagged is None

    def test_without_detections_nothing_is_suspicious(self) -> None:
        result = hotcoco.suspect_annotations(annotated([BOX], [VAN]), detected())
        assert without_nan(result.labels).tolist() == [0]


class TestObjectLab:
    def test_badly_located_boxes_are_unlike_the_best_detection_of_their_label(self) -> None:
        pytest.importorskip("cleanlab")
        detections = detected((0, VAN, 0.75, tall(6)), (0, BUS, 0.75, BOX))
        result = objectlab.suspect_annotations(annotated([BOX], [VAN]), detections)
        # Similarity 0.9 IoU + 0.1 exp(-0.1 distance of centres): IoU 0.6, centres (5, 5) and (5,
        # 3).
        similarity = 0.9 * 0.6 + 0.1 * math.exp(-0.1 * 2)
        assert without_nan(result.boxes)[0] == pytest.approx(1 - similarity)

    @pytest.mark.parametrize(("score", "is_sure"), [(0.99, True), (0.94, False)])
    def test_only_sure_detections_speak_against_a_label(self, score: float, is_sure: bool) -> None:
        pytest.importorskip("cleanlab")
        # Another label, IoU 0.8, centres 1 apart: the swap score is 1 - similarity. It is never
        # below the least similarity of all pairs, which the far detection makes next to nothing.
        detections = detected((0, BUS, score, tall(8)), (0, VAN, 0.5, FAR))
        result = objectlab.suspect_annotations(annotated([BOX], [VAN]), detections)
        similarity = 0.9 * 0.8 + 0.1 * math.exp(-0.1)
        assert without_nan(result.labels)[0] == pytest.approx(similarity if is_sure else 0)

    @pytest.mark.filterwarnings("ignore")  # of cleanlab's own pools of processes
    def test_flags_are_those_that_cleanlab_pools_into_images(self) -> None:
        pytest.importorskip("cleanlab")
        from cleanlab.object_detection.filter import find_label_issues

        dataset, detections = draw_crowded(np.random.default_rng(2))
        result = objectlab.suspect_annotations(dataset, detections)
        is_flagged = without_nan(result.is_label_flagged) | without_nan(result.is_box_flagged)
        ours = np.zeros(len(dataset.images), np.bool_)
        np.logical_or.at(ours, dataset.image_rows, is_flagged)
        labels, predictions = [], []
        for image in range(len(dataset.images)):
            rows, theirs = dataset.image_rows == image, detections.image_rows == image
            labels.append({"bboxes": dataset.boxes[rows], "labels": dataset.labels[rows]})
            table = np.column_stack([detections.boxes, detections.scores])
            predictions.append([table[theirs & (detections.labels == label)] for label in range(3)])
        # Detections are no surer than 0.95, so that none is overlooked and only boxes are flagged.
        flagged = find_label_issues(labels, predictions, return_indices_ranked_by_score=False)
        assert ours.tolist() == flagged.tolist()
        assert 0 < ours.sum() < len(ours)

    def test_no_annotations_are_no_trouble(self) -> None:
        pytest.importorskip("cleanlab")
        result = objectlab.suspect_annotations(annotated([], []), detected((0, VAN, 0.9, BOX)))
        assert len(without_nan(result.labels)) == 0

    def test_an_image_without_detections_is_no_trouble(self) -> None:
        pytest.importorskip("cleanlab")
        result = objectlab.suspect_annotations(
            annotated([BOX, FAR], [VAN, BUS], images=[0, 1]), detected()
        )
        assert without_nan(result.labels).tolist() == without_nan(result.boxes).tolist() == [0, 0]

    def test_without_cleanlab_the_message_says_how_to_install_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cleanlab.object_detection", None)
        with pytest.raises(UsageError, match=r"pip install 'boxmend\[compare\]'"):
            objectlab.suspect_annotations(annotated([BOX], [VAN]), detected())


def draw_crowded(rng: np.random.Generator) -> tuple[Dataset, Detections]:
    """Twenty images with two objects each, some of them annotated far off, all detected well."""
    boxes, labels, images, collected = [], [], [], []
    for image in range(20):
        for left in (5.0, 60.0):
            box = np.array([left, 10, left + 30, 50])
            label = int(rng.integers(0, 3))
            shift = rng.choice([0, 0, rng.uniform(15, 29)]) * np.array([1, 0, 1, 0])
            boxes.append(tuple(box + shift))
            labels.append(label)
            images.append(image)
            collected.append((image, label, float(rng.uniform(0.6, 0.94)), tuple(box)))
    return annotated(boxes, labels, images=images), detected(*collected)


class TestBoxmend:
    def test_labels_are_suspected_by_their_doubt_and_boxes_by_how_far_they_moved(self) -> None:
        dataset = annotated([BOX] * 4, [VAN] * 4)
        visits = [
            seen(0, KEPT, loss=math.log(2)),
            seen(1, RELABELLED, BUS, loss=math.log(4), box=tall(6)),
            seen(2, DISCARDED, loss=0, box=tall(8)),
        ]
        result = boxmend_finder.suspect_annotations(opened(dataset, visits), np.arange(4))
        # Doubt is 1 - exp(-loss); what was never judged is not doubted.
        assert without_nan(result.labels) == pytest.approx([1 / 2, 3 / 4, 0, 0])
        assert without_nan(result.is_label_flagged).tolist() == [False, True, True, False]
        assert without_nan(result.boxes) == pytest.approx([0, 0.4, 0.2, 0])
        assert without_nan(result.is_box_flagged).tolist() == [False, True, False, False]

    def test_a_run_without_judgements_and_moves_has_no_suspicion(self) -> None:
        dataset = annotated([BOX], [VAN])
        result = boxmend_finder.suspect_annotations(
            opened(dataset, [seen(0, UNJUDGED)]), np.arange(1)
        )
        assert result.labels is result.boxes is None


def small_comparison(detections: Detections) -> dict[tuple[str, str], dict[str, object]]:
    """Return four visited annotations, one that is spurious, and one without a visit."""
    pytest.importorskip("cleanlab")
    dataset = annotated([BOX] * 4 + [FAR] * 2, [VAN] * 6, images=[0, 1, 2, 3, 4, 5])
    visits = [
        seen(0, RELABELLED, BUS, loss=3, box=tall(10)),
        seen(1, KEPT, loss=1),
        seen(2, RELABELLED, BUS, loss=2),
        seen(3, KEPT, loss=0, box=tall(5)),
        seen(4, RELABELLED, BUS, loss=9),
    ]
    labels = [BUS, BUS, VAN, VAN, UNKNOWN, BUS]
    boxes = [BOX, BOX, BOX, tall(5), NOWHERE, FAR]
    table = compare(opened(dataset, visits), truth_of(dataset, labels, boxes), detections).to_json()
    assert (table["annotations"], table["wrong_labels"], table["bad_boxes"]) == (4, 2, 1)
    # Row 0 becomes right, row 2 wrong; row 3's box becomes right.
    assert (table["label_noise_before"], table["label_noise_after"]) == (2 / 4, 2 / 4)
    assert (table["mean_iou_before"], table["mean_iou_after"]) == (3.5 / 4, 4 / 4)
    return {(score["finder"], score["kind"]): score for score in table["scores"]}


def test_all_finders_are_scored_on_the_same_annotations() -> None:
    rows = small_comparison(detected((1, BUS, 0.75, BOX), (2, VAN, 0.5, BOX), (4, BUS, 0.9, FAR)))
    assert list(rows) == [(name, kind) for name in (OURS, *OTHERS) for kind in KINDS]
    ours = rows[OURS, "wrong label"]
    # Losses 3 and 1 of the wrong, 2 and 0 of the right: 3 of 4 pairs. AP: (1 / 1 + 2 / 3) / 2.
    assert ours["auroc"] == 3 / 4
    assert ours["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert (ours["flagged"], ours["precision"], ours["recall"]) == (2, 1 / 2, 1 / 2)
    theirs = rows["hotcoco label_errors", "wrong label"]
    # Row 1 alone is suspected: it beats two, and row 0 ties with both right ones: (2 + 1) / 4.
    assert theirs["auroc"] == 3 / 4
    assert (theirs["flagged"], theirs["precision"], theirs["recall"]) == (1, 1, 1 / 2)


def test_bad_boxes_are_a_kind_of_their_own() -> None:
    rows = small_comparison(detected((3, VAN, 0.9, tall(5))))
    ours = rows[OURS, "bad box"]
    assert (ours["auroc"], ours["flagged"], ours["precision"], ours["recall"]) == (1, 1, 1, 1)
    none = rows["hotcoco label_errors", "bad box"]
    assert none["auroc"] is none["average_precision"] is none["flagged"] is none["recall"] is None
    theirs = rows["FiftyOne mistakenness", "bad box"]
    assert theirs["flagged"] is None
    assert theirs["auroc"] == 0  # the others have no detection at all, which is worse than any


def test_a_finder_that_flags_nothing_has_no_precision() -> None:
    rows = small_comparison(detected())
    theirs = rows["hotcoco label_errors", "wrong label"]
    assert (theirs["flagged"], theirs["precision"], theirs["recall"]) == (0, None, 0)
    assert theirs["auroc"] == 0.5


def test_crowds_and_unknown_labels_are_kept_from_the_finders() -> None:
    pytest.importorskip("cleanlab")
    # The detection of a bus lies on a crowd, too, which must not take it from the annotation.
    dataset = annotated([BOX, BOX, FAR, FAR], [VAN, VAN, VAN, UNKNOWN], images=[0, 0, 1, 1])
    dataset.is_crowd[0] = True
    truth = truth_of(dataset, [VAN, BUS, VAN, VAN], [BOX, BOX, FAR, FAR])
    detections = detected((0, BUS, 0.9, BOX))
    result = compare(opened(dataset, [seen(1), seen(2, loss=1)]), truth, detections)
    assert (result.annotations, result.wrong_labels) == (2, 1)
    theirs = {score.finder: score.auroc for score in result.scores if score.kind == "wrong label"}
    assert theirs["FiftyOne mistakenness"] == theirs["hotcoco label_errors"] == 1


@pytest.mark.parametrize("finder", OTHERS)
def test_the_order_of_annotations_and_detections_does_not_matter(finder: str) -> None:
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(5)
    dataset, result = draw_crowded(rng)
    result = replace(  # some sure of another label, so that labels are suspected, too
        result,
        labels=np.where(np.arange(40) % 3 == 0, (result.labels + 1) % 3, result.labels),
        scores=np.where(np.arange(40) % 3 == 0, 0.96 + result.scores / 50, result.scores),
    )
    before = OTHERS[finder](dataset, result)
    rows, columns = rng.permutation(len(dataset)), rng.permutation(40)
    shuffled = Detections(
        result.image_rows[columns],
        result.labels[columns],
        result.scores[columns],
        result.boxes[columns],
    )
    after = OTHERS[finder](dataset.take(rows), shuffled)
    assert without_nan(after.labels).tolist() == without_nan(before.labels)[rows].tolist()
    assert without_nan(before.labels).std() > 0
    if before.boxes is not None:
        assert without_nan(after.boxes).tolist() == before.boxes[rows].tolist()
        assert before.boxes.std() > 0


def test_no_visited_annotation_gives_empty_scores() -> None:
    pytest.importorskip("cleanlab")
    dataset = annotated([], [])
    result = compare(opened(dataset, []), truth_of(dataset, [], []), detected())
    assert result.annotations == 0
    assert all(score.auroc is None for score in result.scores)
