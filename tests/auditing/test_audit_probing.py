"""The probe: what counts as found and as right, with fixes made up by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boxmend.auditing import probing
from boxmend.auditing.audit import AuditSettings, audit, audit_without_probe
from boxmend.auditing.evidence import Detected
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.pairs import find_overlaps
from boxmend.auditing.probing import (
    MIXES,
    ErrorMix,
    Planted,
    ProbeCounts,
    add_probes,
    check_fixes,
    compute_rate,
    count_rounds,
    describe_probe,
    plant_errors,
    sum_causes,
)
from boxmend.data.boxes import compute_areas, compute_iou
from boxmend.data.detections import Detections
from boxmend.data.joining import join
from boxmend.data.noise.look_alikes import weigh_confusions
from tests.auditing.audit_scenes import LABELS, Noise, Scene, dataset_of, scene

SQUARE = [0.0, 0.0, 100.0, 100.0]
HALF = [0.0, 0.0, 100.0, 50.0]  # an IoU of 0.5 with it
LESS = [0.0, 0.0, 100.0, 40.0]  # and of 0.4
NOTHING = [np.nan] * 4


def fix(kind: Kind, row: int, **others: Any) -> dict[str, Any]:
    one = {"kind": kind, "row": row, "image": 0, "label": 0, "old": SQUARE, "new": SQUARE}
    return {**one, "kept": -1, "p_wrong": 0.9, **others}


def table(*rows: dict[str, Any]) -> Fixes:
    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    n = len(rows)
    return Fixes(
        ids=[str(k) for k in range(n)],
        kinds=column("kind").astype(np.int8),
        rows=column("row"),
        image_rows=column("image"),
        old_labels=np.zeros(n, np.int64),
        new_labels=column("label"),
        old_boxes=column("old").astype(np.float64),
        new_boxes=column("new").astype(np.float64),
        kept_rows=column("kept"),
        p_wrong=column("p_wrong"),
        p_fix=np.ones(n),
        iou_gain=np.zeros(n),
        reasons=[""] * n,
    )


def planted(**rows: list[int]) -> Planted:
    """Six squares, one in each image, labels 0 to 4 and 0; the first one is taken away.

    Rows are those of what is left, and of the original for MISSING, which is row 0.
    """
    original = dataset_of(np.arange(6), np.array([0, 1, 2, 3, 4, 0]), np.tile(SQUARE, (6, 1)), 6)
    all_rows = {kind: np.zeros(0, np.int64) for kind in Kind} | {Kind.MISSING: np.array([0])}
    all_rows |= {Kind[name]: np.array(one) for name, one in rows.items()}
    left = original.take(np.arange(1, 6))
    return Planted(left, original, all_rows, left.labels, left.boxes)


def test_a_wrong_label_is_right_if_it_is_the_one_from_before() -> None:
    # rows 1 and 2 of what is left have the labels 2 and 3
    found = check_fixes(
        planted(WRONG_LABEL=[1, 2, 3]),
        table(
            fix(Kind.WRONG_LABEL, 1, label=2),
            fix(Kind.WRONG_LABEL, 2, label=4),
            fix(Kind.WRONG_LABEL, 3, label=4, p_wrong=0.4),  # not called wrong
            fix(Kind.WRONG_LABEL, 0, label=1),  # not planted
        ),
    )
    assert found[Kind.WRONG_LABEL] == ProbeCounts(planted=3, found=2, right=1)


def test_a_bad_box_is_right_if_it_comes_nearer() -> None:
    found = check_fixes(
        planted(BAD_BOX=[0, 1, 2]),
        table(fix(Kind.BAD_BOX, 0, old=LESS, new=HALF), fix(Kind.BAD_BOX, 1, old=HALF, new=LESS)),
    )
    assert found[Kind.BAD_BOX] == ProbeCounts(planted=3, found=2, right=1)


def test_of_a_duplicate_either_one_may_go() -> None:
    found = check_fixes(
        planted(DUPLICATE=[3, 4]),
        table(fix(Kind.DUPLICATE, 3, kept=0), fix(Kind.DUPLICATE, 1, kept=4)),
    )
    assert found[Kind.DUPLICATE] == ProbeCounts(planted=2, found=2, right=2)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"new": HALF}, ProbeCounts(1, 1, 1)),
        ({"new": LESS}, ProbeCounts(1, 0, 0)),
        ({"new": SQUARE, "label": 1}, ProbeCounts(1, 1, 0)),
        ({"new": SQUARE, "image": 1}, ProbeCounts(1, 0, 0)),
        ({"new": SQUARE, "p_wrong": 0.49}, ProbeCounts(1, 0, 0)),
    ],
)
def test_a_missing_object_is_found_at_half_of_its_place_and_right_by_its_label(
    others: dict[str, Any], expected: ProbeCounts
) -> None:
    found = check_fixes(planted(), table(fix(Kind.MISSING, -1, old=NOTHING, **others)))
    assert found[Kind.MISSING] == expected


def plant(mix: ErrorMix, rate: float = 0.1, seed: int = 0) -> tuple[Scene, Planted]:
    """Plant a mix into 800 annotations of a scene whose detector confuses some classes."""
    drawn = scene(Noise(), images=200)
    seen = drawn.detected
    detections = Detections(seen.image_rows, seen.labels, seen.scores, seen.boxes)
    rows = np.arange(len(drawn.dataset))
    made = plant_errors((drawn.dataset, rows, detections), mix, rate, seed)
    assert made is not None
    return drawn, made


@pytest.mark.parametrize("mix", MIXES, ids=["at random", "as in practice"])
def test_every_planted_error_is_what_its_kind_says(mix: ErrorMix) -> None:
    drawn, made = plant(mix)
    for kind in (Kind.MISSING, Kind.SPURIOUS, Kind.DUPLICATE):
        assert len(made.rows[kind]) == 80, kind
    wrong, bad = made.rows[Kind.WRONG_LABEL], made.rows[Kind.BAD_BOX]
    assert 60 <= len(wrong) <= 80  # a few of the 80 wrong labels belong to removed annotations
    assert 50 <= len(bad) <= 80  # a few of the 80 moved boxes are still good
    assert (made.dataset.labels[wrong] != made.labels[wrong]).all()
    assert (compute_iou(made.dataset.boxes[bad], made.boxes[bad]) < 0.7).all()
    assert (made.labels[made.rows[Kind.SPURIOUS]] == -1).all()
    doubled = made.dataset.take(made.rows[Kind.DUPLICATE])
    for image, box in zip(doubled.image_rows.tolist(), doubled.boxes, strict=True):
        near = made.dataset.boxes[made.dataset.image_rows == image]
        assert np.sort(compute_iou(np.tile(box, (len(near), 1)), near))[-2] > 0.5
    assert len(made.dataset) == len(drawn.dataset) + 80  # 80 less, 160 more


def test_the_second_mix_plants_look_alikes_small_objects_parts_and_clutter() -> None:
    drawn, made = plant(MIXES[1])
    rows = np.arange(len(drawn.dataset))
    seen = drawn.detected
    detections = Detections(seen.image_rows, seen.labels, seen.scores, seen.boxes)
    weights = weigh_confusions(drawn.dataset, rows, detections)
    wrong = made.rows[Kind.WRONG_LABEL]
    assert (weights[made.labels[wrong], made.dataset.labels[wrong]] > 0).all()
    areas = compute_areas(drawn.dataset.boxes)
    assert areas[made.rows[Kind.MISSING]].mean() < 0.95 * areas.mean()
    spurious = made.dataset.take(made.rows[Kind.SPURIOUS])
    overlaps = find_overlaps(
        spurious.image_rows, spurious.boxes, drawn.dataset.image_rows, drawn.dataset.boxes
    )
    is_half = np.isin(np.arange(80), overlaps.first[(overlaps.iou > 0.4) & (overlaps.iou < 0.6)])
    assert 35 <= is_half.sum() <= 45  # the others are on clutter


def test_a_dataset_of_one_class_is_probed_without_wrong_labels() -> None:
    drawn = scene(Noise(), images=100)
    dataset = replace(
        drawn.dataset, labels=np.zeros(len(drawn.dataset), np.int64), label_names=LABELS[:1]
    )
    seen = replace(drawn.detected, labels=np.zeros(len(drawn.detected), np.int64))
    probe = audit(dataset, seen, AuditSettings(probe=0.2)).probe
    assert probe is not None
    assert all(counts.planted == 0 for counts in probe[Kind.WRONG_LABEL].values())
    assert sum_causes(probe[Kind.DUPLICATE]).found > 0


def test_probes_add_up_by_kind_and_cause() -> None:
    label, box = Kind.WRONG_LABEL, Kind.BAD_BOX
    sums = add_probes(
        [
            {label: {"any": ProbeCounts(10, 4, 3)}, box: {"gross": ProbeCounts(5, 1, 0)}},
            {label: {"any": ProbeCounts(10, 6, 5)}},
            {label: {"alike": ProbeCounts(4, 1, 1)}},
        ]
    )
    assert sums == {
        label: {"any": ProbeCounts(20, 10, 8), "alike": ProbeCounts(4, 1, 1)},
        box: {"gross": ProbeCounts(5, 1, 0)},
    }
    assert sum_causes(sums[label]) == ProbeCounts(24, 11, 9)
    plain = describe_probe(sums)["wrong label"]
    assert (plain["planted"], plain["found"], plain["right"]) == (24, 11, 9)
    assert plain["causes"]["alike"]["found_share"]["value"] == 0.25


@pytest.mark.parametrize(
    ("number", "rounds"), [(100_000, 1), (31_250, 1), (31_249, 2), (1_000, 5), (50, 5)]
)
def test_small_datasets_are_probed_several_times(number: int, rounds: int) -> None:
    rate = compute_rate(0.02, number)  # 0.004 of each kind, or one error
    assert rate == max(0.004, 1 / number)
    assert count_rounds(rate, number) == rounds


def test_errors_are_planted_only_where_all_seems_to_be_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = scene(Noise(labels=0.2, spurious=0.1, duplicates=0.05), images=60)
    first = audit_without_probe(drawn.dataset, drawn.detected)
    kinds = (Kind.WRONG_LABEL, Kind.SPURIOUS, Kind.DUPLICATE)
    is_called = np.any([first.p_wrong[kind] >= 0.5 for kind in kinds], axis=0)
    assert is_called.sum() > 20
    scenes = []
    original = probing.plant_errors

    def recorded(scene: Any, mix: Any, rate: float, seed: int) -> Planted | None:
        made = original(scene, mix, rate, seed)
        scenes.append((scene[0], scene[1], made))
        return made

    monkeypatch.setattr(probing, "plant_errors", recorded)
    audit(drawn.dataset, drawn.detected, AuditSettings(probe=0.2))
    dataset, eligible, _ = scenes[0]

    def places(rows: Any, of: Any) -> set[tuple[float, ...]]:
        return {(int(of.image_rows[row]), *of.boxes[row].tolist()) for row in rows}

    fine = places(np.flatnonzero(~is_called), drawn.dataset)
    assert places(eligible, dataset) == fine
    for _, _, made in scenes:
        assert made is not None
        gone = made.rows[Kind.MISSING]
        assert places(gone, made.original) <= fine
        wrong = made.rows[Kind.WRONG_LABEL]
        assert {
            (int(made.dataset.image_rows[row]), *made.boxes[row].tolist()) for row in wrong
        } <= fine


def test_rates_of_joined_datasets_are_means_by_their_annotations() -> None:
    one, other = scene(Noise(labels=0.5), images=40), scene(Noise(), images=160, seed=9)
    source = other.dataset.sources[0]
    second = replace(source, group=1, boxes=source.boxes.copy(), labels=source.labels.copy())
    both = join([one.dataset, replace(other.dataset, sources=(second,))])
    detected = Detected(
        np.concatenate([one.detected.image_rows, other.detected.image_rows + 40]),
        *(
            np.concatenate([getattr(one.detected, name), getattr(other.detected, name)])
            for name in ("labels", "scores", "boxes")
        ),
    )
    rates = [
        audit_without_probe(each.dataset, each.detected).rates["wrong_labels"].value
        for each in (one, other)
    ]
    assert rates[0] > rates[1] + 0.3
    together = audit_without_probe(both, detected).rates["wrong_labels"].value
    assert together == pytest.approx((160 * rates[0] + 640 * rates[1]) / 800)
