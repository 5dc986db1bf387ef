"""The kinds of files that predictions come in, joined into one table."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from boxmend.auditing.predictions import ResolvedPredictions, read_predictions
from boxmend.errors import BoxmendError, DataError, UsageError
from tests.auditing.predictions.prediction_worlds import (
    LABEL_NAMES,
    annotated_boxes,
    as_json,
    coco,
    expected_boxes,
    results,
    shares,
    yolo,
)


def columns(**changes: Any) -> dict[str, Any]:
    """The table of what `results` finds; None takes a column out."""
    boxes, (_, labels) = expected_boxes(), annotated_boxes()
    every: dict[str, Any] = {
        "image": [f"{k // 2:06d}.jpg" for k in range(len(boxes))],
        **{side: boxes[:, k] for k, side in enumerate(("x1", "y1", "x2", "y2"))},
        "label": [LABEL_NAMES[one] for one in labels],
        "score": [round(0.5 + k / 1000, 4) for k in range(len(boxes))],
    } | changes
    return {key: value for key, value in every.items() if value is not None}


def written(path: Path, **changes: Any) -> Path:
    table = pa.table(columns(**changes))
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


def same(a: ResolvedPredictions, b: ResolvedPredictions) -> bool:
    names = ("image_rows", "labels", "scores", "folds")
    return np.allclose(a.boxes, b.boxes) and all(
        getattr(a, one).tolist() == getattr(b, one).tolist() for one in names
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_says_the_same_as_results(tmp_path: Path, ending: str) -> None:
    dataset = coco(tmp_path)
    plain = read_predictions([as_json(tmp_path / "found.json", results())], dataset)
    found = read_predictions([written(tmp_path / f"found.{ending}")], dataset)
    assert same(found, plain)
    assert found.notes == []


def test_a_damaged_page_with_a_checksum_is_refused(tmp_path: Path) -> None:
    dataset, path = coco(tmp_path), tmp_path / "found.parquet"
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table(columns()), path, write_page_checksum=True, **plain)
    content, scores = path.read_bytes(), np.array(columns()["score"]).tobytes()
    assert content.count(scores) == 1
    path.write_bytes(content.replace(scores, bytes([scores[0] ^ 1]) + scores[1:]))
    with pytest.raises(DataError, match=r"found\.parquet: cannot be read as a table \(.*CRC"):
        read_predictions([path], dataset)


def test_columns_have_the_names_that_people_give_them(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    plain = read_predictions([as_json(tmp_path / "found.json", results())], dataset)
    every = columns()
    boxes, names = annotated_boxes()[0] + 1, tuple(every)
    new = dict(zip(("File Name", "xmin", "Y_MIN", "x_max", "ymax", "class", "Confidence"),
                   (every[one] for one in names), strict=True))  # fmt: skip
    path = tmp_path / "renamed.csv"
    pyarrow.csv.write_csv(pa.table(new), path)
    assert same(read_predictions([path], dataset), plain)
    sized = {
        "image_id": [100 + k // 2 for k in range(60)],
        **{side: boxes[:, k] for k, side in enumerate(("x", "y", "width", "height"))},
        "category_id": [(3, 9, 5)[one] for one in annotated_boxes()[1]],
        "conf": every["score"],
    }
    pq.write_table(pa.table(sized), tmp_path / "sized.parquet")
    assert same(read_predictions([tmp_path / "sized.parquet"], dataset), plain)


def test_a_csv_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    lines = ["image;x1;y1;x2;y2;label;score"]
    lines += [";".join(map(str, row)) for row in zip(*columns().values(), strict=True)]
    path = tmp_path / "found.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert len(read_predictions([path], dataset)) == 60


def test_class_columns_and_folds_of_a_table_are_read_by_name(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    one_hot = np.eye(3, dtype=np.float32)[annotated_boxes()[1]]
    vectors = {f"p_{LABEL_NAMES[k]}": one_hot[:, k] for k in (2, 0, 1)}
    path = written(
        tmp_path / "found.parquet", fold=np.arange(60) % 5, p_bird=one_hot[:, 0], **vectors
    )
    found = read_predictions([path], dataset)
    assert found.class_scores is not None
    assert found.class_scores.shape == (60, 3)
    assert found.class_scores.argmax(axis=1).tolist() == found.labels.tolist()
    assert sorted(set(found.folds.tolist())) == [0, 1, 2, 3, 4]
    assert found.notes == ["columns without a class of the data are ignored: p_bird"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1, 2), None),
        ((0, 2, 1), "the order of the category ids"),
        ((0, 1, 2, None), "the order of the classes, with the background last"),
        ((None, 0, 1, 2), "the order of the classes, with the background first"),
    ],
)
@pytest.mark.parametrize("key", ["probs", "scores"])
def test_class_vectors_are_put_into_the_order_of_labels(
    tmp_path: Path, order: tuple[int | None, ...], words: str | None, key: str
) -> None:
    dataset = coco(tmp_path)
    labels = dataset.labels.tolist()
    entries = [
        one | {key: [0.01 if at is None else 0.8 if at == label else 0.1 for at in order]}
        for one, label in zip(results(), labels, strict=True)
    ]
    found = read_predictions([as_json(tmp_path / "found.json", entries)], dataset)
    assert found.class_scores is not None
    assert found.class_scores.dtype == np.float32
    assert found.class_scores.argmax(axis=1).tolist() == found.labels.tolist()
    assert found.notes == ([f"the class vectors were read in {words}"] if words else [])


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([0.2, 0.8], "class vectors have 2 values, but the data have 3 classes"),
        ([0.2, 3.5, -1.0], "value 3.5; expected probabilities from 0 to 1"),
        ([0.2, "a", 0.1], "not a list of finite numbers"),
        (0.7, "probs is 0.7, not a list of finite numbers"),
    ],
)
def test_class_vectors_that_are_none_are_refused(tmp_path: Path, vector: Any, message: str) -> None:
    dataset = coco(tmp_path)
    entries = [one | {"probs": vector} for one in results()]
    with pytest.raises(DataError, match=message):
        read_predictions([as_json(tmp_path / "found.json", entries)], dataset)


def test_vectors_that_do_not_fit_the_labels_are_refused(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    labels = dataset.labels.tolist()
    entries = [
        one | {"probs": [0.9 if k == (label + 1) % 3 else 0.05 for k in range(3)]}
        for one, label in zip(results(), labels, strict=True)
    ]
    for one in entries:
        one["category_name"] = LABEL_NAMES[(3, 9, 5).index(one["category_id"])]
    found = as_json(tmp_path / "found.json", entries)
    with pytest.raises(DataError, match="class vectors do not fit the labels"):
        read_predictions([found], dataset)


def test_vectors_that_only_some_detections_have_are_left_aside(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    entries = results()
    entries[0]["probs"] = [0.1, 0.2, 0.3]
    assert read_predictions([as_json(tmp_path / "a.json", entries)], dataset).class_scores is None


def test_a_folder_of_label_files_is_read(tmp_path: Path) -> None:
    dataset = yolo(tmp_path / "data")
    boxes, labels = annotated_boxes()
    folder = tmp_path / "run" / "labels"
    folder.mkdir(parents=True)
    for image in range(30):
        lines = [
            " ".join(map(str, (labels[k], *shares(boxes[k] + 1), 0.5 + k / 1000)))
            for k in (2 * image, 2 * image + 1)
        ]
        (folder / f"{image:06d}.txt").write_text("\n".join(lines) + "\n\n")
    (folder / "classes.txt").write_text("cat\n")
    for path in (folder, folder.parent):
        found = read_predictions([path], dataset)
        order = np.lexsort((found.scores, found.image_rows))
        assert np.allclose(found.boxes[order], expected_boxes(), atol=1e-6)
        assert found.labels[order].tolist() == labels
        assert found.notes == []


def test_label_files_count_classes_whatever_ids_the_data_have(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    boxes, labels = annotated_boxes()
    folder = tmp_path / "labels"
    folder.mkdir()
    for k in range(0, 60, 2):
        numbers = (labels[k], *shares(boxes[k]), 0.9)
        (folder / f"{k // 2:06d}.txt").write_text(" ".join(map(str, numbers)))
    found = read_predictions([folder], dataset)
    assert found.labels.tolist() == labels[::2]
    assert found.notes == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 0.1 0.1", "line 2: .*has no confidence; predict again with save_conf=True"),
        ("0 0.5 0.5 0.1 nan 0.9", "line 2: .*expected lines"),
        ("0 0.5 0.5 0.1 0.9 0.9 7", "line 2: .*expected lines"),
        ("cat 0.5 0.5 0.1 0.1 0.9", "line 2: .*expected lines"),
        ("0 0.5 0.5 0.1 0.1 90", "line 2: .*does not lie between 0 and 1"),
        ("0 0.5 0.5 -0.1 0.1 0.9", "line 2: .*negative width or height"),
    ],
)
def test_a_line_that_is_none_is_told(tmp_path: Path, line: str, message: str) -> None:
    dataset = yolo(tmp_path / "data")
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "000002.txt").write_text(f"0 0.5 0.5 0.1 0.1 0.9\n{line}\n")
    with pytest.raises(DataError, match=rf"000002\.txt: {message}"):
        read_predictions([folder], dataset)


def test_the_order_of_files_and_rows_does_not_matter(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    every = [entry | {"score": 0.5} for entry in results()]  # so that much is equal
    one = as_json(tmp_path / "one.json", every[::2])
    two = as_json(tmp_path / "two.json", every[::-2])
    table = written(tmp_path / "three.csv", score=np.full(60, 0.25))
    expected = read_predictions([one, two, table], dataset)
    assert len(expected) == 120
    assert same(read_predictions([table, two, one], dataset), expected)


BAD_TABLES: list[tuple[str, dict[str, Any], str]] = [
    ("csv", {"score": None}, "has no column for score; its columns are image, x1, y1"),
    ("parquet", {"x2": None, "image": None}, r"has no column for image, a box \(x1, y1, x2, y2\)"),
    ("csv", {"score": [0.5] * 59 + [None]}, r"row 59 \(the first is 0\): score is empty or no"),
    ("parquet", {"x1": [float("nan")] + [1.0] * 59}, r"row 0 \(the first is 0\): x1 is empty"),
    ("csv", {"y1": ["high"] * 60}, "column y1 has other values than numbers"),
    ("parquet", {"image": [None] + ["000001.jpg"] * 59}, "row 0 .*image is empty"),
    ("parquet", {"label": [[1]] * 60}, "column label"),
    ("parquet", {"fold": [0.5] * 60}, "row 0 .*fold is not a whole number"),
    ("csv", {"X_1": [1] * 60}, "columns 'x1' and 'X_1' mean the same"),
    ("parquet", {"label": ["bird"] * 60}, "60 of 60 detections are of classes"),
]


@pytest.mark.parametrize(("ending", "changes", "message"), BAD_TABLES)
def test_a_table_that_cannot_be_used_is_told(
    tmp_path: Path, ending: str, changes: dict[str, Any], message: str
) -> None:
    dataset = coco(tmp_path)
    with pytest.raises(DataError, match=message):
        read_predictions([written(tmp_path / f"found.{ending}", **changes)], dataset)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"\xff\xfe\x00 image\n"),
        ("a.csv", b"image,x1,y1,x2,y2,label,score\n1,2\n"),
        ("a.csv", b"image,x1,y1,x2,y2,label,score\n\xff\xff,1,2,3,4,cat,0.5\n"),
        ("a.parquet", b"PAR1 and no more"),
        ("a.txt", b"hello\n"),
        ("a.json", b"{}"),
        ("a.json", b""),
        ("a", b"\x00" * 5000),
    ],
)
def test_a_file_of_something_else_is_told(tmp_path: Path, name: str, content: bytes) -> None:
    dataset = coco(tmp_path)
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_predictions([path], dataset)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_no_detection_at_all_is_refused_and_one_empty_file_of_several_told(tmp_path: Path) -> None:
    dataset = coco(tmp_path)
    empty = as_json(tmp_path / "empty.json", [])
    with pytest.raises(DataError, match="there is no detection"):
        read_predictions([empty], dataset)
    found = read_predictions([empty, as_json(tmp_path / "found.json", results())], dataset)
    assert len(found) == 60
    assert found.notes == [f"there is no detection in {empty}"]


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        ([], UsageError, "no predictions given"),
        (["nowhere.json"], UsageError, "no such file or folder"),
        (["found.json", "found.json"], UsageError, "is given twice"),
        (["folder"], DataError, "there are no predictions in this folder; expected COCO"),
    ],
)
def test_places_that_hold_nothing_are_told(
    tmp_path: Path, names: list[str], kind: type[BoxmendError], message: str
) -> None:
    dataset = coco(tmp_path)
    as_json(tmp_path / "found.json", results())
    (tmp_path / "folder").mkdir()
    with pytest.raises(kind, match=message):
        read_predictions([tmp_path / one for one in names], dataset)
