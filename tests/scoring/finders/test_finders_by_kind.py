"""Finders by kind of error on made-up detections, against figures worked out on paper."""

import math
from dataclasses import replace

import numpy as np
import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.detections import Detections
from boxmend.data.types import Box
from boxmend.scoring.finders import OURS, hotcoco, mistakenness, objectlab, ours
from boxmend.scoring.finders.kinds import OTHERS, KindScores, compare_kinds
from boxmend.scoring.finders.suspicion import MissingRanking, Suspects, group_by_image
from boxmend.scoring.ranking import average_precision
from tests.fabricated_runs import NOWHERE
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, detected, fix, fixes_of, truth_of

BOX: Box = (0, 0, 10, 10)
FAR: Box = (50, 50, 60, 60)
AWAY: Box = (20, 70, 30, 80)


def tall(height: float) -> Box:
    """A box within BOX: its IoU with it is height / 10."""
    return (0, 0, 10, height)


def ranking_of_missing(suspects: Suspects) -> MissingRanking:
    assert suspects.missing is not None
    return suspects.missing


def test_errors_that_are_never_found_lower_the_average_precision() -> None:
    scores, is_positive = np.array([0.9, 0.8, 0.7]), np.array([True, False, True])
    assert average_precision(scores, is_positive) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores, is_positive, 4) == pytest.approx((1 + 2 / 3) / 4)
    assert average_precision(np.zeros(0), np.zeros(0, np.bool_), 2) == 0
    assert average_precision(scores, np.zeros(3, np.bool_), 0) is None


def test_images_without_annotations_are_included_on_request() -> None:
    dataset = annotated([BOX, FAR], [VAN, VAN], images=[2, 2])
    detections = detected((2, VAN, 0.5, BOX), (1, VAN, 0.5, BOX), (1, BUS, 0.5, FAR))
    expected_boxes = [
        [one.tolist() for one in pair] for pair in group_by_image(dataset, detections)
    ]
    assert expected_boxes == [[[0, 1], [0]]]
    expected_boxes = [
        [one.tolist() for one in pair]
        for pair in group_by_image(dataset, detections, include_empty=True)
    ]
    assert expected_boxes == [[[], [1, 2]], [[0, 1], [0]]]


class TestMistakennessByKind:
    def test_without_a_match_an_annotation_may_be_spurious_and_has_no_mistakenness(self) -> None:
        dataset = annotated([BOX, FAR], [VAN, VAN])
        result = mistakenness.suspect_by_kind(dataset, detected((0, BUS, 0.75, BOX))).annotations
        assert result[Kind.SPURIOUS].scores.tolist() == [0, 1]
        flags = result[Kind.SPURIOUS].is_flagged
        assert flags is not None
        assert flags.tolist() == [False, True]
        assert result[Kind.WRONG_LABEL].scores.tolist()[0] == (0.75 + 1) / 2
        assert np.isnan(result[Kind.WRONG_LABEL].scores[1])
        assert np.isnan(result[Kind.BAD_BOX].scores[1])
        assert result[Kind.WRONG_LABEL].is_flagged is result[Kind.BAD_BOX].is_flagged is None

    def test_a_detection_without_a_match_may_be_missing_if_it_is_sure(self) -> None:
        dataset = annotated([BOX], [VAN])
        detections = detected(
            (0, VAN, 0.9, BOX), (0, BUS, 0.95, FAR), (0, BUS, 0.96, AWAY), (0, VAN, 0.3, BOX)
        )
        detections = replace(detections, scores=np.array([0.9, 0.95, 0.96, 0.3]))
        missing = ranking_of_missing(mistakenness.suspect_by_kind(dataset, detections))
        assert missing.proposed.scores.tolist() == [0.95, 0.96, 0.3]
        assert missing.proposed.labels.tolist() == [BUS, BUS, VAN]
        assert missing.is_flagged.tolist() == [False, True, False]  # 0.95 is not above 0.95


class TestHotcocoByKind:
    def test_missing_objects_are_detections_that_meet_no_annotation(self) -> None:
        dataset = annotated([BOX, FAR], [VAN, VAN])
        detections = detected(
            (0, BUS, 0.75, BOX), (0, BUS, 0.5, AWAY), (0, VAN, 0.25, (80, 10, 90, 20))
        )
        result = hotcoco.suspect_by_kind(dataset, detections)
        assert result.annotations.keys() == {Kind.WRONG_LABEL}
        assert result.annotations[Kind.WRONG_LABEL].scores.tolist() == [0.75, 0]
        missing = ranking_of_missing(result)
        by_score = dict(zip(missing.proposed.scores.tolist(), missing.is_flagged, strict=True))
        assert by_score == {0.5: True, 0.25: False}
        assert set(missing.proposed.boxes[:, 0].tolist()) == {20, 80}

    def test_no_detections_give_no_missing_objects(self) -> None:
        assert (
            len(
                ranking_of_missing(
                    hotcoco.suspect_by_kind(annotated([BOX], [VAN]), detected())
                ).proposed
            )
            == 0
        )


class TestObjectLabByKind:
    def test_annotations_are_suspected_as_without_kinds(self) -> None:
        pytest.importorskip("cleanlab")
        dataset = annotated([BOX, FAR], [VAN, BUS])
        detections = detected((0, VAN, 0.99, tall(6)), (0, TRUCK, 0.97, FAR))
        before = objectlab.suspect_annotations(dataset, detections)
        result = objectlab.suspect_by_kind(dataset, detections).annotations
        assert result.keys() == {Kind.WRONG_LABEL, Kind.BAD_BOX}
        assert before.labels is not None
        assert before.boxes is not None
        assert result[Kind.WRONG_LABEL].scores.tolist() == before.labels.tolist()
        assert result[Kind.BAD_BOX].scores.tolist() == before.boxes.tolist()

    def test_overlooked_are_detections_that_meet_nothing(self) -> None:
        pytest.importorskip("cleanlab")
        # Vans on the left are annotated and found, so that the classes have an AP of 1 at all IoUs.
        dataset = annotated([BOX, BOX], [VAN, VAN], images=[0, 1])
        near: Box = (0, 13, 10, 23)  # its centre is 13 below that of BOX
        detections = detected(
            (0, VAN, 0.99, BOX), (1, VAN, 0.99, BOX), (0, VAN, 0.96, near), (2, VAN, 0.5, FAR)
        )
        missing = ranking_of_missing(
            objectlab.suspect_by_kind(replaced_images(dataset, 3), detections)
        )
        # The score is the similarity with the nearest annotation of its class, 0.1 exp(-0.1 * 13),
        # or, where there is none, the least of all similarities times how unsure it is.
        least = 0.1 * math.exp(-0.1 * 13)
        scores = dict(
            zip(missing.proposed.image_rows.tolist(), missing.proposed.scores.tolist(), strict=True)
        )
        assert scores[0] == pytest.approx(1 - least)
        assert scores[2] == pytest.approx(1 - least * 0.5)
        flags = dict(
            zip(missing.proposed.image_rows.tolist(), missing.is_flagged.tolist(), strict=True)
        )
        assert flags == {0: True, 2: False}  # only sure ones

    def test_the_scores_are_those_that_cleanlab_computes_from_the_boxes(self) -> None:
        rank = pytest.importorskip("cleanlab.object_detection.rank")
        dataset, result = crowded_scenes(np.random.default_rng(5))
        scores = objectlab._compute_scores(dataset, result)
        labels, predictions, order, offered_rows = [], [], [], []
        table = np.column_stack([result.boxes, result.scores]).astype(np.float64)
        for image in range(len(dataset.images)):
            rows = np.flatnonzero(dataset.image_rows == image)
            theirs = np.flatnonzero(result.image_rows == image)
            order.append(rows)
            offered_rows.append(theirs[np.argsort(result.labels[theirs], kind="stable")])
            labels.append({"bboxes": dataset.boxes[rows], "labels": dataset.labels[rows]})
            predictions.append(
                [table[theirs[result.labels[theirs] == label]] for label in range(3)]
            )
        expected_boxes = {"labels": labels, "predictions": predictions}
        swap = np.concatenate(rank.compute_swap_box_scores(**expected_boxes))
        badloc = np.concatenate(rank.compute_badloc_box_scores(**expected_boxes))
        overlooked = np.concatenate(
            rank.compute_overlooked_box_scores(**expected_boxes, high_probability_threshold=0.0)
        )
        rows = np.concatenate(order)
        assert scores.swap[rows] == pytest.approx(swap, abs=1e-12)
        assert scores.badloc[rows] == pytest.approx(badloc, abs=1e-12)
        by_row = dict(zip(np.concatenate(offered_rows).tolist(), overlooked, strict=True))
        expected = {row: score for row, score in by_row.items() if not np.isnan(score)}
        assert dict(zip(scores.rows.tolist(), scores.overlooked, strict=True)) == pytest.approx(
            expected, abs=1e-12
        )
        assert len(expected) > 5
        assert len(set(swap.tolist())) > 5
        assert len(set(badloc.tolist())) > 5

    @pytest.mark.filterwarnings("ignore")  # of cleanlab's own pools of processes
    def test_flags_are_those_that_cleanlab_pools_into_images(self) -> None:
        pytest.importorskip("cleanlab")
        from cleanlab.object_detection.filter import find_label_issues

        dataset, detections = sure_scenes(np.random.default_rng(3))
        result = objectlab.suspect_by_kind(dataset, detections)
        ours = np.zeros(len(dataset.images), np.bool_)
        for ranked in result.annotations.values():
            assert ranked.is_flagged is not None
            ours[dataset.image_rows[ranked.is_flagged]] = True
        by_boxes = ours.copy()
        missing = ranking_of_missing(result)
        ours[missing.proposed.image_rows[missing.is_flagged]] = True
        labels, predictions = [], []
        table = np.column_stack([detections.boxes, detections.scores])
        for image in range(len(dataset.images)):
            rows, theirs = dataset.image_rows == image, detections.image_rows == image
            labels.append({"bboxes": dataset.boxes[rows], "labels": dataset.labels[rows]})
            predictions.append([table[theirs & (detections.labels == label)] for label in range(3)])
        flagged = find_label_issues(labels, predictions, return_indices_ranked_by_score=False)
        assert ours.tolist() == flagged.tolist()
        assert by_boxes.sum() < ours.sum() < len(ours)

    def test_no_annotations_and_no_detections_give_nothing(self) -> None:
        pytest.importorskip("cleanlab")
        result = objectlab.suspect_by_kind(annotated([], []), detected())
        assert len(result.annotations[Kind.WRONG_LABEL].scores) == 0
        assert len(ranking_of_missing(result).proposed) == 0
        alone = objectlab.suspect_by_kind(annotated([], []), detected((0, VAN, 0.99, BOX)))
        assert len(ranking_of_missing(alone).proposed) == 1


def replaced_images(dataset: Dataset, number: int) -> Dataset:
    """The same annotations in so many images."""
    images = annotated([BOX], [VAN], images=[number - 1]).images
    return replace(dataset, images=images)


def crowded_scenes(rng: np.random.Generator) -> tuple[Dataset, Detections]:
    """Images of 100 pixels with a few annotations, many of them detected, and false detections."""
    boxes, labels, images, collected = [], [], [], []
    for image in range(12):
        for _ in range(int(rng.integers(0, 5))):
            low = rng.uniform(0, 60, 2)
            box = np.concatenate([low, low + rng.uniform(10, 40, 2)])
            boxes.append(tuple(box))
            labels.append(int(rng.integers(0, 3)))
            images.append(image)
            for _ in range(2):
                label = labels[-1] if rng.random() < 0.6 else int(rng.integers(0, 3))
                near = tuple(box + rng.uniform(-4, 4, 4))
                collected.append((image, label, float(rng.uniform(0.9, 0.999)), near))
        corner = rng.uniform(0, 90, 2)
        away = tuple(np.concatenate([corner, corner + 8]))
        collected.append((image, int(rng.integers(0, 3)), float(rng.uniform(0.3, 0.999)), away))
    return replaced_images(annotated(boxes, labels, images=images), 12), detected(*collected)


def sure_scenes(rng: np.random.Generator) -> tuple[Dataset, Detections]:
    """Images with two objects each, found well; some annotated far off, some not at all."""
    boxes, labels, images, collected = [], [], [], []
    for image in range(24):
        for left in (5.0, 60.0):
            box = np.array([left, 10, left + 30, 50])
            label = int(rng.integers(0, 3))
            collected.append((image, label, float(rng.uniform(0.9, 0.999)), tuple(box)))
            if left == 60 and image % 4 == 0:
                continue
            shift = rng.choice([0, 0, rng.uniform(15, 29)]) * np.array([1, 0, 1, 0])
            boxes.append(tuple(box + shift * (image % 3 == 0)))
            labels.append(label)
            images.append(image)
    return annotated(boxes, labels, images=images), detected(*collected)


def test_boxmend_ranks_by_probability_and_flags_from_one_half_on() -> None:
    dataset = annotated([BOX] * 3, [VAN] * 3)
    p_wrong = {Kind.WRONG_LABEL: np.array([0.5, np.nan, 0.4])}
    missing = fixes_of(
        dataset,
        fix(Kind.MISSING, label=BUS, box=FAR, p=0.5),
        fix(Kind.MISSING, label=BUS, box=FAR, p=0.2),
    )
    result = ours.suspect_by_kind(p_wrong, missing, np.array([0, 2]))
    ranked = result.annotations[Kind.WRONG_LABEL]
    assert ranked.scores.tolist() == [0.5, 0.4]
    assert ranked.is_flagged is not None
    assert ranked.is_flagged.tolist() == [True, False]
    assert ranking_of_missing(result).proposed.scores.tolist() == [0.5, 0.2]
    assert ranking_of_missing(result).is_flagged.tolist() == [True, False]


def small_world(
    precision: float = 0.95,
) -> tuple[dict[tuple[str, str], KindScores], dict[str, int | None]]:
    """A wrong label, a bad box, a spurious annotation, a missing object; a crowd besides."""
    pytest.importorskip("cleanlab")
    dataset = annotated([BOX, BOX, BOX, FAR, AWAY], [VAN] * 5, images=[0, 1, 2, 2, 2])
    dataset.is_crowd[4] = True
    boxes = [BOX, tall(6), BOX, NOWHERE, AWAY]
    truth = truth_of(dataset, [BUS, VAN, VAN, UNKNOWN, VAN], boxes, lacking=[FAR])
    detections = detected(
        (0, BUS, 0.9, BOX),
        (1, VAN, 0.8, tall(6)),
        (2, VAN, 0.99, BOX),
        (0, VAN, 0.97, FAR),  # the missing one
        (1, BUS, 0.6, AWAY),  # nothing
        (2, VAN, 0.96, AWAY),  # on the crowd
    )
    p_wrong = {
        Kind.WRONG_LABEL: np.array([0.9, 0.1, 0.05, 0.6, np.nan]),
        Kind.BAD_BOX: np.array([0.1, 0.9, 0.0, 0.2, np.nan]),
        Kind.SPURIOUS: np.array([0.1, 0.1, 0.1, 0.4, np.nan]),
        Kind.DUPLICATE: np.zeros(5),
    }
    missing = fixes_of(
        dataset,
        fix(Kind.MISSING, label=VAN, box=FAR, p=0.8),
        fix(Kind.MISSING, label=BUS, box=AWAY, image=1, p=0.9),
    )
    table = compare_kinds(dataset, truth, detections, p_wrong, missing, precision)
    assert table.annotations == 4  # without the crowd
    assert table.to_json()["scores"][0]["finder"] == OURS
    return {(score.kind, score.finder): score for score in table.scores}, table.errors


def test_every_finder_is_scored_for_the_kinds_that_it_knows() -> None:
    rows, errors = small_world()
    assert errors == {
        "wrong label": 1,
        "bad box": 1,
        "missing": 1,
        "spurious": 1,
        "duplicate": 0,
    }
    lab, one, hot, rules = OTHERS
    assert list(rows) == [
        *(("wrong label", name) for name in (OURS, lab, one, hot, rules)),
        *(("bad box", name) for name in (OURS, lab, one, rules)),
        *(("missing", name) for name in (OURS, lab, one, hot)),
        *(("spurious", name) for name in (OURS, one)),
        ("duplicate", OURS),
    ]


def test_precision_and_recall_are_by_the_default_of_each() -> None:
    rows, _ = small_world()
    ours = rows["wrong label", OURS]
    # It flags the wrong annotation and, as a false positive, the spurious one.
    assert (ours.average_precision, ours.flagged) == (1, 2)
    assert (ours.precision, ours.recall) == (1 / 2, 1)
    theirs = rows["wrong label", "hotcoco label_errors"]
    assert (theirs.average_precision, theirs.flagged, theirs.precision) == (1, 1, 1)
    assert rows["wrong label", "FiftyOne mistakenness"].flagged is None
    spurious = rows["spurious", OURS]
    assert (spurious.average_precision, spurious.flagged, spurious.recall) == (1, 0, 0)
    assert spurious.precision is None
    assert rows["spurious", "FiftyOne mistakenness"].precision == 1
    duplicate = rows["duplicate", OURS]
    assert duplicate.average_precision is duplicate.recall is None
    assert duplicate.recall_at_precision is None


def test_missing_objects_are_scored_by_all_that_are_missing() -> None:
    rows, _ = small_world()
    ours = rows["missing", OURS]
    assert (ours.average_precision, ours.flagged) == (1 / 2, 2)  # the right one comes second
    assert (ours.precision, ours.recall) == (1 / 2, 1)
    # Proposals on the crowd do not count.
    fiftyone = rows["missing", "FiftyOne mistakenness"]
    assert (fiftyone.average_precision, fiftyone.flagged, fiftyone.precision) == (1, 1, 1)


@pytest.mark.parametrize(("precision", "recall"), [(0.5, 1), (0.51, 0)])
def test_the_recall_of_a_ranking_is_that_at_the_requested_precision(
    precision: float, recall: float
) -> None:
    rows, _ = small_world(precision)
    assert rows["missing", OURS].recall_at_precision == recall  # the right one comes second
    assert rows["missing", "FiftyOne mistakenness"].recall_at_precision == 1
    other = rows["missing", "hotcoco label_errors"]
    assert (other.average_precision, other.flagged, other.precision) == (1, 2, 1 / 2)


def test_an_object_without_a_proposal_lowers_the_average_precision() -> None:
    pytest.importorskip("cleanlab")
    dataset = annotated([BOX], [VAN])
    truth = truth_of(dataset, [VAN], [BOX], lacking=[FAR, (80, 0, 90, 10)])
    missing = fixes_of(dataset, fix(Kind.MISSING, label=VAN, box=FAR))
    table = compare_kinds(dataset, truth, detected((0, VAN, 0.9, FAR)), {}, missing)
    scores = {score.finder: score for score in table.scores if score.kind == "missing"}
    assert {score.average_precision for score in scores.values()} == {1 / 2}
    assert (scores[OURS].precision, scores[OURS].recall) == (1, 1 / 2)


def test_annotations_without_a_score_are_ranked_where_the_finder_gains_most() -> None:
    rows, _ = small_world()
    # mistakenness_loc: rows 0 and 2 are found exactly, and so is not 1, whose box is bad. Only
    # the spurious one has none. The bad one is first if that comes last.
    assert rows["bad box", "FiftyOne mistakenness"].average_precision == 1


def test_missing_objects_are_left_out_if_the_truth_does_not_have_them() -> None:
    pytest.importorskip("cleanlab")
    dataset = annotated([BOX], [VAN])
    truth = truth_of(dataset, [VAN], [BOX], are_all_known=False)
    table = compare_kinds(dataset, truth, detected((0, VAN, 0.9, FAR)), {}, fixes_of(dataset))
    assert table.errors["missing"] is None
    assert "missing" not in {score.kind for score in table.scores}
