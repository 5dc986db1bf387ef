"""The truth of a dataset, from the file of `boxmend noise` and from the clean dataset."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, Origin, Truth, disturb, write_noisy
from boxmend.data.noise.truth import write_truth
from boxmend.errors import DataError, UsageError
from boxmend.scoring.corrections import KnownTruth, known_truth
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated

A, B, C = (10.0, 10.0, 30.0, 30.0), (40.0, 40.0, 60.0, 70.0), (5.0, 50.0, 25.0, 90.0)
NONE = (np.nan,) * 4


def make_truth_file(  # noqa: PLR0913  # the columns of the file
    path: Path,
    ids: Sequence[int | str],
    labels: Sequence[int],
    boxes: Sequence[tuple[float, ...]],
    *,
    origins: Sequence[Origin] | None = None,
    sources: Sequence[int | str] | None = None,
    names: tuple[str, ...] = ("van", "truck", "bus"),
) -> Path:
    """Write a truth file with these rows and return its path."""
    n = len(ids)
    origin = np.array(origins or [Origin.KEPT] * n, np.int8)
    ours, theirs = (np.array(one, object) for one in (ids, sources or ids))
    whole = all(isinstance(annotation_id, int) for annotation_id in [*ids, *(sources or ids)])
    truth = Truth(
        label_names=names,
        annotation_ids=ours.astype(np.int64) if whole else ours,
        source_ids=theirs.astype(np.int64) if whole else theirs,
        labels=np.array(labels, np.int64),
        boxes=np.array(boxes, np.float64).reshape(n, 4),
        label_changed=np.zeros(n, np.bool_),
        box_changed=np.zeros(n, np.bool_),
        origins=origin,
    )
    write_truth(truth, path)
    return path


def write_noisy_pair(clean: Path, out: Path, **noise: object) -> tuple[Dataset, Dataset]:
    """The clean dataset, and a noisy one made of it in its format."""
    dataset = load(str(clean))
    settings = NoiseSettings(**noise)  # type: ignore[arg-type]
    write_noisy(disturb(dataset, settings), settings, out, WriteOptions())
    return dataset, load(str(out))


@pytest.fixture(scope="module", params=["coco", "voc", "yolo"])
def clean(
    request: pytest.FixtureRequest, toys: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The drawn dataset in each of the formats."""
    out: Path = tmp_path_factory.mktemp("clean") / request.param
    load(f"{toys}:train").save(out, format=request.param, images_as="copy", allow_lossy=True)
    return out


def test_labels_are_translated_by_name_and_rows_found_by_id(tmp_path: Path) -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=[7, 3])  # van 0, truck 1, bus 2
    names = ("bus", "van", "tram", "truck")  # in the file: van is 1, truck 3
    path = make_truth_file(tmp_path / "truth.parquet", [3, 7], [3, 1], [B, A], names=names)
    truth = known_truth(path, dataset)
    assert truth.labels.tolist() == [VAN, TRUCK]
    assert truth.boxes.tolist() == [list(A), list(B)]
    assert truth.is_wrong(dataset.labels).tolist() == [False, True]
    assert not truth.is_spurious.any()


def test_a_true_label_that_the_dataset_does_not_know_makes_any_label_wrong(tmp_path: Path) -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=[7, 3])
    path = make_truth_file(
        tmp_path / "truth.parquet", [7, 3], [0, 1], [A, B], names=("van", "tram")
    )
    truth = known_truth(path, dataset)
    assert truth.labels.tolist() == [VAN, UNKNOWN]
    assert truth.is_wrong(dataset.labels).tolist() == [False, True]
    assert not truth.is_spurious.any()  # there is an object


def test_the_folder_of_the_file_will_do_and_so_will_a_split_of_it(tmp_path: Path) -> None:
    dataset = annotated([A], [VAN], ids=[7])
    make_truth_file(tmp_path / "truth.parquet", [7], [BUS], [A])
    for source in (tmp_path, str(tmp_path), f"{tmp_path}:train", tmp_path / "truth.parquet"):
        assert known_truth(source, dataset).labels.tolist() == [BUS]


def test_spurious_annotations_have_no_truth_and_duplicates_that_of_their_original(
    tmp_path: Path,
) -> None:
    dataset = annotated([A, B, A], [VAN, BUS, VAN], ids=[1, 2, 3])
    path = make_truth_file(
        tmp_path / "truth.parquet",
        [1, 2, 3],
        [VAN, UNKNOWN, VAN],
        [A, NONE, A],
        origins=[Origin.KEPT, Origin.SPURIOUS, Origin.DUPLICATE],
        sources=[1, 0, 1],
    )
    truth = known_truth(path, dataset)
    assert truth.is_spurious.tolist() == [False, True, False]
    assert truth.labels.tolist() == [VAN, UNKNOWN, VAN]
    assert np.isnan(truth.boxes[1]).all()
    assert truth.boxes[2].tolist() == list(A)
    assert truth.image_boxes.tolist() == [list(A)]  # once, though two annotations are of it


def test_a_spurious_annotation_has_no_label_whatever_the_file_says(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1], [BUS], [A], origins=[Origin.SPURIOUS])
    truth = known_truth(path, annotated([A], [BUS], ids=[1]))
    assert truth.labels.tolist() == [UNKNOWN]
    assert np.isnan(truth.boxes).all()
    assert len(truth.image_boxes) == 0


def test_the_file_may_tell_of_more_annotations_than_there_are(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1, 2, 3], [VAN, BUS, TRUCK], [A, B, C])
    truth = known_truth(path, annotated([C, A], [VAN, VAN], ids=[3, 1]))
    assert truth.labels.tolist() == [TRUCK, VAN]
    assert truth.image_boxes.tolist() == [list(C), list(A)]


def test_crowds_are_no_true_boxes_to_be_found(tmp_path: Path) -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=[1, 2])
    dataset = replace(dataset, is_crowd=np.array([False, True]))
    truth = known_truth(
        make_truth_file(tmp_path / "truth.parquet", [1, 2], [VAN, BUS], [A, B]), dataset
    )
    assert truth.image_boxes.tolist() == [list(A)]


@pytest.mark.parametrize(
    "ids",
    [["a", "b"], ["img/1:0", "img/1:1"], [1, "x"], ["caf\udcc3\udca9", "b\ud800"]],
    ids=["names", "places", "mixed", "no valid text"],
)
def test_ids_may_be_texts_even_odd_ones(tmp_path: Path, ids: list[int | str]) -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=ids)
    path = make_truth_file(tmp_path / "truth.parquet", [*reversed(ids)], [TRUCK, VAN], [B, A])
    assert known_truth(path, dataset).labels.tolist() == [VAN, TRUCK]


def test_missing_annotations_are_known_if_their_id_names_the_image(tmp_path: Path) -> None:
    dataset = annotated([A, B], [VAN, BUS], images=[0, 1], ids=["1:0", "2:0"])  # images 1 and 2
    path = make_truth_file(
        tmp_path / "truth.parquet",
        ["1:0", "2:0", ""],
        [VAN, BUS, VAN],
        [A, B, C],
        origins=[Origin.KEPT, Origin.KEPT, Origin.MISSING],
        sources=["1:0", "2:0", "2:1"],
    )
    truth = known_truth(path, dataset)
    assert truth.image_rows.tolist() == [0, 1, 1]
    assert truth.image_boxes.tolist() == [list(A), list(B), list(C)]


def test_missing_annotations_are_left_out_if_no_id_names_their_image(
    tmp_path: Path,
) -> None:
    dataset = annotated([A], [VAN], ids=[1])
    path = make_truth_file(
        tmp_path / "truth.parquet",
        [1, 0],
        [VAN, BUS],
        [A, C],
        origins=[Origin.KEPT, Origin.MISSING],
        sources=[1, 2],
    )
    assert known_truth(path, dataset).image_boxes.tolist() == [list(A)]


def assert_same(one: KnownTruth, other: KnownTruth) -> None:
    assert one.labels.tolist() == other.labels.tolist()
    assert one.is_spurious.tolist() == other.is_spurious.tolist()
    np.testing.assert_allclose(one.boxes, other.boxes, atol=0.01)  # YOLO's eight digits


def test_file_and_clean_dataset_tell_the_same_in_every_format(clean: Path, tmp_path: Path) -> None:
    before, noisy = write_noisy_pair(
        clean, tmp_path / "noisy", labels="symmetric:0.4", boxes="uniform:0.2"
    )
    by_file, by_dataset = known_truth(tmp_path / "noisy", noisy), known_truth(clean, noisy)
    assert_same(by_file, by_dataset)
    assert by_file.labels.tolist() == before.labels.tolist()
    assert by_file.is_wrong(noisy.labels).sum() == round(0.4 * len(before))
    assert len(by_file.image_boxes) == len(by_dataset.image_boxes) == len(before)


def test_annotations_in_one_version_only_are_spurious_or_missing(
    toys: Path, tmp_path: Path
) -> None:
    clean = f"{toys}:train"
    before = load(clean)
    settings = NoiseSettings(missing=0.2, spurious=0.3, seed=3)
    noisy = disturb(before, settings)
    write_noisy(noisy, settings, tmp_path / "noisy", WriteOptions(images_as="none"))
    dataset = load(str(tmp_path / "noisy"))
    by_file, by_dataset = known_truth(tmp_path / "noisy", dataset), known_truth(clean, dataset)
    assert_same(by_file, by_dataset)
    assert by_dataset.is_spurious.sum() == noisy.counts["spurious"] > 0
    assert len(by_dataset.image_boxes) == len(before)
    assert sorted(by_dataset.image_rows.tolist()) == sorted(before.image_rows.tolist())
    # COCO's ids are numbers, which do not tell the image of what is missing
    assert len(by_file.image_boxes) == len(before) - noisy.counts["missing"] < len(before)


@pytest.mark.parametrize("clean", ["voc", "yolo"], indirect=True)
def test_places_that_shift_are_refused_but_the_file_knows(clean: Path, tmp_path: Path) -> None:
    before, noisy = write_noisy_pair(clean, tmp_path / "noisy", missing=0.2)
    with pytest.raises(DataError, match=r"annotations of .*truth\.parquet"):
        known_truth(clean, noisy)
    truth = known_truth(tmp_path / "noisy", noisy)
    assert not truth.is_wrong(noisy.labels).any()
    np.testing.assert_allclose(truth.boxes, noisy.boxes, atol=0.01)
    assert len(truth.image_boxes) == len(before)  # ids are places, which tell the image


def test_a_dataset_is_its_own_truth(toys: Path) -> None:
    dataset = load(f"{toys}:train")
    truth = known_truth(f"{toys}:train", dataset)
    assert not truth.is_wrong(dataset.labels).any()
    assert truth.boxes.tolist() == dataset.boxes.tolist()


def test_a_file_that_lacks_an_annotation_is_of_another_dataset(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1], [VAN], [A])
    with pytest.raises(DataError, match=r"truth\.parquet: has no annotation 2, so"):
        known_truth(path, annotated([A, B], [VAN, VAN], ids=[1, 2]))


def test_a_file_with_an_annotation_twice_is_refused(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1, 1], [VAN, BUS], [A, A])
    with pytest.raises(DataError, match="annotation 1 appears twice"):
        known_truth(path, annotated([A], [VAN], ids=[1]))


def test_annotations_that_share_an_id_are_refused(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1], [VAN], [A])
    with pytest.raises(DataError, match="share an id"):
        known_truth(path, annotated([A, B], [VAN, VAN], ids=[1, 1]))


def test_other_label_names_are_refused(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1], [0], [A], names=("cat", "dog"))
    with pytest.raises(DataError, match=r"other label names \('cat', \.\.\.\) than"):
        known_truth(path, annotated([A], [VAN], ids=[1]))


def test_boxes_that_lie_elsewhere_are_of_another_dataset(tmp_path: Path) -> None:
    dataset = annotated([A, B, C], [VAN] * 3, ids=[1, 2, 3])
    path = make_truth_file(tmp_path / "truth.parquet", [1, 2, 3], [VAN] * 3, [A, C, B])
    with pytest.raises(DataError, match=r"most boxes .* annotation 2,"):
        known_truth(path, dataset)
    (tmp_path / "more").mkdir()
    path = make_truth_file(tmp_path / "more" / "truth.parquet", [1, 2, 3], [VAN] * 3, [A, B, B])
    assert len(known_truth(path, dataset).labels) == 3  # one of three may


@pytest.mark.parametrize("side", [np.nan, np.inf, -np.inf])
def test_a_true_box_that_is_none_is_refused(tmp_path: Path, side: float) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1, 2, 3], [0, 0, 0], [A, B, (side, *C[1:])])
    with pytest.raises(
        DataError, match=r"truth\.parquet: the true box of annotation 3 is not finite;"
    ):
        known_truth(path, annotated([A, B, C], [VAN] * 3, ids=[1, 2, 3]))


def test_crowds_of_a_clean_dataset_are_no_true_boxes_either(tmp_path: Path) -> None:
    boxes = [[10, 10, 20, 20], [40, 40, 20, 30]]  # A, then B as a crowd
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 99, "height": 99}],
        "categories": [{"id": 1, "name": "van"}],
        "annotations": [
            {"id": k + 1, "image_id": 1, "category_id": 1, "bbox": box, "iscrowd": k}
            for k, box in enumerate(boxes)
        ],
    }
    path = tmp_path / "instances_train.json"
    path.write_text(json.dumps(document))
    truth = known_truth(path, load(str(path)))
    assert truth.boxes.tolist() == [list(A), list(B)]
    assert truth.image_boxes.tolist() == [list(A)]


def test_a_clean_dataset_without_an_image_is_another_one(toys: Path) -> None:
    dataset = load(f"{toys}:train")
    with pytest.raises(DataError, match=r"lacks \S+\.png"):
        known_truth(f"{toys}:val", dataset)


def test_a_clean_dataset_with_other_ids_is_refused(toys: Path) -> None:
    dataset = load(f"{toys}:train")
    moved = replace(dataset, annotation_ids=dataset.annotation_ids + 10**6)
    with pytest.raises(DataError, match=r"none of the annotation ids of the dataset .*100000\d"):
        known_truth(f"{toys}:train", moved)


def test_a_clean_dataset_that_is_numbered_anew_is_refused(toys: Path) -> None:
    dataset = load(f"{toys}:train")
    shuffled = replace(dataset, annotation_ids=dataset.annotation_ids[::-1].copy())
    with pytest.raises(DataError, match="is in another image"):
        known_truth(f"{toys}:train", shuffled)


def test_a_path_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        known_truth(tmp_path / "truth.parquet", annotated([A], [VAN]))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "truth.parquet").write_bytes(b"PAR1 or so")
    with pytest.raises(DataError, match="cannot be read as a truth file"):
        known_truth(tmp_path, annotated([A], [VAN]))


def test_an_empty_dataset_has_an_empty_truth(tmp_path: Path) -> None:
    path = make_truth_file(tmp_path / "truth.parquet", [1], [VAN], [A])
    truth = known_truth(path, annotated([], []))
    assert len(truth.labels) == len(truth.boxes) == len(truth.image_boxes) == 0


def test_a_clean_dataset_has_all_objects_with_their_labels() -> None:
    # Its classes are in another order, and its first annotation is a crowd, which does not count.
    clean = annotated([B, A, B, C], [0, 1, 0, 2], ids=[4, 1, 2, 3], names=("bus", "van", "truck"))
    clean.is_crowd[0] = True
    # Annotation 2 is missing, 9 is spurious.
    dataset = annotated([C, A, B, B], [TRUCK, VAN, VAN, BUS], ids=[3, 1, 9, 4])
    dataset.is_crowd[3] = True
    objects = known_truth(clean, dataset).objects
    assert objects is not None
    assert objects.labels.tolist() == [VAN, BUS, TRUCK]
    assert objects.boxes.tolist() == [list(A), list(B), list(C)]
    assert objects.object_rows.tolist() == [2, 0, -1, -1]
    assert objects.is_missing.tolist() == [False, True, False]
    assert objects.are_all_known


def test_a_file_has_missing_objects_if_ids_name_their_image(tmp_path: Path) -> None:
    dataset = annotated([A, C, A], [VAN] * 3, ids=["1:0", "1:2", "1:3"])
    path = make_truth_file(
        tmp_path / "truth.parquet",
        ["1:0", "?", "1:2", "1:3"],
        [VAN, BUS, TRUCK, VAN],
        [A, B, C, A],
        origins=[Origin.KEPT, Origin.MISSING, Origin.KEPT, Origin.DUPLICATE],
        sources=["1:0", "1:1", "1:2", "1:0"],
    )
    objects = known_truth(path, dataset).objects
    assert objects is not None
    assert objects.labels.tolist() == [VAN, TRUCK, BUS]
    assert objects.object_rows.tolist() == [0, 1, 0]  # the last is a duplicate of the first
    assert objects.is_missing.tolist() == [False, False, True]
    assert objects.image_rows.tolist() == [0, 0, 0]
    assert objects.are_all_known


def test_a_file_of_numbered_annotations_does_not_know_where_missing_ones_were(
    tmp_path: Path,
) -> None:
    dataset = annotated([A], [VAN], ids=[1])
    origins = [Origin.KEPT, Origin.MISSING]
    path = make_truth_file(tmp_path / "truth.parquet", [1, 0], [VAN, BUS], [A, B], origins=origins)
    objects = known_truth(path, dataset).objects
    assert objects is not None
    assert not objects.are_all_known
    assert objects.labels.tolist() == [VAN]


def test_without_missing_ones_a_file_knows_all_objects(tmp_path: Path) -> None:
    objects = known_truth(
        make_truth_file(tmp_path / "truth.parquet", [1], [BUS], [A]), annotated([A], [VAN], ids=[1])
    ).objects
    assert objects is not None
    assert objects.are_all_known
    assert not objects.is_missing.any()


def test_the_file_and_the_clean_dataset_tell_of_the_same_objects(
    clean: Path, tmp_path: Path
) -> None:
    noise = {"labels": "symmetric:0.4", "missing": 0.0, "boxes": "uniform:0.2"}
    original, noisy = write_noisy_pair(clean, tmp_path / "noisy", **noise)
    truth_of_file = known_truth(tmp_path / "noisy", noisy).objects
    truth_of_clean = known_truth(str(clean), noisy).objects
    assert truth_of_file is not None
    assert truth_of_clean is not None
    assert sorted(truth_of_file.labels.tolist()) == sorted(original.labels.tolist())
    for one in (truth_of_file, truth_of_clean):
        assert one.are_all_known
        assert (one.image_rows[one.object_rows] == noisy.image_rows).all()
    rows, others = truth_of_file.object_rows, truth_of_clean.object_rows
    assert (truth_of_file.labels[rows] == truth_of_clean.labels[others]).all()
    assert np.allclose(truth_of_file.boxes[rows], truth_of_clean.boxes[others])
