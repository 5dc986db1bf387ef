"""Checks, statistics and repairs on datasets made by hand; boxes are xyxy pixels."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from boxmend.checks import check, repair, statistics
from boxmend.dataset import UNKNOWN, Dataset, Images, Source, as_ids, join
from boxmend.findings import Finding

NAN, INF = math.nan, math.inf
LABELS = ("cat", "dog")
BOX_ERRORS = {"box-not-finite", "box-flipped", "box-empty", "box-outside"}
INSIDE = (10.0, 20.0, 30.0, 50.0)


class Folder(Source):
    """A source with one document per image, named by the row."""

    def document(self, row: int) -> Path:
        return self.path / f"{row}.doc"


def dataset_of(
    boxes: Sequence[Sequence[float]] = (),
    labels: Sequence[int] | None = None,
    image_rows: Sequence[int] | None = None,
    *,
    sizes: Sequence[tuple[int, int]] = ((100, 80),),
    format: str = "coco",
    label_names: tuple[str, ...] = LABELS,
) -> Dataset:
    """A dataset of annotations 101, 102, ... in images 0.jpg, 1.jpg, ..."""
    n, m = len(boxes), len(sizes)
    columns = np.array(boxes, np.float64).reshape(n, 4)
    marks = np.zeros(n, np.int64) if labels is None else np.array(labels, np.int64)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(m))),
            file_names=[f"{k}.jpg" for k in range(m)],
            paths=[""] * m,
            splits=["train"] * m,
            widths=np.array([w for w, _ in sizes], np.int64),
            heights=np.array([h for _, h in sizes], np.int64),
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=label_names,
        annotation_ids=as_ids([101 + k for k in range(n)]),
        image_rows=np.array([0] * n if image_rows is None else image_rows, np.int64),
        labels=marks,
        boxes=columns,
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(Folder(format, Path("data"), label_names, columns.copy(), marks.copy()),),
    )


def with_files(dataset: Dataset, *paths: Path | str) -> Dataset:
    return replace(dataset, images=replace(dataset.images, paths=[str(path) for path in paths]))


def found(dataset: Dataset, *kinds: str, open_images: bool = False) -> list[Finding]:
    findings = check(dataset, open_images=open_images)
    return [finding for finding in findings if finding.kind in kinds]


def kinds(findings: Sequence[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


# Boxes


def test_a_clean_dataset_has_no_findings():
    assert check(dataset_of([INSIDE, (0, 0, 100, 80)], [0, 1]), open_images=False) == []


def test_an_empty_dataset_is_checked_counted_and_repaired():
    nothing = dataset_of(sizes=(), label_names=())
    assert check(nothing) == []
    assert statistics(nothing)["images"] == 0
    assert repair(nothing)[1] == []


@pytest.mark.parametrize(
    ("box", "kind", "told"),
    [
        ((30, 20, 10, 50), "box-flipped", "box (30, 20, 10, 50) ends before"),
        ((10, 50, 30, 20), "box-flipped", "box (10, 50, 30, 20) ends before"),
        ((10, 20, 10, 50), "box-empty", "zero width"),
        ((10, 20, 30, 20), "box-empty", "zero height"),
        ((10, 20, 10, 20), "box-empty", "zero width and zero height"),
        ((NAN, 20, 30, 50), "box-not-finite", "box (nan, 20, 30, 50)"),
        ((10, 20, INF, 50), "box-not-finite", "box (10, 20, inf, 50)"),
        ((-2.5, 20, 30, 50), "box-outside", "(100 x 80): 2.5 px on the left"),
        ((10, -1, 30, 50), "box-outside", "1 px at the top"),
        ((10, 20, 104, 50), "box-outside", "4 px on the right"),
        ((10, 20, 30, 80.25), "box-outside", "0.25 px at the bottom"),
        ((-3, 20, 104, 50), "box-outside", "3 px on the left, 4 px on the right"),
        ((-1e308, 20, 1e308, 50), "box-outside", "1e+308 px on the left"),
    ],
)
def test_a_faulty_box_is_told_once_with_its_numbers_and_its_place(box, kind, told):
    (finding,) = found(dataset_of([INSIDE, box], [0, 1]), *BOX_ERRORS)
    assert finding.kind == kind
    assert told in finding.message
    assert (finding.annotation_id, finding.image) == (102, "0.jpg")
    assert finding.file == str(Path("data/0.doc"))


def test_a_twentieth_of_a_pixel_outside_is_tolerated_and_more_is_not():
    assert found(dataset_of([(-0.05, -0.05, 100.05, 80.05)]), *BOX_ERRORS) == []
    assert kinds(found(dataset_of([(-0.06, 0, 100, 80)]), *BOX_ERRORS)) == ["box-outside"]


@pytest.mark.parametrize("size", [(0, 0), (0, 80), (100, 0)])
def test_nothing_is_outside_an_image_of_unknown_size(size):
    assert found(dataset_of([(-5, 0, 500, 90)], sizes=[size]), *BOX_ERRORS) == []


def test_nothing_is_outside_an_image_that_does_not_exist():
    dataset = dataset_of([(-5, 0, 500, 90)], image_rows=[UNKNOWN])
    assert found(dataset, *BOX_ERRORS) == []
    (finding,) = found(dataset_of([(3, 0, 1, 9)], image_rows=[UNKNOWN]), *BOX_ERRORS)
    assert (finding.kind, finding.image) == ("box-flipped", None)


def test_each_box_is_held_against_its_own_image():
    boxes = [(0, 0, 60, 60), (0, 0, 60, 60)]
    dataset = dataset_of(boxes, image_rows=[0, 1], sizes=[(60, 60), (50, 60)])
    (finding,) = found(dataset, *BOX_ERRORS)
    assert (finding.annotation_id, finding.image) == (102, "1.jpg")
    assert finding.file == str(Path("data/1.doc"))


def test_voc_with_a_coordinate_of_zero_is_told_that_voc_counts_from_one():
    box = (-1, 3, 20, 30)  # xmin 0
    assert (
        "VOC counts pixels from 1"
        in found(dataset_of([box], format="voc"), "box-outside")[0].message
    )
    assert "VOC" not in found(dataset_of([box]), "box-outside")[0].message
    further = dataset_of([(-2, 3, 20, 30)], format="voc")
    assert "VOC" not in found(further, "box-outside")[0].message


def test_crowd_boxes_are_checked_too():
    dataset = replace(dataset_of([(5, 5, 1, 9)]), is_crowd=np.array([True]))
    assert kinds(found(dataset, *BOX_ERRORS)) == ["box-flipped"]


def test_what_the_reader_told_comes_first_and_is_not_told_again():
    told = Finding("box-not-finite", "bbox is 'x'", str(Path("data/0.doc")), None, 101)
    dataset = replace(dataset_of([[NAN] * 4, [NAN] * 4]), findings=(told,))
    findings = found(dataset, *BOX_ERRORS)
    assert findings[0] is told
    assert [finding.annotation_id for finding in findings] == [101, 102]


def test_names_that_are_no_names_are_replaced_by_the_image_id():
    dataset = dataset_of([(5, 5, 1, 9)])
    dataset.images.file_names[0] = ""
    assert found(dataset, "box-flipped")[0].image == "0"


# Duplicate boxes, bare images, rare labels


def test_the_same_box_twice_names_both_ids_and_whether_the_labels_agree():
    dataset = dataset_of([INSIDE, (1, 2, 3, 4), INSIDE, INSIDE], [0, 0, 0, 1])
    same, other = found(dataset, "duplicate-box")
    assert (same.annotation_id, other.annotation_id) == (103, 104)
    assert "as annotation 101 and the same label, 'cat'" in same.message
    assert "as annotation 101 but another label: 'dog' here, 'cat' there" in other.message
    assert "(10, 20, 30, 50)" in same.message


def test_the_same_box_in_another_image_or_of_a_crowd_is_no_duplicate():
    dataset = dataset_of([INSIDE, INSIDE], image_rows=[0, 1], sizes=[(100, 80), (100, 80)])
    assert found(dataset, "duplicate-box") == []
    crowd = replace(dataset_of([INSIDE, INSIDE]), is_crowd=np.array([False, True]))
    assert found(crowd, "duplicate-box") == []
    nowhere = dataset_of([INSIDE, INSIDE], image_rows=[UNKNOWN, UNKNOWN])
    assert found(nowhere, "duplicate-box") == []
    assert found(dataset_of([[NAN] * 4, [NAN] * 4]), "duplicate-box") == []


def test_zero_and_minus_zero_are_the_same_coordinate():
    dataset = dataset_of([(0.0, 0.0, 5.0, 5.0), (-0.0, 0.0, 5.0, 5.0)])
    assert len(found(dataset, "duplicate-box")) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([5.0, 6.5])), max_size=25
    )
)
def test_duplicates_are_those_that_a_plain_search_finds(entries):
    boxes = [(float(x), 0.0, end, 7.0) for _, x, end in entries]
    images = [image for image, _, _ in entries]
    dataset = dataset_of(boxes, image_rows=images, sizes=[(100, 80)] * 3)
    keys = list(zip(images, boxes, strict=True))
    expected = [101 + k for k, key in enumerate(keys) if key in keys[:k]]
    assert [one.annotation_id for one in found(dataset, "duplicate-box")] == expected


def test_every_image_without_annotations_is_told():
    dataset = dataset_of([INSIDE], image_rows=[1], sizes=[(100, 80)] * 3)
    findings = found(dataset, "no-annotations")
    assert [finding.image for finding in findings] == ["0.jpg", "2.jpg"]
    assert findings[1].file == str(Path("data/2.doc"))


def test_a_label_without_annotations_is_told():
    (finding,) = found(dataset_of([INSIDE]), "class-imbalance")
    assert finding.message == "label 'dog' has no annotations"
    assert finding.file == "data"


def test_a_label_is_rare_when_another_is_more_than_a_hundred_times_as_frequent():
    boxes = [(k, 0, k + 1, 1) for k in range(102)]
    at_the_limit = dataset_of(boxes[:101], [0] * 100 + [1], sizes=[(200, 80)])
    assert found(at_the_limit, "class-imbalance") == []
    (finding,) = found(dataset_of(boxes, [0] * 101 + [1]), "class-imbalance")
    assert finding.message == "label 'dog' has 1 annotation, 'cat' has 101: 101 times as many"


def test_a_label_is_blamed_on_the_source_that_declares_it():
    one = dataset_of([INSIDE], label_names=("cat",))
    two = dataset_of([], label_names=("newt",))
    two.sources[0].path = Path("other")
    (finding,) = found(join([one, two]), "class-imbalance")
    assert finding.file == "other"


def test_unknown_labels_are_not_counted():
    (finding,) = found(dataset_of([INSIDE, (1, 1, 2, 2)], [0, UNKNOWN]), "class-imbalance")
    assert "'dog'" in finding.message


# Images


def save(path: Path, size: tuple[int, int] = (100, 80), **options: object) -> Path:
    gradient = Image.linear_gradient("L").resize(size)
    gradient.save(path, **options)
    return path


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def image_kinds(dataset: Dataset) -> list[tuple[str, str | None]]:
    skipped = {"no-annotations", "class-imbalance"}
    findings = check(dataset, jobs=1)
    return [(one.kind, one.image) for one in findings if one.kind not in skipped]


def test_whole_images_of_the_recorded_size_give_no_findings(tmp_path):
    dataset = with_files(dataset_of([INSIDE]), save(tmp_path / "0.jpg"))
    assert image_kinds(dataset) == []


def test_missing_unreadable_and_truncated_images_are_told(tmp_path):
    whole = save(tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_bytes(b"not an image")
    paths = [tmp_path / name for name in ("gone.jpg", "text.jpg", "cut.jpg")]
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 3), *paths)
    expected = ["missing-image", "unreadable-image", "truncated-image"]
    assert image_kinds(dataset) == [(kind, f"{k}.jpg") for k, kind in enumerate(expected)]
    (finding,) = found(dataset, "missing-image", open_images=True)
    assert finding.message == f"{paths[0]}: no such file"
    assert finding.file == str(Path("data/0.doc"))


@pytest.mark.parametrize("file", [str(Path("data/0.doc")), "data", "nowhere/0.jpg"])
def test_an_image_the_reader_told_missing_is_not_told_again(file):
    dataset = with_files(dataset_of(), "nowhere/0.jpg")
    told = Finding("missing-image", "not there", file, "0.jpg")
    assert image_kinds(replace(dataset, findings=(told,))) == [("missing-image", "0.jpg")]
    other = replace(told, file="another/place")
    assert len(image_kinds(replace(dataset, findings=(other,)))) == 2


def test_images_without_a_path_are_not_opened():
    assert image_kinds(with_files(dataset_of(), "")) == []


def test_no_image_is_opened_unless_asked_for():
    assert found(with_files(dataset_of(), "nowhere.jpg"), "missing-image") == []


def test_a_size_that_differs_is_told_with_both_sizes(tmp_path):
    dataset = with_files(dataset_of(), save(tmp_path / "0.png", (90, 80)))
    (finding,) = found(dataset, "size-differs", open_images=True)
    assert finding.message.endswith("recorded as 100 x 80, the file is 90 x 80")
    unknown = with_files(dataset_of(sizes=[(0, 0)]), tmp_path / "0.png")
    assert image_kinds(unknown) == []


def test_exchanged_width_and_height_are_blamed_on_exif_only_where_it_turns(tmp_path):
    exif = {6: turned(6), 3: turned(3)}
    for orientation, words in ((6, "(EXIF orientation 6)"), (3, "width and height are exchanged")):
        path = save(tmp_path / f"{orientation}.jpg", (80, 100), exif=exif[orientation])
        (finding,) = found(with_files(dataset_of(), path), "size-differs", open_images=True)
        assert words in finding.message


def test_exif_rotation_is_told_with_what_viewers_do(tmp_path):
    path = save(tmp_path / "0.jpg", exif=turned(8))
    dataset = with_files(dataset_of(), path)
    (finding,) = found(dataset, "exif-rotation", open_images=True)
    assert "EXIF orientation 8; viewers turn it by 90 degrees counterclockwise" in finding.message
    upright = with_files(dataset_of(), save(tmp_path / "1.jpg", exif=turned(1)))
    assert image_kinds(upright) == []


@pytest.mark.parametrize("orientation", range(2, 9))
def test_what_viewers_do_is_what_pillow_does(orientation, tmp_path):
    operations = {
        2: ["left to right"],
        3: ["180"],
        4: ["top to bottom"],
        5: ["90 degrees clockwise", "left to right"],
        6: ["90 degrees clockwise"],
        7: ["90 degrees counterclockwise", "left to right"],
        8: ["90 degrees counterclockwise"],
    }
    methods = {
        "left to right": Image.Transpose.FLIP_LEFT_RIGHT,
        "top to bottom": Image.Transpose.FLIP_TOP_BOTTOM,
        "180": Image.Transpose.ROTATE_180,
        "90 degrees clockwise": Image.Transpose.ROTATE_270,
        "90 degrees counterclockwise": Image.Transpose.ROTATE_90,
    }
    image = Image.frombytes("L", (3, 2), bytes(range(6)))
    expected = image
    for words in operations[orientation]:
        expected = expected.transpose(methods[words])
    image.getexif()[0x0112] = orientation
    assert ImageOps.exif_transpose(image).tobytes() == expected.tobytes()
    path = save(tmp_path / "0.jpg", exif=turned(orientation))
    (finding,) = found(with_files(dataset_of(), path), "exif-rotation", open_images=True)
    assert all(words in finding.message for words in operations[orientation])


def test_the_same_content_twice_names_both_images_and_their_splits(tmp_path):
    first = save(tmp_path / "first.png")
    for name in ("second.png", "third.png"):
        (tmp_path / name).write_bytes(first.read_bytes())
    other = save(tmp_path / "other.png", (100, 80), compress_level=0)
    paths = [first, other, tmp_path / "second.png", tmp_path / "third.png"]
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 4), *paths)
    dataset.images.splits[3] = "val"
    second, third = found(dataset, "duplicate-image", open_images=True)
    assert (second.image, third.image) == ("2.jpg", "3.jpg")
    assert f"same content as 0.jpg ({first}), both in split 'train'" in second.message
    assert "across splits: this one is in 'val', that one in 'train'" in third.message


def test_one_file_listed_by_two_sources_is_a_duplicate_across_sources(tmp_path):
    dataset = with_files(dataset_of(), save(tmp_path / "0.png"))
    (finding,) = found(join([dataset, dataset]), "duplicate-image", open_images=True)
    assert "of another source: " in finding.message


def test_empty_files_are_not_called_duplicates(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
    dataset = with_files(dataset_of(sizes=[(1, 1)] * 2), tmp_path / "a", tmp_path / "b")
    assert [kind for kind, _ in image_kinds(dataset)] == ["unreadable-image"] * 2


def test_progress_counts_distinct_files(tmp_path):
    path = save(tmp_path / "0.png")
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 2), path, path)
    ticks: list[tuple[int, int]] = []
    check(dataset, progress=lambda done, n: ticks.append((done, n)))
    assert ticks == [(1, 1)]


# Statistics


def test_statistics_are_the_hand_counted_numbers():
    boxes = [
        (0, 0, 31, 33),  # 1023: small
        (0, 0, 32, 32),  # 1024: medium
        (0, 0, 96, 96),  # 9216: large
        (0, 0, 10, 200),  # 2000: medium
        (5, 5, 5, 9),  # empty: no size
        (NAN, 0, 1, 1),
    ]
    dataset = dataset_of(
        boxes, [0, 0, 1, 0, UNKNOWN, 1], [0, 0, 0, 1, 1, UNKNOWN], sizes=[(1, 1)] * 3
    )
    dataset.is_crowd[2] = True
    dataset.is_difficult[:2] = True
    dataset.images.splits[:] = ["train", "val", "val"]
    assert statistics(dataset) == {
        "formats": ["coco"],
        "images": 3,
        "annotations": 6,
        "crowd": 1,
        "difficult": 2,
        "images_without_annotations": 1,
        "annotations_per_image": {"mean": 5 / 3, "max": 3},
        "labels": {"cat": {"annotations": 3, "images": 2}, "dog": {"annotations": 2, "images": 1}},
        "boxes": {
            "median_width": 31.5,
            "median_height": 64.5,
            "small": 0.25,
            "medium": 0.5,
            "large": 0.25,
        },
        "splits": {
            "train": {"images": 1, "annotations": 3},
            "val": {"images": 2, "annotations": 2},
        },
    }


def test_statistics_of_nothing_have_no_medians():
    numbers = statistics(dataset_of())
    assert numbers["boxes"]["median_width"] is None
    assert numbers["annotations_per_image"] == {"mean": 0.0, "max": 0}


def test_labels_of_the_same_name_count_as_one():
    dataset = dataset_of([INSIDE, (1, 1, 2, 2)], [0, 1], label_names=("cat", "cat"))
    assert statistics(dataset)["labels"] == {"cat": {"annotations": 2, "images": 1}}


# Repairs


@pytest.mark.parametrize(
    ("box", "clipped"),
    [
        ((-5, 20, 30, 50), (0, 20, 30, 50)),
        ((10, -5, 30, 500), (10, 0, 30, 80)),
        ((-1e308, -1, 1e308, 81), (0, 0, 100, 80)),
        ((99.9, 20, 120, 50), (99.9, 20, 100, 50)),
        ((90, 20, 101, 20.01), (90, 20, 100, 20.01)),  # flat as it was, but not by clipping
    ],
)
def test_a_box_that_reaches_outside_is_clipped(box, clipped):
    repaired, (done,) = repair(dataset_of([box]))
    assert repaired.boxes.tolist() == [list(map(float, clipped))]
    assert (done.action, done.annotation_id) == ("clipped", 101)
    assert done.file == str(Path("data/0.doc"))
    assert " clipped to (" in done.message


def test_the_message_of_a_repair_names_the_old_and_the_new_box():
    _, (done,) = repair(dataset_of([(-5, 20, 30, 50.5)]))
    assert done.message == "box (-5, 20, 30, 50.5) clipped to (0, 20, 30, 50.5)"


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ((NAN, 20, 30, 50), "not finite"),
        ((30, 20, 10, 50), "ends before"),
        ((10, 20, 10, 50), "no area"),
        ((100, 20, 130, 50), "nothing of it lies inside"),
        ((99.96, 20, 130, 50), "nothing of it lies inside"),  # less left than the tolerance
        ((200, 200, 230, 250), "nothing of it lies inside"),
    ],
)
def test_a_box_without_area_is_dropped(box, reason):
    repaired, (done,) = repair(dataset_of([INSIDE, box, INSIDE]))
    assert repaired.annotation_ids.tolist() == [101, 103]
    assert repaired.source_rows.tolist() == [0, 2]
    assert (done.action, done.annotation_id) == ("dropped", 102)
    assert reason in done.message


def test_what_is_right_or_cannot_be_decided_stays_as_it_is():
    boxes = [(-0.05, 0, 100.05, 80), (-7, 0, 900, 9), (-7, 0, 900, 9), INSIDE, INSIDE]
    dataset = dataset_of(
        boxes, [0, 0, 0, UNKNOWN, 1], [0, 1, UNKNOWN, 0, 0], sizes=[(100, 80), (0, 0)]
    )
    repaired, repairs = repair(dataset)
    assert repairs == []
    assert repaired.boxes.tobytes() == dataset.boxes.tobytes()
    assert repaired.labels.tolist() == dataset.labels.tolist()


def test_crowd_and_difficult_boxes_are_repaired_too():
    dataset = dataset_of([(-5, 0, 9, 9), (5, 5, 5, 5)])
    dataset.is_crowd[:] = True
    dataset.is_difficult[:] = True
    assert [one.action for one in repair(dataset)[1]] == ["clipped", "dropped"]


def test_findings_about_dropped_annotations_go_and_others_stay():
    gone = Finding("box-not-finite", "bad", "data/0.doc", None, 102)
    gone_too = Finding("unknown-category", "what?", "data/0.doc", None, 102)
    stays = Finding("unknown-category", "what?", "data/0.doc", None, 101)
    general = Finding("malformed", "odd", "data/0.doc")
    dataset = replace(dataset_of([INSIDE, [NAN] * 4]), findings=(gone, gone_too, stays, general))
    assert repair(dataset)[0].findings == (stays, general)
    twins = replace(dataset, annotation_ids=as_ids([102, 102]))
    assert repair(twins)[0].findings == (gone_too, stays, general)


sides = st.one_of(
    st.floats(-30, 150), st.sampled_from([0.0, -0.05, 80.05, 100.0, 99.96, 1e308, -1e308, NAN, INF])
)
boxes = st.lists(st.tuples(sides, sides, sides, sides), max_size=12)
sizes = st.sampled_from([(100, 80), (1, 1), (0, 0), (0, 5)])


@settings(max_examples=150, deadline=None)
@given(boxes=boxes, sizes=st.tuples(sizes, sizes), data=st.data())
def test_after_repair_no_box_error_is_left_and_the_input_is_as_it_was(boxes, sizes, data):
    rows = data.draw(st.lists(st.integers(-1, 1), min_size=len(boxes), max_size=len(boxes)))
    dataset = dataset_of(boxes, image_rows=rows, sizes=sizes)
    before = dataset.boxes.tobytes()
    faulty = {one.annotation_id for one in found(dataset, *BOX_ERRORS)}
    repaired, repairs = repair(dataset)
    assert found(repaired, *BOX_ERRORS) == []
    assert {one.annotation_id for one in repairs} == faulty
    dropped = sum(one.action == "dropped" for one in repairs)
    assert len(repaired) == len(dataset) - dropped
    assert dataset.boxes.tobytes() == before
    untouched = [k for k, one in enumerate(repaired.annotation_ids) if one not in faulty]
    for k in untouched:
        original = repaired.source_rows[k]
        assert repaired.boxes[k].tobytes() == dataset.boxes[original].tobytes()
    json.dumps(statistics(dataset), allow_nan=False)
