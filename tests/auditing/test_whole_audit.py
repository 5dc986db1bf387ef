"""Whole audits of drawn scenes: rates, probabilities, fixes, and what they must not depend on."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from boxmend.auditing.audit import Audit, AuditSettings, audit, audit_without_probe
from boxmend.auditing.evidence import Detected
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.probing import sum_causes
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset, Source
from boxmend.data.joining import join
from boxmend.errors import DataError, UsageError
from tests.auditing.audit_scenes import LABELS, Noise, Scene, calibration_error, scene

ALL = Noise(labels=0.2, boxes=0.2, missing=0.05, spurious=0.05, duplicates=0.02)


@cache
def noisy() -> tuple[Scene, Audit]:
    one = scene(ALL, images=800)
    return one, audit_without_probe(one.dataset, one.detected)


def test_all_rates_are_found_again() -> None:
    one, found = noisy()
    is_real = one.true_labels >= 0
    is_wrong = (one.dataset.labels != one.true_labels) & is_real
    rates = found.rates
    assert rates["wrong_labels"].value == pytest.approx(is_wrong[is_real].mean(), abs=0.04)
    assert rates["missing"].value == pytest.approx(0.05, abs=0.02)
    assert rates["spurious"].value == pytest.approx(1 - is_real.mean(), abs=0.02)
    assert rates["duplicates"].value == pytest.approx(0.02, abs=0.01)
    assert found.box_noise.low <= 0.2 <= found.box_noise.high
    for share in rates.values():
        assert 0 <= share.low <= share.value <= share.high <= 1


def test_probabilities_of_every_kind_are_calibrated() -> None:
    one, found = noisy()
    is_real = one.true_labels >= 0
    iou = compute_iou(one.dataset.boxes, np.nan_to_num(one.true_boxes))
    truths = {
        Kind.WRONG_LABEL: is_real & (one.dataset.labels != one.true_labels),
        Kind.BAD_BOX: is_real & (iou < 0.7),
        Kind.SPURIOUS: ~is_real,
    }
    for kind, is_true in truths.items():
        assert calibration_error(found.p_wrong[kind], is_true) < 0.05, kind
        assert found.p_wrong[kind][is_true].mean() > (0.4 if kind == Kind.SPURIOUS else 0.5), kind
        assert found.p_wrong[kind][~is_true].mean() < 0.25, kind


def test_fixes_hold_their_promise() -> None:
    one, found = noisy()
    fixes = found.fixes
    for kind, least, low, high in (
        (Kind.WRONG_LABEL, 0.8, -0.02, 0.09),  # cautious: rates of wrong labels count less
        (Kind.BAD_BOX, 0.8, -0.01, 0.015),
        (
            Kind.SPURIOUS,
            0.4,
            0.0,
            0.3,
        ),  # cautious: what is overlooked is taken off twice, at most 0.9
    ):
        own = fixes.take((fixes.kinds == kind) & (fixes.p_fix > least))
        assert len(own) > 30, kind
        labels, boxes = one.true_labels[own.rows], np.nan_to_num(one.true_boxes[own.rows])
        if kind == Kind.WRONG_LABEL:
            is_right = own.new_labels == labels
        elif kind == Kind.BAD_BOX:
            after = compute_iou(own.new_boxes, boxes)
            is_right = (after > compute_iou(own.old_boxes, boxes)) & (after >= 0.7)
        else:
            is_right = labels < 0
        assert low < is_right.mean() - own.p_fix.mean() < high, kind


def test_missing_objects_are_proposed_where_they_are() -> None:
    one, found = noisy()
    own = found.fixes.take((found.fixes.kinds == Kind.MISSING) & (found.fixes.p_wrong > 0.6))
    assert len(own) > 0.5 * len(one.missing)
    hits = 0
    for image, box in zip(own.image_rows.tolist(), own.new_boxes, strict=True):
        true = one.missing_boxes[one.missing == image]
        hits += bool((compute_iou(np.repeat(box[None], len(true), axis=0), true) >= 0.5).any())
    assert hits / len(own) > 0.8
    assert (own.rows == -1).all()
    assert np.isnan(own.old_boxes).all()


def test_a_duplicate_names_the_one_that_stays() -> None:
    one, found = noisy()
    own = found.fixes.take(found.fixes.kinds == Kind.DUPLICATE)
    assert len(own) >= 50
    dataset = one.dataset
    assert (dataset.image_rows[own.rows] == dataset.image_rows[own.kept_rows]).all()
    assert (dataset.labels[own.rows] == dataset.labels[own.kept_rows]).all()
    assert (own.rows != own.kept_rows).all()
    assert np.isnan(own.new_boxes).all()


def test_of_clean_annotations_hardly_any_is_called_wrong() -> None:
    one = scene(Noise(), images=400, seed=3)
    found = audit_without_probe(one.dataset, one.detected)
    for kind, column in found.p_wrong.items():
        assert (column >= 0.5).mean() < 0.01, kind
    assert (found.missing.p_wrong >= 0.5).sum() < 0.01 * len(one.dataset)
    assert found.rates["wrong_labels"].value < 0.02


def shuffled(dataset: Dataset, random: np.random.Generator) -> tuple[Dataset, np.ndarray]:
    """The same annotations in another order, with images and labels in another order, too."""
    rows = random.permutation(len(dataset))
    images = random.permutation(len(dataset.images))
    labels = random.permutation(len(dataset.label_names))
    image_place, label_place = np.argsort(images), np.argsort(labels)
    taken = dataset.take(rows)
    return (
        replace(
            taken,
            images=dataset.images.take(images),
            image_rows=image_place[taken.image_rows],
            labels=label_place[taken.labels],
            label_names=tuple(dataset.label_names[one] for one in labels.tolist()),
        ),
        rows,
    )


def test_the_order_of_annotations_images_labels_and_detections_does_not_matter() -> None:
    one = scene(ALL, images=60)
    first = audit(one.dataset, one.detected)
    random = np.random.default_rng(5)
    dataset, rows = shuffled(one.dataset, random)
    row_of_image = {name: row for row, name in enumerate(dataset.images.file_names)}
    images = np.array([row_of_image[name] for name in one.dataset.images.file_names])
    labels = np.array([dataset.label_names.index(name) for name in LABELS])
    order = random.permutation(len(one.detected))
    detected = Detected(
        images[one.detected.image_rows][order],
        labels[one.detected.labels][order],
        one.detected.scores[order],
        one.detected.boxes[order],
    )
    second = audit(dataset, detected)
    assert second.probe == first.probe
    for kind, column in first.p_wrong.items():
        assert second.p_wrong[kind].tolist() == column[rows].tolist(), kind
    assert second.rates == first.rates
    assert second.fixes.ids == first.fixes.ids
    assert second.fixes.reasons == first.fixes.reasons
    assert second.fixes.p_fix.tolist() == first.fixes.p_fix.tolist()


def test_what_else_is_audited_in_the_same_call_does_not_matter() -> None:
    one, other = scene(ALL, images=60), scene(Noise(labels=0.5), images=80, seed=9)
    sources = tuple(replace_group(source) for source in other.dataset.sources)
    both = join([one.dataset, replace(other.dataset, sources=sources)])
    detected = Detected(
        np.concatenate([one.detected.image_rows, other.detected.image_rows + 60]),
        np.concatenate([one.detected.labels, other.detected.labels]),
        np.concatenate([one.detected.scores, other.detected.scores]),
        np.concatenate([one.detected.boxes, other.detected.boxes]),
    )
    alone, together = (
        audit_without_probe(one.dataset, one.detected),
        audit_without_probe(both, detected),
    )
    for kind, column in alone.p_wrong.items():
        assert together.p_wrong[kind][: len(one.dataset)].tolist() == column.tolist(), kind


def replace_group(source: Source) -> Source:
    return replace(source, group=1, boxes=source.boxes.copy(), labels=source.labels.copy())


def test_crowd_and_difficult_objects_are_neither_judged_nor_missed() -> None:
    one = scene(Noise(labels=0.2), images=60)
    is_crowd, is_difficult = np.zeros(len(one.dataset), bool), np.zeros(len(one.dataset), bool)
    is_crowd[::7], is_difficult[3::7] = True, True
    dataset = replace(one.dataset, is_crowd=is_crowd, is_difficult=is_difficult)
    found = audit_without_probe(dataset, one.detected)
    ignored = is_crowd | is_difficult
    assert np.isnan(found.p_wrong[Kind.WRONG_LABEL][ignored]).all()
    assert not np.isin(found.fixes.rows, np.flatnonzero(ignored)).any()
    for image, box in zip(found.missing.image_rows.tolist(), found.missing.new_boxes, strict=True):
        near = dataset.boxes[ignored & (dataset.image_rows == image)]
        assert (compute_iou(np.repeat(box[None], len(near), axis=0), near) < 0.5).all()


def test_annotations_that_cannot_be_judged_are_left_alone() -> None:
    one = scene(Noise(labels=0.2), images=60)
    boxes, labels = one.dataset.boxes.copy(), one.dataset.labels.copy()
    boxes[0], boxes[1], labels[2] = np.nan, (50, 50, 20, 20), -1
    boxes[3], boxes[4] = (50, 50, 20, 90), (50, 50, 90, 50)
    found = audit_without_probe(replace(one.dataset, boxes=boxes, labels=labels), one.detected)
    assert np.isnan(found.p_wrong[Kind.WRONG_LABEL][:5]).all()
    assert found.num_judged == len(one.dataset) - 5


def test_images_without_any_detection_are_not_judged_where_they_are_many() -> None:
    one = scene(Noise(labels=0.2), images=60)
    half = one.detected.image_rows < 30
    detected = Detected(
        *(getattr(one.detected, name)[half] for name in ("image_rows", "labels", "scores", "boxes"))
    )
    found = audit_without_probe(one.dataset, detected)
    assert found.num_not_looked_at == 120
    assert np.isnan(found.p_wrong[Kind.SPURIOUS][one.dataset.image_rows >= 30]).all()


def test_few_images_without_detections_are_judged_unless_other_images_have_many() -> None:
    one = scene(Noise(labels=0.2), images=120)
    rows, columns = one.detected.image_rows, ("image_rows", "labels", "scores", "boxes")
    is_lost = rows < 4
    is_last = np.append(rows[1:] != rows[:-1], True)  # one detection of each image
    assert (np.bincount(rows[~is_lost])[4:] > 2).sum() > 100
    for kept, num_lost in ((~is_lost, 16), (~is_lost & is_last, 0)):
        found = audit_without_probe(
            one.dataset, Detected(*(getattr(one.detected, name)[kept] for name in columns))
        )
        assert found.num_not_looked_at == num_lost


def test_without_detections_nothing_can_be_concluded() -> None:
    one = scene(Noise(), images=5)
    none = np.zeros(0, np.int64)
    with pytest.raises(DataError, match="no detection"):
        audit_without_probe(one.dataset, Detected(none, none, np.zeros(0), np.zeros((0, 4))))


def test_a_single_class_has_no_wrong_labels() -> None:
    one = scene(Noise(boxes=0.2), images=60)
    source = replace(one.dataset.sources[0], label_names=("car",), labels=one.dataset.labels * 0)
    dataset = replace(
        one.dataset, labels=one.dataset.labels * 0, label_names=("car",), sources=(source,)
    )
    detected = replace(one.detected, labels=one.detected.labels * 0)
    found = audit_without_probe(dataset, detected)
    assert found.p_wrong[Kind.WRONG_LABEL].max() == 0
    assert (found.fixes.kinds == Kind.WRONG_LABEL).sum() == 0


def test_an_empty_dataset_is_no_trouble() -> None:
    one = scene(Noise(), images=5)
    found = audit_without_probe(one.dataset.take(np.zeros(0, np.int64)), one.detected)
    assert found.num_judged == 0
    assert len(found.missing) >= 0


def test_the_probe_counts_what_it_planted_and_changes_nothing() -> None:
    one = scene(ALL, images=400)
    before = one.dataset.labels.copy(), one.dataset.boxes.copy()
    plain, probed = audit_without_probe(one.dataset, one.detected), audit(one.dataset, one.detected)
    assert probed.probe is not None
    assert probed.fixes.ids == plain.fixes.ids
    assert (one.dataset.labels == before[0]).all()
    assert (one.dataset.boxes == before[1]).all()
    for kind, causes in probed.probe.items():
        for cause, counts in causes.items():
            assert 0 <= counts.right <= counts.found <= counts.planted
            assert counts.planted >= 20, (kind, cause)
            if cause != "on parts and clutter":  # which are too few to be called wrong here
                assert counts.found > 0.35 * counts.planted, (kind, cause)
    share = sum_causes(probed.probe[Kind.DUPLICATE]).to_json()["found_share"]
    assert share["low"] <= share["value"] <= share["high"] + 1e-9


def test_a_probe_of_a_wrong_share_is_refused() -> None:
    for share in (-0.1, 0.5, float("nan")):
        with pytest.raises(UsageError, match="probe"):
            AuditSettings(probe=share)
