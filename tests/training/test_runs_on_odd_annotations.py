"""Whole trainings on few, many, absurd and discarded annotations: all train on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.data.dataset import Dataset
from boxmend.errors import BoxmendError, DataError
from boxmend.methods.table import METHODS
from boxmend.runs import ledger
from boxmend.runs.settings import MendSettings, PublishedSettings
from tests.training.small_runs import SIDE, SIDES, Box, drawn, ensure_sound, ids_in_ledger, trained

pytestmark = pytest.mark.usefixtures("one_thread")

USUAL: list[tuple[int, Box]] = [
    (0, (10, 10, 50, 60)),
    (0, (40, 30, 90, 90)),
    (1, (5, 5, 35, 30)),
    (2, (20, 20, 80, 70)),
    (3, (30, 30, 60, 66)),
]
MATCHING = ("br", "cm", "mend", "mend-paper")  # methods that look for candidates

every_method = pytest.mark.parametrize("method", sorted(METHODS))


def column(run_path: Path, name: str, epoch: int = 1) -> np.ndarray[Any, Any]:
    """A column of the ledger in an epoch, ordered by annotation."""
    table = ledger.read(run_path)
    table = table.filter(table["epoch"].to_numpy() == epoch).sort_by("annotation_id")
    return np.array(table[name].to_pylist())


def boxes_of(run_path: Path, kind: str, epoch: int = 1) -> np.ndarray[Any, Any]:
    return np.stack([column(run_path, f"{kind}_{side}", epoch) for side in SIDES], -1)


# Two epochs of one step each: one in warm-up, one with refinement.
WHOLE: dict[str, Any] = {"batch_size": 4}


def one_class(folder: Path) -> Dataset:
    return drawn(folder, USUAL, labels=("thing",))


def one_image(folder: Path) -> Dataset:
    return drawn(folder, USUAL[:2], sizes=[(SIDE, SIDE)])


def no_annotations(folder: Path) -> Dataset:
    return drawn(folder, [])


def some_images_without(folder: Path) -> Dataset:
    return drawn(folder, [one for one in USUAL if one[0] in (0, 2)])


def three_hundred_in_one_image(folder: Path) -> Dataset:
    many: list[tuple[int, Box]] = [
        (0, (x, y, x + 14, y + 12)) for x in range(0, 80, 4) for y in range(0, 75, 5)
    ]
    assert len(many) == 300
    return drawn(folder, [*many, *USUAL[2:]])


@every_method
@pytest.mark.parametrize(
    "make",
    [
        one_class,
        one_image,
        no_annotations,
        some_images_without,
        three_hundred_in_one_image,
    ],
)
def test_few_and_many_annotations_train_and_are_all_in_the_ledger(
    make: Any, method: str, tmp_path: Path
) -> None:
    dataset = make(tmp_path / "data")
    run, _ = trained(dataset, tmp_path / "run", method=method, **WHOLE)
    ensure_sound(run)
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()


@every_method
def test_boxes_that_are_nothing_once_scaled_are_left_out(method: str, tmp_path: Path) -> None:
    boxes: list[tuple[int, Box]] = [
        (0, (2000, 40, 2000.3, 260)),  # 0.0072 pixels wide at 96 / 4000
        (0, (400, 10, 3000, 290)),
        (0, (1000, 100, 1041, 141)),  # 0.98 pixels
        (0, (1000, 100, 1042, 142)),  # 1.008 pixels
        (1, (5, 5, 50, 50)),
    ]
    dataset = drawn(tmp_path / "data", boxes, sizes=[(4000, 500), (SIDE, SIDE)])
    run, _ = trained(dataset, tmp_path / "run", method=method, **WHOLE)
    ensure_sound(run)
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == [101, 103, 104]


@every_method
def test_boxes_that_leave_the_image_are_cut_and_those_outside_left_out(
    method: str, tmp_path: Path
) -> None:
    odd: list[tuple[int, Box]] = [
        (1, (-20, -30, 40, 45)),
        (1, (60, 60, 140, 1e7)),
        (2, (-10, -10, 200, 200)),  # around the whole image
        (2, (200, 200, 300, 300)),  # beside it
        (3, (-50, -50, -10, -10)),
        (3, (96, 10, 120, 40)),  # touches it
        (3, (50, 50, 20, 20)),  # turned inside out
        (3, (30, 30, 30, 60)),  # without width
    ]
    dataset = drawn(tmp_path / "data", [*USUAL, *odd])
    run, _ = trained(dataset, tmp_path / "run", method=method, **WHOLE)
    ensure_sound(run)
    assert ids_in_ledger(run, 0) == ids_in_ledger(run, 1) == list(range(100, 108))
    np.testing.assert_allclose(boxes_of(run.path, "noisy"), dataset.boxes[:8], rtol=1e-6)
    cut = dataset.boxes[:8].clip(0, SIDE)
    most = 1.0 if method == "disco" else 0.01  # pixels: it corrects boxes from the first step on
    np.testing.assert_allclose(boxes_of(run.path, "final", epoch=0), cut, atol=most)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_boxes_that_are_not_finite_are_left_out(value: float, tmp_path: Path) -> None:
    dataset = drawn(tmp_path / "data", USUAL)
    dataset.boxes[1, 2] = value
    run, _ = trained(dataset, tmp_path / "run", **WHOLE)
    ensure_sound(run)
    assert ids_in_ledger(run, 1) == [100, 102, 103, 104]


@pytest.mark.parametrize("method", MATCHING)
def test_boxes_without_a_candidate_stay_as_they_are(method: str, tmp_path: Path) -> None:
    """Two pixels in a corner: no anchor is as small, so nothing fits."""
    corners: list[tuple[int, Box]] = [(0, (0, 0, 2, 2)), (1, (94, 94, 96, 96)), (2, (0, 94, 2, 96))]
    dataset = drawn(tmp_path / "data", corners)
    run, _ = trained(dataset, tmp_path / "run", method=method, box_noise=0.4, **WHOLE)
    ensure_sound(run)
    assert column(run.path, "num_candidates").tolist() == [0, 0, 0]
    np.testing.assert_allclose(boxes_of(run.path, "matched"), dataset.boxes, atol=0.01)
    if method != "mend":  # whose vote asks for overlap, not for fit
        np.testing.assert_allclose(boxes_of(run.path, "final"), dataset.boxes, atol=0.01)


@pytest.mark.parametrize("method", MATCHING)
@pytest.mark.parametrize(("fit", "number"), [(0.0, 1), (2.0, 0)], ids=["one fits", "none fits"])
def test_exactly_one_candidate_or_none_at_all_trains_on(
    fit: float, number: int, method: str, tmp_path: Path
) -> None:
    dataset = drawn(tmp_path / "data", USUAL)
    run, _ = trained(
        dataset,
        tmp_path / "run",
        method=method,
        box_noise=0.4,
        mend=MendSettings(fit_threshold=fit, num_candidates=1),
        published=PublishedSettings(fit_threshold=fit, num_candidates=1),
        **WHOLE,
    )
    ensure_sound(run)
    assert column(run.path, "num_candidates").tolist() == [number] * len(USUAL)
    is_moved = np.abs(boxes_of(run.path, "matched") - dataset.boxes).max(-1) > 0.01
    assert is_moved.tolist() == [bool(number)] * len(USUAL)


@pytest.mark.parametrize("discarded", ["background", "ignore", "rpn_only"])
@pytest.mark.parametrize("method", ["pseudo", "mend"])
def test_images_whose_objects_are_all_discarded_train_on(
    method: str, discarded: Any, tmp_path: Path
) -> None:
    """No pseudo-label is surer than 1; where all labels are wrong, each of five may be right."""
    six = ("a", "b", "c", "d", "e", "f")
    dataset = drawn(tmp_path / "data", USUAL, labels=six)
    run, _ = trained(
        dataset,
        tmp_path / "run",
        method=method,
        label_noise=1.0,
        warm_up=0.0,
        mend=MendSettings(soft_labels=False, discarded=discarded),
        published=PublishedSettings(confidence=1.0, discarded=discarded),
        **WHOLE,
    )
    ensure_sound(run)
    for epoch in (0, 1):
        assert column(run.path, "verdict", epoch).tolist() == ["discarded"] * len(USUAL)
        assert not column(run.path, "is_kept", epoch).any()
    assert ids_in_ledger(run, 1) == dataset.annotation_ids.tolist()


@every_method
def test_crowds_and_difficult_objects_alone_train_on(method: str, tmp_path: Path) -> None:
    dataset = drawn(tmp_path / "data", USUAL)
    dataset.is_crowd[:3] = True
    dataset.is_difficult[3:] = True
    run, _ = trained(dataset, tmp_path / "run", method=method, **WHOLE)
    ensure_sound(run)
    assert ledger.read(run.path).num_rows == 0


def test_a_dataset_without_images_or_without_labels_is_refused(tmp_path: Path) -> None:
    dataset = drawn(tmp_path / "data", USUAL)
    with pytest.raises(DataError, match="no images"):
        trained(dataset.take_images(np.array([], np.int64)), tmp_path / "run")
    with pytest.raises(BoxmendError, match="at least one class"):
        trained(drawn(tmp_path / "data", [], labels=()), tmp_path / "other")
