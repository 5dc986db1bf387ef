"""What a Mender does with annotations, given detections."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from boxmend import Dataset, Mender, MenderSettings, Predictions
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats
from tests.repair.mender.mender_scenes import (
    LABELS,
    ONLY_ANNOTATED,
    Noise,
    Scene,
    mend,
    predictions_of,
    scene,
)


def test_wrong_labels_and_loose_boxes_are_mended(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.3), images=300)
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", ONLY_ANNOTATED)
    mended = mender.annotations()
    before, after = drawn.dataset.labels, mended.labels
    assert (before != drawn.true_labels).mean() > 0.28
    assert (after != drawn.true_labels).mean() < 0.05
    iou = [
        compute_iou(boxes, drawn.true_boxes).mean() for boxes in (drawn.dataset.boxes, mended.boxes)
    ]
    assert iou[0] < 0.62
    assert iou[1] > 0.8
    update = mender.update(9, predictions_of(drawn))
    assert update.box_noise.low <= 0.3 <= update.box_noise.high + 0.02
    assert 0.28 < update.label_noise.value < 0.4


def test_right_annotations_stay(tmp_path: Path) -> None:
    drawn = scene(Noise(), images=300)
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run")
    mended = mender.annotations()
    assert (mended.labels != drawn.dataset.labels).mean() < 0.002
    assert (mended.boxes == drawn.dataset.boxes).all()
    assert mended.weights.mean() > 0.998
    assert len(mended.ignore) < 5
    assert mended.soft_labels.sum(axis=1) == pytest.approx(np.ones(len(mended)))


def test_nothing_changes_during_warm_up(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.3, missing=0.1), images=100)
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", updates=2)
    mended = mender.annotations()
    assert (mended.labels == drawn.dataset.labels).all()
    assert (mended.boxes == drawn.dataset.boxes).all()
    assert mended.soft_labels.max(axis=1).min() == 1
    assert mended.confidences.min() == 1
    assert len(mended.ignore) == 0
    assert not mender.update(2, predictions_of(drawn)).is_warm_up


def test_warm_up_lasts_until_detections_agree(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=100)
    settings = MenderSettings(min_agreement=0.99)
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", settings, updates=4)
    assert (mender.annotations().labels == drawn.dataset.labels).all()


def test_spurious_annotations_get_no_weight_and_missing_objects_are_ignored(tmp_path: Path) -> None:
    drawn = scene(Noise(missing=0.2, spurious=0.1), images=400)
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", updates=5)
    mended = mender.annotations()
    is_spurious = drawn.true_labels < 0
    assert (mended.weights[is_spurious] == 0).mean() > 0.5
    assert (mended.weights[~is_spurious] == 0).mean() < 0.02
    found = len(mended.ignore)
    assert found > 0.5 * len(drawn.missing)
    places = {
        (row, box[0] // 200, box[1] // 200)
        for row, box in zip(drawn.missing.tolist(), drawn.missing_boxes.tolist(), strict=True)
    }
    centres = (mended.ignore.boxes[:, :2] + mended.ignore.boxes[:, 2:]) / 2
    right = [
        (row, x // 200, y // 200) in places
        for row, (x, y) in zip(mended.ignore.image_rows.tolist(), centres.tolist(), strict=True)
    ]
    assert np.mean(right) > 0.9


def test_missing_objects_are_added_if_wanted(tmp_path: Path) -> None:
    drawn = scene(Noise(missing=0.2), images=300)
    n, predictions = len(drawn.dataset), predictions_of(drawn)
    settings = MenderSettings(missing="add")
    mended = mend(drawn.dataset, predictions, tmp_path / "add", settings).annotations()
    assert mended.is_added[n:].all()
    assert not mended.is_added[:n].any()
    assert mended.is_added.sum() > 0.2 * len(drawn.missing)
    assert len(mended.ignore) == 0
    assert mended.soft_labels.shape == (len(mended), len(LABELS))
    assert mended.weights[n:].min() == 1
    off = mend(drawn.dataset, predictions, tmp_path / "off", MenderSettings(missing="off"))
    assert len(off.annotations()) == n
    assert len(off.annotations().ignore) == 0


def test_known_rates_of_0_leave_labels_and_boxes(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.3), images=100)
    predictions = predictions_of(drawn)
    settings = MenderSettings(label_noise=0, box_noise=0)
    mended = mend(drawn.dataset, predictions, tmp_path / "none", settings).annotations()
    assert (mended.labels == drawn.dataset.labels).all()
    assert (mended.boxes == drawn.dataset.boxes).all()
    known = MenderSettings(label_noise=0.3, box_noise=0.3)
    update = mend(drawn.dataset, predictions, tmp_path / "known", known).update(9, predictions)
    assert update.label_noise.value == update.label_noise.low == 0.3
    assert update.box_noise.value == 0.3
    assert update.num_relabelled > 0.2 * len(drawn.dataset)


def test_the_order_of_images_and_detections_does_not_matter(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.2, missing=0.1, spurious=0.05), images=120)
    one = mend(drawn.dataset, predictions_of(drawn), tmp_path / "one").annotations()
    shuffled, rows = shuffle(drawn.dataset)
    predictions = predictions_of(drawn)
    order = np.random.default_rng(1).permutation(len(predictions))
    other = mend(shuffled, predictions.take(order), tmp_path / "other").annotations()
    for name in ("labels", "boxes", "weights", "confidences", "soft_labels"):
        assert (getattr(one, name)[rows] == getattr(other, name)).all(), name
    assert sorted(one.ignore.boxes.tolist()) == sorted(other.ignore.boxes.tolist())


def shuffle(dataset: Dataset) -> tuple[Dataset, np.ndarray]:
    """The dataset with its images and annotations in another order, and the old rows."""
    random = np.random.default_rng(0)
    images, rows = random.permutation(len(dataset.images)), random.permutation(len(dataset))
    place = np.argsort(images)
    taken = dataset.take(rows)
    return (
        replace(taken, images=dataset.images.take(images), image_rows=place[taken.image_rows]),
        rows,
    )


def test_ignored_annotations_stay_and_become_regions(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=60)
    dataset = replace(drawn.dataset, is_difficult=np.arange(len(drawn.dataset)) % 7 == 0)
    mended = mend(dataset, predictions_of(drawn), tmp_path / "run", ONLY_ANNOTATED).annotations()
    hard = dataset.is_difficult
    assert (mended.labels[hard] == dataset.labels[hard]).all()
    assert (mended.weights[hard] == 0).all()
    assert (mended.ignore.scores == 1).sum() == hard.sum()
    rows = mended.ignore.rows_of_image(0)
    assert mended.ignore.boxes[rows[0]].tolist() == dataset.boxes[0].tolist()
    assert mended.rows_of_image(1).tolist() == [4, 5, 6, 7]


def test_images_without_a_detection_keep_their_annotations(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.4), images=200)
    predictions = predictions_of(drawn)
    is_seen = drawn.detected.image_rows < 150
    mender = mend(drawn.dataset, predictions.take(is_seen), tmp_path / "run", ONLY_ANNOTATED)
    mended = mender.annotations()
    unseen = drawn.dataset.image_rows >= 150
    assert (mended.labels[unseen] == drawn.dataset.labels[unseen]).all()
    assert (mended.labels[~unseen] != drawn.dataset.labels[~unseen]).mean() > 0.3
    update = mender.update(9, predictions.take(is_seen))
    assert update.num_judged == (~unseen).sum()


def test_a_prescreen_mends_labels_from_the_start(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.4), images=400)
    n, p = len(drawn.dataset), draw_prescreen(drawn)
    p[::50] = np.nan
    mender = Mender(drawn.dataset, out=tmp_path / "run", prescreen=p)
    first = mender.annotations()
    known = np.arange(n) % 50 > 0
    assert (first.labels != drawn.true_labels)[known].mean() < 0.1
    assert first.soft_labels[0].argmax() == drawn.dataset.labels[0]
    for epoch in range(3):
        update = mender.update(epoch, predictions_of(drawn))
        mender.annotations()
    assert 0.35 < update.label_noise.value < 0.45
    assert (mender.annotations().labels != drawn.true_labels).mean() < 0.03


def draw_prescreen(drawn: Scene) -> Floats:
    """Class probabilities that do not depend on the labels and are mostly right."""
    n = len(drawn.dataset)
    logits = np.random.default_rng(0).normal(0, 1, (n, 5))
    logits[np.arange(n), drawn.true_labels] += 3
    p: Floats = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p


def test_a_detector_that_confuses_classes_does_not_spoil_a_prescreen(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.4), images=400)
    random = np.random.default_rng(1)
    is_random = random.random(len(drawn.detected.labels)) < 0.8
    labels = np.where(is_random, random.integers(0, 5, len(is_random)), drawn.detected.labels)
    plain = predictions_of(drawn)
    weak = Predictions(plain.image_ids, plain.boxes, labels, plain.scores)

    def share_of_wrong_labels(name: str, weight: float | Literal["auto"]) -> tuple[float, float]:
        settings = replace(ONLY_ANNOTATED, prescreen_weight=weight)
        mender = Mender(
            drawn.dataset, settings, out=tmp_path / name, prescreen=draw_prescreen(drawn)
        )
        first = mender.annotations().labels
        for epoch in range(4):
            mender.update(epoch, weak)
            last = mender.annotations().labels
        wrong = [float((each != drawn.true_labels).mean()) for each in (first, last)]
        return wrong[0], wrong[1]

    before, after = share_of_wrong_labels("auto", "auto")
    assert after < before + 0.01
    _, with_fixed_weight = share_of_wrong_labels("fixed", 0.5)
    assert after < with_fixed_weight - 0.03
    _, without = share_of_wrong_labels("without", 0)
    assert with_fixed_weight < without - 0.03


def test_a_prescreen_without_weight_is_ignored(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.4), images=100)
    settings = replace(ONLY_ANNOTATED, prescreen_weight=0)
    mender = Mender(drawn.dataset, settings, out=tmp_path / "run", prescreen=draw_prescreen(drawn))
    assert (mender.annotations().labels == drawn.dataset.labels).all()


def test_a_useless_prescreen_is_ignored_with_a_warning(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.4), images=60)
    p = np.random.default_rng(0).dirichlet(np.ones(5), len(drawn.dataset))
    with pytest.warns(UserWarning, match="says too little about the label noise"):
        mender = Mender(drawn.dataset, out=tmp_path / "run", prescreen=p)
    assert (mender.annotations().labels == drawn.dataset.labels).all()


def test_class_vectors_are_evidence(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=300)
    plain = predictions_of(drawn)
    vectors = np.full((len(plain), 5), 0.01)
    vectors[np.arange(len(plain)), drawn.detected.labels] = plain.scores
    given = Predictions(
        plain.image_ids, plain.boxes, drawn.detected.labels, plain.scores, class_scores=vectors
    )
    mended = mend(drawn.dataset, given, tmp_path / "run", ONLY_ANNOTATED).annotations()
    assert (mended.labels != drawn.true_labels).mean() < 0.05


def test_the_dataset_is_not_changed(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.3), images=60)
    labels, boxes = drawn.dataset.labels.copy(), drawn.dataset.boxes.copy()
    mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", ONLY_ANNOTATED).annotations()
    assert (drawn.dataset.labels == labels).all()
    assert (drawn.dataset.boxes == boxes).all()
