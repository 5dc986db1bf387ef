"""Whole datasets disturbed: exact counts, shared draws, and what must not be touched."""

import hashlib
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.noise import NoiseSettings, Origin, disturb
from boxmend.errors import DataError, UsageError
from tests.data.noise.noise_data import build, iou, many

EVERYTHING = NoiseSettings(
    labels="symmetric:0.4",
    boxes="uniform:0.4",
    missing=0.1,
    spurious=0.1,
    duplicate=0.05,
    subset=0.8,
    seed=3,
)


def columns(dataset: Dataset) -> dict[str, tuple[str, bytes]]:
    """Every array of a dataset, as bytes."""
    both = (dataset, dataset.images)
    arrays = {f.name: getattr(one, f.name) for one in both for f in fields(one)}
    return {
        name: (value.dtype.str, value.tobytes())
        for name, value in arrays.items()
        if isinstance(value, np.ndarray)
    }


def test_without_noise_nothing_changes() -> None:
    clean = many(50)
    noisy = disturb(clean, NoiseSettings())
    assert columns(noisy.dataset) == columns(clean)
    assert noisy.counts == {
        "annotations_before": 50,
        "annotations_after": 50,
        "eligible": 50,
        "labels_changed": 0,
        "boxes_changed": 0,
        "missing": 0,
        "spurious": 0,
        "duplicate": 0,
    }


@pytest.mark.parametrize("boxes", ["uniform:0", "gaussian:0", "jitter:0"])
def test_box_noise_of_amount_zero_does_not_even_clip(boxes: str) -> None:
    clean = build([[-5, -5, 2000, 10]], [0])
    assert disturb(clean, NoiseSettings(boxes=boxes)).dataset.boxes.tolist() == clean.boxes.tolist()


def test_the_input_is_never_modified() -> None:
    clean = many(200)
    before = columns(clean)
    for name in ("labels", "boxes", "annotation_ids", "image_rows"):
        getattr(clean, name).setflags(write=False)
    noisy = disturb(clean, EVERYTHING)
    assert columns(clean) == before
    noisy.dataset.boxes[:] = 0  # the result shares no column with the input
    noisy.dataset.labels[:] = 0
    assert columns(clean) == before


def test_the_same_seed_gives_the_same_dataset_and_another_seed_another() -> None:
    one, two = disturb(many(200), EVERYTHING), disturb(many(200), EVERYTHING)
    assert columns(one.dataset) == columns(two.dataset)
    other = disturb(many(200), NoiseSettings(labels="symmetric:0.4", seed=4))
    assert other.dataset.labels.tolist() != one.dataset.labels[:200].tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EVERYTHING, "a7d6108d06d7d139"),
        (NoiseSettings(labels="pair:0.3", boxes="gaussian:0.25"), "4051194e3e240dce"),
        (NoiseSettings(labels="symmetric:0.6", boxes="jitter:0.4", clip=False), "31e0f177228d1082"),
    ],
)
def test_the_noise_of_a_small_dataset_never_changes(settings: NoiseSettings, expected: str) -> None:
    noisy = disturb(many(120), settings).dataset
    # In hundredths, as whole numbers: what a file would say, free of rounding errors.
    hundredths = np.round(noisy.boxes * 100).astype("<i8")
    content = noisy.labels.astype("<i8").tobytes() + hundredths.tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == expected


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 70),
    rates=st.tuples(*[st.floats(0, 1)] * 5),
    seed=st.integers(0, 2**64),
)
def test_counts_are_exact_for_any_rates(n: int, rates: tuple[float, ...], seed: int) -> None:
    label_rate, gone, new, twice, subset = rates
    settings = NoiseSettings(
        labels=f"symmetric:{label_rate}",
        missing=gone,
        spurious=new,
        duplicate=twice,
        subset=subset,
        seed=seed,
    )
    noisy = disturb(many(n), settings)
    assert noisy.counts["eligible"] == n
    assert noisy.counts["missing"] == round(gone * n)
    assert noisy.counts["spurious"] == round(new * n)
    assert noisy.counts["duplicate"] == min(round(twice * n), n - round(gone * n))
    assert noisy.counts["annotations_after"] == len(noisy.dataset)
    assert noisy.counts["annotations_before"] == n
    alone = NoiseSettings(labels=settings.labels, subset=subset, seed=seed)
    inside = round(subset * n)
    assert disturb(many(n), alone).counts["labels_changed"] == round(label_rate * inside)


@pytest.mark.parametrize("labels", ["symmetric", "pair"])
def test_what_a_low_rate_relabels_is_part_of_what_a_higher_one_does(labels: str) -> None:
    clean = many(300)
    low = disturb(clean, NoiseSettings(labels=f"{labels}:0.2")).dataset.labels
    high = disturb(clean, NoiseSettings(labels=f"{labels}:0.4")).dataset.labels
    changed = low != clean.labels
    assert (changed.sum(), (high != clean.labels).sum()) == (60, 120)
    assert high[changed].tolist() == low[changed].tolist()


@pytest.mark.parametrize("boxes", ["uniform:0.4", "gaussian:0.3", "jitter:0.4"])
def test_two_label_rates_share_the_same_boxes(boxes: str) -> None:
    one, two = (
        disturb(many(200), NoiseSettings(labels=f"symmetric:{rate}", boxes=boxes, seed=9))
        for rate in (0.2, 0.6)
    )
    assert one.dataset.boxes.tolist() == two.dataset.boxes.tolist()
    assert one.dataset.labels.tolist() != two.dataset.labels.tolist()


def test_other_noise_does_not_change_the_draws_of_annotations_that_stay() -> None:
    clean = many(300)
    plain = disturb(clean, NoiseSettings(labels="pair:0.3", boxes="gaussian:0.3", seed=1))
    more = disturb(
        clean,
        NoiseSettings(
            labels="pair:0.3",
            boxes="gaussian:0.3",
            missing=0.3,
            spurious=0.2,
            duplicate=0.2,
            seed=1,
        ),
    )
    stays = np.isin(clean.annotation_ids, more.dataset.annotation_ids)
    assert stays.sum() == 210
    assert more.dataset.labels[:210].tolist() == plain.dataset.labels[stays].tolist()
    assert more.dataset.boxes[:210].tolist() == plain.dataset.boxes[stays].tolist()


def test_each_kind_of_added_noise_is_drawn_alone() -> None:
    clean = many(200)
    gone = disturb(clean, NoiseSettings(missing=0.2))
    new = disturb(clean, NoiseSettings(spurious=0.2))
    both = disturb(clean, NoiseSettings(missing=0.2, spurious=0.2))
    assert both.dataset.annotation_ids[:160].tolist() == gone.dataset.annotation_ids.tolist()
    assert both.dataset.boxes[160:].tolist() == new.dataset.boxes[200:].tolist()


def test_label_noise_is_independent_of_box_noise() -> None:
    clean = many(5000)
    noisy = disturb(clean, NoiseSettings(labels="symmetric:0.5", boxes="uniform:0.4")).dataset
    overlap, changed = iou(clean.boxes, noisy.boxes), noisy.labels != clean.labels
    assert overlap[changed].mean() == pytest.approx(overlap[~changed].mean(), abs=0.015)


def test_a_subset_confines_label_and_box_noise_and_the_rates_hold_within() -> None:
    clean = many(300)
    settings = NoiseSettings(labels="symmetric:0.5", boxes="uniform:0.4", subset=0.4)
    noisy = disturb(clean, settings).dataset
    moved = (noisy.boxes != clean.boxes).any(axis=1)
    relabelled = noisy.labels != clean.labels
    assert (moved.sum(), relabelled.sum()) == (120, 60)
    assert not (relabelled & ~moved).any()


def test_a_box_within_two_subsets_is_disturbed_the_same_in_both() -> None:
    clean = build([[300, 300, 302, 302.5]] * 300, [0] * 300)  # so small that many are drawn again
    few, many_ = (
        disturb(clean, NoiseSettings(boxes="gaussian:0.6", subset=subset)).dataset.boxes
        for subset in (0.3, 0.9)
    )
    moved = (few != clean.boxes).any(axis=1)
    assert 80 < moved.sum() <= 90
    assert few[moved].tolist() == many_[moved].tolist()


def test_pair_noise_counts_within_the_subset_label_by_label() -> None:
    clean = many(300)
    noisy = disturb(clean, NoiseSettings(labels="pair:0.5", boxes="uniform:0.4", subset=0.5))
    inside = (noisy.dataset.boxes != clean.boxes).any(axis=1)
    for label in range(3):
        members = inside & (clean.labels == label)
        changed = (noisy.dataset.labels[members] == (label + 1) % 3).sum()
        assert changed == round(0.5 * members.sum())


def test_gross_boxes_are_far_off_among_boxes_with_other_noise() -> None:
    clean = many(400)
    small = disturb(clean, NoiseSettings(boxes="uniform:0.05", seed=4)).dataset
    both = disturb(clean, NoiseSettings(boxes="uniform:0.05", gross_boxes=0.1, seed=4)).dataset
    alone = disturb(clean, NoiseSettings(gross_boxes=0.1, seed=4)).dataset
    is_gross = (both.boxes != small.boxes).any(axis=1)
    assert is_gross.sum() == 40
    assert both.boxes[is_gross].tolist() == alone.boxes[is_gross].tolist()
    usual = disturb(clean, NoiseSettings(boxes="uniform:0.4", seed=4)).dataset
    assert not (both.boxes[is_gross] == usual.boxes[is_gross]).all(axis=1).any()  # other draws
    assert alone.boxes[~is_gross].tolist() == clean.boxes[~is_gross].tolist()
    assert iou(clean.boxes, both.boxes)[~is_gross].min() > 0.8
    assert iou(clean.boxes, both.boxes)[is_gross].mean() == pytest.approx(0.47, abs=0.06)


def test_gross_noise_may_be_of_another_kind_and_is_confined_to_the_subset() -> None:
    clean = many(400)
    settings = NoiseSettings(gross_boxes=0.1, gross_noise="jitter:0.2", subset=0.5)
    noisy = disturb(clean, settings)
    assert noisy.counts["boxes_changed"] == 20
    overlap = iou(clean.boxes, noisy.dataset.boxes)
    assert overlap[overlap < 1].mean() == pytest.approx(0.664, abs=0.06)


def test_missing_small_objects_do_not_change_the_rest_of_the_noise() -> None:
    clean = many(300)
    random, small = (
        disturb(clean, NoiseSettings(boxes="uniform:0.2", missing=0.2, missing_order=order))
        for order in ("random", "small")
    )
    areas = (clean.boxes[:, 2:] - clean.boxes[:, :2]).prod(axis=1)
    assert random.counts == small.counts
    is_gone = [
        ~np.isin(clean.annotation_ids, noisy.dataset.annotation_ids) for noisy in (random, small)
    ]
    assert areas[is_gone[1]].mean() < 0.6 * areas[is_gone[0]].mean()
    boxes = disturb(clean, NoiseSettings(boxes="uniform:0.2")).dataset.boxes
    assert small.dataset.boxes.tolist() == boxes[~is_gone[1]].tolist()


def test_a_matrix_file_is_read_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "confusion.json"
    settings = NoiseSettings(labels=f"matrix:{path}")
    with pytest.raises(UsageError, match=r"confusion\.json"):
        disturb(many(30), settings)
    path.write_text('{"label1": {"label0": 0.3, "label2": 0.2}}')
    noisy = disturb(many(30), settings).dataset.labels
    assert noisy[many(30).labels == 1].tolist().count(0) == 3
    assert noisy[many(30).labels == 1].tolist().count(2) == 2
    assert noisy[many(30).labels != 1].tolist() == [0, 2] * 10


@pytest.mark.parametrize("labels", ["symmetric:0.4", "pair:0.4"])
def test_a_dataset_of_one_label_is_refused(labels: str) -> None:
    with pytest.raises(UsageError, match="needs at least two labels, but the dataset has 1"):
        disturb(many(10, num_labels=1), NoiseSettings(labels=labels))


def noisy_dataset() -> Dataset:
    """Forty annotations: 0..4 crowd, 5..9 difficult, 10 and 11 without label or image, 12 NaN."""
    clean = many(40)
    clean.is_crowd[:5] = True
    clean.is_difficult[5:10] = True
    clean.labels[10] = UNKNOWN
    clean.image_rows[11] = UNKNOWN
    clean.boxes[12, 2] = np.nan
    clean.boxes[13, 0] = -np.inf
    return clean


def test_ignored_and_broken_annotations_stay_exactly_as_they_are() -> None:
    clean = noisy_dataset()
    everything = NoiseSettings(
        labels="symmetric:1", boxes="uniform:0.4", missing=0.5, spurious=1, duplicate=1
    )
    noisy = disturb(clean, everything)
    assert noisy.counts["eligible"] == 26
    assert (noisy.counts["missing"], noisy.counts["spurious"]) == (13, 26)
    assert noisy.counts["duplicate"] == 13  # all that are left
    for name in ("labels", "image_rows", "is_crowd", "is_difficult", "annotation_ids"):
        assert getattr(noisy.dataset, name)[:14].tolist() == getattr(clean, name)[:14].tolist()
    assert noisy.dataset.boxes[:14].tobytes() == clean.boxes[:14].tobytes()
    assert not noisy.dataset.is_ignored[14:].any()
    repeated = noisy.truth.source_ids[noisy.truth.origins == Origin.DUPLICATE]
    assert set(repeated) <= set(clean.annotation_ids[14:])
    assert not noisy.truth.label_changed[:14].any()
    assert not noisy.truth.box_changed[:14].any()


def test_boxes_end_at_the_border_unless_clipping_is_off() -> None:
    clean = build([[0, 0, 1000, 800], [500, 0, 1000, 400]] * 50, [0, 1] * 50)
    inside = disturb(clean, NoiseSettings(boxes="uniform:0.4")).dataset.boxes
    free = disturb(clean, NoiseSettings(boxes="uniform:0.4", clip=False)).dataset.boxes
    assert (inside >= 0).all()
    assert (inside <= [1000, 800, 1000, 800]).all()
    assert (free < 0).any()
    assert (free > [1000, 800, 1000, 800]).any()
    assert inside == pytest.approx(free.clip(0, [1000, 800, 1000, 800]))


def test_boxes_on_images_of_unknown_size_are_not_clipped() -> None:
    clean = build([[0, 0, 100, 80]] * 50, [0] * 50, size=(0, 0))
    assert (disturb(clean, NoiseSettings(boxes="uniform:0.4")).dataset.boxes < 0).any()
    with pytest.raises(DataError, match="spurious"):
        disturb(clean, NoiseSettings(spurious=0.1))


@pytest.mark.parametrize("boxes", ["uniform:0.9", "gaussian:2", "jitter:1"])
def test_every_box_stays_sound_however_strong_the_noise(boxes: str) -> None:
    noisy = disturb(many(500), NoiseSettings(boxes=boxes)).dataset.boxes
    assert (noisy[:, 2:] - noisy[:, :2] >= 1).all()
    assert np.isfinite(noisy).all()


def test_a_box_too_small_to_be_disturbed_counts_as_unchanged() -> None:
    noisy = disturb(
        build([[5, 5, 5.5, 9], [5, 5, 50, 90]], [0, 1]), NoiseSettings(boxes="uniform:0.4")
    )
    assert noisy.counts["boxes_changed"] == 1
    assert noisy.truth.box_changed.tolist() == [False, True]


def test_new_annotations_never_get_the_id_of_a_missing_one() -> None:
    clean = many(40)
    noisy = disturb(clean, NoiseSettings(missing=1, spurious=0.5))
    assert len(noisy.dataset) == 20
    assert not set(noisy.dataset.annotation_ids) & set(clean.annotation_ids)


def test_duplicates_repeat_the_noisy_annotation() -> None:
    clean = many(100)
    noisy = disturb(clean, NoiseSettings(labels="symmetric:1", boxes="uniform:0.4", duplicate=0.3))
    is_duplicate = noisy.truth.origins == Origin.DUPLICATE
    originals = noisy.truth.source_ids[is_duplicate] - 100  # ids count from 100
    copies = noisy.dataset.take(is_duplicate)
    assert copies.labels.tolist() == noisy.dataset.labels[originals].tolist()
    assert iou(copies.boxes, noisy.dataset.boxes[originals]).min() > 0.8
    assert iou(copies.boxes, clean.boxes[originals]).mean() < 0.6


def test_changes_are_counted_in_kept_annotations_only() -> None:
    settings = NoiseSettings(
        labels="symmetric:1", boxes="uniform:0.4", missing=0.3, duplicate=0.2, spurious=0.1
    )
    noisy = disturb(many(100), settings)
    assert (noisy.counts["labels_changed"], noisy.counts["boxes_changed"]) == (70, 70)
    assert (noisy.truth.label_changed.sum(), noisy.truth.box_changed.sum()) == (90, 90)


def test_a_dataset_without_annotations_or_images_passes_through() -> None:
    empty = many(0)
    assert len(disturb(empty, EVERYTHING).dataset) == 0
    bare = many(0, num_images=0)
    assert len(disturb(bare, EVERYTHING).dataset) == 0


def test_no_step_loops_over_annotations_one_by_one() -> None:
    clean = many(200_000, num_images=1000)
    begin = time.process_time()
    disturb(clean, NoiseSettings(labels="symmetric:0.4", boxes="uniform:0.4"))
    assert time.process_time() - begin < 2.0  # 0.2 s by columns, far above 2 s one by one
