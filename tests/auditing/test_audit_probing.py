"""The probe: what counts as found and as right, with fixes made up by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boxmend.auditing import probing
from boxmend.auditing.audit import AuditSettings, audit, audit_without_probe
from boxmend.auditing.evidence import Detected
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.probing import Planted, ProbeCounts, check_fixes, plant_errors
from boxmend.data.boxes import compute_iou
from boxmend.data.joining import join
from tests.auditing.audit_scenes import Noise, dataset_of, scene

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
    return Planted(original.take(np.arange(1, 6)), all_rows, original)


def test_a_wrong_label_is_right_if_it_is_the_one_from_before() -> None:
    # rows 1 and 2 of what is left are rows 2 and 3 of the original: labels 2 and 3
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


def test_planted_boxes_are_bad_and_planted_duplicates_are_not() -> None:
    one = scene(Noise(), images=200)
    n = len(one.dataset)
    made = plant_errors(one.dataset, np.ones(n, np.bool_), 0.5, np.random.default_rng(0))
    left = np.setdiff1d(np.arange(n), made.rows[Kind.MISSING])
    bad = made.rows[Kind.BAD_BOX]
    assert len(bad) == 80
    assert (compute_iou(made.dataset.boxes[bad], one.dataset.boxes[left[bad]]) < 0.7).mean() > 0.98
    wrong = made.rows[Kind.WRONG_LABEL]
    assert (made.dataset.labels[wrong] != one.dataset.labels[left[wrong]]).all()
    doubled = made.dataset.take(made.rows[Kind.DUPLICATE])
    for image, box in zip(doubled.image_rows.tolist(), doubled.boxes, strict=True):
        near = one.dataset.boxes[one.dataset.image_rows == image]
        assert compute_iou(box, near).max() > 0.8


def test_errors_are_planted_only_where_all_seems_to_be_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = scene(Noise(labels=0.2, spurious=0.1, duplicates=0.05), images=60)
    first = audit_without_probe(one.dataset, one.detected)
    kinds = (Kind.WRONG_LABEL, Kind.SPURIOUS, Kind.DUPLICATE)
    is_called = np.any([first.p_wrong[kind] >= 0.5 for kind in kinds], axis=0)
    assert is_called.sum() > 20
    masks = []
    original = probing.plant_errors

    def recorded(dataset: Any, is_fine: Any, share: float, random: Any) -> Planted:
        masks.append(is_fine)
        return original(dataset, is_fine, share, random)

    monkeypatch.setattr(probing, "plant_errors", recorded)
    audit(one.dataset, one.detected, AuditSettings(probe=0.2))
    assert masks[0].tolist() == (~is_called).tolist()


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
