"""What a Mender says about wrong input, and that it then goes on as before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend import BoxmendError, Mender, MenderSettings, Predictions, prescreen
from boxmend.data.types import Floats
from boxmend.errors import DataError, OutputError, UsageError
from tests.auditing.audit_scenes import SIZE
from tests.repair.mender.mender_scenes import (
    ONLY_ANNOTATED,
    Noise,
    Scene,
    mend,
    predictions_of,
    scene,
)


@pytest.fixture(scope="module")
def drawn() -> Scene:
    return scene(Noise(labels=0.3, boxes=0.2), images=120)


def changed(drawn: Scene, **columns: Any) -> Predictions:
    plain = predictions_of(drawn)
    own: dict[str, Any] = {
        "image_ids": plain.image_ids,
        "boxes": plain.boxes,
        "labels": drawn.detected.labels,
        "scores": plain.scores,
    }
    return Predictions(**(own | columns))


def started(drawn: Scene, out: Path) -> Mender:
    mender = Mender(drawn.dataset, out=out)
    mender.annotations()
    return mender


def test_names_that_the_dataset_does_not_have_are_named(drawn: Scene, tmp_path: Path) -> None:
    mender, number = started(drawn, tmp_path / "run"), len(drawn.detected.labels)
    for wrong, message in (
        (changed(drawn, image_ids=["elsewhere.jpg"] * number), r"'elsewhere.jpg'; not in the data"),
        (changed(drawn, labels=np.full(number, 7)), r"expected one of the 5 labels: 0 \(car\)"),
        (changed(drawn, labels=["zebra"] * number), r"'zebra'; expected one of the 5 labels"),
    ):
        with pytest.raises(DataError, match=message):
            mender.update(0, wrong)
    assert mender.num_updates == 0
    mender.update(0, predictions_of(drawn))


def test_labels_that_count_from_one_are_named(drawn: Scene, tmp_path: Path) -> None:
    mender, labels = started(drawn, tmp_path / "run"), drawn.detected.labels
    with pytest.raises(DataError, match="if they count from 1, subtract 1"):
        mender.update(0, changed(drawn, labels=labels + 1))
    with pytest.raises(DataError, match="leaves out the others"):
        mender.update(0, changed(drawn, labels=np.where(labels == 0, 7, labels)))


def test_classes_in_another_order_are_noticed(drawn: Scene, tmp_path: Path) -> None:
    rolled = changed(drawn, labels=(drawn.detected.labels + 1) % 5)
    with pytest.warns(UserWarning, match="worse than chance; check that their classes have the"):
        mender = mend(drawn.dataset, rolled, tmp_path / "run", ONLY_ANNOTATED)
    mender.annotations()
    assert any("of the labels or more" in note for note in mender.update(4, rolled).notes)
    right = mend(drawn.dataset, predictions_of(drawn), tmp_path / "right", ONLY_ANNOTATED)
    assert right.num_judging_updates > 0  # which would have warned


def test_arguments_of_another_type_are_named(drawn: Scene, tmp_path: Path) -> None:
    odd: Any = "data.yaml"
    with pytest.raises(UsageError, match=r"dataset is a str; expected boxmend\.load"):
        Mender(odd, out=tmp_path / "run")
    with pytest.raises(UsageError, match=r"settings is a str; expected boxmend\.MenderSettings"):
        Mender(drawn.dataset, odd, out=tmp_path / "run")
    with pytest.raises(UsageError, match=r"'default'; .*boxmend\.prescreen\(dataset, weights='def"):
        Mender(drawn.dataset, out=tmp_path / "run", prescreen="default")
    with pytest.raises(UsageError, match=r"dataset is a str; expected boxmend\.load"):
        prescreen(odd)
    assert not (tmp_path / "run").exists()


def test_a_state_of_another_folder_is_refused(drawn: Scene, tmp_path: Path) -> None:
    state = mend(drawn.dataset, predictions_of(drawn), tmp_path / "one").state_dict()
    other = Mender(drawn.dataset, out=tmp_path / "other")
    with pytest.raises(DataError, match="other: lacks results of the updates before this state"):
        other.load_state_dict(state)


def test_arrays_of_a_wrong_shape_or_without_numbers_are_refused(drawn: Scene) -> None:
    boxes = predictions_of(drawn).boxes
    bad = boxes.copy()
    bad[3, 1] = np.nan
    for column, message in (
        ({"boxes": bad}, r"predictions.boxes\[3\] is .*finite"),
        ({"boxes": boxes[:, :3]}, r"expected \(n, 4\)"),
        ({"scores": [0.5]}, r"predictions.scores has shape \(1,\)"),
    ):
        with pytest.raises(BoxmendError, match=message):
            changed(drawn, **column)


def test_updates_come_after_annotations_and_in_rising_order(drawn: Scene, tmp_path: Path) -> None:
    predictions = predictions_of(drawn)
    mender = Mender(drawn.dataset, out=tmp_path / "run")
    with pytest.raises(UsageError, match="before the first annotations"):
        mender.update(0, predictions)
    mender.annotations()
    mender.update(4, predictions)
    for epoch in (4, 3):
        with pytest.raises(UsageError, match=f"epoch {epoch} comes after epoch 4"):
            mender.update(epoch, predictions)
    wrong: list[Any] = [-1, 1.5, True, "6"]
    for number in wrong:
        with pytest.raises(UsageError, match="expected a whole number from 0 on"):
            mender.update(number, predictions)
    with pytest.raises(UsageError, match=r"expected boxmend\.Predictions"):
        mender.update(5, [{"boxes": []}])  # type: ignore[arg-type]
    assert mender.update(5, predictions).epoch == 5


def mirrored(boxes: Floats) -> Floats:
    return np.stack([SIZE - boxes[:, 2], boxes[:, 1], SIZE - boxes[:, 0], boxes[:, 3]], axis=1)


READINGS: dict[str, tuple[Callable[[Floats], Floats], str]] = {
    "mirrored": (mirrored, "mirrored horizontally"),
    "upside down": (
        lambda b: np.stack([b[:, 0], SIZE - b[:, 3], b[:, 2], SIZE - b[:, 1]], axis=1),
        "mirrored vertically",
    ),
    "input": (lambda b: b * 1.6, r"(divided by 1\.[567]|model input of about 6\d\d pixels)"),
    "shares": (lambda b: np.clip(b / SIZE, 0, 1), "shares of the image"),
    "rows first": (lambda b: b[:, [1, 0, 3, 2]], "y1, x1, y2, x2"),
}


@pytest.mark.parametrize("reading", READINGS)
def test_detections_of_augmented_images_are_noticed(
    drawn: Scene, tmp_path: Path, reading: str
) -> None:
    change, words = READINGS[reading]
    fast = ONLY_ANNOTATED
    mender = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run", fast, updates=3)
    before = mender.annotations()
    with pytest.raises(DataError, match=rf"{words}.*predict on the training images as stored"):
        mender.update(3, changed(drawn, boxes=change(predictions_of(drawn).boxes)))
    assert mender.annotations() is before
    assert mender.last_epoch == 2


def test_images_that_are_mirrored_at_random_are_noticed(drawn: Scene, tmp_path: Path) -> None:
    boxes = predictions_of(drawn).boxes
    flipped = (drawn.detected.image_rows % 2 == 0)[:, None]
    mixed = np.where(flipped, mirrored(boxes), boxes)
    with pytest.raises(DataError, match=r"mirrored horizontally.*% of the images"):
        started(drawn, tmp_path / "run").update(0, changed(drawn, boxes=mixed))


def test_detections_of_other_images_change_nothing_at_first_and_are_refused_later(
    drawn: Scene, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    n = len(drawn.detected.labels)
    low = random.random((n, 2)) * 340
    elsewhere = changed(drawn, boxes=np.concatenate([low, low + 30], axis=1))
    mender = started(drawn, tmp_path / "run")
    with pytest.warns(UserWarning, match="fit the annotations of other images as well"):
        update = mender.update(0, elsewhere)
    assert update.num_judged == 0
    assert update.notes[-1].startswith("WARNING: the detections fit")
    for epoch in (1, 2, 3):
        mender.update(epoch, predictions_of(drawn))
    with pytest.raises(DataError, match="check that image ids and boxes are in the same order"):
        mender.update(4, elsewhere)


def test_an_update_without_detections_changes_nothing(drawn: Scene, tmp_path: Path) -> None:
    mender = started(drawn, tmp_path / "run")
    nothing = Predictions([], np.zeros((0, 4)), [], [])
    with pytest.warns(UserWarning, match="there is no detection"):
        mender.update(0, nothing)
    assert mender.num_updates == 1
    assert (mender.annotations().labels == drawn.dataset.labels).all()


def test_folders_in_use_are_refused(drawn: Scene, tmp_path: Path) -> None:
    mender = started(drawn, tmp_path / "run")
    with pytest.raises(OutputError, match=r"unfinished run.*resume=True.*only the process of rank"):
        Mender(drawn.dataset, out=tmp_path / "run")
    with pytest.raises(OutputError, match=r"another process is writing.*only the process of rank"):
        Mender(drawn.dataset, out=tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match="no update"):
        mender.finish()
    mender.update(0, predictions_of(drawn))
    mender.finish()
    for again in (mender.finish, mender.state_dict, lambda: mender.update(1, None)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="the run is finished"):
            again()
    with pytest.raises(OutputError, match="has a finished run"):
        Mender(drawn.dataset, out=tmp_path / "run", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        Mender(drawn.dataset, out=tmp_path / "other")


def test_annotations_that_share_an_id_are_refused(drawn: Scene, tmp_path: Path) -> None:
    ids = drawn.dataset.annotation_ids.copy()
    ids[5] = ids[4]
    with pytest.raises(UsageError, match=r"share the id 5; see `boxmend check`"):
        Mender(replace(drawn.dataset, annotation_ids=ids), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_prescreen_that_does_not_fit_is_refused(drawn: Scene, tmp_path: Path) -> None:
    n = len(drawn.dataset)
    high = np.full((n, 5), 0.2)
    high[7, 0] = 0.9
    for wrong, message in (
        (np.ones((n, 4)), rf"prescreen has shape \({n}, 4\); expected \({n}, 5\)"),
        (high, r"prescreen\[7\] is .*add up to 1"),
    ):
        with pytest.raises(BoxmendError, match=message):
            Mender(drawn.dataset, out=tmp_path / "run", prescreen=wrong)


def test_states_that_do_not_fit_are_refused(drawn: Scene, tmp_path: Path) -> None:
    state = mend(drawn.dataset, predictions_of(drawn), tmp_path / "one", updates=2).state_dict()
    other = replace(drawn.dataset, labels=(drawn.dataset.labels + 1) % 5)
    with pytest.raises(DataError, match="belongs to another dataset"):
        Mender(other, out=tmp_path / "two").load_state_dict(state)
    mender = Mender(drawn.dataset, out=tmp_path / "three")
    for name, message in (
        ("num_updates", "the state has no 'num_updates'"),
        ("beliefs.memory.evidence", r"has no 'beliefs\.memory\.evidence'"),
    ):
        with pytest.raises(UsageError, match=message):
            mender.load_state_dict({key: value for key, value in state.items() if key != name})
    with pytest.raises(UsageError, match=r"evidence of the state has shape \(480, 3\)"):
        mender.load_state_dict({**state, "beliefs.memory.evidence": np.zeros((480, 3))})
    assert mender.num_updates == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("missing", "drop", "missing is 'drop'"),
        ("label_noise", 1.5, "label_noise is 1.5"),
        ("min_agreement", -1, "min_agreement is -1"),
        ("warm_up_updates", -1, "warm_up_updates is -1"),
        ("min_sightings", 0, "min_sightings is 0"),
    ],
)
def test_settings_out_of_range_are_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MenderSettings(**{name: value})
